"""Readable names for what a learned model takes and says."""

from surefoot.envs.navigation.goal_model import EgoGoalModel, PaperGoalModel
from surefoot.envs.navigation.robots import Robot
from surefoot.envs.rc_car.env import RCCarModel
from surefoot.world.model import BlackBox, TaskModel

MOTION = ["forward", "left", "turn"]


def feature_names(knowledge: TaskModel) -> list[str]:
    """Names of the model's inputs, actions aside."""
    if isinstance(knowledge, EgoGoalModel):
        return _body(knowledge.robot)
    if isinstance(knowledge, PaperGoalModel):
        return _paper(knowledge)
    if isinstance(knowledge, RCCarModel):
        return ["velocity x", "velocity y", "yaw rate"]
    kind = "observation" if isinstance(knowledge, BlackBox) else "feature"
    return _numbered(kind, knowledge.feature_size)


def output_names(knowledge: TaskModel) -> list[str]:
    """Names of what the model says: Gaussian outputs, then binary ones. Features mean changes."""
    features = feature_names(knowledge)
    size = knowledge.target_size + knowledge.binary_size
    if isinstance(knowledge, EgoGoalModel | RCCarModel):
        return features + MOTION
    if isinstance(knowledge, PaperGoalModel):
        return features
    if isinstance(knowledge, BlackBox):
        signals = [] if knowledge.reward_fn else ["reward"]
        signals += [] if knowledge.cost_fn else list(knowledge.cost_names)
        return (features + signals + ["end"])[:size]
    return _numbered("output", size)


def _body(robot: Robot) -> list[str]:
    """As `robots.read_body` puts them together."""
    if not robot.free_base:
        return ["velocity x", "velocity y", "yaw rate"]
    base = [f"{name} {axis}" for name in ("velocity", "turning") for axis in "xyz"]
    base += ["tilt x", "tilt y"]
    if robot.glyph == "car":
        return [*base, "left wheel", "right wheel"]
    joints = (robot.proprioception - len(base) - 1) // 2
    return base + _numbered("joint", joints) + _numbered("joint speed", joints) + ["height"]


def _paper(knowledge: PaperGoalModel) -> list[str]:
    """As `goal.paper_state` puts them together."""
    axes = {"velocity": ["x", "y"], "yaw_rate": [""], "magnetometer": ["x", "y", "z"]}
    sensors = [
        f"{name.replace('_', ' ')} {axis}".strip()
        for name in knowledge.robot.paper_sensors
        for axis in axes[name]
    ]
    things = ["goal", *_numbered("hazard", knowledge.config.hazards)]
    ego = [f"{thing} {axis}" for thing in things for axis in "xy"]
    return [*sensors, *ego, "cos heading", "-sin heading", "position x", "position y"]


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name} {i}" for i in range(count)]
