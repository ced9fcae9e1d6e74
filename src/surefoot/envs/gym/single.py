"""A built-in task with the interface of a single Gymnasium environment."""

from typing import Any

import gymnasium
import numpy as np

from surefoot.envs.base import TaskEnv


class SingleEnv(gymnasium.Env):
    """A task for one robot, without auto-reset.

    `info` holds `cost`, the sum over constraints, and `cost_<name>` for each, as floats.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, vector: TaskEnv):
        self.vector = vector
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space
        self.render_mode = vector.render_mode
        self.max_episode_steps = vector.max_episode_steps

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        obs, info = self.vector.reset(seed=seed, options=options)
        return obs[0], info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.vector.step(np.asarray(action)[None])
        last = info["final_obs"][0] if "final_obs" in info else obs[0]
        costs = info["cost"][0]
        named = zip(self.vector.cost_names, costs.tolist(), strict=True)
        out = {"cost": float(costs.sum()), **{f"cost_{name}": cost for name, cost in named}}
        return last, float(reward[0]), bool(terminated[0]), bool(truncated[0]), out

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        pictures = self.vector.render()
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        self.vector.close()
