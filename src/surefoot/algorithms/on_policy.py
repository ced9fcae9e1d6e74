"""The trainer that on-policy, model-free algorithms share.

An algorithm brings `init` and `update`, pure functions of one seed; the trainer compiles both for
all seeds at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from surefoot.algorithms.actors import draw_from
from surefoot.algorithms.algorithm import (
    Algorithm,
    CostLimit,
    Overrides,
    Preset,
    Shape,
    Steps,
    Within,
)
from surefoot.algorithms.collect import Actor, Generators
from surefoot.algorithms.dataset import Dataset
from surefoot.algorithms.experience import Experience
from surefoot.algorithms.phases import Phases
from surefoot.algorithms.seeds import over_seeds, seed_keys
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Metrics, RandomKey, Scalar, Tree
from surefoot.core.config import check
from surefoot.core.policy import VARIANCE_EPSILON, Policy
from surefoot.core.snapshot import Saved
from surefoot.core.spaces import ActionSpec
from surefoot.learn import multiplier
from surefoot.learn.actor_critic import Batch, Learner
from surefoot.learn.multiplier import MultiplierConfig, Scales


class State(eqx.Module):
    """Everything that learns."""

    learner: Learner
    key: RandomKey


class Measured(eqx.Module):
    """Means over the episodes that ended last."""

    cost: Float[Array, " k"]
    """Undiscounted cost of an episode, or its quantile; NaN before the first one has ended."""
    length: Scalar
    """Steps of an episode."""


@dataclass(frozen=True)
class OnPolicyConfig:
    """Settings that all on-policy algorithms have."""

    steps: Steps = 2_000_000
    """Real steps in all."""
    cost_limit: CostLimit = ()
    """Limit on the undiscounted cost of an episode, one per constraint."""
    within: Within = None
    """Target share of episodes within the limit: this quantile of the episode cost is limited
    instead of its mean, such as 0.95."""
    steps_per_epoch: Steps = 30_000
    """Real steps per update."""
    observation: str = "paper"
    """Observation that the policy sees, if the task has several."""

    def __post_init__(self) -> None:
        check(self)


C = TypeVar("C", bound=OnPolicyConfig)
Init = Callable[[C, Problem, RandomKey], State]
"""`init(config, problem, key)` makes the state of one seed."""
Update = Callable[[C, State, Batch, Measured], tuple[State, Metrics]]
"""`update(config, state, batch, measured)`; every metric is one number, or one per constraint."""
# A quadruped must feel its joints to walk; the paper's observation leaves them out.
DOGGO = {"steps_per_epoch": 60_000, "observation": "reference"}
TASKS = {"DoggoGoal": DOGGO, "DoggoGoalOpenAI": DOGGO}
"""Overrides by task."""


def algorithm(
    name: str,
    title: str,
    config: type[C],
    init: Init[C],
    update: Update[C],
    remedy: str,
    learner: str = "",
) -> Algorithm[C]:
    """The value of an on-policy algorithm; `remedy` is what to try if numbers become NaN.

    `learner` is the config's field of type `ActorCriticConfig`, if it has one.
    """
    return Algorithm(
        name=name,
        title=title,
        config=config,
        trainer=lambda config, problem: OnPolicy(config, problem, init, update, remedy),
        # As many as make about one epoch's steps in whole episodes.
        environments=lambda config, steps: max(1, config.steps_per_epoch // steps),
        presets={"default": Preset(tasks=TASKS, black_box=scaled(learner))},
        columns={"lambda": "{lambda:.3f}"},
    )


def scaled(learner: str) -> Callable[[Shape, str], Overrides]:
    """Settings for an environment of which nothing is known, so neither are its units."""
    settings = {f"{learner}.normalise_observations": True} if learner else {}
    return lambda shape, device: settings


@dataclass
class OnPolicy(Generic[C]):
    """Collects whole episodes and updates on them; see `trainer.Trainer`."""

    config: C
    problem: Problem
    init: Init[C]
    update: Update[C]
    remedy: str
    rounds: int = 1

    def __post_init__(self) -> None:
        config, problem, many = self.config, self.problem, len(self.problem.seeds)
        self.round_steps = problem.episode_steps
        begin = over_seeds(lambda key: self.init(config, problem, key), many)
        self._update = over_seeds(lambda *args: self.update(config, *args), many)
        self.state = begin(seed_keys(problem.seeds))
        self.datasets: dict[str, Dataset] = {}
        self._metrics: Metrics = {}
        self._measured = Measured(
            np.full((many, problem.constraints), np.nan, np.float32),  # type: ignore[arg-type]
            np.full(many, problem.episode_steps, np.float32),  # type: ignore[arg-type]
        )

    def actor(self, done: int, rngs: Generators) -> Actor:
        return draw_from(self.policy(), rngs, self.problem.environments, self.round_steps)

    def learn(self, experience: Experience, done: int, phases: Phases) -> None:
        with phases("update"):
            self._measured = measure(experience, self._measured, self.config.within)
            measured = estimate(experience, self._measured)
            self.state, self._metrics = jax.block_until_ready(
                self._update(self.state, to_batch(experience), measured)
            )

    def end_epoch(self) -> Metrics:
        return self._metrics

    def finite_parts(self) -> dict[str, Tree]:
        return {"policy or critics": self.state.learner, "an update's metric": self._metrics}

    def policy(self) -> Policy:
        return numpy_policy(self.state.learner, self.problem.actions)

    def planning(self) -> None:
        return None

    def snapshot(self) -> dict[str, Tree]:
        return {"state": self.state, "measured": self._measured}

    def restore(self, saved: Saved, steps: int, data: bool = True) -> None:
        self.state = saved.like("state", self.state)
        self._measured = saved.like("measured", self._measured)


def follow_cost(
    config: MultiplierConfig,
    learner: Learner,
    cost: Float[Array, " k"],
    limits: tuple[float, ...],
    scales: Scales,
) -> tuple[Learner, Float[Array, " k"]]:
    """Update the learner's multipliers with the measured cost; returns lambda too."""
    limit = jnp.asarray(limits, jnp.float32)
    moved = multiplier.update(config, learner.multiplier, cost, limit, scales)
    learner = eqx.tree_at(lambda s: s.multiplier, learner, moved)
    return learner, multiplier.value(config, moved)


def to_batch(experience: Experience) -> Batch:
    """Real steps as the learner takes them, with a leading axis of seeds."""
    real: Tree = experience  # numpy arrays; the compiled update takes them as they are
    aligned = not real.ended[:, :-1].any()  # episodes end only with the last row
    last = np.zeros_like(real.ended)
    last[:, -1] = True
    return Batch(
        obs=real.obs,
        action=real.action,
        reward=real.reward,
        cost=real.cost,
        next_obs=real.next_obs[:, -1:] if aligned else real.next_obs,
        terminated=real.terminated,
        ended=real.ended | last,
    )


def measure(experience: Experience, before: Measured, within: float | None = None) -> Measured:
    """Means over the episodes that ended; seeds without any keep the previous means.

    With `within`, the cost is that quantile of the episodes' costs.
    """
    cost, length = np.array(before.cost), np.array(before.length)
    for s, episodes in enumerate(experience.episodes):
        if len(episodes.cost):
            length[s] = episodes.length.mean()
            cost[s] = (
                episodes.mean_cost() if within is None else np.quantile(episodes.cost, within, 0)
            )
    return Measured(cost, length)  # type: ignore[arg-type]


def estimate(experience: Experience, measured: Measured) -> Measured:
    """Measured costs; for seeds that have finished no episode yet, the mean cost of a step times
    the length of an episode."""
    known, length = np.asarray(measured.cost), np.asarray(measured.length)
    steps = experience.cost.mean((1, 2)) * length[:, None]
    return Measured(np.where(np.isnan(known), steps, known), measured.length)  # type: ignore[arg-type]


def numpy_policy(learner: Learner, actions: ActionSpec) -> Policy:
    """The policies of a learner with a leading axis of seeds, for acting."""
    actor, scale = jax.device_get((learner.actor, learner.normalizer))
    weights, biases, log_std = list(actor.network.weights), list(actor.network.biases), None
    if actor.log_std is not None and actions.low:
        # The last layer takes over the scale of the actions.
        centre, half = (np.asarray(x, np.float32) for x in actor.scale)
        weights[-1], biases[-1] = weights[-1] * half, centre + half * biases[-1]
        log_std = np.log(half) + actor.log_std
    return Policy(
        tuple(weights),
        tuple(biases),
        actor.log_std if log_std is None else log_std,
        np.asarray(actions.low, np.float32),
        np.asarray(actions.high, np.float32),
        None if scale is None else scale.mean,
        None if scale is None else np.sqrt(scale.var + VARIANCE_EPSILON),
        kind="categorical" if actions.discrete else "gaussian",
    )
