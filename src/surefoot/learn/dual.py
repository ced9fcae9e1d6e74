"""The step of constrained policy optimisation (Achiam et al., 2017), solved by its dual.

Minimise g'x subject to c + b'x <= 0 and x'Hx <= 2 delta. Here g and b are the gradients of the
policy's loss and of its cost, and c is the cost minus its limit. With v = H^-1 g and w = H^-1 b the
solution is x = -(of_v v + of_w w). It depends on five numbers: q = g'v, r = b'v, s = b'w, c and
delta.
"""

from typing import NamedTuple

import jax.numpy as jnp

from surefoot.core.arrays import Flag, Scalar

FLAT = 1e-8
"""Up to this s the cost is constant in the trust region: with delta = 0.01 up to 1.4e-5."""


class Step(NamedTuple):
    """Coefficients of x = -(of_v v + of_w w): 1/lambda and nu/lambda of the dual."""

    of_v: Scalar
    of_w: Scalar
    nu: Scalar
    """Multiplier of the cost; 0 in recovery and where the constraint does not bind."""
    binding: Flag
    """The constraint limits the step."""
    recovery: Flag
    """No step in the trust region meets the constraint, so the step only decreases the cost."""


def solve(q: Scalar, r: Scalar, s: Scalar, c: Scalar, delta: float) -> Step:
    """The coefficients of the optimal step.

    - Recovery, if infeasible (c > 0 and c^2 / s > 2 delta): the step that lowers the cost most.
    - The unconstrained step, with lambda_b = sqrt(q / 2 delta), if it meets the constraint
      (lambda_b c <= r), or if no step changes the cost, as recovery then has no direction.
    - Otherwise both bounds bind: lambda_a = sqrt(A / B) and nu = (lambda_a c - r) / s, with
      A = q - r^2 / s and B = 2 delta - c^2 / s.

    The problem is convex, so whichever of the last two satisfies its conditions is optimal. Neither
    candidate of the dual has to be projected or compared.
    """
    tiny = jnp.finfo(jnp.float32).tiny
    flat = s <= FLAT
    s = jnp.maximum(s, FLAT)
    q = jnp.maximum(q, 0.0)
    b = 2 * delta - c * c / s
    recovery = (c > 0) & (b < 0) & ~flat
    free = jnp.sqrt(2 * delta / jnp.maximum(q, tiny))
    binding = (c > r * free) & ~recovery & ~flat
    # If g is parallel to b, A is 0 up to rounding errors of either sign.
    a = jnp.maximum(q - r * r / s, jnp.maximum(1e-6 * q, tiny))
    of_v = jnp.sqrt(jnp.maximum(b, 0.0) / a)
    of_w = (c - r * of_v) / s
    # nu is unbounded where meeting the limit takes the whole trust region.
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
