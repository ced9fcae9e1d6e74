"""What the off-policy algorithms share: rounds of a few real steps and a few updates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from surefoot.algorithms.actors import draw_from, draw_uniformly
from surefoot.algorithms.algorithm import CostLimit, Steps
from surefoot.algorithms.collect import Actor, Generators
from surefoot.algorithms.dataset import Dataset
from surefoot.algorithms.experience import Experience
from surefoot.algorithms.loop import mean_metrics
from surefoot.algorithms.phases import Phases
from surefoot.algorithms.seeds import flatten_steps, over_seeds, seed_keys
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Index, Metrics, RandomKey, Tree
from surefoot.core.config import Count, NonNegativeInt, check
from surefoot.core.policy import VARIANCE_EPSILON, Policy
from surefoot.core.snapshot import Saved
from surefoot.core.spaces import ActionSpec
from surefoot.learn import replay as replays
from surefoot.learn import sac
from surefoot.learn.networks import Normalizer
from surefoot.learn.replay import CostTransitions, Transitions
from surefoot.learn.sac import SACLearnerConfig, SquashedActor

METRICS = ("critic_loss", "q", "entropy", "temperature")
"""What `learn.sac.update` reports, and every other update."""


@dataclass(frozen=True)
class OffPolicyConfig:
    """Settings that all off-policy algorithms share."""

    steps: Steps = 450_000
    """Real steps in all."""
    cost_limit: CostLimit = ()
    """Limit that episode costs are reported against; it does not affect training."""
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


@dataclass(frozen=True)
class SACSettings(OffPolicyConfig):
    """Settings that SAC and safe-LOOP share."""

    sac: SACLearnerConfig = field(default_factory=SACLearnerConfig)
    """The learner of policy and values."""


class SACState(eqx.Module):
    """Everything that SAC learns."""

    learner: sac.Learner
    key: RandomKey


def init(config: SACLearnerConfig, problem: Problem, key: RandomKey) -> SACState:
    """A new policy and new critics."""
    learner_key, key = jax.random.split(key)
    return SACState(sac.init(config, problem.observation_size, problem.actions, learner_key), key)


def improve(
    config: SACSettings, state: SACState, replay: Transitions, added: Index
) -> tuple[SACState, Metrics]:
    """Several updates on batches of the replay buffer; metrics are means over them."""
    key, sub = jax.random.split(state.key)

    def step(learner: sac.Learner, key: RandomKey) -> tuple[sac.Learner, Metrics]:
        draw_key, update_key = jax.random.split(key)
        batch = replays.draw(replay, added, config.sac.batch_size, draw_key)
        return sac.update(config.sac, learner, batch, update_key)

    learner, metrics = jax.lax.scan(step, state.learner, jax.random.split(sub, config.updates))
    return SACState(learner, key), jax.tree.map(jnp.mean, metrics)


class Learns(Protocol):
    """A state with a learner of policy and critics."""

    @property
    def learner(self) -> Tree: ...


State = TypeVar("State", bound=Learns)


class Updates(Generic[State]):
    """Learning in a round for all seeds: random actions at first, then updates.

    `improve(state, replay, added, *given)` makes the updates of one seed, from a ring buffer of the
    type `kind` to which so many rows were added; `given` is passed on by `learn`. `names` are the
    metrics that it returns.
    """

    def __init__(
        self,
        config: OffPolicyConfig,
        problem: Problem,
        improve: Callable[..., tuple[State, Metrics]],
        kind: type[Transitions] = Transitions,
        names: tuple[str, ...] = METRICS,
    ):
        check_actions(problem.actions)
        self._config, self._problem, many = config, problem, len(problem.seeds)
        self._kind, self._names = kind, names
        seen = np.zeros(problem.observation_size, np.float32)
        row = {
            "obs": seen,
            "action": np.zeros(problem.actions.size, np.float32),
            "reward": np.zeros((), np.float32),
            "next_obs": seen,
            "terminated": np.zeros((), bool),
        }
        if kind is CostTransitions:
            row["cost"] = np.zeros(problem.constraints, np.float32)
        self.replay = Dataset(min(config.replay, config.whole_rounds), many, row, config.replay)
        self._improve = over_seeds(improve, many, shared=(2,))
        self._metrics: list[Metrics] = []
        self.last: list[Metrics] = []
        """Metrics of the last epoch's updates."""

    def begins(self, done: int) -> bool:
        """Whether actions are still random after `done` steps."""
        return self.replay.inherited + done < self._config.random_steps

    def random_actor(self, rngs: Generators) -> Actor:
        return draw_uniformly(self._problem.actions, rngs, self._problem.environments)

    def learn(self, state: State, experience: Experience, done: int, *given: Tree) -> State:
        """The state after a round."""
        rows = transitions(experience, self._problem.actions)
        if self._kind is CostTransitions:
            rows["cost"] = flatten_steps(experience.cost).astype(np.float32)
        self.replay.add(rows)
        if self.begins(done):
            return state
        replay = self._kind(**self.replay.rows)
        state, metrics = jax.block_until_ready(
            self._improve(state, replay, jnp.int32(self.replay.count), *given)
        )
        self._metrics.append(metrics)
        return state

    def end_epoch(self) -> dict[str, np.ndarray]:
        """Mean metrics of the epoch's updates."""
        self.replay.end_epoch()
        self.last, self._metrics = self._metrics, []
        metrics = mean_metrics(self.last, self._names, len(self._problem.seeds))
        if "lambda" in metrics and not self.last:
            # One value per constraint, as in epochs with updates.
            metrics["lambda"] = metrics["lambda"][:, None].repeat(self._problem.constraints, 1)
        return metrics


class OffPolicy(Generic[State]):
    """The trainer of SAC and SAC-Lagrangian; see `trainer.Trainer`.

    `given(experience, done)` are further arguments of the updates after a round. `returned` makes
    the policy that training returns, if it is not the one that acts in it.
    """

    def __init__(
        self,
        config: OffPolicyConfig,
        problem: Problem,
        init: Callable[[RandomKey], State],
        updates: Updates[State],
        policy_of: Callable[[State], Policy],
        remedy: str,
        returned: Callable[[State], Policy] | None = None,
        given: Callable[[Experience, int], tuple[Tree, ...]] = lambda experience, done: (),
    ):
        self.problem, self.remedy = problem, remedy
        self.rounds = config.steps_per_epoch // config.update_every
        self.round_steps = config.update_every // config.environments
        self._updates, self._policy_of, self._given = updates, policy_of, given
        self._returned = returned or policy_of
        self.state: State = over_seeds(init, len(problem.seeds))(seed_keys(problem.seeds))
        self._policy = policy_of(self.state)
        self.datasets = {"replay": updates.replay}

    def actor(self, done: int, rngs: Generators) -> Actor:
        if self._updates.begins(done):
            return self._updates.random_actor(rngs)
        return draw_from(self._policy, rngs, self.problem.environments, self.round_steps)

    def learn(self, experience: Experience, done: int, phases: Phases) -> None:
        with phases("update"):
            given = self._given(experience, done)
            self.state = self._updates.learn(self.state, experience, done, *given)
            self._policy = self._policy_of(self.state)

    def end_epoch(self) -> Mapping[str, np.ndarray]:
        return self._updates.end_epoch()

    def finite_parts(self) -> dict[str, Tree]:
        return {"policy or critics": self.state.learner, "an update's metric": self._updates.last}

    def policy(self) -> Policy:
        return self._returned(self.state)

    def planning(self) -> None:
        return None

    def snapshot(self) -> dict[str, Tree]:
        return {"state": self.state, "replay": self._updates.replay.snapshot()}

    def restore(self, saved: Saved, steps: int, data: bool = True) -> None:
        self.state = saved.like("state", self.state)
        self._policy = self._policy_of(self.state)
        if data:
            self._updates.replay.restore(saved.part("replay"), steps)


def check_actions(actions: ActionSpec) -> None:
    """Raise a ValueError unless actions are a Box with finite bounds."""
    if actions.discrete:
        raise ValueError(
            f"action_space=Discrete({actions.size}): SAC, SAC-Lagrangian and safe-LOOP need a Box; "
            f"ppo-lagrangian, cpo and mbppo-lagrangian support discrete actions"
        )
    bounds = np.array([actions.low, actions.high])
    if not (np.isfinite(bounds).all() and (bounds[0] < bounds[1]).all()):
        raise ValueError(
            f"action_space=Box({actions.low}, {actions.high}): SAC, SAC-Lagrangian and safe-LOOP "
            f"need finite bounds, the lower below the upper"
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


def squashed_policy(
    actor: SquashedActor, actions: ActionSpec, scale: Normalizer | None = None
) -> Policy:
    """Policies with a leading axis of seeds, for acting."""
    network, scale = jax.device_get((actor.network, scale))
    low, high = (np.asarray(x, np.float32) for x in (actions.low, actions.high))
    return Policy(
        tuple(network.weights), tuple(network.biases), None, low, high,
        None if scale is None else np.asarray(scale.mean),
        None if scale is None else np.sqrt(scale.var + VARIANCE_EPSILON),
        kind="squashed",
    )  # fmt: skip
