"""The family's tasks: a `Task` value for each robot, task and level, made on first use."""

from surefoot.envs.family.config import LEVELS, OBSERVATIONS, RobotName, TaskName, stock
from surefoot.envs.family.env import FamilyEnv
from surefoot.envs.family.robots import ROBOTS
from surefoot.envs.family.task_models import ego_model
from surefoot.envs.task import FAMILY, FAMILY_ROBOTS, Task

SUMMARIES: dict[TaskName, str] = {
    "goal": "drives to one goal after another, around hazards and vases",
    "button": "presses one button after another, past hazards and gremlins",
    "push": "pushes a box to one goal after another, around hazards and pillars",
    "circle": "drives along a circle that leaves the permitted area",
    "run": "drives along a corridor",
}
COST_LIMIT = 25.0


def __getattr__(name: str) -> Task:
    """PointGoal1 and so on."""
    for title in FAMILY_ROBOTS:
        if name.startswith(title) and name[len(title) : -1] in FAMILY:
            task = name[len(title) : -1].lower()
            return family_task(name, title.lower(), task, int(name[-1]))  # type: ignore[arg-type]
    raise AttributeError(name)


def family_task(name: str, robot: RobotName, task: TaskName, level: int) -> Task:
    """A stock task; its options can change everything else."""
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
        models={"ego": ego_model},
        terminates=ROBOTS[robot].fall is not None,
    )
