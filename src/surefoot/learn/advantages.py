"""Generalised advantage estimation of the reward and any number of costs."""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from surefoot.core.config import check_choice

TargetKind = Literal["gae", "return"]


def gae(
    rewards: Float[Array, "T B *signals"],
    values: Float[Array, "T B *signals"],
    next_values: Float[Array, "T B *signals"],
    terminated: Bool[Array, "T B"] | Bool[Array, "T B *signals"],
    ended: Bool[Array, "T B"],
    gamma: float,
    lam: float,
    targets: TargetKind = "gae",
) -> tuple[Float[Array, "T B *signals"], Float[Array, "T B *signals"]]:
    """Advantages and value targets of T steps in B environments.

    `next_values` are V of the observation after each step: of the final one where an episode ended,
    not of the first one of the next episode. They are ignored where `terminated`, which may differ
    by signal; a truncated episode (`ended` but not `terminated`) bootstraps from them. `ended`
    separates the residuals delta_t = r_t + gamma V(s_{t+1}) - V(s_t) of different episodes.

    Value targets are advantage + value ("gae"), or the discounted reward-to-go, bootstrapped where
    the episode or the batch ends ("return").
    """
    check_choice("targets", targets, get_args(TargetKind))
    per_step = (...,) + (None,) * (rewards.ndim - 2)
    over = terminated if terminated.ndim == rewards.ndim else terminated[per_step]
    alive = 1.0 - over.astype(rewards.dtype)
    continues = 1.0 - (over | ended[per_step]).astype(rewards.dtype)
    delta = rewards + gamma * alive * next_values - values

    def discounted_sum(decay: float) -> Float[Array, "T B *signals"]:
        def step(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            delta_t, continues_t = now
            total = delta_t + decay * continues_t * later
            return total, total

        # Unrolled steps become one kernel.
        start, rows = jnp.zeros_like(delta[0]), (delta, continues)
        return jax.lax.scan(step, start, rows, reverse=True, unroll=8)[1]

    advantages = discounted_sum(gamma * lam)
    # With lambda = 1 the residuals telescope: their sum is the bootstrapped return minus V.
    returns = advantages if targets == "gae" else discounted_sum(gamma)
    return advantages, returns + values
