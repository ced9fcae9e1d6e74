"""PPO-Lagrangian, as in safety-starter-agents; without a constraint it is PPO.

One epoch: collect real steps; update the multiplier with the cost of the episodes that ended;
improve the policy on the Lagrangian; fit the critics.
"""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp

from surefoot.algorithms import on_policy
from surefoot.algorithms.algorithm import Preset
from surefoot.algorithms.on_policy import TASKS, Measured, OnPolicyConfig, State
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Metrics, RandomKey
from surefoot.learn import ppo
from surefoot.learn.actor_critic import Batch, observe, prepare
from surefoot.learn.multiplier import NO_MULTIPLIER, MultiplierConfig
from surefoot.learn.ppo import PPOConfig


@dataclass(frozen=True)
class PPOLagrangianConfig(OnPolicyConfig):
    """PPO-Lagrangian with the settings of safety-starter-agents."""

    constrained: bool = True
    """Whether to keep the limit; without it, this is PPO."""
    ppo: PPOConfig = field(
        default_factory=lambda: PPOConfig(clip=0.2, gae_lambda=0.97, value_targets="return")
    )
    """The learner."""
    multiplier: MultiplierConfig = field(default_factory=lambda: MultiplierConfig(kind="softplus"))
    """The multiplier's rule."""


def init(config: PPOLagrangianConfig, problem: Problem, key: RandomKey) -> State:
    """A new policy, new critics and the initial multipliers."""
    learner_key, key = jax.random.split(key)
    start = config.multiplier if config.constrained else NO_MULTIPLIER
    size, k = problem.observation_size, problem.constraints
    learner = ppo.init(config.ppo, start, size, problem.actions, k, learner_key)
    return State(learner, key)


def update(
    config: PPOLagrangianConfig, state: State, batch: Batch, measured: Measured
) -> tuple[State, Metrics]:
    """One update from real steps."""
    key, sub = jax.random.split(state.key)
    learner, lam = state.learner, jnp.zeros_like(measured.cost)
    rows, scales = prepare(config.ppo, learner, batch)
    if config.constrained:
        learner, lam = on_policy.follow_cost(
            config.multiplier, learner, measured.cost, config.cost_limit, scales
        )
    learner, metrics = ppo.update(config.ppo, learner, rows, lam, sub)
    learner = observe(learner, batch)
    return State(learner, key), {"lambda": lam, **metrics}


def _check_constrained(config: PPOLagrangianConfig) -> None:
    if not config.constrained:
        raise ValueError("constrained=False contradicts algorithm='ppo-lagrangian'; use ppo")


def _check_unconstrained(config: PPOLagrangianConfig) -> None:
    if config.constrained:
        raise ValueError("constrained=True contradicts algorithm='ppo'; use ppo-lagrangian")
    if config.within is not None:
        raise ValueError(
            f"within={config.within} contradicts algorithm='ppo', which keeps no limit (did you "
            f"mean ppo-lagrangian?)"
        )
    if config.multiplier != PPOLagrangianConfig().multiplier:
        raise ValueError(
            f"multiplier.kind={config.multiplier.kind!r} contradicts algorithm='ppo', which has no "
            f"multiplier (did you mean ppo-lagrangian?)"
        )


_BOTH = on_policy.algorithm(
    "ppo-lagrangian",
    "PPO-Lagrangian",
    PPOLagrangianConfig,
    init,
    update,
    remedy="a smaller ppo.actor_learning_rate or ppo.normalise_observations",
    learner="ppo",
)
ALGORITHM = replace(_BOTH, check=_check_constrained)
PPO = replace(
    _BOTH,
    name="ppo",
    title="PPO",
    presets={
        "default": Preset({"constrained": False}, tasks=TASKS, black_box=on_policy.scaled("ppo"))
    },
    keeps_limit=lambda config: False,
    check=_check_unconstrained,
)
