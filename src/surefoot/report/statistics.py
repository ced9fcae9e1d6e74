"""Statistics over seeds and tasks: robust means, intervals, profiles, and how safe it was.

Scores are arrays [runs, tasks] or, where tasks have different numbers of runs, one array [runs] per
task. The definitions are those of Agarwal et al. (2021), "Deep RL at the edge of the statistical
precipice". All functions also take scores with leading axes in front of the runs (one array
[..., runs] per task), which is how `interval` evaluates thousands of resamples at once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import bootstrap, trim_mean

Scores = np.ndarray | Sequence[np.ndarray]
CONFIDENCE = 0.95
RESAMPLES = 10_000
TAIL = 0.1
_BATCH = 500  # resamples at a time, to bound memory


def mean(scores: Scores) -> Any:
    """Mean over tasks of the mean over runs."""
    return _task_means(scores).mean(-1)


def median(scores: Scores) -> Any:
    """Median over tasks of the mean over runs."""
    return np.median(_task_means(scores), -1)


def iqm(scores: Scores) -> Any:
    """Interquartile mean: the mean of the middle half of all runs of all tasks."""
    return trim_mean(np.concatenate(_by_task(scores), -1), 0.25, axis=-1)


def optimality_gap(scores: Scores, level: float = 1.0) -> Any:
    """By how much runs fall short of `level` on average; what is beyond it does not count."""
    return level - mean([np.minimum(task, level) for task in _by_task(scores)])


def probability_of_improvement(scores: Scores, others: Scores) -> Any:
    """How likely a run beats one of `others` on the same task, averaged over tasks; a tie is half.

    This is the statistic of Mann and Whitney's test, divided by the number of pairs.
    """
    pairs = list(zip(_by_task(scores), _by_task(others), strict=True))
    wins = [_share_of_pairs(x[..., :, None], y[..., None, :]) for x, y in pairs]
    return np.mean(wins, 0)


def profile(scores: Scores, levels: np.ndarray) -> np.ndarray:
    """Performance profile: the share of runs [levels, ...] above each of the levels [levels]."""
    tasks = _by_task(scores)
    above = [np.stack([np.mean(task > level, -1) for level in levels]) for task in tasks]
    return np.mean(above, 0)


def interval(
    statistic: Callable[..., Any],
    *scores: Scores,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Any, Any]:
    """Percentile interval of `statistic(*scores)` by the stratified bootstrap.

    Runs are drawn again with replacement, for each task on its own. Low and high are NaN where a
    score is, and where a task has a single run, which tells nothing of the spread.
    """
    tasks = [_by_task(each) for each in scores]
    flat = [task for each in tasks for task in each]
    if not all(len(task) > 1 and np.isfinite(task).all() for task in flat):
        nothing = np.full(np.shape(statistic(*tasks)), np.nan)
        return nothing[()], nothing[()]
    ends = np.cumsum([len(each) for each in tasks])

    def of(*parts: np.ndarray, axis: int = -1) -> Any:
        return statistic(*(parts[end - len(t) : end] for t, end in zip(tasks, ends, strict=True)))

    return _percentiles(flat, of, confidence, resamples, seed)


def band(
    values: np.ndarray,
    confidence: float = CONFIDENCE,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Bootstrap interval [E], [E] of the mean over seeds of curves `values` [E, S]."""
    seeds = np.arange(values.shape[1])
    if len(seeds) < 2:
        return np.full(len(values), np.nan), np.full(len(values), np.nan)
    of = lambda drawn, axis=-1: values[:, drawn].mean(-1)
    return _percentiles([seeds], of, confidence, resamples, seed)


def cvar(costs: np.ndarray, tail: float = TAIL) -> float:
    """Conditional value at risk: the mean of the worst share `tail` of the costs [n]."""
    if not 0 < tail <= 1:
        raise ValueError(f"tail={tail} must be a share above 0 and up to 1")
    worst = max(1, round(tail * np.size(costs)))
    return float(np.sort(costs, axis=None)[-worst:].mean())


def share_within(costs: np.ndarray, limit: float) -> float:
    """The share of costs (of epochs, of seeds) not above the limit; NaNs do not count."""
    known = np.asarray(costs)[np.isfinite(costs)]
    return float(np.mean(known <= limit)) if known.size else float("nan")


def _by_task(scores: Scores) -> list[np.ndarray]:
    """One array [..., runs] per task."""
    if not isinstance(scores, np.ndarray):
        return [np.asarray(task) for task in scores]
    if scores.ndim != 2 or not scores.size:
        raise ValueError(f"scores of shape {scores.shape} must have the shape [runs, tasks]")
    return list(scores.T)


def _task_means(scores: Scores) -> np.ndarray:
    return np.stack([task.mean(-1) for task in _by_task(scores)], -1)


def _share_of_pairs(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.mean((x > y) + 0.5 * (x == y), axis=(-2, -1))


def _percentiles(
    samples: list[np.ndarray], statistic: Any, confidence: float, resamples: int, seed: int
) -> tuple[Any, Any]:
    found = bootstrap(
        samples, statistic, n_resamples=resamples, batch=_BATCH, vectorized=True, axis=-1,
        confidence_level=confidence, method="percentile",
        # From 1.15 on scipy names it rng, and takes both names.
        random_state=np.random.default_rng(seed),  # type: ignore[call-arg]
    ).confidence_interval  # fmt: skip
    return found.low, found.high
