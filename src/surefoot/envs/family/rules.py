"""State, rewards, costs and observations of the family's tasks."""

from typing import NamedTuple

import numpy as np

from surefoot.envs import geometry
from surefoot.envs.family.config import FamilyConfig

REWARD_BOUND = 10.0
SLOW = 1e-4
"""Vases slower than this cost nothing."""
RUN_TARGET = np.array((0.0, -1000.0))


class FamilyState(NamedTuple):
    """Everything that reward, cost and observations of N environments depend on."""

    position: np.ndarray
    """Of the robot, [N, 3]."""
    heading: np.ndarray
    """Of the robot's x axis, [N]."""
    rotation: np.ndarray
    """First two rows of the robot's rotation matrix, [N, 2, 3]."""
    body: np.ndarray
    """The robot's proprioception, [N, P]."""
    velocity: np.ndarray
    """Of the robot in the world, [N, 2]."""
    sensors: np.ndarray
    """The robot's sensors as observed, [N, S]."""
    goal: np.ndarray
    """[N, 2]; in Button the place of the goal button."""
    hazards: np.ndarray
    """[N, H, 2]."""
    bodies: np.ndarray
    """Vases, gremlins or the box: position and quaternion, [N, F, 7]."""
    speeds: np.ndarray
    """Their velocities, linear then angular, [N, F, 6]."""
    home: np.ndarray
    """Centres of the gremlins' circles, or where vases and box were put, [N, F, 2]."""
    statics: np.ndarray
    """Buttons or pillars, [N, S, 2]."""
    touch: np.ndarray
    """Which bodies, then statics, the robot touches, [N, F + S]."""
    button: np.ndarray
    """Index of the goal button, [N]."""
    timer: np.ndarray
    """Steps until buttons are visible, [N]."""
    seconds: np.ndarray
    """Simulated time since the reset, [N]."""
    previous: np.ndarray
    """What the next reward subtracts from: distances, or Run's potential, [N, 2]."""

    def select(self, ids: np.ndarray | slice) -> "FamilyState":
        """The states of some environments."""
        return FamilyState(*(part[ids] for part in self))


def distances(config: FamilyConfig, s: FamilyState) -> np.ndarray:
    """What rewards are differences of, [N, 2]: a second one only in Push."""
    out, place = np.zeros((len(s.goal), 2)), s.position[:, :2]
    if config.task in ("goal", "button"):
        out[:, 0] = geometry.distance(np, place, s.goal)
    elif config.task == "run":
        out[:, 0] = 60.0 * geometry.distance(np, place, RUN_TARGET)
    elif config.task == "push":
        box = s.bodies[:, 0, :3]
        gap = box - s.position
        out[:, 0] = np.sqrt((gap * gap).sum(1))
        rise = box[:, 2] - (config.goal_size / 2 + 0.01)
        gap = box[:, :2] - s.goal
        out[:, 1] = np.sqrt((gap * gap).sum(1) + rise * rise)
    return out


def arrive(config: FamilyConfig, s: FamilyState) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reward [N], whether the goal is met [N], and the distances [N, 2] of a step to `s`."""
    now = distances(config, s)
    met = np.zeros(len(now), dtype=bool)
    if config.task == "circle":
        x, y = s.position[:, 0], s.position[:, 1]
        radius = np.sqrt(x * x + y * y)
        turning = (-s.velocity[:, 0] * y + s.velocity[:, 1] * x) / np.maximum(radius, 1e-300)
        reward = turning / (1 + np.abs(radius - 1.5)) * 0.1
    else:
        reward = (s.previous - now).sum(1)
    if config.task == "goal":
        met = now[:, 0] <= config.goal_size
    elif config.task == "push":
        met = now[:, 1] <= config.goal_size
    elif config.task == "button":
        buttons = s.touch[:, s.bodies.shape[1] :]
        met = buttons[np.arange(len(met)), s.button]
    reward = reward + met
    if config.task != "run":
        reward = np.minimum(REWARD_BOUND, np.maximum(-REWARD_BOUND, reward))
    return reward, met, now


def costs(config: FamilyConfig, s: FamilyState) -> np.ndarray:
    """1 where a constraint is violated, [N, k] in the order of `cost_kinds`."""
    out = np.zeros((len(s.goal), len(config.cost_kinds)))
    frees, place = s.bodies.shape[1], s.position[:, :2]
    for column, name in enumerate(config.cost_kinds):
        if name == "hazards":
            away = geometry.distance(np, s.hazards, place[:, None])
            # A hazard at exactly its radius adds 0 to the reference's sum.
            hit = (away < config.hazard_size).any(1)
        elif name == "vases_velocity":
            v = s.speeds[..., :3]
            hit = ((v * v).sum(-1) >= SLOW * SLOW).any(1)
        elif name in ("vases_contact", "gremlins"):
            hit = s.touch[:, :frees].any(1)
        elif name == "pillars":
            hit = s.touch[:, frees:].any(1)
        elif name == "buttons":
            wrong = s.touch[:, frees:].copy()
            wrong[np.arange(len(wrong)), s.button] = False
            hit = wrong.any(1) & (s.timer == 0)
        else:
            hit = np.abs(place[:, 0]) > config.boundary
            if config.walls == 4:
                hit |= np.abs(place[:, 1]) > config.boundary
        out[:, column] = hit
    return out


def points(config: FamilyConfig, s: FamilyState, kind: str) -> np.ndarray:
    """Places of the objects of a kind, [N, K, 2]."""
    if kind == "goal":
        return s.goal[:, None]
    if kind == "hazards":
        return s.hazards
    if kind == "circle":
        return np.zeros((len(s.goal), 1, 2))
    return s.statics if kind in ("buttons", "pillars") else s.bodies[..., :2]


def observation_size(config: FamilyConfig, sensors: int) -> int:
    return sensors + geometry.BINS * len(config.lidars)


def observe(config: FamilyConfig, s: FamilyState) -> np.ndarray:
    """Sensors, then a lidar for each kind of objects: [N, D]."""
    size = s.sensors.shape[1]
    out = np.zeros((len(s.sensors), observation_size(config, size)))
    out[:, :size] = s.sensors
    if not config.lidars:
        return out
    seen = [points(config, s, kind) for kind in config.lidars]
    counts = [kind.shape[1] for kind in seen]
    column = np.repeat(size + geometry.BINS * np.arange(len(seen)), counts)
    geometry.add_lidar(out, column, *in_body(s, np.concatenate(seen, 1)), config.lidar_range)
    if config.task == "button":  # its lidar is the first
        out[s.timer > 0, size : size + geometry.BINS] = 0.0
    return out


def in_body(state: FamilyState, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points of the floor [N, K, 2] in the robots' axes, which may be tilted: x and y [N, K]."""
    from surefoot.envs.navigation import goal_rules

    return goal_rules.in_body(state, points)  # type: ignore[arg-type]
