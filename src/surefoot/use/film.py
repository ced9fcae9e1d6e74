"""Film an episode of a run, as it acts in `evaluate`: with its planner, if it has one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from surefoot.algorithms.algorithm import Mode
from surefoot.algorithms.collect import Collector
from surefoot.core.spaces import action_spec
from surefoot.envs.render.clip import save_clip
from surefoot.envs.render.film import Filmed, check_film, frames_of, side_by_side
from surefoot.runs.setup import MakeEnv
from surefoot.use.evaluate import acting_in
from surefoot.use.run import plan_of


def film(
    run: str | Path,
    path: str | Path = "clip.gif",
    which: int | Sequence[int] = 0,
    view: Literal["top", "camera"] = "top",
    steps: int | None = None,
    seed: int = 0,
    every: int = 2,
    size: int = 640,
    plan: Mode | None = None,
    beside: bool = False,
    make_env: MakeEnv | None = None,
    on_step: Callable[[int, int], object] | None = None,
) -> Path:
    """Film seeds of a run, each in the first episode that it would meet in `evaluate`.

    Args:
        run: The run's folder.
        path: The clip, .gif or .mp4.
        which: Which of the run's seeds, counted from 0; several are shown side by side.
        view: `top` is drawn from above and needs no OpenGL; `camera` is MuJoCo's and does.
        steps: Steps to film; one episode if not given.
        seed: Which episode.
        every: Film every n-th step.
        size: Width of each picture in pixels.
        plan: Plan on top of the run's policy, as in `evaluate`.
        beside: Show the policy without the plan beside it.
        make_env: The function that makes environments, if the run does not record its task.
        on_step: Called before every step with the number of steps done and of all.
    """
    plan = plan or plan_of(run)
    if beside and plan is None:
        raise ValueError("beside=True needs a plan, such as plan='filter'")
    numbers = [which] if isinstance(which, int) else list(which)
    if not numbers:
        raise ValueError(f"which={which!r} must name at least one seed")
    films = [
        _frames(
            run,
            number,
            view,
            steps,
            seed,
            every,
            size,
            mode,
            len(numbers) > 1 or beside,
            make_env,
            on_step if (number, mode) == (numbers[-1], plan) else None,
        )
        for number in numbers
        for mode in ((None, plan) if beside else (plan,))
    ]
    return save_clip(side_by_side(films), path, fps=30)


def _frames(
    run: str | Path,
    which: int,
    view: Literal["top", "camera"],
    steps: int | None,
    seed: int,
    every: int,
    size: int,
    plan: Mode | None,
    named: bool,
    make_env: MakeEnv | None,
    on_step: Callable[[int, int], object] | None,
) -> Iterator[np.ndarray]:
    """The pictures of one seed; `named` puts the seed and the plan into the title."""
    check_film(steps, every, size)
    acting = acting_in(run, 1, seed, plan=plan, which=which, make_env=make_env)
    if not hasattr(acting.env, "scene"):  # it draws itself
        acting = replace(acting, render_mode="rgb_array")
    env, setup = acting.env, acting.setup
    length = steps or env.max_episode_steps
    collector = Collector(env, [seed + s for s in setup.seeds], 1, acting.model)
    actor = acting.make_actor(collector.rngs, length)
    actions, clock = action_spec(env.single_action_space), iter(range(length))

    def step() -> Filmed:
        t = next(clock)
        if on_step is not None:
            on_step(t, length)
        taken = collector.collect(actor, actions, 1, t=t)
        reward, cost = float(taken.reward.sum()), float(taken.cost.sum())
        return Filmed(reward, cost, bool(taken.ended.any()))

    title = f"seed {setup.seeds[0]}, {plan or 'policy'}" if named else ""
    if not hasattr(env, "scene"):
        title = title or setup.task.name
    limit = sum(setup.config.cost_limit)
    return frames_of(env, step, view, steps, every, size, limit, title)
