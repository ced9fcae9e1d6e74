"""Types of arrays and trees that every room uses."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

Tree = Any
"""A pytree of arrays, such as a state; code that passes it on does not look into it."""
Scalar = Float[Array, ""]
Flag = Bool[Array, ""]
Index = Int[Array, ""]
"""A whole number."""
RandomKey = Key[Array, ""]
Metrics = dict[str, Array]
"""Numbers of an update by name."""
T = TypeVar("T")


def choose(where: Bool[Array, " n"], new: T, old: T) -> T:
    """Two trees whose leaves have a leading axis: `new` in the rows of `where`, `old` elsewhere."""
    pick = lambda a, b: jnp.where(where.reshape(-1, *[1] * (a.ndim - 1)), a, b)
    return jax.tree.map(pick, new, old)
