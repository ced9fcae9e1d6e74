"""The sensors of the reference observation: MuJoCo's, and Point's in closed form."""
# pyright: reportAttributeAccessIssue=false
# (pyright cannot resolve the names of compiled modules)

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from mujoco import MjData, MjModel, mj_forward, mj_fullM

from surefoot.envs import geometry

ClosedForm = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Sensors [N, S] of (proprioception, first two rows of the rotation, commands)."""


class SensorGroup(NamedTuple):
    """Sensors of the MuJoCo model that enter the observation in the same encoding."""

    names: tuple[str, ...]
    encoding: Literal["plain", "angle", "quaternion", "height"] = "plain"
    """Angles enter as (sin, cos), a quaternion as a rotation matrix, a position as its height."""


def read_sensors(
    model: MjModel, groups: Sequence[SensorGroup], sensordata: np.ndarray
) -> np.ndarray:
    """The sensor part [N, S] of the reference observation, from sensordata [N, nsensordata]."""
    out = []
    for names, encoding in groups:
        values = sensordata[:, _columns(model, names)]
        if encoding == "quaternion":
            values = geometry.rotation(values).reshape(len(values), 9)
        elif encoding == "angle":
            values = np.stack([np.sin(values), np.cos(values)], 2).reshape(len(values), -1)
        elif encoding == "height":
            values = values[:, 2:]
        out.append(values)
    return np.concatenate(out, 1)


@cache
def _columns(model: MjModel, names: tuple[str, ...]) -> np.ndarray:
    sensors = [model.sensor(name) for name in names]
    return np.concatenate([np.arange(s.adr[0], s.adr[0] + s.dim[0]) for s in sensors])


@cache
def point_sensors(model: MjModel) -> ClosedForm:
    """Accelerometer, velocimeter, gyro and magnetometer of Points, as a function.

    Newton's law in the robot's frame. Point has no contacts, and its centre of mass lies ahead of
    its axis, at the distance `arm`.
    """
    data, matrix = MjData(model), np.zeros((3, 3))
    mj_forward(model, data)
    mj_fullM(model, data, matrix)
    mass, arm = matrix[0, 0], matrix[1, 2] / matrix[0, 0]
    inertia = matrix[2, 2] - mass * arm**2  # about the centre of mass
    drag, spin_drag = model.dof_damping[0], model.dof_damping[2]
    gear, bound = model.actuator_gear[:, :1].copy(), model.actuator_forcerange[:, 1:].copy()
    gravity, field = -model.opt.gravity[2], model.opt.magnetic[1]

    def sensors(body: np.ndarray, rows: np.ndarray, commands: np.ndarray) -> np.ndarray:
        vx, vy, spin = body.T
        # The second actuator is a velocity servo: its force is proportional to the error.
        effort = np.stack([commands[:, 0], commands[:, 1] - gear[1] * spin])
        thrust, torque = gear * np.minimum(np.maximum(effort, -bound), bound)
        turn = (torque - spin_drag * spin + arm * drag * vy) / inertia
        out = np.zeros((len(body), 12))
        out[:, 0] = (thrust - drag * vx) / mass + arm * spin * spin
        out[:, 1] = -drag * vy / mass - arm * turn
        out[:, 2] = gravity
        out[:, 3:5] = body[:, :2]
        out[:, 8] = spin
        out[:, 9:11] = field * rows[:, 1, :2]
        return out

    return sensors
