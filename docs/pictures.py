"""Draw the site's clips: one of each task, and a trained beside an untrained policy.

python docs/pictures.py                       # docs/assets/TASK.gif
python docs/pictures.py RUN                   # also docs/assets/trained.gif, from a PointGoal run
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

import surefoot
from surefoot.envs.render.draw import draw
from surefoot.envs.task import TASKS

ASSETS = Path(__file__).parent / "assets"
CLIPS = (
    "PointGoal", "CarGoal", "DoggoGoal", "RCCar", "HalfCheetahVelocity", "HopperVelocity",
    "Walker2dVelocity", "SwimmerVelocity", "AntVelocity", "HumanoidVelocity", "PointGoal2",
    "CarButton1", "AntPush1", "RacecarCircle1", "DoggoRun0",
)  # fmt: skip
EVERY = {
    **dict.fromkeys(("PointGoal", "CarGoal", "PointGoal2", "CarButton1", "RacecarCircle1"), 6),
    **dict.fromkeys(("HopperVelocity", "Walker2dVelocity", "HumanoidVelocity", "AntPush1"), 1),
}
"""Steps per picture of slow robots, and of those that soon fall; others have 2."""


def clip(task: str, frames: int = 48, size: int = 240) -> None:
    """A clip of a task under smooth random actions."""
    env = surefoot.make(task, seed=3)
    env.reset(seed=3)
    rng = np.random.default_rng(0)
    space = env.single_action_space
    wish, pictures = np.zeros(space.shape), list[np.ndarray]()
    for step in range(frames * EVERY.get(task, 2)):
        if step % EVERY.get(task, 2) == 0:
            pictures.append(draw(env.scene(0), size))
        wish = 0.9 * wish + 0.3 * rng.normal(size=space.shape)
        *_, terminated, truncated, _ = env.step(
            np.clip(
                space.low + (wish[None] + 1) / 2 * (space.high - space.low), space.low, space.high
            )
        )
        if terminated[0] or truncated[0]:
            break
    save(pictures, ASSETS / f"{task}.gif", 24)


def save(frames: list[np.ndarray], path: Path, colours: int) -> None:
    """Write an animation. One palette for all frames: only what moves changes between them."""
    palette = Image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 6)])).quantize(colours)
    first, *rest = (
        Image.fromarray(f).quantize(palette=palette, dither=Image.Dither.NONE) for f in frames
    )
    first.save(path, save_all=True, append_images=rest, duration=50, loop=0, optimize=True)


def episode(
    policy: surefoot.Policy | None, seed: int, title: str, steps: int, every: int, size: int
) -> Iterator[np.ndarray]:
    """Pictures of PointGoal; without a policy, an untrained one acts."""
    env = surefoot.make("PointGoal", seed=seed, observation="ego")
    obs, _ = env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    trail = []
    for step in range(steps):
        scene = replace(env.scene(0), cost_limit=18.0, title=title)
        trail.append(np.asarray(scene.robot_xy))
        if step % every == 0:
            yield draw(replace(scene, trail=np.stack(trail[-150:])), size)
        action = (
            rng.normal(0.0, 0.6, (1, 2)).clip(-1, 1) if policy is None else policy.act(obs, rng)
        )
        obs, *_ = env.step(action)


def trained(
    run: str, path: Path, seed: int = 5, steps: int = 750, every: int = 4, size: int = 360
) -> None:
    """An untrained policy beside that of a run, in the same layout."""
    films = (
        episode(None, seed, "untrained", steps, every, size),
        episode(surefoot.load(run), seed, "trained", steps, every, size),
    )
    frames = [np.concatenate(pair, 1) for pair in zip(*films, strict=True)]
    save(frames, path, 48)


if __name__ == "__main__":
    for name in CLIPS:
        if name in TASKS:
            clip(name)
    for run in sys.argv[1:]:
        trained(run, ASSETS / "trained.gif")
