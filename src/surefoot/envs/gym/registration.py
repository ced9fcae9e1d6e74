"""Gymnasium's registry: `gymnasium.make_vec("surefoot/PointGoal-v0", num_envs=64)`.

Called by `import surefoot`, so nothing heavy is imported here.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from surefoot.envs.base import Info
from surefoot.envs.task import BUILTIN, make


def register() -> None:
    """Register the built-in tasks under the namespace `surefoot`."""
    for name in BUILTIN:
        gymnasium.register(
            f"surefoot/{name}-v0",
            entry_point=f"{__name__}:SingleEnv",
            vector_entry_point=f"{__name__}:make_vector",
            kwargs={"task": name},
            order_enforce=False,
        )


def make_vector(task: str, num_envs: int = 1, **options: object) -> VectorEnv:
    """What `gymnasium.make_vec` calls."""
    return make(task, num_envs=num_envs, **options)


class SingleEnv(gymnasium.Env):
    """A built-in task for one robot, without auto-reset.

    `info` holds `cost`, the sum over constraints, and `cost_<name>` for each, as floats.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, task: str, **options: Any):
        self.vector = make(task, **options)
        self.observation_space = self.vector.single_observation_space
        self.action_space = self.vector.single_action_space
        self.render_mode = self.vector.render_mode
        self.max_episode_steps = self.vector.max_episode_steps

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        obs, info = self.vector.reset(seed=seed, options=options)
        return obs[0], info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, Info]:
        obs, reward, terminated, truncated, info = self.vector.step(np.asarray(action)[None])
        last = info["final_obs"][0] if "final_obs" in info else obs[0]
        costs = info["cost"][0].tolist()
        out = {"cost": float(sum(costs))}
        out |= {f"cost_{name}": c for name, c in zip(self.vector.cost_names, costs, strict=True)}
        return last, float(reward[0]), bool(terminated[0]), bool(truncated[0]), out

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        pictures = self.vector.render()
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        self.vector.close()
