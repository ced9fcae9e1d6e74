"""The command that reports on runs: compare."""

import json
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
    """Compare runs: statistics over seeds, figures and one HTML page; exit 1 if a run is left out.

    Args:
        runs: Folders of runs. Runs that differ only in their seeds form a group.
        out_: Folder of the report; an existing report is replaced.
        title: Title of the page.
        json_: Print the summary as one JSON object.
    """
    from surefoot.report.compare import SUMMARY
    from surefoot.report.compare import compare as write
    from surefoot.report.table import plural, spread

    page = write(runs, out_, title)
    text = (page.parent / SUMMARY).read_text()
    summary = json.loads(text)
    for problem in summary["left_out"]:
        err.print(f"[red]left out:[/] {escape(problem)}")
    if json_:
        print(text, end="")
        return 1 if summary["left_out"] else 0
    for row in summary["groups"]:
        state = "" if row["state"] == "finished" else f", {row['state']}"
        reward, cost = (spread(row[name], row[f"{name}_std"]) for name in ("reward", "cost"))
        out.print(
            f"{row['task']}, {row['label']} ({plural(row['seeds'], 'seed')}, "
            f"{row['real_steps']:,} real steps{state}): reward {reward}, cost {cost} "
            f"(limit {row['cost_limit']:g}), on {row['measured_on']}",
            markup=False,
        )
    out.print(f"page: {page}", markup=False)
    return 1 if summary["left_out"] else 0
