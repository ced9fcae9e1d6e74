"""Action spaces as learners use them."""

from dataclasses import dataclass
from functools import cached_property

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

UNBOUNDED = 1e30
"""A wider range of actions counts as having no bounds."""


@dataclass(frozen=True)
class ActionSpec:
    """A Box or Discrete action space.

    Gaussian policies sample unbounded actions in the units of the bounds: their networks' outputs
    from -1 to 1 span the bounds. Actions are clipped for an environment and for the learned model.
    Probabilities are those of the unclipped action.
    """

    size: int
    """Length of a continuous action, or the number of choices."""
    discrete: bool = False
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def scale(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Centre and half width of the bounds; 0 and 1 where there are none."""
        pairs = [
            ((low + high) / 2, (high - low) / 2) if 0 < high - low < UNBOUNDED else (0.0, 1.0)
            for low, high in zip(self.low, self.high, strict=True)
        ]
        return tuple(centre for centre, _ in pairs), tuple(half for _, half in pairs)

    def encode(self, action: Shaped[Array, "*batch"]) -> Float[Array, "*batch A"]:
        """Actions as input of the learned model: clipped, or one-hot."""
        if self.discrete:
            return jax.nn.one_hot(action, self.size)
        return jnp.clip(action, jnp.asarray(self.low), jnp.asarray(self.high))

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """Actions as input of an environment."""
        if self.discrete:
            return action
        low, high = self._bounds
        return np.minimum(np.maximum(action, low), high)

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(self.low), np.asarray(self.high)


def action_spec(space: gymnasium.Space) -> ActionSpec:
    """The ActionSpec of a Gymnasium Box or Discrete space."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return ActionSpec(int(space.n), discrete=True)
    if not isinstance(space, gymnasium.spaces.Box):
        raise ValueError(f"action space {space} must be a Box or Discrete")
    low, high = (tuple(float(x) for x in np.ravel(bound)) for bound in (space.low, space.high))
    return ActionSpec(len(low), low=low, high=high)
