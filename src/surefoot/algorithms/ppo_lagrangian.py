"""PPO-Lagrangian, as in safety-starter-agents; without a constraint it is PPO.

One epoch: collect real steps; move the multiplier by the cost of the episodes that ended; improve
the policy on the Lagrangian; fit the critics.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from surefoot.algorithms import model_free
from surefoot.algorithms.common import Epoch
from surefoot.algorithms.model_free import Measured, Sizes, State
from surefoot.core.snapshot import Saved
from surefoot.learn import ppo
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig


@dataclass(frozen=True)
class PPOLagrangianConfig:
    """PPO-Lagrangian with safety-starter-agents' settings."""

    steps: int = 2_000_000
    """Real steps in all."""
    cost_limit: float = 18.0
    """Limit on the undiscounted cost of an episode; the same for each constraint."""
    constrained: bool = True
    """Whether the limit is kept; without, this is PPO."""
    steps_per_epoch: int = 30_000
    """Real steps per update."""
    observation: str = "paper"
    """Which observation of the Goal tasks the policy sees."""
    ppo: PPOConfig = field(
        default_factory=lambda: PPOConfig(clip=0.2, gae_lambda=0.97, value_targets="return")
    )
    """The learner."""
    multiplier: MultiplierConfig = field(default_factory=lambda: MultiplierConfig(kind="softplus"))
    """The multiplier's rule."""

    def __post_init__(self) -> None:
        model_free.check_schedule(self)


def init(config: PPOLagrangianConfig, sizes: Sizes, key: Key[Array, ""]) -> State:
    """A new policy, new critics, and the multipliers at their start."""
    learner_key, key = jax.random.split(key)
    prices = config.multiplier if config.constrained else MultiplierConfig(initial=0.0)
    actions, k = sizes.actions, sizes.constraints
    learner = ppo.init(
        config.ppo, prices, sizes.obs, actions.size, actions.discrete, k, learner_key
    )
    return State(learner, key)


def update(
    config: PPOLagrangianConfig, state: State, batch: ppo.Batch, measured: Measured
) -> tuple[State, dict[str, Array]]:
    """One update from real steps."""
    key, sub = jax.random.split(state.key)
    learner, lam = state.learner, jnp.zeros_like(measured.cost)
    if config.constrained:
        learner, lam = model_free.follow_cost(
            config.multiplier, learner, measured.cost, config.cost_limit
        )
    learner, metrics = ppo.update(config.ppo, learner, batch, lam, sub)
    learner = ppo.observe(learner, batch.obs)
    return State(learner, key), {"lambda": jnp.sum(lam), **metrics}


def epochs(
    config: PPOLagrangianConfig,
    make_env: Callable[[int, str], Any],
    seeds: list[int],
    saved: Saved | None = None,
) -> Iterator[Epoch]:
    """Train, one epoch at a time: see `model_free.epochs`."""
    remedy = "a smaller ppo.actor_learning_rate or ppo.normalise_observations"
    return model_free.epochs(config, init, update, make_env, seeds, remedy, saved)
