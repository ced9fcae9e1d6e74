"""What a robot sees of the plane: the Goal task's formulas, written once for numpy and jax.numpy.

`xp` is the array namespace; such functions take any leading batch axes. Only the lidar exists
twice: dense for JAX, where it is compiled, and sparse for numpy, where every array costs.
"""

from typing import Any

import numpy as np

Namespace = Any
Array = Any

BINS = 16
SIDES = np.array([0, 1, -1])[:, None, None]  # a point's own bin, the next and the one before


def to_ego(xp: Namespace, points: Array, position: Array, cos: Array, sin: Array) -> Array:
    """Points [..., K, 2] of the world in the frame of robots at [..., 2] with heading [...]."""
    d = points - position[..., None, :]
    c, s = cos[..., None], sin[..., None]
    return xp.stack([c * d[..., 0] + s * d[..., 1], c * d[..., 1] - s * d[..., 0]], axis=-1)


def lidar(xp: Namespace, ego: Array, max_range: float) -> Array:
    """Pseudo-lidar [..., 16] of ego-frame points [..., K, 2]: in each bin the strongest.

    A point shines fully into its own bin, and into the two next to it by how near it is to them:
    over the circle this is a trapezoid around the middle of the bin.
    """
    x, y = ego[..., 0], ego[..., 1]
    strength = xp.maximum(0.0, max_range - xp.sqrt(x * x + y * y)) / max_range
    angle = xp.arctan2(y, x) * (BINS / (2 * xp.pi))
    angle = xp.where(angle < 0, angle + BINS, angle)
    away = xp.abs(angle[..., None] - (xp.arange(BINS, dtype=angle.dtype) + 0.5))
    # 1.5 less the way around the circle, which is BINS / 2 - |away - BINS / 2|.
    share = xp.clip(xp.abs(away - BINS / 2) - (BINS / 2 - 1.5), 0.0, 1.0)
    return xp.max(share * strength[..., None], axis=-2)


def shine(
    out: np.ndarray, column: np.ndarray | int, x: np.ndarray, y: np.ndarray, max_range: float
) -> None:
    """Write the pseudo-lidar of ego-frame points x, y [N, K] into the rows of `out` [N, D].

    `column` ([K] or one for all) is where a point's 16 bins begin. The same numbers as `lidar`, by
    scattering each point into its three bins.
    """
    strength = np.maximum(0.0, max_range - np.sqrt(x * x + y * y)) / max_range
    angle = np.arctan2(y, x) * (BINS / (2 * np.pi))
    angle += BINS * (angle < 0)
    bins = angle.astype(np.intp)
    angle -= bins  # how far into its bin
    share = np.empty((3, *x.shape))
    share[0], share[1] = strength, angle * strength
    np.subtract(strength, share[1], out=share[2])
    where = (bins + SIDES) & (BINS - 1)
    where += np.arange(0, out.size, out.shape[1])[:, None] + column
    np.maximum.at(out.reshape(-1), where.reshape(-1), share.reshape(-1))


def distance(xp: Namespace, a: Array, b: Array) -> Array:
    """Euclidean distance of points [..., 2]."""
    d = a - b
    return xp.sqrt(d[..., 0] * d[..., 0] + d[..., 1] * d[..., 1])


def hazard_cost(xp: Namespace, position: Array, hazards: Array, size: float) -> Array:
    """1 where any hazard centre is at most `size` away, else 0: [...]."""
    if hazards.shape[-2] == 0:
        return xp.zeros(position.shape[:-1])
    near = distance(xp, hazards, position[..., None, :]) <= size
    return xp.where(near.any(axis=-1), 1.0, 0.0)
