"""SAC: soft actor-critic on real steps. It ignores costs, and is safe-LOOP's learner.

One round: a few real steps, then as many updates on batches of the replay buffer.
"""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from surefoot.algorithms.algorithm import Algorithm, CostLimit, Preset, Steps
from surefoot.algorithms.collect import Actor, Generators, draw_from, draw_uniformly
from surefoot.algorithms.experience import Experience
from surefoot.algorithms.loop import mean_metrics
from surefoot.algorithms.off_policy import (
    as_transitions,
    check_actions,
    check_rounds,
    environments,
    replay_buffer,
    squashed_policy,
    transitions,
)
from surefoot.algorithms.phases import Phases
from surefoot.algorithms.seeds import over_seeds, seed_keys
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Index, RandomKey
from surefoot.core.config import Count, NonNegativeInt
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved
from surefoot.learn import replay as replays
from surefoot.learn import sac
from surefoot.learn.replay import Transitions
from surefoot.learn.sac import SACLearnerConfig

METRICS = ("critic_loss", "q", "entropy", "temperature")
"""What `learn.sac.update` reports."""


@dataclass(frozen=True)
class SACConfig:
    """SAC with automatic temperature."""

    steps: Steps = 450_000
    """Real steps in all."""
    cost_limit: CostLimit = ()
    """Limit that episode costs are reported against; SAC does not keep it."""
    steps_per_epoch: Steps = 7_500
    """Real steps per epoch."""
    environments: Count = 10
    """Environments stepped together."""
    random_steps: NonNegativeInt = 10_000
    """Real steps with random actions at the start, without updates."""
    update_every: Count = 50
    """Real steps per round; a multiple of the environments."""
    updates: Count = 50
    """Updates after each round."""
    replay: Count = 1_000_000
    """Capacity of the replay buffer, in steps."""
    observation: str = "paper"
    """Observation that the policy sees, if the task has several."""
    sac: SACLearnerConfig = field(default_factory=SACLearnerConfig)
    """The learner."""

    def __post_init__(self) -> None:
        check_rounds(self)


class State(eqx.Module):
    """Everything that learns."""

    learner: sac.Learner
    key: RandomKey


def init(config: SACLearnerConfig, obs_size: int, action_size: int, key: RandomKey) -> State:
    """A new policy and new critics."""
    learner_key, key = jax.random.split(key)
    return State(sac.init(config, obs_size, action_size, learner_key), key)


def improve(
    config: SACLearnerConfig, updates: int, state: State, replay: Transitions, size: Index
) -> tuple[State, dict[str, Array]]:
    """Several updates on batches of the replay buffer; metrics are means over them."""
    key, sub = jax.random.split(state.key)

    def step(learner: sac.Learner, key: RandomKey) -> tuple[sac.Learner, dict[str, Array]]:
        draw_key, update_key = jax.random.split(key)
        batch = replays.draw(replay, size, config.batch_size, draw_key)
        return sac.update(config, learner, batch, update_key)

    learner, metrics = jax.lax.scan(step, state.learner, jax.random.split(sub, updates))
    return State(learner, key), jax.tree.map(jnp.mean, metrics)


class SACTrainer:
    """See `trainer.Trainer`."""

    remedy = "a smaller sac.learning_rate"

    def __init__(self, config: SACConfig, problem: Problem):
        check_actions(problem.actions)
        self.config, self.problem, many = config, problem, len(problem.seeds)
        self.rounds = config.steps_per_epoch // config.update_every
        self.round_steps = config.update_every // config.environments
        obs, actions = problem.observation_size, problem.actions.size
        begin = over_seeds(lambda key: init(config.sac, obs, actions, key), many)
        self._improve = over_seeds(
            lambda *args: improve(config.sac, config.updates, *args), many, shared=(2,)
        )
        self.state: State = begin(seed_keys(problem.seeds))
        self._policy = squashed_policy(self.state.learner, problem.actions)
        self._replay = replay_buffer(config, problem)
        self._metrics: list[dict[str, Array]] = []

    def actor(self, done: int, rngs: Generators) -> Actor:
        if done < self.config.random_steps:
            return draw_uniformly(self.problem.actions, rngs, self.problem.environments)
        return draw_from(self._policy, rngs, self.problem.environments, self.round_steps)

    def learn(self, experience: Experience, done: int, phases: Phases) -> None:
        with phases("update"):
            self._replay.add(transitions(experience, self.problem.actions))
            if done >= self.config.random_steps:
                size = jnp.int32(self._replay.size)
                self.state, metrics = self._improve(self.state, as_transitions(self._replay), size)
                self._metrics.append(metrics)
                self._policy = squashed_policy(self.state.learner, self.problem.actions)

    def end_epoch(self) -> dict[str, Any]:
        self._replay.end_epoch()
        self._learned, self._metrics = self._metrics, []
        return mean_metrics(self._learned, METRICS, len(self.problem.seeds))

    def finite_parts(self) -> dict[str, Any]:
        return {"policy or critics": self.state.learner, "an update's metric": self._learned}

    def policy(self) -> Policy:
        return self._policy

    def planning(self) -> None:
        return None

    def snapshot(self) -> dict[str, Any]:
        return {"state": self.state, "replay": self._replay.snapshot()}

    def restore(self, saved: Saved, steps: int, data: bool = True) -> None:
        self.state = saved.like("state", self.state)
        self._policy = squashed_policy(self.state.learner, self.problem.actions)
        if data:
            self._replay.restore(saved.part("replay"), steps)


ALGORITHM = Algorithm(
    name="sac",
    title="SAC",
    config=SACConfig,
    trainer=SACTrainer,
    environments=environments,
    presets={"default": Preset()},
    columns={"temperature": "{temperature:.3f}"},
    keeps_limit=lambda config: False,
)
