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
from surefoot.algorithms.on_policy import Measured, OnPolicyConfig, State
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Metrics, RandomKey
from surefoot.learn import actor_critic, surrogate, trust_region
from surefoot.learn.actor_critic import Batch, Rows, fit_critics, observe, prepare
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.networks import Actor
from surefoot.learn.trust_region import Judged, TrustRegionConfig


@dataclass(frozen=True)
class TRPOLagrangianConfig(OnPolicyConfig):
    """TRPO-Lagrangian with the settings of safety-starter-agents."""

    trpo: TrustRegionConfig = field(default_factory=TrustRegionConfig)
    """The learner."""
    multiplier: MultiplierConfig = field(default_factory=lambda: MultiplierConfig(kind="softplus"))
    """The multiplier's rule."""


def init(config: TRPOLagrangianConfig, problem: Problem, key: RandomKey) -> State:
    """A new policy, new critics and the initial multipliers."""
    learner_key, key = jax.random.split(key)
    size, k = problem.observation_size, problem.constraints
    learner = actor_critic.init(
        config.trpo, config.multiplier, size, problem.actions, k, learner_key
    )
    return State(learner, key)


def update(
    config: TRPOLagrangianConfig, state: State, batch: Batch, measured: Measured
) -> tuple[State, Metrics]:
    """One update from real steps."""
    key, sub = jax.random.split(state.key)
    rows, scales = prepare(config.trpo, state.learner, batch)
    learner, lam = on_policy.follow_cost(
        config.multiplier, state.learner, measured.cost, config.cost_limit, scales
    )
    actor, metrics = improve(config.trpo, learner.actor, rows, lam)
    learner = eqx.tree_at(lambda s: s.actor, learner, actor)
    learner, critic_metrics = fit_critics(config.trpo, learner, rows, sub)
    learner = observe(learner, batch)
    return State(learner, key), {"lambda": lam, **metrics, **critic_metrics}


def improve(
    config: TrustRegionConfig, actor: Actor, rows: Rows, lam: Float[Array, " k"]
) -> tuple[Actor, Metrics]:
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


ALGORITHM = on_policy.algorithm(
    "trpo-lagrangian",
    "TRPO-Lagrangian",
    TRPOLagrangianConfig,
    init,
    update,
    remedy="a smaller trpo.critic_learning_rate or trpo.normalise_observations",
    learner="trpo",
)
