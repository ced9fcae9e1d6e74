"""Real experience: the environments of all seeds, stepped together."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from surefoot.algorithms.experience import Episodes, Experience
from surefoot.core.arrays import Tree
from surefoot.core.config import LARGEST_FLOAT
from surefoot.core.spaces import ActionSpec
from surefoot.envs.base import TaskEnv
from surefoot.envs.gym import snapshot as snapshots
from surefoot.envs.gym.adapted import EnvironmentFault
from surefoot.world.model import TaskModel

RECENT_STARTS = 512
"""First observations that are remembered, of each seed."""
Generators = Sequence[np.random.Generator]


class Now(NamedTuple):
    """What an actor sees: the present of n environments of each of S seeds."""

    t: int
    """Step of the round, from 0."""
    obs: np.ndarray
    """[S, n, D]."""
    begins: np.ndarray
    """Which environments are at the first step of an episode, [S, n]."""
    state: Tree
    """The environments' true states; None if the model takes observations."""
    model: TaskModel | None

    @property
    def record(self) -> np.ndarray:
        """The states as a model takes them, [S, n, R]."""
        if self.state is None or self.model is None:
            return self.obs.astype(np.float32)
        return self.model.record(self.state).reshape(*self.obs.shape[:2], -1)


Actor = Callable[[Now], np.ndarray]
"""Actions [S, n, …] for what is seen now."""


def uses_state(env: TaskEnv, model: TaskModel | None) -> bool:
    """Whether a model takes true states; a ValueError if the environments have none."""
    if model is None or model.takes_observations:
        return False
    if not (hasattr(env, "state") and hasattr(env, "outcome")):
        raise ValueError(
            f"model={type(model).__name__} takes true states, but the environment has no "
            f"`state()` and `outcome`; see surefoot.envs.base.TaskEnv"
        )
    return True


class Collector:
    """Steps S * n environments; seed s owns the n from s * n on."""

    def __init__(
        self, env: TaskEnv, seeds: Sequence[int], per_seed: int, model: TaskModel | None = None
    ):
        """With a `model` that takes true states, the environments must provide them."""
        if env.num_envs != len(seeds) * per_seed:
            raise ValueError(
                f"{env.num_envs} environments cannot serve {len(seeds)} seeds with {per_seed} each"
            )
        self.env, self.seeds, self.per_seed, self.model = env, list(seeds), per_seed, model
        self._uses_state = uses_state(env, model)
        self.rngs = [np.random.default_rng([seed, 1]) for seed in seeds]
        self.obs = self._reset(environment_seeds(seeds, per_seed))
        self._starts = [deque(seed, maxlen=RECENT_STARTS) for seed in self._split(self.obs)]
        self._reward = np.zeros(env.num_envs)
        self._cost = np.zeros((env.num_envs, len(env.cost_names)))
        self._length = np.zeros(env.num_envs, dtype=np.int64)
        self._bounds = _bounds(env.single_observation_space)
        self._warnings: dict[str, str] = {}
        self._warned: set[str] = set()

    def warnings(self) -> list[str]:
        """What was noticed about the environments since the last call; each only once."""
        overdue = self._length > self.env.max_episode_steps
        if overdue.any():
            i = int(np.argmax(overdue))
            self._warnings["end"] = (
                f"environment {i} has not ended its episode after {self._length[i]} steps, though "
                f"max_episode_steps={self.env.max_episode_steps}: its reward and cost are unknown"
            )
        new = [text for kind, text in self._warnings.items() if kind not in self._warned]
        self._warned |= self._warnings.keys()
        self._warnings = {}
        return new

    def _check_bounds(self, when: str) -> None:
        """Note the first observation outside the space that the environments declare."""
        if self._bounds is None or "bounds" in self._warned or "bounds" in self._warnings:
            return
        outside = (self.obs < self._bounds[0]) | (self.obs > self._bounds[1])
        if outside.any():
            i, j = np.argwhere(outside)[0]
            space = self.env.single_observation_space
            self._warnings["bounds"] = (
                f"environment {i}, {when}: observation[{j}] is {self.obs[i, j]:g}, outside its Box "
                f"from {space.low[j]:g} to {space.high[j]:g}"
            )

    def _reset(self, seeds: list[int]) -> np.ndarray:
        obs, _ = self.env.reset(seed=seeds)
        shape = self.env.num_envs, *self.env.single_observation_space.shape
        return _numbers("observation", obs, shape, "reset")

    def _split(self, x: np.ndarray) -> np.ndarray:
        """[S * n, …] to [S, n, …]."""
        return np.asarray(x).reshape(len(self.seeds), self.per_seed, *np.shape(x)[1:])

    def now(self, t: int = 0) -> Now:
        """What an actor sees."""
        state = self.env.state() if self._uses_state else None
        return Now(t, self._split(self.obs), self._split(self._length == 0), state, self.model)

    def collect(self, actor: Actor, actions: ActionSpec, steps: int, t: int = 0) -> Experience:
        """Take `steps` steps; unfinished episodes continue in the next call.

        `t` is the number of the first step, as the actor sees it.
        """
        rows: list[tuple] = []
        finished: list[list[tuple]] = [[] for _ in self.seeds]
        for i in range(steps):
            now, obs = self.now(t + i), self.obs
            action = np.asarray(actor(now))
            sent = actions.to_env(action).reshape(self.env.num_envs, *action.shape[2:])
            step = self._step(sent, f"step {t + i} of the epoch")
            after = self.env.outcome if self._uses_state else None
            rows.append((obs, action, *step, now.state, after))
            self._count(step, finished)
        return self._experience(rows, finished)

    def _step(self, actions: np.ndarray, when: str) -> tuple[np.ndarray, ...]:
        """Reward, cost, next observation, terminated, ended and failed, [S * n, …], all checked.

        Exceptions name the environment.
        """
        n, shape = self.env.num_envs, self.obs.shape
        try:
            obs, reward, terminated, truncated, info = self.env.step(actions)
            cost = np.asarray(info["cost"], np.float64).reshape(n, -1)
        except EnvironmentFault:
            raise
        except (Exception, SystemExit) as error:
            problem = f"{type(error).__name__}: {error}"
            raise EnvironmentFault(f"environments, {when}: {problem}") from error
        self.obs = next_obs = _numbers("observation", obs, shape, when)
        self._check_bounds(when)
        reward = _numbers("reward", reward, (n,), when)
        cost = _numbers("cost", cost, self._cost.shape, when)
        if (cost < 0).any():
            i = int(np.argmin(cost.min(1)))
            self._warnings["negative"] = (
                f"environment {i}, {when}: the cost is {cost[i].min():g}; a cost below 0 pays for "
                f"others, and a learned model takes it as 0: return benefits as reward"
            )
        terminated = _numbers("terminated", terminated, (n,), when).astype(bool)
        ended = terminated | _numbers("truncated", truncated, (n,), when).astype(bool)
        if ended.any():
            if "final_obs" not in info:
                i = int(np.argmax(ended))
                raise EnvironmentFault(
                    f"environment {i}, {when}: the episode ended, but info has no final_obs"
                )
            _numbers("final_obs", info["final_obs"], shape, when, ended)
            next_obs = np.where(ended[:, None], info["final_obs"], obs)
        failed = np.asarray(info.get("failed", np.zeros(n, bool)))
        return reward, cost, next_obs, terminated, ended, failed

    def snapshot(self) -> dict[str, Tree]:
        """Everything needed to resume; without `env` if the environments have no snapshot."""
        env = snapshots.snapshot(self.env)
        sums = {"reward": self._reward, "cost": self._cost, "length": self._length}
        return {
            **({} if env is None else {"env": env}),
            "obs": self.obs,
            "sums": {name: x.copy() for name, x in sums.items()},
            "starts": {str(s): np.stack(list(starts)) for s, starts in enumerate(self._starts)},
            "rngs": {str(s): snapshots.from_generator(rng) for s, rng in enumerate(self.rngs)},
        }

    def restore(self, state: dict[str, Tree], epoch: int) -> None:
        """Restore a snapshot taken after `epoch` epochs.

        Environments without a snapshot begin new episodes, with seeds that only this epoch has.
        """
        try:
            self._restore(state, epoch)
        except (LookupError, TypeError, AttributeError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise ValueError(f"the checkpoint does not fit the environments: {problem}") from error

    def _restore(self, state: dict[str, Tree], epoch: int) -> None:
        for s, rng in enumerate(self.rngs):
            snapshots.to_generator(rng, state["rngs"][str(s)])
            self._starts[s] = deque(state["starts"][str(s)], maxlen=RECENT_STARTS)
        if "env" not in state:
            self.obs = self._reset(environment_seeds(self.seeds, self.per_seed, epoch))
            return
        self.env.restore(state["env"])
        self.obs, sums = state["obs"], state["sums"]
        self._reward, self._cost, self._length = sums["reward"], sums["cost"], sums["length"]

    def _recent_starts(self) -> np.ndarray | None:
        """[S, RECENT_STARTS, D], repeated if there are fewer; None if nobody needs them."""
        if self.model is None or not self.model.takes_observations:
            return None
        shape = (RECENT_STARTS, self.obs.shape[1])
        starts = np.stack([np.resize(np.stack(list(s)), shape) for s in self._starts])
        return starts.astype(np.float32)

    def _count(self, step: tuple[np.ndarray, ...], finished: list[list[tuple]]) -> None:
        """Add up rewards and costs, and note the episodes that ended."""
        reward, cost, _, _, ended, _ = step
        self._reward += reward
        self._cost += cost
        self._length += 1
        for i in np.flatnonzero(ended) if ended.any() else ():
            seed = i // self.per_seed
            finished[seed].append((self._reward[i], self._cost[i].copy(), self._length[i]))
            self._reward[i], self._cost[i], self._length[i] = 0.0, 0.0, 0
            self._starts[seed].append(self.obs[i])

    def _experience(self, rows: list[tuple], finished: list[list[tuple]]) -> Experience:
        obs, action, reward, cost, next_obs, terminated, ended, failed, before, after = zip(
            *rows, strict=True
        )
        stack = lambda values: self._stack(values).astype(np.float32, copy=False)
        episodes = []
        for seed in finished:
            totals, costs, lengths = zip(*seed, strict=True) if seed else ((), (), ())
            costs = np.array(costs).reshape(len(seed), self._cost.shape[1])
            episodes.append(Episodes(np.array(totals), costs, np.array(lengths, np.int64)))
        return Experience(
            seeds=self.seeds,
            obs=stack(obs),
            action=np.stack(action, 1),
            reward=stack(reward),
            cost=stack(cost),
            next_obs=stack(next_obs),
            terminated=self._stack(terminated),
            ended=self._stack(ended),
            failed=self._stack(failed),
            before=self._records(before),
            after=self._records(after),
            episodes=episodes,
            starts=self._recent_starts(),
        )

    def _stack(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """T arrays [S * n, …] as [S, T, n, …]."""
        shape = (len(values), len(self.seeds), self.per_seed, *values[0].shape[1:])
        together = np.concatenate(values).reshape(shape)
        return np.ascontiguousarray(together.swapaxes(0, 1))

    def _records(self, states: Sequence[Tree]) -> np.ndarray | None:
        """Records [S, T, n, R] of real states."""
        if self.model is None or not self._uses_state:
            return None
        together = jax.tree.map(lambda *parts: np.concatenate(parts), *states)
        records = self.model.record(together)
        shape = (len(states), len(self.seeds), self.per_seed, -1)
        return records.reshape(shape).swapaxes(0, 1)


def environment_seeds(seeds: Sequence[int], per_seed: int, restart: int = 0) -> list[int]:
    """A seed for every environment, which depends on the run's seed and its place there alone.

    Environments that are seeded again, after the epoch `restart`, get other numbers.
    """
    more = [restart] if restart else []
    return [
        int(np.random.SeedSequence([seed, i, *more]).generate_state(1)[0])
        for seed in seeds
        for i in range(per_seed)
    ]


def _bounds(space: object) -> tuple[np.ndarray, np.ndarray] | None:
    """Bounds of observations, with room for rounding; None if there are none."""
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if low is None or high is None or np.isinf([low, high]).all():
        return None
    room = lambda bound: 1e-4 * np.maximum(1.0, np.abs(bound))
    return low - room(low), high + room(high)


def _numbers(
    name: str,
    values: object,
    shape: tuple[int, ...],
    when: str,
    where: np.ndarray | None = None,
) -> np.ndarray:
    """Values of all environments as an array; raises EnvironmentFault if one is too large or NaN.

    Rows outside `where` may be anything: Gymnasium leaves them undefined.
    """
    array = np.asarray(values)
    if array.shape != shape:
        raise EnvironmentFault(f"environments, {when}: {name} has shape {array.shape}, not {shape}")
    if array.dtype.kind not in "fiub":
        raise EnvironmentFault(f"environments, {when}: {name} is {array.dtype}, not numbers")
    if array.dtype.kind == "b" or np.abs(array).max(initial=0) < LARGEST_FLOAT:
        return array
    finite = np.abs(array) < LARGEST_FLOAT  # false for NaN
    if not (finite if where is None else finite[where]).all():
        bad = ~finite if where is None else ~finite & where.reshape(-1, *[1] * (array.ndim - 1))
        i = int(np.argwhere(bad)[0][0])
        problem = f"{name} is {array[i]}"
        if np.isfinite(array[i]).all():
            problem += f"; it must be below {LARGEST_FLOAT:g}, use smaller units"
        raise EnvironmentFault(f"environment {i}, {when}: {problem}")
    return array
