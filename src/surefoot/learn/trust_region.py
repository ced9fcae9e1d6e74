"""The trust region that TRPO and CPO share: config, surrogates near a policy, and line search.

Advantages, critics and networks are those of `actor_critic`. The policy moves by natural-gradient
steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from surefoot.core.arrays import Flag, Metrics, Scalar
from surefoot.core.config import Count, Positive, Range
from surefoot.learn import surrogate
from surefoot.learn.actor_critic import ActorCriticConfig, Rows
from surefoot.learn.natural import Product, Vector, conjugate_gradients, fisher_product, line_search
from surefoot.learn.networks import Actor


@dataclass(frozen=True)
class TrustRegionConfig(ActorCriticConfig):
    """How a batch improves the policy and the critics, as in safety-starter-agents."""

    delta: Positive = 0.01
    """Maximum mean KL between the policies before and after an update."""
    cg_iterations: Count = 10
    """Iterations of conjugate gradients."""
    damping: Positive = 0.1
    """Added to the diagonal of the Fisher matrix."""
    backtracks: Count = 10
    """Step lengths that the line search tries."""
    decay: Annotated[float, Range(above=0, below=1)] = 0.8
    """Ratio of one step length of the line search to the previous one."""


class Judged(NamedTuple):
    """Estimates of a policy near the old one, from a batch."""

    reward: Scalar
    """Surrogate of the reward: mean advantage over the old policy."""
    cost: Float[Array, " k"]
    """Surrogates of the costs."""
    kl: Scalar
    """Mean KL(old || policy)."""
    entropy: Scalar


class Region(NamedTuple):
    """The neighbourhood of a policy, in flat parameters."""

    here: Vector
    floor: Vector
    """Lower bound of each parameter."""
    actor: Callable[[Vector], Actor]
    judge: Callable[[Vector], Judged]
    fisher: Product
    """Damped Fisher-vector products."""


def around(config: TrustRegionConfig, actor: Actor, rows: Rows) -> Region:
    """The neighbourhood of the policy that collected `rows`."""
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
    """Lower bound of each flat parameter: -inf except for a bounded `log_std`."""
    free = jax.tree.map(lambda x: jnp.full_like(x, -jnp.inf), actor)
    if config.minimum_log_std is not None and actor.log_std is not None:
        least = jnp.full_like(actor.log_std, config.minimum_log_std)
        free = eqx.tree_at(lambda a: a.log_std, free, least)
    return ravel_pytree(free)[0]


def solve(config: TrustRegionConfig, region: Region, gradient: Vector) -> Vector:
    """H^-1 gradient, by conjugate gradients."""
    return conjugate_gradients(region.fisher, gradient, config.cg_iterations)


def search(
    config: TrustRegionConfig, region: Region, step: Vector, accept: Callable[[Judged], Flag]
) -> tuple[Actor, Metrics]:
    """Take the longest tried step with a KL within delta that `accept` allows.

    Metrics: `kl`, `entropy` and `step_share`, the share of the step that was taken.
    """
    # Bounded after each step: a bound inside the policy would remove the gradient at the bound.
    hold = lambda params: jnp.maximum(params, region.floor)

    def judge(params: Vector) -> tuple[Array, Judged]:
        judged = region.judge(hold(params))
        # NaN fails the comparison, so the step shrinks.
        return (judged.kl <= config.delta) & accept(judged), judged

    params, share, judged = line_search(judge, region.here, step, config.backtracks, config.decay)
    metrics = {"kl": judged.kl, "entropy": judged.entropy, "step_share": share}
    return region.actor(hold(params)), metrics
