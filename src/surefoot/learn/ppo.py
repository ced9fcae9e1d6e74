"""Proximal policy optimisation of a Lagrangian: config and one update from a batch.

Everything here is for one seed; callers `vmap` `init` and `update` over seeds.
"""

# Constants of ActorCriticConfig are fields of PPOConfig.
# pyright: reportIncompatibleVariableOverride=false

from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from surefoot.core.arrays import Metrics, RandomKey, Scalar
from surefoot.core.config import Count, Fraction, NonNegative, Positive, Range
from surefoot.core.spaces import ActionSpec
from surefoot.learn import actor_critic, surrogate
from surefoot.learn.actor_critic import (
    ActorCriticConfig,
    Learner,
    Rate,
    Rows,
    fit_critics,
)
from surefoot.learn.advantages import TargetKind
from surefoot.learn.descent import adam, descend
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.networks import Actor

RATE_STEP = 1.1
"""Factor by which an adaptive learning rate changes in an update."""
LEAST_RATE = 0.02
LARGEST_KL = 2.0
"""KL divergence of an update in units of `kl_stop`, beyond which it is shortened."""


@dataclass(frozen=True)
class PPOConfig(ActorCriticConfig):
    """How a batch improves the policy and the critics.

    The paper takes many full-batch steps (`minibatches=1`). A few passes over several minibatches
    reach the same policy with less computation.
    """

    gae_lambda: Fraction = 0.95
    """Lambda of generalised advantage estimation, for rewards and costs."""
    clip: Annotated[float, Range(above=0, below=1)] = 0.2
    """Clip range of the probability ratio around 1."""
    actor_learning_rate: Positive = 3e-4
    """Adam's learning rate for the policy."""
    epochs: Count = 80
    """Maximum passes of the policy over a batch."""
    minibatches: Count = 1
    """Minibatches per pass; 1 takes full-batch steps."""
    kl_stop: Positive | None = 0.012
    """Stop the policy update once the KL from the old policy exceeds this; None never stops."""
    adapt_rate: bool = False
    """Lower the policy's learning rate, at most to `LEAST_RATE` of it, while `kl_stop` ends updates
    early, and raise it again while it does not."""
    entropy_coefficient: NonNegative = 0.0
    """Weight of the policy's entropy in the objective."""
    max_grad_norm: Positive | None = None
    """Clip gradients to this norm; None never clips."""
    value_targets: TargetKind = "gae"
    """Critic targets: advantage + value ("gae") or the bootstrapped return ("return")."""
    scale_costs: bool = False
    """Divide cost advantages by the standard deviation of the reward advantages. A multiplier is
    then a price in reward per cost. The paper does not."""
    endless_costs: bool = False
    """Estimate costs as if a terminated episode went on, so that ending it early saves no cost. A
    high price would otherwise teach a robot to fall."""


class TrustRegion(NamedTuple):
    """Where updates keep the policy: around `actor`, within a mean KL divergence of `radius`.

    Beyond it, the divergence is subtracted from the objective. Advantages have a deviation of 1, so
    this outweighs them soon.
    """

    actor: Actor
    radius: float


def init(
    config: PPOConfig,
    multiplier_config: MultiplierConfig,
    obs_dim: int,
    actions: ActionSpec,
    k: int,
    key: RandomKey,
) -> Learner:
    """A new learner for k constraints; see `actor_critic.init`."""
    optimiser = _actor_optimiser(config)
    learner = actor_critic.init(config, multiplier_config, obs_dim, actions, k, key, optimiser)
    return replace(learner, actor_rate=jnp.ones(())) if config.adapt_rate else learner


def update(
    config: PPOConfig,
    learner: Learner,
    rows: Rows,
    lam: Float[Array, " k"],
    key: RandomKey,
    rate: Rate = 1.0,
    floor: Scalar | None = None,
    region: TrustRegion | None = None,
) -> tuple[Learner, Metrics]:
    """Improve the policy on (J_R - sum lambda_i J_C,i) / (1 + sum lambda_i), and fit the critics.

    `rate` scales both learning rates, and `floor` replaces `config.minimum_log_std`. Policy and
    critics do not depend on each other within an update, so the policy's early stop saves its time
    without changing the critics.

    Metrics: those of `improve_policy` and of `fit_critics`.
    """
    actor_key, critic_key = jax.random.split(key)
    learner, metrics = improve_policy(config, learner, rows, lam, actor_key, rate, floor, region)
    learner, critic_metrics = fit_critics(config, learner, rows, critic_key, rate)
    return learner, {**metrics, **critic_metrics}


def improve_policy(
    config: PPOConfig,
    learner: Learner,
    rows: Rows,
    lam: Float[Array, " k"],
    key: RandomKey,
    rate: Rate = 1.0,
    floor: Scalar | None = None,
    region: TrustRegion | None = None,
) -> tuple[Learner, Metrics]:
    """Take clipped steps on the Lagrangian for up to `epochs` passes, or until `kl_stop`.

    One step can go far beyond it, where a new price makes gradients large. The whole update is then
    shortened: for small ones, the KL divergence grows with the square of their length.

    Metrics: `actor_steps` taken; `kl`, `entropy` and `clip_fraction` as last measured, before the
    last step of an update that nothing stopped and before one is shortened, and `shift`, the KL
    divergence from the centre of the trust region, if there is one.
    """
    old = learner.actor
    assert learner.actor_moments is not None
    if region is not None:
        rows = replace(rows, centre_heads=region.actor.heads(rows.obs))

    def loss(actor: Actor, rows: Rows) -> tuple[Array, tuple[Array | None, Metrics]]:
        policy = actor(rows.obs)
        ratio = surrogate.ratio(policy.log_prob(rows.action), rows.old_log_prob)
        mean = lambda x: surrogate.mean(x, rows.weight)
        reward = mean(surrogate.clipped_reward(ratio, rows.reward_advantage, config.clip))
        cost = mean(surrogate.clipped_cost(ratio, rows.cost_advantage, config.clip))
        entropy = mean(policy.entropy())
        objective = surrogate.lagrangian(reward, cost, lam) + config.entropy_coefficient * entropy
        kl = mean(old.distribution(rows.old_heads).kl(policy))
        # Negated so that a KL of NaN also stops.
        stop = None if config.kl_stop is None else ~(kl <= config.kl_stop)
        clipped = mean((jnp.abs(ratio - 1) > config.clip) * 1.0)
        metrics = {"kl": kl, "entropy": entropy, "clip_fraction": clipped}
        if region is not None:
            assert rows.centre_heads is not None
            metrics["shift"] = mean(region.actor.distribution(rows.centre_heads).kl(policy))
            objective = objective - jax.nn.relu(metrics["shift"] - region.radius)
        return -objective, (stop, metrics)

    if learner.actor_rate is not None:
        rate = rate * learner.actor_rate
    actor, moments, steps, metrics = descend(
        loss,
        _actor_optimiser(config, rate, floor),
        learner.actor,
        learner.actor_moments,
        rows,
        config.epochs,
        config.minibatches,
        key,
    )
    if config.kl_stop is not None:
        length = jnp.sqrt(LARGEST_KL * config.kl_stop / metrics["kl"])
        shorten = lambda a, b: jnp.where(length < 1, a + length * (b - a), b)
        actor = jax.tree.map(shorten, old, actor)
    if learner.actor_rate is not None:
        share = steps / (config.epochs * config.minibatches)
        factor = jnp.where(share < 0.5, 1 / RATE_STEP, jnp.where(share < 1, 1.0, RATE_STEP))
        adapted = jnp.clip(learner.actor_rate * factor, LEAST_RATE, 1.0)
        learner = replace(learner, actor_rate=adapted)
    fields = lambda s: (s.actor, s.actor_moments)
    return eqx.tree_at(fields, learner, (actor, moments)), {"actor_steps": steps, **metrics}


def _actor_optimiser(
    config: PPOConfig, rate: Rate = 1.0, floor: Scalar | None = None
) -> optax.GradientTransformation:
    plain = adam(rate * config.actor_learning_rate, config.max_grad_norm)
    minimum = config.minimum_log_std if floor is None else floor
    if minimum is None:
        return plain

    def hold_floor(updates: optax.Updates, params: optax.Params | None) -> optax.Updates:
        # Shortening the step keeps the bound exactly. Clamping log_std inside the policy would
        # remove its gradient at the bound, so it could never rise again.
        assert isinstance(updates, Actor) and isinstance(params, Actor)
        if updates.log_std is None or params.log_std is None:
            return updates
        # A policy that starts below the bound, from another run, is held where it is.
        step = jnp.maximum(updates.log_std, jnp.minimum(minimum - params.log_std, 0.0))
        return eqx.tree_at(lambda actor: actor.log_std, updates, step)

    return optax.chain(plain, optax.stateless(hold_floor))
