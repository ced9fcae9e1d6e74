"""The command that reports on runs: compare."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from tyro.conf import Positional

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def compare(
    runs: Positional[tuple[Path, ...]],
    out_: Annotated[Path, tyro.conf.arg(name="out")] = Path("comparison"),
    title: str | None = None,
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """Compare runs: statistics over seeds, figures and one HTML page; exit 1 if a run was left out.

    Args:
        runs: The runs' folders; those that differ in nothing but seeds are joined.
        out_: Where the report goes; a report that is there is replaced.
        title: The page's title.
        json_: Print the summary as one JSON object.
    """
    import json

    from surefoot.report.compare import SUMMARY
    from surefoot.report.compare import compare as write

    page = write(runs, out_, title)
    text = (page.parent / SUMMARY).read_text()
    found = json.loads(text)
    for problem in found["left_out"]:
        err.print(f"[red]left out:[/] {escape(problem)}")
    if json_:
        print(text, end="")
        return 1 if found["left_out"] else 0
    for row in found["groups"]:
        seeds = f"{row['seeds']} seed{'' if row['seeds'] == 1 else 's'}"
        state = "" if row["state"] == "finished" else f", {row['state']}"
        out.print(
            f"{row['task']}, {row['label']} ({seeds}, {row['real_steps']:,} real steps{state}): "
            f"reward {_spread(row, 'reward')}, cost {_spread(row, 'cost')} "
            f"(limit {row['cost_limit']:g}), on {row['measured_on']}",
            markup=False,
        )
    out.print(f"page: {page}", markup=False)
    return 1 if found["left_out"] else 0


def _spread(row: dict, name: str) -> str:
    if row[name] is None:
        return "unknown"
    spread = row[f"{name}_std"]
    return f"{row[name]:.1f}" + ("" if spread is None else f" ± {spread:.1f}")
