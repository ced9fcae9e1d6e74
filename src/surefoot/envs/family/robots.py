"""The robots of the family: what `navigation.robots` knows, and what solid objects need."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from surefoot.envs.family.config import FamilyConfig
from surefoot.envs.navigation.robots import ROBOTS as NAVIGATION
from surefoot.envs.navigation.robots import Joints, Robot
from surefoot.envs.navigation.sensors import SensorGroup


@dataclass(frozen=True, kw_only=True)
class FamilyRobot:
    """A robot among solid objects."""

    robot: Robot
    radius: float
    """No part of it is farther from its centre than this."""
    slack: float
    """Metres by which a step may exceed what its speed suggests."""
    floor: bool = True
    """Whether it touches the floor."""
    collides_with_itself: bool = True
    native_ccd: Literal["always", "never", "pillars"] = "never"
    """Where MuJoCo's newer collision code agrees better with the reference; pillars: if they
    cost."""
    runge_kutta: bool = False
    """Integrated by the classical Runge-Kutta scheme."""
    box: tuple[float, float] = (0.2, 0.001)
    """Half-size and density of the box that it pushes."""
    fall: float | None = None
    """Episodes end when its centre is as low as this."""
    bent: tuple[float, ...] = ()
    """Angles at which its joints start, to each of which a random one is added."""
    heavy: float | None = None
    """Density of its feet, if not that of its file."""

    def bend(self, qpos: np.ndarray, noise: Sequence[float]) -> None:
        """Bend the joints of one robot, qpos [nq], at the start of an episode."""
        for j, (angle, more) in enumerate(zip(self.bent, noise, strict=True)):
            qpos[7 + j] = angle + more if angle >= 0 else -(more - angle)


_INERTIAL = SensorGroup(("accelerometer", "velocimeter", "gyro", "magnetometer"))
_LEGS = tuple(f"{joint}_{leg}" for leg in "1234" for joint in ("hip", "ankle"))
_RACECAR = Robot(
    name="racecar",
    asset="racecar.xml",
    glyph="racecar",
    sensors=(_INERTIAL,),
    # The angles of the wheels do not affect the motion.
    joints=(
        Joints("qpos", 7, ("steering",)),
        Joints("qvel", 6, ("steering speed", "left wheel")),
        Joints("qvel", 9, ("right wheel", "rear axle")),
    ),
)
_ANT = Robot(
    name="ant",
    asset="ant.xml",
    glyph="ant",
    sensors=(
        _INERTIAL,
        SensorGroup(tuple(f"{joint}_vel" for joint in _LEGS)),
        SensorGroup(("place",), "height"),
        SensorGroup(("turning",)),
        SensorGroup(_LEGS, "angle"),
    ),
    joints=(
        Joints("qpos", 7, _LEGS),
        Joints("qvel", 6, tuple(f"{joint} speed" for joint in _LEGS)),
        Joints("qpos", 2, ("height",)),
    ),
)
_ANKLE = np.pi / 2
_FAMILY_ANT = FamilyRobot(
    robot=_ANT,
    radius=0.305,
    slack=0.11,
    runge_kutta=True,
    fall=0.08,
    bent=(0.0, _ANKLE, 0.0, -_ANKLE, 0.0, -_ANKLE, 0.0, _ANKLE),
)
ROBOTS = {
    "point": FamilyRobot(
        robot=NAVIGATION["point"],
        radius=0.16,
        slack=0.01,
        floor=False,
        native_ccd="always",
        collides_with_itself=False,
    ),
    "car": FamilyRobot(
        robot=NAVIGATION["car"],
        radius=0.22,
        slack=0.02,
        collides_with_itself=False,
        native_ccd="pillars",
        box=(0.125, 0.0005),
    ),
    "doggo": FamilyRobot(robot=NAVIGATION["doggo"], radius=0.275, slack=0.07),
    "racecar": FamilyRobot(robot=_RACECAR, radius=0.28, slack=0.02, runge_kutta=True),
    "ant": _FAMILY_ANT,
    "ant-1.2.0": replace(_FAMILY_ANT, heavy=50_000.0),
}


def robot_of(config: FamilyConfig) -> FamilyRobot:
    """The robot of a task."""
    name = config.robot if config.robot != "ant" or config.ant == "1.0.0" else "ant-1.2.0"
    return ROBOTS[name]


def native_ccd(config: FamilyConfig) -> bool:
    """Whether MuJoCo's newer collision code agrees better with the reference in a task."""
    where = robot_of(config).native_ccd
    return where == "always" or where in config.cost_kinds
