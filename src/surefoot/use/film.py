"""Film an episode of a run, as it was trained to act: with its planner, if it has one."""

from pathlib import Path
from typing import Any, Literal

from surefoot.algorithms.collect import Collector
from surefoot.core.policy import Policy
from surefoot.core.spaces import action_spec
from surefoot.envs.render.film import check_film, film_env
from surefoot.runs.train import check_which, load_policies, make_task, plans_itself
from surefoot.use.plan import How, with_planner


def film_run(
    run: str | Path,
    which: int,
    path: Path,
    view: Literal["top", "camera"] = "top",
    steps: int | None = None,
    seed: int = 0,
    every: int = 2,
    size: int = 640,
    plan: How | None = None,
) -> Path:
    """Film what a run's seed number `which` does, in the first environment that it would have in
    `evaluate` with the same `seed`.

    With `plan` it looks ahead or is filtered as there; a run of safe-LOOP always plans.
    """
    check_film(steps, every, size)
    if plan is None and plans_itself(run):
        plan = "look-ahead"
    if plan is None:
        env, trained, policy, limit = _alone(run, which)
        collector = Collector(env, [seed + trained], 1)
        act = collector.drawing(policy, steps or env.max_episode_steps)
    else:
        planned = with_planner(run, plan, None, 1, seed, which=which)
        env, limit = planned.env, planned.cost_limit
        collector = Collector(env, [seed + s for s in planned.seeds], 1, planned.knowledge)
        act = planned.pilot.take_over(collector, steps or env.max_episode_steps)
    actions, clock = (
        action_spec(env.single_action_space),
        iter(range(steps or env.max_episode_steps)),
    )

    def step() -> None:
        t = next(clock)
        collector.collect(None, actions, 1, act=lambda obs, _: act(obs, t))

    return film_env(env, step, path, view, steps, every, size, limit)


def _alone(run: str | Path, which: int) -> tuple[Any, int, Policy, float]:
    """An environment, the seed trained with, its policy and the limit."""
    _, info, policy = load_policies(run)
    check_which(run, info, which)
    if info["task"] is None:
        raise ValueError(f"{run} was trained on an environment of your own, which draws itself")
    config = info["config"]
    observation = config.get("model", config.get("observation"))
    env = make_task(info["task"], info["task_options"])(1, observation)
    return env, info["seeds"][which], policy.seed([which]), config["cost_limit"]
