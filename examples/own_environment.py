"""Your own environment in Surefoot: a cart that should go far, but not run hot.

The cart's motor warms with the square of the force it gives and cools towards the room's 20 °C.
Distance is the reward; a step that ends above 60 °C costs 1. Nothing in the class knows of
Surefoot: it is a plain Gymnasium environment that reports its cost in `info`.

    python examples/own_environment.py
"""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

import surefoot

ROOM, LIMIT = 20.0, 60.0  # °C


class WarmCart(gym.Env):
    """Observation: speed (m/s) and motor temperature (°C). Action: force from -1 to 1."""

    observation_space = Box(np.array([-np.inf, ROOM]), np.array([np.inf, np.inf]), dtype=np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.speed = 0.0
        self.temperature = self.np_random.uniform(ROOM, 40.0)
        self.steps = 0
        return self._observation(), {}

    def step(self, action):
        force = float(np.clip(action[0], -1.0, 1.0))
        self.speed += 0.1 * (force - 0.2 * self.speed)
        self.temperature += 5.0 * force**2 - 0.05 * (self.temperature - ROOM)
        self.steps += 1
        info = {"cost": float(self.temperature > LIMIT)}
        truncated = self.steps == 200
        return self._observation(), 0.1 * self.speed, False, truncated, info

    def _observation(self):
        return np.array([self.speed, self.temperature])


def report(name: str, env: gym.vector.VectorEnv, policy) -> None:
    """One episode in every copy: mean reward and mean cost."""
    obs, _ = env.reset()
    reward, cost = np.zeros(env.num_envs), np.zeros(env.num_envs)
    ended = np.zeros(env.num_envs, dtype=bool)
    while not ended.all():
        obs, r, terminated, truncated, info = env.step(policy(obs))
        reward += r * ~ended
        cost += info["cost"][:, 0] * ~ended
        ended |= terminated | truncated
    print(f"{name:>8}: reward {reward.mean():6.2f}, cost {cost.mean():6.2f} an episode")


if __name__ == "__main__":
    env = surefoot.adapt(WarmCart, num_envs=10, seed=0)
    env.action_space.seed(0)
    report("random", env, lambda obs: env.action_space.sample())
    report("full", env, lambda obs: np.ones((10, 1)))

    # The same constraint as a function of what is observed, for environments that report no cost.
    hot = lambda obs, action, next_obs: (next_obs[:, 1] > LIMIT).astype(float)
    env = surefoot.adapt(WarmCart, cost=hot, num_envs=10, seed=0)
    report("careful", env, lambda obs: np.full((10, 1), 0.6))
