"""Film an episode of a run, as it acts in `evaluate`: with its planner, if it has one."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from surefoot.algorithms.algorithm import Mode
from surefoot.algorithms.collect import Collector
from surefoot.core.spaces import action_spec
from surefoot.envs.render.film import Filmed, check_film, film_env
from surefoot.use.evaluate import acting_in
from surefoot.use.run import plan_of


def film_run(
    run: str | Path,
    which: int,
    path: Path,
    view: Literal["top", "camera"] = "top",
    steps: int | None = None,
    seed: int = 0,
    every: int = 2,
    size: int = 640,
    plan: Mode | None = None,
) -> Path:
    """Film seed number `which` of a run, in the first episode it would meet in `evaluate`."""
    check_film(steps, every, size)
    acting = acting_in(run, 1, seed, plan=plan or plan_of(run), which=which)
    if not hasattr(acting.env, "scene"):  # it draws itself
        acting = replace(acting, render_mode="rgb_array")
    env, setup = acting.env, acting.setup
    length = steps or env.max_episode_steps
    collector = Collector(env, [seed + s for s in setup.seeds], 1, acting.model)
    actor = acting.make_actor(collector.rngs, length)
    actions, clock = action_spec(env.single_action_space), iter(range(length))

    def step() -> Filmed:
        taken = collector.collect(actor, actions, 1, t=next(clock))
        reward, cost = float(taken.reward.sum()), float(taken.cost.sum())
        return Filmed(reward, cost, bool(taken.ended.any()))

    limit, title = sum(setup.config.cost_limit), setup.task.name
    return film_env(env, step, path, view, steps, every, size, limit, title)
