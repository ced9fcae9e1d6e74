"""The family's tasks: a `Task` value for each robot, task and level, made on first use."""

from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.core.config import field_help
from surefoot.envs.family import rules
from surefoot.envs.family.config import (
    LEVELS,
    OBSERVATIONS,
    FamilyConfig,
    RobotName,
    TaskName,
    stock,
)
from surefoot.envs.family.env import FamilyEnv
from surefoot.envs.family.robots import ROBOTS
from surefoot.envs.family.world import compile_world
from surefoot.envs.navigation.sensors import read_sensors
from surefoot.envs.navigation.tasks import WALKING
from surefoot.envs.task import FAMILY, FAMILY_ROBOTS, STEER, Task

if TYPE_CHECKING:
    from surefoot.envs.family.models import FamilyModel

SUMMARIES: dict[TaskName, str] = {
    "goal": "drives to one goal after another, around hazards and vases",
    "button": "presses one button after another, past hazards and gremlins",
    "push": "pushes a box to one goal after another, around hazards and pillars",
    "circle": "drives along a circle that leaves the permitted area",
    "run": "drives along a corridor",
}
COST_LIMIT = 25.0
SCALED = {"ppo": "ppo", "ppo-lagrangian": "ppo", "trpo-lagrangian": "trpo", "cpo": "cpo"}
"""Algorithms whose observations, in many units, are normalised, and the name of their learner."""
PRICE = {
    # A policy that ignores costs has several times the limit. If it must lose them at once, it
    # learns to stand still.
    "learn_first": 2,
    "multiplier.initial": 2.0,
    "multiplier.proportional_gain": 1.0,
}
# Real steps and episodes per epoch: 20 to 30 epochs of practice. Contacts take more data.
MODEL_BASED: dict[TaskName, dict[str, object]] = {
    "goal": {"steps": 80_000, "episodes": 4, **PRICE, "limit_fall": 6.0},
    "button": {"steps": 160_000, "episodes": 8, "replay_share": 0.25, **PRICE, "limit_fall": 9.0},
    "push": {"steps": 200_000, "episodes": 10, "replay_share": 0.5},
    "circle": {"steps": 60_000, "episodes": 4},
    "run": {"steps": 60_000, "episodes": 4},
}


def __getattr__(name: str) -> Task:
    """PointGoal1 and so on."""
    for title in FAMILY_ROBOTS:
        if name.startswith(title) and name[len(title) : -1] in FAMILY:
            task = name[len(title) : -1].lower()
            return family_task(name, title.lower(), task, int(name[-1]))  # type: ignore[arg-type]
    raise AttributeError(name)


def family_task(name: str, robot: RobotName, task: TaskName, level: int) -> Task:
    """A stock task; its options can change everything else."""
    legs = robot in ("doggo", "ant")
    every = {name for level in LEVELS[task].values() for name in level}
    levels = {n: {k: getattr(stock(robot, task, n), k) for k in every} for n in LEVELS[task]}
    return Task(
        name,
        f"{robot.capitalize()} {SUMMARIES[task]}.",
        FamilyEnv,
        options=stock(robot, task, level),
        levels=levels,
        cost_limits={"sum": COST_LIMIT},
        observations=OBSERVATIONS,
        models={"ego": _ego},
        presets={
            "mbppo-lagrangian": MODEL_BASED[task] | (WALKING if legs else {}),
            **{name: {f"{field}.normalise_observations": True} for name, field in SCALED.items()},
        },
        terminates=ROBOTS[robot].fall is not None,
        filter=STEER if legs and task == "goal" else {},
    )


def _ego(env: FamilyEnv) -> "FamilyModel":
    from surefoot.envs.family.task_models import ego_model  # loads JAX

    return ego_model(env)


def describe_families() -> list[dict[str, Any]]:
    """One entry for each of the tasks, with all robots and levels, in plain values."""
    sensors, actions = dict[str, int](), dict[str, int]()
    for title in FAMILY_ROBOTS:
        robot = ROBOTS[title.lower()]
        model = compile_world(robot)
        data = np.ones((1, model.nsensordata))
        sensors[title] = read_sensors(model, robot.robot.sensors, data).shape[1]
        actions[title] = int(model.nu)
    help_, out = field_help(FamilyConfig), []
    for title in FAMILY:
        task: TaskName = title.lower()  # type: ignore[assignment]
        configs = {level: stock("point", task, level) for level in LEVELS[task]}
        first = configs[min(configs)]
        observations = {
            f"{robot}{title}{level}": rules.observation_size(config, size)
            for robot, size in sensors.items()
            for level, config in configs.items()
        }
        row = {
            "name": title,
            "summary": f"A robot {SUMMARIES[task]}.",
            "robots": list(FAMILY_ROBOTS),
            "levels": list(configs),
            "observations": observations,
            "actions": actions,
            "costs": {level: list(config.cost_kinds) for level, config in configs.items()},
            "cost_limits": {"sum": COST_LIMIT},
            "max_episode_steps": first.max_episode_steps,
            "options": [
                {"name": name, "default": value, "help": help_.get(name, "")}
                for name, value in vars(configs[max(configs)]).items()
                if name not in ("robot", "task")
            ],
        }
        out.append(row)
    return out
