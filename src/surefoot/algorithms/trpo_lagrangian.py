"""TRPO-Lagrangian, as in safety-starter-agents.

One epoch: collect real steps; move the multiplier by the cost of the episodes that ended; take one
natural-gradient step on the Lagrangian, as long as the trust region allows; fit the critics.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from surefoot.algorithms import model_free
from surefoot.algorithms.common import Epoch
from surefoot.algorithms.model_free import Measured, Sizes, State
from surefoot.core.snapshot import Saved
from surefoot.learn import ppo, surrogate, trust_region
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.networks import Actor
from surefoot.learn.trust_region import Judged, TrustRegionConfig


@dataclass(frozen=True)
class TRPOLagrangianConfig:
    """TRPO-Lagrangian with safety-starter-agents' settings."""

    steps: int = 2_000_000
    """Real steps in all."""
    cost_limit: float = 18.0
    """Limit on the undiscounted cost of an episode; the same for each constraint."""
    steps_per_epoch: int = 30_000
    """Real steps per update."""
    observation: str = "paper"
    """Which observation of the Goal tasks the policy sees."""
    trpo: TrustRegionConfig = field(default_factory=TrustRegionConfig)
    """The learner."""
    multiplier: MultiplierConfig = field(default_factory=lambda: MultiplierConfig(kind="softplus"))
    """The multiplier's rule."""

    def __post_init__(self) -> None:
        model_free.check_schedule(self)


def init(config: TRPOLagrangianConfig, sizes: Sizes, key: Key[Array, ""]) -> State:
    """A new policy, new critics, and the multipliers at their start."""
    learner_key, key = jax.random.split(key)
    actions, k = sizes.actions, sizes.constraints
    learner = trust_region.init(
        config.trpo, config.multiplier, sizes.obs, actions.size, actions.discrete, k, learner_key
    )
    return State(learner, key)


def update(
    config: TRPOLagrangianConfig, state: State, batch: ppo.Batch, measured: Measured
) -> tuple[State, dict[str, Array]]:
    """One update from real steps."""
    key, sub = jax.random.split(state.key)
    learner, lam = model_free.follow_cost(
        config.multiplier, state.learner, measured.cost, config.cost_limit
    )
    rows = ppo.prepare(config.trpo.ppo, learner, batch)
    actor, metrics = improve(config.trpo, learner.actor, rows, lam)
    learner = eqx.tree_at(lambda s: s.actor, learner, actor)
    learner, critic_metrics = ppo.fit_critics(config.trpo.ppo, learner, rows, sub)
    learner = ppo.observe(learner, batch.obs)
    return State(learner, key), {"lambda": jnp.sum(lam), **metrics, **critic_metrics}


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


def epochs(
    config: TRPOLagrangianConfig,
    make_env: Callable[[int, str], Any],
    seeds: list[int],
    saved: Saved | None = None,
) -> Iterator[Epoch]:
    """Train, one epoch at a time: see `model_free.epochs`."""
    remedy = "a smaller trpo.critic_learning_rate or trpo.normalise_observations"
    return model_free.epochs(config, init, update, make_env, seeds, remedy, saved)
