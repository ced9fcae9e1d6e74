"""Your own environment in Surefoot: a cart that should go far, but not run hot.

The cart's motor warms with the square of the force it gives and cools towards the room's 20 °C.
Distance is the reward; a step that ends above 60 °C costs 1. Nothing in the class knows of
Surefoot: it is a plain Gymnasium environment that reports its cost in `info`.

    python examples/own_environment.py

This trains PPO-Lagrangian for 200,000 steps, in less than a minute on two cores, and ends with:

    epoch 20/20  real steps 200,000  reward 36.86  cost 4.4 ≤ 10  lambda 0.489  violations 3850 …
    reward 37.5, cost 4.8 (limit 10), 96% of episodes within the limit
    run:    runs/WarmCart-ppo-lagrangian-20261116-105431
    figure: runs/WarmCart-ppo-lagrangian-20261116-105431/curve.png
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
    max_episode_steps = 200

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
        truncated = self.steps == self.max_episode_steps
        return self._observation(), 0.1 * self.speed, False, truncated, info

    def _observation(self):
        return np.array([self.speed, self.temperature])


def main() -> None:
    run = surefoot.train(
        WarmCart,
        "ppo-lagrangian",
        cost_limit=10.0,
        steps=200_000,
        steps_per_epoch=10_000,
        **{"ppo.normalise_observations": True},
    )
    result = surefoot.evaluate(run, make_env=WarmCart)
    print(
        f"reward {result['reward']:.1f}, cost {result['cost']:.1f} (limit "
        f"{result['cost_limit']:g}), {result['within_limit']:.0%} of episodes within the limit"
    )
    print(f"run:    {run}\nfigure: {run / 'curve.png'}")


if __name__ == "__main__":
    main()
