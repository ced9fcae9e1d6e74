"""How far to believe the learned model: is its noise the real noise, and how fast does it drift?"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import norm

LEVELS = (0.5, 0.9, 0.95)
# Half-width, in standard deviations, of the central interval of each level.
_HALF_WIDTHS = np.asarray(norm.ppf(0.5 + np.asarray(LEVELS) / 2), dtype=np.float32)


class Calibration(eqx.Module):
    """Predicted against observed spread; a calibrated model covers LEVELS and has `chi2` = 1."""

    coverage: Float[Array, "levels D"]
    """Share of the targets inside the central 50 %, 90 % and 95 % predicted intervals."""
    chi2: Float[Array, " D"]
    """Mean squared standardised residual: above 1 the model is too sure, below 1 not enough."""


def calibration(
    mean: Float[Array, "*B D"], std: Float[Array, "*B D"], target: Float[Array, "*B D"]
) -> Calibration:
    """Compare the Gaussians predicted for some rows with what was observed there.

    Leading axes are averaged over, so predictions of several members may be stacked.
    """
    z = ((target - mean) / std).reshape(-1, mean.shape[-1])
    inside = jnp.abs(z) <= jnp.asarray(_HALF_WIDTHS)[:, None, None]
    return Calibration(coverage=inside.mean(axis=1), chi2=jnp.square(z).mean(axis=0))


def rollout_rmse(
    predicted: Float[Array, "H B D"], real: Float[Array, "H B D"]
) -> Float[Array, "H D"]:
    """Root mean square error per output after 1, 2, ... H steps of the same actions."""
    if predicted.shape != real.shape:
        raise ValueError(f"predicted {predicted.shape}: must have the shape of real {real.shape}")
    return jnp.sqrt(jnp.square(predicted - real).mean(axis=1))
