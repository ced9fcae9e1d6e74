"""`Results`: the runs of an experiment's jobs, for the sections of its page."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from surefoot.experiments.job import Job
from surefoot.experiments.library import Plan
from surefoot.report.data import Group, load_run, load_runs
from surefoot.report.groups import label_of, task_title
from surefoot.report.table import with_note


@dataclass(frozen=True)
class Results:
    """The runs of an experiment. A job without a complete run shows its partial ones."""

    jobs: Sequence[Job]
    """The jobs as the experiment defines them."""
    plans: Sequence[Plan]
    """The plan of each job."""
    folder: Path
    """Folder of the figures."""

    def group(self, job: Job) -> Group | None:
        """The runs of a job over all seeds; None if it has none."""
        return self._groups[list(self.jobs).index(job)]

    def groups(self, jobs: Sequence[Job]) -> list[Group]:
        """The groups of the jobs that have runs; jobs with the same runs share one."""
        each: dict[tuple[int | Path, ...], Group] = {}
        for job in jobs:
            if (group := self.group(job)) is not None:
                key = (group.requested_steps, *(run.path for run in group.runs))
                each.setdefault(key, group)
        return list(each.values())

    @cached_property
    def _groups(self) -> list[Group | None]:
        result: list[Group | None] = []
        numbers: dict[str, int] = {}
        for job, plan in zip(self.jobs, self.plans, strict=True):
            runs = [load_run(run.path).cut(plan.steps) for run in plan.complete]
            # Runs without an epoch cannot be shown.
            runs = runs or load_runs([run.path for run in plan.partial])[0]
            if not runs:
                result.append(None)
                continue
            info = runs[0].info
            label = label_of(info)
            label = label if job.note in label else with_note(label, job.note)
            number = numbers.setdefault(label, len(numbers))
            result.append(Group(label, task_title(info), tuple(runs), number, plan.steps))
        return result

    def missing(self) -> list[tuple[str, str, str]]:
        """Jobs with missing seeds: label, seeds that are complete, and steps of partial runs."""
        rows = []
        for job, plan, group in zip(self.jobs, self.plans, self._groups, strict=True):
            if plan.done < plan.job.seeds:
                partial = group is not None and group.state != "finished"
                seeds = f"{plan.done} of {plan.job.seeds}"
                rows.append((job.label, seeds, group.steps_text if group and partial else "-"))
        return list(dict.fromkeys(rows))
