"""The actor-critic learner that PPO, TRPO and CPO share: networks, advantages and critic updates.

Everything here is for one seed; callers `vmap` over seeds.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Shaped

from surefoot.core.arrays import Metrics, RandomKey, Scalar
from surefoot.core.config import Count, Fraction, Positive, Range, Width, check
from surefoot.core.policy import VARIANCE_EPSILON
from surefoot.core.spaces import ActionSpec
from surefoot.learn import multiplier, surrogate
from surefoot.learn.advantages import TargetKind, gae
from surefoot.learn.descent import adam, descend
from surefoot.learn.multiplier import MultiplierConfig, MultiplierState, Rate, Scales
from surefoot.learn.networks import MLP, Actor, Critics, Normalizer


@dataclass(frozen=True)
class ActorCriticConfig:
    """Settings that all actor-critic learners have."""

    gamma: Fraction = 0.99
    """Discount factor of rewards and costs."""
    gae_lambda: Fraction = 0.97
    """Lambda of generalised advantage estimation, for rewards and costs."""
    critic_learning_rate: Positive = 1e-3
    """Adam's learning rate for the critics."""
    critic_epochs: Count = 80
    """Passes of the critics over a batch."""
    hidden: tuple[Width, ...] = (64, 64)
    """Widths of the hidden layers of policy and critics."""
    initial_log_std: Annotated[float, Range(least=-20, most=5)] = -0.5
    """Log standard deviation of a new policy's actions, in units of half the range of actions."""
    minimum_log_std: float | None = None
    """Lower bound of the log standard deviation; None for no bound."""
    normalise_observations: bool = False
    """Scale observations by running statistics."""
    normalise_values: bool = False
    """Let critics predict in units of their targets (PopArt), which may have any scale."""

    # Settings that are fields of `PPOConfig` only.
    minibatches: ClassVar[int] = 1
    max_grad_norm: ClassVar[float | None] = None
    value_targets: ClassVar[TargetKind] = "return"
    scale_costs: ClassVar[bool] = False
    endless_costs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self)
        minimum, initial = self.minimum_log_std, self.initial_log_std
        if minimum is not None and minimum > initial:
            raise ValueError(f"minimum_log_std={minimum} must be at most initial_log_std={initial}")


class Batch(eqx.Module):
    """T steps in B environments, real or imagined, all taken with the learner's current policy.

    `next_obs` holds the observations that critics bootstrap from, in one of two forms:

    - `[T, B, D]`: the observation after every step, the final one where an episode ended. Required
      if another episode may follow a truncated one.
    - `[1, B, D]`: the observations after the last step only. This saves memory and a pass through
      the critics. Sufficient if episodes before the last row end only by `terminated`, or if the
      rows after an end repeat its final observation.
    """

    obs: Float[Array, "T B D"]
    action: Shaped[Array, "T B ..."]
    """As sampled: float `[T, B, A]` before clipping to bounds, or integer `[T, B]`."""
    reward: Float[Array, "T B"]
    cost: Float[Array, "T B k"]
    next_obs: Float[Array, "S B D"]
    terminated: Bool[Array, "T B"]
    """The episode terminated at this step, so no value is bootstrapped."""
    ended: Bool[Array, "T B"]
    """The episode terminated or was truncated; the next row belongs to another episode."""
    weight: Float[Array, "T B"] | None = None
    """Weight of each step, such as 0 after the end of an imagined episode; None weighs all 1."""


class ValueScale(eqx.Module):
    """Values are `mean + std` times the output of the critics."""

    mean: Float[Array, " signals"]
    std: Float[Array, " signals"]


class Learner(eqx.Module):
    """Complete learner state: networks, optimiser states, observation statistics, multipliers."""

    actor: Actor
    critics: Critics
    normalizer: Normalizer | None
    actor_moments: optax.OptState | None
    critic_moments: optax.OptState
    multiplier: MultiplierState
    value_scale: ValueScale | None = None
    actor_rate: Scalar | None = None
    """Factor on the policy's learning rate, if it adapts."""

    def values(self, obs: Float[Array, "*batch D"]) -> Float[Array, "*batch signals"]:
        """Values of the reward and the costs; `obs` as the networks take them."""
        out, scale = self.critics(obs), self.value_scale
        return out if scale is None else scale.mean + scale.std * out

    def scaled(self, obs: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
        """Observations as the networks take them."""
        return obs if self.normalizer is None else self.normalizer(obs)

    def sample(self, obs: Float[Array, "*batch D"], key: RandomKey) -> Shaped[Array, "..."]:
        """A sampled action per observation, `[..., A]` or integer `[...]`; see `ActionSpec`."""
        return self.actor(self.scaled(obs)).sample(key)

    def mode(self, obs: Float[Array, "*batch D"]) -> Shaped[Array, "..."]:
        """The most probable action per observation."""
        return self.actor(self.scaled(obs)).mode()


class Rows(eqx.Module):
    """A batch flattened to N = T * B rows, with the training signals of policy and critics.

    Observations are scaled. `old_heads`, `old_log_prob` and `values` come from the policy and the
    critics before the update. Signals are the reward followed by the costs.
    """

    obs: Float[Array, "N D"]
    action: Shaped[Array, "N ..."]
    old_heads: Float[Array, "N A"]
    old_log_prob: Float[Array, " N"]
    reward_advantage: Float[Array, " N"]
    cost_advantage: Float[Array, "N k"]
    values: Float[Array, "N signals"]
    targets: Float[Array, "N signals"]
    weight: Float[Array, " N"] | None
    centre_heads: Float[Array, "N A"] | None = None
    """Of the policy at the centre of a trust region."""


def init(
    config: ActorCriticConfig,
    multiplier_config: MultiplierConfig,
    obs_dim: int,
    actions: ActionSpec,
    k: int,
    key: RandomKey,
    actor_optimiser: optax.GradientTransformation | None = None,
) -> Learner:
    """A new learner for k constraints.

    Without an `actor_optimiser` the learner holds no optimiser state for the policy.
    """
    actor_key, critic_key = jax.random.split(key)
    actor = Actor(obs_dim, actions, actor_key, config.hidden, config.initial_log_std)
    critics = Critics(obs_dim, k, critic_key, config.hidden)
    moments = None
    if actor_optimiser is not None:
        moments = actor_optimiser.init(eqx.filter(actor, eqx.is_array))
    return Learner(
        actor=actor,
        critics=critics,
        normalizer=Normalizer(obs_dim) if config.normalise_observations else None,
        actor_moments=moments,
        critic_moments=_critic_optimiser(config).init(eqx.filter(critics, eqx.is_array)),
        multiplier=multiplier.init(multiplier_config, k),
        value_scale=ValueScale(jnp.zeros(1 + k), jnp.ones(1 + k))
        if config.normalise_values
        else None,
    )


def observe(learner: Learner, batch: Batch) -> Learner:
    """Merge a batch's observations into the running statistics, if there are any.

    New statistics change the policy. Call this between an update and the next rollout, never
    between a rollout and its update.
    """
    if learner.normalizer is None:
        return learner
    return eqx.tree_at(
        lambda s: s.normalizer, learner, learner.normalizer.update(batch.obs, batch.weight)
    )


def rescaled(learner: Learner, mean: Float[Array, " D"], var: Float[Array, " D"]) -> Learner:
    """Set the scale of observations. Policy and values stay the same functions, but for new ones.

    With x = (o - m) / s and new m', s', the first layer's x W + b equals x' (s'/s W) + b +
    (m' - m)/s W. Observations that are clipped are the exception.
    """
    old = learner.normalizer
    assert old is not None
    keep = jnp.any(old.mean != 0) | jnp.any(old.var != 1)
    new = eqx.tree_at(lambda n: (n.mean, n.var), old, (mean, var))
    scale = jnp.where(keep, jnp.sqrt((var + VARIANCE_EPSILON) / (old.var + VARIANCE_EPSILON)), 1.0)
    shift = jnp.where(keep, (mean - old.mean) * jax.lax.rsqrt(old.var + VARIANCE_EPSILON), 0.0)

    def first_layer(network: MLP) -> MLP:
        weight, bias = network.weights[0], network.biases[0]
        changed = (scale[:, None] * weight, bias + shift @ weight)
        return eqx.tree_at(lambda n: (n.weights[0], n.biases[0]), network, changed)

    networks = first_layer(learner.actor.network), first_layer(learner.critics.network)
    where = lambda s: (s.normalizer, s.actor.network, s.critics.network)
    return eqx.tree_at(where, learner, (new, *networks))


def prepare(config: ActorCriticConfig, learner: Learner, batch: Batch) -> tuple[Rows, Scales]:
    """Compute advantages, value targets and old log-probabilities of a batch, and their scales.

    Reward advantages are standardised. Cost advantages are centred; see `scale_costs`.
    """
    steps = batch.reward.shape[0]
    if batch.next_obs.shape[0] not in (1, steps):
        raise ValueError(
            f"next_obs has {batch.next_obs.shape[0]} rows: must be 1 or as many as obs, {steps}"
        )
    obs = learner.scaled(batch.obs)
    values = learner.values(obs)
    next_values = learner.values(learner.scaled(batch.next_obs))
    if batch.next_obs.shape[0] < steps:
        next_values = jnp.concatenate([values[1:], next_values])
    signals = jnp.concatenate([batch.reward[..., None], batch.cost], -1)
    terminated = batch.terminated
    if config.endless_costs:
        never = jnp.zeros(batch.cost.shape, bool)
        terminated = jnp.concatenate([terminated[..., None], never], -1)
    advantages, targets = gae(
        signals,
        values,
        next_values,
        terminated,
        batch.ended,
        config.gamma,
        config.gae_lambda,
        config.value_targets,
    )
    flat = lambda x: x.reshape(-1, *x.shape[2:])
    obs, action, advantages = flat(obs), flat(batch.action), flat(advantages)
    weight = None if batch.weight is None else flat(batch.weight)
    costs = surrogate.centred(advantages[:, 1:], weight)
    unit = surrogate.deviation(advantages[:, 0], weight) if config.scale_costs else jnp.ones(())
    costs = costs / unit
    old_heads = learner.actor.heads(obs)
    rows = Rows(
        obs=obs,
        action=action,
        old_heads=old_heads,
        old_log_prob=learner.actor.distribution(old_heads).log_prob(action),
        reward_advantage=surrogate.standardised(advantages[:, 0], weight),
        cost_advantage=costs,
        values=flat(values),
        targets=flat(targets),
        weight=weight,
    )
    return rows, Scales(unit, surrogate.deviation(costs, weight))


def fit_critics(
    config: ActorCriticConfig, learner: Learner, rows: Rows, key: RandomKey, rate: Rate = 1.0
) -> tuple[Learner, Metrics]:
    """Regress the critics on the rows' targets.

    Metrics per signal (`reward`, `cost_0`, ...): the last `critic_loss_*`, and
    `explained_variance_*` of the critics before the fit.
    """

    learner = rescale_values(learner, rows)
    scale = learner.value_scale or ValueScale(jnp.zeros(()), jnp.ones(()))

    def loss(critics: Critics, rows: Rows) -> tuple[Array, tuple[None, Array]]:
        targets = (rows.targets - scale.mean) / scale.std
        losses = surrogate.mean((critics(rows.obs) - targets) ** 2, rows.weight)
        return jnp.sum(losses), (None, losses)

    critics, moments, _, losses = descend(
        loss,
        _critic_optimiser(config, rate),
        learner.critics,
        learner.critic_moments,
        rows,
        config.critic_epochs,
        config.minibatches,
        key,
    )
    square = lambda x: surrogate.mean(surrogate.centred(x, rows.weight) ** 2, rows.weight)
    explained = 1 - square(rows.targets - rows.values) / (square(rows.targets) + 1e-8)
    metrics = {}
    for i in range(rows.targets.shape[-1]):
        name = "reward" if i == 0 else f"cost_{i - 1}"
        metrics[f"critic_loss_{name}"] = losses[i]
        metrics[f"explained_variance_{name}"] = explained[i]
    fields = lambda s: (s.critics, s.critic_moments)
    return eqx.tree_at(fields, learner, (critics, moments)), metrics


def rescale_values(learner: Learner, rows: Rows) -> Learner:
    """The same values, with critics in units of the rows' targets (van Hasselt et al., 2016).

    New critics are not corrected: they begin with the mean of the first targets.
    """
    old = learner.value_scale
    if old is None:
        return learner
    std = surrogate.deviation(rows.targets, rows.weight)
    new = ValueScale(surrogate.mean(rows.targets, rows.weight), jnp.where(std < 1e-6, 1.0, std))
    last = lambda s: (s.critics.network.weights[-1], s.critics.network.biases[-1])
    weight, bias = last(learner)
    keep = jnp.any(old.mean != 0) | jnp.any(old.std != 1)
    ratio = jnp.where(keep, old.std / new.std, 1.0)[:, None]
    bias = ratio * bias + jnp.where(keep, (old.mean - new.mean) / new.std, 0.0)[:, None]
    learner = eqx.tree_at(last, learner, (ratio[..., None] * weight, bias))
    return eqx.tree_at(lambda s: s.value_scale, learner, new)


def _critic_optimiser(config: ActorCriticConfig, rate: Rate = 1.0) -> optax.GradientTransformation:
    return adam(rate * config.critic_learning_rate, config.max_grad_norm)
