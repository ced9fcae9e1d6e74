"""Environments scripted so that every number of every transition is known, and those numbers."""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

F64 = np.float64
MODES = list(AutoresetMode)


class Script(gym.Env):
    """Environment `name`: its e-th episode (from 0) has lengths[e % len] steps.

    obs = (name, episode, t); reward = 100 name + 10 episode + t; cost = reward / 1000 + action;
    odd episodes are truncated, even ones terminated. The info of a reset has a cost too, 99: a
    decoy that no step may ever show.
    """

    def __init__(self, name: int, lengths: tuple[int, ...]):
        self.name, self.lengths, self.episode, self.t = name, lengths, -1, 0
        self.observation_space = Box(-np.inf, np.inf, (3,), F64)
        self.action_space = Box(-1.0, 1.0, (1,), F64)

    def _obs(self):
        return np.array([self.name, self.episode, self.t], F64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {"cost": 99.0, "second": 99.0}

    def step(self, action):
        self.t += 1
        reward = 100.0 * self.name + 10.0 * self.episode + self.t
        end = self.t == self.lengths[self.episode % len(self.lengths)]
        odd = self.episode % 2 == 1
        cost = reward / 1000 + float(action[0])
        info = {"cost": cost, "second": -cost}
        return self._obs(), reward, end and not odd, end and odd, info


class SixValues(Script):
    """The same with the step of safety-gymnasium."""

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        cost = info.pop("cost")
        return obs, reward, cost, terminated, truncated, {"cost_sum": cost}


LENGTHS = ((2, 3), (1,), (4, 1, 2))
STEPS = 12


def makers(kind: type[Script] = Script):
    return [lambda i=i, n=n: kind(i, n) for i, n in enumerate(LENGTHS)]


def actions_for(step: int) -> np.ndarray:
    return np.array([[0.01 * step], [0.02 * step], [-0.03 * step]])


def expected_rows() -> list[list[tuple]]:
    """(obs, reward, cost, terminated, truncated, next_obs, following obs) by plain loops."""
    rows = []
    for i, make in enumerate(makers()):
        env = make()
        obs, _ = env.reset()
        rows.append([])
        for s in range(STEPS):
            next_obs, reward, terminated, truncated, info = env.step(actions_for(s)[i])
            following = env.reset()[0] if terminated or truncated else next_obs
            rows[-1].append((obs, reward, info["cost"], terminated, truncated, next_obs, following))
            obs = following
    return rows


def collected_rows(env: VectorEnv) -> list[list[tuple]]:
    rows = [[] for _ in range(env.num_envs)]
    obs, info = env.reset()
    assert info == {}
    for s in range(STEPS):
        following, reward, terminated, truncated, info = env.step(actions_for(s))
        assert reward.dtype == info["cost"].dtype == F64
        assert info["cost"].shape == (env.num_envs, 1)
        assert terminated.dtype == truncated.dtype == bool
        ended = terminated | truncated
        assert ("final_obs" in info) == ended.any()
        next_obs = following.copy()
        if ended.any():
            assert info["final_obs"].shape == following.shape
            np.testing.assert_array_equal(info["_final_obs"], ended)
            next_obs[ended] = info["final_obs"][ended]
        for i, row in enumerate(rows):
            ends = bool(terminated[i]), bool(truncated[i])
            values = reward[i], info["cost"][i, 0], *ends
            row.append((obs[i], *values, next_obs[i], following[i]))
        obs = following
    env.close()
    return rows


def assert_same(rows, expected):
    assert len(rows) == len(expected)
    for row, right in zip(rows, expected, strict=True):
        for a, b in zip(row, right, strict=True):
            for x, y in zip(a, b, strict=True):
                np.testing.assert_array_equal(x, y)


class Passing(VectorWrapper):
    """Hides that the environment below is a SyncVectorEnv."""
