"""The command that reproduces the paper: reproduce."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from tyro.conf import Positional

out = Console(highlight=False, soft_wrap=True)


def reproduce(
    name: Positional[str] = "list",
    seeds: int | None = None,
    scale: float = 1.0,
    out_: Annotated[Path, tyro.conf.arg(name="out")] = Path("runs/reproduced"),
    runs: tuple[Path, ...] = (),
    report_only: bool = False,
    jobs: int | None = None,
    block: int | None = None,
    on: Literal["here", "ray"] = "here",
    ray_address: str | None = None,
    shared: bool = True,
    device: Literal["auto", "cpu", "gpu"] = "auto",
    quiet: bool = False,
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """Run an experiment of the paper and write its page; what is done already is not done again.

    Args:
        name: An experiment, or list, which shows them all and how much of each is done.
        seeds: Seeds of every algorithm (default: as the experiment says).
        scale: Share of the real steps, for a quick look.
        out_: Where runs and pages go. Experiments share their runs.
        runs: Runs, or folders with runs, that may be taken where they are the same.
        report_only: Train nothing; report what is there.
        jobs: Trainings at once (default: as many as cores or GPUs allow).
        block: Most seeds trained side by side in one run (default: all).
        on: Where to train: here, or on ray, as tasks of a Ray cluster.
        ray_address: Where that is (default: a Ray on this machine, begun for this).
        shared: Whether all machines of the cluster see the folder --out; if not, files are sent.
        device: What learns, and whose presets count; auto takes a GPU where there is one.
        quiet: Show no progress.
        json_: Print one JSON value.
    """
    from surefoot.experiments import reproduce as experiments

    asked = experiments.Asked(
        seeds, scale, out_, runs, report_only, jobs, block, on, ray_address, shared, device,
        quiet or json_,
    )  # fmt: skip
    if name.lower() == "list":
        rows = experiments.overview(asked)
        print(json.dumps(rows, indent=1)) if json_ else _show(rows)
        return 0
    notes: list[str] = []
    say = notes.append if json_ else lambda line: out.print(line, markup=False)
    page, failed = experiments.reproduce(name, asked, say)
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
        out.print(f"  {row['about']}", markup=False)
        if row["name"] == "paper":
            continue  # all that was told already
        for job in row["jobs"]:
            note = f", {job['note']}" if job["note"] else ""
            out.print(
                f"  {job['done']} of {job['seeds']}  {job['task']}, {job['algorithm']} "
                f"({job['preset']}{note}), {job['steps']:,} real steps",
                markup=False,
            )
    out.print("\nsurefoot reproduce NAME runs one; surefoot reproduce --help says more.")
