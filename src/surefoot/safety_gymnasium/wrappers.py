"""The reference's wrappers by name, for environments with the 6-value step."""

from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import logger, spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers.utils import RunningMeanStd
from numpy.typing import ArrayLike

from surefoot.safety_gymnasium.builder import SafeStep
from surefoot.safety_gymnasium.info import Info, Observation

Wrap = Callable[[gymnasium.Env], gymnasium.Env]


class SafeWrapper(gymnasium.Wrapper):
    """A wrapper that hands on all public attributes, such as `env.task`, as gymnasium 0.28 did."""

    env: Any  # steps return 6 values, which gymnasium's types do not know

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.env, name)

    def step(self, action: np.ndarray) -> Any:
        return self.env.step(action)


class SafeTimeLimit(SafeWrapper, gymnasium.wrappers.TimeLimit):
    """Truncates episodes after `max_episode_steps`."""

    def step(self, action: np.ndarray) -> SafeStep:  # type: ignore[override]
        obs, reward, cost, terminated, truncated, info = self.env.step(action)
        self._elapsed_steps += 1  # pyright: ignore[reportOperatorIssue]
        truncated = truncated or self._elapsed_steps >= self._max_episode_steps
        return obs, reward, cost, terminated, truncated, info


class SafeAutoResetWrapper(SafeWrapper, RecordConstructorArgs):
    """Starts the next episode within the step that ends one.

    `info` is then that of the reset, with `final_observation` and `final_info`.
    """

    def __init__(self, env: gymnasium.Env):
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def step(self, action: np.ndarray) -> SafeStep:
        obs, reward, cost, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            final = {"final_observation": obs, "final_info": info}
            obs, info = self.env.reset()
            info = {**info, **final}
        return obs, reward, cost, terminated, truncated, info


class SafeRescaleAction(SafeWrapper, RecordConstructorArgs):
    """Takes actions between `min_action` and `max_action`, and scales them to the bounds."""

    def __init__(
        self, env: gymnasium.Env, min_action: float | np.ndarray, max_action: float | np.ndarray
    ):
        RecordConstructorArgs.__init__(self, min_action=min_action, max_action=max_action)
        super().__init__(env)
        space = env.action_space
        assert isinstance(space, spaces.Box)
        self.min_action = np.zeros(space.shape, space.dtype) + min_action
        self.max_action = np.zeros(space.shape, space.dtype) + max_action
        if not (self.min_action < self.max_action).all():
            raise ValueError(f"min_action={min_action} must be below max_action={max_action}")

    def action(self, action: np.ndarray) -> np.ndarray:
        """The environment's action."""
        space = self.env.action_space
        assert isinstance(space, spaces.Box)
        share = (action - self.min_action) / (self.max_action - self.min_action)
        return space.low + (space.high - space.low) * share

    def step(self, action: np.ndarray) -> SafeStep:
        return self.env.step(self.action(action))  # type: ignore[return-value]


class _Running(SafeWrapper, RecordConstructorArgs):
    """What the normalising wrappers share; `env` may be a vector environment."""

    def __init__(self, env: gymnasium.Env, **options: float):
        RecordConstructorArgs.__init__(self, **options)  # type: ignore[arg-type]
        super().__init__(env)
        self.num_envs = getattr(env, "num_envs", 1)
        self.is_vector_env = getattr(env, "is_vector_env", False)


class SafeNormalizeObservation(_Running):
    """Normalises observations by their running mean and variance."""

    def __init__(self, env: gymnasium.Env, epsilon: float = 1e-8):
        super().__init__(env, epsilon=epsilon)
        space = getattr(env, "single_observation_space", env.observation_space)
        self.obs_rms, self.epsilon = RunningMeanStd(shape=space.shape), epsilon

    def normalize(self, obs: np.ndarray) -> np.ndarray:
        """A batch of observations, which also enters mean and variance."""
        self.obs_rms.update(obs)
        return (obs - self.obs_rms.mean) / np.sqrt(self.obs_rms.var + self.epsilon)

    def _normalized(self, obs: np.ndarray) -> np.ndarray:
        return self.normalize(obs) if self.is_vector_env else self.normalize(obs[None])[0]

    def reset(self, **kwargs: object) -> tuple[np.ndarray, Info]:
        obs, info = self.env.reset(**kwargs)
        return self._normalized(obs), info

    def step(self, action: np.ndarray) -> SafeStep:
        obs, reward, cost, terminated, truncated, info = self.env.step(action)
        obs = self._normalized(obs)
        if "final_observation" in info:
            final = info["original_final_observation"] = info["final_observation"]
            if self.is_vector_env:
                ended, final = np.flatnonzero(info["_final_observation"]), final.copy()
                for i, last in zip(ended, self.normalize(np.stack(final[ended])), strict=True):
                    final[i] = last
                info["final_observation"] = final
            else:
                info["final_observation"] = self.normalize(final[None])[0]
        return obs, reward, cost, terminated, truncated, info


class _NormalizeSignal(_Running):
    """Divides a signal by the running deviation of its discounted sum."""

    def __init__(self, env: gymnasium.Env, gamma: float = 0.99, epsilon: float = 1e-8):
        super().__init__(env, gamma=gamma, epsilon=epsilon)
        self.return_rms, self.returns = RunningMeanStd(shape=()), np.zeros(self.num_envs)
        self.gamma, self.epsilon = gamma, epsilon

    def normalize(self, signal: ArrayLike, terminated: ArrayLike = False) -> np.ndarray | float:
        values = np.atleast_1d(signal)
        self.returns = self.returns * self.gamma * (1 - np.asarray(terminated, float)) + values
        self.return_rms.update(self.returns)
        scaled = values / np.sqrt(self.return_rms.var + self.epsilon)
        return scaled if self.is_vector_env else scaled[0]


class SafeNormalizeReward(_NormalizeSignal):
    """Scales rewards so that their discounted sum has a fixed variance."""

    def step(self, action: np.ndarray) -> SafeStep:
        obs, reward, cost, terminated, truncated, info = self.env.step(action)
        return obs, self.normalize(reward, terminated), cost, terminated, truncated, info


class SafeNormalizeCost(_NormalizeSignal):
    """Scales costs so that their discounted sum has a fixed variance."""

    def step(self, action: np.ndarray) -> SafeStep:
        obs, reward, cost, terminated, truncated, info = self.env.step(action)
        return obs, reward, self.normalize(cost, terminated), terminated, truncated, info


class SafeUnsqueeze(SafeWrapper, RecordConstructorArgs):
    """Adds a first axis to everything that is returned, as vector environments have."""

    def __init__(self, env: gymnasium.Env):
        if getattr(env, "is_vector_env", False):
            raise ValueError(f"env={env} must be a single environment")
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def reset(self, **kwargs: object) -> tuple[np.ndarray, Info]:
        obs, info = self.env.reset(**kwargs)
        return obs[None], _unsqueezed(info)

    def step(self, action: np.ndarray) -> tuple[np.ndarray | Info, ...]:
        *values, info = self.env.step(action)
        return *(np.expand_dims(value, 0) for value in values), _unsqueezed(info)


def _unsqueezed(info: Info) -> Info:
    return {k: v[None] if isinstance(v, np.ndarray) else v for k, v in info.items()}


class SafePassiveEnvChecker(SafeWrapper, RecordConstructorArgs):
    """Checks what the first reset and the first step return."""

    def __init__(self, env: gymnasium.Env):
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.checked_reset = self.checked_step = False

    def reset(self, **kwargs: object) -> tuple[Observation, Info]:
        obs, info = self.env.reset(**kwargs)
        if not self.checked_reset:
            self.checked_reset = True
            self._check(obs, info)
        return obs, info

    def step(self, action: np.ndarray) -> SafeStep:
        result = self.env.step(action)
        if not self.checked_step:
            self.checked_step = True
            if not isinstance(result, tuple) or len(result) != 6:
                raise ValueError(
                    f"step() returned {result!r}; it must be (obs, reward, cost, terminated, "
                    "truncated, info)"
                )
            obs, reward, cost, terminated, truncated, info = result
            self._check(obs, info)
            for name, value in (("reward", reward), ("cost", cost)):
                if not np.isscalar(value) or not np.isfinite(value):  # type: ignore[arg-type]
                    logger.warn(f"{name}={value!r} must be a finite number")
            for name, value in (("terminated", terminated), ("truncated", truncated)):
                if not isinstance(value, bool | np.bool_):
                    logger.warn(f"{name}={value!r} must be a bool")
        return result

    def _check(self, obs: object, info: object) -> None:
        if obs not in self.env.observation_space:
            logger.warn(f"obs={obs!r} must be within {self.env.observation_space}")
        if not isinstance(info, dict):
            raise ValueError(f"info={info!r} must be a dict")


class SafetyGymnasium2Gymnasium(SafeWrapper, RecordConstructorArgs):
    """The 5-value step of Gymnasium, with the cost in `info["cost"]`."""

    def __init__(self, env: gymnasium.Env):
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def step(self, action: np.ndarray) -> tuple[Observation, SupportsFloat, bool, bool, Info]:
        obs, reward, cost, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, {**info, "cost": cost}


class Gymnasium2SafetyGymnasium(SafeWrapper, RecordConstructorArgs):
    """The 6-value step, for a Gymnasium environment that has `info["cost"]`."""

    def __init__(self, env: gymnasium.Env):
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def step(self, action: np.ndarray) -> SafeStep:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if "cost" not in info:
            raise ValueError(f"info has the keys {list(info)}; it must have 'cost'")
        return obs, reward, info["cost"], terminated, truncated, info


def with_gymnasium_wrappers(env: gymnasium.Env, *wrappers: Wrap) -> gymnasium.Env:
    """Apply Gymnasium's wrappers to an environment with the 6-value step."""
    for wrapper in (SafetyGymnasium2Gymnasium, *wrappers, Gymnasium2SafetyGymnasium):
        if not callable(wrapper):
            raise TypeError(f"wrappers has {wrapper!r}; it must be callable")
        env = wrapper(env)
    return env
