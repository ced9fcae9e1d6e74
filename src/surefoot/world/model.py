"""What is known of a task, and what is left to the networks.

A task may hand over a `TaskModel`: pure functions for the parts it knows. `BlackBox` knows nothing
but observations, and learns everything: next observation, reward, costs, termination.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

State = Any
Bounds = tuple[Float[Array, " F"], Float[Array, " F"]]


class TaskModel(Protocol):
    """How a learned model and a task fit together. Functions take one state; vmap for many.

    A *record* is a real state as it is kept in memory, a flat vector; a *state* is whatever
    imagination carries from step to step.
    """

    @property
    def name(self) -> str: ...
    @property
    def known(self) -> tuple[str, ...]:
        """Which parts are known, in words, for reports."""
        ...

    @property
    def takes_observations(self) -> bool:
        """Whether records are observations; if not, environments must provide their states."""
        ...

    @property
    def cost_names(self) -> tuple[str, ...]: ...
    @property
    def observation_size(self) -> int: ...
    @property
    def record_size(self) -> int: ...
    @property
    def feature_size(self) -> int: ...
    @property
    def target_size(self) -> int:
        """Gaussian outputs of the model."""
        ...

    @property
    def binary_size(self) -> int:
        """Binary outputs of the model, after the Gaussian ones."""
        ...

    def record(self, state: Any) -> Any:
        """Records [N, R] of an environment's real states."""
        ...

    def initial_records(self, key: Key[Array, ""], n: int) -> Float[Array, "n R"] | None:
        """Initial states as resets draw them; None if only real resets can tell."""
        ...

    def restore(self, key: Key[Array, ""], records: Float[Array, "N R"]) -> State:
        """States to start imagining from."""
        ...

    def features(self, state: State) -> Float[Array, " F"]:
        """The model's input, actions aside."""
        ...

    def record_features(self, record: Float[Array, " R"]) -> Float[Array, " F"]:
        """The same of a record."""
        ...

    def target(
        self,
        before: Float[Array, " R"],
        after: Float[Array, " R"],
        reward: Float[Array, ""],
        cost: Float[Array, " k"],
        terminated: Bool[Array, ""],
    ) -> Float[Array, " D+b"]:
        """What the model should have said of a real step."""
        ...

    def advance(
        self,
        state: State,
        action: Float[Array, " A"],
        prediction: Float[Array, " D"],
        binary: Float[Array, "2 b"],
        bounds: Bounds,
    ) -> tuple[State, Float[Array, ""], Float[Array, " k"], Bool[Array, ""]]:
        """Next state, reward, costs and termination from what the model said.

        `binary` holds probabilities and uniform numbers to draw by; `bounds` is the range of the
        features in the data, which keeps imagination from running away.
        """
        ...

    def observe(self, state: State) -> Float[Array, " O"]:
        """What the policy sees."""
        ...


SignalFn = Callable[[Array, Array, Array], Array]


@dataclass(frozen=True)
class BlackBox:
    """Only observations: the state is what the policy sees, and the model predicts all of it.

    Any of reward, cost and termination may be handed over as a function of
    (observation, action, next observation), written in jax.numpy.
    """

    observation_size: int
    cost_names: tuple[str, ...] = ("cost",)
    binary_cost: bool = False
    """Costs are all 0 or 1: learn their probability rather than their value."""
    terminates: bool = True
    """Episodes may end before their time, so the end is learned too."""
    reward_fn: SignalFn | None = None
    cost_fn: SignalFn | None = None
    termination_fn: SignalFn | None = None

    name = "black-box"
    takes_observations = True

    @property
    def known(self) -> tuple[str, ...]:
        parts = (
            ("reward", self.reward_fn),
            ("cost", self.cost_fn),
            ("termination", self.termination_fn),
        )
        return tuple(name for name, fn in parts if fn is not None)

    @property
    def record_size(self) -> int:
        return self.observation_size

    @property
    def feature_size(self) -> int:
        return self.observation_size

    @property
    def _learns_reward(self) -> bool:
        return self.reward_fn is None

    @property
    def _k(self) -> int:
        return len(self.cost_names)

    @property
    def _gaussian_costs(self) -> int:
        return 0 if self.cost_fn or self.binary_cost else self._k

    @property
    def _binary_costs(self) -> int:
        return self._k if self.binary_cost and not self.cost_fn else 0

    @property
    def _learns_end(self) -> bool:
        return self.terminates and self.termination_fn is None

    @property
    def target_size(self) -> int:
        return self.observation_size + self._learns_reward + self._gaussian_costs

    @property
    def binary_size(self) -> int:
        return self._binary_costs + self._learns_end

    def record(self, state: Array) -> Array:
        return state

    def initial_records(self, key: Key[Array, ""], n: int) -> None:
        return None

    def restore(self, key: Key[Array, ""], records: Float[Array, "N R"]) -> Float[Array, "N R"]:
        return records

    def features(self, state: Float[Array, " O"]) -> Float[Array, " O"]:
        return state

    def record_features(self, record: Float[Array, " R"]) -> Float[Array, " F"]:
        return record

    def target(self, before, after, reward, cost, terminated) -> Float[Array, " D+b"]:
        parts = [after - before]
        if self._learns_reward:
            parts.append(jnp.asarray(reward)[None])
        if not self.cost_fn:
            parts.append(cost)  # the last Gaussian outputs, or the first binary ones
        if self._learns_end:
            parts.append(jnp.asarray(terminated, jnp.float32)[None])
        return jnp.concatenate(parts)

    def advance(self, state, action, prediction, binary, bounds):
        size = self.observation_size
        after = jnp.clip(state + prediction[:size], *bounds)
        probability, uniform = binary
        reward = (
            prediction[size] if self.reward_fn is None else self.reward_fn(state, action, after)
        )
        if self.cost_fn is not None:
            cost = jnp.atleast_1d(self.cost_fn(state, action, after))
        elif self.binary_cost:
            cost = probability[: self._k]  # the expected cost: less noise than a draw
        else:
            cost = prediction[size + self._learns_reward :]
        ended = jnp.zeros((), bool)
        if self.termination_fn is not None:
            ended = jnp.asarray(self.termination_fn(state, action, after), bool)
        elif self._learns_end:
            ended = uniform[-1] < probability[-1]
        return after, jnp.asarray(reward), cost, ended

    def observe(self, state: Float[Array, " O"]) -> Float[Array, " O"]:
        return state


def targets_of(
    knowledge: TaskModel,
    before: Float[Array, "N R"],
    after: Float[Array, "N R"],
    reward: Float[Array, " N"],
    cost: Float[Array, "N k"],
    terminated: Bool[Array, " N"],
) -> Float[Array, "N D+b"]:
    """The model's targets for N real steps."""
    return jax.vmap(knowledge.target)(before, after, reward, cost, terminated)
