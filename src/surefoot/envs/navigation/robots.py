"""The robots: which file, and their pose and proprioception from qpos and qvel."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import numpy as np

# A compiled name, which pyright cannot look into.
from mujoco import MjModel, mjtDisableBit  # pyright: ignore[reportAttributeAccessIssue]

POINT_HEIGHT = 0.1


@dataclass(frozen=True)
class Robot:
    """A robot and how to read it."""

    name: str
    """Name in options and on the command line."""
    asset: str
    """File name of its MJCF."""
    origin: str
    """Where its numbers come from."""
    glyph: Literal["point", "car", "doggo"]
    """How pictures draw it."""
    free_base: bool
    """Whether it moves freely in space (Car, Doggo) or only in the plane (Point)."""
    proprioception: int
    """How many numbers describe its body to a model, its place in the world aside."""
    paper_sensors: tuple[str, ...]
    """Order of the sensors in the paper's reduced state."""


ROBOTS = {
    r.name: r
    for r in (
        Robot("point", "point.xml", "safety-gym and safety-gymnasium", "point", False, 3,
              ("velocity", "yaw_rate", "magnetometer")),
        Robot("car", "car.xml", "safety-gym and safety-gymnasium", "car", True, 10,
              ("velocity", "magnetometer", "yaw_rate")),
        Robot("doggo", "doggo.xml", "safety-gymnasium", "doggo", True, 35,
              ("velocity", "yaw_rate", "magnetometer")),
        Robot("doggo-openai", "doggo_openai.xml", "OpenAI safety-gym", "doggo", True, 35,
              ("velocity", "yaw_rate", "magnetometer")),
    )
}  # fmt: skip


@cache
def load_model(name: str) -> MjModel:
    """The compiled model of a robot. Shared: do not write to it."""
    xml = files("surefoot.envs.navigation").joinpath("assets", ROBOTS[name].asset).read_text()
    model = MjModel.from_xml_string(xml)
    if not ROBOTS[name].free_base:
        # MuJoCo reads sensors in every physics step; Point's follow from its state (sensors.py).
        model.opt.disableflags |= mjtDisableBit.mjDSBL_SENSOR.value
    return model


def rotation(quaternion: np.ndarray) -> np.ndarray:
    """Rotation matrices [N, 3, 3] of unit quaternions [N, 4] (w, x, y, z)."""
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


def read_body(
    robot: Robot, qpos: np.ndarray, qvel: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Position [N, 3], heading [N], the rotation's first two rows [N, 2, 3], proprioception [N, P].

    Proprioception is what a model of the robot needs and no more: velocity of the base in its own
    frame, angular velocity, tilt, and the joints. Point: (vx, vy, yaw rate).
    """
    if not robot.free_base:
        heading = qpos[:, 2]
        cos, sin = np.cos(heading), np.sin(heading)
        body = qvel.copy()
        body[:, 0] = cos * qvel[:, 0] + sin * qvel[:, 1]
        body[:, 1] = cos * qvel[:, 1] - sin * qvel[:, 0]
        position = np.empty((len(qpos), 3))
        position[:, :2], position[:, 2] = qpos[:, :2], POINT_HEIGHT
        rows = np.zeros((len(qpos), 2, 3))
        rows[:, 0, 0], rows[:, 0, 1], rows[:, 1, 0], rows[:, 1, 1] = cos, -sin, sin, cos
        return position, heading.copy(), rows, body
    r = rotation(qpos[:, 3:7])
    velocity = np.einsum("nij,ni->nj", r, qvel[:, :3])
    parts = [velocity, qvel[:, 3:6], r[:, 2, :2]]
    if robot.glyph == "car":
        parts.append(qvel[:, 6:8])  # wheel speeds; the ball's orientation does not matter
    else:
        parts += [qpos[:, 7:], qvel[:, 6:], qpos[:, 2:3]]
    heading = np.arctan2(r[:, 1, 0], r[:, 0, 0])
    return qpos[:, :3].copy(), heading, r[:, :2], np.concatenate(parts, 1)
