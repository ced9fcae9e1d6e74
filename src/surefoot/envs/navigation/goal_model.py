"""Models of the Goal task for imagination: the known parts as pure JAX functions of one state.

- `EgoGoalModel`: the network predicts only the robot's motion in its own frame. Hazards and goal
  are transformed exactly.
- `PaperGoalModel`: the network predicts the paper's 42-number state, which holds ego hazards and
  goal. Reward and cost come from the predicted position and the known layout.

`surefoot.world.model.TaskModel` documents the methods. Batch them with vmap.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from surefoot.envs import geometry
from surefoot.envs.navigation import goal_rules
from surefoot.envs.navigation.goal_course import (
    Columns,
    Course,
    EgoState,
    GoalModel,
    PaperState,
    arrive,
)
from surefoot.envs.navigation.goal_rules import GoalConfig, GoalState, Observation
from surefoot.envs.navigation.robots import load_model
from surefoot.envs.navigation.sampler import Layouts

SHOWN_DISTANCE = 1.5
"""Metres to a goal that the policy is shown elsewhere: a usual distance of real ones."""
Bounds = tuple[Float[Array, " F"], Float[Array, " F"]]


@dataclass(frozen=True)
class EgoGoalModel(GoalModel[EgoState]):
    """Only the robot's motion is learned: change of body, ego displacement, change of yaw."""

    features_hold_goal = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        return self.robot.body_names

    @property
    def output_names(self) -> tuple[str, ...]:
        return (*self.feature_names, "forward", "left", "turn")

    def _robot_columns(self) -> dict[str, int]:
        return {"position": 2, "heading": 1, "body": self.robot.proprioception}

    def _robot_record(self, state: GoalState) -> list[np.ndarray]:
        return [state.position[:, :2], state.heading[:, None], state.body]

    def _robot_start(self, layouts: Layouts) -> list[Float[Array, "N _"]]:
        model = load_model(self.robot.name)
        at_rest = self.robot.read(model.qpos0[None].copy(), np.zeros((1, model.nv))).body[0]
        body = jnp.tile(jnp.asarray(at_rest.astype(np.float32)), (len(layouts.heading), 1))
        return [layouts.robot, layouts.heading[:, None], body]

    def _state(self, record: Float[Array, " R"], course: Course) -> EgoState:
        at = self._columns
        return EgoState(
            record[at["position"]], record[at["heading"]][0], record[at["body"]], course
        )

    def features(self, state: EgoState) -> Float[Array, " F"]:
        return state.body

    def record_features(self, record: Float[Array, " R"]) -> Float[Array, " F"]:
        return record[self._columns["body"]]

    def target(
        self, before: Float[Array, " R"], after: Float[Array, " R"], *signals: Array
    ) -> Float[Array, " D"]:
        """What the network should predict for a real step."""
        heading, position = self._columns["heading"], self._columns["position"]
        (yaw,) = before[heading]
        turn = after[heading] - yaw
        turn = jnp.arctan2(jnp.sin(turn), jnp.cos(turn))
        move = geometry.to_ego(
            jnp, after[None, position], before[position], jnp.cos(yaw), jnp.sin(yaw)
        )[0]
        change = self.record_features(after) - self.record_features(before)
        return jnp.concatenate([change, move, turn])

    def advance(
        self, state: EgoState, action: Array, prediction: Array, binary: Array, bounds: Bounds
    ) -> tuple[EgoState, Array, Array, Array]:
        """Next state, reward, costs [1] and termination, given the network's prediction."""
        size = self.feature_size
        body = jnp.clip(state.body + prediction[:size], *bounds)
        cos, sin = jnp.cos(state.heading), jnp.sin(state.heading)
        dx, dy, turn = prediction[size], prediction[size + 1], prediction[size + 2]
        move = jnp.stack(geometry.to_world(dx, dy, cos, sin))
        position = state.position + move
        course, reward, cost, _ = arrive(self.config, state.course, position)
        state = EgoState(position, state.heading + turn, body, course)
        return state, reward, cost[None], jnp.zeros((), bool)

    def observe(self, state: EgoState) -> Float[Array, " O"]:
        """What the policy observes."""
        return goal_rules.ego_observation(
            jnp, self.config, state.position, state.heading, state.body,
            state.course.goal, state.course.hazards,
        )  # fmt: skip

    def observe_toward(self, state: EgoState, angle: Float[Array, ""]) -> Float[Array, " O"]:
        """What the policy would observe if the goal lay at this angle of the world."""
        ahead = SHOWN_DISTANCE * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        course = state.course._replace(goal=state.position + ahead)
        return self.observe(state._replace(course=course))


@dataclass(frozen=True)
class PaperGoalModel(GoalModel[PaperState]):
    """The paper's state: sensors, ego goal, ego hazards, (cos, -sin), world position."""

    features_hold_goal = True

    @property
    def feature_names(self) -> tuple[str, ...]:
        axes = {"velocity": ("x", "y"), "yaw_rate": ("",), "magnetometer": ("x", "y", "z")}
        sensors = [
            f"{name.replace('_', ' ')} {axis}".strip()
            for name in self.robot.paper_sensors
            for axis in axes[name]
        ]
        objects = ["goal", *(f"hazard {i}" for i in range(self.config.hazards))]
        ego = [f"{name} {axis}" for name in objects for axis in "xy"]
        return (*sensors, *ego, "cos heading", "-sin heading", "position x", "position y")

    @cached_property
    def _vector(self) -> Columns:
        """The layout of the model state."""
        return Columns(sensors=6, goal=2, hazards=2 * self.config.hazards, heading=2, position=2)

    def _robot_columns(self) -> dict[str, int]:
        return {"vector": self._vector.size}

    def _robot_record(self, state: GoalState) -> list[np.ndarray]:
        return [goal_rules.paper_state(self.robot, state)]

    def _robot_start(self, layouts: Layouts) -> list[Float[Array, "N _"]]:
        """Robots at rest and upright: all their sensors follow from the heading."""
        n = layouts.heading.shape[0]
        cos, sin = jnp.cos(layouts.heading), jnp.sin(layouts.heading)
        zero = jnp.zeros((n, 1))
        field = jnp.concatenate([-0.5 * sin[:, None], -0.5 * cos[:, None], zero], 1)
        sensors = goal_rules.paper_sensors(jnp, self.robot, jnp.zeros((n, 2)), zero, field)
        points = jnp.concatenate([layouts.goal[:, None], layouts.hazards], 1)
        ego = geometry.to_ego(jnp, points, layouts.robot, cos, sin).reshape(n, -1)
        return [sensors, ego, jnp.stack([cos, -sin], 1), layouts.robot]

    def _state(self, record: Float[Array, " R"], course: Course) -> PaperState:
        return PaperState(self.record_features(record), course)

    def features(self, state: PaperState) -> Float[Array, " F"]:
        return state.vector

    def record_features(self, record: Float[Array, " R"]) -> Float[Array, " F"]:
        return record[self._columns["vector"]]

    def target(
        self, before: Float[Array, " R"], after: Float[Array, " R"], *signals: Array
    ) -> Float[Array, " D"]:
        """What the network should predict for a real step: the change of all numbers."""
        return self.record_features(after) - self.record_features(before)

    def _pose(
        self, vector: Float[Array, " S"]
    ) -> tuple[Float[Array, " 2"], Float[Array, ""], Float[Array, ""]]:
        """Position, cos and sin of the heading."""
        cos, minus_sin = vector[self._vector["heading"]]
        return vector[self._vector["position"]], cos, -minus_sin

    def advance(
        self, state: PaperState, action: Array, prediction: Array, binary: Array, bounds: Bounds
    ) -> tuple[PaperState, Array, Array, Array]:
        """Next state, reward, costs [1] and termination, given the network's prediction."""
        vector = jnp.clip(state.vector + prediction, *bounds)
        position, cos, sin = self._pose(vector)
        course, reward, cost, met = arrive(self.config, state.course, position)
        new_goal = geometry.to_ego(jnp, course.goal[None], position, cos, sin)[0]
        goal = self._vector["goal"]
        vector = vector.at[goal].set(jnp.where(met, new_goal, vector[goal]))
        return PaperState(vector, course), reward, cost[None], jnp.zeros((), bool)

    def observe(self, state: PaperState) -> Float[Array, " O"]:
        """What the policy observes."""
        seen = state.vector[: self._vector["goal"].stop]
        hazards = state.course.hazards
        return goal_rules.paper_observation(
            jnp, self.config, seen, *self._pose(state.vector), hazards
        )


def goal_model(config: GoalConfig, model: Observation) -> EgoGoalModel | PaperGoalModel:
    """The model of a Goal task called `ego` or `paper`."""
    kind = EgoGoalModel if model == "ego" else PaperGoalModel
    return kind(replace(config, observation=model))
