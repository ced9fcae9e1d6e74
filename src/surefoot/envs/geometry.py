"""Geometry of the plane and the pseudo-lidar, for numpy and jax.numpy.

`xp` is the array namespace; functions that take it accept any leading batch axes. The lidar exists
in three forms that agree up to rounding: dense for accelerators, point by point for compiled CPU
code, and scattered for numpy.
"""

from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    import jax  # only compiled functions load it: environments need none

Namespace = ModuleType
A = TypeVar("A", np.ndarray, "jax.Array")

BINS = 16
# Coefficients of the odd polynomial nearest to the arc tangent on [0, 1], highest power first.
ARCTAN = (
    0.0029295953, -0.01639988, 0.043255257, -0.075548007, 0.106664,
    -0.14210789, 0.19993646, -0.33333135, 0.99999999,
)  # fmt: skip
SIDES = np.array([0, 1, -1])[:, None, None]  # a point's bin, the next and the previous one


def to_ego(xp: Namespace, points: A, position: A, cos: A, sin: A) -> A:
    """Points [..., K, 2] of the world in the frame of robots at [..., 2] with heading [...]."""
    d = points - position[..., None, :]
    c, s = cos[..., None], sin[..., None]
    return xp.stack([c * d[..., 0] + s * d[..., 1], c * d[..., 1] - s * d[..., 0]], axis=-1)


def to_world(dx: A, dy: A, cos: A, sin: A) -> tuple[A, A]:
    """A displacement (dx, dy) in the robot's frame, in the axes of the world."""
    return cos * dx - sin * dy, sin * dx + cos * dy


def distance(xp: Namespace, a: A, b: A) -> A:
    """Euclidean distance of points [..., 2]."""
    d = a - b
    return xp.sqrt(d[..., 0] * d[..., 0] + d[..., 1] * d[..., 1])


def hazard_cost(xp: Namespace, position: A, hazards: A, size: float) -> A:
    """1 where any hazard centre is at most `size` away, else 0: [...]."""
    if hazards.shape[-2] == 0:
        return xp.zeros(position.shape[:-1])
    near = distance(xp, hazards, position[..., None, :]) <= size
    return xp.where(near.any(axis=-1), 1.0, 0.0)


def rotation(quaternion: np.ndarray) -> np.ndarray:
    """Rotation matrices [N, 3, 3] of quaternions [N, 4] (w, x, y, z), which it normalises."""
    q = quaternion / np.sqrt((quaternion * quaternion).sum(1, keepdims=True))
    w, x, y, z = q.T
    out = np.empty((len(q), 3, 3))
    out[:, 0, 0] = w * w + x * x - y * y - z * z
    out[:, 0, 1] = 2 * (x * y - w * z)
    out[:, 0, 2] = 2 * (x * z + w * y)
    out[:, 1, 0] = 2 * (x * y + w * z)
    out[:, 1, 1] = w * w - x * x + y * y - z * z
    out[:, 1, 2] = 2 * (y * z - w * x)
    out[:, 2, 0] = 2 * (x * z - w * y)
    out[:, 2, 1] = 2 * (y * z + w * x)
    out[:, 2, 2] = w * w - x * x - y * y + z * z
    return out


def turn(yaw: float) -> tuple[float, float, float, float]:
    """The quaternion of a rotation about the vertical axis.

    MuJoCo's compiler, which the reference uses, divides by the length. The last bit decides
    whether a wheel that is placed on the floor touches it.
    """
    w, z = float(np.cos(yaw / 2)), float(np.sin(yaw / 2))
    length = float(np.sqrt(w * w + z * z))
    return w / length, 0.0, 0.0, z / length


def lidar(xp: Namespace, ego: A, max_range: float) -> A:
    """Pseudo-lidar [..., 16] of ego-frame points [..., K, 2]: the strongest signal in each bin.

    A point contributes fully to its own bin, and to both neighbours by its proximity to them. Over
    the circle this is a trapezoid around the middle of the bin.
    """
    x, y = ego[..., 0], ego[..., 1]
    share = _share(xp, _in_bins(xp, xp.arctan2(y, x))[..., None])
    return xp.max(share * _strength(xp, x, y, max_range)[..., None], axis=-2)


def _strength(xp: Namespace, x: A, y: A, max_range: float) -> A:
    return xp.maximum(0.0, max_range - xp.sqrt(x * x + y * y)) / max_range


def _in_bins(xp: Namespace, angle: A) -> A:
    """Angles in [-pi, pi] in units of bins, from 0 to 16."""
    angle = angle * (BINS / (2 * xp.pi))
    return xp.where(angle < 0, angle + BINS, angle)


def _share(xp: Namespace, angle: A) -> A:
    """Share of points at `angle` [..., 1], in bins, that falls into each bin: [..., 16]."""
    away = xp.abs(angle - (xp.arange(BINS, dtype=angle.dtype) + 0.5))
    # 1.5 minus the angular distance around the circle, which is BINS / 2 - |away - BINS / 2|.
    return xp.clip(xp.abs(away - BINS / 2) - (BINS / 2 - 1.5), 0.0, 1.0)


def compiled_lidar(ego: "jax.Array", max_range: float) -> "jax.Array":
    """`lidar` in the form that suits the compiled function's platform."""
    import jax
    import jax.numpy as jnp

    return jax.lax.platform_dependent(
        ego,
        cpu=lambda ego: _point_by_point(ego, max_range),
        default=lambda ego: lidar(jnp, ego, max_range),
    )


def _point_by_point(ego: "jax.Array", max_range: float) -> "jax.Array":
    """`lidar` for a CPU: keeps the bins in cache, and uses an arc tangent that vectorises."""
    import jax
    import jax.numpy as jnp

    x, y = ego[..., 0], ego[..., 1]
    strength = _strength(jnp, x, y, max_range)
    angle = _in_bins(jnp, arctan2(y, x))

    def add(k: "jax.Array", bins: "jax.Array") -> "jax.Array":
        share = _share(jnp, angle[..., k, None])
        return jnp.maximum(bins, share * strength[..., k, None])

    dark = jnp.zeros((*x.shape[:-1], BINS), x.dtype)
    return jax.lax.fori_loop(0, x.shape[-1], add, dark)


def arctan2(y: "jax.Array", x: "jax.Array") -> "jax.Array":
    """The angle of points, to within 4e-7: a polynomial in the smaller over the larger part."""
    import jax.numpy as jnp

    a, b = jnp.abs(x), jnp.abs(y)
    ratio = jnp.minimum(a, b) / jnp.maximum(jnp.maximum(a, b), 1e-30)
    angle = jnp.zeros_like(ratio)
    for c in ARCTAN:
        angle = angle * ratio * ratio + c
    angle = angle * ratio
    angle = jnp.where(b > a, jnp.pi / 2 - angle, angle)
    angle = jnp.where(x < 0, jnp.pi - angle, angle)
    return jnp.where(y < 0, -angle, angle)


def numpy_lidar(ego: np.ndarray, max_range: float) -> np.ndarray:
    """`lidar` [N, 16] of points [N, K, 2], in the form that suits numpy."""
    out = np.zeros((len(ego), BINS))
    add_lidar(out, 0, ego[..., 0], ego[..., 1], max_range)
    return out


def add_lidar(
    out: np.ndarray, column: np.ndarray | int, x: np.ndarray, y: np.ndarray, max_range: float
) -> None:
    """Write the lidar of ego-frame points x, y [N, K] into the rows of `out` [N, D].

    `column` ([K], or one for all points) is where the 16 bins of a point begin. Each point is
    scattered into its three bins.
    """
    strength = _strength(np, x, y, max_range)
    angle = np.arctan2(y, x) * (BINS / (2 * np.pi))
    angle += BINS * (angle < 0)
    bins = angle.astype(np.intp)
    angle -= bins  # fraction within its bin
    share = np.empty((3, *x.shape))
    share[0], share[1] = strength, angle * strength
    np.subtract(strength, share[1], out=share[2])
    index = (bins + SIDES) & (BINS - 1)
    index += np.arange(0, out.size, out.shape[1])[:, None] + column
    np.maximum.at(out.reshape(-1), index.reshape(-1), share.reshape(-1))
