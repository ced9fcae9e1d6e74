"""PPO-Lagrangian, as in safety-starter-agents; without a constraint it is PPO.

One epoch: collect real steps; update the multiplier with the cost of the episodes that ended;
improve the policy on the Lagrangian; fit the critics.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jaxtyping import Array

from surefoot.algorithms import on_policy
from surefoot.algorithms.algorithm import Algorithm, CostLimit, Preset, Steps
from surefoot.algorithms.on_policy import Measured, OnPolicy, State
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import RandomKey
from surefoot.core.config import check
from surefoot.learn import ppo
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig


@dataclass(frozen=True)
class PPOLagrangianConfig:
    """PPO-Lagrangian with the settings of safety-starter-agents."""

    steps: Steps = 2_000_000
    """Real steps in all."""
    cost_limit: CostLimit = ()
    """Limit on the undiscounted cost of an episode, one per constraint."""
    constrained: bool = True
    """Whether to keep the limit; without it, this is PPO."""
    steps_per_epoch: Steps = 30_000
    """Real steps per update."""
    observation: str = "paper"
    """Observation that the policy sees, if the task has several."""
    ppo: PPOConfig = field(
        default_factory=lambda: PPOConfig(clip=0.2, gae_lambda=0.97, value_targets="return")
    )
    """The learner."""
    multiplier: MultiplierConfig = field(default_factory=lambda: MultiplierConfig(kind="softplus"))
    """The multiplier's rule."""

    def __post_init__(self) -> None:
        check(self)


def init(config: PPOLagrangianConfig, problem: Problem, key: RandomKey) -> State:
    """A new policy, new critics and the initial multipliers."""
    learner_key, key = jax.random.split(key)
    prices = config.multiplier if config.constrained else MultiplierConfig(initial=0.0)
    actions, k = problem.actions, problem.constraints
    learner = ppo.init(
        config.ppo, prices, problem.observation_size, actions.size, actions.discrete, k, learner_key
    )
    return State(learner, key)


def update(
    config: PPOLagrangianConfig, state: State, batch: ppo.Batch, measured: Measured
) -> tuple[State, dict[str, Array]]:
    """One update from real steps."""
    key, sub = jax.random.split(state.key)
    learner, lam = state.learner, jnp.zeros_like(measured.cost)
    if config.constrained:
        learner, lam = on_policy.follow_cost(
            config.multiplier, learner, measured.cost, config.cost_limit
        )
    learner, metrics = ppo.update(config.ppo, learner, batch, lam, sub)
    learner = ppo.observe(learner, batch.obs)
    return State(learner, key), {"lambda": lam, **metrics}


def trainer(config: PPOLagrangianConfig, problem: Problem) -> OnPolicy:
    remedy = "a smaller ppo.actor_learning_rate or ppo.normalise_observations"
    return OnPolicy(config, problem, init, update, remedy)


def _check_constrained(config: PPOLagrangianConfig) -> None:
    if not config.constrained:
        raise ValueError("constrained=False contradicts algorithm='ppo-lagrangian'; use ppo")


def _check_unconstrained(config: PPOLagrangianConfig) -> None:
    if config.constrained:
        raise ValueError("constrained=True contradicts algorithm='ppo'; use ppo-lagrangian")
    if config.multiplier != PPOLagrangianConfig().multiplier:
        raise ValueError(
            f"multiplier.kind={config.multiplier.kind!r} contradicts algorithm='ppo', which has no "
            f"multiplier (did you mean ppo-lagrangian?)"
        )


DOGGO = {"steps_per_epoch": 60_000}
TASKS = {"DoggoGoal": DOGGO, "DoggoGoalOpenAI": DOGGO}
"""Overrides that the on-policy algorithms share."""

ALGORITHM = Algorithm(
    name="ppo-lagrangian",
    title="PPO-Lagrangian",
    config=PPOLagrangianConfig,
    trainer=trainer,
    environments=on_policy.environments,
    presets={"default": Preset(tasks=TASKS)},
    columns={"lambda": "{lambda:.3f}"},
    check=_check_constrained,
)
PPO = Algorithm(
    name="ppo",
    title="PPO",
    config=PPOLagrangianConfig,
    trainer=trainer,
    environments=on_policy.environments,
    presets={"default": Preset({"constrained": False}, tasks=TASKS)},
    columns={"lambda": "{lambda:.3f}"},
    keeps_limit=lambda config: False,
    check=_check_unconstrained,
)
