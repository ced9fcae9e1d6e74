"""Careful training: real episodes are driven through the safety filter.

The policy acts, and a plan steps in where the policy might cost something. What is recorded is what
was done, so the model learns from it. The policy learns in imagination, without the filter.
"""

from typing import Final

import jax
import numpy as np
from jaxtyping import Float

from surefoot.algorithms.collect import Actor
from surefoot.algorithms.planning import PlannedActor
from surefoot.algorithms.seeds import seed_keys
from surefoot.algorithms.trainer import Planning, Problem
from surefoot.world import planner
from surefoot.world.planner import PlannerConfig

PROBE: Final = 50
"""Steps of each environment before the first fit. There is no filter yet, but robots that begin at
rest do not get far with a new policy, whose actions are centred."""
LONGEST_ROUND: Final = 25
GROWTH: Final = 1.25
"""The model is fitted again whenever there are so many times the steps of its last fit."""


def round_steps(episode_steps: int) -> int:
    """Steps of each environment between possible fits; an episode has whole rounds."""
    return max(n for n in range(1, LONGEST_ROUND + 1) if episode_steps % n == 0)


class Filter:
    """The safety filter of a run in training, for all seeds."""

    def __init__(self, config: PlannerConfig, problem: Problem):
        planner.initial_mean(config, problem.actions, 1)  # raises if these cannot be planned
        self._config, self._problem = config, problem
        self._planned: PlannedActor | None = None
        self._before = np.zeros(len(problem.seeds), int)
        self._fitted = 0

    def actor(self, planning: Planning, policy: Actor, done: int, begins: bool) -> Actor:
        """What acts in a round after `done` steps; `policy` alone before the first fit.

        An epoch `begins` without plans in progress, as a resumed run does.
        """
        if not has_model(planning):
            return policy
        keys = seed_keys(self._problem.seeds)
        keys = jax.vmap(lambda key: jax.random.fold_in(key, done))(keys)
        if self._planned is None:
            self._planned = PlannedActor(
                self._config, self._problem, planning, "filter", policy, keys
            )
        self._planned.renew(planning, policy, keys, begins)
        return self._planned

    def fit_is_due(self, count: int) -> bool:
        """Whether to fit the model now that there are `count` steps of each seed."""
        first = PROBE * self._problem.environments
        return count >= (GROWTH * self._fitted if self._fitted else first)

    def fitted(self, count: int) -> None:
        """Note a fit to `count` steps."""
        self._fitted = count

    def interventions(self, steps: int) -> Float[np.ndarray, " S"]:
        """Share of the last `steps` steps of each seed at which a plan stepped in."""
        followed = self._before if self._planned is None else self._planned.followed
        share, self._before = (followed - self._before) / steps, followed.copy()
        return share


def has_model(planning: Planning) -> bool:
    """Whether the models of all seeds have been fitted: only then do they know a scale."""
    return bool(np.asarray(planning.ensemble.input_mean).any(-1).all())
