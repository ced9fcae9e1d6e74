"""The figure of growth: time and peak memory over the size of the work."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from surefoot.report.figures import COLOURS, GREY, count, plt, save_into_run, tidy

LABELS = {
    "seeds": "seeds (pass of practice)",
    "rollouts": "rollouts (pass of practice)",
    "rows": "rows of data (fit)",
    "environments": "environments (collecting)",
}
MEASURED = (("seconds", "seconds per call", 1.0), ("bytes", "peak memory, MiB", 2.0**20))


def draw_growth(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Draw each quantity in a column, time above memory, with lines of linear growth."""
    names = list(dict.fromkeys(row["quantity"] for row in rows))
    figure, axes = plt.subplots(
        2, len(names), figsize=(0.6 + 2.4 * len(names), 4.4), layout="constrained", squeeze=False
    )
    for column, name in enumerate(names):
        some = [row for row in rows if row["quantity"] == name]
        sizes = [row["size"] for row in some]
        for number, (key, label, unit) in enumerate(MEASURED):
            axis, values = axes[number, column], [row[key] / unit for row in some]
            axis.loglog(sizes, values, "o-", color=COLOURS[number], ms=4, lw=1.5)
            linear = [values[-1] * size / sizes[-1] for size in sizes]
            axis.loglog(sizes, linear, "--", color=GREY, lw=1, label="linear", zorder=1)
            axis.set_xticks(sizes, [count(size) for size in sizes])
            axis.minorticks_off()
            tidy(axis)
            if not column:
                axis.set_ylabel(label)
        axes[1, column].set_xlabel(LABELS.get(name, name))
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.suptitle(f"Growth on {rows[0]['device']}", fontsize=10, parse_math=False)
    return save_into_run(figure, path)
