"""The rules of the Goal task: options, reward, cost and observations.

Functions with an argument `xp` (numpy or jax.numpy) serve both the real task and its model.
"""

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal, NamedTuple, get_args

import numpy as np

from surefoot.core.config import Count, Positive, Range, check, check_choice
from surefoot.envs import geometry
from surefoot.envs.geometry import A, Namespace
from surefoot.envs.navigation import layout
from surefoot.envs.navigation.robots import ROBOTS, Robot, load_model
from surefoot.envs.navigation.sensors import read_sensors

Observation = Literal["reference", "paper", "ego"]
OBSERVATIONS: tuple[Observation, ...] = get_args(Observation)
REWARD_BOUND = 10.0


@dataclass(frozen=True)
class GoalConfig:
    """Options of the Goal task. The defaults are the paper's task."""

    robot: str = "point"
    """Which robot: point, car, doggo (safety-gymnasium's) or doggo-openai."""
    hazards: Annotated[int, Range(least=0, most=10_000)] = 15
    """Number of hazards."""
    extent: Positive = 2.0
    """Objects are placed within ±extent metres; the robot may leave."""
    max_episode_steps: Count = 750
    """Steps after which an episode is truncated."""
    frame_skip: Count = 10
    """Physics steps per environment step."""
    action_repeat: Count = 1
    """Environment steps per action; rewards and costs add up."""
    hazard_size: Positive = 0.2
    """A hazard costs 1 per step while its centre is at most this near."""
    goal_size: Positive = 0.3
    """The goal is reached at this distance."""
    goal_reward: Positive = 1.0
    """Reward for reaching the goal, on top of the progress towards it."""
    robot_keepout: Positive = 0.4
    """Placement radius of the robot."""
    goal_keepout: Positive = 0.305
    """Placement radius of the goal."""
    hazard_keepout: Positive = 0.18
    """Placement radius of a hazard."""
    lidar_range: Positive = 3.0
    """Distance at which the lidar sees nothing."""
    observation: Observation = "reference"
    """reference: sensors and lidars; paper: the reduced input; ego: body, goal and lidar."""

    def __post_init__(self) -> None:
        check(self)
        check_choice("robot", self.robot, ROBOTS)
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


class GoalState(NamedTuple):
    """Everything that reward, cost and observations depend on.

    The robot as in `robots.Reading`, goals [N, 2], hazards [N, H, 2], distances to the goal [N].
    """

    position: np.ndarray
    heading: np.ndarray
    rotation: np.ndarray
    body: np.ndarray
    goal: np.ndarray
    hazards: np.ndarray
    distance: np.ndarray

    def select(self, ids: np.ndarray | slice) -> "GoalState":
        """The states of some environments."""
        return GoalState(*(part[ids] for part in self))


def arrive(
    xp: Namespace, config: GoalConfig, previous: A, position: A, goal: A, hazards: A
) -> tuple[A, A, A, A]:
    """Distance to the goal, whether it is met, reward and cost of a step to `position` [..., 2].

    `previous` [...] is the distance to the same goal before the step.
    """
    distance = geometry.distance(xp, position, goal)
    met = distance <= config.goal_size
    reward = previous - distance + config.goal_reward * met
    reward = xp.minimum(REWARD_BOUND, xp.maximum(-REWARD_BOUND, reward))
    cost = geometry.hazard_cost(xp, position, hazards, config.hazard_size)
    return distance, met, reward, cost


@cache
def observation_size(config: GoalConfig) -> int:
    """Length of the observation."""
    robot = ROBOTS[config.robot]
    lidar = geometry.BINS * (config.hazards > 0)
    if config.observation == "paper":
        return 6 + 2 + lidar + 2
    if config.observation == "ego":
        return robot.proprioception + 2 + lidar
    model = load_model(robot.name)
    sensors = read_sensors(model, robot.sensors, np.ones((1, model.nsensordata)))
    return sensors.shape[1] + geometry.BINS + lidar


def observe(config: GoalConfig, state: GoalState, sensors: np.ndarray | None) -> np.ndarray:
    """Observations [N, D] of real states; only the reference observation needs `sensors`."""
    s, place = state, state.position[:, :2]
    if config.observation == "ego":
        return ego_observation(np, config, place, s.heading, s.body, s.goal, s.hazards)
    if config.observation == "paper":
        cos, sin = s.rotation[:, 0, 0], -s.rotation[:, 0, 1]
        seen = np.concatenate(_sensed(ROBOTS[config.robot], s, s.goal[:, None]), 1)
        return paper_observation(np, config, seen, place, cos, sin, s.hazards)
    assert sensors is not None
    out = np.zeros((len(s.heading), observation_size(config)))
    size = sensors.shape[1]
    out[:, :size] = sensors
    points = np.concatenate([s.goal[:, None], s.hazards], 1)
    column = np.full(1 + config.hazards, size + geometry.BINS)
    column[0] = size
    geometry.add_lidar(out, column, *in_body(s, points), config.lidar_range)
    return out


def ego_observation(
    xp: Namespace, config: GoalConfig, position: A, heading: A, body: A, goal: A, hazards: A
) -> A:
    """Proprioception, goal in the robot's frame, hazard lidar: [..., P + 18]."""
    cos, sin = xp.cos(heading), xp.sin(heading)
    points = xp.concatenate([goal[..., None, :], hazards], -2)
    ego = geometry.to_ego(xp, points, position, cos, sin)
    lidar = _lidar(config, ego[..., 1:, :])
    return xp.concatenate([body, ego[..., 0, :], *lidar], -1)


def paper_observation(
    xp: Namespace, config: GoalConfig, seen: A, position: A, cos: A, sin: A, hazards: A
) -> A:
    """Sensors and ego goal (`seen` [..., 8]), hazard lidar, position: [..., 26]."""
    lidar = _lidar(config, geometry.to_ego(xp, hazards, position, cos, sin))
    return xp.concatenate([seen, *lidar, position], -1)


def _lidar(config: GoalConfig, ego: A) -> list[A]:
    """The lidar of hazards in the robot's frame; empty without hazards."""
    if not config.hazards:
        return []
    if isinstance(ego, np.ndarray):
        return [geometry.numpy_lidar(ego, config.lidar_range)]
    return [geometry.compiled_lidar(ego, config.lidar_range)]


def in_body(state: GoalState, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points of the floor [N, K, 2] in the robots' axes, which may be tilted: x and y [N, K]."""
    a, b, position = state.rotation[:, 0], state.rotation[:, 1], state.position
    # The third row of a rotation follows from the first two; only its first two entries matter.
    x_up = position[:, 2] * (a[:, 1] * b[:, 2] - a[:, 2] * b[:, 1])
    y_up = position[:, 2] * (a[:, 2] * b[:, 0] - a[:, 0] * b[:, 2])
    dx, dy = points[..., 0] - position[:, :1], points[..., 1] - position[:, 1:2]
    x = a[:, :1] * dx + b[:, :1] * dy - x_up[:, None]
    y = a[:, 1:2] * dx + b[:, 1:2] * dy - y_up[:, None]
    return x, y


def paper_sensors(xp: Namespace, robot: Robot, velocity: A, yaw_rate: A, magnetometer: A) -> A:
    """The first six numbers of the paper's state, in the robot's order: [..., 6]."""
    parts = {"velocity": velocity, "yaw_rate": yaw_rate, "magnetometer": magnetometer}
    return xp.concatenate([parts[name] for name in robot.paper_sensors], -1)


def paper_state(robot: Robot, state: GoalState) -> np.ndarray:
    """The paper's model state [N, 8 + 2 H + 4] (42 numbers for 15 hazards)."""
    points = np.concatenate([state.goal[:, None], state.hazards], 1)
    parts = [*_sensed(robot, state, points), state.rotation[:, 0, :2], state.position[:, :2]]
    return np.concatenate(parts, 1)


def _sensed(robot: Robot, state: GoalState, points: np.ndarray) -> list[np.ndarray]:
    """The paper's sensors [N, 6], and points of the floor [N, K, 2] in the robots' axes."""
    seen = np.stack(in_body(state, points), -1).reshape(len(points), -1)
    yaw_rate, field = state.body[:, robot.yaw_rate, None], -0.5 * state.rotation[:, 1]
    return [paper_sensors(np, robot, state.body[:, :2], yaw_rate, field), seen]
