"""Real experience: the environments of all seeds stepped together under numpy policies."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from surefoot.core.policy import VARIANCE_EPSILON, Policy
from surefoot.core.spaces import ActionSpec
from surefoot.envs.gym import snapshot as snapshots
from surefoot.envs.gym.adapted import EnvironmentFault
from surefoot.learn.ppo import Learner
from surefoot.world.black_box import BlackBox

STARTS = 512
Act = Callable[[np.ndarray, int], Any]
"""What acts at step t: observations [S, n, D] to actions [S, n, …]."""


@dataclass(frozen=True)
class Experience:
    """T real steps of n environments for each of S seeds: arrays of [S, T, n, …]."""

    seeds: list[int]
    obs: np.ndarray
    action: np.ndarray
    """As drawn, before clipping."""
    reward: np.ndarray
    cost: np.ndarray
    next_obs: np.ndarray
    """What truly followed, the final observation where an episode ended."""
    terminated: np.ndarray
    ended: np.ndarray
    before: np.ndarray | None
    """Records of the states, where the task hands over knowledge."""
    after: np.ndarray | None
    episodes: list["Episodes"]
    """For each seed, the episodes that ended."""

    @property
    def steps(self) -> int:
        """Real steps of one seed."""
        return self.reward.shape[1] * self.reward.shape[2]


@dataclass(frozen=True)
class Episodes:
    """Finished episodes of one seed."""

    reward: np.ndarray
    """Return of each, [E]."""
    cost: np.ndarray
    """Costs of each, [E, k]."""
    length: np.ndarray
    """Steps of each, [E]."""

    def mean_cost(self) -> np.ndarray:
        return self.cost.mean(0)

    def cost_error(self) -> np.ndarray:
        """Standard error of the mean cost, [k]; of one episode, the cost itself."""
        if len(self.cost) < 2:
            return self.cost.sum(0)
        return self.cost.std(0, ddof=1) / np.sqrt(len(self.cost))


class Collector:
    """Runs S * n environments; seed s owns the n from s * n on."""

    def __init__(self, env: Any, seeds: list[int], per_seed: int, knowledge: Any = None):
        if env.num_envs != len(seeds) * per_seed:
            raise ValueError(
                f"{env.num_envs} environments cannot serve {len(seeds)} seeds with {per_seed} each"
            )
        self.env, self.seeds, self.per_seed = env, seeds, per_seed
        # Of a black box, and of environments that tell no state, observations are the records.
        told = hasattr(env, "outcome") and not isinstance(knowledge, BlackBox)
        self.knowledge: Any = knowledge if told else None
        self.rngs = [np.random.default_rng([seed, 1]) for seed in seeds]
        self.obs = self._reset(environment_seeds(seeds, per_seed))
        self._starts = [deque(seed, maxlen=STARTS) for seed in self._split(self.obs)]
        k = len(env.cost_names)
        self._reward = np.zeros(env.num_envs)
        self._cost = np.zeros((env.num_envs, k))
        self._length = np.zeros(env.num_envs, dtype=np.int64)

    def _reset(self, seeds: list[int]) -> np.ndarray:
        """First observations, which must be such as the environment says."""
        obs, _ = self.env.reset(seed=seeds)
        shape = self.env.num_envs, *self.env.single_observation_space.shape
        return _numbers("observation", obs, shape, "reset")

    def _split(self, x: np.ndarray) -> np.ndarray:
        """[S * n, …] to [S, n, …]."""
        return np.asarray(x).reshape(len(self.seeds), self.per_seed, *np.shape(x)[1:])

    def collect(
        self,
        policy: Policy | None,
        actions: ActionSpec,
        steps: int,
        greedy: bool = False,
        act: Act | None = None,
    ) -> Experience:
        """`steps` steps of every environment; unfinished episodes go on in the next call.

        `greedy` takes the policy's mode instead of drawing from it. Where `act` is given it acts
        instead of the policy, which is then not asked.
        """
        rows: list[tuple] = []
        finished: list[list[tuple]] = [[] for _ in self.seeds]
        if act is None:
            if policy is None:
                raise ValueError("policy=None: there must be a policy where no act is given")
            act = self.drawing(policy, steps, greedy)
        for t in range(steps):
            before = None if self.knowledge is None else self.env.state()
            obs = self._split(self.obs)
            action = np.asarray(act(obs, t))
            sent = actions.to_env(action).reshape(self.env.num_envs, *action.shape[2:])
            self.obs, reward, terminated, truncated, cost, info = self._step(sent, t)
            ended = terminated | truncated
            next_obs = self.obs
            if ended.any():
                next_obs = np.where(ended[:, None], info["final_obs"], self.obs)
            after = None if self.knowledge is None else self.env.outcome
            rows.append((obs, action, reward, cost, next_obs, terminated, ended, before, after))
            self._count(reward, cost, ended, finished)
            for i in np.flatnonzero(ended):
                self._starts[i // self.per_seed].append(self.obs[i])
        return self._experience(rows, finished)

    def drawing(self, policy: Policy, steps: int, greedy: bool = False) -> Act:
        """What draws a policy's actions for so many steps, from each seed's own generator."""
        noise = self._noise(policy, steps, greedy)
        return lambda obs, t: policy.sample(obs, noise[t])

    def records(self) -> np.ndarray:
        """Records [S, n, R] of where the environments are now; else what they show."""
        if self.knowledge is None:
            return self._split(self.obs).astype(np.float32)
        return self._split(self.knowledge.record(self.env.state()))

    def begins(self) -> np.ndarray:
        """Which environments are at the first step of an episode, [S, n]."""
        return self._split(self._length == 0)

    def _step(self, actions: np.ndarray, t: int) -> tuple[Any, ...]:
        """One step of all environments, whose own mistakes are told as theirs."""
        n = self.env.num_envs
        try:
            obs, reward, terminated, truncated, info = self.env.step(actions)
            cost = np.asarray(info["cost"], np.float64).reshape(n, -1)
        except EnvironmentFault:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise EnvironmentFault(f"environments, step {t} of the epoch: {problem}") from error
        when, shape = f"step {t} of the epoch", self.obs.shape
        obs, reward = _numbers("observation", obs, shape, when), _numbers("reward", reward, n, when)
        cost = _numbers("cost", cost, self._cost.shape, when)
        ends = []
        for name, values in (("terminated", terminated), ("truncated", truncated)):
            if np.shape(values) != (n,):
                raise EnvironmentFault(
                    f"environments, {when}: {name} has shape {np.shape(values)}, not {(n,)}"
                )
            ends.append(np.asarray(values, bool))
        ended = ends[0] | ends[1]
        if ended.any():
            if "final_obs" not in info:
                i = int(np.argmax(ended))
                raise EnvironmentFault(
                    f"environment {i}, {when}: the episode ended, but info has no final_obs"
                )
            _numbers("final_obs", info["final_obs"], shape, when, ended)
        return obs, reward, *ends, cost, info

    def snapshot(self) -> dict[str, Any]:
        """All that is needed to go on; without `env` where the environments cannot tell theirs."""
        env = snapshots.snapshot(self.env)
        sums = {"reward": self._reward, "cost": self._cost, "length": self._length}
        return {
            **({} if env is None else {"env": env}),
            "obs": self.obs,
            "sums": {name: x.copy() for name, x in sums.items()},
            "starts": {str(s): np.stack(list(starts)) for s, starts in enumerate(self._starts)},
            "rngs": {str(s): snapshots.from_generator(rng) for s, rng in enumerate(self.rngs)},
        }

    def restore(self, state: dict[str, Any], epoch: int) -> None:
        """Go on from a snapshot taken after so many epochs.

        Environments that could not tell their state begin new episodes, with seeds that only this
        epoch has: a run is then as good as before, but not the same.
        """
        try:
            self._restore(state, epoch)
        except (LookupError, TypeError, AttributeError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise ValueError(f"the checkpoint does not fit the environments: {problem}") from error

    def _restore(self, state: dict[str, Any], epoch: int) -> None:
        for s, rng in enumerate(self.rngs):
            snapshots.to_generator(rng, state["rngs"][str(s)])
            self._starts[s] = deque(state["starts"][str(s)], maxlen=STARTS)
        if "env" not in state:
            self.obs = self._reset(environment_seeds(self.seeds, self.per_seed, epoch))
            return
        self.env.restore(state["env"])
        self.obs, sums = state["obs"], state["sums"]
        self._reward, self._cost, self._length = sums["reward"], sums["cost"], sums["length"]

    def starts(self) -> np.ndarray:
        """The latest first observations of episodes, [S, STARTS, D], in turn where they are few."""
        shape = (STARTS, self.obs.shape[1])
        return np.stack([np.resize(np.stack(list(s)), shape) for s in self._starts])

    def _noise(self, policy: Policy, steps: int, greedy: bool) -> np.ndarray:
        """[T, S, n, A], from each seed's own generator; the same for all choices if greedy."""
        shape = (steps, self.per_seed, policy.actions)
        if greedy:
            same = 0.5 if policy.kind == "categorical" else 0.0
            return np.full((steps, len(self.seeds), *shape[1:]), same, np.float32)
        if policy.kind == "categorical":
            return np.stack([rng.uniform(1e-12, 1.0, shape) for rng in self.rngs], 1)
        return np.stack([rng.standard_normal(shape, np.float32) for rng in self.rngs], 1)

    def _count(
        self, reward: np.ndarray, cost: np.ndarray, ended: np.ndarray, finished: list[list[tuple]]
    ) -> None:
        self._reward += reward
        self._cost += cost
        self._length += 1
        for i in np.flatnonzero(ended):
            finished[i // self.per_seed].append(
                (self._reward[i], self._cost[i].copy(), self._length[i])
            )
            self._reward[i], self._cost[i], self._length[i] = 0.0, 0.0, 0

    def _experience(self, rows: list[tuple], finished: list[list[tuple]]) -> Experience:
        k = self._cost.shape[1]
        return Experience(
            seeds=self.seeds,
            obs=np.stack([r[0] for r in rows], 1).astype(np.float32),
            action=np.stack([r[1] for r in rows], 1),
            reward=self._stack(rows, 2),
            cost=self._stack(rows, 3),
            next_obs=self._stack(rows, 4),
            terminated=self._stack(rows, 5, bool),
            ended=self._stack(rows, 6, bool),
            before=self._records([row[7] for row in rows]),
            after=self._records([row[8] for row in rows]),
            episodes=[
                Episodes(
                    np.array([e[0] for e in seed]),
                    np.array([e[1] for e in seed]).reshape(len(seed), k),
                    np.array([e[2] for e in seed], dtype=np.int64),
                )
                for seed in finished
            ],
        )

    def _records(self, states: list[Any]) -> np.ndarray | None:
        """Records [S, T, n, R] of real states, all made in one go."""
        if self.knowledge is None:
            return None
        joined = jax.tree.map(lambda *parts: np.concatenate(parts), *states)
        records = self.knowledge.record(joined)
        shape = (len(states), len(self.seeds), self.per_seed, -1)
        return records.reshape(shape).swapaxes(0, 1)

    def _stack(self, rows: list[tuple], i: int, dtype: Any = np.float32) -> np.ndarray:
        return np.stack([self._split(row[i]) for row in rows], 1).astype(dtype)


def environment_seeds(seeds: list[int], per_seed: int, restart: int = 0) -> list[int]:
    """A number for every environment, which depends on its seed and place there alone.

    Environments that are seeded once more, after an epoch `restart`, get others.
    """
    more = [restart] if restart else []
    return [
        int(np.random.SeedSequence([seed, i, *more]).generate_state(1)[0])
        for seed in seeds
        for i in range(per_seed)
    ]


def _numbers(
    name: str, values: Any, shape: Any, when: str, where: np.ndarray | None = None
) -> np.ndarray:
    """Values of all environments as an array of a shape; a fault if they are not finite numbers.

    Rows outside `where` may be anything: Gymnasium leaves them undefined.
    """
    array, shape = np.asarray(values), shape if isinstance(shape, tuple) else (shape,)
    if array.shape != shape:
        raise EnvironmentFault(f"environments, {when}: {name} has shape {array.shape}, not {shape}")
    if array.dtype.kind not in "fiub":
        raise EnvironmentFault(f"environments, {when}: {name} is {array.dtype}, not numbers")
    finite = np.isfinite(array)
    if not (finite if where is None else finite[where]).all():
        bad = ~finite if where is None else ~finite & where.reshape(-1, *[1] * (array.ndim - 1))
        i = int(np.argwhere(bad)[0][0])
        raise EnvironmentFault(f"environment {i}, {when}: {name} is {array[i]}")
    return array


def numpy_policy(learner: Learner, actions: ActionSpec) -> Policy:
    """The policies of a learner with a leading axis of seeds, for acting."""
    actor, scale = learner.actor, learner.normalizer
    array = lambda x: np.asarray(x)
    return Policy(
        tuple(array(w) for w in actor.network.weights),
        tuple(array(b) for b in actor.network.biases),
        None if actor.log_std is None else array(actor.log_std),
        np.asarray(actions.low, np.float32),
        np.asarray(actions.high, np.float32),
        None if scale is None else array(scale.mean),
        None if scale is None else np.sqrt(array(scale.var) + VARIANCE_EPSILON),
        kind="categorical" if actor.log_std is None else "gaussian",
    )
