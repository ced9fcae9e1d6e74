"""The Goal task: drive to the goal, again and again, and keep out of the hazards.

Only the robot is simulated. Hazards and goal never touch it, so layouts, lidar, reward and cost are
array code over all environments at once.
"""

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Literal, NamedTuple

import numpy as np

# Compiled names, which pyright cannot look into.
from mujoco import mjtStage, mjtWarning  # pyright: ignore[reportAttributeAccessIssue]
from mujoco.batch import Batch, SimulationError

from surefoot.core.config import check_types
from surefoot.envs import geometry
from surefoot.envs.base import EXCEPTION_REWARD, TaskEnv
from surefoot.envs.navigation import layout, robots, sensors
from surefoot.envs.render.draw import Scene

Observation = Literal["reference", "paper", "ego"]
OBSERVATIONS = ("reference", "paper", "ego")
MOST_HAZARDS = 10_000
# MuJoCo restarts a simulation by itself, with one of these warnings, when its numbers blow up.
BLOW_UPS = [
    mjtWarning.mjWARN_BADQPOS.value,
    mjtWarning.mjWARN_BADQVEL.value,
    mjtWarning.mjWARN_BADQACC.value,
    mjtWarning.mjWARN_BADCTRL.value,
]


@dataclass(frozen=True)
class GoalConfig:
    """Every number of the Goal task. The defaults are the paper's task."""

    robot: str = "point"
    """Which robot: point, car, doggo (safety-gymnasium's) or doggo-openai."""
    hazards: int = 15
    """Number of hazards."""
    extent: float = 2.0
    """Objects are placed within ±extent metres; the robot may leave."""
    max_episode_steps: int = 750
    """Steps after which an episode is truncated."""
    frame_skip: int = 10
    """Physics steps per environment step."""
    action_repeat: int = 1
    """Environment steps per action; rewards and costs add up."""
    hazard_size: float = 0.2
    """A hazard costs 1 per step while its centre is at most this near."""
    goal_size: float = 0.3
    """The goal is reached at this distance."""
    goal_reward: float = 1.0
    """Reward for reaching the goal, on top of the progress towards it."""
    robot_keepout: float = 0.4
    """Placement radius of the robot."""
    goal_keepout: float = 0.305
    """Placement radius of the goal."""
    hazard_keepout: float = 0.18
    """Placement radius of a hazard."""
    lidar_range: float = 3.0
    """Distance at which the lidar sees nothing."""
    observation: Observation = "reference"
    """reference: sensors and lidars; paper: the reduced input; ego: body, goal and lidar."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.robot not in robots.ROBOTS:
            raise ValueError(f"robot={self.robot!r} is not one of {', '.join(robots.ROBOTS)}")
        if self.observation not in OBSERVATIONS:
            raise ValueError(
                f"observation={self.observation!r} is not one of {', '.join(OBSERVATIONS)}"
            )
        for name, least in (
            ("hazards", 0), ("max_episode_steps", 1), ("frame_skip", 1), ("action_repeat", 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name}={value!r} must be a whole number of at least {least}")
        if self.hazards > MOST_HAZARDS:
            raise ValueError(f"hazards={self.hazards} must be at most {MOST_HAZARDS}")
        for f in fields(self):
            value = getattr(self, f.name)
            if f.type in ("float", float) and not value > 0:
                raise ValueError(f"{f.name}={value!r} must be a positive number")
        if self.max_episode_steps % self.action_repeat:
            raise ValueError(
                f"max_episode_steps={self.max_episode_steps} must be a multiple of "
                f"action_repeat={self.action_repeat}"
            )
        layout.check_room(self.extent, self.keepouts)

    @property
    def keepouts(self) -> tuple[float, ...]:
        """Placement radii in the order of placement: robot, goal, hazards."""
        return (self.robot_keepout, self.goal_keepout) + (self.hazard_keepout,) * self.hazards


def at_level(config: GoalConfig, level: int) -> GoalConfig:
    """The stock hazards-only levels: 0 (no hazards), 1 (8) and 2 (10), all 1,000 steps."""
    stock = {0: (0, 1.0), 1: (8, 1.5), 2: (10, 2.0)}
    if level not in stock:
        raise ValueError(f"level={level!r} must be 0, 1 or 2")
    hazards, extent = stock[level]
    return replace(config, hazards=hazards, extent=extent, max_episode_steps=1000)


class GoalState(NamedTuple):
    """Where everything is: all that reward, cost and observations depend on."""

    position: np.ndarray
    """Robot, [N, 3]."""
    heading: np.ndarray
    """Robot's yaw, [N]."""
    rotation: np.ndarray
    """First two rows of the robot's rotation matrix, [N, 2, 3]."""
    body: np.ndarray
    """Proprioception, [N, P]."""
    goal: np.ndarray
    """[N, 2]."""
    hazards: np.ndarray
    """[N, H, 2]."""
    distance: np.ndarray
    """From the robot to the goal, [N]."""


class GoalEnv(TaskEnv):
    """The Goal task for N robots on `threads` threads (0: one per core)."""

    cost_names = ("hazards",)
    observations = OBSERVATIONS

    def __init__(
        self,
        config: GoalConfig,
        num_envs: int = 1,
        seed: int | None = None,
        threads: int = 0,
        render_mode: str | None = None,
    ):
        self.config = config
        self.robot = robots.ROBOTS[config.robot]
        self.model = robots.load_model(config.robot)
        low, high = self.model.actuator_ctrlrange.T
        super().__init__(
            num_envs,
            observation_size(config),
            low,
            high,
            config.max_episode_steps,
            config.action_repeat,
            seed,
            render_mode,
        )
        self._batch = Batch(self.model, num_envs, min(threads, num_envs))
        self._qpos, self._qvel = self._batch.bind("qpos"), self._batch.bind("qvel")
        self._ctrl = self._batch.bind("ctrl")
        self._stage = mjtStage.mjSTAGE_NONE.value
        if config.observation == "reference" and self.robot.free_base:
            # Sensors belong to the new state, which costs one more forward pass.
            self._stage = mjtStage.mjSTAGE_ACC.value
            self._sensordata = self._batch.bind("sensordata")
            self._groups = sensors.columns(self.robot)
        self.goal = np.zeros((num_envs, 2))
        self.hazards = np.zeros((num_envs, config.hazards, 2))

    def _begin(self, ids: np.ndarray) -> None:
        c = self.config
        # Snapshots share these arrays, so new episodes go into fresh ones.
        self.goal, self.hazards = self.goal.copy(), self.hazards.copy()
        self._batch.reset(ids, stage=mjtStage.mjSTAGE_NONE.value)
        for i in ids:
            draw = self.streams.drawer(i)
            points = layout.sample_layout(draw, c.extent, c.keepouts)
            yaw = draw(0.0, 2 * np.pi)
            for _ in range(1 + c.hazards):  # yaws of goal and hazards, which change nothing
                draw(0.0, 2 * np.pi)
            self.hazards[i] = np.reshape(points[2:], (-1, 2))
            self._place(i, points[0], yaw)
            goal = self._draw_goal(i, points[0])
            if goal is None:
                raise layout.ImpossibleLayout(
                    f"no goal fits between {c.hazards} hazards within extent={c.extent}; "
                    f"use fewer hazards or a larger extent"
                )
            self.goal[i] = goal
        if self._stage:
            self._batch.forward(ids, self._stage)
        self._read()
        self.distance = geometry.distance(np, self.place, self.goal)

    def _place(self, i: int, xy: layout.Point, yaw: float) -> None:
        self._qpos[i, :2] = xy
        if self.robot.free_base:
            self._qpos[i, 3:7] = np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)
        else:
            self._qpos[i, 2] = yaw

    def _draw_goal(self, i: int, robot_xy: layout.Point) -> layout.Point | None:
        c = self.config
        taken = [(*robot_xy, c.robot_keepout)]
        taken += [(x, y, c.hazard_keepout) for x, y in self.hazards[i].tolist()]
        return layout.sample_goal(self.streams.drawer(i), c.extent, c.goal_keepout, taken)

    def _read(self) -> None:
        """Pose and body of all robots, in arrays of their own."""
        self.position, self.heading, self.rotation, self.body = robots.read_body(
            self.robot, self._qpos, self._qvel
        )
        self.place = self.position[:, :2]

    def _advance(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        c = self.config
        self._ctrl[:] = actions
        failed = self._simulate()
        self.streams.skip_one()  # the reference draws its frame skip here, always the same one
        self._read()
        distance = geometry.distance(np, self.place, self.goal)
        met = distance <= c.goal_size
        reward = self.distance - distance + c.goal_reward * met
        reward = np.minimum(np.maximum(reward, -10.0), 10.0)
        cost = geometry.hazard_cost(np, self.place, self.hazards, c.hazard_size)
        self.distance = distance
        self._after_physics = self.state()
        terminated = np.zeros(self.num_envs, dtype=bool)
        if met.any():
            terminated = self._renew_goals(np.flatnonzero(met & ~failed))
        if failed.any():
            reward[failed], cost[failed] = EXCEPTION_REWARD, 1.0
        return reward, cost[:, None], terminated, failed

    def _simulate(self) -> np.ndarray:
        """The physics of one step; which simulations broke down, [N]."""
        failed = np.zeros(self.num_envs, dtype=bool)
        warnings = self._batch.warning[..., 1]  # (last info, count)
        before = warnings.sum()
        counts = warnings[:, BLOW_UPS].sum(1) if before else 0
        try:
            self._batch.step(nstep=self.config.frame_skip, stage=self._stage)
        except SimulationError as error:
            failed[error.ids] = True
        if warnings.sum() != before:
            failed |= warnings[:, BLOW_UPS].sum(1) != counts
        self.failures += int(failed.sum())
        return failed

    def _renew_goals(self, ids: np.ndarray) -> np.ndarray:
        """Draw new goals for `ids`; where there is no room for one, the episode terminates."""
        self.goal = self.goal.copy()
        self.distance = self.distance.copy()
        terminated = np.zeros(self.num_envs, dtype=bool)
        for i in ids:
            goal = self._draw_goal(i, (float(self.place[i, 0]), float(self.place[i, 1])))
            if goal is None:
                terminated[i] = True
            else:
                self.goal[i] = goal
        self.distance[ids] = geometry.distance(np, self.place[ids], self.goal[ids])
        return terminated

    def _outcome(self) -> GoalState:
        return self._after_physics

    def _freeze(self) -> dict[str, np.ndarray]:
        parts = {
            "physics": self._batch.state,  # positions, velocities, controls, warm start, time
            "goal": self.goal,
            "hazards": self.hazards,
            "distance": self.distance,
        }
        return {name: part.copy() for name, part in parts.items()}

    def _thaw(self, state: dict[str, np.ndarray]) -> None:
        self._batch.state[:] = state["physics"]
        self.goal, self.hazards = state["goal"].copy(), state["hazards"].copy()
        self.distance = state["distance"].copy()
        self._read()

    def state(self) -> GoalState:
        return GoalState(
            self.position, self.heading, self.rotation, self.body,
            self.goal, self.hazards, self.distance,
        )  # fmt: skip

    def _observe(self, ids: np.ndarray) -> np.ndarray:
        state = self.state()
        if len(ids) < self.num_envs:
            state = GoalState(*(part[ids] for part in state))
        felt = None
        if self.config.observation == "reference":
            if self.robot.free_base:
                felt = sensors.reference(self._groups, self._sensordata[ids])
            else:
                felt = sensors.point(state.body, state.rotation, self._ctrl[ids])
        return observe(self.config, state, felt)

    def scene(self, i: int) -> Scene:
        c = self.config
        one = GoalState(*(part[i : i + 1] for part in self.state()))
        ego = lambda points: np.stack(_in_body(one, points), -1)
        see = lambda points: geometry.lidar(np, ego(points), c.lidar_range)[0]
        return Scene(
            robot_xy=self.place[i],
            heading=float(self.heading[i]),
            robot=self.robot.glyph,
            goal_xy=self.goal[i],
            goal_size=c.goal_size,
            hazards=self.hazards[i],
            hazard_size=c.hazard_size,
            extent=c.extent,
            goal_lidar=see(one.goal[:, None]),
            hazard_lidar=see(one.hazards) if c.hazards else None,
            step=int(self.elapsed[i]),
            max_steps=c.max_episode_steps,
            reward=float(self.episode_reward[i]),
            cost=float(self.episode_cost[i].sum()),
            in_hazard=bool(
                geometry.hazard_cost(np, one.position[:, :2], one.hazards, c.hazard_size)[0]
            ),
            title=f"{c.robot.capitalize()} goal",
        )


@cache
def observation_size(config: GoalConfig) -> int:
    """Length of the observation a config asks for."""
    robot = robots.ROBOTS[config.robot]
    sight = geometry.BINS * (config.hazards > 0)
    return {
        "reference": sensors.count(robot) + geometry.BINS + sight,
        "paper": 6 + 2 + sight + 2,
        "ego": robot.proprioception + 2 + sight,
    }[config.observation]


def observe(config: GoalConfig, state: GoalState, felt: np.ndarray | None) -> np.ndarray:
    """Observations [N, D] of states; `felt`, the sensors, only for the reference's."""
    out = np.zeros((len(state.heading), observation_size(config)))
    if config.observation == "reference":
        assert felt is not None
        count = felt.shape[1]
        out[:, :count] = felt
        points = np.concatenate([state.goal[:, None], state.hazards], 1)
        column = np.full(1 + config.hazards, count + geometry.BINS)
        column[0] = count
        geometry.shine(out, column, *_in_body(state, points), config.lidar_range)
        return out
    if config.observation == "ego":
        cos, sin = np.cos(state.heading), np.sin(state.heading)
        count = state.body.shape[1]
        out[:, :count] = state.body
        goal = geometry.to_ego(np, state.goal[:, None], state.position[:, :2], cos, sin)
        out[:, count : count + 2] = goal[:, 0]
        count += 2
    else:
        cos, sin = state.rotation[:, 0, 0], -state.rotation[:, 0, 1]
        out[:, :6] = _paper_sensors(robots.ROBOTS[config.robot], state)
        out[:, 6:7], out[:, 7:8] = _in_body(state, state.goal[:, None])
        out[:, -2:] = state.position[:, :2]
        count = 8
    if config.hazards:
        hazards = geometry.to_ego(np, state.hazards, state.position[:, :2], cos, sin)
        geometry.shine(out, count, hazards[..., 0], hazards[..., 1], config.lidar_range)
    return out


def _in_body(state: GoalState, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points of the floor [N, K, 2] in the robots' own, possibly tilted, axes: x and y [N, K]."""
    a, b, position = state.rotation[:, 0], state.rotation[:, 1], state.position
    # The third row of a rotation follows from the first two; only its first two entries matter.
    x_up = position[:, 2] * (a[:, 1] * b[:, 2] - a[:, 2] * b[:, 1])
    y_up = position[:, 2] * (a[:, 2] * b[:, 0] - a[:, 0] * b[:, 2])
    dx, dy = points[..., 0] - position[:, :1], points[..., 1] - position[:, 1:2]
    x = a[:, :1] * dx + b[:, :1] * dy - x_up[:, None]
    y = a[:, 1:2] * dx + b[:, 1:2] * dy - y_up[:, None]
    return x, y


def _paper_sensors(robot: robots.Robot, state: GoalState) -> np.ndarray:
    """The first six numbers of the paper's state, [N, 6]."""
    yaw_rate = state.body[:, 5:6] if robot.free_base else state.body[:, 2:3]
    felt = {
        "velocity": state.body[:, :2],
        "yaw_rate": yaw_rate,
        "magnetometer": -0.5 * state.rotation[:, 1],
    }
    return np.concatenate([felt[name] for name in robot.paper_sensors], 1)


def paper_state(robot: robots.Robot, state: GoalState) -> np.ndarray:
    """The paper's model state [N, 8 + 2 H + 4] (42 numbers for 15 hazards)."""
    points = np.concatenate([state.goal[:, None], state.hazards], 1)
    seen = np.stack(_in_body(state, points), -1).reshape(len(points), -1)
    sensors = _paper_sensors(robot, state)
    return np.concatenate([sensors, seen, state.rotation[:, 0, :2], state.position[:, :2]], 1)
