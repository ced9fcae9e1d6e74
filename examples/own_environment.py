"""Your own environment: train, evaluate, add the safety filter, film.

A cart should go far, but its motor must not run hot. The motor warms with the square of its force
and cools towards the room's 20 °C. Distance is the reward; a step that ends above 60 °C costs 1.
The class is a plain Gymnasium environment; nothing in it knows of Surefoot.

    python examples/own_environment.py

This takes a few minutes on two CPU cores, writes runs/warm-cart with curve.png and clip.gif, and
ended with this (2026-11-16, seed 0, 50 fresh episodes):

    policy: reward 45.0, cost 9.9 (limit 10), 60% of episodes within it
    filter: reward 46.5, cost 0.0 (limit 10), 100% of episodes within it
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

import surefoot

ROOM, LIMIT = 20.0, 60.0  # °C
# By reference, so that every command works on the run's folder alone.
HERE = Path(__file__).resolve()
CART, HEAT = f"{HERE}:WarmCart", f"{HERE}:heat"


# --8<-- [start:env]
class WarmCart(gym.Env):
    """Observation: speed (m/s) and motor temperature (°C). Action: force from -1 to 1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    observation_space = Box(np.array([-np.inf, ROOM]), np.array([np.inf, np.inf]), dtype=np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float64)

    def __init__(self, render_mode=None, max_episode_steps=200):
        self.render_mode, self.max_episode_steps = render_mode, max_episode_steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.speed = 0.0
        self.temperature = self.np_random.uniform(ROOM, 40.0)
        self.steps = 0
        return self._observation(), {}

    def step(self, action):
        force = float(np.clip(action[0], -1.0, 1.0))
        self.speed += 0.1 * (force - 0.2 * self.speed)
        self.place += 0.1 * self.speed
        self.temperature += 5.0 * force**2 - 0.05 * (self.temperature - ROOM)
        self.steps += 1
        info = {
            "cost": float(self.temperature > LIMIT),
            "heat": float(self.temperature > LIMIT),
            "speeding": float(self.speed > 2.5),
        }
        truncated = self.steps == self.max_episode_steps
        return self._observation(), 0.1 * self.speed, False, truncated, info

    def render(self):
        """The cart on its track, and its temperature as colour and bar."""
        picture = np.full((120, 320, 3), 245, np.uint8)
        warm = np.clip((self.temperature - ROOM) / (LIMIT - ROOM), 0.0, 1.0)
        colour = np.array([40 + 190 * warm, 120 - 70 * warm, 200 - 160 * warm], np.uint8)
        x = int(10 + 300 * (self.place % 10.0) / 10.0)
        picture[80:82] = 160
        picture[60:80, max(0, x - 15) : x + 15] = colour
        height = int(90 * min(self.temperature, 100.0) / 100.0)
        picture[110 - height : 110, 300:312] = colour
        picture[110 - int(0.9 * LIMIT), 296:316] = 0  # the limit
        return picture

    def _observation(self):
        return np.array([self.speed, self.temperature])


def heat(obs, action, next_obs):
    """The cost as a function of batches, so that the model need not learn it."""
    return (next_obs[:, 1] > LIMIT) * 1.0


# --8<-- [end:env]


# --8<-- [start:main]
def main(out="runs/warm-cart", fresh=20, **settings):
    run = surefoot.train(CART, cost=HEAT, known=("cost",), cost_limit=10, out=out, **settings)
    for plan in (None, "filter"):
        result = surefoot.evaluate(run, episodes=fresh, plan=plan)
        print(
            f"{plan or 'policy':>6}: reward {result['reward']:.1f}, cost {result['cost']:.1f} "
            f"(limit {result['cost_limit']:g}), {result['within_limit']:.0%} of episodes within it"
        )
    clip = surefoot.film(run, Path(run) / "clip.gif")
    print(f"figure: {Path(run) / 'curve.png'}\nclip:   {clip}")
    return run


# --8<-- [end:main]


if __name__ == "__main__":
    main()
