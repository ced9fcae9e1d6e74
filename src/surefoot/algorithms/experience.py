"""What was experienced: real steps and finished episodes of all seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Experience:
    """T real steps of n environments for each of S seeds: arrays of [S, T, n, …]."""

    seeds: Sequence[int]
    obs: np.ndarray
    action: np.ndarray
    """As drawn, before clipping."""
    reward: np.ndarray
    cost: np.ndarray
    next_obs: np.ndarray
    """The observation that followed; the final one where an episode ended."""
    terminated: np.ndarray
    ended: np.ndarray
    before: np.ndarray | None
    """Records of the states before each step; None if the model takes observations."""
    after: np.ndarray | None
    """Records of the states after each step, before any reset."""
    episodes: list["Episodes"]
    """For each seed, the episodes that ended."""
    failed: np.ndarray | None = None
    """Steps in which the simulation broke down; a model must not learn from them."""
    starts: np.ndarray | None = None
    """Recent first observations, [S, M, D], if the model takes observations."""

    @property
    def steps(self) -> int:
        """Real steps of one seed."""
        return self.reward.shape[1] * self.reward.shape[2]

    @property
    def records(self) -> tuple[np.ndarray, np.ndarray]:
        """What the model takes, before and after each step."""
        if self.before is None or self.after is None:
            return self.obs, self.next_obs
        return self.before, self.after


@dataclass(frozen=True)
class Episodes:
    """Finished episodes of one seed."""

    reward: np.ndarray
    """Return of each, [E]."""
    cost: np.ndarray
    """Costs of each, [E, k]."""
    length: np.ndarray
    """Steps of each, [E]."""

    def mean_cost(self) -> np.ndarray:
        return self.cost.mean(0)


def joined(parts: Sequence[Experience]) -> Experience:
    """Several rounds as one; records are left out."""
    if len(parts) == 1:
        return parts[0]
    names = ("obs", "action", "reward", "cost", "next_obs", "terminated", "ended")
    steps = {name: np.concatenate([getattr(p, name) for p in parts], 1) for name in names}
    episodes = []
    for each in zip(*(p.episodes for p in parts), strict=True):
        whole = lambda name, each=each: np.concatenate([getattr(e, name) for e in each])
        episodes.append(Episodes(whole("reward"), whole("cost"), whole("length")))
    return Experience(parts[0].seeds, **steps, before=None, after=None, episodes=episodes)


def worst_constraint(cost: np.ndarray, limits: np.ndarray) -> int:
    """The constraint [k] with the largest excess over its limit, in units of the limit."""
    return int(np.argmax((cost - limits) / np.where(limits > 0, limits, 1.0)))
