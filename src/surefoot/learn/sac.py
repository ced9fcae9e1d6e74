"""Soft actor-critic with an automatic temperature (Haarnoja et al., 2018), without costs.

The learner acts in the unit box [-1, 1]. `to_box` and `to_unit` convert to and from the bounds of
an environment. Everything here is for one seed; callers `vmap` over seeds.
"""

from dataclasses import dataclass
from typing import TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from surefoot.core.arrays import RandomKey, Scalar
from surefoot.core.config import Count, Positive, Share, Width, check
from surefoot.core.policy import LOG_STD_RANGE
from surefoot.core.spaces import ActionSpec
from surefoot.learn.descent import adam
from surefoot.learn.networks import MLP, Gaussian
from surefoot.learn.replay import Transitions

Actions = TypeVar("Actions", Array, np.ndarray)
Values = TypeVar("Values")


@dataclass(frozen=True)
class SACLearnerConfig:
    """How batches from the replay buffer improve the policy and the critics."""

    gamma: Share = 0.99
    """Discount factor of rewards."""
    polyak: Share = 0.995
    """Weight of the old target critics at every update."""
    learning_rate: Positive = 1e-3
    """Adam's learning rate, for policy, critics and temperature."""
    batch_size: Count = 256
    """Transitions per update, drawn from the replay buffer."""
    hidden: tuple[Width, ...] = (256, 256)
    """Widths of the hidden layers of policy and critics."""
    initial_temperature: Positive = 1.0
    """Initial weight of the entropy in the objective."""
    target_entropy: float | None = None
    """Target of the policy's entropy; None for minus the length of an action."""

    def __post_init__(self) -> None:
        check(self)


class Squashed(eqx.Module):
    """The hyperbolic tangent of a Gaussian: a distribution over the unit box."""

    gaussian: Gaussian

    def draw(self, key: RandomKey) -> tuple[Float[Array, "*batch A"], Float[Array, "*batch"]]:
        """Sampled actions and their log-probabilities."""
        x = self.gaussian.sample(key)
        # log(1 - tanh(x)^2), in a form that keeps its digits where tanh(x) is near 1.
        log_slope = 2 * (jnp.log(2.0) - x - jax.nn.softplus(-2 * x))
        return jnp.tanh(x), self.gaussian.log_prob(x) - jnp.sum(log_slope, -1)


class SquashedActor(eqx.Module):
    """The policy: mean and standard deviation both depend on the observation."""

    network: MLP

    def __init__(self, obs_dim: int, action_dim: int, key: RandomKey, hidden: tuple[int, ...]):
        # A small last layer gives all states nearly the same centred, wide initial distribution.
        sizes = [obs_dim, *hidden, 2 * action_dim]
        self.network = MLP(sizes, key, last_gain=0.01, activation=jax.nn.relu)

    def __call__(self, obs: Float[Array, "*batch D"]) -> Squashed:
        mean, log_std = jnp.split(self.network(obs), 2, -1)
        return Squashed(Gaussian(mean, jnp.clip(log_std, *LOG_STD_RANGE)))


class TwinQ(eqx.Module):
    """Two action-value networks, stacked; learning uses the smaller of their values."""

    network: MLP

    def __init__(self, obs_dim: int, action_dim: int, key: RandomKey, hidden: tuple[int, ...]):
        sizes = [obs_dim + action_dim, *hidden, 1]
        make = lambda key: MLP(sizes, key, activation=jax.nn.relu)
        self.network = eqx.filter_vmap(make)(jax.random.split(key))

    def __call__(
        self, obs: Float[Array, "*batch D"], action: Float[Array, "*batch A"]
    ) -> Float[Array, "2 *batch"]:
        x = jnp.concatenate([obs, action], -1)
        return jax.vmap(lambda network: network(x)[..., 0])(self.network)


class Networks(eqx.Module):
    """All trained parameters."""

    actor: SquashedActor
    critics: TwinQ
    log_temperature: Scalar

    @property
    def temperature(self) -> Scalar:
        return jnp.exp(self.log_temperature)


class Learner(eqx.Module):
    """Complete learner state: networks, target critics and optimiser state."""

    networks: Networks
    targets: TwinQ
    """Moving averages of the critics."""
    moments: optax.OptState

    def sample(self, obs: Float[Array, "*batch D"], key: RandomKey) -> Float[Array, "*batch A"]:
        """A sampled action in the unit box per observation."""
        return self.networks.actor(obs).draw(key)[0]

    def value(self, obs: Float[Array, "*batch D"], key: RandomKey) -> Float[Array, "*batch"]:
        """Expected return of the policy from each observation, by the target critics."""
        return jnp.min(self.targets(obs, self.sample(obs, key)), 0)


def init(config: SACLearnerConfig, obs_dim: int, actions: ActionSpec, key: RandomKey) -> Learner:
    """A new learner."""
    actor_key, critic_key = jax.random.split(key)
    networks = Networks(
        SquashedActor(obs_dim, actions.size, actor_key, config.hidden),
        TwinQ(obs_dim, actions.size, critic_key, config.hidden),
        jnp.log(jnp.float32(config.initial_temperature)),
    )
    moments = _optimiser(config).init(eqx.filter(networks, eqx.is_array))
    return Learner(networks, networks.critics, moments)


def soft_target(
    config: SACLearnerConfig, learner: Learner, batch: Transitions, key: RandomKey
) -> Float[Array, " N"]:
    """Targets of the critics: r + gamma (min Q(s', a') - temperature log pi(a' | s'))."""
    action, log_prob = learner.networks.actor(batch.next_obs).draw(key)
    value = jnp.min(learner.targets(batch.next_obs, action), 0)
    soft = value - learner.networks.temperature * log_prob
    return batch.reward + config.gamma * jnp.where(batch.terminated, 0.0, soft)


def temperature_loss(
    log_temperature: Scalar, log_prob: Float[Array, " N"], target_entropy: Scalar | float
) -> Scalar:
    """A loss whose descent raises the temperature while the entropy is below its target."""
    return -log_temperature * jnp.mean(log_prob + target_entropy)


def polyak_average(polyak: float, slow: Values, fast: Values) -> Values:
    """Target critics after one more update of the critics."""
    return jax.tree.map(lambda s, f: polyak * s + (1 - polyak) * f, slow, fast)


def update(
    config: SACLearnerConfig, learner: Learner, batch: Transitions, key: RandomKey
) -> tuple[Learner, dict[str, Array]]:
    """Take one joint gradient step of policy, critics and temperature.

    Metrics: `critic_loss` (mean of both critics), `q` of the batch, `entropy`, `temperature`.
    """
    next_key, key = jax.random.split(key)
    target = soft_target(config, learner, batch, next_key)
    target_entropy = config.target_entropy
    if target_entropy is None:
        target_entropy = -float(batch.action.shape[-1])

    def loss(networks: Networks) -> tuple[Array, dict[str, Array]]:
        q = networks.critics(batch.obs, batch.action)
        critic_losses = jnp.mean((q - target) ** 2, -1)
        action, log_prob = networks.actor(batch.obs).draw(key)
        fixed = jax.lax.stop_gradient(networks)
        value = jnp.min(fixed.critics(batch.obs, action), 0)
        actor_loss = jnp.mean(fixed.temperature * log_prob - value)
        heat = temperature_loss(
            networks.log_temperature, jax.lax.stop_gradient(log_prob), target_entropy
        )
        metrics = {
            "critic_loss": jnp.mean(critic_losses),
            "q": jnp.mean(q),
            "entropy": -jnp.mean(log_prob),
            "temperature": networks.temperature,
        }
        return jnp.sum(critic_losses) + actor_loss + heat, metrics

    grads, metrics = jax.grad(loss, has_aux=True)(learner.networks)
    updates, moments = _optimiser(config).update(grads, learner.moments)
    networks = eqx.apply_updates(learner.networks, updates)
    targets = polyak_average(config.polyak, learner.targets, networks.critics)
    return Learner(networks, targets, moments), metrics


def to_unit(actions: ActionSpec, action: Actions) -> Actions:
    """Convert actions [..., A] within the bounds to the unit box; numpy or JAX arrays."""
    low, high = _bounds(actions)
    return 2 * (action - low) / (high - low) - 1


def to_box(actions: ActionSpec, unit: Actions) -> Actions:
    """Convert actions [..., A] in the unit box to the bounds; numpy or JAX arrays."""
    low, high = _bounds(actions)
    return cast(Actions, low + (unit + 1) / 2 * (high - low))


def _bounds(actions: ActionSpec) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(actions.low, np.float32), np.asarray(actions.high, np.float32)


def _optimiser(config: SACLearnerConfig) -> optax.GradientTransformation:
    return adam(config.learning_rate, None)
