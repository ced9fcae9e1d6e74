"""The sensors in the reference's observation: MuJoCo's, and Point's in closed form."""

from functools import cache
from typing import NamedTuple

import numpy as np

# Compiled names, which pyright cannot look into.
from mujoco import MjData, mj_forward, mj_fullM  # pyright: ignore[reportAttributeAccessIssue]

from surefoot.envs.navigation.robots import Robot, load_model, rotation

DOGGO_JOINTS = [f"hip_{i}_{axis}" for axis in "zy" for i in "1234"] + [f"ankle_{i}" for i in "1234"]


def columns(robot: Robot) -> dict[str, np.ndarray]:
    """Columns of sensordata for each group of the reference's observation, in its order."""
    model = load_model(robot.name)

    def of(*names: str) -> np.ndarray:
        found = [model.sensor(n) for n in names]
        return np.concatenate([np.arange(s.adr[0], s.adr[0] + s.dim[0]) for s in found])

    groups = {"inertial": of("accelerometer", "velocimeter", "gyro", "magnetometer")}
    if robot.glyph == "car":
        groups["ball_velocity"] = of("ballangvel_rear")
        groups["ball_quaternion"] = of("ballquat_rear")
    if robot.glyph == "doggo":
        groups["touch"] = of(*(f"touch_ankle_{i}{s}" for s in "ab" for i in "1234"))
        groups["joint_velocity"] = of(*(f"jointvel_{j}" for j in DOGGO_JOINTS))
        groups["joint_angle"] = of(*(f"jointpos_{j}" for j in DOGGO_JOINTS))
    return groups


def reference(groups: dict[str, np.ndarray], sensordata: np.ndarray) -> np.ndarray:
    """The sensor part [N, S] of the reference's observation.

    Angles enter as (sin, cos) and the ball's quaternion as a rotation matrix, as there.
    """
    out = []
    for name, where in groups.items():
        values = sensordata[:, where]
        if name == "ball_quaternion":
            values = rotation(values).reshape(len(values), 9)
        elif name == "joint_angle":
            values = np.stack([np.sin(values), np.cos(values)], 2).reshape(len(values), -1)
        out.append(values)
    return np.concatenate(out, 1)


def count(robot: Robot) -> int:
    """Length of the sensor part of the reference's observation."""
    groups = columns(robot)
    longer = {"ball_quaternion": 9, "joint_angle": 2 * len(groups.get("joint_angle", ()))}
    return sum(longer.get(name, len(where)) for name, where in groups.items())


class PointMechanics(NamedTuple):
    """What Point's acceleration depends on, besides its state and commands."""

    mass: float
    arm: float
    """From the axis to the centre of mass, along the nose."""
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
def point_mechanics() -> PointMechanics:
    """Point's mechanics, from its compiled model."""
    model = load_model("point")
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


def point(body: np.ndarray, rows: np.ndarray, commands: np.ndarray) -> np.ndarray:
    """Accelerometer, velocimeter, gyro and magnetometer of Points, [N, 12].

    From their proprioception [N, 3], the first rows of their rotation [N, 2, 3] and the commands
    [N, 2] they are under. Newton's law in the robot's own frame, its centre of mass ahead of its
    axis; nothing else ever touches Point.
    """
    p = point_mechanics()
    vx, vy, spin = body.T
    # The second actuator holds a speed: its force is what the command exceeds the present one by.
    asked = np.stack([commands[:, 0], commands[:, 1] - p.gear[1] * spin])
    bound = p.strongest[:, None]
    thrust, torque = p.gear[:, None] * np.minimum(np.maximum(asked, -bound), bound)
    turn = (torque - p.spin_drag * spin + p.arm * p.drag * vy) / p.inertia
    out = np.zeros((len(body), 12))
    out[:, 0] = (thrust - p.drag * vx) / p.mass + p.arm * spin * spin
    out[:, 1] = -p.drag * vy / p.mass - p.arm * turn
    out[:, 2] = p.gravity
    out[:, 3:5] = body[:, :2]
    out[:, 8] = spin
    out[:, 9:11] = -p.compass * rows[:, 1, :2]
    return out
