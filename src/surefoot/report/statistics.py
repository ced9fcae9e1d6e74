"""Statistics over seeds and tasks: aggregates, bootstrap intervals and performance profiles.

Scores are arrays [runs, tasks] or, where tasks have different numbers of runs, one array [runs] per
task. The definitions are those of Agarwal et al. (2021), "Deep RL at the edge of the statistical
precipice". Functions also take leading axes (one array [..., runs] per task): `interval` evaluates
thousands of resamples at once.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.stats import bootstrap, trim_mean

Scores = np.ndarray | Sequence[np.ndarray]
Value = np.ndarray | np.floating
"""A number, or an array with the leading axes of the scores."""
Statistic = Callable[..., Value]
"""A function of one or several `Scores`."""
CONFIDENCE = 0.95
RESAMPLES = 10_000
_BATCH = 500  # resamples at a time, to bound memory


def mean(scores: Scores) -> Value:
    """Mean over tasks of the mean over runs."""
    return _task_means(scores).mean(-1)


def median(scores: Scores) -> Value:
    """Median over tasks of the mean over runs."""
    return np.median(_task_means(scores), -1)


def iqm(scores: Scores) -> Value:
    """Interquartile mean: the mean of the middle half of all runs of all tasks."""
    return trim_mean(np.concatenate(_by_task(scores), -1), 0.25, axis=-1)


def optimality_gap(scores: Scores, level: float = 1.0) -> Value:
    """Mean shortfall of runs below `level`; what exceeds the level does not count."""
    return level - mean([np.minimum(task, level) for task in _by_task(scores)])


def probability_of_improvement(scores: Scores, others: Scores) -> Value:
    """Probability that a run beats one of `others` on the same task, averaged over tasks.

    A tie counts half. This is the statistic of Mann and Whitney's test per pair.
    """
    wins = []
    for ours, theirs in zip(_by_task(scores), _by_task(others), strict=True):
        x, y = ours[..., :, None], theirs[..., None, :]
        wins.append(np.mean((x > y) + 0.5 * (x == y), axis=(-2, -1)))
    return np.mean(wins, 0)


def profile(scores: Scores, levels: np.ndarray) -> np.ndarray:
    """Performance profile: the share of runs [levels, ...] above each of the levels [levels]."""
    tasks = _by_task(scores)
    above = [np.stack([np.mean(task > level, -1) for level in levels]) for task in tasks]
    return np.mean(above, 0)


def interval(
    statistic: Statistic,
    *scores: Scores,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Value, Value]:
    """Percentile interval of `statistic(*scores)` by the stratified bootstrap.

    Runs are resampled with replacement, separately for each task. Low and high are NaN if a score
    is NaN or a task has a single run.
    """
    tasks = [_by_task(each) for each in scores]
    flat = [task for each in tasks for task in each]
    if not all(len(task) > 1 and np.isfinite(task).all() for task in flat):
        unknown = np.full(np.shape(statistic(*tasks)), np.nan)
        return unknown[()], unknown[()]
    ends = np.cumsum([len(each) for each in tasks])

    def of(*parts: np.ndarray, axis: int = -1) -> Value:
        return statistic(*(parts[end - len(t) : end] for t, end in zip(tasks, ends, strict=True)))

    return _percentiles(flat, of, confidence, resamples, seed)


def band(
    values: np.ndarray, confidence: float = CONFIDENCE, resamples: int = 2000, seed: int = 0
) -> tuple[Value, Value]:
    """Bootstrap interval [E], [E] of the mean over seeds of curves `values` [E, S]."""
    seeds = np.arange(values.shape[1])
    if len(seeds) < 2:
        return np.full(len(values), np.nan), np.full(len(values), np.nan)
    of = lambda drawn, axis=-1: values[:, drawn].mean(-1)
    return _percentiles([seeds], of, confidence, resamples, seed)


def share_within(costs: np.ndarray, limit: float | np.ndarray) -> float:
    """The share of costs that do not exceed the limit; NaNs do not count."""
    finite = np.isfinite(costs)
    return float(np.mean((costs <= limit)[finite])) if finite.any() else float("nan")


def _by_task(scores: Scores) -> list[np.ndarray]:
    """One array [..., runs] per task."""
    if not isinstance(scores, np.ndarray):
        return [np.asarray(task) for task in scores]
    if scores.ndim != 2 or not scores.size:
        raise ValueError(f"scores of shape {scores.shape} must have the shape [runs, tasks]")
    return list(scores.T)


def _task_means(scores: Scores) -> np.ndarray:
    return np.stack([task.mean(-1) for task in _by_task(scores)], -1)


def _percentiles(
    samples: list[np.ndarray], statistic: Statistic, confidence: float, resamples: int, seed: int
) -> tuple[Value, Value]:
    result = bootstrap(
        samples, statistic, n_resamples=resamples, batch=_BATCH, vectorized=True, axis=-1,
        confidence_level=confidence, method="percentile",
        # scipy 1.15 renamed this argument to rng, and accepts both names.
        random_state=np.random.default_rng(seed),  # type: ignore[call-arg]
    )  # fmt: skip
    return result.confidence_interval.low, result.confidence_interval.high
