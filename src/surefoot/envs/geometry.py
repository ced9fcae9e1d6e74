"""What a robot sees of the plane: the Goal task's formulas, written once for numpy and jax.numpy.

`xp` is the array namespace. All functions take any leading batch axes.
"""

from typing import Any

Namespace = Any
Array = Any

BINS = 16


def to_ego(xp: Namespace, points: Array, position: Array, cos: Array, sin: Array) -> Array:
    """Points [..., K, 2] of the world in the frame of robots at [..., 2] with heading [...]."""
    d = points - position[..., None, :]
    c, s = cos[..., None], sin[..., None]
    return xp.stack([c * d[..., 0] + s * d[..., 1], c * d[..., 1] - s * d[..., 0]], axis=-1)


def beams(xp: Namespace, ego: Array, max_range: float) -> Array:
    """How strongly each ego-frame point [..., K, 2] shines into each lidar bin: [..., K, 16].

    A point shines fully into its own bin, and into the two next to it by how near it is to them:
    over the circle this is a trapezoid around the middle of the bin.
    """
    x, y = ego[..., 0], ego[..., 1]
    strength = xp.maximum(0.0, max_range - xp.sqrt(x * x + y * y)) / max_range
    angle = xp.arctan2(y, x) * (BINS / (2 * xp.pi))
    angle = xp.where(angle < 0, angle + BINS, angle)
    away = xp.abs(angle[..., None] - (xp.arange(BINS, dtype=angle.dtype) + 0.5))
    # 1.5 less the way around the circle, which is BINS / 2 - |away - BINS / 2|. In place where the
    # arrays are numpy's: a fresh array of this size costs more than the arithmetic.
    away -= BINS / 2
    away = xp.abs(away)
    away -= BINS / 2 - 1.5
    share = xp.clip(away, 0.0, 1.0)
    share *= strength[..., None]
    return share


def lidar(xp: Namespace, ego: Array, max_range: float) -> Array:
    """Pseudo-lidar [..., 16] of ego-frame points [..., K, 2]: in each bin the strongest."""
    return xp.max(beams(xp, ego, max_range), axis=-2)


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
