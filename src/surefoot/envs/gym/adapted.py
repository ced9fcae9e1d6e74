"""The contract of Surefoot environments over foreign ones, and the checks of their output."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space, flatdim, flatten, flatten_space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

CostFunction = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]
Cost = str | Sequence[str] | CostFunction
Seed = int | Sequence[int | None] | None
Options = dict[str, Any] | None


class EnvironmentFault(RuntimeError):
    """An environment raised, or returned an invalid value; names the environment and the step."""


class Step(NamedTuple):
    """One step of all environments, before resets."""

    obs: np.ndarray
    """[N, D]; the final observation where an episode ended."""
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    cost: np.ndarray | None
    """Costs under the keys, [N] or [N, k]; None with a cost function."""


class Adapted(VectorEnv):
    """A `VectorEnv` that resets within the step that ends an episode.

    `info["cost"]` [N, k] is the cost of every step, also of the last one of an episode.
    `info["final_obs"]` [N, D] is the true last observation where `info["_final_obs"]` [N].

    Subclasses implement `_start` (first observations [N, D]), `_advance`, and `_restart`, which
    resets where episodes ended and returns the observations [N, D] that follow.
    """

    def __init__(
        self,
        source: gym.Env | VectorEnv,
        num_envs: int,
        observation_space: Space,
        action_space: Space,
        cost: Cost,
        cost_names: Sequence[str] | None,
        seed: Seed,
    ):
        self.metadata = {**source.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode, self.spec = source.render_mode, source.spec
        self.num_envs, self.max_episode_steps = num_envs, _time_limit(source)
        self._seed = seed
        self._cost_function = cost if callable(cost) else None
        keys = ("cost",) if callable(cost) else (cost,) if isinstance(cost, str) else tuple(cost)
        names = keys if cost_names is None else tuple(cost_names)
        self._keys: tuple[str, ...] = keys
        self.cost_names: tuple[str, ...] = names
        if not keys or not names or len(set(names)) < len(names):
            raise ValueError(f"cost={cost!r}, cost_names={cost_names!r} must be distinct names")
        if len(keys) > 1 and len(names) != len(keys):
            raise ValueError(f"cost_names={cost_names!r} must have one name for each of {keys}")
        # One key holds one number per environment, or all k constraints.
        self._cost_shape = (len(names),) if len(keys) == 1 and len(names) > 1 else ()
        self._observed, self._acted = observation_space, action_space
        self.single_observation_space = _flat_observation_space(observation_space)
        self.single_action_space = _flat_action_space(action_space)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._obs: np.ndarray | None = None
        self._episode = np.ones(num_envs, dtype=int)
        self._t = np.zeros(num_envs, dtype=int)

    def _start(self, seed: Seed, options: Options) -> np.ndarray:
        raise NotImplementedError

    def _advance(self, actions: np.ndarray) -> Step:
        raise NotImplementedError

    def _restart(self, ended: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def reset(  # type: ignore[override]
        self, *, seed: Seed = None, options: Options = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """First observations [N, D]; without a seed the random streams continue."""
        if seed is None:
            seed, self._seed = self._seed, None
        if isinstance(seed, Sequence) and len(seed) != self.num_envs:
            raise ValueError(f"seed={seed!r} must be an int or a list of {self.num_envs}")
        self._obs = None
        self._episode[:], self._t[:] = 1, 0
        self._obs = self._finite("observation", self._start(seed, options))
        return self._obs.copy(), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step with actions [N, A] or, if discrete, [N]."""
        if self._obs is None:
            raise RuntimeError("reset must be called before step")
        actions = self._checked_actions(actions)
        # After a fault some environments have stepped and some have not, so only a reset helps.
        obs, self._obs = self._obs, None
        self._t += 1
        native = (
            actions + self._acted.start
            if isinstance(self._acted, Discrete)
            else actions.reshape(self.num_envs, *(self._acted.shape or ())).copy()
        )
        next_obs, reward, terminated, truncated, cost = self._advance(native)
        self._finite("observation", next_obs)
        if self._cost_function is not None:
            cost = np.asarray(self._cost_function(obs, actions, next_obs), dtype=np.float64)
            expected = (self.num_envs, *self._cost_shape)
            if cost.shape != expected:
                raise ValueError(
                    f"the cost function returned shape {cost.shape}, not {expected}: one cost for "
                    f"each environment and each of cost_names={self.cost_names}"
                )
        assert cost is not None
        costs = cost.reshape(self.num_envs, len(self.cost_names))
        info: dict[str, Any] = {"cost": self._finite("cost", costs)}
        self._finite("reward", reward)
        ended = terminated | truncated
        obs = next_obs
        if ended.any():
            info |= {"final_obs": next_obs, "_final_obs": ended}
            self._episode[ended] += 1
            self._t[ended] = 0
            obs = self._finite("observation", self._restart(ended, next_obs))
        self._obs = obs
        return obs.copy(), reward, terminated, truncated, info

    def _fault(self, index: int | None, problem: str) -> EnvironmentFault:
        if index is None:
            return EnvironmentFault(f"vector environment, step {self._t.max()}: {problem}")
        t, episode = self._t[index], self._episode[index]
        when = f"step {t} of episode {episode}" if t else f"reset into episode {episode}"
        return EnvironmentFault(f"environment {index}, {when}: {problem}")

    def _finite(self, field: str, values: np.ndarray) -> np.ndarray:
        """values [N, ...], or a fault that names the first one that is not finite."""
        if not np.isfinite(values).all():
            index, *rest = (int(j) for j in np.argwhere(~np.isfinite(values))[0])
            names = {
                "observation": lambda j: _observation_name(self._observed, j),
                "cost": lambda j: f"cost {self.cost_names[j]!r}",
            }
            name = names[field](rest[0]) if field in names else field
            raise self._fault(index, f"{name} is {values[(index, *rest)]}")
        return values

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
    # Integers (one-hot codes, counts, pixels) become floats wide enough to hold them.
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
    """The name of number j of a flattened observation."""
    if isinstance(space, Dict):
        for key, part in space.spaces.items():
            if j < flatdim(part):
                return f"observation[{key!r}]" + _observation_name(part, j)[len("observation") :]
            j -= flatdim(part)
    index = np.unravel_index(j, space.shape) if isinstance(space, Box) else [j]
    return f"observation{[int(i) for i in index]}"


def _time_limit(env: gym.Env | VectorEnv) -> int | None:
    """The largest number of steps of an episode, if the environment or a wrapper declares it."""
    layer: Any = env
    while layer is not None:
        for name in ("max_episode_steps", "_max_episode_steps"):
            if isinstance(limit := getattr(layer, name, None), int):
                return limit
        layer = getattr(layer, "env", None)
    return None if env.spec is None else env.spec.max_episode_steps
