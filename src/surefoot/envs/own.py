"""Tasks made of Gymnasium ids, and of classes and functions that make environments."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from surefoot.core.registry import is_reference, load_reference
from surefoot.envs.task import GymOptions, Task

if TYPE_CHECKING:
    from gymnasium import Env
    from gymnasium.vector import VectorEnv

    from surefoot.envs.gym.adapted import Cost

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
RESERVED = ("num_envs", "seed", "threads", "render_mode")
"""What every task is made with, so no option has such a name."""


def from_gymnasium(name: str, cost: "Cost | None") -> Task:
    """A Gymnasium id; its options are arguments of `gymnasium.make`."""
    import gymnasium

    def make_one(**kwargs: Any) -> "Env":
        try:
            return gymnasium.make(name, disable_env_checker=True, **kwargs)
        except (gymnasium.error.Error, ImportError, TypeError) as error:
            raise ValueError(f"task={name!r}: gymnasium cannot make it: {error}") from error

    return from_function(make_one, name.rpartition("/")[2].rpartition(":")[2], name, cost)


def from_function(
    function: Callable[..., Any], name: str, reference: str | None, cost: "Cost | None"
) -> Task:
    """A class or function that makes one environment, or a function that makes a vector of them.

    The latter is a function with a required argument, which gets the number of environments, unless
    an option gives it. All other arguments are options.
    """
    if not callable(function):
        raise ValueError(
            f"task={reference or name!r} is a {type(function).__name__}, not a function"
        )
    parameters = [p for p in _parameters(function) if p.kind not in VARIADIC]
    flexible = any(p.kind is p.VAR_KEYWORD for p in _parameters(function))
    required = [p for p in parameters if p.default is p.empty]
    count = None if _is_env_class(function) else _count_of(required)
    options = [p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY]
    renders = "render_mode" in options or flexible

    def make_envs(
        options: GymOptions, num_envs: int, seed: int | None, render_mode: str | None, threads: int
    ) -> "VectorEnv":
        from gymnasium.vector import VectorEnv

        from surefoot.envs.gym.adapters import adapt

        kwargs = options.kwargs
        if render_mode is not None and renders:
            kwargs = {**kwargs, "render_mode": render_mode}
        missing = [p.name for p in required if p.name not in kwargs and p is not count]
        if missing:
            raise ValueError(
                f"task={name!r}: the argument {missing[0]!r} is missing; {_how(missing)}"
            )
        cost = _cost(options.cost)
        if count is None or count.name in kwargs:
            return adapt(lambda: function(**kwargs), cost=cost, num_envs=num_envs, seed=seed)
        if count.kind is count.POSITIONAL_ONLY:
            made = function(num_envs, **kwargs)
        else:
            made = function(**kwargs, **{count.name: num_envs})
        if not isinstance(made, VectorEnv):
            raise ValueError(
                f"task={name!r}: a function with a required argument, here {count.name!r}, gets "
                f"the number of environments and must return a gymnasium.vector.VectorEnv, not a "
                f"{type(made).__name__}; if it is another argument, {_how([count.name])}"
            )
        return adapt(made, cost=cost, seed=seed)

    return Task(
        name,
        f"The environment {name}.",
        make_envs,
        GymOptions() if cost is None else GymOptions(cost=cost),
        reference=reference,
        keywords=None if flexible else tuple(n for n in options if n not in RESERVED),
    )


def _how(names: list[str]) -> str:
    """How to give an argument."""
    default = "give it a default"
    return default if names[0] in RESERVED else f"{default}, or pass --env {names[0]}=VALUE"


def _count_of(required: list[inspect.Parameter]) -> inspect.Parameter | None:
    """The argument that gets the number of environments: `num_envs`, or the first one."""
    named = [p for p in required if p.name == "num_envs"]
    places = [p for p in required if p.kind is not p.KEYWORD_ONLY]
    return next(iter(named + places), None)


def _is_env_class(function: Callable[..., object]) -> bool:
    """Whether it is a class of single environments."""
    from gymnasium.vector import VectorEnv

    return inspect.isclass(function) and not issubclass(function, VectorEnv)


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _cost(cost: "Cost") -> "Cost":
    """A cost as `adapt` takes it."""
    if isinstance(cost, list | tuple):
        return tuple(_cost(one) for one in cost)  # type: ignore[misc]
    if not (isinstance(cost, str) or callable(cost)):
        raise ValueError(
            f"cost={cost!r} must be info:KEY or a function; an argument of the environment with "
            f"this name goes into kwargs: --env \"kwargs={{'cost': {cost!r}}}\""
        )
    if isinstance(cost, str) and not cost.startswith("info:") and is_reference(cost):
        return load_reference(cost)
    if not isinstance(cost, str):
        return cost
    keys = cost.removeprefix("info:").split(",") if cost.startswith("info:") else [cost]
    return tuple(keys) if len(keys) > 1 else keys[0]
