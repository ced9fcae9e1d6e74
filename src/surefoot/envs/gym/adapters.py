"""Any Gymnasium environment as a Surefoot environment."""

import reprlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, flatdim
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import iterate

from surefoot.envs.base import Info
from surefoot.envs.gym import snapshot as snapshots
from surefoot.envs.gym.adapted import (
    Adapted,
    Cost,
    EnvironmentFault,
    MissingCost,
    Seed,
    Step,
    described,
    flat_action_space,
    shaped,
)

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
        are made); or a vector environment that resets within the step. Environments may return six
        values from `step`, with the cost after the reward, as in safety-gymnasium.
    cost: a key of `info`; several keys; or a function of batches, `cost(obs, action, next_obs)`
        with shapes [N, D], [N, A] (or [N] for a Discrete), [N, D], returning [N] or [N, k].
        Observations are flattened, the action is the one that the environment takes, and
        `next_obs` is the result of the step, also when the episode ended there. Store floats under
        a key: Gymnasium's vector environments merge infos by the type of the first.
    cost_names: one name per constraint; needed where one key or function holds several.
    seed: for the first reset: environment i gets seed + i, or the i-th of a sequence. Resets at
        the ends of episodes continue the environment's random stream.

    Observations are flattened to [N, D], actions to [N, A]. Discrete actions count from 0, and
    MultiDiscrete and MultiBinary ones become a single Discrete over all combinations. Costs are
    [N, k]. If the vector environment has `state()` and `outcome`, so has the result.
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
        spaces = first.observation_space, first.action_space
        for i, env in enumerate(others, start=1):
            same_size = flatdim(env.observation_space) == flatdim(spaces[0])
            if env.action_space != spaces[1] or not same_size:
                raise ValueError(
                    f"environment {i} has spaces {env.observation_space}, {env.action_space}; "
                    f"environment 0 {spaces[0]}, {spaces[1]}"
                )
        super().__init__(first, len(envs), spaces, cost, names, seed)
        self._episode = np.ones(len(envs), dtype=int)
        self._t = np.zeros(len(envs), dtype=int)

    @contextmanager
    def _naming(self, i: int) -> Iterator[None]:
        """Turn exceptions into faults that name environment i and its step."""
        try:
            yield
        except (Exception, SystemExit) as error:
            t, episode = self._t[i], self._episode[i]
            when = f"step {t} of episode {episode}" if t else f"reset into episode {episode}"
            problem = f"environment {i}, {when}: {described(error)}"
            raise EnvironmentFault(problem) from error

    def _start(self, seed: Seed, options: Info | None) -> np.ndarray:
        self._episode[:], self._t[:] = 1, 0
        if not isinstance(seed, Sequence):
            seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        else:
            seeds = seed
        return np.stack([self._first(i, s, options) for i, s in enumerate(seeds)])

    def _first(self, i: int, seed: int | None = None, options: Info | None = None) -> np.ndarray:
        with self._naming(i):
            values = self.envs[i].reset(seed=seed, options=options)
            if not isinstance(values, tuple | list) or len(values) != 2:
                many = _count(values)
                raise ValueError(f"reset returned {many}; must be two: obs, info")
            return self._flattened(values[0])

    def _advance(self, actions: np.ndarray) -> Step:
        self._t += 1
        rows = [self._one(i, action) for i, action in enumerate(actions)]
        next_obs, reward, terminated, truncated, cost = map(np.array, zip(*rows, strict=True))
        obs, ended = next_obs.copy(), terminated | truncated
        self._episode[ended] += 1
        self._t[ended] = 0
        for i in np.flatnonzero(ended).tolist():
            obs[i] = self._first(i)
        return Step(next_obs, obs, reward, terminated, truncated, cost)

    def _one(self, i: int, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool, bool, list]:
        """Environment i's observation, reward, ends and costs under the keys."""
        with self._naming(i):
            values = self.envs[i].step(action)
            if not isinstance(values, tuple | list) or len(values) not in (5, 6):
                many = _count(values)
                raise ValueError(
                    f"step returned {many}; Gymnasium's API has five: obs, reward, terminated, "
                    f"truncated, info"
                )
            obs, reward, *given, terminated, truncated, info = values
            info = dict(info) | ({"cost": given[0]} if given else {})
            costs = []
            for key in self._keys if self.cost_function is None else ():
                if key not in info:
                    raise MissingCost(_missing(key, info))
                costs.append(shaped(f"info[{key!r}]", info[key], self._cost_shape))
            ends = bool(terminated), bool(truncated)
            return self._flattened(obs), shaped("reward", reward, ()), *ends, costs

    def snapshot(self) -> Info | None:
        """All that is needed to continue exactly; None unless every environment supports it."""
        states = [snapshots.snapshot(env) for env in self.envs]
        if any(state is None for state in states):
            return None
        each = {
            str(i): {"env": state, "luck": snapshots.from_generator(env.np_random)}
            for i, (env, state) in enumerate(zip(self.envs, states, strict=True))
        }
        return {"each": each, "obs": self._obs, "episode": self._episode, "t": self._t}

    def restore(self, state: Info) -> None:
        """Continue from a snapshot of as many environments of the same kind."""
        for i, env in enumerate(self.envs):
            one = state["each"][str(i)]
            env.get_wrapper_attr("restore")(one.get("env", {}))
            snapshots.to_generator(env.np_random, one["luck"])
        self._obs, self._seed = state["obs"].copy(), None
        self._episode[:], self._t[:] = state["episode"], state["t"]

    def render(self) -> tuple[object, ...]:  # type: ignore[override]
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: object) -> None:
        for env in self.envs:
            env.close()


class _VectorAdapter(Adapted):
    """A vector environment that resets within the step."""

    def __init__(self, env: VectorEnv, cost: Cost, names: Sequence[str] | None, seed: Seed):
        self.env = env
        # Vector environments without a mode (safety-gymnasium's) reset within the step.
        mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.SAME_STEP))
        if mode is not AutoresetMode.SAME_STEP:
            raise ValueError(
                f"{env!r} does not reset within the step that ends an episode; pass a function "
                "that makes one environment, with num_envs, or make the vector environment with "
                "autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP"
            )
        if names is None and cost == "cost":
            names = getattr(env.unwrapped, "cost_names", None)
        spaces = env.single_observation_space, env.single_action_space
        super().__init__(env, env.num_envs, spaces, cost, names, seed)

    def __getattr__(self, name: str) -> object:
        if name in ("state", "outcome"):
            return getattr(self.env.unwrapped, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _start(self, seed: Seed, options: Info | None) -> np.ndarray:
        seeds = seed if seed is None or isinstance(seed, int) else list(seed)
        return self._batch(self.env.reset(seed=seeds, options=options)[0])  # type: ignore[arg-type]

    def _advance(self, actions: np.ndarray) -> Step:
        obs, reward, *given, terminated, truncated, info = self.env.step(actions)
        obs, reward = self._batch(obs), np.array(reward, np.float64)
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        ended = terminated | truncated
        next_obs = obs.copy()
        # The second name is that of Gymnasium before 1.0, and so of safety-gymnasium.
        final = info.get("final_obs", info.get("final_observation"))
        for i in np.flatnonzero(ended).tolist():
            if final is None:
                raise ValueError(f"environment {i}: the episode ended, but info has no final_obs")
            next_obs[i] = self._flattened(final[i])
        if given and self._keys == ("cost",):  # in a six-value step all rows belong to this step
            info = {"cost": given[0]}
        costs = np.empty((self.num_envs, len(self._keys), *self._cost_shape))
        if self.cost_function is None:
            for j, key in enumerate(self._keys):
                costs[:, j] = self._cost(key, info, ended)
        return Step(next_obs, obs, reward, terminated, truncated, costs)

    def _cost(self, key: str, info: Info, ended: np.ndarray) -> np.ndarray:
        """The cost of every environment's step.

        Where an episode ended and `info` belongs to the next one, it is in `final_info`.
        """
        cost = np.empty((self.num_envs, *self._cost_shape))
        for source, rows in ((info, ~ended), (info.get("final_info", info), ended)):
            missing = rows & ~np.broadcast_to(source.get(f"_{key}", key in source), rows.shape)
            if missing.any():
                raise MissingCost(f"environment {np.argmax(missing)}: {_missing(key, source)}")
            if rows.any():
                cost[rows] = np.reshape(source[key], cost.shape)[rows]
        return cost

    def _batch(self, obs: object) -> np.ndarray:
        """All observations as [N, D], copied: vector environments may reuse their arrays."""
        if isinstance(self._observed, Box):
            batch = np.array(obs, self.single_observation_space.dtype)
            return batch.reshape(self.num_envs, -1)
        return np.stack([self._flattened(o) for o in iterate(self.env.observation_space, obs)])

    def render(self) -> tuple[np.ndarray, ...] | None:  # type: ignore[override]
        return self.env.render()  # type: ignore[return-value]

    def close_extras(self, **kwargs: object) -> None:
        self.env.close(**kwargs)


def _conforms(env: VectorEnv) -> bool:
    """Whether env already fulfils the contract of `Adapted`."""
    observed, acted = env.single_observation_space, env.single_action_space
    flat = isinstance(observed, Box) and len(observed.shape) == 1
    flat = flat and flat_action_space(acted) == acted
    same_step = env.metadata.get("autoreset_mode") is AutoresetMode.SAME_STEP
    return flat and same_step and hasattr(env, "cost_names") and hasattr(env, "max_episode_steps")


def _missing(key: str, info: Info) -> str:
    keys = sorted(name for name in info if name.removeprefix("_") not in set(info) - {name})
    holds = f"but {', '.join(map(repr, keys))}" if keys else "it is empty"
    return f"info has no {key!r}, {holds}; pass its key, keys or a function as `cost`"


def _count(values: object) -> str:
    """How many values a function returned, or what it returned instead of several."""
    several = isinstance(values, tuple | list)
    return f"{len(values)} values" if several else reprlib.repr(values)
