"""Proximal policy optimisation with Lagrange multipliers: one batch in, a better policy out.

Everything here is for one seed; a runner may `vmap` `init` and `update` over seeds.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from surefoot.core.config import check_types
from surefoot.learn import multiplier, surrogate
from surefoot.learn.advantages import TargetKind, gae
from surefoot.learn.descent import adam, descend
from surefoot.learn.multiplier import MultiplierConfig, MultiplierState
from surefoot.learn.networks import Actor, Critics, Normalizer

Rate = Float[Array, ""] | float


@dataclass(frozen=True)
class PPOConfig:
    """How a batch improves the policy and its critics.

    One minibatch and many passes are the paper's full-batch steps; few passes over several
    minibatches reach the same policy with far less work.
    """

    gamma: float = 0.99
    """Discount of rewards and costs."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation, for rewards and costs alike."""
    clip: float = 0.2
    """How far the probability ratio may leave 1 before it stops paying."""
    actor_learning_rate: float = 3e-4
    """Adam's step for the policy."""
    critic_learning_rate: float = 1e-3
    """Adam's step for the critics."""
    epochs: int = 80
    """Most passes of the policy over a batch."""
    critic_epochs: int = 80
    """Passes of the critics over a batch."""
    minibatches: int = 1
    """Parts a batch is cut into for each pass; 1 takes full-batch steps."""
    kl_stop: float | None = 0.012
    """The policy stops for this batch once its KL from the old one is larger; None never stops."""
    entropy_coefficient: float = 0.0
    """Weight of the policy's entropy in its objective."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers of policy and critics."""
    initial_log_std: float = -0.5
    """Log standard deviation of a new policy's actions."""
    minimum_log_std: float | None = None
    """Floor that keeps exploration alive; none if not given."""
    max_grad_norm: float | None = None
    """Gradients longer than this are cut to it; never if not given."""
    value_targets: TargetKind = "gae"
    """What critics regress on: advantage + value ("gae") or the bootstrapped return ("return")."""
    scale_costs: bool = False
    """Divide cost advantages by the reward advantages' deviation, as rewards' are: a multiplier is
    then a price in reward per cost, whatever the advantages' scale. The paper does not."""
    normalise_observations: bool = False
    """Scale observations by the running statistics gathered with `observe`."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} = {getattr(self, name)}: must be in [0, 1]")
        if not 0 < self.clip < 1:
            raise ValueError(f"clip = {self.clip}: must be in (0, 1)")
        for name in ("epochs", "critic_epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least 1")
        for name in ("actor_learning_rate", "critic_learning_rate", "kl_stop", "max_grad_norm"):
            number = getattr(self, name)
            if number is not None and not number > 0:
                raise ValueError(f"{name} = {number}: must be positive")
        if not self.entropy_coefficient >= 0:
            raise ValueError(
                f"entropy_coefficient = {self.entropy_coefficient}: must not be negative"
            )
        if any(size < 1 for size in self.hidden):
            raise ValueError(f"hidden = {self.hidden}: every layer needs at least one unit")
        if not -20 <= self.initial_log_std <= 5:
            raise ValueError(f"initial_log_std = {self.initial_log_std}: must be from -20 to 5")
        if self.minimum_log_std is not None and self.minimum_log_std > self.initial_log_std:
            raise ValueError(
                f"minimum_log_std = {self.minimum_log_std}: "
                f"must not exceed initial_log_std = {self.initial_log_std}"
            )
        if self.value_targets not in ("gae", "return"):
            raise ValueError(f"value_targets = {self.value_targets!r}: must be 'gae' or 'return'")


class Batch(eqx.Module):
    """T steps in B environments, real or imagined, all taken with the learner's current policy.

    `next_obs` holds the observations critics bootstrap from, and comes in one of two forms:

    - every one, `[T, B, D]`: what truly followed each step, an episode's final observation where
      it ended. Needed if an episode may run out of time before the last row.
    - only those after the last step, `[1, B, D]`, which spares memory and a pass through the
      critics. Enough if episodes before the last row end only by `terminated`.
    """

    obs: Float[Array, "T B D"]
    action: Shaped[Array, "T B ..."]
    """As sampled: float `[T, B, A]` before clipping to bounds, or integer `[T, B]`."""
    reward: Float[Array, "T B"]
    cost: Float[Array, "T B k"]
    next_obs: Float[Array, "S B D"]
    terminated: Bool[Array, "T B"]
    """The episode ended here and nothing more was to come."""
    ended: Bool[Array, "T B"]
    """The episode ended here, terminated or out of time; the next row is another's."""
    weight: Float[Array, "T B"] | None = None
    """How much a step counts, such as 0 after an imagined end; all alike if None."""


class Learner(eqx.Module):
    """Everything that learns from batches, and all it needs to go on."""

    actor: Actor
    critics: Critics
    normalizer: Normalizer | None
    actor_moments: optax.OptState
    critic_moments: optax.OptState
    multiplier: MultiplierState

    def scaled(self, obs: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
        """Observations as the networks take them."""
        return obs if self.normalizer is None else self.normalizer(obs)

    def sample(self, obs: Float[Array, "*batch D"], key: PRNGKeyArray) -> Shaped[Array, "..."]:
        """An action drawn from the policy for every observation; unbounded, see `ActionSpec`."""
        return self.actor.sample(self.scaled(obs), key)

    def mode(self, obs: Float[Array, "*batch D"]) -> Shaped[Array, "..."]:
        """The policy's most probable action for every observation."""
        return self.actor.mode(self.scaled(obs))


def init(
    config: PPOConfig,
    multiplier_config: MultiplierConfig,
    obs_dim: int,
    action_dim: int,
    discrete: bool,
    k: int,
    key: PRNGKeyArray,
) -> Learner:
    """A new learner for k constraints.

    `action_dim` is the length of a continuous action, or the number of choices if `discrete`.
    """
    actor_key, critic_key = jax.random.split(key)
    actor = Actor(
        obs_dim,
        action_dim,
        actor_key,
        discrete=discrete,
        hidden=config.hidden,
        initial_log_std=config.initial_log_std,
    )
    critics = Critics(obs_dim, k, critic_key, hidden=config.hidden)
    return Learner(
        actor=actor,
        critics=critics,
        normalizer=Normalizer(obs_dim) if config.normalise_observations else None,
        actor_moments=_actor_optimiser(config).init(eqx.filter(actor, eqx.is_array)),
        critic_moments=_critic_optimiser(config).init(eqx.filter(critics, eqx.is_array)),
        multiplier=multiplier.init(multiplier_config, k),
    )


def observe(learner: Learner, obs: Float[Array, "*batch D"]) -> Learner:
    """Merge observations into the running statistics, if the learner keeps any.

    This shifts the policy a little: call it between an update and the next rollout, not between a
    rollout and its update, whose actions would then seem to come from another policy.
    """
    if learner.normalizer is None:
        return learner
    return eqx.tree_at(lambda s: s.normalizer, learner, learner.normalizer.update(obs))


class Rows(eqx.Module):
    """A batch flattened to N = T * B rows, with what policy and critics learn from.

    Observations are scaled; `old_heads` and `old_log_prob` are the current policy's, `values` the
    current critics'; signals are the reward and then the costs.
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


def prepare(config: PPOConfig, learner: Learner, batch: Batch) -> Rows:
    """Advantages, value targets and old probabilities of a batch.

    Reward advantages are standardised; cost advantages are centred, and see `scale_costs`.
    """
    steps = batch.reward.shape[0]
    if batch.next_obs.shape[0] not in (1, steps):
        raise ValueError(
            f"next_obs has {batch.next_obs.shape[0]} rows: must be 1 or as many as obs, {steps}"
        )
    obs = learner.scaled(batch.obs)
    values = learner.critics(obs)
    next_values = learner.critics(learner.scaled(batch.next_obs))
    if batch.next_obs.shape[0] < steps:
        next_values = jnp.concatenate([values[1:], next_values])
    signals = jnp.concatenate([batch.reward[..., None], batch.cost], -1)
    advantages, targets = gae(
        signals,
        values,
        next_values,
        batch.terminated,
        batch.ended,
        config.gamma,
        config.gae_lambda,
        config.value_targets,
    )
    flat = lambda x: x.reshape(-1, *x.shape[2:])
    obs, action, advantages = flat(obs), flat(batch.action), flat(advantages)
    weight = None if batch.weight is None else flat(batch.weight)
    costs = surrogate.centred(advantages[:, 1:], weight)
    if config.scale_costs:
        costs = costs / surrogate.deviation(advantages[:, 0], weight)
    old_heads = learner.actor.heads(obs)
    return Rows(
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


def fit_critics(
    config: PPOConfig, learner: Learner, rows: Rows, key: PRNGKeyArray, rate: Rate = 1.0
) -> tuple[Learner, dict[str, Array]]:
    """Regress the critics on the rows' targets; metrics as in `update`."""

    def loss(critics: Critics, rows: Rows):
        losses = surrogate.mean((critics(rows.obs) - rows.targets) ** 2, rows.weight)
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


def improve_policy(
    config: PPOConfig,
    learner: Learner,
    rows: Rows,
    lam: Float[Array, " k"],
    key: PRNGKeyArray,
    rate: Rate = 1.0,
) -> tuple[Learner, dict[str, Array]]:
    """Clipped steps on the Lagrangian until `kl_stop`; metrics as in `update`."""
    old = learner.actor

    def loss(actor: Actor, rows: Rows):
        policy = actor(rows.obs)
        ratio = surrogate.ratio(policy.log_prob(rows.action), rows.old_log_prob)
        mean = lambda x: surrogate.mean(x, rows.weight)
        reward = mean(surrogate.clipped_reward(ratio, rows.reward_advantage, config.clip))
        cost = mean(surrogate.clipped_cost(ratio, rows.cost_advantage, config.clip))
        entropy = mean(policy.entropy())
        objective = surrogate.lagrangian(reward, cost, lam) + config.entropy_coefficient * entropy
        kl = mean(old.distribution(rows.old_heads).kl(policy))
        # Written so that a KL which is not a number stops too.
        stop = None if config.kl_stop is None else ~(kl <= config.kl_stop)
        clipped = mean((jnp.abs(ratio - 1) > config.clip) * 1.0)
        return -objective, (stop, {"kl": kl, "entropy": entropy, "clip_fraction": clipped})

    actor, moments, steps, metrics = descend(
        loss,
        _actor_optimiser(config, rate),
        learner.actor,
        learner.actor_moments,
        rows,
        config.epochs,
        config.minibatches,
        key,
    )
    fields = lambda s: (s.actor, s.actor_moments)
    return eqx.tree_at(fields, learner, (actor, moments)), {"actor_steps": steps, **metrics}


def update(
    config: PPOConfig,
    learner: Learner,
    batch: Batch,
    lam: Float[Array, " k"],
    key: PRNGKeyArray,
    rate: Rate = 1.0,
) -> tuple[Learner, dict[str, Array]]:
    """Improve the policy on (J_R - sum lambda_i J_C,i) / (1 + sum lambda_i), and fit the critics.

    `rate` is the share of the learning rates to step by.

    The policy takes up to `epochs` passes and stops for good once its KL from the batch's policy
    exceeds `kl_stop`; the critics take all of theirs. Neither depends on the other within an
    update, so one after the other is the same as joint steps, and stopping saves the policy's time.

    Metrics: `kl` as last measured, `actor_steps` taken, `entropy` and `clip_fraction` at the last
    step, and per signal (`reward`, `cost_0`, ...) the last `critic_loss_*` and, of the critics as
    they came, `explained_variance_*`.
    """
    rows = prepare(config, learner, batch)
    actor_key, critic_key = jax.random.split(key)
    learner, metrics = improve_policy(config, learner, rows, lam, actor_key, rate)
    learner, critic_metrics = fit_critics(config, learner, rows, critic_key, rate)
    return learner, {**metrics, **critic_metrics}


def _critic_optimiser(config: PPOConfig, rate: Rate = 1.0) -> optax.GradientTransformation:
    return adam(rate * config.critic_learning_rate, config.max_grad_norm)


def _actor_optimiser(config: PPOConfig, rate: Rate = 1.0) -> optax.GradientTransformation:
    plain = adam(rate * config.actor_learning_rate, config.max_grad_norm)
    minimum = config.minimum_log_std
    if minimum is None:
        return plain

    def hold_floor(updates: Any, params: Any) -> Any:
        # Shortening the step holds the floor exactly; clamping log_std inside the policy would
        # leave it without a gradient there, and so unable to rise again.
        if params.log_std is None:
            return updates
        step = jnp.maximum(updates.log_std, minimum - params.log_std)
        return eqx.tree_at(lambda actor: actor.log_std, updates, step)

    return optax.chain(plain, optax.stateless(hold_floor))
