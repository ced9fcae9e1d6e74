"""The command that runs experiments: reproduce."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tyro.conf import OmitArgPrefixes, Positional

from surefoot.cli.output import Json, emit, out
from surefoot.experiments.options import Options


def reproduce(
    name: Positional[str] = "list",
    options: OmitArgPrefixes[Options] = Options(),  # noqa: B008
    json_: Json = False,
) -> int:
    """Run an experiment and write its page; runs that exist already are used.

    Args:
        name: A built-in experiment, a reference such as my_jobs.py:EXPERIMENT, or list, which shows
            all built-in experiments and how much of each is done.
        options: How to run it.
    """
    from surefoot.experiments import reproduce as experiments

    if name.lower() == "list":
        rows = experiments.overview(options)
        emit(json_, rows, _lines(rows))
        return 0
    notes: list[str] = []
    report = notes.append if json_ else lambda line: out.print(line, markup=False)
    options = replace(options, quiet=options.quiet or json_)
    page, failed = experiments.reproduce(name, options, report)
    values = {"page": str(page), "failed": failed, "notes": notes}
    emit(json_, values, [*(f"failed: {line}" for line in failed), f"page: {page}"])
    return 1 if failed else 0


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        seeds, done = (sum(job[name] for job in row["jobs"]) for name in ("seeds", "done"))
        yield ""
        yield f"{row['name']}  {row['title']} ({done} of {seeds} seeds done)"
        yield f"  {row['summary']}"
        if row["name"] == "paper":
            continue  # its jobs are those of the experiments above
        for job in row["jobs"]:
            note = f", {job['note']}" if job["note"] else ""
            yield (
                f"  {job['done']} of {job['seeds']}  {job['task']}, {job['algorithm']} "
                f"({job['preset']}{note}), {job['steps']:,} real steps"
            )
    yield ""
    yield "surefoot reproduce NAME runs one; see surefoot reproduce --help."
