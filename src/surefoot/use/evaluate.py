"""Evaluate a run on fresh episodes: its policies as they are, or with a planner on top."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from surefoot.algorithms import evaluation
from surefoot.algorithms.collect import Actor, Generators, draw_from
from surefoot.algorithms.planning import Mode, PlannedActor, default_planner
from surefoot.algorithms.seeds import pick_seeds, seed_keys
from surefoot.runs.info import RunInfo, config_of
from surefoot.runs.setup import MakeEnv, MakeModel
from surefoot.runs.train import EVALUATION_SEED, PLANNED_EPISODES
from surefoot.use.run import check_which, load_model, load_run, plans_itself
from surefoot.world.model import TaskModel
from surefoot.world.planner import PlannerConfig

EPISODES = 100


@dataclass
class Acting:
    """Some seeds of a run, and what acts for them."""

    env: Any
    seeds: Sequence[int]
    cost_limits: tuple[float, ...]
    model: TaskModel | None
    make_actor: Any
    """`make_actor(rngs, steps)`; a planned one is kept in `planned`."""
    planned: PlannedActor | None = None


def evaluate(
    run: str | Path,
    episodes: int | None = None,
    seed: int = EVALUATION_SEED,
    deterministic: bool = False,
    plan: Mode | None = None,
    planner: PlannerConfig | None = None,
    make_env: MakeEnv | None = None,
    known: MakeModel | None = None,
) -> dict[str, Any]:
    """Evaluate a run's policies on fresh episodes of its task.

    Returns means over episodes and seeds: `reward`, `cost`, `within_limit` (share of episodes),
    `cost_cvar` (mean cost of the worst tenth), their spread over seeds, and the same per seed. With
    a plan, `plan` reports what planning amounted to.

    Args:
        run: The run's folder.
        episodes: Episodes per seed; 100 if not given, or 10 if every step is planned.
        seed: Added to the run's seeds; decides which episodes are met.
        deterministic: Take the policy's mode instead of drawing from it.
        plan: `look-ahead` follows plans made with the run's model; `filter` takes the policy's
            action unless it might cost more than the planner's threshold. Algorithms that plan in
            training look ahead if not given.
        planner: Settings of the planner; the run's own if not given.
        make_env: The function that makes environments, if the run does not record its task.
        known: The function given to `train` as `known`, if one was.
    """
    if plan is None and plans_itself(run):
        plan = "look-ahead"
    if episodes is None:
        episodes = EPISODES if plan is None else PLANNED_EPISODES
    if episodes < 1:
        raise ValueError(f"episodes={episodes} must be at least 1")
    if planner is not None and plan is None:
        raise ValueError("planner is given, but plan is not: pass plan='look-ahead' or 'filter'")
    acting = acting_in(run, episodes, seed, deterministic, plan, planner, None, make_env, known)
    result = evaluation.evaluate(
        acting.env, acting.make_actor, acting.seeds, episodes, seed, acting.cost_limits,
        deterministic, acting.model,
    ).to_dict()  # fmt: skip
    if acting.planned is not None:
        result["plan"] = acting.planned.to_dict()
    return result


def acting_in(
    run: str | Path,
    per_seed: int,
    seed: int,
    deterministic: bool = False,
    plan: Mode | None = None,
    planner: PlannerConfig | None = None,
    which: int | None = None,
    make_env: MakeEnv | None = None,
    known: MakeModel | None = None,
    **options: Any,
) -> Acting:
    """All seeds of a run, or seed number `which`, with `per_seed` environments each."""
    if plan is not None:
        return _planning(
            run, per_seed, seed, deterministic, plan, planner, which, make_env, known, options
        )
    loaded = load_run(run, make_env, known)
    chosen = _chosen(run, loaded.info, which)
    policy = loaded.policy.seed(chosen)

    def make_actor(rngs: Generators, steps: int) -> Actor:
        return draw_from(policy, rngs, per_seed, steps, deterministic)

    return Acting(
        loaded.setup.make_envs(len(chosen) * per_seed, **options),
        [loaded.info.seeds[i] for i in chosen],
        loaded.setup.config.cost_limit,
        None,
        make_actor,
    )


def _planning(
    run: str | Path,
    per_seed: int,
    seed: int,
    deterministic: bool,
    plan: Mode,
    planner: PlannerConfig | None,
    which: int | None,
    make_env: MakeEnv | None,
    known: MakeModel | None,
    options: dict[str, Any],
) -> Acting:
    """As `acting_in`, with a planner on top, from the run's newest sound checkpoint."""
    learned = load_model(run, "plan with", make_env, known)
    chosen = _chosen(run, learned.info, which)
    seeds = [learned.info.seeds[i] for i in chosen]
    setup, planning = learned.setup, learned.planning
    config = planner or planning.config or default_planner_of(learned.info)
    planning = planning._replace(
        ensemble=pick_seeds(planning.ensemble, chosen), learner=pick_seeds(planning.learner, chosen)
    )
    env = setup.make_envs(len(chosen) * per_seed, **options)
    problem = replace(setup.problem(env, per_seed), seeds=tuple(seeds))
    policy = learned.trainer.policy().seed(chosen)
    acting = Acting(env, seeds, setup.config.cost_limit, problem.model, None)

    def make_actor(rngs: Generators, steps: int) -> Actor:
        keys = seed_keys([(seed + s) % 2**32 for s in seeds])
        own = draw_from(policy, rngs, per_seed, steps, deterministic)
        acting.planned = PlannedActor(config, problem, planning, plan, own, keys, deterministic)
        return acting.planned

    acting.make_actor = make_actor
    return acting


def _chosen(run: str | Path, info: RunInfo, which: int | None) -> list[int]:
    if which is None:
        return list(range(len(info.seeds)))
    check_which(run, info, which)
    return [which]


def default_planner_of(info: RunInfo) -> PlannerConfig:
    """The planner for a run whose algorithm has none."""
    return default_planner(info.task_name, "cost" in info.known)


def planner_of(info: RunInfo, path: Path) -> PlannerConfig:
    """The planner of a run: its own, or the default."""
    return getattr(config_of(info, path), "planner", None) or default_planner_of(info)
