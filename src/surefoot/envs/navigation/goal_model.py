"""What is known of the Goal task, as pure JAX functions of one state (batch them with vmap).

Two models of the robot share this knowledge (`world.knowledge` says what each function is for):

- `EgoGoalModel`: the network predicts only the robot's own motion in its own frame; hazards and
  goal are transformed exactly.
- `PaperGoalModel`: the network predicts the paper's 42-number state, ego hazards and goal included;
  reward and cost come from the predicted position and the known layout.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from surefoot.envs import geometry
from surefoot.envs.navigation import robots
from surefoot.envs.navigation.goal import GoalConfig, GoalState, observation_size, paper_state
from surefoot.envs.navigation.sampler import sample_layouts, sample_spare_goals

KNOWN = ("initial states", "observation", "reward", "cost", "termination", "goal re-draws")
# How many spare goals are looked at when one is reached; one in eight is too near the robot.
LOOKED_AT = 4


class Course(NamedTuple):
    """The layout of one imagined episode and the goals to come in it."""

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


def arrive(
    config: GoalConfig, course: Course, position: Float[Array, " 2"]
) -> tuple[Course, Float[Array, ""], Float[Array, ""], Array]:
    """Reward, cost and the course after a step to `position`; also whether the goal was met."""
    distance = geometry.distance(jnp, position, course.goal)
    met = distance <= config.goal_size
    reward = jnp.clip(course.distance - distance + config.goal_reward * met, -10.0, 10.0)
    cost = geometry.hazard_cost(jnp, position, course.hazards, config.hazard_size)
    index = (course.used + jnp.arange(LOOKED_AT)) % course.spare.shape[0]
    spots = course.spare[index]
    away = geometry.distance(jnp, spots, position)
    clear = away >= config.goal_keepout + config.robot_keepout
    # The first clear spot; where none of the few is clear (rare), the farthest.
    pick = jnp.where(clear.any(), jnp.argmax(clear), jnp.argmax(away))
    goal = jnp.where(met, spots[pick], course.goal)
    distance = jnp.where(met, away[pick], distance)
    used = jnp.where(met, course.used + pick + 1, course.used)
    return Course(goal, course.hazards, distance, course.spare, used), reward, cost, met


@dataclass(frozen=True)
class _GoalModel:
    config: GoalConfig
    """The task; its observation must be the one of this model."""
    spare: int = 16
    """Goals drawn ahead for each imagined episode."""

    known = KNOWN
    takes_observations = False
    cost_names = ("hazards",)
    binary_size = 0

    @property
    def robot(self) -> robots.Robot:
        return robots.ROBOTS[self.config.robot]

    @property
    def observation_size(self) -> int:
        return observation_size(self.config)

    def _course(self, record: Float[Array, " R"], spare: Float[Array, "M 2"]) -> Course:
        goal, hazards = record[-3 - 2 * self.config.hazards : -1], record[-1:]
        points = goal.reshape(-1, 2)
        return Course(points[0], points[1:], hazards[0], spare, jnp.zeros((), jnp.int32))

    def _spare(self, key: Key[Array, ""], records: Float[Array, "N R"]) -> Float[Array, "N M 2"]:
        hazards = records[:, -1 - 2 * self.config.hazards : -1].reshape(len(records), -1, 2)
        return sample_spare_goals(self.config, key, hazards, self.spare)

    def initial_records(self, key: Key[Array, ""], n: int) -> Float[Array, "N R"]:
        """n initial states, exactly as resets draw them."""
        layouts = sample_layouts(self.config, key, n)
        distance = geometry.distance(jnp, layouts.robot, layouts.goal)
        course = [layouts.goal, layouts.hazards.reshape(n, -1), distance[:, None]]
        return jnp.concatenate([*self._start(layouts), *course], 1)

    def _start(self, layouts) -> list[Array]:
        raise NotImplementedError


@dataclass(frozen=True)
class EgoGoalModel(_GoalModel):
    """Only the robot's own motion is learned: change of body, ego displacement, change of yaw."""

    name = "ego"

    @property
    def feature_size(self) -> int:
        return self.robot.proprioception

    @property
    def target_size(self) -> int:
        return self.robot.proprioception + 3

    @property
    def record_size(self) -> int:
        return 3 + self.robot.proprioception + 2 + 2 * self.config.hazards + 1

    def record(self, state: GoalState) -> np.ndarray:
        """Real states [N, R] as they are kept in memory."""
        n = len(state.heading)
        parts = [
            state.position[:, :2], state.heading[:, None], state.body, state.goal,
            state.hazards.reshape(n, -1), state.distance[:, None],
        ]  # fmt: skip
        return np.concatenate(parts, 1).astype(np.float32)

    def _start(self, layouts) -> list[Array]:
        n = layouts.heading.shape[0]
        body = jnp.tile(jnp.asarray(resting_body(self.config.robot)), (n, 1))
        return [layouts.robot, layouts.heading[:, None], body]

    def restore(self, key: Key[Array, ""], records: Float[Array, "N R"]) -> EgoState:
        """Imagined states that start from records."""
        body = slice(3, 3 + self.robot.proprioception)
        build = lambda r, s: EgoState(r[:2], r[2], r[body], self._course(r, s))
        return jax.vmap(build)(records, self._spare(key, records))

    def features(self, state: EgoState) -> Float[Array, " F"]:
        return state.body

    def record_features(self, record: Float[Array, " R"]) -> Float[Array, " F"]:
        return record[3 : 3 + self.robot.proprioception]

    def target(
        self, before: Float[Array, " R"], after: Float[Array, " R"], reward, cost, terminated
    ) -> Float[Array, " D"]:
        """What the network should say of a real step."""
        turn = after[2] - before[2]
        turn = jnp.arctan2(jnp.sin(turn), jnp.cos(turn))
        cos, sin = jnp.cos(before[2]), jnp.sin(before[2])
        move = geometry.to_ego(jnp, after[None, :2], before[:2], cos, sin)[0]
        change = self.record_features(after) - self.record_features(before)
        return jnp.concatenate([change, move, turn[None]])

    def advance(
        self, state: EgoState, action, prediction: Float[Array, " D"], binary, bounds
    ) -> tuple[EgoState, Array, Array, Array]:
        """The next state, reward, costs [1] and termination, given what the network said."""
        size = self.robot.proprioception
        body = jnp.clip(state.body + prediction[:size], *bounds)
        cos, sin = jnp.cos(state.heading), jnp.sin(state.heading)
        dx, dy = prediction[size], prediction[size + 1]
        position = state.position + jnp.stack([cos * dx - sin * dy, sin * dx + cos * dy])
        course, reward, cost, _ = arrive(self.config, state.course, position)
        state = EgoState(position, state.heading + prediction[size + 2], body, course)
        return state, reward, cost[None], jnp.zeros((), bool)

    def observe(self, state: EgoState) -> Float[Array, " O"]:
        cos, sin = jnp.cos(state.heading), jnp.sin(state.heading)
        points = jnp.concatenate([state.course.goal[None], state.course.hazards])
        ego = geometry.to_ego(jnp, points, state.position, cos, sin)
        parts = [state.body, ego[0]]
        if self.config.hazards:
            parts.append(geometry.compiled_lidar(ego[1:], self.config.lidar_range))
        return jnp.concatenate(parts)


@dataclass(frozen=True)
class PaperGoalModel(_GoalModel):
    """The paper's state: sensors, ego goal, ego hazards, (cos, -sin), world position."""

    name = "paper"

    @property
    def feature_size(self) -> int:
        return 8 + 2 * self.config.hazards + 4

    @property
    def target_size(self) -> int:
        return self.feature_size

    @property
    def record_size(self) -> int:
        return self.feature_size + 2 + 2 * self.config.hazards + 1

    def record(self, state: GoalState) -> np.ndarray:
        """Real states [N, R] as they are kept in memory."""
        parts = [
            paper_state(self.robot, state), state.goal,
            state.hazards.reshape(len(state.goal), -1), state.distance[:, None],
        ]  # fmt: skip
        return np.concatenate(parts, 1).astype(np.float32)

    def _start(self, layouts) -> list[Array]:
        """Robots at rest and upright: all their sensors follow from the heading."""
        n = layouts.heading.shape[0]
        cos, sin = jnp.cos(layouts.heading), jnp.sin(layouts.heading)
        zero = jnp.zeros((n, 1))
        sensors = {
            "velocity": jnp.zeros((n, 2)),
            "yaw_rate": zero,
            "magnetometer": jnp.concatenate([-0.5 * sin[:, None], -0.5 * cos[:, None], zero], 1),
        }
        points = jnp.concatenate([layouts.goal[:, None], layouts.hazards], 1)
        ego = geometry.to_ego(jnp, points, layouts.robot, cos, sin).reshape(n, -1)
        parts = [sensors[name] for name in self.robot.paper_sensors]
        return [*parts, ego, jnp.stack([cos, -sin], 1), layouts.robot]

    def restore(self, key: Key[Array, ""], records: Float[Array, "N R"]) -> PaperState:
        """Imagined states that start from records."""
        build = lambda r, s: PaperState(r[: self.feature_size], self._course(r, s))
        return jax.vmap(build)(records, self._spare(key, records))

    def features(self, state: PaperState) -> Float[Array, " F"]:
        return state.vector

    def record_features(self, record: Float[Array, " R"]) -> Float[Array, " F"]:
        return record[: self.feature_size]

    def target(
        self, before: Float[Array, " R"], after: Float[Array, " R"], reward, cost, terminated
    ) -> Float[Array, " D"]:
        """What the network should say of a real step: the change of all numbers."""
        return self.record_features(after) - self.record_features(before)

    def advance(
        self, state: PaperState, action, prediction: Float[Array, " D"], binary, bounds
    ) -> tuple[PaperState, Array, Array, Array]:
        """The next state, reward, costs [1] and termination, given what the network said."""
        vector = jnp.clip(state.vector + prediction, *bounds)
        course, reward, cost, met = arrive(self.config, state.course, vector[-2:])
        fresh = geometry.to_ego(jnp, course.goal[None], vector[-2:], vector[-4], -vector[-3])[0]
        vector = vector.at[6:8].set(jnp.where(met, fresh, vector[6:8]))
        return PaperState(vector, course), reward, cost[None], jnp.zeros((), bool)

    def observe(self, state: PaperState) -> Float[Array, " O"]:
        v = state.vector
        parts = [v[:8]]
        if self.config.hazards:
            ego = geometry.to_ego(jnp, state.course.hazards, v[-2:], v[-4], -v[-3])
            parts.append(geometry.compiled_lidar(ego, self.config.lidar_range))
        return jnp.concatenate([*parts, v[-2:]])


def resting_body(robot: str) -> np.ndarray:
    """Proprioception [P] at the start of an episode, the same for all layouts."""
    model = robots.load_model(robot)
    qpos = model.qpos0[None].copy()
    return robots.read_body(robots.ROBOTS[robot], qpos, np.zeros((1, model.nv)))[3][0].astype("f4")


def goal_model(config: GoalConfig, model: str) -> EgoGoalModel | PaperGoalModel:
    """The knowledge of a Goal task for the model named `ego` or `paper`."""
    kinds = {"ego": EgoGoalModel, "paper": PaperGoalModel}
    if model not in kinds:
        raise ValueError(f"model={model!r} is not one of ego, paper")
    return kinds[model](replace(config, observation=model))
