"""The largest reward that a Circle task allows, from its robot's top speed.

    python benchmarks/top_speed.py

The robots drive with constant actions, each -1, -0.5, 0, 0.5 or 1, and the fastest is printed. On
the circle itself, of radius 1.5, a step earns a tenth of the speed. On another circle this is
divided by 1 + the difference of the radii. The boundaries of level 1 cut the circle: the largest
circle within them has a smaller radius.
"""

import itertools

import numpy as np

import surefoot

RADIUS = 1.5
"""Of the circle, in metres."""


def top_speed(task: str, steps: int = 200) -> float:
    """Metres per second after `steps` steps of the best constant action."""
    size = surefoot.make(task).action_space.shape[-1]
    actions = np.array(list(itertools.product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=size)))
    env = surefoot.make(task, num_envs=len(actions))
    env.reset(seed=0)
    for _ in range(steps):
        env.step(actions)
    return float(np.linalg.norm(env.state().velocity[:, :2], axis=1).max())


if __name__ == "__main__":
    for robot in ("Point", "Car"):
        env = surefoot.make(f"{robot}Circle1")
        length, speed = env.config.max_episode_steps, top_speed(f"{robot}Circle1")
        most = 0.1 * speed * length
        within = most / (1 + RADIUS - env.config.boundary)
        print(
            f"{robot}Circle1: top speed {speed:.2f} m/s, at most {most:.1f} in {length} steps; "
            f"{within:.1f} on the largest circle within the boundaries"
        )
