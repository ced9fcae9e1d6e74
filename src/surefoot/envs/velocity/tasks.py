"""The Safety-Velocity tasks: one `Task` value per robot."""

from surefoot.envs.task import Task
from surefoot.envs.velocity.env import VelocityConfig, VelocityEnv
from surefoot.envs.velocity.robots import ROBOTS


def _velocity(name: str, robot: str, does: str) -> Task:
    return Task(
        name,
        f"{does}; being faster than {ROBOTS[robot].limits['v1']:g} m/s costs.",
        VelocityEnv,
        options=VelocityConfig(robot=robot),
        cost_limits={"velocity": 25.0},
        terminates=ROBOTS[robot].healthy is not None,
    )


HALF_CHEETAH = _velocity("HalfCheetahVelocity", "half-cheetah", "A half-cheetah runs")
HOPPER = _velocity("HopperVelocity", "hopper", "A one-legged robot hops")
WALKER2D = _velocity("Walker2dVelocity", "walker2d", "A flat two-legged robot walks")
SWIMMER = _velocity("SwimmerVelocity", "swimmer", "A snake of three links swims")
ANT = _velocity("AntVelocity", "ant", "A four-legged robot walks")
HUMANOID = _velocity("HumanoidVelocity", "humanoid", "A humanoid walks")
