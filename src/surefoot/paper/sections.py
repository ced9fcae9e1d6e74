"""Sections of a page that compare runs with the paper."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from surefoot.experiments.job import Job
from surefoot.experiments.library import Results
from surefoot.paper.claims import TIMED_STEPS, Claim, judge, times
from surefoot.report.compare import over_tasks
from surefoot.report.page import Section
from surefoot.report.table import Table, spread_of

PPO_UNITS = {
    "reward": {"PointGoal": 20.0, "CarGoal": 20.0},
    "violations": {"PointGoal": 2e5, "CarGoal": 2e5},
}
"""Unconstrained PPO, by which the paper divides."""
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


def aggregates(results: Results, jobs: Sequence[Job], unit: Sequence[Job]) -> Section | None:
    """Reward and violations divided by those of the `unit` jobs (PPO), over all tasks."""
    groups = results.groups([*unit, *jobs])
    label = next((group.label for group in results.groups(unit)), "PPO")
    section = over_tasks(groups, label, results.folder, PPO_UNITS, fewest=1)
    if section is None:
        return None
    text = f"{section.text} Where PPO was not run, the paper's numbers for it are used (reward 20, "
    return replace(section, text=f"{text}200,000 violations).")


def running_time(
    results: Results, title: str, paper: Sequence[tuple[Job, float | None]], text: str
) -> Section | None:
    """The time of one seed, beside the paper's seconds."""
    rows = []
    for job, theirs in paper:
        group = results.group(job)
        if group is None:
            continue
        seconds = times(group)
        published = "-" if theirs is None else f"{theirs:,.0f} s"
        ratio = "-" if theirs is None else f"{theirs / seconds.mean():,.1f} times"
        short = group.real_steps < TIMED_STEPS
        how = f"extrapolated from {group.real_steps:,} steps" if short else "measured"
        rows.append(
            (group.label, f"{spread_of(seconds)} s", how, published, ratio, group.info.device)
        )
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
