"""The paper's claims: a table of (text, metric, relation, jobs), each judged against the runs.

The bootstrap interval over seeds decides. A claim is undecided if the interval contains zero, if a
side has fewer than `FEWEST_SEEDS` seeds, or if a run is missing or shorter than requested.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import spearmanr

from surefoot.experiments.job import Job
from surefoot.experiments.library import Results
from surefoot.report.data import Group, Rows
from surefoot.report.statistics import Scores, Value, interval, mean
from surefoot.report.table import plural

FEWEST_SEEDS = 3
SETTLED = 0.1
"""Share of its way down that a curve has left when it counts as settled."""
TIMED_STEPS = 450_000
"""Real steps whose time the paper reports."""
Relation = Literal["above", "below", "within limit", "above limit", "varies more", "rises"]
Metric = Literal[
    "reward", "cost", "violations", "reward by then", "violations by then", "seconds",
    "settling steps",
]  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """A claim about runs: the metric of the first job is in a relation to that of the second.

    A relation to the limit has one job. `rises` has the jobs of a sweep over beta.
    """

    text: str
    metric: Metric
    relation: Relation
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Verdict:
    """Whether a claim held, and the numbers that decided it."""

    text: str
    held: bool | None
    """None if undecided."""
    numbers: str

    @property
    def name(self) -> str:
        return {True: "held", False: "not held", None: "undecided"}[self.held]


def judge(claim: Claim, results: Results) -> Verdict:
    """Judge a claim by the runs of its jobs."""
    pairs = [(job, group) for job in claim.jobs if (group := results.group(job)) is not None]
    groups = [group for _, group in pairs]
    reasons = [f"no runs of {job.label}" for job in claim.jobs if results.group(job) is None]
    if len(pairs) < (2 if claim.relation == "rises" else len(claim.jobs)):
        return Verdict(claim.text, None, "; ".join(reasons))
    samples = METRICS[claim.metric](groups)
    if claim.relation == "rises":
        held, numbers = rises([float(str(job.changes["beta"])) for job, _ in pairs], samples)
    elif claim.relation in ("within limit", "above limit"):
        held, numbers = against_limit(samples[0], groups[0].cost_limit, claim.relation)
    else:
        held, numbers = compared(samples[0], samples[1], claim.relation)
    notes = []
    for group, values in zip(groups, samples, strict=True):
        if group.state != "finished":
            reasons.append(f"{group.label} has {group.steps_text} real steps")
        if len(values) < FEWEST_SEEDS:
            reasons.append(f"{group.label} has {plural(len(values), 'seed')}")
        if claim.metric == "reward" and still_rising(*group.curve("reward")):
            notes.append(f"{group.label} still rises at its end")
    text = "; ".join([numbers, *reasons, *notes])
    return Verdict(claim.text, None if reasons else held, text)


def compared(a: np.ndarray, b: np.ndarray, relation: Relation) -> tuple[bool | None, str]:
    """Whether seeds `a` [S] are in a relation to seeds `b` [S], and the numbers."""
    statistic = _std if relation == "varies more" else mean
    x, y = (
        float(statistic([values])) if len(values) > 1 else float(values[0]) for values in (a, b)
    )
    low, high = map(float, interval(lambda p, q: statistic(p) - statistic(q), [a], [b]))
    what = "standard deviation " if relation == "varies more" else ""
    numbers = f"{what}{_number(x)} against {_number(y)} ({_difference(low, high)})"
    return _decided(low, high, below=relation == "below"), numbers


def against_limit(costs: np.ndarray, limit: float, relation: Relation) -> tuple[bool | None, str]:
    """Whether the mean of costs [S] is within or above a limit, and the numbers."""
    low, high = map(float, interval(mean, [costs - limit]))
    inside = int(np.sum(costs <= limit))
    numbers = f"cost {costs.mean():.1f} of {limit:g}; {inside} of {plural(len(costs), 'seed')} "
    numbers += f"within the limit ({_difference(low, high)})"
    return _decided(low, high, below=relation == "within limit"), numbers


def rises(setting: Sequence[float], samples: Sequence[np.ndarray]) -> tuple[bool | None, str]:
    """Whether samples [S] rise with a setting: in rank, and from its lowest to its highest."""
    order = np.argsort(setting)
    means = np.array([samples[i].mean() for i in order])
    xs = np.array(setting)[order]
    rank = float(np.asarray(spearmanr(xs, means))[0]) if np.ptp(means) > 0 else 0.0
    last, first = samples[order[-1]], samples[order[0]]
    low, high = map(float, interval(lambda p, q: mean(p) - mean(q), [last], [first]))
    numbers = (
        f"{_number(means[0])} at {xs[0]:g}, {_number(means[-1])} at {xs[-1]:g} "
        f"(rank correlation {rank:.2f}; {_difference(low, high)})"
    )
    return (_decided(low, high, below=False) and rank > 0), numbers


def settled(steps: np.ndarray, curve: np.ndarray) -> float:
    """The step [E] from which on a falling curve [E] stays near its end."""
    level = curve[-1] + SETTLED * (curve[0] - curve[-1])
    above = np.flatnonzero(curve > level)
    return float(steps[min(above[-1] + 1, len(steps) - 1) if len(above) else 0])


def still_rising(steps: np.ndarray, values: np.ndarray) -> bool:
    """Whether the mean of a curve (steps [E], values [E, S]) rises at its end.

    That is, whether the last tenth of its steps exceeds the tenth before by more than a twentieth
    of its range.
    """
    curve = values.mean(1)
    last = steps > 0.9 * steps[-1]
    before = (steps > 0.8 * steps[-1]) & ~last
    if not before.any():
        return False
    return bool(curve[last].mean() - curve[before].mean() > 0.05 * np.ptp(curve))


def time_for(rows: Rows, steps: int) -> float:
    """Seconds that a run of one seed takes for `steps` real steps.

    Interpolated between epochs; beyond the last epoch, extrapolated at the mean pace after the
    first epoch, which compiles.
    """
    xs = np.array([row["steps"] for row in rows])
    seconds = np.array([row["seconds"] for row in rows])
    if steps <= xs[-1]:
        return float(np.interp(steps, xs, seconds))
    several = len(xs) > 1
    pace = (seconds[-1] - seconds[0]) / (xs[-1] - xs[0]) if several else seconds[0] / xs[0]
    return float(seconds[-1] + pace * (steps - xs[-1]))


def times(group: Group) -> np.ndarray:
    """Seconds of each run of a group for the steps whose time the paper reports."""
    return np.array([time_for(run.rows, TIMED_STEPS) for run in group.runs])


def _at_end(groups: Sequence[Group], name: str) -> list[np.ndarray]:
    """A metric at the end: on fresh episodes if all runs have them, otherwise by epochs."""
    evaluated = all(run.evaluation for group in groups for run in group.runs)
    return [group.final(name) if evaluated else group.by_epochs(name) for group in groups]


def _rewards_by_then(groups: Sequence[Group]) -> list[np.ndarray]:
    steps = min(group.real_steps for group in groups)
    return [group.by_epochs("reward", steps) for group in groups]


def _violations_by_then(groups: Sequence[Group]) -> list[np.ndarray]:
    steps = min(group.real_steps for group in groups)
    curves = [group.curve("violations") for group in groups]
    return [np.array([np.interp(steps, x, y) for y in ys.T]) for x, ys in curves]


def _settling_steps(groups: Sequence[Group]) -> list[np.ndarray]:
    curves = [group.curve("model_error") for group in groups]
    return [np.array([settled(x, y) for y in ys.T]) for x, ys in curves]


METRICS: dict[Metric, Callable[[Sequence[Group]], list[np.ndarray]]] = {
    "reward": lambda groups: _at_end(groups, "reward"),
    "cost": lambda groups: _at_end(groups, "cost"),
    "violations": lambda groups: [group.final("violations") for group in groups],
    "reward by then": _rewards_by_then,
    "violations by then": _violations_by_then,
    "seconds": lambda groups: [times(group) for group in groups],
    "settling steps": _settling_steps,
}
"""Each measures the seeds [S] of several groups alike; `by then`: at the steps all have reached."""


def _decided(low: float, high: float, below: bool) -> bool | None:
    """Whether an interval lies below zero, or else above it; None if it contains zero."""
    if high < 0:
        return below
    return not below if low > 0 else None


def _std(scores: Scores) -> Value:
    return np.std(scores[0], axis=-1, ddof=1)


def _difference(low: float, high: float) -> str:
    if np.isnan(low):
        return "too few seeds for an interval"
    return f"95 % interval of the difference {_number(low)} to {_number(high)}"


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"
