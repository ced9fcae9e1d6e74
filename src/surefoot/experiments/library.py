"""Which runs serve the jobs of an experiment, and what is left to train."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

from surefoot.experiments.job import Block, Job
from surefoot.report.data import Group, RunData, load_runs
from surefoot.report.groups import label_of, task_title
from surefoot.report.table import with_note
from surefoot.runs.info import config_of
from surefoot.runs.listing import is_run


@dataclass(frozen=True)
class Plan:
    """The runs of a job that exist, and those that are missing."""

    job: Job
    steps: int
    """Real steps that the job requests."""
    complete: tuple[RunData, ...]
    """Finished runs of the requested steps."""
    partial: tuple[RunData, ...]
    """Unfinished runs, and runs of other lengths, of seeds that no complete run has."""
    blocks: tuple[Block, ...]
    """What is left to train or to resume."""

    @property
    def done(self) -> int:
        """Number of the job's seeds that have complete runs."""
        seeds = {seed for run in self.complete for seed in run.info.seeds}
        return len(seeds & set(range(self.job.seeds)))

    @property
    def group(self) -> Group | None:
        """The complete runs, otherwise the partial ones; None without runs."""
        runs = self.complete or self.partial
        if not runs:
            return None
        label = label_of(runs[0].info)
        if self.job.note not in label:
            label = with_note(label, self.job.note)
        return Group(label, task_title(runs[0].info), runs, requested=self.steps)


@dataclass(frozen=True)
class Results:
    """The runs of an experiment's jobs, for the sections of its page."""

    jobs: Sequence[Job]
    """The jobs as the experiment defines them."""
    plans: Sequence[Plan]
    """The plan of each job."""
    folder: Path
    """Folder of the figures."""

    def group(self, job: Job) -> Group | None:
        """The runs of a job over all seeds; None if it has none."""
        return self.each[list(self.jobs).index(job)]

    def groups(self, jobs: Sequence[Job]) -> list[Group]:
        """The groups of the jobs that have runs; jobs with the same runs share one."""
        shown: dict[tuple[int | Path | None, ...], Group] = {}
        for group in filter(None, map(self.group, jobs)):
            shown.setdefault((group.requested, *(run.path for run in group.runs)), group)
        return list(shown.values())

    @cached_property
    def each(self) -> list[Group | None]:
        """The group of every job; each label has a number."""
        groups = [plan.group for plan in self.plans]
        labels = list(dict.fromkeys(group.label for group in groups if group))
        return [group and replace(group, number=labels.index(group.label)) for group in groups]


def find_runs(folders: Sequence[Path]) -> tuple[list[RunData], list[str]]:
    """The runs in folders (or that the folders are), and a message for each that is unreadable."""
    paths, problems = [], []
    for folder in folders:
        if not folder.exists():
            raise ValueError(f"runs={folder} is neither a run nor a folder with runs")
        if folder.is_dir():
            paths += [folder] if is_run(folder) else sorted(filter(is_run, folder.iterdir()))
        else:  # `--runs results/*` also names files
            problems.append(f"{folder} is not a folder")
    runs, unreadable = load_runs(paths)
    return runs, [*unreadable, *problems]


def make_plan(job: Job, runs: Sequence[RunData], home: Path, device: str, most: int) -> Plan:
    """Choose runs with a job's settings, resume those in `home`, and train the missing seeds.

    Runs of other lengths are shown as they are. New runs of at most `most` seeds lie in `home`.
    """
    steps = job.config(device).steps
    fitting = _fitting(job, runs, device)
    complete = [run for run in fitting if run.info.steps == steps and run.state == "finished"]

    def rank(run: RunData) -> tuple[bool, bool, int, int, str]:
        """Complete before partial runs, then those at home, long ones, and many seeds."""
        length = 0 if run in complete else -run.real_steps
        away = run.path.parent != home
        return run not in complete, away, length, -len(run.info.seeds), str(run.path)

    missing, covered = set(range(job.seeds)), set[int]()
    chosen: list[RunData] = []
    blocks: list[Block] = []
    for run in sorted(fitting, key=rank):
        seeds = set(run.info.seeds)
        if not seeds & missing or seeds & covered:
            continue
        covered |= seeds
        chosen.append(run)
        resumed = run.path.parent == home and run.info.steps == steps and run not in complete
        if resumed:
            blocks.append(Block(job, run.info.seeds[0], len(seeds), run.path))
        if resumed or run in complete:
            missing -= seeds
    for first, count in _consecutive(sorted(missing), 1 if job.alone else most):
        name = f"{job.name(device)}-seeds-{first}-{first + count - 1}"
        blocks.append(Block(job, first, count, home / name))
    done = tuple(run for run in chosen if run in complete)
    partial = tuple(run for run in chosen if run not in complete)
    return Plan(job, steps, done, partial, tuple(blocks))


def _fitting(job: Job, runs: Sequence[RunData], device: str) -> list[RunData]:
    """Runs that have a job's settings, up to the number of real steps."""
    config, options = job.config(device), json.loads(json.dumps(dict(job.task_options)))
    # If learning rates decay, a longer or shorter run differs from the start.
    steps = {"steps": config.steps} if getattr(config, "final_rate", 1.0) == 1.0 else {}

    def fits(run: RunData) -> bool:
        info = run.info
        if (info.task, info.algorithm, info.task_options) != (job.task, job.algorithm, options):
            return False
        if job.alone and len(info.seeds) > 1:  # seeds side by side take longer than one
            return False
        try:
            return replace(config_of(info, run.path), **steps) == config
        except ValueError:  # settings of another version
            return False

    return [run for run in runs if fits(run)]


def _consecutive(seeds: Sequence[int], most: int) -> list[tuple[int, int]]:
    """(first, count) of consecutive seeds, at most `most` at a time."""
    parts = []
    for _, group in groupby(enumerate(seeds), key=lambda pair: pair[1] - pair[0]):
        row = [seed for _, seed in group]
        parts += [(row[i], len(row[i : i + most])) for i in range(0, len(row), most)]
    return parts
