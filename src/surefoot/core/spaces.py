"""Action spaces as learners use them."""

from dataclasses import dataclass

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped


@dataclass(frozen=True)
class ActionSpec:
    """A Box or Discrete action space.

    Policies sample unbounded Gaussian actions. These are clipped to the bounds for an environment
    and for the learned model. Probabilities are those of the unclipped action.
    """

    size: int
    """Length of a continuous action, or the number of choices."""
    discrete: bool = False
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def encode(self, action: Shaped[Array, "*batch"]) -> Float[Array, "*batch A"]:
        """Actions as input of the learned model: clipped, or one-hot."""
        if self.discrete:
            return jax.nn.one_hot(action, self.size)
        return jnp.clip(action, jnp.asarray(self.low), jnp.asarray(self.high))

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """Actions as input of an environment."""
        return action if self.discrete else np.minimum(np.maximum(action, self.low), self.high)


def action_spec(space: gymnasium.Space) -> ActionSpec:
    """The ActionSpec of a Gymnasium Box or Discrete space."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return ActionSpec(int(space.n), discrete=True)
    if not isinstance(space, gymnasium.spaces.Box):
        raise ValueError(f"action space {space} must be a Box or Discrete")
    low, high = (tuple(float(x) for x in np.ravel(bound)) for bound in (space.low, space.high))
    return ActionSpec(len(low), low=low, high=high)
