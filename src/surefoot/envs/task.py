"""`Task`: everything that belongs to a task, as one value; and the registry of tasks.

Whatever a user may name becomes a `Task` in `find_task`, once. Nothing behind it asks what kind of
task it has. This module imports neither MuJoCo nor JAX.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from surefoot.core.config import check_choice, did_you_mean, field_help, to_dict
from surefoot.core.registry import (
    Registry,
    absolute_reference,
    is_reference,
    load_reference,
    reference_to,
)

if TYPE_CHECKING:
    from gymnasium import Env
    from gymnasium.vector import VectorEnv

    from surefoot.envs.gym.adapted import Cost

Options = Any
"""A task's config dataclass."""

BLACK_BOX = "black-box"
"""The model that every task has: observations in, observations out, everything learned."""
FAMILY_ROBOTS = ("Point", "Car", "Doggo", "Racecar", "Ant")
FAMILY = {"Goal": 3, "Button": 3, "Push": 3, "Circle": 3, "Run": 1}
"""Safety-Gymnasium's tasks, which all of these robots have, and their numbers of levels."""
BUILTIN = {
    "PointGoal": "surefoot.envs.navigation.tasks:POINT_GOAL",
    "CarGoal": "surefoot.envs.navigation.tasks:CAR_GOAL",
    "DoggoGoal": "surefoot.envs.navigation.tasks:DOGGO_GOAL",
    "DoggoGoalOpenAI": "surefoot.envs.navigation.tasks:DOGGO_GOAL_OPENAI",
    "RCCar": "surefoot.envs.rc_car.task:RC_CAR",
    "HalfCheetahVelocity": "surefoot.envs.velocity.tasks:HALF_CHEETAH",
    "HopperVelocity": "surefoot.envs.velocity.tasks:HOPPER",
    "Walker2dVelocity": "surefoot.envs.velocity.tasks:WALKER2D",
    "SwimmerVelocity": "surefoot.envs.velocity.tasks:SWIMMER",
    "AntVelocity": "surefoot.envs.velocity.tasks:ANT",
    "HumanoidVelocity": "surefoot.envs.velocity.tasks:HUMANOID",
    **{
        f"{robot}{task}{level}": f"surefoot.envs.family.tasks:{robot}{task}{level}"
        for robot, (task, levels) in product(FAMILY_ROBOTS, FAMILY.items())
        for level in range(levels)
    },
}
"""Built-in tasks: the attribute that holds each, loaded on first use."""
STEER = {"kind": "steer", "horizon": 20, "hold": 1}
"""The filter of robots with too many actions to search: the policy is shown goals elsewhere."""
GYMNASIUM_ID = re.compile(r"^([\w.]+:)?([\w\-]+/)?[\w\-.]+-v\d+$")


@dataclass(frozen=True)
class Task:
    """A task that can be trained on.

    `make_envs(options, num_envs=…, seed=…, threads=…, render_mode=…)` returns a vector
    environment that keeps the contract of `envs.base.TaskEnv` (see `surefoot.adapt`).
    """

    name: str
    summary: str
    make_envs: Callable[..., "VectorEnv"]
    options: Options = None
    """A config dataclass with the defaults; every field is an option. None: no options."""
    levels: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    """Named sets of options, chosen by the option `level`."""
    cost_limits: Mapping[str, float] = field(default_factory=dict)
    """Limit on the episode cost of each constraint, by name; used if the user gives none."""
    observations: tuple[str, ...] = ()
    """Values of the option `observation`, if the task has several."""
    models: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Known models by name: each makes a `world.model.TaskModel` for an environment of the task.
    `black-box`, which knows nothing, need not be listed."""
    terminates: bool = True
    """Episodes may terminate, so the black box learns that too."""
    presets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Overrides of an algorithm's default settings, by the algorithm's name, with dotted names."""
    filter: Mapping[str, object] = field(default_factory=dict)
    """Overrides of the default planner of a safety filter."""
    reference: str | None = None
    """What `find_task` takes to make this task again; None if only Python can."""
    keywords: tuple[str, ...] | None = ()
    """Further options of a Gymnasium environment: arguments of what makes it. None: any name."""

    def make(
        self,
        num_envs: int = 1,
        seed: int | None = None,
        threads: int = 0,
        render_mode: str | None = None,
        **options: object,
    ) -> Any:
        """Make `num_envs` environments, stepped together on `threads` threads (0: all cores)."""
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 0:
            raise ValueError(f"threads={threads!r} must be 0 (all cores) or a positive number")
        config, shared = self.configure(**options), {"seed": seed, "render_mode": render_mode}
        return self.make_envs(config, num_envs=num_envs, threads=threads, **shared)

    def configure(self, **options: object) -> Options:
        """The task's config with options changed by name; a ValueError names an unknown one."""
        names = self.option_names
        if self.keywords is None or any(option in self.keywords for option in options):
            options = self._as_keywords(options)
        for option in options:
            if option not in names:
                names = self.keywords or names
                known = f"Options: {', '.join(names)}" if names else "It has no options"
                hint = did_you_mean(option, names)
                raise ValueError(f"{self.name} has no option {option!r}{hint}. {known}")
        if self.options is None:
            return None
        level = options.pop("level", None)
        if level is not None and level not in self.levels:
            raise ValueError(f"level={level!r} must be one of {', '.join(map(str, self.levels))}")
        chosen = self.levels[level] if isinstance(level, int) else {}
        return replace(self.options, **{**chosen, **options})

    def _as_keywords(self, options: dict[str, object]) -> dict[str, object]:
        """Options with those that are arguments of the environment under `kwargs`."""
        own = self.option_names
        more = {
            name: options.pop(name)
            for name in list(options)
            if name not in own and self.takes(name)
        }
        given = options.get("kwargs", {})
        if not isinstance(given, dict):
            raise ValueError(f"kwargs={given!r} must be a dict of arguments, such as {{'wind': 1}}")
        return {**options, "kwargs": {**given, **more}} if more else options

    def takes(self, option: str) -> bool:
        """Whether there is an option of this name."""
        return self.keywords is None or option in (*self.option_names, *self.keywords)

    @property
    def option_names(self) -> tuple[str, ...]:
        names = () if self.options is None else tuple(f.name for f in fields(self.options))
        return (*names, "level") if self.levels else names

    def check_model(self, model: str) -> None:
        """Raise a ValueError unless the task has the model."""
        check_choice("model", model, (*self.models, BLACK_BOX))

    def check_observation(self, observation: str) -> None:
        """Raise a ValueError unless the task has the observation."""
        if self.observations:
            check_choice("observation", observation, self.observations)


TASKS: Registry[Task] = Registry(Task, "task", BUILTIN)


def register_task(task: Task) -> Task:
    """Make a task known by its name, to Python and to commands run in this process.

    For the command line, install a package with an entry point in the group `surefoot.tasks`, or
    name the file: `surefoot train path/to/file.py:TASK`.
    """
    return TASKS.register(task.name, replace(task, reference=task.reference or task.name))


def find_task(
    source: "str | Task | Callable[..., Env | VectorEnv]",
    cost: "Cost | None" = None,
    cost_limits: Mapping[str, float] | None = None,
) -> Task:
    """The task that `source` stands for.

    Args:
        source: A task, a registered name, a Gymnasium id, a reference to a task or to a function
            (`path/file.py:make_env`, `package.module:make_env`), or a function. A function takes
            no argument and makes one environment, or takes a number and makes a vector
            environment of as many.
        cost: For Gymnasium environments: where costs come from. A key of `info` (`info:KEY` or
            several of them), a function of batches (obs, action, next_obs), or a reference to one.
        cost_limits: Limits by name that replace the task's own.
    """
    from surefoot.envs.own import from_function, from_gymnasium

    if isinstance(source, Task):
        task = source
    elif callable(source):
        name = getattr(source, "__name__", "environment")
        task = from_function(source, name, reference_to(source), cost)
    elif not isinstance(source, str):
        kind = type(source).__name__
        what = f"a function such as `lambda: {kind}()`" if hasattr(source, "step") else "a function"
        raise ValueError(
            f"task={source!r} is a {kind}; pass a name, or what makes environments: a class, or "
            f"{what}"
        )
    elif source not in TASKS and GYMNASIUM_ID.match(source):
        task = from_gymnasium(source, cost)
    elif source not in TASKS and is_reference(source):
        value, reference = load_reference(source), absolute_reference(source)
        if isinstance(value, Task):
            task = replace(value, reference=reference)
        else:
            task = from_function(value, source.rpartition(":")[2], reference, cost)
    else:
        task = TASKS[source]  # raises, with the nearest name
        task = replace(task, reference=task.reference or source)
    if cost is not None and not isinstance(task.options, GymOptions):
        raise ValueError(f"cost={cost!r}: {task.name} has its own costs; leave it out")
    return task if cost_limits is None else replace(task, cost_limits=dict(cost_limits))


@dataclass(frozen=True)
class GymOptions:
    """Options of a Gymnasium environment."""

    cost: "Cost" = "info:cost"
    """Where costs come from: info:KEY, several of them, or a reference to a function of batches
    (obs, action, next_obs)."""
    kwargs: dict[str, object] = field(default_factory=dict)
    """Keyword arguments of `gymnasium.make`, or of the function that makes environments."""


def make(task: str | Task, num_envs: int = 1, **options: Any) -> Any:
    """Make `num_envs` copies of a task, stepped together.

    Args:
        task: Whatever `find_task` takes: a name, a Gymnasium id, a reference.
        num_envs: Number of environments.
        **options: `seed`, `threads` (0: all cores), `render_mode`, and the task's own options:
            `make("PointGoal", hazards=8, extent=1.5)`, `make("PointGoal", level=1)`.
    """
    return find_task(task).make(num_envs, **options)


def describe(task: Task) -> dict[str, Any]:
    """A task in plain values, for `surefoot envs --json`."""
    size = lambda **options: task.make(**options).single_observation_space.shape[0]
    sizes = {name: size(observation=name) for name in task.observations}
    env, options = task.make(), {} if task.options is None else vars(task.options)
    documented = {} if task.options is None else field_help(type(task.options))
    return {
        "name": task.name,
        "id": f"surefoot/{task.name}-v0",
        "summary": task.summary,
        "observations": sizes or {"default": size()},
        "models": [*task.models, BLACK_BOX],
        "actions": env.single_action_space.shape[0],
        "action_low": env.single_action_space.low.tolist(),
        "action_high": env.single_action_space.high.tolist(),
        "costs": list(env.cost_names),
        "cost_limits": dict(task.cost_limits),
        "max_episode_steps": env.max_episode_steps,
        "options": [
            {
                "name": name,
                "default": to_dict(value) if is_dataclass(value) else value,
                "help": documented.get(name, ""),
            }
            for name, value in options.items()
        ],
    }
