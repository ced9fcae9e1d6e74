"""What an experiment has come to: its jobs' groups, for the sections of its page."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from surefoot.experiments.job import Job
from surefoot.experiments.library import Plan
from surefoot.report.data import Group, load_run, load_runs, with_note
from surefoot.report.groups import groups


@dataclass(frozen=True)
class Results:
    """The runs that there are of an experiment.

    Of a job with no finished run, those that are begun stand for it, as far as they have come.
    """

    jobs: Sequence[Job]
    """As the experiment names them."""
    plans: Sequence[Plan]
    """For each of the jobs, what was found of it."""
    folder: Path
    """Where figures go."""

    def group(self, job: Job) -> Group | None:
        """The runs of a job over all seeds; None if there are none."""
        return self._groups[list(self.jobs).index(job)]

    def groups(self, jobs: Sequence[Job]) -> list[Group]:
        """Those that there are, each once."""
        each: dict[tuple[int | Path, ...], Group] = {}
        for job in jobs:
            if (group := self.group(job)) is not None:  # the first name of the same runs counts
                key = (group.info["config"]["steps"], *(run.path for run in group.runs))
                each.setdefault(key, group)
        return list(each.values())

    def ended(self, jobs: Sequence[Job]) -> list[tuple[Job, Group]]:
        """Those jobs whose runs have come to their end; with fewer than two, all that have runs."""
        there = [(job, group) for job in jobs if (group := self.group(job))]
        ended = [(job, group) for job, group in there if group.state == "finished"]
        return ended if len(ended) > 1 else there

    @cached_property
    def _groups(self) -> list[Group | None]:
        found: list[Group | None] = []
        numbers: dict[str, int] = {}
        for job, plan in zip(self.jobs, self.plans, strict=True):
            runs = [load_run(run.path).cut(plan.steps) for run in plan.taken]
            # What has no epoch yet cannot be shown.
            runs = runs or load_runs([run.path for run in plan.begun])[0]
            if not runs:
                found.append(None)
                continue
            group = groups(runs[:1])[0]
            label = _noted(group.label, job.note)
            number = numbers.setdefault(label, len(numbers))
            found.append(Group(label, group.task, tuple(runs), number))
        return found

    def lacking(self, jobs: Sequence[Job]) -> list[str]:
        """The names of jobs that nothing was found of."""
        return [_name(job) for job in jobs if self.group(job) is None]

    def unfinished(self, jobs: Sequence[Job]) -> list[str]:
        """The names of jobs whose runs have not come to their end, and how far they are."""
        groups = [(job, group) for job in jobs if (group := self.group(job))]
        return [
            f"{_name(job)}, {group.steps_told} real steps"
            for job, group in groups
            if group.state != "finished"
        ]

    def missing(self) -> list[tuple[str, str, str]]:
        """What is not there: a job's name, how many of its seeds are, and how far others came."""
        rows = []
        for job, plan, group in zip(self.jobs, self.plans, self._groups, strict=True):
            if plan.done < plan.job.seeds:
                so_far = group is not None and group.state != "finished"
                seeds = f"{plan.done} of {plan.job.seeds}"
                rows.append((_name(job), seeds, group.steps_told if group and so_far else "-"))
        return list(dict.fromkeys(rows))


def _name(job: Job) -> str:
    return _noted(f"{job.task} {job.algorithm} ({job.preset})", job.note)


def _noted(label: str, note: str) -> str:
    return label if note in label else with_note(label, note)
