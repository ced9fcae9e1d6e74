"""Any Gymnasium environment as a Surefoot environment."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, flatten_space
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import iterate

from surefoot.envs.gym import snapshot as snapshots
from surefoot.envs.gym.adapted import Adapted, Cost, EnvironmentFault, Options, Seed, Step

__all__ = ["EnvironmentFault", "adapt"]


def adapt(
    env: gym.Env | VectorEnv | Callable[[], gym.Env] | str,
    *,
    cost: Cost = "cost",
    cost_names: Sequence[str] | None = None,
    num_envs: int | None = None,
    seed: Seed = None,
) -> VectorEnv:
    """Any Gymnasium environment as a Surefoot environment.

    env: an environment; a class or function that makes one, or a registered id (`num_envs` copies
        are made); or a vector environment. Environments may return six values from `step`, with
        the cost after the reward, as in safety-gymnasium.
    cost: a key of `info`; several keys; or a function of batches, `cost(obs, action, next_obs)`
        with shapes [N, D], [N, A] (or [N] for discrete actions), [N, D], returning [N] or [N, k].
        `next_obs` is the result of the step, also when the episode ended there. Store floats under
        a key: Gymnasium's vector environments merge infos by the type of the first.
    cost_names: one name per constraint; needed where one key or function holds several.
    seed: for the first reset: environment i gets seed + i, or the i-th of a sequence. Resets at
        the ends of episodes continue the environment's random stream.

    Observations are flattened to [N, D], actions to [N, A]; discrete actions count from 0. Costs
    are [N, k]. If the vector environment has `state()` and `outcome`, so has the result.
    """
    if isinstance(env, VectorEnv):
        if num_envs not in (None, env.num_envs):
            raise ValueError(
                f"num_envs={num_envs}, but the vector environment has {env.num_envs}; leave it out"
            )
        if cost == "cost" and cost_names is None and seed is None and _conforms(env):
            return env
        if type(env) is SyncVectorEnv:
            # Driving its environments directly is exact for every autoreset mode, and avoids its
            # merging of infos (where a first cost of int type truncates the others).
            return _SyncAdapter(env.envs, cost, cost_names, seed)
        return _VectorAdapter(env, cost, cost_names, seed)
    if isinstance(env, gym.Env):
        if num_envs not in (None, 1):
            raise ValueError(
                f"num_envs={num_envs}, but env is a single environment; for several pass a "
                "function that makes one, such as `lambda: MyEnv()`"
            )
        return _SyncAdapter([env], cost, cost_names, seed)
    if not (callable(env) or isinstance(env, str)):
        raise ValueError(f"env={env!r} must be an environment, a function that makes one, or an id")
    count = 1 if num_envs is None else num_envs
    if count < 1:
        raise ValueError(f"num_envs={num_envs} must be at least 1")
    # Gymnasium's checker rejects six-value steps; the adapter checks what it needs.
    make = env if callable(env) else lambda: gym.make(env, disable_env_checker=True)
    envs = [make() for _ in range(count)]
    for made in envs:
        if not isinstance(made, gym.Env):
            raise ValueError(f"env() returned {made!r}; it must make one gymnasium.Env")
    if len({id(made) for made in envs}) < count:
        raise ValueError("env() returned the same environment twice; it must make a new one")
    return _SyncAdapter(envs, cost, cost_names, seed)


class _SyncAdapter(Adapted):
    """Single environments, one after the other."""

    def __init__(
        self, envs: Sequence[gym.Env], cost: Cost, names: Sequence[str] | None, seed: Seed
    ):
        first, *others = self.envs = list(envs)
        size = lambda env: flatten_space(env.observation_space).shape
        for i, env in enumerate(others, start=1):
            if env.action_space != first.action_space or size(env) != size(first):
                raise ValueError(
                    f"environment {i} has spaces {env.observation_space}, {env.action_space}; "
                    f"environment 0 {first.observation_space}, {first.action_space}"
                )
        spaces = first.observation_space, first.action_space
        super().__init__(first, len(envs), *spaces, cost, names, seed)

    def _call(self, index: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of a call into environment code; its exceptions name the environment."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise self._fault(index, f"{type(error).__name__}: {error}") from error

    def _first(self, index: int, **kwargs: Any) -> np.ndarray:
        obs, _ = self._call(index, lambda: tuple(self.envs[index].reset(**kwargs)))
        return self._flattened(index, obs)

    def _start(self, seed: Seed, options: Options) -> np.ndarray:
        if not isinstance(seed, Sequence):
            seed = [None if seed is None else seed + i for i in range(self.num_envs)]
        return np.stack([self._first(i, seed=s, options=options) for i, s in enumerate(seed)])

    def _restart(self, ended: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
        obs = next_obs.copy()
        for i in map(int, np.flatnonzero(ended)):
            obs[i] = self._first(i)
        return obs

    def _advance(self, actions: np.ndarray) -> Step:
        rows = [self._one(i, action) for i, action in enumerate(actions)]
        obs, reward, terminated, truncated, cost = zip(*rows, strict=True)
        ends = np.array(terminated, dtype=bool), np.array(truncated, dtype=bool)
        costs = None if self._cost_function else np.array(cost)
        return Step(np.stack(obs), np.array(reward), *ends, costs)

    def _one(self, i: int, action: np.ndarray) -> tuple[Any, ...]:
        values = self._call(i, lambda: tuple(self.envs[i].step(action)))
        if len(values) not in (5, 6):
            raise self._fault(i, f"step returned {len(values)} values, not 5 (or 6 with a cost)")
        obs, reward, *given, terminated, truncated, info = values
        flat = self._flattened(i, obs)
        reward = self._number(i, "reward", reward, ())
        ends = self._call(i, lambda: (bool(terminated), bool(truncated)))
        info = self._call(i, dict, info) | ({"cost": given[0]} if given else {})
        if self._cost_function is not None:
            return flat, reward, *ends, None
        for key in self._keys:
            if key not in info:
                raise self._fault(i, _missing(key, info))
        costs = [self._number(i, key, info[key], self._cost_shape) for key in self._keys]
        return flat, reward, *ends, np.stack(costs)

    def _number(self, i: int, field: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
        number = self._call(i, np.asarray, value, dtype=np.float64)
        if number.shape != shape:
            raise self._fault(i, f"{field} {value!r} has shape {number.shape}, not {shape}")
        return number

    def snapshot(self) -> dict[str, Any] | None:
        """All that is needed to continue exactly; None unless every environment supports it."""
        states = [snapshots.snapshot(env) for env in self.envs]
        if any(state is None for state in states):
            return None
        each = {
            str(i): {"env": state, "luck": snapshots.from_generator(env.np_random)}
            for i, (env, state) in enumerate(zip(self.envs, states, strict=True))
        }
        return {"each": each, "obs": self._obs, "episode": self._episode, "t": self._t}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a snapshot of as many environments of the same kind."""
        for i, env in enumerate(self.envs):
            one: Any = env
            one.restore(state["each"][str(i)].get("env", {}))
            snapshots.to_generator(env.np_random, state["each"][str(i)]["luck"])
        self._obs, self._seed = state["obs"].copy(), None
        self._episode[:], self._t[:] = state["episode"], state["t"]

    def render(self) -> Any:
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        for env in self.envs:
            env.close()


class _VectorAdapter(Adapted):
    """A vector environment that resets within the step, or by `reset_mask`."""

    def __init__(self, env: VectorEnv, cost: Cost, names: Sequence[str] | None, seed: Seed):
        self.env = env
        # Vector environments without a mode (safety-gymnasium's) reset within the step.
        self._mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.SAME_STEP))
        # Gymnasium's AsyncVectorEnv accepts a reset with a mask in place of the later autoreset.
        # Its workers without shared memory would reset twice; custom workers are unknown.
        async_ = type(env) is AsyncVectorEnv and env.shared_memory and env.worker is None
        if self._mode is AutoresetMode.NEXT_STEP and not async_:
            raise ValueError(
                f"{env!r} resets in the step after an episode's end, which mixes episodes; make "
                "it with autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP (for make_vec: "
                'vector_kwargs={"autoreset_mode": ...}), or pass a function that makes one '
                "environment, with num_envs"
            )
        if names is None and cost == "cost":
            names = getattr(env.unwrapped, "cost_names", None)
        spaces = env.single_observation_space, env.single_action_space
        super().__init__(env, env.num_envs, *spaces, cost, names, seed)

    def __getattr__(self, name: str) -> Any:
        if name not in ("state", "outcome"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        inner = getattr(self.env.unwrapped, name)
        return self._outcome if name == "outcome" else inner

    def _start(self, seed: Any, options: Options) -> np.ndarray:
        obs = self._batch(self.env.reset(seed=seed, options=options)[0])
        self._outcome = getattr(self.env.unwrapped, "outcome", None)
        return obs

    def _restart(self, ended: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
        if self._mode is AutoresetMode.SAME_STEP:
            return self._first_obs
        obs = self._batch(self.env.reset(options={"reset_mask": ended.copy()})[0])
        changed = ~ended & (obs != next_obs).any(axis=1)
        if changed.any():
            problem = "reset_mask also reset this environment, whose episode continues"
            raise self._fault(int(np.argmax(changed)), problem)
        return obs

    def _advance(self, actions: np.ndarray) -> Step:
        obs, reward, *given, terminated, truncated, info = self.env.step(actions)
        self._outcome = getattr(self.env.unwrapped, "outcome", None)
        next_obs = self._batch(obs)
        reward = self._column("reward", reward, np.float64)
        terminated = self._column("terminated", terminated, bool)
        truncated = self._column("truncated", truncated, bool)
        ended = terminated | truncated
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            self._first_obs = next_obs.copy()
            # The second name is that of Gymnasium before 1.0, and so of safety-gymnasium.
            final = info.get("final_obs", info.get("final_observation"))
            for i in map(int, np.flatnonzero(ended)):
                if final is None or final[i] is None:
                    raise self._fault(i, "the episode ended, but info has no final_obs")
                next_obs[i] = self._flattened(i, final[i])
        if self._cost_function is not None:
            return Step(next_obs, reward, terminated, truncated, None)
        if given and self._keys == ("cost",):  # in a six-value step all rows belong to this step
            info = {"cost": given[0]}
        costs = np.stack([self._cost(key, info, ended) for key in self._keys], axis=1)
        return Step(next_obs, reward, terminated, truncated, costs)

    def _cost(self, key: str, info: Mapping[str, Any], ended: np.ndarray) -> np.ndarray:
        """The cost of every environment's step.

        Where an episode ended and `info` belongs to the next one, it is in `final_info`.
        """
        cost = np.empty((self.num_envs, *self._cost_shape))
        final = info["final_info"] if ended.any() and "final_info" in info else info
        if not isinstance(final, Mapping):
            raise self._fault(None, f"final_info is a {type(final).__name__}, not a dict of arrays")
        for source, rows in ((info, ~ended), (final, ended)):
            present = np.broadcast_to(source.get(f"_{key}", key in source), rows.shape)
            if (rows & ~present).any():
                raise self._fault(int(np.argmax(rows & ~present)), _missing(key, source))
            if rows.any():
                values = np.asarray(source[key])
                if values.shape == (self.num_envs, 1):  # one constraint, as [N, k]
                    values = values[:, 0]
                cost[rows] = self._column(key, values, np.float64, self._cost_shape)[rows]
        return cost

    def _column(
        self, field: str, values: Any, dtype: Any, shape: tuple[int, ...] = ()
    ) -> np.ndarray:
        column, expected = np.array(values, dtype=dtype), (self.num_envs, *shape)
        if column.shape != expected:
            raise self._fault(None, f"{field} has shape {column.shape}, not {expected}")
        return column

    def _batch(self, obs: Any) -> np.ndarray:
        """All observations as [N, D], copied: vector environments may reuse their arrays."""
        if isinstance(self._observed, Box):
            dtype = self.single_observation_space.dtype
            batch = self._column("observation", obs, dtype, self._observed.shape)
            return batch.reshape(self.num_envs, -1)
        rows = iterate(self.env.observation_space, obs)
        return np.stack([self._flattened(i, row) for i, row in enumerate(rows)])

    def render(self) -> Any:
        return self.env.render()

    def close_extras(self, **kwargs: Any) -> None:
        self.env.close(**kwargs)


def _conforms(env: VectorEnv) -> bool:
    """Whether env already fulfils the contract of `Adapted`."""
    observed, acted = env.single_observation_space, env.single_action_space
    flat = isinstance(observed, Box) and len(observed.shape) == 1
    if isinstance(acted, Discrete):
        flat = flat and acted.start == 0
    else:
        flat = flat and isinstance(acted, Box) and len(acted.shape) == 1
    same_step = env.metadata.get("autoreset_mode") is AutoresetMode.SAME_STEP
    return flat and same_step and hasattr(env, "cost_names") and hasattr(env, "max_episode_steps")


def _missing(key: str, info: Mapping[str, Any]) -> str:
    keys = sorted(name for name in info if name.removeprefix("_") not in set(info) - {name})
    return f"info has no {key!r}, but {keys}; pass its key, keys or a function as `cost`"
