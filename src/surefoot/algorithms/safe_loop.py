"""safe-LOOP: plan every real step with the learned model (Sikchi et al. 2021).

SAC learns values from real steps; the ensemble learns the dynamics. At every step many plans are
imagined. Plans whose worst case costs too much are dropped; the others are weighted by the rewards
on the way and SAC's value at the end. SAC ignores costs: without the planner its policy is not
safe.
"""

from dataclasses import dataclass, field, replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from surefoot.algorithms import off_policy, planning
from surefoot.algorithms.algorithm import Algorithm, DatasetSteps, Preset
from surefoot.algorithms.collect import Actor, Generators, Now
from surefoot.algorithms.experience import Experience
from surefoot.algorithms.loop import mean_metrics
from surefoot.algorithms.model_data import ModelData, fit_is_finite, new_ensemble
from surefoot.algorithms.off_policy import SACSettings, SACState, Updates, squashed_policy
from surefoot.algorithms.phases import Phases
from surefoot.algorithms.seeds import over_seeds, seed_keys
from surefoot.algorithms.trainer import Planning, Problem
from surefoot.core.arrays import Metrics, RandomKey, Tree
from surefoot.core.config import Count
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved
from surefoot.learn.sac import Learner, to_box
from surefoot.world import planner
from surefoot.world.ensemble import Ensemble, EnsembleConfig
from surefoot.world.fitting import FitMetrics
from surefoot.world.planner import PlannerConfig

PLAN_METRICS = ("planned_value", "planned_cost", "safe_plans")
FIT_METRICS = ("model_error", "model_epochs")


@dataclass(frozen=True)
class SafeLoopConfig(SACSettings):
    """safe-LOOP with the settings of the MBPPO-Lagrangian paper.

    The original repeats every action five times. `planner.hold` gives plans the same reach with a
    free choice at every step. To repeat actions, use the task option action_repeat with
    model="black-box".
    """

    steps: DatasetSteps = 450_000
    """Real steps in all."""
    refit_every: Count = 250
    """Real steps between fits of the model; a multiple of update_every."""
    model: str = "paper"
    """What the ensemble predicts: one of the task's models, or black-box."""
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    """The planner."""
    ensemble: EnsembleConfig = field(default_factory=lambda: EnsembleConfig(max_steps=250))
    """The learned model."""

    def __post_init__(self) -> None:
        super().__post_init__()
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

    sac: SACState
    ensemble: Ensemble
    mean: Float[Array, "n H A"]
    """Initial mean of each environment's next plan."""
    key: RandomKey


def init(config: SafeLoopConfig, problem: Problem, key: RandomKey) -> State:
    """A new policy, new critics and a new ensemble."""
    sac_key, ensemble_key, key = jax.random.split(key, 3)
    return State(
        off_policy.init(config.sac, problem, sac_key),
        new_ensemble(config.ensemble, problem, ensemble_key),
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
) -> tuple[Float[Array, "n A"], State, Metrics]:
    """Actions for each environment; plans start afresh where an episode `begins`.

    Metrics are means over the environments.
    """
    key, restore_key, plan_key = jax.random.split(state.key, 3)
    begin = planner.initial_mean(config.planner, problem.actions, config.environments)
    learner = state.sac.learner
    plan = planner.plan(
        config.planner,
        problem.world(state.ensemble),
        problem.task_model.restore(restore_key, records),
        jnp.where(begins[:, None, None], begin, state.mean),
        lambda obs, key: guide.act(learner, obs, key),
        lambda obs, key: guide.value(learner, obs, key),
        plan_key,
    )
    seen = (plan.value, plan.worst_cost, plan.safe)
    metrics = {name: x.mean() for name, x in zip(PLAN_METRICS, seen, strict=True)}
    return plan.action, replace(state, mean=plan.mean, key=key), metrics


class SafeLoopTrainer:
    """See `trainer.Trainer`."""

    remedy = "a smaller sac.learning_rate or ensemble.learning_rate"

    def __init__(self, config: SafeLoopConfig, problem: Problem):
        self.config, self.problem, many = config, problem, len(problem.seeds)
        self.rounds = config.steps_per_epoch // config.update_every
        self.round_steps = config.update_every // config.environments
        self._updates = Updates(config, problem, partial(off_policy.improve, config))
        self._data = ModelData(config.ensemble, problem, config.whole_rounds)
        begin = over_seeds(lambda key: init(config, problem, key), many)
        self.state: State = begin(seed_keys(problem.seeds))
        self.datasets = {"replay": self._updates.replay, "dataset": self._data.dataset}
        guide = self.planning()
        self._decide = over_seeds(lambda *args: decide(config, problem, guide, *args), many)
        self._plans: list[Metrics] = []
        self._fits: list[FitMetrics] = []

    def actor(self, done: int, rngs: Generators) -> Actor:
        return self._updates.random_actor(rngs) if self._updates.begins(done) else self._plan

    def _plan(self, now: Now) -> np.ndarray:
        """Actions [S, n, A] of new plans."""
        action, self.state, metrics = self._decide(self.state, now.record, now.begins)
        self._plans.append(metrics)
        return np.asarray(action)

    def learn(self, experience: Experience, done: int, phases: Phases) -> None:
        with phases("fit"):
            self._data.add(experience)
            if done % self.config.refit_every == 0:
                self.state, fitted = self._data.fit(self.state)
                self._fits.append(fitted)
        with phases("update"):
            learned = self._updates.learn(self.state.sac, experience, done)
            self.state = replace(self.state, sac=learned)

    def end_epoch(self) -> dict[str, np.ndarray]:
        self._data.dataset.end_epoch()
        many = len(self.problem.seeds)
        plans, self._plans = self._plans, []
        self._last_fits, self._fits = self._fits, []
        errors = [
            {"model_error": f.holdout_mse.mean(-1), "model_epochs": f.epochs}
            for f in self._last_fits[-1:]
        ]
        return {
            **mean_metrics(plans, PLAN_METRICS, many),
            **mean_metrics(errors, FIT_METRICS, many),
            **self._updates.end_epoch(),
        }

    def finite_parts(self) -> dict[str, Tree]:
        return {
            "policy or critics": self.state.sac.learner,
            "an update's metric": self._updates.last,
            "the model's fit": [fit_is_finite(fitted) for fitted in self._last_fits],
        }

    def policy(self) -> Policy:
        """SAC's policy, without the planner."""
        return squashed_policy(self.state.sac.learner.networks.actor, self.problem.actions)

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

    def snapshot(self) -> dict[str, Tree]:
        return {
            "state": self.state,
            "replay": self._updates.replay.snapshot(),
            "dataset": self._data.dataset.snapshot(),
        }

    def restore(self, saved: Saved, steps: int, data: bool = True) -> None:
        self.state = saved.like("state", self.state)
        if data:
            self._updates.replay.restore(saved.part("replay"), steps)
            self._data.dataset.restore(saved.part("dataset"), steps)


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
    environments=lambda config, episode_steps: config.environments,
    presets={"default": DEFAULT, "paper": PAPER},
    uses_model=True,
    acts=lambda config: "look-ahead",
    columns={
        "planned": "{planned_value:.1f}/{planned_cost:.1f}",
        "safe plans": "{safe_plans:.0%}",
        "temperature": "{temperature:.3f}",
        "model error": "{model_error:.4f}",
    },
    keeps_limit=lambda config: False,
)
