"""What an algorithm and the shared training loop know of each other.

`Problem` is what an algorithm is given. `Trainer` is what it returns: an object that acts, learns
and reports for all seeds at once. `loop.epochs` drives it. All arrays have a leading axis of seeds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Array, Float

from surefoot.algorithms.collect import Actor, Generators
from surefoot.algorithms.dataset import Dataset
from surefoot.algorithms.experience import Experience
from surefoot.algorithms.phases import Phases
from surefoot.core.arrays import RandomKey, Tree
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved
from surefoot.core.spaces import ActionSpec
from surefoot.world.ensemble import Ensemble
from surefoot.world.imagination import LearnedWorld
from surefoot.world.model import TaskModel
from surefoot.world.planner import PlannerConfig


@dataclass(frozen=True)
class Problem:
    """What an algorithm must know of the environments it is trained on."""

    seeds: tuple[int, ...]
    environments: int
    """Environments of each seed."""
    episode_steps: int
    """Steps of an episode that does not terminate."""
    observation_size: int
    actions: ActionSpec
    cost_names: tuple[str, ...]
    model: TaskModel | None = None
    """Known and learned parts of the environment, for algorithms that learn a model."""

    @property
    def task_model(self) -> TaskModel:
        """The model of an algorithm that needs one."""
        assert self.model is not None
        return self.model

    def world(self, ensemble: Ensemble) -> LearnedWorld:
        """The task to imagine, with one seed's ensemble."""
        return LearnedWorld(self.task_model, self.actions, ensemble)

    @property
    def constraints(self) -> int:
        return len(self.cost_names)


Act = Callable[[Tree, Float[Array, "B O"], RandomKey], Float[Array, "B ..."]]
"""A function of a learner, observations and a key."""


class Planning(NamedTuple):
    """What a planner needs of a trainer: a model, a policy that proposes, a terminal value."""

    ensemble: Ensemble
    """Of all seeds."""
    learner: Tree
    """Of all seeds; the first argument of the functions below, one seed at a time."""
    act: Act
    """Actions drawn from a learner's policy."""
    mode: Act
    """The most probable actions."""
    value: Act
    """Expected return from here on."""
    config: PlannerConfig | None = None
    """The algorithm's own planner; None if it does not plan."""
    horizon: int = 1
    """Steps of the algorithm's imagined rollouts."""


class Trainer(Protocol):
    """An algorithm at work on all seeds. Structural: there is no base class."""

    rounds: int
    """Rounds of acting and learning per epoch."""
    round_steps: int
    """Steps of each environment per round."""
    remedy: str
    """What to try if numbers become NaN."""
    datasets: dict[str, Dataset]
    """Datasets of real steps, by their names in a snapshot."""

    def actor(self, done: int, rngs: Generators) -> Actor:
        """What acts in the next round, after `done` real steps; `rngs` has a generator per seed."""
        ...

    def learn(self, experience: Experience, done: int, phases: Phases) -> None:
        """Learn from a round; `done` real steps were taken, this round included."""
        ...

    def end_epoch(self) -> Mapping[str, Array | np.ndarray]:
        """Metrics of the epoch: [S], or [S, k] for one value per constraint."""
        ...

    def finite_parts(self) -> dict[str, Tree]:
        """By name, what must be finite: trees with a leading axis of seeds."""
        ...

    def policy(self) -> Policy:
        """The present policies of all seeds."""
        ...

    def planning(self) -> Planning | None:
        """What a planner needs; None without a learned model."""
        ...

    def snapshot(self) -> dict[str, Tree]:
        """Everything needed to resume, as a tree of arrays."""
        ...

    def restore(self, saved: Saved, steps: int, data: bool = True) -> None:
        """Restore a snapshot taken after `steps` real steps, datasets only if `data`."""
        ...
