"""The task model without known dynamics: the learned model predicts the next observation."""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from surefoot.core.arrays import Flag, Index, RandomKey, Scalar
from surefoot.world.model import Bounds

Observation = Float[Array, " O"]
SignalFn = Callable[[Observation, Float[Array, " A"], Observation], Array]
"""A function of (observation, action, next observation), written in jax.numpy."""


@dataclass(frozen=True)
class BlackBox:
    """States, records and features are observations; reward, costs and termination are learned.

    Any of the three may be given as a function of (observation, action, next observation) instead.
    `known=` of `surefoot.train` makes such a model from functions of batches.
    The action is the model's input: clipped to the bounds, or one-hot.

    A cost is learned in two parts: the probability that a step costs, and how much it costs then.
    So costs of 0 or 1, rare costs and dense costs need no settings, and none is negative.
    The reward of a step that terminates the episode is learned apart from that of other steps: it
    is often a bonus or a penalty a hundred times as large.
    """

    observation_size: int
    cost_names: tuple[str, ...] = ("cost",)
    terminates: bool = True
    """Episodes may terminate, so termination is learned too."""
    reward_fn: SignalFn | None = None
    """Returns the reward, a scalar."""
    cost_fn: SignalFn | None = None
    """Returns the costs [k], or a scalar if there is one cost."""
    termination_fn: SignalFn | None = None
    """Returns whether the episode terminates, a scalar."""
    initial_fn: Callable[[RandomKey, int], Float[Array, "n O"]] | None = None
    """Draws n initial observations; without it, rollouts start from recent real ones."""

    takes_observations = True

    @property
    def known(self) -> tuple[str, ...]:
        parts = {
            "initial states": self.initial_fn,
            "reward": self.reward_fn,
            "cost": self.cost_fn,
            "termination": self.termination_fn,
        }
        return tuple(name for name, fn in parts.items() if fn is not None)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"observation {i}" for i in range(self.observation_size))

    @property
    def output_names(self) -> tuple[str, ...]:
        reward = ("reward", "reward at the end")[: self._learned_rewards]
        costs = () if self.cost_fn else self.cost_names
        occurs = tuple(f"any {name}" for name in costs)
        end = ("end",) if self._learns_end else ()
        return (*self.feature_names, *reward, *costs, *occurs, *end)

    @property
    def record_size(self) -> int:
        return self.observation_size

    @property
    def feature_size(self) -> int:
        return self.observation_size

    @property
    def target_size(self) -> int:
        return self.observation_size + self._learned_rewards + self._learned_costs

    @property
    def binary_size(self) -> int:
        return self._learned_costs + self._learns_end

    @property
    def _learned_rewards(self) -> int:
        return 0 if self.reward_fn else 1 + self.terminates

    @property
    def _learned_costs(self) -> int:
        return 0 if self.cost_fn else len(self.cost_names)

    @property
    def _learns_end(self) -> bool:
        return self.terminates and self.termination_fn is None

    def record(self, state: np.ndarray) -> np.ndarray:
        return state

    def initial_records(self, key: RandomKey, n: int) -> Float[Array, "n O"] | None:
        return None if self.initial_fn is None else self.initial_fn(key, n)

    def restore(self, key: RandomKey, records: Float[Array, "N O"]) -> Float[Array, "N O"]:
        return records

    def features(self, state: Observation) -> Observation:
        return state

    def record_features(self, record: Observation) -> Observation:
        return record

    def target(
        self,
        before: Observation,
        after: Observation,
        reward: Scalar,
        cost: Float[Array, " k"],
        terminated: Flag,
    ) -> Float[Array, " D+b"]:
        parts = [after - before]
        if self.reward_fn is None:
            reward, end = jnp.asarray(reward), jnp.asarray(terminated)
            both = jnp.stack([jnp.where(end, jnp.nan, reward), jnp.where(end, reward, jnp.nan)])
            parts.append(both if self.terminates else reward[None])
        if not self.cost_fn:
            occurs = cost > 0
            parts += [jnp.where(occurs, cost, jnp.nan), occurs.astype(jnp.float32)]
        if self._learns_end:
            parts.append(jnp.asarray(terminated, jnp.float32)[None])
        return jnp.concatenate(parts)

    def advance(
        self,
        state: Observation,
        action: Float[Array, " A"],
        prediction: Float[Array, " D"],
        binary: Float[Array, "2 b"],
        bounds: Bounds,
    ) -> tuple[Observation, Scalar, Float[Array, " k"], Flag]:
        size = self.observation_size
        after = jnp.clip(state + prediction[:size], *bounds)
        probability, uniform = binary
        ended = jnp.zeros((), bool)
        if self.termination_fn is not None:
            ended = jnp.asarray(self.termination_fn(state, action, after), bool)
        elif self._learns_end:
            ended = uniform[-1] < probability[-1]
        rewards = self._learned_rewards
        if self.reward_fn is None:
            reward = jnp.where(ended, prediction[size + rewards - 1], prediction[size])
        else:
            reward = self.reward_fn(state, action, after)
        if self.cost_fn is not None:
            cost = jnp.atleast_1d(self.cost_fn(state, action, after))
        else:  # the expected cost has less noise than a drawn one
            amount = jnp.maximum(prediction[size + rewards :], 0.0)
            cost = probability[: len(self.cost_names)] * amount
        return after, jnp.asarray(reward), cost, ended

    def observe(self, state: Observation) -> Observation:
        return state

    def for_horizon(self, horizon: int) -> "BlackBox":
        return self

    def follow_real(
        self,
        states: Float[Array, "B O"],
        records: Float[np.ndarray, "T n O"],
        ended: Bool[np.ndarray, "T n"],
        start: Int[np.ndarray, " B"],
        place: Int[np.ndarray, " B"],
        within: Bool[np.ndarray, "H B"],
    ) -> tuple[Float[Array, "B O"], Bool[np.ndarray, "H B"]]:
        return states, within

    def events(self, state: Observation) -> Index:
        return jnp.zeros((), jnp.int32)
