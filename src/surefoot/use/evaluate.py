"""Evaluate a run on fresh episodes: its policies as they are, or with a planner on top."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Literal

import numpy as np

from surefoot.algorithms.algorithm import Mode
from surefoot.algorithms.planning import default_planner
from surefoot.algorithms.seeds import pick_seeds
from surefoot.core.config import Count, check_value
from surefoot.envs.gym.adapted import Cost
from surefoot.envs.task import TASKS
from surefoot.runs.acting import EVALUATION_SEED, PLANNED_EPISODES, Acting
from surefoot.runs.folder import RunFolder, Values
from surefoot.runs.info import config_of, read_info
from surefoot.runs.known import Known
from surefoot.runs.setup import MakeEnv, recorded_setup
from surefoot.use.run import check_which, load_model, load_policies, plan_of
from surefoot.world.planner import PlannerConfig

EPISODES = 100


def evaluate(
    run: str | Path,
    episodes: int | None = None,
    seed: int = EVALUATION_SEED,
    deterministic: bool = False,
    plan: Mode | Literal["none"] | None = None,
    planner: PlannerConfig | None = None,
    make_env: MakeEnv | None = None,
    known: Known = None,
    cost: Cost | None = None,
    policy: Callable[[np.ndarray], np.ndarray] | None = None,
    on_step: Callable[[int, int], object] | None = None,
) -> Values:
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
            action unless it might cost more than the planner's threshold; `none` takes the policy
            alone. If not given, a run acts as in training.
        planner: Settings of the planner; the run's own if not given.
        make_env: The function that makes environments, if the run does not record its task.
        known: What was given to `train` as `known`, if that was a Python function.
        cost: What was given to `train` as `cost`, if that was a Python function.
        policy: Acts instead of the run's policy: a function of observations [N, D] that returns
            actions [N, A]. With `plan="filter"` the run's model guards it, and the run's policy is
            assumed to act after each of its actions.
        on_step: Called before every step with the number of steps done and of all.
    """
    plan = plan_of(run) if plan is None else None if plan == "none" else plan
    if episodes is None:
        episodes = EPISODES if plan is None else PLANNED_EPISODES
    check_value("episodes", episodes, Count)
    if planner is not None and plan is None:
        raise ValueError("planner is given, but plan is not: pass plan='look-ahead' or 'filter'")
    acting = acting_in(
        run, episodes, seed, deterministic, plan, planner, None, make_env, known, cost
    )
    acting.act = policy
    if on_step is not None:
        done, steps = count(), acting.env.max_episode_steps
        acting.before_step = lambda: on_step(next(done), steps)
    return acting.evaluate()


def acting_in(
    run: str | Path,
    per_seed: int,
    seed: int,
    deterministic: bool = False,
    plan: Mode | None = None,
    planner: PlannerConfig | None = None,
    which: int | None = None,
    make_env: MakeEnv | None = None,
    known: Known = None,
    cost: Cost | None = None,
) -> Acting:
    """All seeds of a run, or seed number `which`, with `per_seed` environments each.

    The policies are those of policy.npz, and with a plan those of the newest sound checkpoint.
    """
    if plan is None:
        folder = RunFolder(Path(run))
        info = read_info(folder)
        setup = recorded_setup(info, folder.path, make_env, known, cost)
        policy, planning = load_policies(folder, info), None
    else:
        learned = load_model(run, "plan with", make_env, known, cost)
        setup, policy, planning = learned.setup, learned.policy, learned.planning
        usual = default_planner(setup.task, "cost" in learned.info.known)
        config = planner or planning.config or usual
        planning = planning._replace(config=config)
    if which is not None:
        check_which(run, len(setup.seeds), which)
        setup, policy = replace(setup, seeds=(setup.seeds[which],)), policy.seed([which])
        if planning is not None:
            ensemble, learner = pick_seeds((planning.ensemble, planning.learner), [which])
            planning = planning._replace(ensemble=ensemble, learner=learner)
    return Acting(setup, policy, per_seed, seed, deterministic, planning, plan or "look-ahead")


def planner_of(run: Path) -> PlannerConfig:
    """The planner of a run: its own, or the default."""
    info = read_info(RunFolder(run))
    config = config_of(info, run)
    own = getattr(config, "filter" if getattr(config, "careful", False) else "planner", None)
    task = TASKS[info.task] if info.task is not None and info.task in TASKS else None
    return own or default_planner(task, "cost" in info.known)
