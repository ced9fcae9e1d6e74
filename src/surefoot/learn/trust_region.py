"""What trust-region learners share: settings, and how a policy near the present one is judged.

Advantages, critics and networks are PPO's; the policy itself moves by natural-gradient steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from surefoot.core.config import check_types
from surefoot.learn import ppo, surrogate
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.natural import Product, Vector, conjugate_gradients, fisher_product, line_search
from surefoot.learn.networks import Actor
from surefoot.learn.ppo import Learner, PPOConfig, Rows


@dataclass(frozen=True)
class TrustRegionConfig:
    """How a batch improves the policy and its critics, as in safety-starter-agents."""

    delta: float = 0.01
    """Largest mean KL between the policy before and after an update."""
    cg_iterations: int = 10
    """Iterations of conjugate gradients."""
    damping: float = 0.1
    """Added to the Fisher matrix's diagonal."""
    backtracks: int = 10
    """How many lengths of a step the line search tries."""
    decay: float = 0.8
    """Each is this much of the one before."""
    gamma: float = 0.99
    """Discount of rewards and costs."""
    gae_lambda: float = 0.97
    """Lambda of generalised advantage estimation, for rewards and costs alike."""
    critic_learning_rate: float = 1e-3
    """Adam's step for the critics."""
    critic_epochs: int = 80
    """Full-batch steps of the critics."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers of policy and critics."""
    initial_log_std: float = -0.5
    """Log standard deviation of a new policy's actions."""
    minimum_log_std: float | None = None
    """Floor that keeps exploration alive; none if not given."""
    normalise_observations: bool = False
    """Scale observations by their running statistics."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("delta", "damping"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} = {getattr(self, name)}: must be positive and finite")
        for name in ("cg_iterations", "backtracks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least 1")
        if not 0 < self.decay < 1:
            raise ValueError(f"decay = {self.decay}: must be in (0, 1)")
        _ = self.ppo  # which checks the rest

    @property
    def ppo(self) -> PPOConfig:
        """The settings of what is PPO's: advantages, critics and networks."""
        return PPOConfig(
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            critic_learning_rate=self.critic_learning_rate,
            critic_epochs=self.critic_epochs,
            hidden=self.hidden,
            initial_log_std=self.initial_log_std,
            minimum_log_std=self.minimum_log_std,
            value_targets="return",
            normalise_observations=self.normalise_observations,
        )


def init(
    config: TrustRegionConfig,
    multiplier_config: MultiplierConfig,
    obs_dim: int,
    action_dim: int,
    discrete: bool,
    k: int,
    key: PRNGKeyArray,
) -> Learner:
    """A new learner; see `ppo.init`. Its policy has no optimiser, so no moments."""
    learner = ppo.init(config.ppo, multiplier_config, obs_dim, action_dim, discrete, k, key)
    return eqx.tree_at(lambda s: s.actor_moments, learner, None)


class Judged(NamedTuple):
    """What a batch tells of a policy."""

    reward: Float[Array, ""]
    """Surrogate of the reward: how much better than the old policy's an action is on average."""
    cost: Float[Array, " k"]
    """Surrogates of the costs."""
    kl: Float[Array, ""]
    """Mean KL(old || policy)."""
    entropy: Float[Array, ""]


class Region(NamedTuple):
    """The neighbourhood of a policy, in flat parameters."""

    here: Vector
    floor: Vector
    """Parameters must not fall below this."""
    actor: Callable[[Vector], Actor]
    judge: Callable[[Vector], Judged]
    fisher: Product
    """Damped Fisher-vector products."""


def around(config: TrustRegionConfig, actor: Actor, rows: Rows) -> Region:
    """The neighbourhood of the policy that gathered `rows`."""
    here, unflatten = ravel_pytree(actor)
    old = actor.distribution(rows.old_heads)

    def judge(params: Vector) -> Judged:
        policy = unflatten(params)(rows.obs)
        mean = lambda x: surrogate.mean(x, rows.weight)
        ratio = surrogate.ratio(policy.log_prob(rows.action), rows.old_log_prob)
        return Judged(
            reward=mean(ratio * rows.reward_advantage),
            cost=mean(ratio[:, None] * rows.cost_advantage),
            kl=mean(old.kl(policy)),
            entropy=mean(policy.entropy()),
        )

    fisher = fisher_product(lambda params: judge(params).kl, here, config.damping)
    return Region(here, floor_of(config, actor), unflatten, judge, fisher)


def floor_of(config: TrustRegionConfig, actor: Actor) -> Vector:
    """The least of each flat parameter: -inf but for log deviations that have a floor."""
    free = jax.tree.map(lambda x: jnp.full_like(x, -jnp.inf), actor)
    if config.minimum_log_std is not None and actor.log_std is not None:
        least = jnp.full_like(actor.log_std, config.minimum_log_std)
        free = eqx.tree_at(lambda a: a.log_std, free, least)
    return ravel_pytree(free)[0]


def solve(config: TrustRegionConfig, region: Region, gradient: Vector) -> Vector:
    """H^-1 gradient, by conjugate gradients."""
    return conjugate_gradients(region.fisher, gradient, config.cg_iterations)


def search(
    config: TrustRegionConfig,
    region: Region,
    step: Vector,
    accept: Callable[[Judged], Array],
) -> tuple[Actor, dict[str, Array]]:
    """The longest step tried that keeps the KL within delta and is accepted; metrics of it."""
    # Cut off after each step: a floor within the policy would leave what is at it no gradient.
    hold = lambda params: jnp.maximum(params, region.floor)

    def judge(params: Vector) -> tuple[Array, Judged]:
        judged = region.judge(hold(params))
        # A KL or surrogate that is not a number fails the comparison, and the step shrinks.
        return (judged.kl <= config.delta) & accept(judged), judged

    params, share, judged = line_search(judge, region.here, step, config.backtracks, config.decay)
    metrics = {"kl": judged.kl, "entropy": judged.entropy, "step_share": share}
    return region.actor(hold(params)), metrics
