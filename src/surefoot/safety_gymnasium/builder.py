"""Single environments with the reference's 6-value step, on top of the native ones."""

from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

from surefoot.envs.base import EXCEPTION_REWARD, TaskEnv
from surefoot.envs.family.env import FamilyEnv
from surefoot.envs.velocity.env import VelocityConfig, VelocityEnv
from surefoot.safety_gymnasium import info as infos
from surefoot.safety_gymnasium.info import Info, Observation
from surefoot.safety_gymnasium.options import family_config, flattens
from surefoot.safety_gymnasium.picture import Picture
from surefoot.safety_gymnasium.task import NavigationTask

SafeStep = tuple[Observation, SupportsFloat, SupportsFloat, bool, bool, Info]
"""Observation, reward, cost, terminated, truncated, info."""
RENDER_MODES = (None, "rgb_array")


class SafetyEnv(gymnasium.Env):
    """One environment; a step returns observation, reward, cost, terminated, truncated, info."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    _arguments: dict[str, object]
    """What a copy is made with."""

    def __init__(self, core: TaskEnv, num_steps: int, render_mode: str | None, **picture: Any):
        if render_mode not in RENDER_MODES:
            raise ValueError(
                f"render_mode={render_mode!r} must be None or 'rgb_array'; depth is left out"
            )
        self.core, self.num_steps, self.render_mode = core, num_steps, render_mode
        self.observation_space: spaces.Space = infos.observation_space(core)
        self.action_space: spaces.Space = infos.action_space(core)
        self.picture = Picture(**picture)
        self.steps = 0
        self.terminated, self.truncated = True, False

    @property
    def done(self) -> bool:
        """Whether `reset` must come before the next step."""
        return self.terminated or self.truncated

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[Observation, Info]:
        """Start an episode. With a seed, its layout and all later draws follow from that seed."""
        obs, _ = self.core.reset(seed=seed)
        self.steps, self.terminated, self.truncated = 0, False, False
        return self._observation(obs[0]), {}

    def step(self, action: np.ndarray) -> SafeStep:  # type: ignore[override]
        """One step. Actions are clipped to their bounds, except in velocity tasks."""
        if self.done:
            raise gymnasium.error.ResetNeeded("call reset() before step(): the episode has ended")
        action = np.asarray(action)
        if action.shape != self.action_space.shape:
            raise ValueError(
                f"action has the shape {action.shape}; it must be {self.action_space.shape}"
            )
        core, before = self.core, infos.places(self.core)
        actions = core._checked(action[None])
        # Not `core.step`: that would start the next episode, and so draw its layout, by itself.
        reward, cost, terminated, failed = core.advance(actions)
        core.outcome = core._outcome()
        columns = infos.step_columns(core, before, actions)
        core.elapsed += 1
        core.episode_reward += reward
        core.episode_cost += cost
        self.steps += 1
        self.terminated = bool(terminated[0])
        self.truncated = bool(failed[0]) or self.steps >= self.num_steps
        info = infos.pick(columns, 0)
        if failed[0]:
            reward, info = np.full(1, EXCEPTION_REWARD), {"cost_exception": 1.0}
        obs = self._observation(core.observe(np.arange(1))[0])
        return obs, reward[0], float(cost[0].max()), self.terminated, self.truncated, info

    def render(self) -> np.ndarray:  # type: ignore[override]
        """A picture, uint8 [height, width, 3]."""
        if self.render_mode is None:
            raise ValueError("render_mode=None must be 'rgb_array', given to make(), to render")
        return self.picture.draw(self.core)

    def close(self) -> None:
        self.picture.close()

    def __getstate__(self) -> Info:
        """A copy or a pickle continues exactly where this environment is."""
        started = self.core.outcome is not None
        return {
            "arguments": self._arguments,
            "core": self.core.snapshot() if started else None,
            "episode": (self.steps, self.terminated, self.truncated),
            "spec": self.spec,
        }

    def __setstate__(self, state: Info) -> None:
        type(self).__init__(self, **state["arguments"])
        if state["core"] is not None:
            self.core.restore(state["core"])
        self.steps, self.terminated, self.truncated = state["episode"]
        self.spec = state["spec"]

    def _observation(self, flat: np.ndarray) -> Observation:
        return flat


class Builder(SafetyEnv):
    """A navigation task: `task` has robot, objects and settings under the reference's names."""

    def __init__(
        self,
        task_id: str,
        config: Mapping[str, object] | None = None,
        render_mode: str | None = None,
        width: int = 256,
        height: int = 256,
        camera_id: int | None = None,
        camera_name: str | None = None,
    ):
        self.task_id, self.config = task_id, dict(config or {})
        core = make_navigation(task_id, config, num_envs=1, threads=1)
        picture = {"width": width, "height": height}
        picture |= {"camera_id": camera_id, "camera_name": camera_name}
        self._arguments = {"task_id": task_id, "config": config, "render_mode": render_mode}
        self._arguments |= picture
        super().__init__(core, core.config.max_episode_steps, render_mode, **picture)
        self.task = NavigationTask(core, flattens(config))
        self.observation_space = self.task.observation_space
        self.obs_space_dict = self.task.obs_info.obs_space_dict

    core: FamilyEnv  # pyright: ignore[reportIncompatibleVariableOverride]

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[Observation, Info]:
        fixed = self.core.config.layout_seed
        if seed is not None and fixed is not None:
            raise ValueError(f"seed={seed} must be None: the layout is always that of seed {fixed}")
        return super().reset(seed=seed, options=options)

    def set_seed(self, seed: int | None = None) -> None:
        """Continue with the random stream of a seed."""
        self.core.streams.seed([0], [_global_seeds(1)[0] if seed is None else seed])

    @property
    def cost(self) -> Info:
        """Costs of the last step by name; empty before the first reset."""
        if self.core.outcome is None:
            return {}
        columns = infos.step_columns(self.core, np.empty(0), np.empty(0))
        return {k: v for k, v in infos.pick(columns, 0).items() if k.startswith("cost_")}

    def _observation(self, flat: np.ndarray) -> Observation:
        return flat if self.task.observation_flatten else self.task.split(flat)


class SafetyVelocityEnv(SafetyEnv):
    """A velocity task: gymnasium's locomotion robots with a speed limit."""

    def __init__(
        self,
        robot: str,
        version: str = "v1",
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
        camera_id: int | None = None,
        camera_name: str | None = None,
    ):
        core = make_velocity(robot, version, num_envs=1, threads=1)
        if camera_id is not None and camera_name is None:  # these models have one camera
            if camera_id not in (-1, 0):
                raise ValueError(f"camera_id={camera_id!r} must be 0, the only camera")
            camera_id, camera_name = None, "track"
        picture = {"width": width, "height": height, "camera_name": camera_name}
        self._arguments = {"robot": robot, "version": version, "render_mode": render_mode}
        self._arguments |= picture
        # The reference has no time limit of its own here; `make` adds one.
        super().__init__(core, 2**63, render_mode, **picture)
        self.dt = core.simulation.seconds
        self.metadata = {**self.metadata, "render_fps": round(1 / self.dt)}
        self._velocity_threshold = core.speed_limit


def make_navigation(
    task_id: str, config: Mapping[str, object] | None, num_envs: int, threads: int
) -> FamilyEnv:
    """The native environments of a navigation id."""
    options = family_config(task_id, config)
    return FamilyEnv(options, num_envs, _global_seeds(num_envs), threads)  # type: ignore[arg-type]


def make_velocity(robot: str, version: str, num_envs: int, threads: int) -> VelocityEnv:
    """The native environments of a velocity id."""
    options = VelocityConfig(robot=robot, version=version)  # type: ignore[arg-type]
    return VelocityEnv(options, num_envs, threads=threads)


def _global_seeds(count: int) -> list[int]:
    """Seeds from numpy's global stream, as the reference takes them before `reset(seed=…)`."""
    return [int(np.random.randint(2**32, dtype="int64")) for _ in range(count)]  # noqa: NPY002
