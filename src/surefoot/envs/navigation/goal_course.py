"""What both models of the Goal task share: the layout, its future goals, and flat records."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from surefoot.envs import geometry
from surefoot.envs.navigation import goal_rules
from surefoot.envs.navigation.goal_rules import GoalConfig, GoalState
from surefoot.envs.navigation.robots import ROBOTS, Robot
from surefoot.envs.navigation.sampler import Layouts, sample_layouts, sample_spare_goals

KNOWN = ("initial states", "observation", "reward", "cost", "termination", "goal re-draws")
# Spare goals considered when one is reached; one in eight is too near the robot.
CANDIDATES = 4
# No robot meets goals faster than this, which bounds the goals of a horizon.
STEPS_PER_GOAL = 5


class Course(NamedTuple):
    """The layout of one imagined episode and its future goals."""

    goal: Float[Array, " 2"]
    hazards: Float[Array, "H 2"]
    distance: Float[Array, ""]
    spare: Float[Array, "M 2"]
    used: Int[Array, ""]


class EgoState(NamedTuple):
    """One imagined state of the ego-frame model."""

    position: Float[Array, " 2"]
    heading: Float[Array, ""]
    body: Float[Array, " P"]
    course: Course


class PaperState(NamedTuple):
    """One imagined state of the paper's model."""

    vector: Float[Array, " S"]
    course: Course


S = TypeVar("S", EgoState, PaperState)


class Columns:
    """Named columns of flat records."""

    def __init__(self, **sizes: int):
        edges = list(accumulate(sizes.values(), initial=0))
        self.size = edges[-1]
        self._slices = {
            name: slice(*pair) for name, pair in zip(sizes, pairwise(edges), strict=True)
        }

    def __getitem__(self, name: str) -> slice:
        return self._slices[name]


def arrive(
    config: GoalConfig, course: Course, position: Float[Array, " 2"]
) -> tuple[Course, Float[Array, ""], Float[Array, ""], Bool[Array, ""]]:
    """The course after a step to `position`, reward, cost, and whether the goal was met."""
    distance, met, reward, cost = goal_rules.arrive(
        jnp, config, course.distance, position, course.goal, course.hazards
    )
    index = (course.used + jnp.arange(CANDIDATES)) % course.spare.shape[0]
    spots = course.spare[index]
    away = geometry.distance(jnp, spots, position)
    clear = away >= config.goal_keepout + config.robot_keepout
    # The first clear spot; if none is clear (rare), the farthest.
    pick = jnp.where(clear.any(), jnp.argmax(clear), jnp.argmax(away))
    goal = jnp.where(met, spots[pick], course.goal)
    distance = jnp.where(met, away[pick], distance)
    used = jnp.where(met, course.used + pick + 1, course.used)
    return Course(goal, course.hazards, distance, course.spare, used), reward, cost, met


@dataclass(frozen=True)
class GoalModel(Generic[S]):
    """The known parts that do not depend on how the robot is modelled."""

    config: GoalConfig
    """The task; its observation must be the one of this model."""
    spare: int = 16
    """Goals drawn in advance for each imagined episode."""

    known = KNOWN
    takes_observations = False
    cost_names = ("hazards",)
    binary_size = 0
    features_hold_goal: ClassVar[bool]
    """Whether the features change abruptly when the goal is met."""

    @property
    def robot(self) -> Robot:
        return ROBOTS[self.config.robot]

    @property
    def observation_size(self) -> int:
        return goal_rules.observation_size(self.config)

    @property
    def record_size(self) -> int:
        return self._columns.size

    @property
    def feature_names(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.feature_names

    @property
    def feature_size(self) -> int:
        return len(self.feature_names)

    @property
    def target_size(self) -> int:
        return len(self.output_names)

    @cached_property
    def _columns(self) -> Columns:
        """The layout of a record: the robot's part, then the course."""
        return Columns(**self._robot_columns(), goal=2, hazards=2 * self.config.hazards, distance=1)

    def _robot_columns(self) -> dict[str, int]:
        raise NotImplementedError

    def _robot_record(self, state: GoalState) -> list[np.ndarray]:
        """The robot's part of records."""
        raise NotImplementedError

    def _robot_start(self, layouts: Layouts) -> list[Float[Array, "N _"]]:
        """The robot's part of initial records."""
        raise NotImplementedError

    def _state(self, record: Float[Array, " R"], course: Course) -> S:
        """The imagined state that starts from a record."""
        raise NotImplementedError

    def for_horizon(self, horizon: int) -> Self:
        """The same model with enough spare goals for imagined episodes of `horizon` steps."""
        return replace(self, spare=max(self.spare, horizon // STEPS_PER_GOAL))

    def initial_records(self, key: Key[Array, ""], n: int) -> Float[Array, "N R"]:
        """n initial states, exactly as resets draw them."""
        layouts = sample_layouts(self.config, key, n)
        distance = geometry.distance(jnp, layouts.robot, layouts.goal)
        course = [layouts.goal, layouts.hazards.reshape(n, -1), distance[:, None]]
        return jnp.concatenate([*self._robot_start(layouts), *course], 1)

    def record(self, state: GoalState) -> np.ndarray:
        """Real states as records [N, R]."""
        course = [state.goal, state.hazards.reshape(len(state.goal), -1), state.distance[:, None]]
        return np.concatenate([*self._robot_record(state), *course], 1).astype(np.float32)

    def restore(self, key: Key[Array, ""], records: Float[Array, "N R"]) -> S:
        """Imagined states that start from records."""
        at = self._columns
        hazards = records[:, at["hazards"]].reshape(len(records), -1, 2)
        spare = sample_spare_goals(self.config, key, hazards, self.spare)

        def build(record: Array, hazards: Array, spare: Array) -> S:
            distance, none = record[at["distance"]][0], jnp.zeros((), jnp.int32)
            return self._state(record, Course(record[at["goal"]], hazards, distance, spare, none))

        return jax.vmap(build)(records, hazards, spare)

    def follow_real(
        self,
        states: S,
        records: Float[np.ndarray, "T n R"],
        ended: Bool[np.ndarray, "T n"],
        start: Int[np.ndarray, " B"],
        place: Int[np.ndarray, " B"],
        within: Bool[np.ndarray, "H B"],
    ) -> tuple[S, Bool[np.ndarray, "H B"]]:
        """Imagined states with the goals that were really drawn, and where features compare.

        Imagined episode b starts from record (start[b], place[b]); `within` marks its real steps.
        Where an episode has no more goals, the spare ones of `states` follow. Features that hold
        the goal compare until it is met, in reality (here) or in imagination (see `events`).
        """
        goals = records[..., self._columns["goal"]]
        spare = np.array(states.course.spare)
        for b, (first, i) in enumerate(zip(start, place, strict=True)):
            ends = np.flatnonzero(ended[first:, i])
            episode = goals[first : first + ends[0] + 1 if len(ends) else None, i]
            later = episode[1:][(episode[1:] != episode[:-1]).any(1)][: spare.shape[1]]
            spare[b, : len(later)] = later
        states = states._replace(course=states.course._replace(spare=jnp.asarray(spare)))
        if not self.features_hold_goal:
            return states, within
        steps = np.minimum(start + np.arange(len(within))[:, None], start + within.sum(0) - 1)
        return states, within & (goals[steps, place] == goals[start, place]).all(-1)

    def events(self, state: S) -> Int[Array, ""]:
        """Increases when features change abruptly: when they hold the goal and it is met."""
        return state.course.used if self.features_hold_goal else jnp.zeros((), jnp.int32)
