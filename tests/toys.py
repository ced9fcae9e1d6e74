"""Small environments and models whose right answers can be worked out."""

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from scipy.optimize import linprog
from scipy.stats import norm

from surefoot.envs.gym.adapters import adapt
from surefoot.learn.ppo import PPOConfig
from surefoot.world.ensemble import Ensemble, Members

BANDIT_PPO = PPOConfig(
    hidden=(8,),
    actor_learning_rate=1e-2,
    epochs=4,
    critic_epochs=1,
    minibatches=4,
    kl_stop=0.05,
    initial_log_std=-1.0,
    minimum_log_std=-1.0,
)
"""Settings under which PPO solves a bandit of one state."""


class Drift(gym.Env):
    """Follow a number that drifts by itself, at a price for every action.

    s' = 1 + 0.8 (s - 1) + 0.3 e with e ~ N(0, 1), whatever the action, from its stationary law
    N(1, 0.5^2) on; reward -(a - s)^2, cost a + 3 >= 0. With at most d per episode of T steps:
    maximise E[-(a(s) - s)^2] subject to E[a(s)] <= d / T - 3. Setting the derivative of the
    Lagrangian with respect to each a(s) to zero gives a(s) = s - lambda / 2, the same offset for
    all s, and the constraint fixes it: a*(s) = s - (E[s] + 3 - d / T), as E[s] = 1.
    """

    observation_space = Box(-np.inf, np.inf, (1,), np.float64)
    action_space = Box(-3.0, 3.0, (1,), np.float64)
    max_episode_steps = 20

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.s = 0, 1 + 0.5 * self.np_random.normal()
        return np.array([self.s]), {}

    def step(self, action):
        a = float(action[0])
        reward, cost = -((a - self.s) ** 2), a + 3.0
        self.s = 1 + 0.8 * (self.s - 1) + 0.3 * self.np_random.normal()
        self.t += 1
        truncated = self.t == self.max_episode_steps
        return np.array([self.s]), reward, False, truncated, {"cost": cost}


def drift_offset(limit: float) -> float:
    """a*(s) - s of `Drift`."""
    return limit / Drift.max_episode_steps - 4.0


class TwoCosts(Drift):
    """With two constraints: its cost, and twice as much."""

    def step(self, action):
        *rest, info = super().step(action)
        return *rest, {"first": info["cost"], "second": 2 * info["cost"]}


def two_costs(num_envs: int):
    return adapt(TwoCosts, cost=("first", "second"), num_envs=num_envs)


class TwoState(gym.Env):
    """Two states, two actions. Action 1 pays and costs, and is worth its cost more in state 0.

    Observations are one-hot.
    """

    observation_space = Box(0.0, 1.0, (2,), np.float64)
    action_space = Discrete(2)
    max_episode_steps = 20
    to_one = np.array([[0.3, 0.6], [0.4, 0.7]])
    """Probability that state 1 follows, by state and action."""
    reward = np.array([[0.0, 1.0], [0.0, 0.5]])
    cost = np.array([[0.0, 0.5], [0.0, 1.0]])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.s = 0, int(self.np_random.integers(2))
        return np.eye(2)[self.s], {}

    def step(self, action):
        here = self.s, int(action)
        self.s = int(self.np_random.random() < self.to_one[here])
        self.t += 1
        truncated = self.t == self.max_episode_steps
        info = {"cost": self.cost[here]}
        return np.eye(2)[self.s], self.reward[here], False, truncated, info

    @classmethod
    def optimum(cls, limit: float) -> float:
        """The best episode reward of all policies, time-dependent ones too, within the limit.

        A linear program over x[t, s, a], the probability of being in s and doing a at time t.
        """
        steps = cls.max_episode_steps
        flow, start = np.zeros((steps, 2, steps, 2, 2)), np.zeros((steps, 2))
        start[0] = 0.5
        to = np.stack([1 - cls.to_one, cls.to_one])  # [s', s, a]
        for t in range(steps):
            for s in range(2):
                flow[t, s, t, s] = 1.0
                if t:
                    flow[t, s, t - 1] = -to[s]
        found = linprog(
            -np.tile(cls.reward.ravel(), steps),
            A_ub=np.tile(cls.cost.ravel(), steps)[None],
            b_ub=[limit],
            A_eq=flow.reshape(2 * steps, -1),
            b_eq=start.ravel(),
        )
        return -found.fun


class Mortal(gym.Env):
    """A chance s ~ N(0, 1) at every step: to take it pays 2 + s, costs 1 and shortens the episode.

    An episode ends with a probability of 2 % per step, 6 % if the chance is taken. All that a
    policy can do is to take the best ones, a share p of all. Then reward, cost and length per
    episode are those per step, r(p), p and 1, over 0.02 + 0.04 p; the time limit hardly matters.
    """

    observation_space = Box(-np.inf, np.inf, (1,), np.float64)
    action_space = Discrete(2)
    max_episode_steps = 200

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.s = 0, self.np_random.normal()
        return np.array([self.s]), {}

    def step(self, action):
        taken = int(action)
        reward, ends = taken * (2.0 + self.s), self.np_random.random() < 0.02 + 0.04 * taken
        self.t, self.s = self.t + 1, self.np_random.normal()
        truncated = self.t == self.max_episode_steps
        return np.array([self.s]), reward, bool(ends), truncated, {"cost": float(taken)}

    @staticmethod
    def optimum(limit: float) -> float:
        """The best episode reward at a cost of `limit`."""
        share = 0.02 * limit / (1 - 0.04 * limit)
        per_step = 2 * share + norm.pdf(norm.isf(share))
        return per_step / (0.02 + 0.04 * share)


class Script(gym.Env):
    """Episodes told beforehand: `ends[e]` says after how many steps the e-th episode terminates.

    Environments without an end run out of time after 6 steps. Observation: steps so far; reward:
    the action; cost: `costs[e]` at every step of the e-th episode.
    """

    observation_space = Box(-np.inf, np.inf, (1,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float64)
    max_episode_steps = 6

    def __init__(self, costs=(0.0,), ends=(99,)):
        self.costs, self.ends, self.episode = costs, ends, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.episode = 0, self.episode + 1
        return np.zeros(1), {}

    def step(self, action):
        self.t += 1
        here = lambda values: values[min(self.episode, len(values) - 1)]
        terminated, truncated = self.t == here(self.ends), self.t == self.max_episode_steps
        info = {"cost": float(here(self.costs))}
        return np.full(1, float(self.t)), float(action[0]), terminated, truncated, info


def linear_ensemble(
    matrices: np.ndarray, offsets: np.ndarray, gaussian: int, std: float = 0.0, elites=None
) -> Ensemble:
    """Members whose outputs are exactly x @ matrix + offset: [n, F, D + b] and [n, D + b].

    x = relu(x) - relu(-x) takes the input through the hidden layer unchanged. The first
    `gaussian` outputs get the deviation `std`, the others are logits.
    """
    n, f, outputs = matrices.shape
    d = gaussian
    logvar = 2 * np.log(max(std, 1e-12))
    last = np.zeros((n, 2 * f, outputs + d))
    bias = np.full((n, outputs + d), logvar)
    for columns, source in ((slice(0, d), slice(0, d)), (slice(2 * d, None), slice(d, None))):
        last[:, :f, columns] = matrices[..., source]
        last[:, f:, columns] = -matrices[..., source]
        bias[:, columns] = offsets[:, source]
    split = np.tile(np.concatenate([np.eye(f), -np.eye(f)], 1), (n, 1, 1))
    array = lambda x: jnp.asarray(x, jnp.float32)
    # Bounds far from the log-variance leave it as it is.
    members = Members(
        weights=(array(split), array(last)),
        biases=(jnp.zeros((n, 2 * f)), array(bias)),
        min_logvar=jnp.full((n, d), logvar - 30.0, jnp.float32),
        max_logvar=jnp.full((n, d), logvar + 30.0, jnp.float32),
    )
    return Ensemble(
        members=members,
        input_mean=jnp.zeros(f),
        input_std=jnp.ones(f),
        target_mean=jnp.zeros(d),
        target_std=jnp.ones(d),
        base_logits=jnp.zeros(outputs - d),
        elites=jnp.arange(n) if elites is None else jnp.asarray(elites),
        activation="relu",
    )
