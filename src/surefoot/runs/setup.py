"""`Setup`: what a run trains on and with, resolved from a request or from a run's record."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any

from gymnasium import Env
from gymnasium.vector import VectorEnv

from surefoot.algorithms.algorithm import (
    ALGORITHMS,
    Algorithm,
    Config,
    Overrides,
    Shape,
    algorithm_of,
    register_algorithm,
)
from surefoot.algorithms.collect import uses_state
from surefoot.algorithms.trainer import Problem
from surefoot.core.config import changed, did_you_mean
from surefoot.core.registry import absolute_reference
from surefoot.core.spaces import action_spec
from surefoot.envs.base import TaskEnv
from surefoot.envs.gym.adapted import Cost
from surefoot.envs.own import RESERVED
from surefoot.envs.task import BLACK_BOX, TASKS, Task, find_task
from surefoot.runs.folder import Values
from surefoot.runs.info import RunInfo, config_of
from surefoot.runs.known import IN_PYTHON, MODEL, Known, Parts, check_parts, known_model, read_known
from surefoot.world.model import TaskModel

MakeEnv = Callable[..., Env | VectorEnv]
"""Makes one environment, or as many as its argument says; see `envs.task.find_task`."""
CostLimits = float | Sequence[float] | Mapping[str, float]
"""One limit for all constraints, one for each in order, or each by name."""
"""Arguments of `Task.make` that a run sets itself."""


@dataclass(frozen=True)
class Setup:
    """A task with its options, an algorithm with its config, and the seeds."""

    task: Task
    options: Values
    algorithm: Algorithm
    config: Any
    seeds: tuple[int, ...]
    known: Parts = field(default_factory=dict)
    """What the user knows of the environment, instead of the task's model."""
    notes: tuple[str, ...] = ()
    """To be shown before training."""

    def make_envs(self, n: int, render_mode: str | None = None) -> TaskEnv:
        """n environments; their observation is the one that the config names."""
        options = dict(self.options)
        sees = self.algorithm.sees(self.config)
        if sees in self.task.observations:
            options.setdefault("observation", sees)
        return self.task.make(n, render_mode=render_mode, **options)

    def problem(self, env: TaskEnv, environments: int) -> Problem:
        """What the algorithm must know of environments."""
        if not env.max_episode_steps:
            raise ValueError(
                "max_episode_steps=None: the environment has no time limit; wrap it in "
                "gymnasium.wrappers.TimeLimit or give it an attribute `max_episode_steps`"
            )
        return Problem(
            self.seeds,
            environments,
            env.max_episode_steps,
            env.single_observation_space.shape[0],
            action_spec(env.single_action_space),
            tuple(env.cost_names),
            self.model(env) if self.algorithm.uses_model else None,
        )

    def model(self, env: TaskEnv) -> TaskModel:
        """The task model that the config names, with the parts that the user knows."""
        if self.known or self.config.model == BLACK_BOX:
            return known_model(self.known, env, self.task.terminates)
        return self.task.models[self.config.model](env)

    def check_known(self, info: RunInfo, path: Path) -> None:
        """Raise a ValueError unless the model knows what the run's record says."""
        if not self.algorithm.uses_model:
            return
        known = list(self.model(self.make_envs(1)).known)
        if known != info.known:
            raise ValueError(
                f"known: the model of {path} knows {info.known}, not {known}; pass what was given "
                f"to train"
            )


def new_setup(
    source: str | Task | MakeEnv,
    algorithm: str | Algorithm | None,
    preset: str,
    device: str,
    seeds: Sequence[int],
    config: Config | None,
    changes: Overrides,
    options: Overrides,
    cost: Cost | None = None,
    cost_limit: CostLimits | None = None,
    known: Known = None,
) -> Setup:
    """Resolve and check a request, before anything is created."""
    task, parts, options = find_task(source, cost), read_known(known), dict(options)
    chosen = algorithm_of(config) if algorithm is None else _registered(algorithm)
    if config is None:
        config = preset_config(chosen, preset, task, device, options, changes.get("model"))
    elif not isinstance(config, chosen.config):
        raise ValueError(
            f"algorithm={chosen.name!r} contradicts config={type(config).__name__}, which is for "
            f"{algorithm_of(config).name}"
        )
    # A cost limit that is given is resolved by name below.
    config = changed(config, {**changes, **({} if cost_limit is None else {"cost_limit": ()})})
    chosen.check(config)
    if cost is not None and not callable(cost):
        # References must hold from any working directory.
        one = isinstance(cost, str)
        options["cost"] = absolute_reference(cost) if one else [*map(absolute_reference, cost)]
    setup = Setup(task, options, chosen, config, tuple(seeds), parts)
    _check_options(setup)
    env = setup.make_envs(1)
    limits = cost_limit if cost_limit is not None else config.cost_limit or task.cost_limits
    names = tuple(env.cost_names)
    config = replace(config, cost_limit=limits_by_name(limits, names, task.name))
    setup = replace(setup, config=config)
    # A model that does not fit is reported before a folder exists.
    uses_state(env, setup.problem(env, 1).model)
    return replace(setup, notes=tuple(check_parts(parts, env)))


def preset_config(
    algorithm: Algorithm,
    preset: str,
    task: Task,
    device: str,
    options: Values,
    model: object = None,
) -> Config:
    """The config of a preset; if nothing of the task is known, it follows the environment's shape.

    `model` is the model that a user asks for, if any.
    """
    shape = None
    if not task.models or model == BLACK_BOX:
        env = task.make(1, **options)
        if env.max_episode_steps:  # otherwise `Setup.problem` reports it
            size = action_spec(env.single_action_space).size
            shape = Shape(env.single_observation_space.shape[0], size, env.max_episode_steps)
    return algorithm.preset(preset, task, device, shape)


def _registered(algorithm: str | Algorithm) -> Algorithm:
    """The algorithm of a name, or one that is then registered: a run records only its name."""
    if isinstance(algorithm, str):
        return ALGORITHMS[algorithm]
    if algorithm.name not in ALGORITHMS:
        return register_algorithm(algorithm)
    if ALGORITHMS[algorithm.name] is not algorithm:
        raise ValueError(f"algorithm={algorithm.name!r}: another algorithm has this name")
    return algorithm


def recorded_setup(
    info: RunInfo,
    path: Path,
    make_env: MakeEnv | None = None,
    known: Known = None,
    cost: Cost | None = None,
) -> Setup:
    """The setup of a run on disk; arguments replace what the run records, or does not record."""
    if info.task is None and make_env is None:
        raise ValueError(
            f"{path} was trained on environments made by a Python function that it does not "
            f"record: pass that function as make_env"
        )
    registered = info.task is not None and info.task in TASKS
    if make_env is not None and registered:
        raise ValueError(f"{path} was trained on the task {info.task}; leave make_env out")
    options = dict(info.task_options)
    if options.get("cost") == IN_PYTHON and cost is None:
        raise ValueError(
            f"{path} was trained with a Python function as cost: pass that function as cost"
        )
    if cost is not None:
        options.pop("cost", None)
    config = config_of(info, path)
    try:
        task = find_task(make_env or str(info.task), cost)
    except ValueError as error:
        do = "; put it back, or pass what makes environments as make_env in Python"
        more = "" if make_env or registered else do
        raise ValueError(f"{path}: its task cannot be made: {error}{more}") from error
    if make_env is not None:  # a function may have set the arguments itself
        options = {name: value for name, value in options.items() if task.takes(name)}
    parts = read_known(info.known_from if known is None else known)
    return Setup(task, options, ALGORITHMS[info.algorithm], config, tuple(info.seeds), parts)


def limits_by_name(
    limits: CostLimits, names: Sequence[str], task: str = "the task"
) -> tuple[float, ...]:
    """Cost limits in the order of the constraints."""
    if isinstance(limits, Mapping):
        for name in limits:
            if name not in names:
                hint = f"{did_you_mean(name, names)}. Constraints: {', '.join(names)}"
                raise ValueError(f"cost_limit={name!r} is not a constraint of {task}{hint}")
        missing = [name for name in names if name not in limits]
        if missing:
            raise ValueError(
                f"cost_limit: {task} has no limit for {', '.join(missing)}; pass cost_limit"
            )
        limits = [limits[name] for name in names]
    values = list(limits) if isinstance(limits, Iterable) else [limits]
    if not all(isinstance(value, Real) for value in values):
        raise ValueError(f"cost_limit={limits!r} must be numbers")
    values = tuple(map(float, values))
    if len(values) == 1:
        return values * len(names)
    if len(values) != len(names):
        raise ValueError(
            f"cost_limit={values} must have {len(names)} values, for {', '.join(names)}"
        )
    return values


def _check_options(setup: Setup) -> None:
    """Check that options, observation and model fit together."""
    for name in RESERVED:
        if name in setup.options:
            raise ValueError(f"{name}={setup.options[name]!r} is not an option of a task")
    field = "model" if setup.algorithm.uses_model else "observation"
    sees = setup.algorithm.sees(setup.config)
    if setup.known and field != "model":
        raise ValueError(
            f"known={list(setup.known)}: {setup.algorithm.name} learns no model; leave it out"
        )
    if MODEL in setup.known:
        return
    if setup.known and sees != BLACK_BOX:
        raise ValueError(
            f"known={list(setup.known)} must go with model={BLACK_BOX!r}; model={sees!r} of "
            f"{setup.task.name} has known parts of its own"
        )
    check = setup.task.check_model if field == "model" else setup.task.check_observation
    check(sees)
    given = setup.options.get("observation", sees)
    if given != sees and sees in setup.task.observations:
        raise ValueError(
            f"the task option observation={given!r} contradicts {field}={sees!r} of the config; "
            f"leave it out"
        )
