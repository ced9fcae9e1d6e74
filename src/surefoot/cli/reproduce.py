"""The command that runs experiments: reproduce."""

import json
from typing import Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from surefoot.experiments.options import Options

out = Console(highlight=False, soft_wrap=True)


def reproduce(
    name: Positional[str] = "list",
    options: OmitArgPrefixes[Options] = Options(),  # noqa: B008
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """Run an experiment and write its page; runs that exist already are used.

    Args:
        name: A built-in experiment, a reference such as my_jobs.py:EXPERIMENT, or list, which shows
            all built-in experiments and how much of each is done.
        options: How to run it.
        json_: Print one JSON value.
    """
    from dataclasses import replace

    from surefoot.experiments import reproduce as experiments

    if name.lower() == "list":
        rows = experiments.overview(options)
        print(json.dumps(rows, indent=1)) if json_ else _show(rows)
        return 0
    notes: list[str] = []
    report = notes.append if json_ else lambda line: out.print(line, markup=False)
    options = replace(options, quiet=options.quiet or json_)
    page, failed = experiments.reproduce(name, options, report)
    if json_:
        print(json.dumps({"page": str(page), "failed": failed, "notes": notes}, indent=1))
    else:
        for line in failed:
            out.print(f"failed: {line}", markup=False)
        out.print(f"page: {page}", markup=False)
    return 1 if failed else 0


def _show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        seeds, done = (sum(job[name] for job in row["jobs"]) for name in ("seeds", "done"))
        out.print(f"\n[bold]{row['name']}[/]  {row['title']} ({done} of {seeds} seeds done)")
        out.print(f"  {row['summary']}", markup=False)
        if row["name"] == "paper":
            continue  # its jobs are those of the experiments above
        for job in row["jobs"]:
            note = f", {job['note']}" if job["note"] else ""
            out.print(
                f"  {job['done']} of {job['seeds']}  {job['task']}, {job['algorithm']} "
                f"({job['preset']}{note}), {job['steps']:,} real steps",
                markup=False,
            )
    out.print("\nsurefoot reproduce NAME runs one; see surefoot reproduce --help.")
