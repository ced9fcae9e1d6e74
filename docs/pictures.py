"""Draw the site's pictures: one still of each task, and a trained beside an untrained policy.

python docs/pictures.py                       # docs/assets/TASK.png
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
STILLS = (
    "PointGoal", "CarGoal", "DoggoGoal", "RCCar", "HalfCheetahVelocity", "HopperVelocity",
    "Walker2dVelocity", "SwimmerVelocity", "AntVelocity", "HumanoidVelocity", "PointGoal2",
    "CarButton1", "AntPush1", "RacecarCircle1", "DoggoRun0",
)  # fmt: skip


def still(task: str, steps: int = 12, size: int = 320) -> None:
    """A picture of a task after some random steps."""
    env = surefoot.make(task, seed=3)
    env.reset(seed=3)
    rng = np.random.default_rng(0)
    space = env.single_action_space
    for _ in range(0 if task == "RCCar" else steps):  # which would drive away
        env.step(rng.uniform(space.low, space.high, (1, *space.shape)))
    picture = Image.fromarray(draw(env.scene(0), size))
    picture.quantize(64, dither=Image.Dither.NONE).save(ASSETS / f"{task}.png", optimize=True)


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
    # One palette for all frames: only what moves changes from one to the next.
    palette = Image.fromarray(np.concatenate(frames[:: len(frames) // 6])).quantize(48)
    pictures = [
        Image.fromarray(f).quantize(palette=palette, dither=Image.Dither.NONE) for f in frames
    ]
    first, *rest = pictures
    first.save(path, save_all=True, append_images=rest, duration=50, loop=0, optimize=True)


if __name__ == "__main__":
    for name in STILLS:
        if name in TASKS:
            still(name)
    for run in sys.argv[1:]:
        trained(run, ASSETS / "trained.gif")
