"""Losses of the ensemble's networks."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from surefoot.core.arrays import Scalar

BINARY_WEIGHT = 10.0
"""Weight of the binary outputs. Gaussian outputs of small variance have steep losses, beside which
rare events such as a fall would hardly be learned."""


def row_loss(
    mean: Float[Array, "B D"],
    variance: Float[Array, "B D"],
    logits: Float[Array, "B b"],
    target: Float[Array, "B outputs"],
    variance_weight: float = 0.0,
) -> Float[Array, " B"]:
    """Negative log-likelihood of each row (eq. loss_ensemble), up to constants and weights.

    Mean over Gaussian outputs of (mu - y)^2 / sigma^2 + log sigma^2, times sigma^2 to the power
    `variance_weight` as a constant, plus `BINARY_WEIGHT` times the cross-entropy of the binary
    outputs. A target of NaN is missing and adds nothing.
    """
    d = mean.shape[-1]
    y, label = target[:, :d], target[:, d:]
    missing = jnp.isnan(y)
    # Replaced before the difference, because the gradient of an unselected NaN is NaN.
    error = jnp.square(mean - jnp.where(missing, 0.0, y)) / variance + jnp.log(variance)
    if variance_weight:
        error = error * lax.stop_gradient(variance) ** variance_weight
    loss = jnp.mean(jnp.where(missing, 0.0, error), axis=-1)
    return loss + BINARY_WEIGHT * cross_entropy(logits, label)


def cross_entropy(
    logits: Float[Array, "B b"], label: Float[Array, "B b"]
) -> Float[Array, " B"] | Scalar:
    """Mean over the binary outputs; a label of NaN is missing and adds nothing."""
    if not logits.shape[-1]:
        return jnp.zeros(())
    missing = jnp.isnan(label)
    entropy = jax.nn.softplus(logits) - jnp.where(missing, 0.0, label) * logits
    return jnp.mean(jnp.where(missing, 0.0, entropy), axis=-1)
