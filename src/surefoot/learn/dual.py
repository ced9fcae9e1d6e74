"""The step of constrained policy optimisation (Achiam et al., 2017), solved by its dual.

Minimise g'x subject to c + b'x <= 0 and x'Hx <= 2 delta, where g and b are the gradients of the
policy's loss and of its cost, and c is how far the cost is above its limit. With v = H^-1 g and
w = H^-1 b the answer is x = -(of_v v + of_w w), and everything about it depends on five numbers:
q = g'v, r = b'v, s = b'w, c and delta.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

FLAT = 1e-8
"""Up to this s the cost hardly changes within the trust region: with delta = 0.01 by 1.4e-5."""


class Step(NamedTuple):
    """x = -(of_v v + of_w w). In terms of the multipliers 1/lambda and nu/lambda."""

    of_v: Float[Array, ""]
    of_w: Float[Array, ""]
    nu: Float[Array, ""]
    """The price of the cost; 0 where the constraint does not bind, and in recovery."""
    binding: Bool[Array, ""]
    """The constraint holds the step back."""
    recovery: Bool[Array, ""]
    """No step within the trust region meets the constraint: decrease the cost and nothing else."""


def solve(
    q: Float[Array, ""],
    r: Float[Array, ""],
    s: Float[Array, ""],
    c: Float[Array, ""],
    delta: float,
) -> Step:
    """The coefficients of the best step.

    - Infeasible (c > 0 and c^2 / s > 2 delta): recovery, the step that lowers the cost most.
    - The step without a constraint, with lambda_b = sqrt(q / 2 delta), keeps it anyway
      (lambda_b c <= r), as it must where the whole trust region is safe: that step. So too where
      no step changes the cost: recovery has no direction then.
    - Else both bounds bind: lambda_a = sqrt(A / B) and nu = (lambda_a c - r) / s, with
      A = q - r^2 / s and B = 2 delta - c^2 / s.

    The problem is convex, so whichever of the last two satisfies its own conditions is the better
    of the dual's two candidates; neither has to be projected or compared.
    """
    tiny = jnp.finfo(jnp.float32).tiny
    flat = s <= FLAT
    s = jnp.maximum(s, FLAT)
    q = jnp.maximum(q, 0.0)
    b = 2 * delta - c * c / s
    recovery = (c > 0) & (b < 0) & ~flat
    free = jnp.sqrt(2 * delta / jnp.maximum(q, tiny))
    binding = (c > r * free) & ~recovery & ~flat
    # Where g is along b there is no way to go beside it: A is 0 up to rounding, either side of it.
    a = jnp.maximum(q - r * r / s, jnp.maximum(1e-6 * q, tiny))
    of_v = jnp.sqrt(jnp.maximum(b, 0.0) / a)
    of_w = (c - r * of_v) / s
    # Where meeting the limit takes the whole trust region the price has no bound.
    nu = jnp.where(binding, jnp.maximum(of_w / jnp.maximum(of_v, 1e-6), 0.0), 0.0)
    choose = lambda bound, rescue, else_: jnp.where(
        binding, bound, jnp.where(recovery, rescue, else_)
    )
    return Step(
        of_v=choose(of_v, 0.0, free),
        of_w=choose(of_w, jnp.sqrt(2 * delta / s), 0.0),
        nu=nu,
        binding=binding,
        recovery=recovery,
    )
