"""What a learner must know of an environment's actions."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped


@dataclass(frozen=True)
class ActionSpec:
    """Box or Discrete actions.

    Policies draw unbounded Gaussian actions. They are clipped to the bounds where they meet the
    world, real or learned; probabilities are those of the unclipped action.
    """

    size: int
    """Length of a continuous action, or the number of choices."""
    discrete: bool = False
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def encode(self, action: Shaped[Array, "*batch"]) -> Float[Array, "*batch A"]:
        """Actions as a model's input: clipped, or one-hot."""
        if self.discrete:
            return jax.nn.one_hot(action, self.size)
        return jnp.clip(action, jnp.asarray(self.low), jnp.asarray(self.high))

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """Actions as an environment takes them."""
        return action if self.discrete else np.minimum(np.maximum(action, self.low), self.high)


def action_spec(space: Any) -> ActionSpec:
    """The ActionSpec of a gymnasium Box or Discrete space."""
    if hasattr(space, "n"):
        return ActionSpec(int(space.n), discrete=True)
    low, high = (tuple(float(x) for x in np.ravel(bound)) for bound in (space.low, space.high))
    return ActionSpec(len(low), low=low, high=high)
