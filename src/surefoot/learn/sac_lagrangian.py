"""Soft actor-critic on a Lagrangian, made for many updates per real step.

Three things let a learner take many updates per step without overfitting to its own mistakes:
layer-normalised critics (Hiraoka et al., 2022; Ball et al., 2023), the more pessimistic of two
critics for each signal, and standardised observations, with rewards and costs in units of their
root mean squares. Everything here is for one seed; callers `vmap` over seeds.
"""

from dataclasses import dataclass
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from surefoot.core.arrays import Index, Metrics, RandomKey, Scalar
from surefoot.core.config import Count, Positive, Range, Share, Width, check
from surefoot.core.spaces import ActionSpec
from surefoot.learn import multiplier
from surefoot.learn.descent import adam
from surefoot.learn.multiplier import MultiplierConfig, MultiplierState, Rate, Scales
from surefoot.learn.networks import MLP, Normalizer
from surefoot.learn.replay import CostTransitions
from surefoot.learn.sac import SquashedActor, polyak_average, temperature_loss

Statistics = tuple[Normalizer, Normalizer, Normalizer]
"""Of observations, rewards and costs."""
TINY = 1e-6
LEVEL_RATE = 0.1
"""Share of a batch's mean error by which a critic's last bias moves at once."""
BLOCK = 256
"""Rows of the replay buffer that the scales count at once."""


@dataclass(frozen=True)
class SACLagrangianLearnerConfig:
    """How batches from the replay buffer improve the policy and the critics."""

    gamma: Share = 0.99
    """Discount factor of rewards."""
    cost_gamma: Share = 0.97
    """Discount factor of costs. A shorter view than that of rewards is learned sooner, and shows
    which actions are to blame."""
    polyak: Share = 0.995
    """Weight of the old target critics at every update."""
    averaging: Share = 0.999
    """Weight of the past in the moving average of the policy, per update of it. The average is what
    training returns: single updates can make a robot fall that walked before."""
    learning_rate: Positive = 5e-4
    """Adam's learning rate, for policy, critics and temperature."""
    batch_size: Count = 128
    """Transitions per update, drawn from the replay buffer."""
    hidden: tuple[Width, ...] = (128, 128)
    """Widths of the hidden layers of policy and critics."""
    critics: Annotated[int, Range(least=2)] = 2
    """Critics of each signal. Targets take the more pessimistic of two random ones."""
    policy_every: Count = 4
    """Updates of the critics for each one of the policy."""
    initial_temperature: Positive = 0.1
    """Initial weight of the entropy in the objective."""
    first_entropy: float = -1.0
    """Target of the policy's entropy in the first epoch, per number of an action."""
    final_entropy: float = -2.0
    """Target of the policy's entropy in the last epoch, per number of an action."""

    def __post_init__(self) -> None:
        check(self)


def _layer_normalised(x: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
    centred = x - jnp.mean(x, -1, keepdims=True)
    return jax.nn.relu(centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5))


class SignalCritics(eqx.Module):
    """n action-value networks for the reward and n for each of k costs, all stacked."""

    network: MLP
    """Leading axis n (1 + k)."""
    each: int = eqx.field(static=True)
    """Networks of each signal, n."""

    def __init__(
        self, n: int, obs_dim: int, action_dim: int, k: int, key: RandomKey, hidden: tuple[int, ...]
    ):
        sizes = [obs_dim + action_dim, *hidden, 1]
        make = lambda key: MLP(sizes, key, activation=_layer_normalised)
        self.network = eqx.filter_vmap(make)(jax.random.split(key, n * (1 + k)))
        self.each = n

    def __call__(
        self, obs: Float[Array, "*batch D"], action: Float[Array, "*batch A"]
    ) -> Float[Array, "n signals *batch"]:
        x = jnp.concatenate([obs, action], -1)
        values = jax.vmap(lambda network: network(x)[..., 0])(self.network)
        return values.reshape(self.each, -1, *values.shape[1:])


def pessimistic(values: Float[Array, "n signals N"], key: RandomKey) -> Float[Array, "signals N"]:
    """Of two random critics, the smaller value of the reward and the larger ones of the costs."""
    if values.shape[0] > 2:
        values = values[jax.random.permutation(key, values.shape[0])[:2]]
    return jnp.concatenate([jnp.min(values[:, :1], 0), jnp.max(values[:, 1:], 0)])


class Networks(eqx.Module):
    """All parameters that descend."""

    actor: SquashedActor
    critics: SignalCritics
    log_temperature: Scalar


class Learner(eqx.Module):
    """Complete learner state."""

    networks: Networks
    targets: SignalCritics
    """Moving averages of the critics."""
    average: SquashedActor
    """Moving average of the policy, which is what training returns."""
    critic_moments: optax.OptState
    policy_moments: optax.OptState
    """Of policy and temperature."""
    normalizer: Normalizer
    rewards: Normalizer
    """Statistics of the rewards."""
    cost_squares: Normalizer
    """Means of the squares of the costs, and of how often they are not 0."""
    multiplier: MultiplierState
    spread: Float[Array, " signals"]
    """How much an action changes the values: the deviation of Q(s, a) - Q(s, pi(s)) over the
    replay buffer, in the units of the signals."""

    @property
    def reward_scale(self) -> Scalar:
        """The unit of rewards: their root mean square."""
        return jnp.sqrt(self.rewards.var[0] + self.rewards.mean[0] ** 2) + TINY

    @property
    def cost_scale(self) -> Float[Array, " k"]:
        """The units of costs: the root mean squares of those that are not 0; 1 before the first."""
        square, share = jnp.split(self.cost_squares.mean, 2)
        some = square > 0  # the square of a tiny cost may be 0
        return jnp.where(some, jnp.sqrt(square / jnp.where(some, share, 1.0)), 1.0)

    def scales(self) -> Scales:
        """In the units of `multiplier.update`: costs are divided by the reward's spread."""
        reward = self.spread[0] + TINY
        return Scales(reward, self.cost_scale * self.spread[1:] / reward)


def init(
    config: SACLagrangianLearnerConfig,
    multiplier_config: MultiplierConfig,
    obs_dim: int,
    actions: ActionSpec,
    k: int,
    key: RandomKey,
) -> Learner:
    """A new learner for k constraints."""
    actor_key, critic_key = jax.random.split(key)
    networks = Networks(
        SquashedActor(obs_dim, actions.size, actor_key, config.hidden),
        SignalCritics(config.critics, obs_dim, actions.size, k, critic_key, config.hidden),
        jnp.log(jnp.float32(config.initial_temperature)),
    )
    begin = lambda tree: adam(1.0, None).init(eqx.filter(tree, eqx.is_array))
    return Learner(
        networks, networks.critics, networks.actor,
        begin(networks.critics), begin((networks.actor, networks.log_temperature)),
        Normalizer(obs_dim), Normalizer(1), Normalizer(2 * k),
        multiplier.init(multiplier_config, k), jnp.zeros(1 + k),
    )  # fmt: skip


def observe(learner: Learner, rows: CostTransitions, since: Index, added: Index) -> Learner:
    """Scales that also count rows `since` to `added`, as numbered when they were added to the ring
    buffer; rows that are overwritten already are left out.
    """
    room = rows.reward.shape[0]
    block = min(BLOCK, room)

    def count(carry: tuple[Index, Statistics]) -> tuple[Index, Statistics]:
        at, (observations, rewards, costs) = carry
        number = at + jnp.arange(block)
        part = jax.tree.map(lambda x: x[number % room], rows)
        weight = (number < added) * 1.0
        squares = jnp.concatenate([part.cost**2, (part.cost != 0) * 1.0], -1)
        return at + block, (
            observations.update(part.obs, weight),
            rewards.update(part.reward[:, None], weight),
            costs.update(squares, weight),
        )

    fields = lambda s: (s.normalizer, s.rewards, s.cost_squares)
    first = jnp.maximum(since, added - room)
    _, scales = jax.lax.while_loop(lambda carry: carry[0] < added, count, (first, fields(learner)))
    return eqx.tree_at(fields, learner, scales)


def update(
    config: SACLagrangianLearnerConfig,
    learner: Learner,
    batch: CostTransitions,
    lam: Float[Array, " k"],
    number: Index,
    key: RandomKey,
    rate: Rate,
    entropy: Scalar | float,
) -> tuple[Learner, Metrics]:
    """A gradient step of the critics, and in every `policy_every`-th `number` one of the policy.

    Metrics: `critic_loss` in the units of the signals, `q` of the reward, `entropy`,
    `temperature`; the last three are 0 in steps of the critics alone.
    """
    critic_key, policy_key = jax.random.split(key)
    learner, loss = fit_critics(config, learner, batch, critic_key, rate)
    improve = lambda: improve_policy(config, learner, batch, lam, policy_key, rate, entropy)
    *_, metrics = jax.eval_shape(improve)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), metrics)
    due = (number + 1) % config.policy_every == 0
    learner, metrics = jax.lax.cond(due, improve, lambda: (learner, nothing))
    return learner, {"critic_loss": loss, **metrics}


def soft_targets(
    config: SACLagrangianLearnerConfig, learner: Learner, batch: CostTransitions, key: RandomKey
) -> Float[Array, "signals N"]:
    """Targets of the critics, in the units of the signals: each signal plus its discounted value
    at the next state. The reward's has the entropy's part.
    """
    draw_key, pair_key = jax.random.split(key)
    networks, next_obs = learner.networks, learner.normalizer(batch.next_obs)
    action, log_prob = networks.actor(next_obs).draw(draw_key)
    future = pessimistic(learner.targets(next_obs, action), pair_key)
    future = future.at[0].add(-jnp.exp(networks.log_temperature) * log_prob)
    costs = batch.cost / learner.cost_scale
    signals = jnp.concatenate([batch.reward[None] / learner.reward_scale, costs.T])
    gamma = jnp.full(len(signals), config.cost_gamma).at[0].set(config.gamma)
    return signals + gamma[:, None] * jnp.where(batch.terminated, 0.0, future)


def fit_critics(
    config: SACLagrangianLearnerConfig,
    learner: Learner,
    batch: CostTransitions,
    key: RandomKey,
    rate: Rate,
) -> tuple[Learner, Scalar]:
    """One gradient step of all critics on their targets; also returns the loss."""
    targets, obs = soft_targets(config, learner, batch, key), learner.normalizer(batch.obs)

    def loss(critics: SignalCritics) -> tuple[Scalar, Float[Array, "n signals"]]:
        errors = targets - critics(obs, batch.action)
        return jnp.sum(jnp.mean(errors**2, -1)), jnp.mean(errors, -1)

    (value, misses), grads = jax.value_and_grad(loss, has_aux=True)(learner.networks.critics)
    optimiser = adam(rate * config.learning_rate, None)
    updates, moments = optimiser.update(grads, learner.critic_moments)
    critics = eqx.apply_updates(learner.networks.critics, updates)
    # Values can be large beside what an action changes. Their level need not wait for the network.
    bias = critics.network.biases[-1] + LEVEL_RATE * misses.reshape(-1, 1)
    critics = eqx.tree_at(lambda c: c.network.biases[-1], critics, bias)
    slow = polyak_average(config.polyak, learner.targets, critics)
    fields = lambda s: (s.networks.critics, s.targets, s.critic_moments)
    return eqx.tree_at(fields, learner, (critics, slow, moments)), value


def improve_policy(
    config: SACLagrangianLearnerConfig,
    learner: Learner,
    batch: CostTransitions,
    lam: Float[Array, " k"],
    key: RandomKey,
    rate: Rate,
    entropy: Scalar | float,
) -> tuple[Learner, Metrics]:
    """One gradient step of policy and temperature.

    The policy maximises (Q_R - sum lambda_i Q_C,i) / (1 + w) plus its entropy, where w is what the
    costs weigh beside the reward. So the entropy of the present action keeps its part whatever
    lambda is.
    """
    networks, obs = learner.networks, learner.normalizer(batch.obs)
    weight, price = jnp.sum(lam * learner.scales().costs), lam * learner.cost_scale
    temperature = jnp.exp(networks.log_temperature)

    def loss(trained: tuple[SquashedActor, Scalar]) -> tuple[Array, tuple[Array, Array]]:
        actor, log_temperature = trained
        action, log_prob = actor(obs).draw(key)
        values = jnp.mean(networks.critics(obs, action), 0)
        gain = (values[0] - price @ values[1:]) / (1 + weight)
        actor_loss = jnp.mean(temperature * log_prob - gain)
        heat = temperature_loss(log_temperature, jax.lax.stop_gradient(log_prob), entropy)
        return actor_loss + heat, (values, log_prob)

    trained = networks.actor, networks.log_temperature
    grads, (values, log_prob) = jax.grad(loss, has_aux=True)(trained)
    optimiser = adam(rate * config.learning_rate, None)
    updates, moments = optimiser.update(grads, learner.policy_moments)
    actor, log_temperature = eqx.apply_updates(trained, updates)
    now = jnp.mean(networks.critics(obs, batch.action), 0)
    latest = jnp.std(now - values, -1)
    mixed = config.polyak * learner.spread + (1 - config.polyak) * latest
    spread = jnp.where(learner.spread[0] > 0, mixed, latest)
    q = learner.reward_scale * jnp.mean(now[0])
    metrics = {"q": q, "entropy": -jnp.mean(log_prob), "temperature": temperature}
    average = polyak_average(config.averaging, learner.average, actor)
    fields = lambda s: (
        s.networks.actor, s.networks.log_temperature, s.average, s.policy_moments, s.spread
    )  # fmt: skip
    new = actor, log_temperature, average, moments, spread
    return eqx.tree_at(fields, learner, new), metrics
