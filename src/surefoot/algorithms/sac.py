"""SAC: soft actor-critic on real steps. It ignores costs, and is safe-LOOP's learner.

One round: a few real steps, then as many updates on batches of the replay buffer.
"""

from dataclasses import dataclass
from functools import partial

from surefoot.algorithms import off_policy
from surefoot.algorithms.algorithm import Algorithm, Preset
from surefoot.algorithms.off_policy import (
    OffPolicy,
    SACSettings,
    SACState,
    Updates,
    squashed_policy,
)
from surefoot.algorithms.trainer import Problem


@dataclass(frozen=True)
class SACConfig(SACSettings):
    """SAC with automatic temperature."""

    observation: str = "paper"
    """Observation that the policy sees, if the task has several."""


def trainer(config: SACConfig, problem: Problem) -> OffPolicy[SACState]:
    """SAC at work on all seeds."""
    return OffPolicy(
        config,
        problem,
        init=lambda key: off_policy.init(config.sac, problem, key),
        updates=Updates(config, problem, partial(off_policy.improve, config)),
        policy_of=lambda state: squashed_policy(state.learner.networks.actor, problem.actions),
        remedy="a smaller sac.learning_rate",
    )


ALGORITHM = Algorithm(
    name="sac",
    title="SAC",
    config=SACConfig,
    trainer=trainer,
    environments=lambda config, episode_steps: config.environments,
    # A quadruped must feel its joints to walk.
    presets={
        "default": Preset(
            tasks={name: {"observation": "reference"} for name in ("DoggoGoal", "DoggoGoalOpenAI")}
        )
    },
    columns={"temperature": "{temperature:.3f}"},
    keeps_limit=lambda config: False,
)
