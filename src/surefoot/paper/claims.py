"""The paper's claims, each held against numbers: held or not, and by how much.

All functions take plain arrays over seeds [S] and give a `Claim`. Means decide; where the 95 %
interval of a difference (bootstrap over seeds) holds zero, the sentence says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
from scipy.stats import rankdata

from surefoot.report.statistics import interval, mean

SETTLED = 0.1
"""A curve has settled when this share of its whole way is left."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and what became of it."""

    text: str
    """What the paper says."""
    held: bool | None
    """None where runs are missing."""
    by: str
    """By how much, in words."""

    @property
    def verdict(self) -> str:
        return {True: "held", False: "not held", None: "not judged"}[self.held]


def unjudged(text: str, missing: Sequence[str]) -> Claim:
    """A claim whose runs are not there."""
    return Claim(text, None, f"there are no runs of {', '.join(missing)}")


def so_far(claim: Claim, unfinished: Sequence[str]) -> Claim:
    """A claim about the end of runs that have not come to it: told, but not judged."""
    by = f"so far {claim.verdict}: {claim.by}; not at its end: {', '.join(unfinished)}"
    return Claim(claim.text, None, by)


def at_least(text: str, ours: np.ndarray, theirs: np.ndarray, unit: str = "") -> Claim:
    """Held if the mean of `ours` is not below that of `theirs`."""
    return _compared(text, ours, theirs, unit, ours.mean() >= theirs.mean())


def at_most(text: str, ours: np.ndarray, theirs: np.ndarray, unit: str = "") -> Claim:
    """Held if the mean of `ours` is not above that of `theirs`."""
    return _compared(text, ours, theirs, unit, ours.mean() <= theirs.mean())


def competitive(text: str, ours: np.ndarray, theirs: np.ndarray, unit: str = "") -> Claim:
    """Held if `ours` is not above `theirs` by more than the scatter of seeds explains.

    With a single seed on either side nothing is known of the scatter, and the means decide.
    """
    low, _ = difference(ours, theirs)
    held = ours.mean() <= theirs.mean() if isnan(low) else low <= 0
    return _compared(text, ours, theirs, unit, held)


def within_limit(text: str, costs: np.ndarray, limit: float) -> Claim:
    """Held if the mean cost is not above the limit."""
    inside = int(np.sum(costs <= limit))
    by = f"cost {costs.mean():.1f} of {limit:g}; {inside} of {_seeds(len(costs))} within the limit"
    return Claim(text, bool(costs.mean() <= limit), by)


def breaks_limit(text: str, costs: np.ndarray, limit: float) -> Claim:
    """Held if the mean cost is above the limit."""
    found = within_limit(text, costs, limit)
    return Claim(text, not found.held, found.by)


def rises_with(text: str, setting: Sequence[float], values: Sequence[np.ndarray]) -> Claim:
    """Held if values [S] go up with a setting: over all, and from its least to its largest."""
    order = np.argsort(setting)
    means = np.array([values[i].mean() for i in order])
    xs = np.array(setting)[order]
    if len(xs) < 2 or np.ptp(means) == 0:
        return Claim(text, False, "the means are all the same")
    rank = float(np.corrcoef(rankdata(xs), rankdata(means))[0, 1])
    by = (
        f"{_number(means[0])} at {xs[0]:g}, {_number(means[-1])} at {xs[-1]:g} "
        f"(rank correlation {rank:.2f})"
    )
    return Claim(text, bool(rank > 0 and means[-1] > means[0]), by)


def settles_sooner(
    text: str,
    ours: tuple[np.ndarray, np.ndarray],
    theirs: tuple[np.ndarray, np.ndarray],
) -> Claim:
    """Held if our curve (steps [E], values [E, S]) has come down after fewer steps than theirs."""
    here, there = settled(*ours), settled(*theirs)
    return Claim(text, bool(here < there), f"after {here:,.0f} against {there:,.0f} real steps")


def settled(steps: np.ndarray, values: np.ndarray) -> float:
    """Where the mean of a falling curve (steps [E], values [E, S]) comes near its end, for good."""
    curve = values.mean(1)
    level = curve[-1] + SETTLED * (curve[0] - curve[-1])
    above = np.flatnonzero(curve > level)
    return float(steps[above[-1] + 1 if len(above) else 0])


def still_rising(steps: np.ndarray, values: np.ndarray) -> bool:
    """Whether the mean of a curve (steps [E], values [E, S]) has not levelled off at its end.

    That is, whether the last tenth of its steps adds to the tenth before more than a twentieth of
    its whole range.
    """
    curve = values.mean(1)
    last = steps > 0.9 * steps[-1]
    before = (steps > 0.8 * steps[-1]) & ~last
    if not before.any():
        return False
    return bool(curve[last].mean() - curve[before].mean() > 0.05 * np.ptp(curve))


def scatters_more(text: str, ours: np.ndarray, theirs: np.ndarray) -> Claim:
    """Held if `ours` differ more from seed to seed than `theirs`."""
    if min(len(ours), len(theirs)) < 2:
        return Claim(text, None, "one seed does not scatter")
    here, there = ours.std(ddof=1), theirs.std(ddof=1)
    by = f"standard deviation {_number(here)} against {_number(there)}"
    return Claim(text, bool(here > there), by)


def difference(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """95 % interval of the difference of means; NaN where one side has a single seed."""
    low, high = interval(lambda a, b: mean(a) - mean(b), [ours], [theirs])
    return float(low), float(high)


def _compared(text: str, ours: np.ndarray, theirs: np.ndarray, unit: str, held: bool) -> Claim:
    a, b = float(ours.mean()), float(theirs.mean())
    by = f"{_number(a)} against {_number(b)}{unit and ' ' + unit}"
    parts = [f"{a / b:.2f} times"] if b > 0 and a > 0 else [f"{_number(a - b)} apart"]
    low, high = difference(ours, theirs)
    if isnan(low):
        parts.append("too few seeds for an interval")
    else:
        parts.append(f"95 % interval of the difference {_number(low)} to {_number(high)}")
        if low <= 0 <= high:
            parts.append("within the scatter of seeds")
    return Claim(text, bool(held), f"{by} ({', '.join(parts)})")


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def _seeds(count: int) -> str:
    return f"{count} seed" + "s" * (count != 1)
