"""Trust in imagination: the performance ratio, and the bias of imagined costs."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from surefoot.core.arrays import Scalar


def performance_ratio(new: Float[Array, " elites"], old: Float[Array, " elites"]) -> Scalar:
    """Fraction of the elites in which the new policy's return exceeds the old one's (eq. pr).

    Both returns must come from the same initial states and random numbers in each elite. Their
    difference is then much less noisy than the returns.
    """
    return jnp.mean(new > old)


class CostBias(eqx.Module):
    """Real minus imagined episode cost, as an exponentially weighted mean over real batches."""

    total: Float[Array, " k"]
    """Weighted sum of the differences."""
    variance: Float[Array, " k"]
    """Variance of that sum, from the spread of real episodes."""
    weight: Scalar
    """Sum of the weights."""

    @staticmethod
    def none(k: int) -> "CostBias":
        """The state before the first real batch."""
        return CostBias(jnp.zeros(k), jnp.zeros(k), jnp.zeros(()))

    def seen(
        self,
        real: Float[Array, " k"],
        error: Float[Array, " k"],
        imagined: Float[Array, " k"],
        memory: float,
    ) -> "CostBias":
        """The state after another real batch, whose mean cost has the standard error `error`."""
        return CostBias(
            memory * self.total + (real - imagined),
            memory**2 * self.variance + error**2,
            memory * self.weight + 1.0,
        )

    def value(self) -> Float[Array, " k"]:
        """The bias, reduced by one standard error.

        A batch has few episodes with widely spread costs. Most of a difference is noise, and a
        multiplier that follows noise overshoots.
        """
        weight = jnp.maximum(self.weight, 1.0)
        mean, error = self.total / weight, jnp.sqrt(self.variance) / weight
        return jnp.sign(mean) * jnp.maximum(jnp.abs(mean) - error, 0.0)


def cost_estimate(imagined: Float[Array, " k"], bias: CostBias) -> Float[Array, " k"]:
    """Estimated episode costs of the current policy: the imagined costs plus their bias.

    For the policy of the last real batch this estimates its real cost. For later policies it adds
    the imagined change since then.
    """
    return jnp.maximum(imagined + bias.value(), 0.0)


def mismatched(
    real: Float[Array | np.ndarray, "*S k"],
    real_error: Float[Array | np.ndarray, "*S k"],
    imagined: Float[Array | np.ndarray, "*S k"],
    limit: Float[Array, " k"] | float,
) -> Bool[Array, "*S k"]:
    """Whether real and imagined cost differ by over two standard errors and half the limit."""
    difference = jnp.abs(real - imagined)
    return (difference > 2 * real_error) & (difference > 0.5 * limit)
