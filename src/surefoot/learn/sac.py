"""Soft actor-critic with an automatic temperature (Haarnoja et al. 2018): rewards only, no costs.

The learner acts in the unit box, from -1 to 1 in every direction; `to_box` and `to_unit` translate
from and to an environment's bounds. Everything here is for one seed.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from surefoot.core.config import check_types
from surefoot.core.policy import LOG_STD_RANGE
from surefoot.core.spaces import ActionSpec
from surefoot.learn.descent import adam
from surefoot.learn.networks import MLP, Gaussian
from surefoot.learn.replay import Transitions


@dataclass(frozen=True)
class SACLearnerConfig:
    """How batches of past steps improve the policy and its critics."""

    gamma: float = 0.99
    """Discount of rewards."""
    polyak: float = 0.995
    """Share of the target critics that is kept at every update."""
    learning_rate: float = 1e-3
    """Adam's step, for policy, critics and temperature alike."""
    batch_size: int = 256
    """Steps drawn from the replay for an update."""
    hidden: tuple[int, ...] = (256, 256)
    """Sizes of the hidden layers of policy and critics."""
    initial_temperature: float = 1.0
    """What a unit of entropy is worth at first."""
    target_entropy: float | None = None
    """Entropy that the temperature aims at; minus the length of an action if not given."""

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 <= self.gamma < 1:
            raise ValueError(f"gamma={self.gamma} must be at least 0 and below 1")
        if not 0 <= self.polyak < 1:
            raise ValueError(f"polyak={self.polyak} must be at least 0 and below 1")
        for name in ("learning_rate", "initial_temperature"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size} must be at least 1")
        if any(size < 1 for size in self.hidden):
            raise ValueError(f"hidden={self.hidden}: every layer needs at least one unit")


class Squashed(eqx.Module):
    """The hyperbolic tangent of a Gaussian: a distribution over the unit box."""

    gaussian: Gaussian

    def draw(self, key: PRNGKeyArray) -> tuple[Float[Array, "*batch A"], Float[Array, "*batch"]]:
        """Actions and their log-probabilities."""
        x = self.gaussian.sample(key)
        # log(1 - tanh(x)^2) without the loss of digits where tanh(x) is next to 1.
        log_slope = 2 * (jnp.log(2.0) - x - jax.nn.softplus(-2 * x))
        return jnp.tanh(x), self.gaussian.log_prob(x) - jnp.sum(log_slope, -1)


class SquashedActor(eqx.Module):
    """The policy: mean and deviation both depend on the observation."""

    network: MLP

    def __init__(self, obs_dim: int, action_dim: int, key: PRNGKeyArray, hidden: tuple[int, ...]):
        # A small last layer starts every state near the same, centred and wide distribution.
        sizes = [obs_dim, *hidden, 2 * action_dim]
        self.network = MLP(sizes, key, last_gain=0.01, activation=jax.nn.relu)

    def __call__(self, obs: Float[Array, "*batch D"]) -> Squashed:
        mean, log_std = jnp.split(self.network(obs), 2, -1)
        return Squashed(Gaussian(mean, jnp.clip(log_std, *LOG_STD_RANGE)))


class TwinQ(eqx.Module):
    """Two action-value networks, stacked in one; the smaller of their values is believed."""

    network: MLP

    def __init__(self, obs_dim: int, action_dim: int, key: PRNGKeyArray, hidden: tuple[int, ...]):
        sizes = [obs_dim + action_dim, *hidden, 1]
        make = lambda key: MLP(sizes, key, activation=jax.nn.relu)
        self.network = eqx.filter_vmap(make)(jax.random.split(key))

    def __call__(
        self, obs: Float[Array, "*batch D"], action: Float[Array, "*batch A"]
    ) -> Float[Array, "2 *batch"]:
        x = jnp.concatenate([obs, action], -1)
        return jax.vmap(lambda network: network(x)[..., 0])(self.network)


class Networks(eqx.Module):
    """All that gradients move."""

    actor: SquashedActor
    critics: TwinQ
    log_temperature: Float[Array, ""]

    @property
    def temperature(self) -> Float[Array, ""]:
        return jnp.exp(self.log_temperature)


class Learner(eqx.Module):
    """Everything that learns, and all it needs to go on."""

    networks: Networks
    targets: TwinQ
    """The critics, following slowly."""
    moments: optax.OptState

    def sample(self, obs: Float[Array, "*batch D"], key: PRNGKeyArray) -> Float[Array, "*batch A"]:
        """An action in the unit box for every observation."""
        return self.networks.actor(obs).draw(key)[0]

    def value(self, obs: Float[Array, "*batch D"], key: PRNGKeyArray) -> Float[Array, "*batch"]:
        """The reward to come by the target critics, if the policy goes on."""
        return jnp.min(self.targets(obs, self.sample(obs, key)), 0)


def init(config: SACLearnerConfig, obs_dim: int, action_dim: int, key: PRNGKeyArray) -> Learner:
    """A new learner."""
    actor_key, critic_key = jax.random.split(key)
    networks = Networks(
        SquashedActor(obs_dim, action_dim, actor_key, config.hidden),
        TwinQ(obs_dim, action_dim, critic_key, config.hidden),
        jnp.log(jnp.float32(config.initial_temperature)),
    )
    moments = _optimiser(config).init(eqx.filter(networks, eqx.is_array))
    return Learner(networks, networks.critics, moments)


def soft_target(
    config: SACLearnerConfig, learner: Learner, batch: Transitions, key: PRNGKeyArray
) -> Float[Array, " N"]:
    """What the critics should say: r + gamma (min Q(s', a') - temperature log pi(a' | s'))."""
    action, log_prob = learner.networks.actor(batch.next_obs).draw(key)
    value = jnp.min(learner.targets(batch.next_obs, action), 0)
    soft = value - learner.networks.temperature * log_prob
    return batch.reward + config.gamma * jnp.where(batch.terminated, 0.0, soft)


def temperature_loss(
    log_temperature: Float[Array, ""], log_prob: Float[Array, " N"], target_entropy: float
) -> Float[Array, ""]:
    """Falls with a warmer temperature where the entropy, E[-log pi], is below its target."""
    return -log_temperature * jnp.mean(log_prob + target_entropy)


def follow(polyak: float, slow: TwinQ, fast: TwinQ) -> TwinQ:
    """The target critics after one more update."""
    return jax.tree.map(lambda s, f: polyak * s + (1 - polyak) * f, slow, fast)


def update(
    config: SACLearnerConfig, learner: Learner, batch: Transitions, key: PRNGKeyArray
) -> tuple[Learner, dict[str, Array]]:
    """One step of policy, critics and temperature, all from where they are now.

    Metrics: `critic_loss` (mean of the two), `q` of the batch, `entropy` and `temperature`.
    """
    next_key, key = jax.random.split(key)
    target = soft_target(config, learner, batch, next_key)
    wanted = config.target_entropy
    target_entropy = -float(batch.action.shape[-1]) if wanted is None else wanted

    def loss(networks: Networks) -> tuple[Array, dict[str, Array]]:
        q = networks.critics(batch.obs, batch.action)
        critic_losses = jnp.mean((q - target) ** 2, -1)
        action, log_prob = networks.actor(batch.obs).draw(key)
        fixed = jax.lax.stop_gradient(networks)
        believed = jnp.min(fixed.critics(batch.obs, action), 0)
        actor_loss = jnp.mean(fixed.temperature * log_prob - believed)
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
    targets = follow(config.polyak, learner.targets, networks.critics)
    return Learner(networks, targets, moments), metrics


def to_unit(actions: ActionSpec, action: Any) -> Any:
    """Actions [..., A] within the bounds, in the unit box; of numpy or JAX."""
    low, high = _bounds(actions)
    return 2 * (action - low) / (high - low) - 1


def to_box(actions: ActionSpec, unit: Any) -> Any:
    """Actions [..., A] of the unit box within the bounds; of numpy or JAX."""
    low, high = _bounds(actions)
    return low + (unit + 1) / 2 * (high - low)


def _bounds(actions: ActionSpec) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(actions.low, np.float32), np.asarray(actions.high, np.float32)


def _optimiser(config: SACLearnerConfig) -> optax.GradientTransformation:
    return adam(config.learning_rate, None)
