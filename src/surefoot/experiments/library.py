"""Which runs exist already, and what is left to train."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from surefoot.experiments.job import Block, Job
from surefoot.report.data import load_result, load_run
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import RunInfo, config_of, read_info
from surefoot.runs.listing import is_run


@dataclass(frozen=True)
class StoredRun:
    """A run on disk that can be read."""

    path: Path
    info: RunInfo
    config: Any
    finished: bool
    resumable: bool
    """Whether it lies where this command trains, and so may be resumed."""

    @cached_property
    def steps(self) -> int:
        """Real steps that it has taken; 0 if it has no epoch yet."""
        try:
            return load_run(self.path).real_steps
        except (ValueError, OSError):
            return 0


@dataclass(frozen=True)
class Plan:
    """The runs of a job that exist, and those that are missing."""

    job: Job
    steps: int
    """Real steps that the job requests."""
    complete: tuple[StoredRun, ...]
    """Runs that have taken the requested steps."""
    partial: tuple[StoredRun, ...]
    """Shorter runs, of seeds that no complete run has."""
    blocks: tuple[Block, ...]
    """What is left to train or to resume."""

    @property
    def done(self) -> int:
        """Number of the job's seeds that have complete runs."""
        return len(
            {s for run in self.complete for s in run.info.seeds} & set(range(self.job.seeds))
        )


def stored_runs(folders: Sequence[Path], resumable: bool) -> tuple[list[StoredRun], list[str]]:
    """The runs in folders (or that the folders are), and a message for each that is unreadable."""
    runs, problems = [], []
    for folder in folders:
        if not folder.exists():
            raise ValueError(f"runs={folder} is neither a run nor a folder with runs")
        if not folder.is_dir():  # `--runs results/*` also names files
            problems.append(f"left out: {folder} is not a folder")
            continue
        paths = [folder] if is_run(folder) else sorted(p for p in folder.iterdir() if is_run(p))
        for path in paths:
            try:
                run = RunFolder(path)
                info = read_info(run)
                config, result = config_of(info, path), load_result(run, info)
            except (ValueError, OSError) as error:
                problems.append(f"left out: {path}: {error}")
            else:
                finished = result is not None and result.failed is None
                runs.append(StoredRun(path, info, config, finished, resumable))
    return runs, problems


def make_plan(job: Job, runs: Sequence[StoredRun], home: Path, device: str, most: int) -> Plan:
    """Choose runs with a job's settings, resume those that may be, and train the missing seeds.

    A longer run serves a shorter job up to its steps; a shorter one is shown as it is. New runs of
    at most `most` seeds lie in `home`.
    """
    config = job.config(device)
    fitting = [run for run in runs if _fits(run, job, config)]
    exact = {run.path for run in fitting if run.config == config}
    complete = {
        run.path
        for run in fitting
        if (run.finished if run.path in exact else run.steps >= config.steps)
    }

    def rank(run: StoredRun) -> tuple[bool, bool, int, int, bool, str]:
        """Complete before partial runs, then long ones, many seeds, and evaluated at this end."""
        steps = 0 if run.path in complete else -run.steps
        return (
            run.path not in complete, not run.resumable, steps, -len(run.info.seeds),
            run.path not in exact, str(run.path),
        )  # fmt: skip

    missing, covered = set(range(job.seeds)), set[int]()
    chosen: list[StoredRun] = []
    blocks: list[Block] = []
    for run in sorted(fitting, key=rank):
        seeds = set(run.info.seeds)
        if not seeds & missing or seeds & covered:
            continue
        covered |= seeds
        chosen.append(run)
        resumed = run.resumable and run.path in exact and run.path not in complete
        if resumed:
            blocks.append(Block(job, run.info.seeds[0], len(seeds), run.path))
        if resumed or run.path in complete:
            missing -= seeds
    for first, count in _consecutive(sorted(missing), 1 if job.alone else most):
        name = f"{job.name(device)}-seeds-{first}-{first + count - 1}"
        blocks.append(Block(job, first, count, home / name))
    return Plan(
        job,
        config.steps,
        tuple(run for run in chosen if run.path in complete),
        tuple(run for run in chosen if run.path not in complete),
        tuple(blocks),
    )


def _fits(run: StoredRun, job: Job, config: Any) -> bool:
    """Whether a run has a job's settings, up to its number of real steps."""
    same = run.config == config
    # If learning rates decay, a longer or shorter run differs from the start.
    if not same and type(run.config) is type(config) and getattr(config, "final_rate", 1.0) == 1.0:
        same = replace(run.config, steps=config.steps) == config
    return (
        same
        and run.info.task == job.task
        and run.info.algorithm == job.algorithm
        and run.info.task_options == json.loads(json.dumps(dict(job.task_options)))
        # The time of several seeds side by side is not the time of one.
        and (len(run.info.seeds) == 1 or not job.alone)
    )


def _consecutive(seeds: Sequence[int], most: int) -> list[tuple[int, int]]:
    """(first, count) of consecutive seeds, at most `most` at a time."""
    parts = []
    for _, group in groupby(enumerate(seeds), key=lambda pair: pair[1] - pair[0]):
        row = [seed for _, seed in group]
        parts += [(row[i], len(row[i : i + most])) for i in range(0, len(row), most)]
    return parts
