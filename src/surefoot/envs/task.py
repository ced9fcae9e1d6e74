"""The tasks by name, and `make`."""

from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from difflib import get_close_matches
from typing import Any

from surefoot.envs.base import TaskEnv
from surefoot.envs.navigation.goal import GoalConfig, GoalEnv, at_level
from surefoot.envs.rc_car.env import RCCarConfig, RCCarEnv


@dataclass(frozen=True)
class Task:
    """A task that can be made by name."""

    name: str
    summary: str
    defaults: Any
    """The task's own config; any field of it is an option."""
    env: Callable[..., TaskEnv]
    extra_options: tuple[str, ...] = ()
    threaded: bool = True
    """Whether it runs on native threads; the RC car is array code on one."""


def _goal(name: str, robot: str, summary: str) -> Task:
    return Task(name, summary, GoalConfig(robot=robot), GoalEnv, ("level",))


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _goal("PointGoal", "point", "A point robot drives to goals between 15 hazards."),
        _goal("CarGoal", "car", "A car with two driven wheels drives to goals between 15 hazards."),
        _goal("DoggoGoal", "doggo", "safety-gymnasium's quadruped walks to goals."),
        _goal("DoggoGoalOpenAI", "doggo-openai", "OpenAI safety-gym's quadruped walks to goals."),
        Task(
            "RCCar",
            "An RC car circles at target speed; being outside the circle costs.",
            RCCarConfig(),
            RCCarEnv,
            threaded=False,
        ),
    )
}


def find_task(name: str) -> Task:
    """The task called `name`; a ValueError with the nearest names if there is none."""
    if name in TASKS:
        return TASKS[name]
    lower = {known.lower(): known for known in TASKS}
    near = get_close_matches(str(name).lower(), lower, n=1, cutoff=0.4)
    hint = f"; did you mean {lower[near[0]]}?" if near else ""
    raise ValueError(f"unknown task {name!r}{hint} Known: {', '.join(TASKS)}")


def task_config(name: str, **options: Any) -> Any:
    """A task's config with options changed by name."""
    task = find_task(name)
    names = [f.name for f in fields(task.defaults)]
    for option in options:
        if option not in (*names, *task.extra_options):
            near = get_close_matches(option, (*names, *task.extra_options), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(
                f"{name} has no option {option!r}{hint} "
                f"Options: {', '.join((*names, *task.extra_options))}"
            )
    values = {n: getattr(task.defaults, n) for n in names}
    if "level" in options:
        leveled = at_level(task.defaults, options.pop("level"))
        values = {n: getattr(leveled, n) for n in names}
    return type(task.defaults)(**{**values, **options})


def make(
    task: str,
    num_envs: int = 1,
    seed: int | None = None,
    threads: int = 0,
    render_mode: str | None = None,
    **options: Any,
) -> TaskEnv:
    """Make `num_envs` copies of a task, stepped together on `threads` threads (0: all cores).

    Any field of the task's config is an option: `make("PointGoal", hazards=8, extent=1.5)`. The
    Goal tasks also take `level=0`, `1` or `2` for the stock hazards-only layouts of 1,000 steps.
    """
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 0:
        raise ValueError(f"threads={threads!r} must be 0 (all cores) or a positive whole number")
    spec = find_task(task)
    config = task_config(task, **options)
    extra = {"threads": threads} if spec.threaded else {}
    return spec.env(config, num_envs=num_envs, seed=seed, render_mode=render_mode, **extra)


def describe(task: Task) -> dict[str, Any]:
    """A task in plain values, for `surefoot envs --json`."""
    env = task.env(task.defaults, num_envs=1)
    documented = _field_docs(type(task.defaults))
    options = [
        {
            "name": f.name,
            "default": _plain(getattr(task.defaults, f.name)),
            "help": documented.get(f.name, ""),
        }
        for f in fields(task.defaults)
        if f.default is not MISSING
    ]
    sizes = {}
    for observation in getattr(env, "observations", ("default",)):
        if observation == "default":
            sizes[observation] = env.single_observation_space.shape[0]
        else:
            sizes[observation] = make(
                task.name, observation=observation
            ).single_observation_space.shape[0]
    return {
        "name": task.name,
        "id": f"surefoot/{task.name}-v0",
        "summary": task.summary,
        "observations": sizes,
        "actions": env.single_action_space.shape[0],
        "action_low": env.single_action_space.low.tolist(),
        "action_high": env.single_action_space.high.tolist(),
        "costs": list(env.cost_names),
        "max_episode_steps": env.max_episode_steps,
        "options": options,
    }


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _field_docs(config: type) -> dict[str, str]:
    """The docstring line under each field of a config dataclass."""
    import ast
    import inspect
    import textwrap

    tree = ast.parse(textwrap.dedent(inspect.getsource(config))).body[0]
    assert isinstance(tree, ast.ClassDef)
    docs = {}
    for field, doc in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(doc, ast.Expr)
            and isinstance(doc.value, ast.Constant)
        ):
            docs[field.target.id] = " ".join(str(doc.value.value).split())
    return docs
