"""SAC: soft actor-critic on real steps. It ignores costs, and is safe-LOOP's learner.

One round: a few real steps, then as many updates on batches of the replay buffer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from surefoot.algorithms import off_policy
from surefoot.algorithms.actors import draw_from
from surefoot.algorithms.algorithm import Algorithm, Preset
from surefoot.algorithms.collect import Actor, Generators
from surefoot.algorithms.experience import Experience
from surefoot.algorithms.off_policy import SACSettings, SACState, Updates, squashed_policy
from surefoot.algorithms.phases import Phases
from surefoot.algorithms.seeds import over_seeds, seed_keys
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Tree
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved


@dataclass(frozen=True)
class SACConfig(SACSettings):
    """SAC with automatic temperature."""

    observation: str = "paper"
    """Observation that the policy sees, if the task has several."""


class SACTrainer:
    """See `trainer.Trainer`."""

    remedy = "a smaller sac.learning_rate"

    def __init__(self, config: SACConfig, problem: Problem):
        self.problem = problem
        self.rounds = config.steps_per_epoch // config.update_every
        self.round_steps = config.update_every // config.environments
        self._updates = Updates(config, problem, partial(off_policy.improve, config))
        begin = over_seeds(
            lambda key: off_policy.init(config.sac, problem, key), len(problem.seeds)
        )
        self.state: SACState = begin(seed_keys(problem.seeds))
        self._policy = squashed_policy(self.state.learner.networks.actor, problem.actions)
        self.datasets = {"replay": self._updates.replay}

    def actor(self, done: int, rngs: Generators) -> Actor:
        if self._updates.begins(done):
            return self._updates.random_actor(rngs)
        return draw_from(self._policy, rngs, self.problem.environments, self.round_steps)

    def learn(self, experience: Experience, done: int, phases: Phases) -> None:
        with phases("update"):
            self.state = self._updates.learn(self.state, experience, done)
            self._policy = squashed_policy(self.state.learner.networks.actor, self.problem.actions)

    def end_epoch(self) -> Mapping[str, np.ndarray]:
        return self._updates.end_epoch()

    def finite_parts(self) -> dict[str, Tree]:
        return {"policy or critics": self.state.learner, "an update's metric": self._updates.last}

    def policy(self) -> Policy:
        return self._policy

    def planning(self) -> None:
        return None

    def snapshot(self) -> dict[str, Tree]:
        return {"state": self.state, "replay": self._updates.replay.snapshot()}

    def restore(self, saved: Saved, steps: int, data: bool = True) -> None:
        self.state = saved.like("state", self.state)
        self._policy = squashed_policy(self.state.learner.networks.actor, self.problem.actions)
        if data:
            self._updates.replay.restore(saved.part("replay"), steps)


ALGORITHM = Algorithm(
    name="sac",
    title="SAC",
    config=SACConfig,
    trainer=SACTrainer,
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
