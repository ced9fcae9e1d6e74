"""Spaces and `info` of the reference, for native environments of any number."""

from collections import OrderedDict

import numpy as np
from gymnasium import spaces

from surefoot.envs.base import Info, TaskEnv
from surefoot.envs.family.env import FamilyEnv
from surefoot.envs.geometry import BINS
from surefoot.envs.velocity.env import VelocityEnv

Observation = np.ndarray | dict[str, np.ndarray]
"""A vector, or sensors and lidars by name."""
Columns = dict[str, tuple[np.ndarray, np.ndarray]]
"""Entries of `info`: values [N], and which environments have them [N]."""

_SIZES = {"angle": 2, "height": 1, "quaternion": 9}
_SENSOR_NAMES = {"place": "agent_pos", "turning": "agent_qvel"}
_TRIPLES = ("accelerometer", "velocimeter", "gyro", "magnetometer", "ballangvel_rear", "agent_qvel")
_REWARDS = {
    "half-cheetah": {"reward_run": "forward", "reward_ctrl": "control"},
    "hopper": {},
    "walker2d": {},
    "swimmer": {"reward_fwd": "forward", "reward_ctrl": "control"},
    "ant": {"reward_forward": "forward", "reward_ctrl": "control", "reward_survive": "alive"},
    "humanoid": {
        "reward_linvel": "forward",
        "reward_quadctrl": "control",
        "reward_alive": "alive",
    },
}
"""What each robot's `info` calls the parts of its reward."""


def sensor_names(env: FamilyEnv) -> list[str]:
    """The reference's names of the robot's sensors, in the order of the observation."""
    groups = env.simulation.robot.robot.sensors
    return [_SENSOR_NAMES.get(name, name) for group in groups for name in group.names]


def observation_parts(env: FamilyEnv) -> spaces.Dict:
    """Sensors and lidars by name, in the order of the observation."""
    parts = OrderedDict[str, spaces.Space]()  # Gymnasium sorts the keys of other dicts
    for group in env.simulation.robot.robot.sensors:
        for own in group.names:
            name = _SENSOR_NAMES.get(own, own)
            size = _SIZES.get(group.encoding, 3 if name in _TRIPLES else 1)
            shape = (3, 3) if size == 9 else (size,)
            parts[name] = spaces.Box(-np.inf, np.inf, shape, np.float64)
    for kind in env.config.lidars:
        parts[f"{kind}_lidar"] = spaces.Box(0.0, 1.0, (BINS,), np.float64)
    return spaces.Dict(parts)


def observation_space(env: TaskEnv) -> spaces.Box:
    """The reference's space: lidars are within 0 and 1."""
    if isinstance(env, FamilyEnv):
        space = spaces.flatten_space(observation_parts(env))
        assert isinstance(space, spaces.Box)
        return space
    return env.single_observation_space


def action_space(env: TaskEnv) -> spaces.Box:
    """The reference's space, which is of doubles except in velocity tasks."""
    if isinstance(env, VelocityEnv):
        return env.single_action_space
    low, high = env.single_action_space.low, env.single_action_space.high
    return spaces.Box(low.astype(np.float64), high.astype(np.float64), dtype=np.float64)


def places(env: TaskEnv) -> np.ndarray:
    """Where runners are now, [N, axes]: what `step_columns` must know of the time before a step."""
    return env.place.copy() if isinstance(env, VelocityEnv) else np.empty(0)


def step_columns(env: TaskEnv, before: np.ndarray, actions: np.ndarray) -> Columns:
    """`info` of a step of every environment from the places `before` with `actions` [N, A]."""
    if isinstance(env, FamilyEnv):
        return _family_columns(env)
    assert isinstance(env, VelocityEnv)
    return _velocity_columns(env, before, actions)


def _family_columns(env: FamilyEnv) -> Columns:
    everywhere = np.ones(env.num_envs, dtype=bool)
    columns: Columns = {}
    for k, name in enumerate(env.config.cost_kinds):
        # The reference leaves the entry out while buttons cost nothing.
        present = env.outcome.timer == 0 if name == "buttons" else everywhere
        columns[f"cost_{name}"] = env.costs[:, k], present
    columns["cost_sum"] = env.costs.max(1, initial=0.0), everywhere
    if env.met.any():
        columns["goal_met"] = env.met.copy(), env.met.copy()
    return columns


def _velocity_columns(env: VelocityEnv, before: np.ndarray, actions: np.ndarray) -> Columns:
    robot, place = env.robot, env.outcome.place
    speed = (place - before) / env.simulation.seconds
    rewards = {
        "forward": robot.forward * speed[:, 0],
        "control": -robot.control * np.square(actions).sum(1),
        "alive": np.full(env.num_envs, robot.alive),
    }
    values = {name: rewards[part] for name, part in _REWARDS[env.config.robot].items()}
    values["x_position"] = place[:, 0]
    if robot.axes == 2:
        values["y_position"] = place[:, 1]
        values["distance_from_origin"] = np.sqrt((place * place).sum(1))
    values["x_velocity"] = speed[:, 0]
    if robot.axes == 2:
        values["y_velocity"], values["forward_reward"] = speed[:, 1], rewards["forward"]
    everywhere = np.ones(env.num_envs, dtype=bool)
    return {name: (value, everywhere) for name, value in values.items()}


def pick(columns: Columns, i: int) -> Info:
    """`info` of environment i alone, with Python's types."""
    return {name: value[i].item() for name, (value, present) in columns.items() if present[i]}
