"""The last real batch of MBPPO-Lagrangian: statistics of its episodes, and segments of steps."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from surefoot.algorithms import mbppo_lagrangian as mbppo
from surefoot.algorithms.experience import Experience
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.mbppo_lagrangian import RealBatch
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Tree
from surefoot.learn.actor_critic import Batch
from surefoot.learn.networks import Actor


class EpisodeStatistics(NamedTuple):
    """Means over the episodes of the last real batch, with standard errors, for all seeds."""

    reward: Float[np.ndarray, " S"]
    reward_error: Float[np.ndarray, " S"]
    cost: Float[np.ndarray, "S k"]
    cost_error: Float[np.ndarray, "S k"]
    steps: int
    """Real steps of each seed."""


def episode_statistics(problem: Problem, experience: Experience) -> EpisodeStatistics:
    """Statistics of the finished episodes; without any, of the mean step, which says little."""
    rows = []
    for s, episodes in enumerate(experience.episodes):
        if len(episodes.cost):
            values = np.concatenate([episodes.reward[:, None], episodes.cost], 1)
            if len(values) > 1:
                spread = values.std(0, ddof=1)
            else:  # a cost may come from one rare event; a reward rarely does
                spread = np.abs(values[0]) * np.where(np.arange(values.shape[1]) == 0, 0.5, 1.0)
            rows.append((values.mean(0), spread / np.sqrt(len(values))))
        else:
            step = np.concatenate([experience.reward[s, ..., None], experience.cost[s]], -1)
            guess = step.mean((0, 1)) * problem.episode_steps
            rows.append((guess, np.abs(guess)))
    mean, error = np.asarray(rows, np.float32).swapaxes(0, 1)
    costs = mean[:, 1:], error[:, 1:]
    return EpisodeStatistics(mean[:, 0], error[:, 0], *costs, experience.steps)


def real_batch(
    config: MBPPOConfig,
    problem: Problem,
    experience: Experience,
    seen: EpisodeStatistics,
    rising: Bool[np.ndarray, " S"],
    number: int,
    actor: Actor,
) -> RealBatch:
    """The real batch of epoch `number`, of all seeds, taken by the policies `actor`."""
    width = round(config.real_share * config.rollouts)
    length = mbppo.horizon(config, problem)
    segments = None
    if width:
        parts = [
            _segments(experience, s, length, width, np.random.default_rng([seed, 2, number]))
            for s, seed in enumerate(experience.seeds)
        ]
        segments = jax.tree.map(lambda *x: np.stack(x), *parts)
    return RealBatch(seen.cost, seen.cost_error, rising, actor, segments)  # type: ignore[arg-type]


def _segments(
    experience: Experience, s: int, horizon: int, width: int, rng: np.random.Generator
) -> Batch:
    """`width` random segments of one seed that do not cross the end of an episode."""
    steps = experience.reward.shape[1]
    ends = np.cumsum(np.pad(experience.ended[s], ((1, 0), (0, 0))), 0)
    clear = ends[horizon - 1 : -1] - ends[: steps - horizon + 1] == 0
    start, column = np.nonzero(clear)
    fits = len(start) > 0
    if not fits:  # any will do: they have no weight
        start, column = np.zeros(1, int), np.zeros(1, int)
    pick = rng.integers(0, len(start), width)
    t = start[pick][None] + np.arange(horizon)[:, None]
    c = np.broadcast_to(column[pick][None], t.shape)
    take: Tree = lambda x: x[s][t, c]
    ended: Tree = np.broadcast_to(np.arange(horizon)[:, None] == horizon - 1, t.shape)
    weight: Tree = np.full(t.shape, fits, np.float32)
    return Batch(
        obs=take(experience.obs),
        action=take(experience.action),
        reward=take(experience.reward),
        cost=take(experience.cost),
        next_obs=take(experience.next_obs)[-1:],
        terminated=take(experience.terminated),
        ended=ended,
        weight=weight,
    )
