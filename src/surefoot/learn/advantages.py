"""Generalised advantage estimation, for the reward and any number of costs at once."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

TargetKind = Literal["gae", "return"]


def gae(
    rewards: Float[Array, "T B *signals"],
    values: Float[Array, "T B *signals"],
    next_values: Float[Array, "T B *signals"],
    terminated: Bool[Array, "T B"],
    ended: Bool[Array, "T B"],
    gamma: float,
    lam: float,
    targets: TargetKind = "gae",
) -> tuple[Float[Array, "T B *signals"], Float[Array, "T B *signals"]]:
    """Advantages and value targets of T steps in B environments.

    `next_values` are V of the observation that truly followed each step: of the final one where
    an episode ended, not of the first one of the next episode. It counts for nothing where
    `terminated`; a time-out (`ended` but not `terminated`) bootstraps from it. `ended` keeps one
    episode's residuals out of another's. Residuals are delta_t = r_t + gamma V(s_{t+1}) - V(s_t).

    Value targets are advantage + value ("gae"), or the discounted reward-to-go bootstrapped where
    the episode or the batch ends ("return").
    """
    if targets not in ("gae", "return"):
        raise ValueError(f"targets = {targets!r}: must be 'gae' or 'return'")
    per_step = (...,) + (None,) * (rewards.ndim - 2)
    alive = 1.0 - terminated[per_step].astype(rewards.dtype)
    goes_on = 1.0 - (terminated | ended)[per_step].astype(rewards.dtype)
    delta = rewards + gamma * alive * next_values - values

    def discounted_sum(decay: float) -> Float[Array, "T B *signals"]:
        def step(later, now):
            delta_t, goes_on_t = now
            total = delta_t + decay * goes_on_t * later
            return total, total

        return jax.lax.scan(step, jnp.zeros_like(delta[0]), (delta, goes_on), reverse=True)[1]

    advantages = discounted_sum(gamma * lam)
    # With lambda = 1 the residuals telescope: their sum is the bootstrapped return minus V.
    returns = advantages if targets == "gae" else discounted_sum(gamma)
    return advantages, returns + values
