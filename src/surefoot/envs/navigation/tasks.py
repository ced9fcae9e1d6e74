"""The Goal tasks: one `Task` value per robot."""

from functools import partial
from typing import TYPE_CHECKING, Any

from surefoot.envs.navigation.goal import OBSERVATIONS, GoalConfig, GoalEnv
from surefoot.envs.navigation.goal_rules import Observation
from surefoot.envs.task import STEER, Task

if TYPE_CHECKING:
    from surefoot.envs.navigation.goal_model import EgoGoalModel, PaperGoalModel

LEVELS = {
    level: {"hazards": hazards, "extent": extent, "max_episode_steps": 1000}
    for level, hazards, extent in ((0, 0, 1.0), (1, 8, 1.5), (2, 10, 2.0))
}
"""The stock hazards-only layouts."""


def _goal(name: str, robot: str, summary: str, **more: Any) -> Task:
    return Task(
        name,
        summary,
        GoalEnv,
        options=GoalConfig(robot=robot),
        levels=LEVELS,
        cost_limits={"hazards": 18.0},
        observations=OBSERVATIONS,
        models={"ego": partial(_model, name="ego"), "paper": partial(_model, name="paper")},
        **more,
    )


def _model(env: GoalEnv, name: Observation) -> "EgoGoalModel | PaperGoalModel":
    if env.config.action_repeat != 1:
        raise ValueError(
            f"action_repeat={env.config.action_repeat} contradicts model={name!r}, which misses "
            f"costs between repeats; use model='black-box' or planner.hold"
        )
    from surefoot.envs.navigation.goal_model import goal_model  # needs JAX

    return goal_model(env.config, name)


POINT_GOAL = _goal("PointGoal", "point", "A point robot drives to goals between 15 hazards.")
CAR_GOAL = _goal("CarGoal", "car", "A car with two driven wheels drives to goals between hazards.")
DOGGO_GOAL = _goal(
    "DoggoGoal", "doggo", "safety-gymnasium's quadruped walks to goals.", filter=STEER
)
DOGGO_GOAL_OPENAI = _goal(
    "DoggoGoalOpenAI", "doggo-openai", "OpenAI safety-gym's quadruped walks to goals.", filter=STEER
)
