"""What a robot sees of the plane: the Goal task's formulas, written once for numpy and jax.numpy.

`xp` is the array namespace; such functions take any leading batch axes. Only the lidar exists more
than once: dense where it is compiled, point by point where that runs on a CPU, and sparse for
numpy, where every array costs.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Namespace = Any
Array = Any

BINS = 16
# Of the odd polynomial nearest to the arc tangent from 0 to 1, the highest power first.
ARCTAN = (
    0.0029295953, -0.01639988, 0.043255257, -0.075548007, 0.106664,
    -0.14210789, 0.19993646, -0.33333135, 0.99999999,
)  # fmt: skip
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
    share = _share(xp, _in_bins(xp, xp.arctan2(y, x))[..., None])
    return xp.max(share * _strength(xp, x, y, max_range)[..., None], axis=-2)


def _strength(xp: Namespace, x: Array, y: Array, max_range: float) -> Array:
    return xp.maximum(0.0, max_range - xp.sqrt(x * x + y * y)) / max_range


def _in_bins(xp: Namespace, angle: Array) -> Array:
    """Angles from -pi to pi as numbers of bins, from 0 to 16."""
    angle = angle * (BINS / (2 * xp.pi))
    return xp.where(angle < 0, angle + BINS, angle)


def _share(xp: Namespace, angle: Array) -> Array:
    """How much of points at `angle` [..., 1], in bins, shines into each of the bins: [..., 16]."""
    away = xp.abs(angle - (xp.arange(BINS, dtype=angle.dtype) + 0.5))
    # 1.5 less the way around the circle, which is BINS / 2 - |away - BINS / 2|.
    return xp.clip(xp.abs(away - BINS / 2) - (BINS / 2 - 1.5), 0.0, 1.0)


def compiled_lidar(ego: Array, max_range: float) -> Array:
    """`lidar` as a compiled function should have it: the same numbers but for rounding."""
    return jax.lax.platform_dependent(
        ego,
        cpu=lambda ego: _point_by_point(ego, max_range),
        default=lambda ego: lidar(jnp, ego, max_range),
    )


def _point_by_point(ego: Array, max_range: float) -> Array:
    """`lidar` for a CPU: it keeps in cache what an accelerator would do at once, and takes angles
    by products and sums, which a compiler can do for several points in one instruction."""
    x, y = ego[..., 0], ego[..., 1]
    strength = _strength(jnp, x, y, max_range)
    angle = _in_bins(jnp, arctan2(y, x))

    def add(k: Array, bins: Array) -> Array:
        share = _share(jnp, angle[..., k, None])
        return jnp.maximum(bins, share * strength[..., k, None])

    dark = jnp.zeros((*x.shape[:-1], BINS), x.dtype)
    return jax.lax.fori_loop(0, x.shape[-1], add, dark)


def arctan2(y: Array, x: Array) -> Array:
    """The angle of points, to within 4e-7: a polynomial in the smaller part over the larger."""
    a, b = jnp.abs(x), jnp.abs(y)
    ratio = jnp.minimum(a, b) / jnp.maximum(jnp.maximum(a, b), 1e-30)
    angle = jnp.zeros_like(ratio)
    for c in ARCTAN:
        angle = angle * ratio * ratio + c
    angle = angle * ratio
    angle = jnp.where(b > a, jnp.pi / 2 - angle, angle)
    angle = jnp.where(x < 0, jnp.pi - angle, angle)
    return jnp.where(y < 0, -angle, angle)


def shine(
    out: np.ndarray, column: np.ndarray | int, x: np.ndarray, y: np.ndarray, max_range: float
) -> None:
    """Write the pseudo-lidar of ego-frame points x, y [N, K] into the rows of `out` [N, D].

    `column` ([K] or one for all) is where a point's 16 bins begin. The same numbers as `lidar`, by
    scattering each point into its three bins.
    """
    strength = _strength(np, x, y, max_range)
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
