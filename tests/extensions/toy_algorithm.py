"""A complete algorithm in one file: REINFORCE with a Lagrange multiplier.

surefoot train PointGoal --algorithm toy_algorithm.py:ALGORITHM --learning-rate 0.02
"""

from dataclasses import dataclass, field, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from surefoot.algorithms import on_policy
from surefoot.algorithms.algorithm import Steps
from surefoot.algorithms.on_policy import Measured, OnPolicyConfig, State
from surefoot.algorithms.trainer import Problem
from surefoot.core.config import Positive
from surefoot.learn import ppo, surrogate
from surefoot.learn.actor_critic import Batch, fit_critics, prepare
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig


@dataclass(frozen=True)
class ReinforceConfig(OnPolicyConfig):
    """REINFORCE-Lagrangian."""

    steps: Steps = 20_000
    """Real steps in all."""
    steps_per_epoch: Steps = 1_000
    """Real steps per update."""
    observation: str = "ego"
    """Observation that the policy sees, if the task has several."""
    learning_rate: Positive = 0.05
    """Size of a gradient step on the policy."""
    learner: PPOConfig = field(default_factory=lambda: PPOConfig(hidden=(16,), critic_epochs=5))
    """Networks and critics."""
    multiplier: MultiplierConfig = field(default_factory=MultiplierConfig)
    """The multiplier's rule."""


def init(config: ReinforceConfig, problem: Problem, key: Key[Array, ""]) -> State:
    """A new policy, new critics and the initial multipliers of one seed."""
    learner_key, key = jax.random.split(key)
    obs, k = problem.observation_size, problem.constraints
    learner = ppo.init(config.learner, config.multiplier, obs, problem.actions, k, learner_key)
    return State(learner, key)


def update(
    config: ReinforceConfig, state: State, batch: Batch, measured: Measured
) -> tuple[State, dict[str, Array]]:
    """One gradient step on E[log pi * (reward advantage - lambda * cost advantage)]."""
    key, sub = jax.random.split(state.key)
    rows, scales = prepare(config.learner, state.learner, batch)
    learner, lam = on_policy.follow_cost(
        config.multiplier, state.learner, measured.cost, config.cost_limit, scales
    )

    def objective(actor):
        log_prob = actor(rows.obs).log_prob(rows.action)
        reward = surrogate.mean(log_prob * rows.reward_advantage, rows.weight)
        cost = surrogate.mean(log_prob[:, None] * rows.cost_advantage, rows.weight)
        return surrogate.lagrangian(reward, cost, lam)

    value, gradient = eqx.filter_value_and_grad(objective)(learner.actor)
    step = jax.tree.map(lambda g: config.learning_rate * g, gradient)
    learner = eqx.tree_at(lambda s: s.actor, learner, eqx.apply_updates(learner.actor, step))
    learner, metrics = fit_critics(config.learner, learner, rows, sub)
    return State(learner, key), {"lambda": lam, "objective": jnp.asarray(value), **metrics}


ALGORITHM = replace(
    on_policy.algorithm(
        "reinforce-lagrangian",
        "REINFORCE-Lagrangian",
        ReinforceConfig,
        init,
        update,
        remedy="a smaller learning_rate",
    ),
    columns={"lambda": "{lambda:.3f}", "objective": "{objective:.3f}"},
)
