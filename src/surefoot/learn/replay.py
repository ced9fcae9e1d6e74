"""Transitions for off-policy learning, and random batches of them."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
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


class CostTransitions(Transitions):
    """Steps with their costs."""

    cost: Float[Array, "N k"]


Rows = TypeVar("Rows", bound=Transitions)


def draw(rows: Rows, added: Index, count: int, key: RandomKey) -> Rows:
    """`count` transitions drawn with replacement from a ring buffer to which `added` were added."""
    size = jnp.minimum(added, rows.reward.shape[0])
    index = jax.random.randint(key, (count,), 0, size)
    return jax.tree.map(lambda x: x[index], rows)
