"""Surrogate objectives of PPO for the reward and the costs, and statistics of advantages."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from surefoot.core.arrays import Scalar


def mean(
    x: Float[Array, "N *rest"], weight: Float[Array, " N"] | None = None
) -> Float[Array, "*rest"]:
    """The mean over rows, weighted by `weight` if given."""
    if weight is None:
        return jnp.mean(x, 0)
    rows = weight.reshape(weight.shape + (1,) * (x.ndim - 1))
    return jnp.sum(rows * x, 0) / jnp.maximum(jnp.sum(weight), 1e-8)


def centred(
    advantage: Float[Array, "N *rest"], weight: Float[Array, " N"] | None = None
) -> Float[Array, "N *rest"]:
    """Advantages with mean 0. Costs keep their scale, which is that of the limit."""
    return advantage - mean(advantage, weight)


def deviation(
    advantage: Float[Array, "N *rest"], weight: Float[Array, " N"] | None = None
) -> Float[Array, "*rest"]:
    """The standard deviation of advantages, never exactly 0."""
    return jnp.sqrt(mean(centred(advantage, weight) ** 2, weight)) + 1e-8


def standardised(
    advantage: Float[Array, "N *rest"], weight: Float[Array, " N"] | None = None
) -> Float[Array, "N *rest"]:
    """Advantages with mean 0 and standard deviation 1, for the reward."""
    return centred(advantage, weight) / deviation(advantage, weight)


def ratio(log_prob: Float[Array, "*n"], old_log_prob: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """pi(a|s) / pi_old(a|s)."""
    return jnp.exp(log_prob - old_log_prob)


def clipped_reward(
    ratio: Float[Array, " N"], advantage: Float[Array, " N"], clip: float
) -> Float[Array, " N"]:
    """Reward surrogate per sample: the smaller of plain and clipped, which is pessimistic."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def clipped_cost(
    ratio: Float[Array, " N"], advantage: Float[Array, "N k"], clip: float
) -> Float[Array, "N k"]:
    """Cost surrogates per sample: the larger of plain and clipped, which is pessimistic."""
    ratio = ratio[:, None]
    return jnp.maximum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def lagrangian(reward: Scalar, cost: Float[Array, " k"], lam: Float[Array, " k"]) -> Scalar:
    """(J_R - sum_i lambda_i J_C,i) / (1 + sum_i lambda_i).

    The division keeps the size of policy steps independent of the multipliers.
    """
    return (reward - jnp.sum(lam * cost)) / (1.0 + jnp.sum(lam))
