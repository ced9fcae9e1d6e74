"""Types of arrays and trees that every room uses."""

from typing import Any

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
