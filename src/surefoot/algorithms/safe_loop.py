"""safe-LOOP: plan every real step with the learned model (Sikchi et al. 2021).

SAC learns values from real steps; the ensemble learns the dynamics. At every step many plans are
imagined. Plans whose worst case costs too much are dropped; the others are weighted by the rewards
on the way and SAC's value at the end. SAC ignores costs: without the planner its policy is not
safe.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from surefoot.algorithms import model_data, planning, sac
from surefoot.algorithms.algorithm import Algorithm, CostLimit, Preset, Steps
from surefoot.algorithms.collect import Actor, Generators, Now, draw_uniformly
from surefoot.algorithms.dataset import Dataset
from surefoot.algorithms.experience import Experience
from surefoot.algorithms.loop import mean_metrics
from surefoot.algorithms.off_policy import (
    as_transitions,
    check_actions,
    check_rounds,
    environments,
    replay_buffer,
    squashed_policy,
    transitions,
)
from surefoot.algorithms.phases import Phases
from surefoot.algorithms.seeds import over_seeds, seed_keys
from surefoot.algorithms.trainer import Planning, Problem
from surefoot.core.arrays import RandomKey
from surefoot.core.config import Count, NonNegativeInt, Range
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved
from surefoot.learn.sac import Learner, SACLearnerConfig, to_box
from surefoot.world import fitting, planner
from surefoot.world.ensemble import Ensemble, EnsembleConfig
from surefoot.world.planner import PlannerConfig

PLAN_METRICS = ("planned_value", "planned_cost", "safe_plans")
FIT_METRICS = ("model_error", "model_epochs")


@dataclass(frozen=True)
class SafeLoopConfig:
    """safe-LOOP with the settings of the MBPPO-Lagrangian paper.

    The original repeats every action five times. `planner.hold` gives plans the same reach with a
    free choice at every step. To repeat actions, use the task option action_repeat with
    model="black-box".
    """

    steps: Annotated[int, Range(least=1, most=10**9)] = 450_000
    """Real steps in all."""
    cost_limit: CostLimit = ()
    """Limit that episode costs are reported against; the planner keeps planner.cost_threshold at
    every step."""
    steps_per_epoch: Steps = 7_500
    """Real steps per epoch."""
    environments: Count = 10
    """Environments stepped and planned for together."""
    random_steps: NonNegativeInt = 10_000
    """Real steps with random actions at the start, without plans and without SAC's updates."""
    update_every: Count = 50
    """Real steps per round; a multiple of the environments."""
    updates: Count = 50
    """SAC's updates after each round."""
    refit_every: Count = 250
    """Real steps between fits of the model; a multiple of update_every."""
    replay: Count = 1_000_000
    """Capacity of SAC's replay buffer, in steps; the model's dataset keeps all."""
    model: str = "paper"
    """What the ensemble predicts: one of the task's models, or black-box."""
    sac: SACLearnerConfig = field(default_factory=SACLearnerConfig)
    """The learner of policy and values."""
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    """The planner."""
    ensemble: EnsembleConfig = field(default_factory=lambda: EnsembleConfig(max_steps=250))
    """The learned model."""

    def __post_init__(self) -> None:
        check_rounds(self)
        if self.refit_every % self.update_every:
            raise ValueError(
                f"refit_every={self.refit_every} must be a multiple of "
                f"update_every={self.update_every}"
            )
        if self.random_steps < self.refit_every:
            raise ValueError(
                f"random_steps={self.random_steps} must be at least refit_every="
                f"{self.refit_every}: planning needs a model"
            )


class State(eqx.Module):
    """Everything that learns, and the plans in progress."""

    sac: sac.State
    ensemble: Ensemble
    mean: Float[Array, "n H A"]
    """Initial mean of each environment's next plan."""
    key: RandomKey


def init(config: SafeLoopConfig, problem: Problem, key: RandomKey) -> State:
    """A new policy, new critics and a new ensemble."""
    sac_key, ensemble_key, key = jax.random.split(key, 3)
    size = problem.actions.size
    return State(
        sac.init(config.sac, problem.observation_size, size, sac_key),
        model_data.new_ensemble(config.ensemble, problem, ensemble_key),
        planner.initial_mean(config.planner, problem.actions, config.environments),
        key,
    )


def decide(
    config: SafeLoopConfig,
    problem: Problem,
    guide: Planning,
    state: State,
    records: Float[Array, "n R"],
    begins: Bool[Array, " n"],
) -> tuple[Float[Array, "n A"], State, dict[str, Array]]:
    """Actions for each environment; plans start afresh where an episode `begins`.

    Metrics are means over the environments.
    """
    key, restore_key, plan_key = jax.random.split(state.key, 3)
    begin = planner.initial_mean(config.planner, problem.actions, config.environments)
    learner = state.sac.learner
    plan = planner.plan(
        config.planner,
        problem.task_model,
        problem.actions,
        state.ensemble,
        problem.task_model.restore(restore_key, records),
        jnp.where(begins[:, None, None], begin, state.mean),
        lambda obs, key: guide.act(learner, obs, key),
        lambda obs, key: guide.value(learner, obs, key),
        plan_key,
    )
    metrics = {
        "planned_value": plan.value,
        "planned_cost": plan.worst_cost,
        "safe_plans": plan.safe,
    }
    state = replace(state, mean=plan.mean, key=key)
    return plan.action, state, {name: x.mean() for name, x in metrics.items()}


class SafeLoopTrainer:
    """See `trainer.Trainer`."""

    remedy = "a smaller sac.learning_rate or ensemble.learning_rate"

    def __init__(self, config: SafeLoopConfig, problem: Problem):
        check_actions(problem.actions)
        self.config, self.problem, many = config, problem, len(problem.seeds)
        self.rounds = config.steps_per_epoch // config.update_every
        self.round_steps = config.update_every // config.environments
        every = config.update_every
        self.state: State = over_seeds(lambda key: init(config, problem, key), many)(
            seed_keys(problem.seeds)
        )
        self._improve = over_seeds(
            lambda *args: sac.improve(config.sac, config.updates, *args), many, shared=(2,)
        )
        self._fit = over_seeds(
            lambda *args: model_data.fit(config.ensemble, *args), many, shared=(3,)
        )
        self._model_rows = over_seeds(lambda rows: model_data.model_rows(problem, **rows), many)
        guide = self.planning()
        self._decide = over_seeds(lambda *args: decide(config, problem, guide, *args), many)
        self._replay = replay_buffer(config, problem)
        self._dataset = Dataset(-(-config.steps // every) * every, many)
        self._plans: list[dict[str, Array]] = []
        self._updates: list[dict[str, Array]] = []
        self._fits: list[fitting.FitMetrics] = []

    def actor(self, done: int, rngs: Generators) -> Actor:
        if done < self.config.random_steps:
            return draw_uniformly(self.problem.actions, rngs, self.problem.environments)
        return self._plan

    def _plan(self, now: Now) -> np.ndarray:
        """Actions [S, n, A] of new plans."""
        action, self.state, metrics = self._decide(self.state, now.record, now.begins)
        self._plans.append(metrics)
        return np.asarray(action)

    def learn(self, experience: Experience, done: int, phases: Phases) -> None:
        state = self.state
        with phases("fit"):
            self._dataset.add(self._model_rows(model_data.real_rows(experience)))
            if done % self.config.refit_every == 0:
                ensemble, key, fitted = jax.block_until_ready(
                    self._fit(
                        state.ensemble,
                        state.key,
                        self._dataset.rows,
                        jnp.int32(self._dataset.count),
                    )
                )
                state = replace(state, ensemble=ensemble, key=key)
                self._fits.append(fitted)
        with phases("update"):
            self._replay.add(transitions(experience, self.problem.actions))
            if done >= self.config.random_steps:
                size = jnp.int32(self._replay.size)
                learner, metrics = jax.block_until_ready(
                    self._improve(state.sac, as_transitions(self._replay), size)
                )
                state = replace(state, sac=learner)
                self._updates.append(metrics)
        self.state = state

    def end_epoch(self) -> dict[str, Any]:
        self._replay.end_epoch()
        self._dataset.end_epoch()
        many = len(self.problem.seeds)
        self._epoch = self._plans, self._updates, self._fits
        self._plans, self._updates, self._fits = [], [], []
        plans, updates, fits = self._epoch
        errors = [
            {"model_error": f.holdout_mse.mean(-1), "model_epochs": f.epochs} for f in fits[-1:]
        ]
        return {
            **mean_metrics(plans, PLAN_METRICS, many),
            **mean_metrics(errors, FIT_METRICS, many),
            **mean_metrics(updates, sac.METRICS, many),
        }

    def finite_parts(self) -> dict[str, Any]:
        _, updates, fits = self._epoch
        return {
            "policy or critics": self.state.sac.learner,
            "an update's metric": updates,
            "the model's fit": [model_data.fit_is_finite(fitted) for fitted in fits],
        }

    def policy(self) -> Policy:
        """SAC's policy, without the planner."""
        return squashed_policy(self.state.sac.learner, self.problem.actions)

    def planning(self) -> Planning:
        actions, state = self.problem.actions, self.state

        def mode(learner: Learner, obs: Array, key: RandomKey) -> Array:
            return to_box(actions, jnp.tanh(learner.networks.actor(obs).gaussian.mean))

        return Planning(
            state.ensemble,
            state.sac.learner,
            lambda learner, obs, key: to_box(actions, learner.sample(obs, key)),
            mode,
            lambda learner, obs, key: learner.value(obs, key),
            self.config.planner,
            self.config.planner.horizon,
        )

    def snapshot(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "replay": self._replay.snapshot(),
            "dataset": self._dataset.snapshot(),
        }

    def restore(self, saved: Saved, steps: int, data: bool = True) -> None:
        self.state = saved.like("state", self.state)
        if data:
            self._replay.restore(saved.part("replay"), steps)
            self._dataset.restore(saved.part("dataset"), steps)


KNOWN_COST = ("PointGoal", "CarGoal", "DoggoGoal", "DoggoGoalOpenAI", "RCCar")
"""Tasks whose models know the cost, so that a safe plan costs exactly 0."""
DEFAULT = Preset(
    {
        "steps": 30_000,
        "model": "ego",
        "random_steps": 2_500,
        # The planner needs no values to act by, so SAC may begin before they are any good.
        "sac.initial_temperature": 0.005,
        "planner": planning.DEFAULT,
        "planner.cost_threshold": planning.LEARNED_COST_THRESHOLD,
    },
    devices={
        "cpu": {
            "steps": 15_000,
            "steps_per_epoch": 3_750,
            "environments": 5,
            "sac.hidden": (64, 64),
            "sac.batch_size": 128,
            "ensemble.members": 4,
            "ensemble.elites": 3,
            "ensemble.hidden": (64, 64),
            "ensemble.max_steps": 100,
        }
    },
    tasks={
        task: {
            "planner.cost_threshold": 0.0,
            # Plans reach far enough. SAC's values mislead: the planner never does what SAC's policy
            # would, so nothing corrects the values of such actions.
            "planner.value_weight": 0.0,
            **{f"planner.{name}": x for name, x in planning.TASKS.get(task, {}).items()},
        }
        for task in KNOWN_COST
    },
    # Random steps do harm, and with a known cost a model of 250 steps suffices to plan with.
    tasks_on={"cpu": {task: {"random_steps": 250} for task in KNOWN_COST}},
)
PAPER = Preset(
    {"planner.cost_threshold": planning.LEARNED_COST_THRESHOLD},
    tasks={task: {"planner.cost_threshold": 0.0} for task in KNOWN_COST},
)
ALGORITHM = Algorithm(
    name="safe-loop",
    title="safe-LOOP",
    config=SafeLoopConfig,
    trainer=SafeLoopTrainer,
    environments=environments,
    presets={"default": DEFAULT, "paper": PAPER},
    uses_model=True,
    plans=True,
    columns={
        "planned": "{planned_value:.1f}/{planned_cost:.1f}",
        "safe plans": "{safe_plans:.0%}",
        "temperature": "{temperature:.3f}",
        "model error": "{model_error:.4f}",
    },
    keeps_limit=lambda config: False,
)
