"""Clips of an episode of any environment that can be drawn or can render."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import VectorEnv

from surefoot.envs.base import TaskEnv
from surefoot.envs.gym.adapted import EnvironmentFault
from surefoot.envs.render.clip import save_clip
from surefoot.envs.render.draw import draw, draw_below
from surefoot.envs.render.scene import Numbers, Scene
from surefoot.envs.task import find_task

TRAIL = 150  # past positions shown
MAX_SIZE = 4096  # pixels


class Filmed(NamedTuple):
    """What one step of the filmed environment amounted to."""

    reward: float
    cost: float
    ended: bool


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
    found = find_task(task)
    env = found.make()
    if not hasattr(env, "scene"):
        env = found.make(render_mode="rgb_array", **_without_cost(env))
    rng = np.random.default_rng(seed)

    def step() -> Filmed:
        _, reward, terminated, truncated, info = env.step(_action(env, policy, rng))
        ended = bool(terminated[0] | truncated[0])
        return Filmed(float(reward[0]), float(info["cost"][0].sum()), ended)

    env.reset(seed=seed)
    return film_env(env, step, path, view, steps, every, size, cost_limit, found.name)


def _without_cost(env: VectorEnv) -> dict[str, Any]:
    """Options for an environment that may report no costs, which a film does not need."""
    try:
        env.reset(seed=0)
        env.step(_action(env, "still", np.random.default_rng()))
    except EnvironmentFault:
        return {"cost": lambda obs, action, next_obs: np.zeros(len(obs))}
    return {}


def _action(env: VectorEnv, policy: str, rng: np.random.Generator) -> np.ndarray:
    space = env.single_action_space
    if isinstance(space, Discrete):
        return np.array([0 if policy == "still" else rng.integers(space.n)])
    assert isinstance(space, Box)
    if policy == "still":
        return np.clip(np.zeros((1, *space.shape)), space.low, space.high)
    return rng.uniform(space.low, space.high, (1, *space.shape))


def film_env(
    env: TaskEnv,
    step: Callable[[], Filmed],
    path: str | Path,
    view: Literal["top", "camera"] = "top",
    steps: int | None = None,
    every: int = 2,
    size: int = 640,
    cost_limit: float | None = None,
    title: str = "",
) -> Path:
    """Film the first environment of `env` from its present state; `step` steps it."""
    frames = frames_of(env, step, view, steps, every, size, cost_limit, title)
    return save_clip(frames, path, fps=30)


def frames_of(
    env: TaskEnv,
    step: Callable[[], Filmed],
    view: Literal["top", "camera"] = "top",
    steps: int | None = None,
    every: int = 2,
    size: int = 640,
    cost_limit: float | None = None,
    title: str = "",
) -> Iterator[np.ndarray]:
    """The pictures of a film, uint8 [H, W, 3].

    An environment without a `scene` must be made with `render_mode="rgb_array"`.
    """
    check_film(steps, every, size)
    limit = env.max_episode_steps
    count = steps or limit
    if count is None:
        raise ValueError("steps=None: the environment has no time limit; give a number of steps")
    if hasattr(env, "scene"):
        show = _camera(env, size) if view == "camera" else lambda scene: draw(scene, size)
        return _scenes(env, step, show, count, every, cost_limit, title)
    elif view == "camera":
        raise ValueError(f"view='camera': {type(env).__name__} has no MuJoCo model; use view='top'")
    numbers = Numbers(max_steps=limit or count, cost_limit=cost_limit, title=title)
    return _renderings(env, step, numbers, count, every, size)


def side_by_side(films: Sequence[Iterator[np.ndarray]]) -> Iterator[np.ndarray]:
    """Several films in one, as a grid that is at least as wide as it is high."""
    columns = math.ceil(math.sqrt(len(films)))
    for pictures in zip(*films, strict=True):
        rest = [np.full_like(pictures[0], 255)] * (-len(pictures) % columns)
        every = [*pictures, *rest]
        rows = [np.concatenate(every[i : i + columns], 1) for i in range(0, len(every), columns)]
        yield np.concatenate(rows)


def check_film(steps: int | None, every: int, size: int) -> None:
    """Raise a ValueError that names the first invalid argument."""
    for name, value, least in (("steps", steps, 1), ("every", every, 1), ("size", size, 64)):
        if value is not None and value < least:
            raise ValueError(f"{name}={value} must be at least {least}")
    if size > MAX_SIZE:
        raise ValueError(f"size={size} must be at most {MAX_SIZE}")


def _scenes(
    env: TaskEnv,
    step: Callable[[], Filmed],
    show: Callable[[Scene], np.ndarray],
    steps: int,
    every: int,
    cost_limit: float | None,
    title: str,
) -> Iterator[np.ndarray]:
    trail: list[np.ndarray] = []
    for number in range(steps):
        scene = env.scene(0)
        scene = replace(scene, cost_limit=cost_limit, title=title or scene.title)
        if scene.step == 0:
            trail.clear()
        trail.append(np.asarray(scene.robot_xy))
        if number % every == 0:
            yield show(replace(scene, trail=np.stack(trail[-TRAIL:])))
        step()


def _renderings(
    env: VectorEnv, step: Callable[[], Filmed], n: Numbers, steps: int, every: int, size: int
) -> Iterator[np.ndarray]:
    for number in range(steps):
        if number % every == 0:
            try:
                pictures = env.render()
            except (gymnasium.error.Error, NotImplementedError) as error:
                reason = str(error) or "it renders no rgb_array"
                raise ValueError(f"the environment cannot be filmed: {reason}") from error
            if not pictures or not isinstance(pictures[0], np.ndarray):
                raise ValueError("the environment cannot be filmed: it renders no rgb_array")
            yield draw_below(pictures[0], n, size)
        reward, cost, ended = step()
        n = replace(n, step=n.step + 1, reward=n.reward + reward, cost=n.cost + cost)
        if ended:
            n = replace(n, step=0, reward=0.0, cost=0.0)


def _camera(env: TaskEnv, size: int) -> Callable[[Scene], np.ndarray]:
    pose = env.pose(0)
    if pose is None:
        raise ValueError(f"view='camera': {type(env).__name__} has no MuJoCo model; use view='top'")
    from surefoot.envs.render.camera import CameraView

    model, qpos = pose
    view = CameraView(model, size, size, "track")
    return lambda scene: view.render(qpos, scene)
