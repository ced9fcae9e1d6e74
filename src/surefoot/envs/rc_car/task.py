"""The RC-car task as a `Task` value."""

from surefoot.envs.rc_car.env import RCCarConfig, RCCarEnv
from surefoot.envs.rc_car.model import RCCarModel
from surefoot.envs.task import Task


def _model(env: RCCarEnv) -> RCCarModel:
    return RCCarModel(env.config)


PLANS = {"horizon": 5, "hold": 3}
"""A drifting car needs short plans with fine steering."""
RC_CAR = Task(
    "RCCar",
    "An RC car circles at target speed; being outside the circle costs.",
    RCCarEnv,
    options=RCCarConfig(),
    cost_limits={"outside": 5.0},
    # The paper's predicts the same numbers on this task.
    models={"ego": _model, "paper": _model},
    presets={"safe-loop": {f"planner.{name}": x for name, x in PLANS.items()}},
    filter=PLANS,
)
