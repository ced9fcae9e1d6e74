"""Anyone's Gymnasium environment as a Surefoot environment: one contract, whatever the source."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, flatten_space
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import iterate

from surefoot.envs.gym import snapshot as snapshots
from surefoot.envs.gym.adapted import Adapted, Cost, EnvironmentFault, Seed

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

    env: an environment; a function that makes one, or a registered id (`num_envs` copies are
        made); or a vector environment. Environments with the six-value step of safety-gymnasium
        (cost after reward) are understood too.
    cost: a key of `info`; several keys; or a function of batches, `cost(obs, action, next_obs)`
        with shapes [N, D], [N, A] (or [N] for discrete actions), [N, D], giving [N] or [N, k].
        `next_obs` is where the step led, also when the episode ended there. Under a key give
        floats: Gymnasium's vector environments merge infos by the type of the first.
    cost_names: one name for each constraint; needed where one key or function gives several.
    seed: for the first reset: environment i gets seed + i, or the i-th of a sequence. Resets at
        the ends of episodes go on with the environment's own random stream.

    Observations come flattened to [N, D], actions go in flattened as [N, A]; discrete actions
    count from 0, whatever their start.
    """
    if isinstance(env, VectorEnv):
        if num_envs not in (None, env.num_envs):
            raise ValueError(
                f"num_envs={num_envs}, but the vector environment has {env.num_envs}; leave it out"
            )
        if cost == "cost" and cost_names is None and seed is None and _conforms(env):
            return env
        if type(env) is SyncVectorEnv:
            # Its environments can be driven directly, which is exact for every autoreset mode and
            # spares its merging of infos (where a first cost of int type truncates the others).
            return _SyncAdapter(env.envs, cost, cost_names, seed)
        return _VectorAdapter(env, cost, cost_names, seed)
    if isinstance(env, gym.Env):
        if num_envs not in (None, 1):
            raise ValueError(
                f"num_envs={num_envs}, but env is a single environment; for several pass a "
                "function that makes one, such as `lambda: MyEnv()`"
            )
        return _SyncAdapter([env], cost, cost_names, seed)
    count = 1 if num_envs is None else num_envs
    if count < 1:
        raise ValueError(f"num_envs={num_envs} must be at least 1")
    if isinstance(env, str):
        # Gymnasium's checker only knows five-value steps; the adapter checks what it needs.
        envs = [gym.make(env, disable_env_checker=True) for _ in range(count)]
    elif callable(env):
        envs = [env() for _ in range(count)]
    else:
        raise ValueError(
            f"env={env!r} is neither an environment, a function that makes one, nor an id"
        )
    for made in envs:
        if not isinstance(made, gym.Env):
            raise ValueError(f"env() gave {made!r}; it should make one gymnasium.Env")
    if len({id(made) for made in envs}) < count:
        raise ValueError(
            "env() gave the same environment twice; it should make a new one each time"
        )
    return _SyncAdapter(envs, cost, cost_names, seed)


class _SyncAdapter(Adapted):
    """Single environments, one after the other."""

    def __init__(self, envs: Sequence[gym.Env], cost: Cost, names: Any, seed: Seed):
        first, *others = self.envs = list(envs)
        for i, env in enumerate(others, start=1):
            if env.action_space != first.action_space or (
                flatten_space(env.observation_space).shape
                != flatten_space(first.observation_space).shape
            ):
                raise ValueError(
                    f"environment {i} has spaces {env.observation_space}, {env.action_space}; "
                    f"environment 0 {first.observation_space}, {first.action_space}"
                )
        spaces = first.observation_space, first.action_space
        super().__init__(first, len(envs), *spaces, cost, names, _time_limit(first), seed)

    @contextmanager
    def _blame(self, index: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._fault(index, f"{type(error).__name__}: {error}") from error

    def _first(self, index: int, **kwargs: Any) -> np.ndarray:
        with self._blame(index):
            obs, _ = self.envs[index].reset(**kwargs)
        return self._flattened(index, obs)

    def _start(self, seed: Seed, options: dict[str, Any] | None) -> np.ndarray:
        if not isinstance(seed, Sequence):
            seed = [None if seed is None else seed + i for i in range(self.num_envs)]
        return np.stack([self._first(i, seed=s, options=options) for i, s in enumerate(seed)])

    def _restart(self, ended: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
        obs = next_obs.copy()
        for i in map(int, np.flatnonzero(ended)):
            obs[i] = self._first(i)
        return obs

    def _advance(self, actions: np.ndarray) -> tuple[Any, ...]:
        rows = [self._one(i, action) for i, action in enumerate(actions)]
        obs, reward, terminated, truncated, cost = zip(*rows, strict=True)
        ends = np.array(terminated, dtype=bool), np.array(truncated, dtype=bool)
        return np.stack(obs), np.array(reward), *ends, np.array(cost, dtype=np.float64)

    def _one(self, i: int, action: np.ndarray) -> tuple[Any, ...]:
        with self._blame(i):
            values: tuple[Any, ...] = tuple(self.envs[i].step(action))
        if len(values) == 6:  # safety-gymnasium's
            obs, reward, cost, terminated, truncated, info = values
            info = {**info, "cost": cost}
        elif len(values) == 5:
            obs, reward, terminated, truncated, info = values
        else:
            raise self._fault(i, f"step gave {len(values)} values, not 5 (or 6 with a cost)")
        flat = self._flattened(i, obs)
        reward = self._number(i, "reward", reward, ())
        with self._blame(i):
            ends, info = (bool(terminated), bool(truncated)), dict(info)
        if self._cost_function is not None:
            return flat, reward, *ends, np.nan
        for key in self._keys:
            if key not in info:
                raise self._fault(i, _missing(key, info))
        costs = [self._number(i, key, info[key], self._cost_shape) for key in self._keys]
        return flat, reward, *ends, costs[0] if len(costs) == 1 else np.stack(costs)

    def _number(self, i: int, field: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
        with self._blame(i):
            number = np.asarray(value, dtype=np.float64)
        if number.shape != shape:
            raise self._fault(i, f"{field} {value!r} has shape {number.shape}, not {shape}")
        return number

    def snapshot(self) -> dict[str, Any] | None:
        """All that is needed to go on exactly, if every environment tells (see `snapshot.py`)."""
        own = [snapshots.snapshot(env) for env in self.envs]
        if any(state is None for state in own):
            return None
        luck = [snapshots.from_generator(env.np_random) for env in self.envs]
        each = {
            str(i): {"env": e, "luck": r} for i, (e, r) in enumerate(zip(own, luck, strict=True))
        }
        return {"each": each, "obs": self._obs, "episode": self._episode, "t": self._t}

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse of `snapshot`, for as many environments of the same kind."""
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
    """A vector environment, its ends of episodes brought into the step where they happen."""

    def __init__(self, env: VectorEnv, cost: Cost, names: Any, seed: Seed):
        self.env = env
        # Vector environments older than the modes (safety-gymnasium's) reset within the step.
        self._mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.SAME_STEP))
        if self._mode is AutoresetMode.NEXT_STEP and not _resets_by_mask(env):
            raise ValueError(
                f"{env!r} resets in the step after an episode's end, which mixes episodes; make "
                "it with autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP (for make_vec: "
                'vector_kwargs={"autoreset_mode": ...}), or pass a function that makes one '
                "environment, with num_envs"
            )
        if names is None and cost == "cost":
            names = getattr(env.unwrapped, "cost_names", None)
        spaces = env.single_observation_space, env.single_action_space
        super().__init__(env, env.num_envs, *spaces, cost, names, _time_limit(env), seed)

    def _start(self, seed: Any, options: dict[str, Any] | None) -> np.ndarray:
        return self._batch(self.env.reset(seed=seed, options=options)[0])

    def _restart(self, ended: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
        if self._mode is AutoresetMode.SAME_STEP:
            return self._first_obs
        obs = self._batch(self.env.reset(options={"reset_mask": ended.copy()})[0])
        changed = ~ended & (obs != next_obs).any(axis=1)
        if changed.any():
            problem = "reset_mask reset this environment too, though its episode goes on"
            raise self._fault(int(np.argmax(changed)), problem)
        return obs

    def _advance(self, actions: np.ndarray) -> tuple[Any, ...]:
        obs, reward, *given, terminated, truncated, info = self.env.step(actions)
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
            return next_obs, reward, terminated, truncated, None
        if given and self._keys == ("cost",):  # safety-gymnasium's: all rows are this step's
            info = {"cost": given[0]}
        costs = [self._cost(key, info, ended) for key in self._keys]
        cost = costs[0] if len(costs) == 1 else np.stack(costs, axis=1)
        return next_obs, reward, terminated, truncated, cost

    def _cost(self, key: str, info: Mapping[str, Any], ended: np.ndarray) -> np.ndarray:
        """The cost of every environment's step; where it ended an episode and `info` is already
        the next episode's, it stands in `final_info`."""
        cost = np.empty((self.num_envs, *self._cost_shape))
        final = info["final_info"] if ended.any() and "final_info" in info else info
        if not isinstance(final, Mapping):
            raise self._fault(None, f"final_info is a {type(final).__name__}, not a dict of arrays")
        for source, rows in ((info, ~ended), (final, ended)):
            there = np.broadcast_to(source.get(f"_{key}", key in source), rows.shape)
            if (rows & ~there).any():
                raise self._fault(int(np.argmax(rows & ~there)), _missing(key, source))
            if rows.any():
                cost[rows] = self._column(key, source[key], np.float64, self._cost_shape)[rows]
        return cost

    def _column(self, field: str, values: Any, dtype: Any, shape: tuple = ()) -> np.ndarray:
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
    """Whether env keeps Surefoot's contract by itself."""
    observed, acted = env.single_observation_space, env.single_action_space
    flat = isinstance(observed, Box) and len(observed.shape) == 1
    if isinstance(acted, Discrete):
        flat = flat and acted.start == 0
    else:
        flat = flat and isinstance(acted, Box) and len(acted.shape) == 1
    same_step = env.metadata.get("autoreset_mode") is AutoresetMode.SAME_STEP
    return flat and same_step and hasattr(env, "cost_names") and hasattr(env, "max_episode_steps")


def _resets_by_mask(env: VectorEnv) -> bool:
    """Whether a reset with a mask right after the end takes the place of the later autoreset.

    So it does in Gymnasium's AsyncVectorEnv, except that its workers without shared memory would
    reset once more; what custom workers, wrappers and others make of it is unknown.
    """
    return type(env) is AsyncVectorEnv and env.shared_memory and env.worker is None


def _time_limit(env: gym.Env | VectorEnv) -> int | None:
    """Most steps of an episode, as far as the environment or one of its wrappers tells."""
    layer: Any = env
    while layer is not None:
        for name in ("max_episode_steps", "_max_episode_steps"):
            if isinstance(limit := getattr(layer, name, None), int):
                return limit
        layer = getattr(layer, "env", None)
    return None if env.spec is None else env.spec.max_episode_steps


def _missing(key: str, info: Mapping[str, Any]) -> str:
    there = sorted(name for name in info if name.removeprefix("_") not in set(info) - {name})
    return f"info has no {key!r}, but {there}; pass its key, keys or a function as `cost`"
