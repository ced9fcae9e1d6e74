"""safe-LOOP: plan every real step with the learned model (Sikchi et al. 2021).

SAC learns from real steps what reward is to come; the ensemble learns what happens next. At every
step many plans are imagined, those whose worst case costs too much are dropped, and what is left is
weighed by the rewards on the way and SAC's value at the end. SAC itself knows no costs: without the
planner its policy is not safe.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from surefoot.algorithms import mbppo_host, sac
from surefoot.algorithms import mbppo_memory as memories
from surefoot.algorithms.collect import Collector, Experience
from surefoot.algorithms.common import (
    Epoch,
    Phases,
    TrainingFault,
    new_totals,
    over_seeds,
    real_metrics,
    seed_keys,
)
from surefoot.algorithms.mbppo_config import MOST_STEPS
from surefoot.algorithms.mbppo_memory import Memory, World
from surefoot.algorithms.model_free import check_finite
from surefoot.algorithms.off_policy import (
    ReplayMemory,
    box_actions,
    check_blocks,
    joined,
    schedule,
    squashed_policy,
    tell,
    uniform,
)
from surefoot.core.snapshot import Saved
from surefoot.learn.sac import Learner, SACLearnerConfig, to_box
from surefoot.world import ensemble as ensembles
from surefoot.world import fitting, planner
from surefoot.world.ensemble import Ensemble, EnsembleConfig
from surefoot.world.model import TaskModel
from surefoot.world.planner import PlannerConfig

PLANNED = ("planned_value", "planned_cost", "safe_plans")
FITTED = ("model_error", "model_epochs")
REMEDY = "a smaller sac.learning_rate or ensemble.learning_rate"


@dataclass(frozen=True)
class SafeLoopConfig:
    """safe-LOOP with the paper's settings.

    Its own experiments repeat every action five times. For the same reach with a free hand at every
    step there is planner.hold; to repeat actions there is the task option action_repeat, with
    model="black-box".
    """

    steps: int = 450_000
    """Real steps in all."""
    cost_limit: float = 18.0
    """Limit on the undiscounted cost of an episode, to report by: what the planner keeps is
    planner.cost_threshold, at every step."""
    steps_per_epoch: int = 7_500
    """Real steps after which the run is written down."""
    environments: int = 10
    """Environments side by side, which plan together."""
    random_steps: int = 10_000
    """Real steps of random actions first, without a plan and without SAC's updates."""
    update_every: int = 50
    """Real steps of a block; a multiple of the environments."""
    updates: int = 50
    """SAC's updates after each block."""
    refit_every: int = 250
    """Real steps after which the model is fitted again; a multiple of a block."""
    replay: int = 1_000_000
    """How many of the latest real steps SAC remembers; the model remembers all."""
    model: Literal["ego", "paper", "black-box"] = "paper"
    """What the ensemble predicts: the robot's own motion, the paper's state, or observations."""
    sac: SACLearnerConfig = field(default_factory=SACLearnerConfig)
    """The learner of policy and values."""
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    """How every step is planned."""
    ensemble: EnsembleConfig = field(default_factory=lambda: EnsembleConfig(max_steps=250))
    """The model of the world."""

    def __post_init__(self) -> None:
        check_blocks(self)
        if self.steps > MOST_STEPS:  # all are kept in memory
            raise ValueError(f"steps={self.steps} must be at most {MOST_STEPS:,}")
        if self.model not in ("ego", "paper", "black-box"):
            raise ValueError(f"model={self.model!r} must be one of ('ego', 'paper', 'black-box')")
        if self.refit_every < 1 or self.refit_every % self.update_every:
            raise ValueError(
                f"refit_every={self.refit_every} must be a positive multiple of "
                f"update_every={self.update_every}"
            )
        if self.random_steps < self.refit_every:
            raise ValueError(
                f"random_steps={self.random_steps} must be at least refit_every="
                f"{self.refit_every}: there is no planning without a model"
            )


class State(eqx.Module):
    """Everything that learns, and the plans that are being followed."""

    sac: sac.State
    ensemble: Ensemble
    mean: Float[Array, "n H A"]
    """Where each environment starts to plan its next step."""
    key: Key[Array, ""]


def init(config: SafeLoopConfig, world: World, key: Key[Array, ""]) -> State:
    """A new policy, new critics and a new ensemble."""
    know, size = world.knowledge, world.actions.size
    sac_key, ensemble_key, key = jax.random.split(key, 3)
    return State(
        sac.init(config.sac, know.observation_size, size, sac_key),
        ensembles.init(
            config.ensemble,
            know.feature_size + size,
            know.target_size,
            know.binary_size,
            ensemble_key,
        ),
        planner.initial_mean(config.planner, world.actions, config.environments),
        key,
    )


def decide(
    config: SafeLoopConfig,
    world: World,
    learner: Learner,
    ensemble: Ensemble,
    mean: Float[Array, "n H A"],
    key: Key[Array, ""],
    records: Float[Array, "n R"],
    fresh: Bool[Array, " n"],
) -> tuple[planner.Plan, Key[Array, ""], dict[str, Array]]:
    """What to do in each environment; plans start anew where an episode is `fresh`.

    Metrics are means over the environments.
    """
    key, restore_key, plan_key = jax.random.split(key, 3)
    begin = planner.initial_mean(config.planner, world.actions, config.environments)
    plan = planner.plan(
        config.planner,
        world.knowledge,
        world.actions,
        ensemble,
        world.knowledge.restore(restore_key, records),
        jnp.where(fresh[:, None, None], begin, mean),
        lambda obs, key: to_box(world.actions, learner.sample(obs, key)),
        learner.value,
        plan_key,
    )
    metrics = (plan.value, plan.worst_cost, plan.safe)
    return plan, key, {name: x.mean() for name, x in zip(PLANNED, metrics, strict=True)}


def refit(
    config: SafeLoopConfig, ensemble: Ensemble, key: Key[Array, ""], memory: Memory, count: Array
) -> tuple[Ensemble, Key[Array, ""], fitting.FitMetrics]:
    """Train the ensemble on all real steps."""
    key, sub = jax.random.split(key)
    ensemble, metrics = fitting.fit(
        config.ensemble, ensemble, memory.inputs, memory.targets, count, sub
    )
    return ensemble, key, metrics


def epochs(
    config: SafeLoopConfig,
    make_env: Callable[[int, str], Any],
    make_knowledge: Callable[[Any], TaskModel],
    seeds: list[int],
    saved: Saved | None = None,
) -> Iterator[Epoch]:
    """Train, one epoch at a time. `make_env(n, model)` makes n environments.

    With `saved`, a snapshot of an epoch read back, training goes on from there.
    """
    many = len(seeds)
    env = make_env(many * config.environments, config.model)
    actions = box_actions(env)
    world = World(make_knowledge(env), actions, env.max_episode_steps or 1000)
    collector = Collector(env, seeds, config.environments, world.knowledge)
    begin = over_seeds(lambda key: init(config, world, key), many)
    learning = over_seeds(lambda *args: sac.improve(config.sac, config.updates, *args), many)
    fit = over_seeds(lambda *args: refit(config, *args), many, shared=(3,))
    replay = ReplayMemory(config, world.knowledge.observation_size, actions, many)
    memory = ModelMemory(config, world, many)
    pilot = Pilot(config, world, collector, begin(seed_keys(seeds)))
    phases, totals = Phases(), new_totals(many)
    if saved is not None:
        pilot.state, totals = saved.like("state", pilot.state), saved.like("totals", totals)
        phases = Phases(saved.part("phases"))
        replay.restore(saved.part("replay"), totals["steps"])
        memory.restore(saved.part("memory"))
        collector.restore(saved.part("collector"), totals["epoch"])
    for number, blocks, total in schedule(config, totals):
        seen, learned, fits = [], [], []
        for _ in range(blocks):
            done = totals["steps"] + len(seen) * config.update_every
            with phases("collect"):
                act = uniform(collector, actions) if done < config.random_steps else pilot
                ahead = config.update_every // config.environments
                seen.append(collector.collect(None, actions, ahead, act=act))
            done, state = done + config.update_every, pilot.state
            with phases("fit"):
                memory.add(seen[-1])
                if done % config.refit_every == 0:
                    ensemble, key, fitted = jax.block_until_ready(
                        fit(state.ensemble, state.key, memory.memory, jnp.int32(memory.count))
                    )
                    state = State(state.sac, ensemble, state.mean, key)
                    fits.append(fitted)
            with phases("update"):
                replay.add(seen[-1])
                if done >= config.random_steps:
                    learner, metrics = jax.block_until_ready(learning(state.sac, replay.replay))
                    state = State(learner, state.ensemble, state.mean, state.key)
                    learned.append(metrics)
            pilot.state = state
        replay.keep(seen)
        memory.keep()
        rows = real_metrics(joined(seen), totals, config.cost_limit)
        tell(rows, pilot.report(), PLANNED)
        tell(rows, [_errors(one) for one in fits[-1:]], FITTED)
        tell(rows, learned, sac.METRICS)
        _check(rows, pilot.state.sac.learner, learned, fits)
        policy = squashed_policy(pilot.state.sac.learner, actions)
        with phases("save"):
            where = collector.snapshot()
        seconds = phases.seconds()
        snapshot = {
            "state": pilot.state,
            "replay": replay.snapshot(),
            "memory": memory.snapshot(),
            "totals": totals,
            "phases": seconds,
            "collector": where,
        }
        yield Epoch(number, total, rows, pilot.state, policy, seconds, snapshot)


class Pilot:
    """Acts in all environments of all seeds by planning, in one compiled call per step."""

    def __init__(self, config: SafeLoopConfig, world: World, collector: Collector, state: State):
        self.state, self._collector = state, collector
        self._decide = over_seeds(lambda *args: decide(config, world, *args), len(collector.seeds))
        self._told: list[dict[str, Array]] = []

    def __call__(self, obs: np.ndarray, t: int) -> np.ndarray:
        """Actions [S, n, A]."""
        state, here = self.state, self._collector
        plan, key, told = self._decide(
            state.sac.learner, state.ensemble, state.mean, state.key, here.records(), here.begins()
        )
        self.state = State(state.sac, state.ensemble, plan.mean, key)
        self._told.append(told)
        return np.asarray(plan.action)

    def report(self) -> list[dict[str, Array]]:
        """What the plans were like since the last report, step by step."""
        told, self._told = self._told, []
        return told


class ModelMemory:
    """All real steps of all seeds on the device, as the model learns from them.

    What each epoch has added is kept on the host too, so that a checkpoint need not fetch the rest.
    """

    def __init__(self, config: SafeLoopConfig, world: World, seeds: int):
        capacity = -(-config.steps // config.update_every) * config.update_every
        one = memories.empty(world, capacity, records=False)
        self.memory: Memory = jax.tree.map(lambda x: jnp.repeat(x[None], seeds, 0), one)
        self.count = 0
        """Steps of one seed."""
        self._put = over_seeds(
            lambda *args: memories.remember(world, *args, records=False), seeds, (2,), (0,)
        )
        # Imagination starts where the environments are, so no initial states are remembered.
        self._nowhere = np.zeros((seeds, 1, world.knowledge.record_size), np.float32)
        self._added: list[dict[str, Array]] = []
        self._kept: list[dict[str, np.ndarray]] = []

    def add(self, experience: Experience) -> None:
        """Put the steps of a block in."""
        rows = {**mbppo_host.flattened(experience), "starts": self._nowhere}
        self.memory, added = self._put(self.memory, rows, jnp.int32(self.count))
        self._added.append(added)
        self.count += experience.steps

    def keep(self) -> None:
        """Remember on the host what was added since the last time."""
        blocks, self._added = jax.device_get(self._added), []
        self._kept.append(
            memories.kept(jax.tree.map(lambda *parts: np.concatenate(parts, 1), *blocks))
        )

    def snapshot(self) -> list[dict[str, np.ndarray]]:
        """What is needed to fill it again; arrays that will not change."""
        return list(self._kept)

    def restore(self, parts: dict[str, Any]) -> None:
        """Fill it with what was kept."""
        self._kept = [memories.kept(parts[str(i)]) for i in range(len(parts))]
        self.memory = memories.refill(self.memory, self._kept, self._nowhere)
        self.count = sum(rows["inputs"].shape[1] for rows in self._kept)


def _errors(fitted: fitting.FitMetrics) -> dict[str, Array]:
    return {"model_error": fitted.holdout_mse.mean(-1), "model_epochs": fitted.epochs}


def _check(
    rows: list[dict[str, Any]],
    learner: Any,
    learned: list[dict[str, Array]],
    fits: list[fitting.FitMetrics],
) -> None:
    """Stop before anything broken is written down."""
    check_finite(rows, {"blocks": learned}, learner, REMEDY)
    for fitted in fits:
        for row, fine in zip(rows, np.asarray(fitted.finite), strict=True):
            if not fine:
                raise TrainingFault(
                    f"seed {row['seed']}: a fit of the model became NaN or infinite in epoch "
                    f"{row['epoch']}. Try {REMEDY}"
                )
