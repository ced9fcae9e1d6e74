"""The commands that report on runs: compare and report."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.markup import escape
from tyro.conf import Positional

from surefoot.cli.output import Json, Run, emit, err, out


def compare(
    runs: Positional[tuple[Path, ...]],
    out_: Annotated[Path, tyro.conf.arg(name="out")] = Path("comparison"),
    title: str | None = None,
    json_: Json = False,
) -> int:
    """Compare runs: statistics over seeds, figures and one HTML page; exit 1 if a run is left out.

    Args:
        runs: Folders of runs. Runs that differ only in their seeds form a group.
        out_: Folder of the report; an existing report is replaced.
        title: Title of the page.
    """
    from surefoot.report.compare import SUMMARY
    from surefoot.report.compare import compare as write

    page = write(runs, out_, title)
    summary = json.loads((page.parent / SUMMARY).read_text())
    for problem in summary["left_out"]:
        err.print(f"[red]left out:[/] {escape(problem)}")
    emit(json_, summary, [*_lines(summary["groups"]), f"page: {page}"])
    return 1 if summary["left_out"] else 0


def report(
    run: Run,
    out_: Annotated[Path | None, tyro.conf.arg(name="out")] = None,
    diagnose: bool = False,
    film: bool = False,
) -> None:
    """Write one HTML page about a run: curves, evaluation, model diagnosis, clip and settings.

    Args:
        out_: The page; report.html in the run's folder if not given.
        diagnose: Diagnose the learned model first, on fresh real episodes.
        film: Film an episode first, as clip.gif.
    """
    from surefoot import api

    if diagnose:
        api.diagnose(run)
    if film:
        from surefoot.use.film import film as film_run

        film_run(run, run / "clip.gif", size=360, every=4)
    out.print(f"page: {api.write_report(run, out_)}", markup=False)


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    from surefoot.report.table import plural, spread

    for row in rows:
        state = "" if row["state"] == "finished" else f", {row['state']}"
        reward, cost = (spread(row[name], row[f"{name}_std"]) for name in ("reward", "cost"))
        yield (
            f"{row['task']}, {row['label']} ({plural(row['seeds'], 'seed')}, "
            f"{row['real_steps']:,} real steps{state}): reward {reward}, cost {cost} "
            f"(limit {row['cost_limit']:g}), on {row['measured_on']}"
        )
