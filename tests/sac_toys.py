"""A small SAC-Lagrangian learner's settings, and random transitions."""

import jax
import jax.numpy as jnp
import numpy as np

from surefoot.learn.replay import CostTransitions
from surefoot.learn.sac_lagrangian import SACLagrangianLearnerConfig

KEY = jax.random.key(0)
SMALL = SACLagrangianLearnerConfig(
    hidden=(8,), batch_size=16, policy_every=1, initial_temperature=0.5
)


def transitions(n: int, k: int = 1) -> CostTransitions:
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    return CostTransitions(
        normal(n, 3), jnp.tanh(normal(n, 2)), normal(n), normal(n, 3),
        jnp.asarray(rng.random(n) < 0.3), jnp.asarray(rng.random((n, k)) < 0.5, jnp.float32),
    )  # fmt: skip
