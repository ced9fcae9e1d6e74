"""Which runs there are already, and what is left to train."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from surefoot.algorithms.presets import CONFIGS
from surefoot.experiments.job import Block, Job
from surefoot.report.data import load_run
from surefoot.runs.folder import RunFolder, config_from
from surefoot.runs.info import read_info
from surefoot.runs.listing import is_run, read_result


@dataclass(frozen=True)
class Known:
    """A run on disk that can be read."""

    path: Path
    info: dict[str, Any]
    """Its config.json."""
    config: Any
    finished: bool
    ours: bool
    """Whether it lies where this command trains, and so may be gone on with."""

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(self.info["seeds"])

    @cached_property
    def steps(self) -> int:
        """Real steps that it has taken; 0 where that cannot be told."""
        try:
            return load_run(self.path).real_steps
        except (ValueError, OSError):
            return 0


@dataclass(frozen=True)
class Plan:
    """What there is of a job, and what is left to do."""

    job: Job
    steps: int
    """Real steps that the job asks for."""
    taken: tuple[Known, ...]
    """Finished runs, and longer ones that have come as far."""
    begun: tuple[Known, ...]
    """Runs that are not, of the seeds that nothing taken has."""
    blocks: tuple[Block, ...]
    """What is to be trained or gone on with."""

    @property
    def done(self) -> int:
        """How many of the job's seeds there are."""
        return len({s for run in self.taken for s in run.seeds} & set(range(self.job.seeds)))


def known_runs(folders: Sequence[Path], ours: bool) -> tuple[list[Known], list[str]]:
    """The runs in folders, or that the folders are; and what could not be read, a sentence each."""
    found, problems = [], []
    for folder in folders:
        if not folder.exists():
            raise ValueError(f"--runs {folder} is neither a run nor a folder with runs")
        if not folder.is_dir():  # as `--runs results/*` also names
            problems.append(f"{folder} is left out: it is not a folder")
            continue
        paths = [folder] if is_run(folder) else sorted(p for p in folder.iterdir() if is_run(p))
        for path in paths:
            try:
                found.append(_read(path, ours))
            except (ValueError, OSError) as error:
                problems.append(f"{path} is left out: {error}")
    return found, problems


def _read(path: Path, ours: bool) -> Known:
    folder = RunFolder(path)
    info = read_info(folder)
    if info["algorithm"] not in CONFIGS:
        raise ValueError(f"algorithm={info['algorithm']!r} is unknown")
    try:
        config = config_from(CONFIGS[info["algorithm"]], info["config"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its config is not understood: {error}") from None
    finished = (path / "result.json").exists() and "failed" not in read_result(folder)
    return Known(path, info, config, finished, ours)


def make_plan(job: Job, known: Sequence[Known], home: Path, device: str, most: int) -> Plan:
    """Take the finished runs of a job's settings, go on with begun ones, and train the rest.

    A run of the same settings that was to be longer is as good, once it has come that far. `home`
    is where new runs are to lie, and `most` how many seeds one run may have.
    """
    config = job.config(device)
    fitting = [run for run in known if _fits(run, job, config)]
    there = {run.path for run in fitting if run.finished or run.config != config}
    # Those before begun ones, ours before others, those with most seeds first, and of runs that are
    # equal in this the one that was to be no longer: it was evaluated at its end.
    rank = lambda run: (
        run.path not in there, not run.ours, -len(run.seeds), run.config != config, str(run.path)
    )  # fmt: skip
    fitting.sort(key=rank)
    missing = set(range(job.seeds))
    taken: list[Known] = []
    begun: list[Known] = []
    blocks: list[Block] = []
    covered: set[int] = set()
    for run in fitting:
        seeds = set(run.seeds)
        if not seeds & missing or seeds & covered:
            continue
        covered |= seeds
        if run.path in there:
            taken.append(run)
        else:
            begun.append(run)
            if run.ours:
                blocks.append(Block(job, run.seeds[0], len(run.seeds), run.path))
        if run.path in there or run.ours:
            missing -= seeds
    most = 1 if job.alone else most
    for first, count in _stretches(sorted(missing), most):
        name = f"{job.name(device)}-seeds-{first}-{first + count - 1}"
        blocks.append(Block(job, first, count, home / name))
    return Plan(job, config.steps, tuple(taken), tuple(begun), tuple(blocks))


def _fits(run: Known, job: Job, config: Any) -> bool:
    return (
        run.info["task"] == job.task
        and run.info["algorithm"] == job.algorithm
        and (run.config == config or (not job.alone and _serves(run, config)))
        and run.info["task_options"] == json.loads(json.dumps(dict(job.task_options)))
        # The time of several seeds side by side is not the time of one.
        and (len(run.seeds) == 1 or not job.alone)
    )


def _serves(run: Known, config: Any) -> bool:
    """Whether the first steps of a run are what a config asks for."""
    return _goes_on(run.config, config) and run.steps >= config.steps


def _goes_on(there: Any, wanted: Any) -> bool:
    """Whether a config asks for more real steps than another, and is the same up to there."""
    apart = {f.name for f in fields(wanted) if getattr(there, f.name) != getattr(wanted, f.name)}
    # Where learning rates fall until the end, a longer run is another from the start.
    steady = getattr(wanted, "final_rate", 1.0) == 1.0
    return apart == {"steps"} and steady and there.steps > wanted.steps


def _stretches(seeds: Sequence[int], most: int) -> list[tuple[int, int]]:
    """(first, count) of runs of consecutive numbers, cut where they are longer than `most`."""
    stretches = []
    for _, group in groupby(enumerate(seeds), key=lambda pair: pair[1] - pair[0]):
        row = [seed for _, seed in group]
        stretches += [(row[i], len(row[i : i + most])) for i in range(0, len(row), most)]
    return stretches


def near_misses(plans: Sequence[Plan], known: Sequence[Known], device: str) -> list[str]:
    """Of runs that no job takes, though one has their task and algorithm: in what they differ."""
    used = {run.path for plan in plans for run in (*plan.taken, *plan.begun)}
    lines = []
    for run in known:
        same = (run.info["task"], run.info["algorithm"])
        jobs = [plan.job for plan in plans if (plan.job.task, plan.job.algorithm) == same]
        if run.path in used or run.ours or not jobs:
            continue
        apart = min((_apart(run, job, device) for job in jobs), key=len)
        more = f" and {len(apart) - 3} more" if len(apart) > 3 else ""
        why = ", ".join(apart[:3]) or "its seeds are there already, or not asked for"
        lines.append(f"{run.path} is left out: {why}{more}")
    return lines


def _apart(run: Known, job: Job, device: str) -> list[str]:
    """In what a run is not what a job asks for, in words."""
    config = job.config(device)
    lines = differences(run.config, config)
    if _goes_on(run.config, config) and not job.alone:
        short = f"it has come to {run.steps:,} of {config.steps:,} real steps"
        lines = [short] if run.steps < config.steps else []
    there, wanted = run.info["task_options"], job.task_options
    for name in dict.fromkeys((*there, *wanted)):
        if there.get(name) != wanted.get(name):
            usual = "the default"
            lines.append(f"{name} is {there.get(name, usual)}, not {wanted.get(name, usual)}")
    if job.alone and len(run.seeds) > 1:
        lines.append(f"it has {len(run.seeds)} seeds side by side, not one")
    return lines


def differences(there: Any, wanted: Any, prefix: str = "") -> list[str]:
    """The fields in which one config is not the other, in words."""
    lines = []
    for f in fields(there):
        a, b = getattr(there, f.name), getattr(wanted, f.name)
        if is_dataclass(a) and is_dataclass(b):
            lines += differences(a, b, f"{prefix}{f.name}.")
        elif a != b:
            lines.append(f"{prefix}{f.name} is {a}, not {b}")
    return lines
