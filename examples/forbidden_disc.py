"""Learning from real steps alone: a way around a forbidden disc, by SAC-Lagrangian.

A point mass goes to and fro between two places. The straight way leads through a disc in which each
step costs 1. It must find a detour, which earns less at first.

    python examples/forbidden_disc.py

This takes one to five minutes on one CPU core and writes runs/forbidden-disc.
"""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

import surefoot

RADIUS, NEAR = 0.5, 0.2
DISC = f"{__file__}:ForbiddenDisc"


# --8<-- [start:env]
class ForbiddenDisc(gym.Env):
    """Observation: position, velocity, way to the goal, way to the disc. Action: acceleration."""

    observation_space = Box(-np.inf, np.inf, (8,), np.float64)
    action_space = Box(-1.0, 1.0, (2,), np.float64)

    def __init__(self, max_episode_steps=200):
        self.max_episode_steps = max_episode_steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.array([-1.0, 0.0]) + self.np_random.uniform(-0.1, 0.1, 2)
        self.speed, self.goal, self.steps = np.zeros(2), np.array([1.0, 0.0]), 0
        return self._observation(), {}

    def step(self, action):
        before = np.linalg.norm(self.goal - self.place)
        self.speed = 0.9 * self.speed + 0.02 * np.clip(action, -1.0, 1.0)
        self.place = self.place + self.speed
        after = np.linalg.norm(self.goal - self.place)
        reward = before - after
        if after < NEAR:
            reward, self.goal = reward + 1.0, -self.goal
        cost = float(np.linalg.norm(self.place) < RADIUS)
        self.steps += 1
        truncated = self.steps == self.max_episode_steps
        return self._observation(), reward, False, truncated, {"cost": cost}

    def _observation(self):
        return np.concatenate([self.place, self.speed, self.goal - self.place, -self.place])


# --8<-- [end:env]


# --8<-- [start:main]
def main(out="runs/forbidden-disc", fresh=50, **settings):
    run = surefoot.train(DISC, "sac-lagrangian", cost_limit=5, out=out, **settings)
    result = surefoot.evaluate(run, episodes=fresh)
    print(
        f"reward {result['reward']:.1f}, cost {result['cost']:.1f} (limit 5), "
        f"{result['within_limit']:.0%} of episodes within it"
    )
    return run


# --8<-- [end:main]


if __name__ == "__main__":
    main()
