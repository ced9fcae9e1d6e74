"""Clips of an episode of a built-in task."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from surefoot.envs.base import TaskEnv
from surefoot.envs.render.clip import save_clip
from surefoot.envs.render.draw import draw
from surefoot.envs.render.scene import Scene
from surefoot.envs.task import make

TRAIL = 150  # past positions shown
MAX_SIZE = 4096  # pixels


def film(
    task: str,
    path: str | Path,
    policy: str = "random",
    view: Literal["top", "camera"] = "top",
    steps: int | None = None,
    seed: int = 0,
    every: int = 2,
    size: int = 640,
    cost_limit: float | None = None,
) -> Path:
    """Film a task under the `random` or the `still` policy."""
    env = make(task)
    rng = np.random.default_rng(seed)
    low, high = env.single_action_space.low, env.single_action_space.high
    act = lambda: rng.uniform(low, high, (1, len(low)))
    if policy == "still":
        act = lambda: np.clip(np.zeros((1, len(low))), low, high)
    env.reset(seed=seed)
    return film_env(env, lambda: env.step(act()), path, view, steps, every, size, cost_limit)


def film_env(
    env: TaskEnv,
    step: Callable[[], object],
    path: str | Path,
    view: Literal["top", "camera"] = "top",
    steps: int | None = None,
    every: int = 2,
    size: int = 640,
    cost_limit: float | None = None,
) -> Path:
    """Film the first environment of `env` from its present state; `step` steps it."""
    check_film(steps, every, size)
    show = _camera(env, size) if view == "camera" else lambda scene: draw(scene, size)
    frames = _frames(env, step, show, steps or env.max_episode_steps, every, cost_limit)
    return save_clip(frames, path, fps=30)


def check_film(steps: int | None, every: int, size: int) -> None:
    """Raise a ValueError that names the first invalid argument."""
    for name, value, least in (("steps", steps, 1), ("every", every, 1), ("size", size, 64)):
        if value is not None and value < least:
            raise ValueError(f"{name}={value} must be at least {least}")
    if size > MAX_SIZE:
        raise ValueError(f"size={size} must be at most {MAX_SIZE}")


def _frames(
    env: TaskEnv,
    step: Callable[[], object],
    show: Callable[[Scene], np.ndarray],
    steps: int,
    every: int,
    cost_limit: float | None,
) -> Iterator[np.ndarray]:
    trail: list[np.ndarray] = []
    for number in range(steps):
        scene = replace(env.scene(0), cost_limit=cost_limit)
        if scene.step == 0:
            trail.clear()
        trail.append(np.asarray(scene.robot_xy))
        if number % every == 0:
            yield show(replace(scene, trail=np.stack(trail[-TRAIL:])))
        step()


def _camera(env: TaskEnv, size: int) -> Callable[[Scene], np.ndarray]:
    pose = env.pose(0)
    if pose is None:
        raise ValueError(f"view='camera': {type(env).__name__} has no MuJoCo model; use view='top'")
    from surefoot.envs.render.camera import CameraView

    model, qpos = pose
    view = CameraView(model, size, size, "track")
    return lambda scene: view.render(qpos, scene)
