"""`vector.make`: many environments with the 6-value step; ended episodes restart in the same step.

`info` is as in gymnasium 0.28: an array per key and, under `_key`, which environments have it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from surefoot.envs.base import EXCEPTION_REWARD, TaskEnv
from surefoot.safety_gymnasium import info as infos
from surefoot.safety_gymnasium import registration
from surefoot.safety_gymnasium.builder import (
    RENDER_MODES,
    Builder,
    SafetyVelocityEnv,
    make_navigation,
    make_velocity,
)
from surefoot.safety_gymnasium.info import Info, Observation
from surefoot.safety_gymnasium.options import flattens
from surefoot.safety_gymnasium.picture import Picture, tile
from surefoot.safety_gymnasium.wrappers import Wrap

Step = tuple[Observation, np.ndarray, np.ndarray, np.ndarray, np.ndarray, Info]
PICTURE = ("width", "height", "camera_id", "camera_name")


class SafetyVectorEnv(VectorEnv, gymnasium.Env):  # type: ignore[misc]
    """N environments; also a `gymnasium.Env`, as in gymnasium 0.28, so that wrappers take it."""

    is_vector_env = True
    metadata = {  # noqa: RUF012 - gymnasium declares it so
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "render_modes": ["rgb_array"],
        "render_fps": 30,
    }

    def _spaces(self, observation: gymnasium.Space, action: gymnasium.Space, count: int) -> None:
        self.num_envs = count
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space = batch_space(observation, count)
        self.action_space = batch_space(action, count)

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> Step:
        """The step with the actions of `step_async`."""
        return self.step(self._actions)

    def render(self) -> np.ndarray:  # type: ignore[override]
        """All environments in one picture."""
        return tile(self.get_images())

    def get_images(self) -> list[np.ndarray]:
        raise NotImplementedError

    def step(self, actions: np.ndarray) -> Step:  # type: ignore[override]
        raise NotImplementedError


class NativeVectorEnv(SafetyVectorEnv):
    """All environments stepped together, in this process."""

    def __init__(self, core: TaskEnv, render_mode: str | None = None, **picture: Any):
        if render_mode not in RENDER_MODES:
            raise ValueError(f"render_mode={render_mode!r} must be None or 'rgb_array'")
        self.core, self.render_mode, self.picture = core, render_mode, Picture(**picture)
        self._spaces(infos.observation_space(core), infos.action_space(core), core.num_envs)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: Info | None = None
    ) -> tuple[np.ndarray, Info]:
        """Start new episodes; environment i gets the seed `seed + i`, or `seed[i]`."""
        return self.core.reset(seed=seed)

    def step(self, actions: np.ndarray) -> Step:  # type: ignore[override]
        core, before = self.core, infos.places(self.core)
        failures = core.failures
        obs, reward, terminated, truncated, info = core.step(np.asarray(actions))
        cost = info["cost"].max(1)
        columns = infos.step_columns(core, before, np.asarray(actions, dtype=np.float64))
        if core.failures > failures:  # only then does the native task truncate with this reward
            failed = truncated & (reward == EXCEPTION_REWARD)
            columns = {k: (value, has & ~failed) for k, (value, has) in columns.items()}
            columns["cost_exception"] = np.ones(core.num_envs), failed
        ended = terminated | truncated
        out: Info = {}
        for name, (value, present) in columns.items():
            present = present & ~ended
            if present.any():
                out[name], out[f"_{name}"] = np.where(present, value, value.dtype.type(0)), present
        if ended.any():
            observations, last = np.full((2, core.num_envs), None, dtype=object)
            for i in np.flatnonzero(ended).tolist():
                observations[i], last[i] = info["final_obs"][i], infos.pick(columns, i)
            out["final_observation"], out["_final_observation"] = observations, ended
            out["final_info"], out["_final_info"] = last, ended.copy()
        return obs, reward, cost, terminated, truncated, out

    def get_images(self) -> list[np.ndarray]:
        if self.render_mode is None:
            raise ValueError("render_mode=None must be 'rgb_array', given to make(), to render")
        return [self.picture.draw(self.core, i) for i in range(self.num_envs)]

    def close(self, **kwargs: object) -> None:
        self.picture.close()


class SafetySyncVectorEnv(SafetyVectorEnv):
    """Environments made by functions, stepped one after the other."""

    def __init__(
        self,
        env_fns: Iterable[Callable[[], gymnasium.Env]],
        observation_space: gymnasium.Space | None = None,
        action_space: gymnasium.Space | None = None,
        copy: bool = True,
    ):
        self.envs = [make_one() for make_one in env_fns]
        if not self.envs:
            raise ValueError("env_fns=[] must have at least one function")
        first = self.envs[0]
        self.render_mode = first.render_mode
        self._spaces(
            observation_space or first.observation_space,
            action_space or first.action_space,
            len(self.envs),
        )

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Info | None = None
    ) -> tuple[Observation, Info]:
        """Start new episodes; environment i gets the seed `seed + i`, or `seed[i]`."""
        seeds = [None] * self.num_envs if seed is None else seed
        seeds = [seeds + i for i in range(self.num_envs)] if isinstance(seeds, int) else seeds
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed has {len(seeds)} entries for {self.num_envs} environments")
        observations, info = [], {}
        for i, (env, one) in enumerate(zip(self.envs, seeds, strict=True)):
            obs, own = env.reset(seed=one, options=options)
            observations.append(obs)
            self._add(info, own, i)
        return self._together(observations), info

    def step(self, actions: np.ndarray) -> Step:  # type: ignore[override]
        observations, rows, info = [], [], {}
        for i, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            obs, reward, cost, terminated, truncated, own = env.step(action)  # type: ignore[misc]
            if terminated or truncated:
                final = {"final_observation": obs, "final_info": own}
                obs, own = env.reset()
                own = {**own, **final}
            observations.append(obs)
            rows.append((reward, cost, terminated, truncated))
            self._add(info, own, i)
        reward, cost, terminated, truncated = zip(*rows, strict=True)
        return (
            self._together(observations),
            np.array(reward, dtype=np.float64),
            np.array(cost, dtype=np.float64),
            np.array(terminated, dtype=bool),
            np.array(truncated, dtype=bool),
            info,
        )

    def call(self, name: str, *args: object, **kwargs: object) -> tuple[Any, ...]:
        """A method's results, or an attribute, of every environment."""
        members = [getattr(env, name) for env in self.envs]
        return tuple(m(*args, **kwargs) if callable(m) else m for m in members)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        return self.call(name)

    def get_images(self) -> list[np.ndarray]:
        return [env.render() for env in self.envs]  # type: ignore[misc]

    def close(self, **kwargs: object) -> None:
        for env in self.envs:
            env.close()

    def _together(self, observations: list[Observation]) -> Any:
        space = self.single_observation_space
        return concatenate(space, observations, create_empty_array(space, self.num_envs))

    def _add(self, info: Info, own: Info, i: int) -> None:
        """Enter the info of environment i."""
        for key, value in own.items():
            if key not in info:
                number = isinstance(value, bool | int | float | np.number | np.bool_)
                kind = np.array(value).dtype if number else object
                info[key] = np.full(self.num_envs, None if kind is object else 0, dtype=kind)
                info[f"_{key}"] = np.zeros(self.num_envs, dtype=bool)
            info[key][i], info[f"_{key}"][i] = value, True


class SafetyAsyncVectorEnv(SafetySyncVectorEnv):
    """As `SafetySyncVectorEnv`: a native step is shorter than a message between processes."""

    def __init__(
        self,
        env_fns: Iterable[Callable[[], gymnasium.Env]],
        observation_space: gymnasium.Space | None = None,
        action_space: gymnasium.Space | None = None,
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: Callable[..., None] | None = None,
    ):
        if worker is not None:
            raise ValueError(f"worker={worker!r} must be None: there are no processes")
        super().__init__(env_fns, observation_space, action_space, copy)


def make(
    env_id: str,
    num_envs: int = 1,
    asynchronous: bool = True,
    wrappers: Wrap | Sequence[Wrap] | None = None,
    disable_env_checker: bool | None = None,
    max_episode_steps: int | None = None,
    **kwargs: Any,
) -> SafetyVectorEnv:
    """Make `num_envs` copies of an id, stepped together.

    Args:
        env_id: An id such as `SafetyPointGoal1-v0`.
        num_envs: Number of environments.
        asynchronous: Use all cores instead of one.
        wrappers: Applied to each environment; they are then stepped one after the other.
        disable_env_checker: False checks the first reset and step of each environment.
        max_episode_steps: Truncate episodes after as many steps, instead of the id's number.
        **kwargs: As for `surefoot.safety_gymnasium.make`.
    """
    spec = registration.spec(env_id)
    options = {**spec.kwargs, **kwargs}
    ours = spec.entry_point in (Builder, SafetyVelocityEnv) and flattens(options.get("config"))
    if ours and wrappers is None and disable_env_checker is not False:
        return _native(spec, options, num_envs, int(not asynchronous), max_episode_steps)
    several = [wrappers] if callable(wrappers) else list(wrappers or ())

    def make_one() -> gymnasium.Env:
        env = registration.make(
            spec, max_episode_steps, disable_env_checker=disable_env_checker, **kwargs
        )
        for wrapper in several:
            env = wrapper(env)
        return env

    return SafetySyncVectorEnv([make_one] * num_envs)


def _native(
    spec: Any, options: dict[str, Any], num_envs: int, threads: int, limit: int | None
) -> NativeVectorEnv:
    picture = {name: options.pop(name) for name in PICTURE if name in options}
    mode = options.pop("render_mode", None)
    if spec.entry_point is Builder:
        core = make_navigation(**options, num_envs=num_envs, threads=threads)
    else:
        core = make_velocity(**options, num_envs=num_envs, threads=threads)
        core.max_episode_steps = limit or spec.max_episode_steps
    core.max_episode_steps = min(core.max_episode_steps, limit or spec.max_episode_steps)
    return NativeVectorEnv(core, mode, **picture)
