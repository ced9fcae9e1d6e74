"""How far to trust practice: the performance ratio, and the gap between imagined and real cost."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float


def performance_ratio(
    new: Float[Array, " elites"], old: Float[Array, " elites"]
) -> Float[Array, ""]:
    """Share of the elites in which the new policy scores higher than the old (eq. pr).

    Both must have met the same initial states and the same random numbers in each elite: the
    difference of two such scores is far less noisy than the scores.
    """
    return jnp.mean(new > old)


class CostBias(eqx.Module):
    """Real minus imagined episode cost, averaged over real batches with fading memory."""

    total: Float[Array, " k"]
    """Weighted sum of the gaps seen."""
    variance: Float[Array, " k"]
    """Of that sum, from the scatter of real episodes."""
    weight: Float[Array, ""]

    @staticmethod
    def none(k: int) -> "CostBias":
        """Before the first real batch."""
        return CostBias(jnp.zeros(k), jnp.zeros(k), jnp.zeros(()))

    def seen(
        self,
        real: Float[Array, " k"],
        error: Float[Array, " k"],
        imagined: Float[Array, " k"],
        memory: float,
    ) -> "CostBias":
        """The gap after another real batch, whose mean cost has the given standard error."""
        return CostBias(
            memory * self.total + (real - imagined),
            memory**2 * self.variance + error**2,
            memory * self.weight + 1.0,
        )

    def value(self) -> Float[Array, " k"]:
        """The part of the gap that is beyond one standard error.

        A batch is a handful of episodes whose costs scatter widely: most of a gap is luck, and a
        multiplier that follows luck overshoots.
        """
        weight = jnp.maximum(self.weight, 1.0)
        mean, error = self.total / weight, jnp.sqrt(self.variance) / weight
        return jnp.sign(mean) * jnp.maximum(jnp.abs(mean) - error, 0.0)


def cost_estimate(imagined: Float[Array, " k"], gap: CostBias) -> Float[Array, " k"]:
    """Episode costs of the present policy: imagined, put right by what imagination got wrong.

    For the policy that last met the real world this is its real cost (as far as it is known); later
    ones are judged by the imagined change since.
    """
    return jnp.maximum(imagined + gap.value(), 0.0)


def mismatched(
    real: Float[Array | np.ndarray, "*S k"],
    real_error: Float[Array | np.ndarray, "*S k"],
    imagined: Float[Array | np.ndarray, "*S k"],
    limit: Float[Array, " k"] | float,
) -> Bool[Array, "*S k"]:
    """Whether real and imagined cost differ by more than chance and by more than half the limit."""
    difference = jnp.abs(real - imagined)
    return (difference > 2 * real_error) & (difference > 0.5 * limit)
