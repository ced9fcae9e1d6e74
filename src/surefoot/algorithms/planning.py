"""Actors that plan with a learned model: look-ahead, and a safety filter around a policy."""

import time
from typing import NamedTuple, get_args

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from surefoot.algorithms.algorithm import Mode
from surefoot.algorithms.collect import Actor, Now
from surefoot.algorithms.seeds import over_seeds
from surefoot.algorithms.trainer import Planning, Problem
from surefoot.core.arrays import RandomKey, Tree
from surefoot.core.config import changed, check_choice, to_dict
from surefoot.envs.task import Task
from surefoot.world import planner
from surefoot.world.ensemble import Ensemble
from surefoot.world.imagination import LearnedWorld, Policy
from surefoot.world.model import State
from surefoot.world.planner import Plan, PlannerConfig
from surefoot.world.steering import plan_function

MODES: tuple[Mode, ...] = get_args(Mode)
DEFAULT = PlannerConfig(kind="cem", horizon=6, hold=5, samples=60, iterations=4, particles=1)
"""Few lasting actions per plan, and the best plans alike. With single steps, as in safe-LOOP's own
settings, plans are little more than the mean of the safe ones."""
LEARNED_COST_THRESHOLD = 0.2
"""Costs that are learned are never exactly 0."""


def default_planner(task: Task | None = None, known_cost: bool = True) -> PlannerConfig:
    """The planner of a run whose algorithm does not plan."""
    threshold = 0.0 if known_cost else LEARNED_COST_THRESHOLD
    return changed(DEFAULT, {"cost_threshold": threshold, **(task.filter if task else {})})


Learned = tuple[Ensemble, Tree]
"""An ensemble and a learner."""


class PlanReport(NamedTuple):
    """What planning amounted to."""

    followed: float | None
    """Share of the steps at which a plan was followed."""
    safe: float | None
    """Share of the followed plans that were safe."""
    plans_per_second: float | None
    """Plans per second, compilation excluded."""


class PlannedActor:
    """Acts in all environments of all seeds by planning, in one compiled call per step.

    The algorithm's policy proposes plans and its critic gives the terminal value. As a filter, it
    takes the policy's action unless that, followed by the policy, might cost more than the
    threshold over the horizon. It then follows the plan, if that might cost less.
    """

    def __init__(
        self,
        config: PlannerConfig,
        problem: Problem,
        planning: Planning,
        mode: Mode,
        policy: Actor,
        keys: Key[Array, " S"],
        greedy: bool = False,
    ):
        """`policy` acts where the filter does not intervene; `keys` has one key per seed."""
        check_choice("plan", mode, MODES)
        self._config, self._problem, self._planning = config, problem, planning
        self._act = planning.mode if greedy else planning.act
        self._mode = mode
        begin = np.asarray(planner.initial_mean(config, problem.actions, problem.environments))
        self._begin = np.broadcast_to(begin, (len(keys), *begin.shape))
        self.renew(planning, policy, keys)
        self._plan = over_seeds(self._plan_one, len(keys), shared=(2,))
        self._risk = over_seeds(self._risk_one, len(keys), shared=(2,))
        self._steps = self._safe = self._plans = 0
        self.followed = np.zeros(len(keys), int)
        """Steps of each seed at which a plan was followed."""
        self._seconds = 0.0
        self._compiled: set[int] = set()

    def renew(
        self, planning: Planning, policy: Actor, keys: Key[Array, " S"], begins: bool = True
    ) -> None:
        """Take what was learned since, without compiling again; `begins` drops plans in progress.

        `planning` must have the same functions.
        """
        self._learned = planning.ensemble, planning.learner
        self._policy, self._keys = policy, keys
        if begins:
            self._mean: np.ndarray = self._begin

    def __call__(self, now: Now) -> np.ndarray:
        """Actions [S, n, A]."""
        if self._mode == "look-ahead":
            everywhere = np.ones(now.begins.shape, bool)
            plan = self._make_plan(now, everywhere)
            return self._follow(plan, everywhere, plan.action)
        action = self._policy(now)
        risk = np.asarray(self._risk(self._learned, self._keys, now.t, now.record, action))
        danger = risk > self._config.cost_threshold
        if not danger.any():
            self._mean = self._begin
            self._steps += danger.size
            return action
        plan = self._make_plan(now, danger)
        return self._follow(plan, danger & (plan.worst_cost < risk), action)

    def report(self) -> PlanReport:
        """What planning amounted to so far."""
        share = lambda part, whole: part / whole if whole else None
        return PlanReport(
            share(int(self.followed.sum()), self._steps),
            share(self._safe, int(self.followed.sum())),
            share(self._plans, self._seconds),
        )

    def to_dict(self) -> dict[str, object]:
        """The mode, the report and the planner's settings in plain values."""
        return {"how": self._mode, **self.report()._asdict(), "planner": to_dict(self._config)}

    def _follow(self, plan: Plan, where: Bool[np.ndarray, "S n"], action: Tree) -> np.ndarray:
        """The plan's actions `where` it is followed, elsewhere `action`."""
        self._steps += where.size
        self.followed += where.sum(1)
        self._safe += int((where & plan.safe).sum())
        # A plan that is not followed is no warm start for the next one.
        self._mean = np.where(where[..., None, None], plan.mean, self._begin)
        return np.where(where[..., None], plan.action, action)

    def _make_plan(self, now: Now, where: Bool[np.ndarray, "S n"]) -> Plan:
        """Plans [S, n, …] for the environments in `where`; zeros for others.

        The batch has one of a few sizes, each compiled once: the smallest that holds the
        environments of the seed with most of them.
        """
        n = where.shape[1]
        mean = np.where(now.begins[..., None, None], self._begin, self._mean)
        size = batch_size(n, int(where.sum(1).max()))
        chosen = np.argsort(~where, 1, kind="stable")[:, :size]
        place = lambda x: chosen.reshape(*chosen.shape, *[1] * (x.ndim - 2))
        take = lambda x: np.take_along_axis(x, place(x), 1)
        start = time.perf_counter()
        plan = jax.block_until_ready(
            self._plan(self._learned, self._keys, now.t, take(now.record), take(mean))
        )
        if size in self._compiled:
            self._seconds += time.perf_counter() - start
            self._plans += int(where.sum())
        self._compiled.add(size)

        def put(x: Array) -> np.ndarray:
            out = np.zeros((len(where), n, *x.shape[2:]), x.dtype)
            np.put_along_axis(out, place(x), np.asarray(x), 1)
            return out

        return jax.tree.map(put, plan)

    def _plan_one(
        self, learned: Learned, key: RandomKey, t: Array, records: Array, mean: Array
    ) -> Plan:
        """The plans of one seed."""
        value = lambda obs, key: self._planning.value(learned[1], obs, key)
        world, states, act, key = self._imagined(learned, key, t, records)
        return plan_function(self._config)(self._config, world, states, mean, act, value, key)

    def _risk_one(
        self, learned: Learned, key: RandomKey, t: Array, records: Array, action: Array
    ) -> Float[Array, " n"]:
        """The worst-case cost of one seed's actions, followed by its policy."""
        world, states, act, key = self._imagined(learned, key, t, records)
        return planner.worst_cost(self._config, world, states, action, act, key)

    def _imagined(
        self, learned: Learned, key: RandomKey, t: Array, records: Float[Array, "n R"]
    ) -> tuple[LearnedWorld, State, Policy, RandomKey]:
        """One seed's learned world, its states now, its policy, and a key for this step."""
        ensemble, learner = learned
        restore_key, key = jax.random.split(jax.random.fold_in(key, t))
        states = self._problem.task_model.restore(restore_key, records)
        act = lambda obs, key: self._act(learner, obs, key)
        return self._problem.world(ensemble), states, act, key


def batch_size(n: int, needed: int) -> int:
    """The smallest of n, n / 2, n / 4, …, each rounded up, that holds `needed`."""
    while n > 1 and -(-n // 2) >= needed:
        n = -(-n // 2)
    return n
