"""How far to trust practice: the performance ratio, and the gap between imagined and real cost."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Score = Callable[[Int[Array, ""]], Float[Array, ""]]


def performance_ratio(
    elites: Int[Array, " elites"], new: Score, old: Score
) -> Float[Array, ""]:
    """Share of the elites in which the new policy scores higher than the old (eq. pr).

    `new` and `old` score a policy within one member. Both must meet the same initial states and the
    same random numbers: the difference of two such scores is far less noisy than the scores.
    """
    return jnp.mean(jax.vmap(lambda i: new(i) > old(i))(elites))


def cost_estimate(
    imagined: Float[Array, " k"], gap: Float[Array, " k"]
) -> Float[Array, " k"]:
    """Episode costs of the present policy: imagined, put right by what imagination got wrong.

    `gap` is real minus imagined cost of the policy that last met the real world; so for that policy
    this is its real cost, and later ones are judged by the imagined change since.
    """
    return jnp.maximum(imagined + gap, 0.0)


def update_gap(
    gap: Float[Array, " k"],
    real: Float[Array, " k"],
    imagined: Float[Array, " k"],
    memory: float,
    first: bool | Array,
) -> Float[Array, " k"]:
    """The gap after another real batch.

    A batch is a handful of episodes, so its mean is noisy; `memory` is the share of the earlier gap
    that is kept. The first batch starts from a gap of nothing.
    """
    seen = real - imagined
    return jnp.where(first, (1 - memory) * seen, memory * gap + (1 - memory) * seen)


def parted(
    real: Float[Array, " k"],
    real_error: Float[Array, " k"],
    imagined: Float[Array, " k"],
    limit: Float[Array, " k"],
) -> Array:
    """Whether real and imagined cost differ by more than chance and by more than half the limit."""
    difference = jnp.abs(real - imagined)
    return (difference > 2 * real_error) & (difference > 0.5 * limit)


