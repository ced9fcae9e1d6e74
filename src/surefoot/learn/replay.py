"""Transitions for off-policy learning, and random batches of them."""

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float

from surefoot.core.arrays import Index, RandomKey


class Transitions(eqx.Module):
    """Steps, in any order."""

    obs: Float[Array, "N D"]
    action: Float[Array, "N A"]
    """In the unit box, from -1 to 1."""
    reward: Float[Array, " N"]
    next_obs: Float[Array, "N D"]
    """The observation that followed; the final one where an episode ended."""
    terminated: Bool[Array, " N"]
    """Whether the episode terminated; false if it was truncated."""


def draw(rows: Transitions, size: Index, count: int, key: RandomKey) -> Transitions:
    """`count` transitions drawn with replacement from the first `size` rows."""
    index = jax.random.randint(key, (count,), 0, size)
    return jax.tree.map(lambda x: x[index], rows)
