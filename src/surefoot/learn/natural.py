"""Natural gradients on flat parameters: Fisher products, conjugate gradients, line search."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from surefoot.core.arrays import Flag, Scalar

Vector = Float[Array, " P"]
Product = Callable[[Vector], Vector]
Info = TypeVar("Info")


def fisher_product(mean_kl: Callable[[Vector], Scalar], params: Vector, damping: float) -> Product:
    """v -> (H + damping I) v with H the Hessian of `mean_kl` at `params`.

    At the policy that the KL is measured from, H is the Fisher matrix for any distribution. The
    gradient is linearised once; each product evaluates only its linear part.
    """
    _, product = jax.linearize(jax.grad(mean_kl), params)
    return lambda v: product(v) + damping * v


def conjugate_gradients(product: Product, b: Vector, iterations: int) -> Vector:
    """Solve product(x) = b approximately, from x = 0.

    Iterations have no effect once the residual consists of rounding errors, which would give
    meaningless directions.
    """
    enough = 1e-10 * (b @ b)

    def step(state: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], None]:
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
    judge: Callable[[Vector], tuple[Flag, Info]],
    params: Vector,
    step: Vector,
    tries: int,
    decay: float,
) -> tuple[Vector, Scalar, Info]:
    """The first of params + step, params + decay * step, ... that is accepted, else `params`.

    `judge` returns whether parameters are acceptable, and any information about them. NaN must fail
    its test, so that a step which leads to NaN shrinks.

    Returns the parameters, the share of the step that was taken (0 if none) and `judge`'s
    information about them.
    """

    def unfinished(state: tuple[Array, ...]) -> Flag:
        tried, accepted, _ = state
        return ~accepted & (tried < tries)

    def shrink(state: tuple[Array, ...]) -> tuple[Array, ...]:
        tried, _, share = state
        share = jnp.where(tried == 0, 1.0, share * decay)
        accepted, _ = judge(params + share * step)
        return tried + 1, accepted, share

    start = (jnp.array(0), jnp.array(False), jnp.array(1.0))
    _, accepted, share = jax.lax.while_loop(unfinished, shrink, start)
    # A product with 0 would keep values that are not finite.
    result = jnp.where(accepted, params + share * step, params)
    return result, jnp.where(accepted, share, 0.0), judge(result)[1]
