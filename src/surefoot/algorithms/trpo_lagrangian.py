"""TRPO-Lagrangian, as in safety-starter-agents.

One epoch: collect real steps; update the multiplier with the cost of the episodes that ended; take
one natural-gradient step on the Lagrangian within the trust region; fit the critics.
"""

from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from surefoot.algorithms import on_policy
from surefoot.algorithms.algorithm import Algorithm, CostLimit, Preset, Steps
from surefoot.algorithms.on_policy import Measured, OnPolicy, State
from surefoot.algorithms.ppo_lagrangian import TASKS
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import RandomKey
from surefoot.core.config import check
from surefoot.learn import ppo, surrogate, trust_region
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.networks import Actor
from surefoot.learn.trust_region import Judged, TrustRegionConfig


@dataclass(frozen=True)
class TRPOLagrangianConfig:
    """TRPO-Lagrangian with the settings of safety-starter-agents."""

    steps: Steps = 2_000_000
    """Real steps in all."""
    cost_limit: CostLimit = ()
    """Limit on the undiscounted cost of an episode, one per constraint."""
    steps_per_epoch: Steps = 30_000
    """Real steps per update."""
    observation: str = "paper"
    """Observation that the policy sees, if the task has several."""
    trpo: TrustRegionConfig = field(default_factory=TrustRegionConfig)
    """The learner."""
    multiplier: MultiplierConfig = field(default_factory=lambda: MultiplierConfig(kind="softplus"))
    """The multiplier's rule."""

    def __post_init__(self) -> None:
        check(self)


def init(config: TRPOLagrangianConfig, problem: Problem, key: RandomKey) -> State:
    """A new policy, new critics and the initial multipliers."""
    learner_key, key = jax.random.split(key)
    actions, k = problem.actions, problem.constraints
    learner = trust_region.init(
        config.trpo,
        config.multiplier,
        problem.observation_size,
        actions.size,
        actions.discrete,
        k,
        learner_key,
    )
    return State(learner, key)


def update(
    config: TRPOLagrangianConfig, state: State, batch: ppo.Batch, measured: Measured
) -> tuple[State, dict[str, Array]]:
    """One update from real steps."""
    key, sub = jax.random.split(state.key)
    learner, lam = on_policy.follow_cost(
        config.multiplier, state.learner, measured.cost, config.cost_limit
    )
    rows = ppo.prepare(config.trpo.ppo, learner, batch)
    actor, metrics = improve(config.trpo, learner.actor, rows, lam)
    learner = eqx.tree_at(lambda s: s.actor, learner, actor)
    learner, critic_metrics = ppo.fit_critics(config.trpo.ppo, learner, rows, sub)
    learner = ppo.observe(learner, batch.obs)
    return State(learner, key), {"lambda": lam, **metrics, **critic_metrics}


def improve(
    config: TrustRegionConfig, actor: Actor, rows: ppo.Rows, lam: Float[Array, " k"]
) -> tuple[Actor, dict[str, Array]]:
    """The step sqrt(2 delta / g'H^-1 g) H^-1 g on the Lagrangian's gradient g, then shrunk."""
    region = trust_region.around(config, actor, rows)
    objective = lambda judged: surrogate.lagrangian(judged.reward, judged.cost, lam)
    before, gradient = jax.value_and_grad(lambda p: objective(region.judge(p)))(region.here)
    direction = trust_region.solve(config, region, gradient)
    # A gradient of 0 has direction 0, whatever it is divided by.
    curvature = jnp.maximum(gradient @ direction, jnp.finfo(gradient.dtype).tiny)
    step = jnp.sqrt(2 * config.delta / curvature) * direction

    def accept(judged: Judged) -> Array:
        return objective(judged) >= before

    return trust_region.search(config, region, step, accept)


def trainer(config: TRPOLagrangianConfig, problem: Problem) -> OnPolicy:
    remedy = "a smaller trpo.critic_learning_rate or trpo.normalise_observations"
    return OnPolicy(config, problem, init, update, remedy)


ALGORITHM = Algorithm(
    name="trpo-lagrangian",
    title="TRPO-Lagrangian",
    config=TRPOLagrangianConfig,
    trainer=trainer,
    environments=on_policy.environments,
    presets={"default": Preset(tasks=TASKS)},
    columns={"lambda": "{lambda:.3f}"},
)
