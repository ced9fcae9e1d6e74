"""The robots: their model, how to place them, and how to read their pose and proprioception.

A new robot is one entry in `ROBOTS`, an MJCF file in `assets`, and a glyph in `render/glyphs.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import ClassVar, Literal, NamedTuple

import numpy as np

# Compiled names, which pyright cannot resolve.
from mujoco import MjModel, mjtDisableBit  # pyright: ignore[reportAttributeAccessIssue]

from surefoot.envs import geometry
from surefoot.envs.navigation.sensors import ClosedForm, SensorGroup, point_sensors

PaperSensor = Literal["velocity", "yaw_rate", "magnetometer"]


class Reading(NamedTuple):
    """Pose and proprioception of N robots."""

    position: np.ndarray
    """[N, 3]."""
    heading: np.ndarray
    """Yaw, [N]."""
    rotation: np.ndarray
    """First two rows of the rotation matrix, [N, 2, 3]."""
    body: np.ndarray
    """Proprioception, [N, P]."""


class Joints(NamedTuple):
    """Consecutive columns of qpos or qvel that belong to the proprioception."""

    source: Literal["qpos", "qvel"]
    first: int
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Robot:
    """A robot whose base moves freely in space.

    Its proprioception is all that a model of its motion needs, except the pose: base velocity in
    its frame, angular velocity, tilt, then the joints.
    """

    name: str
    """Name in options and on the command line."""
    asset: str
    """File name of its MJCF."""
    glyph: str
    """Name of its drawing."""
    sensors: tuple[SensorGroup, ...]
    """Sensors of the reference observation, in order."""
    paper_sensors: tuple[PaperSensor, ...] = ("velocity", "yaw_rate", "magnetometer")
    """Order of the sensors in the paper's reduced state."""
    closed_form: Callable[[MjModel], ClosedForm] | None = None
    """Computes the sensors from the state; MuJoCo's are then disabled."""
    joints: tuple[Joints, ...] = ()
    yaw_rate: ClassVar[int] = 5
    """Column of the yaw rate in the proprioception."""

    @property
    def body_names(self) -> tuple[str, ...]:
        """Names of the proprioceptive numbers."""
        base = [f"{name} {axis}" for name in ("velocity", "turning") for axis in "xyz"]
        joints = [name for joints in self.joints for name in joints.names]
        return (*base, "tilt x", "tilt y", *joints)

    @property
    def proprioception(self) -> int:
        """Number of proprioceptive numbers."""
        return len(self.body_names)

    def place(self, qpos: np.ndarray, x: float, y: float, yaw: float) -> None:
        """Move one robot: write its pose into qpos [nq]."""
        qpos[:2] = x, y
        qpos[3:7] = geometry.turn(yaw)

    def read(self, qpos: np.ndarray, qvel: np.ndarray) -> Reading:
        """Pose and proprioception from qpos [N, nq] and qvel [N, nv], in new arrays."""
        r = geometry.rotation(qpos[:, 3:7])
        velocity = np.einsum("nij,ni->nj", r, qvel[:, :3])
        parts = [velocity, qvel[:, 3:6], r[:, 2, :2]]
        for source, first, names in self.joints:
            values = qpos if source == "qpos" else qvel
            parts.append(values[:, first : first + len(names)])
        heading = np.arctan2(r[:, 1, 0], r[:, 0, 0])
        return Reading(qpos[:, :3].copy(), heading, r[:, :2], np.concatenate(parts, 1))


@dataclass(frozen=True, kw_only=True)
class PlanarRobot(Robot):
    """A robot with three joints: x, y and yaw."""

    height: float
    """Constant height of its centre."""
    yaw_rate: ClassVar[int] = 2

    @property
    def body_names(self) -> tuple[str, ...]:
        return ("velocity x", "velocity y", "yaw rate")

    def place(self, qpos: np.ndarray, x: float, y: float, yaw: float) -> None:
        qpos[:3] = x, y, yaw

    def read(self, qpos: np.ndarray, qvel: np.ndarray) -> Reading:
        heading = qpos[:, 2]
        cos, sin = np.cos(heading), np.sin(heading)
        body = qvel.copy()
        body[:, 0] = cos * qvel[:, 0] + sin * qvel[:, 1]
        body[:, 1] = cos * qvel[:, 1] - sin * qvel[:, 0]
        position = np.empty((len(qpos), 3))
        position[:, :2], position[:, 2] = qpos[:, :2], self.height
        rows = np.zeros((len(qpos), 2, 3))
        rows[:, 0, 0], rows[:, 0, 1], rows[:, 1, 0], rows[:, 1, 1] = cos, -sin, sin, cos
        return Reading(position, heading.copy(), rows, body)


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name} {i}" for i in range(count))


_INERTIAL = SensorGroup(("accelerometer", "velocimeter", "gyro", "magnetometer"))
_LEGS = [f"hip_{i}_{axis}" for axis in "zy" for i in "1234"] + [f"ankle_{i}" for i in "1234"]
_DOGGO_SENSORS = (
    _INERTIAL,
    SensorGroup(tuple(f"touch_ankle_{i}{side}" for side in "ab" for i in "1234")),
    SensorGroup(tuple(f"jointvel_{joint}" for joint in _LEGS)),
    SensorGroup(tuple(f"jointpos_{joint}" for joint in _LEGS), "angle"),
)
_DOGGO_JOINTS = (
    Joints("qpos", 7, _numbered("joint", 13)),
    Joints("qvel", 6, _numbered("joint speed", 13)),
    Joints("qpos", 2, ("height",)),
)

_POINT = PlanarRobot(
    name="point",
    asset="point.xml",
    glyph="point",
    sensors=(_INERTIAL,),
    closed_form=point_sensors,
    height=0.1,
)
_CAR = Robot(
    name="car",
    asset="car.xml",
    glyph="car",
    sensors=(
        _INERTIAL,
        SensorGroup(("ballangvel_rear",)),
        SensorGroup(("ballquat_rear",), "quaternion"),
    ),
    paper_sensors=("velocity", "magnetometer", "yaw_rate"),
    # The orientation of the rear ball does not affect the motion.
    joints=(Joints("qvel", 6, ("left wheel", "right wheel")),),
)
_DOGGO = Robot(
    name="doggo", asset="doggo.xml", glyph="doggo", sensors=_DOGGO_SENSORS, joints=_DOGGO_JOINTS
)
_DOGGO_OPENAI = replace(_DOGGO, name="doggo-openai", asset="doggo_openai.xml")
ROBOTS = {robot.name: robot for robot in (_POINT, _CAR, _DOGGO, _DOGGO_OPENAI)}


@cache
def load_model(name: str) -> MjModel:
    """The compiled model of a robot. Shared: do not write to it."""
    xml = files("surefoot.envs.navigation").joinpath("assets", ROBOTS[name].asset).read_text()
    model = MjModel.from_xml_string(xml)
    if ROBOTS[name].closed_form is not None:
        # MuJoCo evaluates sensors in every physics step, which costs time.
        model.opt.disableflags |= mjtDisableBit.mjDSBL_SENSOR.value
    return model
