"""Sensors and lidar, against MuJoCo and against a plain loop."""

import math
from importlib.resources import files

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from surefoot.envs import geometry
from surefoot.envs.navigation.robots import ROBOTS
from surefoot.envs.navigation.sensors import point_sensors


def test_the_points_sensors_are_mujocos():
    """MuJoCo reads them from the model itself; ours come from Newton's law."""
    model = mujoco.MjModel.from_xml_path(
        str(files("surefoot.envs.navigation") / "assets" / "point.xml")
    )
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    for _ in range(50):
        data.qpos[:], data.qvel[:] = rng.normal(0, 2, 3), rng.normal(0, 2, 3)
        data.ctrl[:] = rng.uniform(-1, 1, 2) * rng.choice([0.02, 1.0])  # below and above saturation
        mujoco.mj_forward(model, data)
        _, _, rows, body = ROBOTS["point"].read(data.qpos[None], data.qvel[None])
        ours = point_sensors(model)(body, rows, data.ctrl[None])[0]
        np.testing.assert_allclose(ours, data.sensordata, rtol=0, atol=1e-10)


def by_hand(points: np.ndarray, reach: float) -> np.ndarray:
    """One robot's lidar, point by point: its own bin, and how near it is to the two beside it."""
    seen = np.zeros(16)
    for x, y in points:
        strength = max(0.0, reach - math.hypot(x, y)) / reach
        angle = math.atan2(y, x) % (2 * math.pi) / (2 * math.pi / 16)
        b = int(angle) % 16
        into = angle - int(angle)
        for k, share in (
            (b, 1.0),
            ((b + 1) % 16, into),
            ((b - 1) % 16, 1.0 - into),
        ):
            seen[k] = max(seen[k], share * strength)
    return seen


def test_all_lidars_are_the_loop():
    rng = np.random.default_rng(1)
    ego = rng.normal(0, 1.5, (40, 7, 2))
    # On the seam, just below it, on the robot, on bin borders, out of reach.
    ego[0] = [(1, 0), (1, -1e-20), (0, 0), (-1, 0), (-1, -1e-20), (1, 1), (9, 9)]
    expected = np.array([by_hand(points, 3.0) for points in ego])
    np.testing.assert_allclose(geometry.lidar(np, ego, 3.0), expected, atol=1e-14)
    out = np.zeros((40, 21))
    geometry.add_lidar(out, 5, ego[..., 0], ego[..., 1], 3.0)
    np.testing.assert_allclose(out[:, 5:], expected, atol=1e-14)
    assert not out[:, :5].any()
    seen = jax.vmap(lambda points: geometry.compiled_lidar(points, 3.0))(jnp.float32(ego))
    np.testing.assert_allclose(seen, expected, atol=4e-6)  # single precision


def test_angles_are_right_all_around():
    angle = np.concatenate([np.linspace(-np.pi, np.pi, 2001), np.arange(-4, 5) * np.pi / 4])
    x, y = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    angles = geometry.arctan2(jnp.asarray(3 * y), jnp.asarray(3 * x))
    np.testing.assert_allclose(angles, np.arctan2(y, x, dtype=float), rtol=0, atol=4e-7)
    assert float(geometry.arctan2(jnp.float32(0), jnp.float32(0))) == 0


def test_lidar_is_added_at_the_given_columns():
    ego = np.random.default_rng(2).normal(0, 1.5, (5, 3, 2))
    out = np.zeros((5, 33))
    geometry.add_lidar(out, np.array([1, 17, 17]), ego[..., 0], ego[..., 1], 3.0)
    for row, points in zip(out, ego, strict=True):
        np.testing.assert_allclose(row[1:17], by_hand(points[:1], 3.0), atol=1e-14)
        np.testing.assert_allclose(row[17:], by_hand(points[1:], 3.0), atol=1e-14)
