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
WALKING = {
    # It takes more data than driving, and comes before avoiding: lambda waits for it and then rises
    # slowly. A factor per pass rises faster than the policy follows, and walking is given up.
    # Rollouts from past states include a fallen robot.
    "steps": 396_000,
    "episodes": 12,
    "beta": 0.85,
    "final_rate": 0.3,
    "multiplier.kind": "pid",
    "multiplier.initial": 0.0,
    "multiplier.proportional_gain": 0.025,
    "multiplier.integral_gain": 0.00025,
    "multiplier.derivative_gain": 0.0,
    "horizon": 100,
    "carry": 0.0,
    "learn_first": 16,
    "limit_fall": None,
    "replay_share": 0.5,
    "early_log_std": -1.0,
    "ppo.hidden": (128, 128),
    "ensemble.hidden": (200, 200, 200, 200),
    "ensemble.max_steps": 3000,
}
"""Settings of MBPPO-Lagrangian for robots with legs, measured on DoggoGoal."""


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
WALKS: dict[str, Any] = {"presets": {"mbppo-lagrangian": WALKING}, "filter": STEER}
DOGGO_GOAL = _goal("DoggoGoal", "doggo", "safety-gymnasium's quadruped walks to goals.", **WALKS)
DOGGO_GOAL_OPENAI = _goal(
    "DoggoGoalOpenAI", "doggo-openai", "OpenAI safety-gym's quadruped walks to goals.", **WALKS
)
