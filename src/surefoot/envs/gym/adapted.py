"""Surefoot's environment contract over anyone's spaces, and the checks on what comes out of them.

The contract is that of Surefoot's own tasks: a `VectorEnv` that resets within the step that ends
an episode, with `info["cost"]` [N, k] for every step (the last one of an episode included)
and the true last observation in `info["final_obs"]` [N, D] where `info["_final_obs"]` [N].
"""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space, flatdim, flatten, flatten_space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

CostFunction = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]
Cost = str | Sequence[str] | CostFunction
Seed = int | Sequence[int | None] | None


class EnvironmentFault(RuntimeError):
    """An environment raised, or gave what it should not; says which one, at which step, what."""


class Adapted(VectorEnv):
    """The contract; where steps and resets come from is left to three methods:

    `_start` gives the first observations [N, D] of all environments; `_advance` the next
    observations [N, D] (the final ones at ends), reward, terminated, truncated [N], and the costs
    found under the keys, [N] or [N, k] (ignored with a cost function); `_restart` the first
    observations of the next episodes where they ended, and `next_obs` elsewhere.
    """

    def __init__(
        self,
        source: gym.Env | VectorEnv,
        num_envs: int,
        observation_space: Space,
        action_space: Space,
        cost: Cost,
        cost_names: Sequence[str] | None,
        max_episode_steps: int | None,
        seed: Seed,
    ):
        self.metadata = {**source.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = source.render_mode
        self.spec = source.spec
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self._seed = seed
        self._cost_function = cost if callable(cost) else None
        keys = ("cost",) if callable(cost) else (cost,) if isinstance(cost, str) else tuple(cost)
        self._keys: tuple[str, ...] = keys
        self.cost_names: tuple[str, ...] = keys if cost_names is None else tuple(cost_names)
        if not keys or not self.cost_names or len(set(self.cost_names)) < len(self.cost_names):
            raise ValueError(
                f"cost={cost!r}, cost_names={cost_names!r}: give each constraint its own name"
            )
        if len(keys) > 1 and len(self.cost_names) != len(keys):
            raise ValueError(f"cost_names={cost_names!r} should be one for each of {keys}")
        # What one key holds for one environment: a number, or all k constraints at once.
        k = len(self.cost_names)
        self._cost_shape = (k,) if len(keys) == 1 and k > 1 else ()

        self._observed = observation_space
        self.single_observation_space = _flat_observation_space(observation_space)
        self._acted = action_space
        self.single_action_space = _flat_action_space(action_space)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._obs: np.ndarray | None = None
        self._episode = np.ones(num_envs, dtype=int)
        self._t = np.zeros(num_envs, dtype=int)

    def _start(self, seed: Seed, options: dict[str, Any] | None) -> np.ndarray:
        raise NotImplementedError

    def _advance(self, actions: np.ndarray) -> tuple[Any, ...]:
        raise NotImplementedError

    def _restart(self, ended: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def reset(self, *, seed: Seed = None, options: dict[str, Any] | None = None):  # type: ignore
        """First observations [N, D]; without a seed the random streams go on."""
        if seed is None:
            seed, self._seed = self._seed, None
        counted = isinstance(seed, Sequence) and len(seed) == self.num_envs
        if not (seed is None or isinstance(seed, int) or counted):
            raise ValueError(f"seed={seed!r} should be an int or a list of {self.num_envs}")
        self._obs = None
        self._episode[:], self._t[:] = 1, 0
        self._obs = self._checked("observation", self._start(seed, options))
        return self._obs.copy(), {}

    def step(self, actions: np.ndarray):
        """Actions [N, A] or, if discrete, [N]."""
        if self._obs is None:
            raise RuntimeError("reset must be called before step")
        actions = self._checked_actions(actions)
        # After a fault some environments have stepped and some have not: only a reset helps.
        obs, self._obs = self._obs, None
        self._t += 1
        next_obs, reward, terminated, truncated, cost = self._advance(self._native(actions))
        self._checked("observation", next_obs)
        if self._cost_function is not None:
            cost = np.asarray(self._cost_function(obs, actions, next_obs), dtype=np.float64)
            expected = (self.num_envs, *self._cost_shape)
            if cost.shape != expected:
                raise ValueError(
                    f"the cost function gave shape {cost.shape}, not {expected}: one cost for each "
                    f"environment and each name in cost_names={self.cost_names}"
                )
        costs = np.asarray(cost, np.float64).reshape(self.num_envs, len(self.cost_names))
        info: dict[str, Any] = {"cost": self._checked("cost", costs)}
        self._checked("reward", reward)
        ended = terminated | truncated
        obs = next_obs
        if ended.any():
            info |= {"final_obs": next_obs, "_final_obs": ended}
            self._episode[ended] += 1
            self._t[ended] = 0
            obs = self._checked("observation", self._restart(ended, next_obs))
        self._obs = obs
        return obs.copy(), reward, terminated, truncated, info

    def _fault(self, index: int | None, problem: str) -> EnvironmentFault:
        if index is None:
            return EnvironmentFault(f"vector environment, step {self._t.max()}: {problem}")
        t, episode = self._t[index], self._episode[index]
        when = f"step {t} of episode {episode}" if t else f"reset into episode {episode}"
        return EnvironmentFault(f"environment {index}, {when}: {problem}")

    def _checked(self, field: str, values: np.ndarray) -> np.ndarray:
        """values [N, ...], or a fault that names the first one that is not finite."""
        if not np.isfinite(values).all():
            index, *rest = (int(j) for j in np.argwhere(~np.isfinite(values))[0])
            if field == "observation":
                name = _observation_name(self._observed, rest[0])
            elif field == "cost":
                name = f"cost {self.cost_names[rest[0]]!r}"
            else:
                name = field
            raise self._fault(index, f"{name} is {values[(index, *rest)]}")
        return values

    def _checked_actions(self, actions: Any) -> np.ndarray:
        actions, space = np.asarray(actions), self.single_action_space
        expected = (self.num_envs, *(space.shape or ()))
        if actions.shape != expected:
            raise ValueError(f"actions have shape {actions.shape}, not {expected}")
        if isinstance(space, Discrete):
            bad = (actions < 0) | (actions >= space.n) | (actions != np.floor(actions))
        else:
            bad = ~np.isfinite(actions)
        if bad.any():
            index = np.argwhere(bad)[0][0]
            raise ValueError(f"action {actions[index]} of environment {index} is not in {space}")
        return actions.astype(space.dtype)

    def _native(self, actions: np.ndarray) -> np.ndarray:
        """Actions in the shape and numbering of the adapted environment, for it to keep."""
        if isinstance(self._acted, Discrete):
            return actions + self._acted.start
        return actions.reshape(self.num_envs, *(self._acted.shape or ())).copy()

    def _flattened(self, index: int, obs: Any) -> np.ndarray:
        """One environment's observation as [D]."""
        space, dtype = self._observed, self.single_observation_space.dtype
        try:
            flat = np.asarray(obs if isinstance(space, Box) else flatten(space, obs), dtype)
        except Exception as error:
            raise self._fault(index, f"observation {obs!r} does not fit {space}") from error
        expected = space.shape if isinstance(space, Box) else self.single_observation_space.shape
        if flat.shape != expected:
            raise self._fault(index, f"observation has shape {flat.shape}, not {expected}")
        return flat.reshape(-1)


def _flat_observation_space(space: Space) -> Box:
    flat = flatten_space(space)
    if not isinstance(flat, Box):
        raise ValueError(f"observation space {space} cannot be flattened to a fixed length")
    # Integers (of one-hot codes, counts, pixels) become floats wide enough to hold them.
    dtype: Any = np.result_type(flat.dtype, np.float32)
    return Box(flat.low.astype(dtype), flat.high.astype(dtype), dtype=dtype)


def _flat_action_space(space: Space) -> Box | Discrete:
    if isinstance(space, Discrete):
        return Discrete(int(space.n))
    if isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):
        dtype: Any = space.dtype
        return Box(space.low.reshape(-1), space.high.reshape(-1), dtype=dtype)
    raise ValueError(f"action space {space} is not supported: use a Box of floats or a Discrete")


def _observation_name(space: Space, j: int) -> str:
    """What stands at place j of a flattened observation."""
    if isinstance(space, Dict):
        for key, part in space.spaces.items():
            if j < flatdim(part):
                return f"observation[{key!r}]" + _observation_name(part, j)[len("observation") :]
            j -= flatdim(part)
    if isinstance(space, Box):
        return f"observation{[int(i) for i in np.unravel_index(j, space.shape)]}"
    return f"observation[{j}]"
