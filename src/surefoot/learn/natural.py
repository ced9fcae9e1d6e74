"""Natural-gradient arithmetic on flat parameters: Fisher products, CG and a line search."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Vector = Float[Array, " P"]
Product = Callable[[Vector], Vector]


def fisher_product(
    mean_kl: Callable[[Vector], Float[Array, ""]], params: Vector, damping: float
) -> Product:
    """v -> (H + damping I) v with H the Hessian of `mean_kl` at `params`.

    At the policy that the KL is measured from, H is the Fisher matrix, whatever the distribution.
    The gradient is linearised once; each product then only replays its linear part.
    """
    _, product = jax.linearize(jax.grad(mean_kl), params)
    return lambda v: product(v) + damping * v


def conjugate_gradients(product: Product, b: Vector, iterations: int) -> Vector:
    """x with product(x) = b, as near as so many iterations come, from x = 0.

    Iterations stop counting once the residual is down to rounding errors, which would otherwise
    be taken for a direction.
    """
    enough = 1e-10 * (b @ b)

    def step(state, _):
        x, residual, direction, square = state
        image = product(direction)
        length = square / jnp.maximum(direction @ image, jnp.finfo(b.dtype).tiny)
        moved = residual - length * image
        left = moved @ moved
        turned = moved + left / jnp.maximum(square, jnp.finfo(b.dtype).tiny) * direction
        new = (x + length * direction, moved, turned, left)
        done = square <= enough
        return jax.tree.map(lambda old, now: jnp.where(done, old, now), state, new), None

    start = (jnp.zeros_like(b), b, b, b @ b)
    (x, *_), _ = jax.lax.scan(step, start, length=iterations)
    return x


def line_search(
    judge: Callable[[Vector], tuple[Bool[Array, ""], Any]],
    params: Vector,
    step: Vector,
    tries: int,
    decay: float,
) -> tuple[Vector, Float[Array, ""], Any]:
    """The first of params + step, params + decay step, … that is accepted, or else `params`.

    `judge` says whether parameters are acceptable, and anything more about them. Its test must be
    a comparison that a NaN fails, so that a step which leads to one shrinks like any other.
    Returns the parameters, which share of the step was taken (0 if none) and what `judge` said.
    """

    def goes_on(state):
        tried, accepted, _ = state
        return ~accepted & (tried < tries)

    def shrink(state):
        tried, _, share = state
        # The first try is the whole step.
        share = jnp.where(tried == 0, 1.0, share * decay)
        accepted, _ = judge(params + share * step)
        return tried + 1, accepted, share

    start = (jnp.array(0), jnp.array(False), jnp.array(1.0))
    _, accepted, share = jax.lax.while_loop(goes_on, shrink, start)
    # Not a product with 0, which would keep what is not finite.
    found = jnp.where(accepted, params + share * step, params)
    return found, jnp.where(accepted, share, 0.0), judge(found)[1]
