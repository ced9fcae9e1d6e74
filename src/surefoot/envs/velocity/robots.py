"""Gymnasium's locomotion robots, with the numbers of their Safety-Velocity tasks."""
# pyright: reportAttributeAccessIssue=false
# (pyright cannot resolve the names of compiled modules)

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import gymnasium
import mujoco
import numpy as np

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
Version = Literal["v1", "v0"]


@dataclass(frozen=True, kw_only=True)
class Robot:
    """One robot and its task."""

    title: str
    asset: str
    """File name of its MJCF, among Gymnasium's."""
    frame_skip: int
    """Physics steps per environment step."""
    limits: Mapping[Version, float]
    """Speed limit in m/s."""
    control: float
    """Weight of the squared action in the reward."""
    noise: float
    """Scale of the noise on initial states."""
    axes: int = 1
    """Horizontal axes in which it moves; observations leave out its position along them."""
    planar: tuple[Version, ...] = ()
    """Versions that limit the speed in the plane; the others limit the signed speed along x."""
    place: Literal["qpos", "xpos", "xipos"] = "qpos"
    """What its speed is the change of: root joint, torso, or centre of mass."""
    forward: float = 1.0
    """Weight of the speed along x in the reward."""
    alive: float = 0.0
    """Reward of every step, also of the one that terminates."""
    normal: bool = False
    """Noise on initial velocities is normal, not uniform."""
    velocity_clip: float = np.inf
    """Observed velocities are clipped to this."""
    extras: tuple[str, ...] = ()
    """Fields of MuJoCo's data that are observed too."""
    healthy: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    """Which of N robots have not fallen, from qpos and qvel; None: they cannot fall."""


def _hopper_stands(qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    bounded = (np.abs(qpos[:, 2:]) < 100).all(1) & (np.abs(qvel) < 100).all(1)
    return bounded & (qpos[:, 1] > 0.7) & (np.abs(qpos[:, 2]) < 0.2)


def _walker_stands(qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    return (qpos[:, 1] > 0.8) & (qpos[:, 1] < 2.0) & (np.abs(qpos[:, 2]) < 1.0)


def _ant_stands(qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    return (qpos[:, 2] >= 0.2) & (qpos[:, 2] <= 1.0)


def _humanoid_stands(qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    return (qpos[:, 2] > 1.0) & (qpos[:, 2] < 2.0)


ROBOTS: dict[str, Robot] = {
    "half-cheetah": Robot(
        title="Half-cheetah",
        asset="half_cheetah.xml",
        frame_skip=5,
        limits={"v1": 3.2096, "v0": 2.8795},
        control=0.1,
        noise=0.1,
        normal=True,
    ),
    "hopper": Robot(
        title="Hopper",
        asset="hopper.xml",
        frame_skip=4,
        limits={"v1": 0.7402, "v0": 0.37315},
        control=1e-3,
        alive=1.0,
        noise=5e-3,
        velocity_clip=10.0,
        healthy=_hopper_stands,
    ),
    "walker2d": Robot(
        title="Walker",
        asset="walker2d.xml",
        frame_skip=4,
        limits={"v1": 2.3415, "v0": 1.7075},
        control=1e-3,
        alive=1.0,
        noise=5e-3,
        velocity_clip=10.0,
        healthy=_walker_stands,
    ),
    "swimmer": Robot(
        title="Swimmer",
        asset="swimmer.xml",
        frame_skip=4,
        limits={"v1": 0.2282, "v0": 0.04845},
        axes=2,
        planar=("v0",),
        control=1e-4,
        noise=0.1,
    ),
    "ant": Robot(
        title="Ant",
        asset="ant.xml",
        frame_skip=5,
        limits={"v1": 2.6222, "v0": 2.5745},
        axes=2,
        planar=("v1", "v0"),
        place="xpos",
        control=0.5,
        alive=1.0,
        noise=0.1,
        normal=True,
        healthy=_ant_stands,
    ),
    "humanoid": Robot(
        title="Humanoid",
        asset="humanoid.xml",
        frame_skip=5,
        limits={"v1": 1.4149, "v0": 2.3475},
        axes=2,
        planar=("v1", "v0"),
        place="xipos",
        control=0.1,
        forward=1.25,
        alive=5.0,
        noise=1e-2,
        extras=("cinert", "cvel", "qfrc_actuator", "cfrc_ext"),
        healthy=_humanoid_stands,
    ),
}


@cache
def load_model(robot: str) -> mujoco.MjModel:
    """The compiled model of a robot, with the reference's contacts. Do not change it."""
    spec = mujoco.MjSpec.from_file(str(ASSETS / ROBOTS[robot].asset))
    # MuJoCo warns of this setting, into a file in the working directory, so it is applied below.
    mass, spec.compiler.settotalmass = spec.compiler.settotalmass, -1
    if "cfrc_ext" in ROBOTS[robot].extras:
        # MuJoCo computes the contact forces on bodies only for a sensor that needs them.
        acceleration = mujoco.mjtSensor.mjSENS_FRAMELINACC
        spec.add_sensor(type=acceleration, objtype=mujoco.mjtObj.mjOBJ_BODY, objname="torso")
    model = spec.compile()
    if mass > 0:
        mujoco.mj_setTotalmass(model, mass)
        mujoco.mj_setConst(model, mujoco.MjData(model))
    # MuJoCo now adds the margins of two geoms; the reference's took the larger, and all are equal.
    model.geom_margin /= 2
    # The reference's MuJoCo had no islands; without them these robots are 8 % faster.
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ISLAND.value
    return model
