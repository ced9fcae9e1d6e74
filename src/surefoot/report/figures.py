"""Figures of a report: one panel each, at the width of a paper's column, as PNG and PDF.

Every function takes the path of the PNG, writes a PDF beside it and returns the path. The PNG
stores its caption (see `caption_of`), which a page shows below it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from PIL import Image

from surefoot.report import statistics
from surefoot.report.curves import GREY, LABELS, count, finish_curves, plot_curve, plt, style, tidy
from surefoot.report.data import Group
from surefoot.report.table import duration, plural

WIDTH = 3.5  # inches
STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 8,
    "ytick.labelsize": 8, "legend.fontsize": 7, "axes.linewidth": 0.6, "xtick.major.width": 0.6,
    "ytick.major.width": 0.6, "pdf.fonttype": 42,
}  # fmt: skip
ByLabel = Mapping[str, Sequence[np.ndarray]]
"""Scores by label: an array [S] per task."""
Numbers = Mapping[str, int] | None
"""Index of each label, which selects its style; by default in the order of the labels."""
AGGREGATES = (("mean", "o"), ("median", "s"), ("iqm", "D"))


def draw_curves(
    groups: Sequence[Group],
    name: str,
    path: Path,
    log_steps: bool = False,
    lines: Mapping[str, float] | None = None,
) -> Path:
    """Learning curves of one metric; `lines` are horizontal lines by their labels."""
    task = groups[0].task
    what = LABELS.get(name, name)
    caption = f"{task}: {what} over real steps. Mean over seeds with its 95 % bootstrap interval."
    with panel(path, caption, height=2.3) as axis:
        for group in groups:
            plot_curve(axis, group.rows, name, group.shown, group.number)
        finish_curves(axis, name, log_steps)
        axis.set_title(task)
        for limit in sorted({group.cost_limit for group in groups}) if name == "cost" else ():
            axis.axhline(limit, color=GREY, ls="--", lw=1, label=f"limit {limit:g}")
        for dots, (label, level) in zip(cycle((":", "-.")), (lines or {}).items(), strict=False):
            axis.axhline(level, color=GREY, ls=dots, lw=1.2, label=label)
        legend(axis)
    return path


def draw_aggregates(scores: ByLabel, what: str, path: Path, numbers: Numbers = None) -> Path:
    """Mean, median and interquartile mean over tasks and runs, with their intervals."""
    caption = (
        f"{what.capitalize()}: mean, median and interquartile mean with 95 % stratified-bootstrap "
        "intervals."
    )
    with panel(path, caption, rows=len(scores), of_rows=0.5) as axis:
        for row, (label, tasks) in enumerate(scores.items()):
            colour, _ = style((numbers or {}).get(label, row))
            for shift, (name, marker) in zip((-0.22, 0, 0.22), AGGREGATES, strict=True):
                statistic = getattr(statistics, name)
                _point(axis, row + shift, statistic, tasks, colour, marker)
        for name, marker in AGGREGATES:
            shown = name.upper() if name == "iqm" else name
            axis.plot([], [], marker, color=GREY, ms=4, label=shown)
        _name_rows(axis, list(scores))
        if min(task.min() for tasks in scores.values() for task in tasks) >= 0:
            axis.set_xlim(left=-0.03 * axis.get_xlim()[1])  # shows a marker at 0 in full
        axis.set_xlabel(what)
        legend(axis, 3)
    return path


def draw_profiles(scores: ByLabel, what: str, path: Path, numbers: Numbers = None) -> Path:
    """Performance profiles: the share of runs above each score."""
    caption = f"Share of runs above each level of {what}, with 95 % stratified-bootstrap bands."
    every = np.concatenate([task for tasks in scores.values() for task in tasks])
    levels = np.linspace(min(0.0, every.min()), every.max() * 1.05, 101)
    of = lambda drawn: statistics.profile(drawn, levels)
    with panel(path, caption, height=2.3) as axis:
        for row, (label, tasks) in enumerate(scores.items()):
            colour, dashes = style((numbers or {}).get(label, row))
            shares = statistics.profile(tasks, levels)
            axis.plot(levels, shares, dashes, color=colour, lw=1.5, label=label)
            low, high = statistics.interval(of, tasks, resamples=2000)
            axis.fill_between(levels, low, high, color=colour, alpha=0.18, lw=0)
        axis.set_xlabel(what)
        axis.set_ylabel("share of runs above")
        axis.set_ylim(-0.02, 1.02)
        legend(axis)
    return path


def draw_cvar(groups: Sequence[Group], path: Path) -> Path:
    """Mean cost of fresh episodes, and of the worst tenth of them."""
    caption = (
        f"{groups[0].task}: mean cost of fresh episodes, and of the worst tenth of them (CVaR). "
        "Mean over seeds with its 95 % bootstrap interval."
    )
    kinds = (("cost", "o", "all episodes"), ("cost_cvar", "^", "worst tenth"))
    with panel(path, caption, rows=len(groups), of_rows=0.42) as axis:
        for row, group in enumerate(groups):
            colour, _ = style(group.number)
            for shift, (name, marker, _) in zip((-0.14, 0.14), kinds, strict=True):
                values = [group.final(name)]
                _point(axis, row + shift, statistics.mean, values, colour, marker)
        for _, marker, label in kinds:
            axis.plot([], [], marker, color=GREY, ms=4, label=label)
        for limit in sorted({group.cost_limit for group in groups}):
            axis.axvline(limit, color=GREY, ls="--", lw=1, label=f"limit {limit:g}")
        _name_rows(axis, [group.shown for group in groups])
        axis.set_xlim(left=0)
        axis.set_xlabel("episode cost")
        axis.set_title(groups[0].task)
        legend(axis, 3)
    return path


def draw_wall_clock(groups: Sequence[Group], path: Path) -> Path:
    """Wall clock of a run of each group."""
    several = any(len(group.runs) > 1 for group in groups)
    caption = f"{groups[0].task}: wall clock of a run, whose seeds train side by side"
    caption += "; the mean over runs where a group has several." if several else "."
    with panel(path, caption, rows=len(groups), of_rows=0.36) as axis:
        for row, group in enumerate(groups):
            axis.barh(row, group.seconds, 0.6, color=style(group.number)[0], alpha=0.85)
            sizes = sorted({len(run.info.seeds) for run in group.runs})
            few = "" if len(sizes) == 1 else f"{sizes[0]} to "
            _remark(axis, row, f"{duration(group.seconds)}, {few}{plural(sizes[-1], 'seed')}")
        _name_rows(axis, [group.shown for group in groups])
        axis.set_xlabel("wall clock (s)")
        axis.set_title(groups[0].task)
    return path


def draw_sample_efficiency(groups: Sequence[Group], reward: float, path: Path) -> Path:
    """Real steps until an epoch first reaches a reward: each seed, and the median."""
    caption = (
        f"{groups[0].task}: real steps until the first epoch with a reward of {reward:.1f}. One "
        "dot per seed that reached it; the bar is their median."
    )
    with panel(path, caption, rows=len(groups), of_rows=0.42) as axis:
        for row, group in enumerate(groups):
            colour, _ = style(group.number)
            steps = group.first_reaching(reward)
            reached = steps[np.isfinite(steps)]
            heights = np.full(len(reached), row)
            axis.plot(reached, heights, "o", color=colour, ms=4, alpha=0.5, mew=0)
            if len(reached):
                axis.plot([np.median(reached)], [row], "|", color=colour, ms=14, mew=2)
            _remark(axis, row, f"{len(reached)} of {plural(len(steps), 'seed')}")
        _name_rows(axis, [group.shown for group in groups])
        axis.set_xscale("log")
        axis.margins(x=0.08)
        axis.xaxis.set_major_formatter(count)
        axis.set_xlabel(f"real steps to a reward of {reward:.1f}")
        axis.set_title(groups[0].task)
    return path


def caption_of(path: Path) -> str:
    """The caption stored in a figure; empty for other pictures."""
    with Image.open(path) as image:
        return str(image.info.get("Description", ""))


@contextmanager
def panel(
    path: Path, caption: str, height: float = 0.0, rows: int = 0, of_rows: float = 0.0
) -> Iterator[Axes]:
    """An axis at column width; the figure is written if the block ends without an error."""
    with plt.rc_context(STYLE):
        size = (WIDTH, height or 0.75 + rows * of_rows)
        figure, axis = plt.subplots(figsize=size, layout="constrained")
        try:
            yield axis
            tidy(axis)
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=240, metadata={"Description": caption})
            figure.set_layout_engine("none")  # keeps the layout of the PNG
            figure.savefig(path.with_suffix(".pdf"))
        finally:
            plt.close(figure)


def legend(axis: Axes, columns: int = 2) -> None:
    """Add a legend below the axis, in as many columns as fit; the figure grows by its height."""
    figure = axis.get_figure(root=True)
    assert figure is not None
    made = figure.legend(
        *axis.get_legend_handles_labels(), loc="outside lower center", ncols=columns,
        frameon=False, handlelength=1.6, columnspacing=1.0, borderpad=0.2,
    )  # fmt: skip
    size = made.get_window_extent()
    if columns > 1 and size.width > 0.98 * figure.bbox.width:
        made.remove()
        legend(axis, columns - 1)
    else:
        figure.set_figheight(figure.get_figheight() + size.height / figure.dpi)


def _point(
    axis: Axes,
    row: float,
    statistic: statistics.Statistic,
    tasks: Sequence[np.ndarray],
    colour: str,
    marker: str,
) -> None:
    """Draw a statistic and its interval as a point with a line through it."""
    low, high = statistics.interval(statistic, tasks)
    axis.plot(
        [float(low), float(high)],
        [row, row],
        color=colour,
        lw=2.2,
        alpha=0.4,
        solid_capstyle="butt",
    )
    axis.plot([float(statistic(tasks))], [row], marker, color=colour, ms=4, clip_on=False)


def _remark(axis: Axes, row: int, text: str) -> None:
    """Write a text beside a row, right of the axis."""
    axis.annotate(
        text, (1, row), xycoords=("axes fraction", "data"), xytext=(3, 0),
        textcoords="offset points", va="center", fontsize=7, color=GREY,
    )  # fmt: skip


def _name_rows(axis: Axes, labels: list[str]) -> None:
    axis.set_yticks(range(len(labels)), [label.replace(" (", "\n(", 1) for label in labels])
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
