"""What the off-policy algorithms share: rounds of a few real steps and a few updates."""

from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from surefoot.algorithms.actors import draw_uniformly
from surefoot.algorithms.algorithm import CostLimit, Steps
from surefoot.algorithms.collect import Actor, Generators
from surefoot.algorithms.dataset import Dataset
from surefoot.algorithms.experience import Experience
from surefoot.algorithms.loop import mean_metrics
from surefoot.algorithms.seeds import flatten_steps, over_seeds
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Index, Metrics, RandomKey
from surefoot.core.config import Count, NonNegativeInt, check
from surefoot.core.policy import Policy
from surefoot.core.spaces import ActionSpec
from surefoot.learn import replay as replays
from surefoot.learn import sac
from surefoot.learn.replay import Transitions
from surefoot.learn.sac import SACLearnerConfig

METRICS = ("critic_loss", "q", "entropy", "temperature")
"""What `learn.sac.update` reports."""


@dataclass(frozen=True)
class OffPolicyConfig:
    """Settings that SAC and safe-LOOP share."""

    steps: Steps = 450_000
    """Real steps in all."""
    cost_limit: CostLimit = ()
    """Limit that episode costs are reported against; it does not affect training."""
    steps_per_epoch: Steps = 7_500
    """Real steps per epoch."""
    environments: Count = 10
    """Environments stepped together."""
    random_steps: NonNegativeInt = 10_000
    """Real steps with random actions at the start, without SAC's updates."""
    update_every: Count = 50
    """Real steps per round; a multiple of the environments."""
    updates: Count = 50
    """SAC's updates after each round."""
    replay: Count = 1_000_000
    """Capacity of the replay buffer, in steps."""
    sac: SACLearnerConfig = field(default_factory=SACLearnerConfig)
    """The learner of policy and values."""

    def __post_init__(self) -> None:
        check(self)
        for name, part in (("update_every", "environments"), ("steps_per_epoch", "update_every")):
            whole, unit = getattr(self, name), getattr(self, part)
            if whole % unit:
                near = -(-whole // unit) * unit
                raise ValueError(
                    f"{name}={whole} must be a multiple of {part}={unit}, such as {near}"
                )
        if self.replay < self.steps_per_epoch:
            raise ValueError(
                f"replay={self.replay} must be at least steps_per_epoch={self.steps_per_epoch}"
            )

    @property
    def whole_rounds(self) -> int:
        """`steps`, rounded up to whole rounds."""
        return -(-self.steps // self.update_every) * self.update_every


class SACState(eqx.Module):
    """Everything that SAC learns."""

    learner: sac.Learner
    key: RandomKey


def init(config: SACLearnerConfig, problem: Problem, key: RandomKey) -> SACState:
    """A new policy and new critics."""
    learner_key, key = jax.random.split(key)
    return SACState(sac.init(config, problem.observation_size, problem.actions, learner_key), key)


def improve(
    config: SACLearnerConfig, updates: int, state: SACState, replay: Transitions, size: Index
) -> tuple[SACState, Metrics]:
    """Several updates on batches of the replay buffer; metrics are means over them."""
    key, sub = jax.random.split(state.key)

    def step(learner: sac.Learner, key: RandomKey) -> tuple[sac.Learner, Metrics]:
        draw_key, update_key = jax.random.split(key)
        batch = replays.draw(replay, size, config.batch_size, draw_key)
        return sac.update(config, learner, batch, update_key)

    learner, metrics = jax.lax.scan(step, state.learner, jax.random.split(sub, updates))
    return SACState(learner, key), jax.tree.map(jnp.mean, metrics)


class Updates:
    """SAC's part of a round for all seeds: random actions at first, then updates."""

    def __init__(self, config: OffPolicyConfig, problem: Problem):
        check_actions(problem.actions)
        self._config, self._problem, many = config, problem, len(problem.seeds)
        seen = np.zeros(problem.observation_size, np.float32)
        row = {
            "obs": seen,
            "action": np.zeros(problem.actions.size, np.float32),
            "reward": np.zeros((), np.float32),
            "next_obs": seen,
            "terminated": np.zeros((), bool),
        }
        self.replay = Dataset(min(config.replay, config.whole_rounds), many, row, config.replay)
        self._improve = over_seeds(
            lambda *args: improve(config.sac, config.updates, *args), many, shared=(2,)
        )
        self._metrics: list[Metrics] = []
        self.last: list[Metrics] = []
        """Metrics of the last epoch's updates."""

    def begins(self, done: int) -> bool:
        """Whether actions are still random after `done` steps."""
        return self.replay.inherited + done < self._config.random_steps

    def random_actor(self, rngs: Generators) -> Actor:
        return draw_uniformly(self._problem.actions, rngs, self._problem.environments)

    def learn(self, state: SACState, experience: Experience, done: int) -> SACState:
        """The state after a round."""
        self.replay.add(transitions(experience, self._problem.actions))
        if self.begins(done):
            return state
        rows = Transitions(**self.replay.rows)
        state, metrics = jax.block_until_ready(
            self._improve(state, rows, jnp.int32(self.replay.size))
        )
        self._metrics.append(metrics)
        return state

    def end_epoch(self) -> dict[str, np.ndarray]:
        """Mean metrics of the epoch's updates."""
        self.replay.end_epoch()
        self.last, self._metrics = self._metrics, []
        return mean_metrics(self.last, METRICS, len(self._problem.seeds))


def check_actions(actions: ActionSpec) -> None:
    """Raise a ValueError unless actions are a Box with finite bounds."""
    if actions.discrete:
        raise ValueError(
            f"action_space=Discrete({actions.size}): SAC and safe-LOOP need a Box; ppo-lagrangian, "
            f"cpo and mbppo-lagrangian support discrete actions"
        )
    bounds = np.array([actions.low, actions.high])
    if not (np.isfinite(bounds).all() and (bounds[0] < bounds[1]).all()):
        raise ValueError(
            f"action_space=Box({actions.low}, {actions.high}): SAC and safe-LOOP need finite "
            f"bounds, the lower below the upper"
        )


def transitions(experience: Experience, actions: ActionSpec) -> dict[str, np.ndarray]:
    """Real steps as rows of a replay buffer, [S, N, …]."""
    unit = sac.to_unit(actions, flatten_steps(experience.action))
    return {
        "obs": flatten_steps(experience.obs),
        "action": np.asarray(unit, np.float32),
        "reward": flatten_steps(experience.reward),
        "next_obs": flatten_steps(experience.next_obs),
        "terminated": flatten_steps(experience.terminated),
    }


def squashed_policy(learner: sac.Learner, actions: ActionSpec) -> Policy:
    """The policies of a learner with a leading axis of seeds, for acting."""
    network = jax.device_get(learner.networks.actor.network)
    low, high = (np.asarray(x, np.float32) for x in (actions.low, actions.high))
    return Policy(tuple(network.weights), tuple(network.biases), None, low, high, kind="squashed")
