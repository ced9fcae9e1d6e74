"""Sections of a page that compare runs with the paper."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surefoot.experiments.job import Job
from surefoot.experiments.results import Results
from surefoot.paper.claims import TIMED_STEPS, Claim, judge, time_for
from surefoot.report import statistics
from surefoot.report.figures import draw_aggregates
from surefoot.report.page import Section
from surefoot.report.summary import normalised, units
from surefoot.report.table import Table, slug, spread_of, with_interval

PPO_UNITS = {"reward": 20.0, "violations": 2e5}
"""Unconstrained PPO on the Goal tasks, by which the paper divides."""
PPO_TASKS = ("PointGoal", "CarGoal")
VERDICTS = ("held", "not held", "undecided")


@dataclass(frozen=True)
class Claims:
    """The section with the verdict on every claim."""

    claims: tuple[Claim, ...]

    def __call__(self, results: Results) -> Section:
        verdicts = [judge(claim, results) for claim in self.claims]
        counts = Counter(verdict.name for verdict in verdicts)
        text = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name])
        unbroken = lambda words: words.replace(" ", "\N{NO-BREAK SPACE}")
        rows = tuple((v.text, unbroken(v.name), v.numbers) for v in verdicts)
        caption = (
            "A claim is undecided if the 95 % bootstrap interval of the difference contains zero, "
            "if a side has fewer than three seeds, or if a run is missing or shorter than "
            "requested."
        )
        table = Table(("the paper's claim", "verdict", "numbers"), rows, caption)
        return Section("The paper's claims", f"Of {len(verdicts)}: {text}.", (), (table,))


def aggregates(
    results: Results, title: str, jobs: Sequence[Job], unit: Sequence[Job], text: str
) -> Section | None:
    """Reward and violations divided by those of the `unit` jobs (PPO), over all tasks."""
    numbers = {group.label: group.number for group in results.groups(jobs)}
    label = next((group.label for group in results.groups(unit)), None)
    groups = results.groups([*unit, *jobs])
    figures, rows, tasks_used = [], [], {}
    for name, what in (("reward", "normalised reward"), ("violations", "normalised violations")):
        by_task = dict.fromkeys(PPO_TASKS, PPO_UNITS[name]) | units(groups, label, name)
        scores, used = normalised(groups, name, by_task)
        scores = {label: tasks for label, tasks in scores.items() if label in numbers}
        if not scores:
            continue
        tasks_used |= dict.fromkeys(used)
        figures.append(draw_aggregates(scores, what, results.folder / f"{slug(what)}.png", numbers))
        for label_, tasks in scores.items():
            values = (statistics.mean, statistics.median, statistics.iqm)
            rows.append((label_, what, *(_estimate(statistic, tasks) for statistic in values)))
    if not figures:
        return None
    head = ("algorithm", "score", "mean", "median", "IQM")
    caption = (
        f"With 95 % stratified-bootstrap intervals. Tasks: {', '.join(tasks_used)}. Algorithms "
        "that are not finished on all of them are left out."
    )
    return Section(title, text, tuple(figures), (Table(head, tuple(rows), caption),))


def running_time(
    results: Results, title: str, paper: Sequence[tuple[Job, float | None]], text: str
) -> Section | None:
    """The time of one seed, beside the paper's seconds."""
    rows = []
    for job, theirs in paper:
        group = results.group(job)
        if group is None:
            continue
        times = np.array([time_for(run.rows, TIMED_STEPS) for run in group.runs])
        published = "-" if theirs is None else f"{theirs:,.0f} s"
        ratio = "-" if theirs is None else f"{theirs / times.mean():,.1f} times"
        short = group.real_steps < TIMED_STEPS
        how = f"extrapolated from {group.real_steps:,} steps" if short else "measured"
        time = f"{spread_of(times)} s"
        rows.append((group.label, time, how, published, ratio, group.info.device))
    if not rows:
        return None
    head = ("algorithm", f"{TIMED_STEPS:,} real steps", "how", "the paper", "faster", "machine")
    return Section(title, text, (), (Table(head, tuple(rows), "One seed per run."),))


def final_table(
    results: Results, title: str, paper: Sequence[tuple[Job, str]], text: str
) -> Section | None:
    """Reward and cost at the end, beside the paper's reward."""
    rows = tuple(
        (group.shown, f"{len(group.seeds)}", group.steps_text, spread_of(group.final("reward")),
         theirs, spread_of(group.final("cost")))
        for job, theirs in paper
        if (group := results.group(job)) is not None
    )  # fmt: skip
    if not rows:
        return None
    head = ("algorithm", "seeds", "real steps", "reward", "the paper's reward", "cost")
    return Section(title, text, (), (Table(head, rows, "Mean ± standard deviation over seeds."),))


def _estimate(statistic: statistics.Statistic, tasks: Sequence[np.ndarray]) -> str:
    low, high = statistics.interval(statistic, tasks)
    return with_interval(float(statistic(tasks)), float(low), float(high), 3)
