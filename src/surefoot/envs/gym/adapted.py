"""The contract of Surefoot environments over foreign ones."""

import math
import reprlib
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    flatdim,
    flatten,
    flatten_space,
)
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from surefoot.envs.base import Info

CostFunction = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
Cost = str | Sequence[str] | CostFunction
Seed = int | Sequence[int] | None
MOST_CHOICES = 1_000
"""Of a MultiDiscrete or MultiBinary action space, which becomes one Discrete."""
MOST_OBSERVED = 10_000
"""Numbers of an observation."""


class EnvironmentFault(RuntimeError):
    """An environment raised, or returned an invalid value; names the environment and the step."""


class MissingCost(ValueError):
    """The costs of a step are not where they should be."""


def described(error: BaseException) -> str:
    """An exception of a user's code with its type and place; one of this package with its type."""
    ours, python = str(Path(__file__).parents[2]), sysconfig.get_paths()["stdlib"]
    frames = traceback.extract_tb(error.__traceback__)
    foreign = lambda name: name.startswith((ours, python)) or "site-packages" in name
    places = [frame for frame in frames if not foreign(frame.filename)]
    text = f"{type(error).__name__}: {error}"
    if not places:
        return text
    last = places[-1]
    return f"{text} ({Path(last.filename).name}, line {last.lineno}, in {last.name})"


class Step(NamedTuple):
    """One step of all environments."""

    next_obs: np.ndarray
    """[N, D]; the final observation where an episode ended."""
    obs: np.ndarray
    """[N, D]; the first observation of the next episode where one ended."""
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    cost: np.ndarray
    """Costs under the keys, [N, ...]; not used with a cost function."""


class Adapted(VectorEnv):
    """A `VectorEnv` that resets within the step that ends an episode.

    `info["cost"]` [N, k] is the cost of every step, also of the last one of an episode.
    `info["final_obs"]` [N, D] is the true last observation where `info["_final_obs"]` [N].
    """

    def __init__(
        self,
        source: gym.Env | VectorEnv,
        num_envs: int,
        spaces: tuple[Space, Space],
        cost: Cost,
        cost_names: Sequence[str] | None,
        seed: Seed,
    ):
        self.metadata = {**source.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode, self.spec = source.render_mode, source.spec
        self.num_envs, self.max_episode_steps = num_envs, _time_limit(source)
        self._seed = seed
        self.cost_function = cost if callable(cost) else None
        keys = ("cost",) if callable(cost) else (cost,) if isinstance(cost, str) else tuple(cost)
        names = keys if cost_names is None else tuple(cost_names)
        if not keys or not names or len(set(names)) < len(names):
            raise ValueError(f"cost={cost!r}, cost_names={cost_names!r} must be distinct names")
        if len(keys) > 1 and len(names) != len(keys):
            raise ValueError(f"cost_names={cost_names!r} must have one name for each of {keys}")
        self._keys: tuple[str, ...] = keys
        self.cost_names: tuple[str, ...] = names
        # One key holds one number per environment, or all k constraints.
        self._cost_shape = (len(names),) if len(keys) == 1 and len(names) > 1 else ()
        self.native_spaces = self._observed, self._acted = spaces
        self.choices = choices(self._acted)
        self.single_observation_space = flat_observation_space(self._observed)
        self.single_action_space = flat_action_space(self._acted)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._obs: np.ndarray | None = None

    def _start(self, seed: Seed, options: Info | None) -> np.ndarray:
        """First observations, [N, D]."""
        raise NotImplementedError

    def _advance(self, actions: np.ndarray) -> Step:
        """One step with actions as the environments take them, and resets where episodes ended."""
        raise NotImplementedError

    def reset(  # type: ignore[override]
        self, *, seed: Seed = None, options: Info | None = None
    ) -> tuple[np.ndarray, Info]:
        """First observations [N, D]; without a seed the random streams continue."""
        if seed is None:
            seed, self._seed = self._seed, None
        if isinstance(seed, Sequence) and len(seed) != self.num_envs:
            raise ValueError(f"seed={seed!r} must be an int or a list of {self.num_envs}")
        self._obs = None
        self._obs = self._start(seed, options)
        return self._obs.copy(), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Info]:
        """One step with actions [N, A] or, if discrete, [N]."""
        if self._obs is None:
            raise RuntimeError("reset must be called before step")
        actions = self._checked_actions(actions)
        # After a fault some environments have stepped and some have not, so only a reset helps.
        before, self._obs = self._obs, None
        native = (
            actions.reshape(self.num_envs, *(self._acted.shape or ())).copy()
            if self.choices is None
            else self.choices[actions]
        )
        next_obs, obs, reward, terminated, truncated, cost = self._advance(native)
        if self.cost_function is not None:
            shape = (self.num_envs, *self._cost_shape)
            name = f"cost of the function (cost_names={self.cost_names})"
            taken = actions if self.choices is None else flat_choices(self.choices)[actions]
            cost = shaped(name, self._computed(before, taken, next_obs), shape)
        info: Info = {"cost": cost.reshape(self.num_envs, len(self.cost_names))}
        ended = terminated | truncated
        if ended.any():
            info |= {"final_obs": next_obs, "_final_obs": ended}
        self._obs = obs
        return obs.copy(), reward, terminated, truncated, info

    def _computed(self, obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
        """Costs by the function; an exception says what it was called with."""
        assert self.cost_function is not None
        try:
            return self.cost_function(obs, action, next_obs)
        except Exception as error:
            function = getattr(self.cost_function, "__name__", "the cost function")
            shapes = ", ".join(str(np.shape(x)) for x in (obs, action, next_obs))
            raise ValueError(
                f"cost function {function}: {described(error)}. It is called with "
                f"batches (obs, action, next_obs) of shapes {shapes}, so the first number of every "
                f"observation is obs[:, 0], and returns one cost for each row"
            ) from error

    def _checked_actions(self, actions: np.ndarray) -> np.ndarray:
        actions, space = np.asarray(actions), self.single_action_space
        expected = (self.num_envs, *(space.shape or ()))
        if actions.shape != expected:
            raise ValueError(f"actions have shape {actions.shape}, not {expected}")
        bad = ~np.isfinite(actions)
        if isinstance(space, Discrete):
            bad = (actions < 0) | (actions >= space.n) | (actions != np.floor(actions))
        if bad.any():
            index = np.argwhere(bad)[0][0]
            raise ValueError(f"action {actions[index]} of environment {index} is not in {space}")
        return actions.astype(space.dtype)

    def _flattened(self, obs: object) -> np.ndarray:
        """One environment's observation as [D]."""
        space, flat = self._observed, self.single_observation_space
        if isinstance(space, Box):
            return shaped("observation", obs, space.shape, flat.dtype).reshape(-1)
        missing = [] if not isinstance(space, Dict) else sorted(space.keys() - _keys(obs))
        if missing:
            raise ValueError(f"the observation has no {', '.join(map(repr, missing))}")
        return shaped("observation", flatten(space, obs), flat.shape, flat.dtype)


def shaped(
    name: str, values: object, shape: tuple[int, ...] | None, dtype: np.dtype | type | None = float
) -> np.ndarray:
    """A new array of the given type; a ValueError names values of another type or shape."""
    try:
        array = np.array(values, dtype)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={reprlib.repr(values)} must be numbers") from None
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, not {shape}")
    return array


def flat_observation_space(space: Space) -> Box:
    """The space of flattened observations, as floats; images are refused."""
    if any(isinstance(part, Box) and len(part.shape) > 2 for part in _parts(space)):
        problem = f"observation space {space} holds an image"
    elif space.is_np_flattenable and flatdim(space) > MOST_OBSERVED:
        problem = f"observation space {space} has {flatdim(space):,} numbers"
    else:
        problem = ""
    if problem:
        raise ValueError(
            f"{problem}, but policies and models take vectors of at most {MOST_OBSERVED:,}; "
            "wrap the environment with an encoder that returns features, or, if its numbers are "
            "features, with gymnasium.wrappers.FlattenObservation"
        )
    flat = flatten_space(space)
    if not isinstance(flat, Box):
        raise ValueError(
            f"observation space {space} cannot be flattened to a fixed length; use a Box, or a "
            "Dict or Tuple of spaces of fixed size"
        )
    # Integers (one-hot codes, counts) become floats wide enough to hold them.
    dtype = np.result_type(flat.dtype, np.float32).type
    return Box(flat.low.astype(dtype), flat.high.astype(dtype), dtype=dtype)


def _keys(obs: object) -> set[str]:
    return {*obs} if isinstance(obs, Mapping) else set()


def numbers_of(space: Space) -> list[tuple[str, int]]:
    """Name and size of each part of a flattened Dict, in order; empty for other spaces."""
    if not isinstance(space, Dict):
        return []
    return [(name, flatdim(part)) for name, part in space.spaces.items()]


def _parts(space: Space) -> Iterator[Space]:
    """The space, or the spaces that a Dict or Tuple is made of."""
    inner = getattr(space, "spaces", ())
    for part in inner.values() if isinstance(inner, Mapping) else inner:
        yield from _parts(part)
    if not inner:
        yield space


def flat_action_space(space: Space) -> Box | Discrete:
    """The space of flattened actions; choices become one Discrete that counts from 0."""
    table = choices(space)
    if table is not None:
        return Discrete(len(table))
    if isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):
        return Box(space.low.reshape(-1), space.high.reshape(-1), dtype=space.dtype.type)
    raise ValueError(
        f"action space {space} is not supported; use a Box of floats (which the environment may "
        "round), a Discrete, a MultiDiscrete or a MultiBinary"
    )


def choices(space: Space) -> np.ndarray | None:
    """Every action of a finite space as environments take it, [n, …]; None for other spaces."""
    if isinstance(space, Discrete):
        return np.arange(space.n, dtype=space.dtype) + space.start
    if isinstance(space, MultiDiscrete):
        counts, start = space.nvec, space.start
    elif isinstance(space, MultiBinary):
        counts, start = np.full(space.shape, 2), 0
    else:
        return None
    n = math.prod(counts.ravel().tolist())
    if n > MOST_CHOICES:
        raise ValueError(
            f"action space {space} has {n:,} combinations, but at most {MOST_CHOICES:,} are "
            "supported; use fewer choices, or a Box of floats that the environment rounds"
        )
    digits = np.unravel_index(np.arange(n), counts.ravel())
    return (np.stack(digits, -1).reshape(n, *counts.shape) + start).astype(space.dtype)


def flat_choices(table: np.ndarray) -> np.ndarray:
    """The same choices as cost functions take them: [n], or [n, A]."""
    return table if table.ndim == 1 else table.reshape(len(table), -1)


def _time_limit(env: gym.Env | VectorEnv) -> int | None:
    """The largest number of steps of an episode, if the environment or a wrapper declares it."""
    layer: object = env
    while layer is not None:
        for name in ("max_episode_steps", "_max_episode_steps"):
            if isinstance(limit := getattr(layer, name, None), int):
                return limit
        layer = getattr(layer, "env", None)
    return None if env.spec is None else env.spec.max_episode_steps
