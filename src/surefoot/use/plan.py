"""Planning on top of a trained policy: what a look-ahead adds, and a filter that steps in."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from surefoot.algorithms import presets
from surefoot.algorithms.collect import Act, Collector
from surefoot.algorithms.common import over_seeds, seed_keys
from surefoot.core.policy import Policy
from surefoot.core.spaces import ActionSpec, action_spec
from surefoot.runs.folder import config_from
from surefoot.runs.keeper import policy_in
from surefoot.runs.train import check_which, make_task, task_model
from surefoot.use.evaluate import evaluate_policy
from surefoot.use.model import Guide, ensembles_in, guide_in, learned_in
from surefoot.world import planner
from surefoot.world.ensemble import Ensemble
from surefoot.world.model import TaskModel
from surefoot.world.planner import Plan, PlannerConfig

How = Literal["look-ahead", "filter"]
HOW: tuple[How, ...] = ("look-ahead", "filter")


def evaluate_planned(
    run: str | Path,
    how: How,
    config: PlannerConfig | None,
    episodes: int,
    seed: int,
    deterministic: bool,
) -> dict[str, Any]:
    """Evaluate a run's policies with a planner on top: see `evaluate_policy` and `Pilot`.

    Policy, critics and model are those of the run's newest sound checkpoint, and so is the planner
    if none is given and the run has one. Beside what `evaluate_policy` tells, `plan` says how was
    planned and what came of it.
    """
    planned = with_planner(run, how, config, episodes, seed, deterministic)
    found = evaluate_policy(
        planned.env, planned.policy, planned.seeds, episodes, seed, planned.cost_limit,
        deterministic, planned.knowledge, planned.pilot.take_over,
    )  # fmt: skip
    report = planned.pilot.report()
    return {**found, "plan": {"how": how, **report, "planner": asdict(planned.config)}}


class Planned(NamedTuple):
    """A run that acts with a planner on top, and environments for it."""

    env: Any
    seeds: list[int]
    knowledge: TaskModel
    policy: Policy
    config: PlannerConfig
    pilot: "Pilot"
    cost_limit: float


def with_planner(
    run: str | Path,
    how: How,
    config: PlannerConfig | None,
    per_seed: int,
    seed: int,
    deterministic: bool = False,
    which: int | None = None,
) -> Planned:
    """All seeds of a run, or its seed number `which`, with so many environments for each."""
    if how not in HOW:
        raise ValueError(f"plan={how!r} must be one of {', '.join(HOW)}")
    learned = learned_in(run, "plan with")
    info, model = learned.info, learned.config.model
    if info["task"] is None:
        raise ValueError(f"{run} was trained on an environment of your own; use evaluate_policy")
    if which is not None:
        check_which(run, info, which)
    chosen = list(range(len(info["seeds"]))) if which is None else [which]
    seeds, config = [info["seeds"][i] for i in chosen], config or usual_planner(info)
    env = make_task(info["task"], info["task_options"])(len(chosen) * per_seed, model)
    know, actions = task_model(env, model), action_spec(env.single_action_space)
    pick = lambda tree: jax.tree.map(lambda x: x[np.array(chosen)], tree)
    guide = guide_in(learned, know, actions, deterministic)
    guide = guide._replace(learner=pick(guide.learner))
    ensemble = pick(ensembles_in(learned, know, actions))
    policy = policy_in(learned.last).seed(chosen)
    keys = seed_keys([(seed + s) % 2**32 for s in seeds])
    own = policy if how == "filter" else None
    pilot = Pilot(config, know, actions, ensemble, guide, own, keys, deterministic)
    return Planned(env, seeds, know, policy, config, pilot, learned.config.cost_limit)


def usual_planner(info: dict[str, Any]) -> PlannerConfig:
    """The planner of a run, given its config.json: its own, or where it has none the default."""
    if "planner" in info["config"]:
        return config_from(PlannerConfig, info["config"]["planner"])
    return presets.planner("cost" in info["known"], info["task"])


class Pilot:
    """Acts in all environments of all seeds by planning, in one compiled call per step.

    The run's policy proposes, its reward critic judges what comes after a plan. Given a `policy`,
    it is a safety filter: the policy acts itself, unless its action, with what it would do after
    it, might cost more than the threshold over the horizon. Then the plan does, if it might cost
    less. A filter thus needs no plan where all are safe.
    """

    def __init__(
        self,
        config: PlannerConfig,
        knowledge: TaskModel,
        actions: ActionSpec,
        ensemble: Ensemble,
        guide: Guide,
        policy: Policy | None,
        keys: Key[Array, " S"],
        deterministic: bool = False,
    ):
        """`ensemble` and `guide.learner` have a leading axis of seeds, as have `keys`."""
        self._config, self._know, self._actions, self._guide = config, knowledge, actions, guide
        self._learned = ensemble, guide.learner
        self._policy, self._keys, self._greedy = policy, keys, deterministic
        planner.initial_mean(config, actions, 1)  # actions that cannot be planned are refused here
        self._plan = over_seeds(self._plan_one, len(keys), shared=(3,))
        self._risk = over_seeds(self._risk_one, len(keys), shared=(3,))
        self._steps, self._followed, self._safe = 0, 0, 0
        self._plans, self._seconds = 0, 0.0
        self._compiled: set[int] = set()

    def take_over(self, collector: Collector, steps: int) -> Act:
        """What acts for the next `steps` steps of a collector, which must know the model's task."""
        many, n = len(collector.seeds), collector.per_seed
        begin = np.asarray(planner.initial_mean(self._config, self._actions, n))
        self._begin = np.broadcast_to(begin, (many, *begin.shape))
        self._mean: Any = self._begin
        self._collector = collector
        if self._policy is not None:
            self._own = collector.drawing(self._policy, steps, self._greedy)
        return self._look_ahead if self._policy is None else self._filter

    def report(self) -> dict[str, Any]:
        """Share of the steps at which a plan was followed, of those plans the share that was safe,
        and how many plans are made in a second once that is compiled."""
        share = lambda part, whole: part / whole if whole else None
        return {
            "followed": share(self._followed, self._steps),
            "safe": share(self._safe, self._followed),
            "plans_per_second": share(self._plans, self._seconds),
        }

    def _look_ahead(self, obs: np.ndarray, t: int) -> np.ndarray:
        """Actions [S, n, A]: those of the plans."""
        everywhere = np.ones(obs.shape[:2], bool)
        plan = self._make_plan(t, everywhere)
        return self._follow(plan, everywhere, plan.action)

    def _filter(self, obs: np.ndarray, t: int) -> np.ndarray:
        """Actions [S, n, A]: the policy's own where they are safe."""
        own = self._own(obs, t)
        risk = self._risk(*self._learned, self._keys, t, self._collector.records(), own)
        danger = np.asarray(risk) > self._config.cost_threshold
        if not danger.any():
            self._mean = self._begin
            self._steps += danger.size
            return own
        plan = self._make_plan(t, danger)
        return self._follow(plan, danger & (plan.worst_cost < np.asarray(risk)), own)

    def _follow(self, plan: Plan, where: np.ndarray, own: Any) -> np.ndarray:
        """The plan's actions `where` it is followed, elsewhere one's `own`."""
        self._steps += where.size
        self._followed += int(where.sum())
        self._safe += int((where & plan.safe).sum())
        # A plan that is not followed is no place to start the next one from.
        self._mean = np.where(where[..., None, None], plan.mean, self._begin)
        return np.where(where[..., None], plan.action, own)

    def _make_plan(self, t: int, where: np.ndarray) -> Plan:
        """Plans [S, n, …] of the environments `where` one is asked for; of others zeros.

        Only as many are planned for as the seed with most of them has, rounded up to one of a few
        sizes: each is compiled once.
        """
        here, n = self._collector, where.shape[1]
        mean = np.where(here.begins()[..., None, None], self._begin, self._mean)
        size = room(n, int(where.sum(1).max()))
        chosen = np.argsort(~where, 1, kind="stable")[:, :size]
        place = lambda x: chosen.reshape(*chosen.shape, *[1] * (x.ndim - 2))
        take = lambda x: np.take_along_axis(x, place(x), 1)
        start = time.perf_counter()
        plan = jax.block_until_ready(
            self._plan(*self._learned, self._keys, t, take(here.records()), take(mean))
        )
        if size in self._compiled:
            self._seconds += time.perf_counter() - start
            self._plans += int(where.sum())
        self._compiled.add(size)

        def put(x: Any) -> np.ndarray:
            out = np.zeros((len(where), n, *x.shape[2:]), x.dtype)
            np.put_along_axis(out, place(x), np.asarray(x), 1)
            return out

        return jax.tree.map(put, plan)

    def _plan_one(
        self,
        ensemble: Ensemble,
        learner: Any,
        key: Key[Array, ""],
        t: Array,
        records: Float[Array, "n R"],
        mean: Float[Array, "n H A"],
    ) -> Plan:
        """The plans of one seed."""
        guide = self._guide
        restore_key, plan_key = jax.random.split(jax.random.fold_in(key, t))
        return planner.plan(
            self._config,
            self._know,
            self._actions,
            ensemble,
            self._know.restore(restore_key, records),
            mean,
            lambda obs, key: guide.policy(learner, obs, key),
            lambda obs, key: guide.value(learner, obs, key),
            plan_key,
        )

    def _risk_one(
        self,
        ensemble: Ensemble,
        learner: Any,
        key: Key[Array, ""],
        t: Array,
        records: Float[Array, "n R"],
        action: Float[Array, "n A"],
    ) -> Float[Array, " n"]:
        """What the actions of one seed's policy might cost."""
        restore_key, risk_key = jax.random.split(jax.random.fold_in(key, t))
        return planner.worst_cost(
            self._config,
            self._know,
            self._actions,
            ensemble,
            self._know.restore(restore_key, records),
            action,
            lambda obs, key: self._guide.policy(learner, obs, key),
            risk_key,
        )


def room(n: int, needed: int) -> int:
    """The smallest of n, n / 2, n / 4, …, each rounded up, that holds so many."""
    while n > 1 and -(-n // 2) >= needed:
        n = -(-n // 2)
    return n
