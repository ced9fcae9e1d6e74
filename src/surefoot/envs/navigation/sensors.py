"""The sensors of the reference observation: MuJoCo's, and Point's in closed form."""
# pyright: reportAttributeAccessIssue=false
# (pyright cannot resolve the names of compiled modules)

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from mujoco import MjData, MjModel, mj_forward, mj_fullM

from surefoot.envs import geometry

ClosedForm = Callable[[MjModel, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Sensors [N, S] of (model, proprioception, first two rows of the rotation, commands)."""


class SensorGroup(NamedTuple):
    """Sensors of the MuJoCo model that enter the observation in the same encoding."""

    names: tuple[str, ...]
    encoding: Literal["plain", "angle", "quaternion"] = "plain"
    """Angles enter as (sin, cos), a quaternion as a rotation matrix."""


class SensorReader:
    """Selects and encodes the sensors of a robot."""

    def __init__(self, model: MjModel, groups: Sequence[SensorGroup]):
        self._groups = [(self._columns(model, g.names), g.encoding) for g in groups]
        self.size = self(np.ones((1, model.nsensordata))).shape[1]
        """Length of the sensor part of the observation."""

    @staticmethod
    def _columns(model: MjModel, names: Sequence[str]) -> np.ndarray:
        sensors = [model.sensor(name) for name in names]
        return np.concatenate([np.arange(s.adr[0], s.adr[0] + s.dim[0]) for s in sensors])

    def __call__(self, sensordata: np.ndarray) -> np.ndarray:
        """The sensor part [N, S] of the reference observation, from sensordata [N, nsensordata]."""
        out = []
        for columns, encoding in self._groups:
            values = sensordata[:, columns]
            if encoding == "quaternion":
                values = geometry.rotation(values).reshape(len(values), 9)
            elif encoding == "angle":
                values = np.stack([np.sin(values), np.cos(values)], 2).reshape(len(values), -1)
            out.append(values)
        return np.concatenate(out, 1)


class PointMechanics(NamedTuple):
    """Constants that determine Point's acceleration."""

    mass: float
    arm: float
    """Distance from the axis to the centre of mass, along the nose."""
    inertia: float
    """About the centre of mass."""
    drag: float
    spin_drag: float
    gravity: float
    gear: np.ndarray
    """Of the two actuators, [2]."""
    strongest: np.ndarray
    """Bound on their forces before the gear, [2]."""
    compass: float
    """Strength of the magnetic field, which points along -y."""


@cache
def point_mechanics(model: MjModel) -> PointMechanics:
    """The mechanics of a compiled Point model."""
    data, inertia = MjData(model), np.zeros((3, 3))
    mj_forward(model, data)
    mj_fullM(model, data, inertia)
    mass, arm = inertia[0, 0], inertia[1, 2] / inertia[0, 0]
    return PointMechanics(
        mass=mass,
        arm=arm,
        inertia=inertia[2, 2] - mass * arm**2,
        drag=model.dof_damping[0],
        spin_drag=model.dof_damping[2],
        gravity=-model.opt.gravity[2],
        gear=model.actuator_gear[:, 0].copy(),
        strongest=model.actuator_forcerange[:, 1].copy(),
        compass=-model.opt.magnetic[1],
    )


def point_sensors(
    model: MjModel, body: np.ndarray, rows: np.ndarray, commands: np.ndarray
) -> np.ndarray:
    """Accelerometer, velocimeter, gyro and magnetometer of Points, [N, 12].

    From their proprioception [N, 3], the first two rows of their rotation [N, 2, 3] and their
    commands [N, 2]: Newton's law in the robot's frame. The centre of mass lies ahead of the axis,
    and Point has no contacts.
    """
    p = point_mechanics(model)
    vx, vy, spin = body.T
    # The second actuator is a velocity servo: its force is proportional to the error.
    effort = np.stack([commands[:, 0], commands[:, 1] - p.gear[1] * spin])
    bound = p.strongest[:, None]
    thrust, torque = p.gear[:, None] * np.minimum(np.maximum(effort, -bound), bound)
    turn = (torque - p.spin_drag * spin + p.arm * p.drag * vy) / p.inertia
    out = np.zeros((len(body), 12))
    out[:, 0] = (thrust - p.drag * vx) / p.mass + p.arm * spin * spin
    out[:, 1] = -p.drag * vy / p.mass - p.arm * turn
    out[:, 2] = p.gravity
    out[:, 3:5] = body[:, :2]
    out[:, 8] = spin
    out[:, 9:11] = -p.compass * rows[:, 1, :2]
    return out
