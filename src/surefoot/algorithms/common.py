"""What all training loops share: seeds as an axis, time by phase, metrics of real episodes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from surefoot.algorithms.collect import Experience
from surefoot.core.policy import Policy


class TrainingFault(RuntimeError):
    """Training went wrong in a way that more training cannot mend."""


@dataclass(frozen=True)
class Epoch:
    """What one epoch leaves behind."""

    number: int
    total: int
    metrics: list[dict[str, Any]]
    """One row per seed."""
    state: Any
    policy: Policy
    """Of all seeds."""
    seconds: dict[str, float]
    """Time by phase since the start."""
    snapshot: dict[str, Any]
    """All that is needed to go on from here: a tree of arrays, which the next epoch may reuse."""


class Phases:
    """Wall-clock time by phase."""

    def __init__(self, before: dict[str, Any] | None = None) -> None:
        self._seconds = {name: float(seconds) for name, seconds in (before or {}).items()}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start

    def seconds(self) -> dict[str, float]:
        return dict(self._seconds)


def new_totals(seeds: int) -> dict[str, Any]:
    """What `real_metrics` adds up."""
    return {"violations": np.zeros(seeds), "steps": 0, "epoch": 0}


def seed_keys(seeds: list[int]) -> Key[Array, " S"]:
    """One key per seed, which depends on the seed alone."""
    return jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))


def over_seeds(
    step: Callable[..., Any],
    seeds: int,
    shared: tuple[int, ...] = (),
    donate: tuple[int, ...] = (),
    in_turn: bool = False,
) -> Any:
    """Compile a step for one seed into one for all; arguments and results carry a leading axis.

    Arguments in `shared` are the same for all seeds and have no such axis. Seeds are batched, or
    taken `in_turn`: their loops then stop when they are done, and branches are really taken. So it
    is with a single seed.
    """

    def many(*args: Any) -> Any:
        if in_turn:
            own = {i: a for i, a in enumerate(args) if i not in shared}
            return jax.lax.map(
                lambda mine: step(*(mine.get(i, a) for i, a in enumerate(args))), own
            )
        axes = tuple(None if i in shared else 0 for i in range(len(args)))
        return jax.vmap(step, in_axes=axes)(*args)

    def single(*args: Any) -> Any:
        inner = [a if i in shared else jax.tree.map(lambda x: x[0], a) for i, a in enumerate(args)]
        return jax.tree.map(lambda x: x[None], step(*inner))

    return jax.jit(single if seeds == 1 else many, donate_argnums=donate)


def all_finite(tree: Any) -> np.ndarray:
    """For each seed of a tree with a leading axis of them, whether all its numbers are finite."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(tree)]
    return np.all([np.isfinite(x).reshape(len(x), -1).all(1) for x in leaves], axis=0)


def real_metrics(
    experience: Experience, totals: dict[str, Any], cost_limit: float
) -> list[dict[str, Any]]:
    """A row per seed with what happened in the real world, and running totals.

    Of several constraints `cost` is the largest mean, so that it is within the limit only if all
    are; `cost_0`, `cost_1`, … are the mean of each.
    """
    totals["steps"] += experience.steps
    totals["epoch"] += 1
    totals["violations"] = totals["violations"] + (experience.cost > 0).any(-1).sum((1, 2))
    rows = []
    for s, episodes in enumerate(experience.episodes):
        count = len(episodes.reward)
        cost = episodes.mean_cost() if count else np.full(experience.cost.shape[-1], np.nan)
        each = {f"cost_{i}": float(x) for i, x in enumerate(cost)} if len(cost) > 1 else {}
        rows.append(
            {
                "seed": experience.seeds[s],
                "epoch": totals["epoch"],
                "steps": int(totals["steps"]),
                "episodes": count,
                "reward": float(episodes.reward.mean()) if count else float("nan"),
                "cost": float(cost.max()),
                **each,
                "cost_limit": cost_limit,
                "violations": int(totals["violations"][s]),
            }
        )
    return rows
