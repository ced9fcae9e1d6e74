"""What the family's models know of a state, and the `ego` observation.

Functions with an argument `xp` (numpy or jax.numpy) serve both the real tasks and their models.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from surefoot.envs import geometry
from surefoot.envs.family.config import FamilyConfig
from surefoot.envs.family.paths import free_path
from surefoot.envs.family.robots import FamilyRobot, robot_of
from surefoot.envs.family.rules import RUN_TARGET, SLOW, FamilyState
from surefoot.envs.family.world import FRAME_SKIP, SOLIDS, TRAVEL, compile_world
from surefoot.envs.geometry import Namespace

WALLS = np.array(((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)))
Numbers = Any
"""An array of numpy or JAX."""
LIDARS = ("hazards", "vases", "gremlins", "buttons", "pillars")
STEADY = 255
"""Steps after which gremlins move uniformly."""
NOWHERE = 1e6  # coordinate of objects that no lidar sees


class View(NamedTuple):
    """What a model knows of states; any leading axes."""

    position: Numbers
    """Of the robot on the floor, [..., 2]."""
    heading: Numbers
    """[..., 1], as are button, timer and time."""
    body: Numbers
    """Proprioception, [..., P]."""
    goal: Numbers
    hazards: Numbers
    """[..., H, 2]."""
    movable: Numbers
    """Vases, the box, or the centres of the gremlins' circles, [..., F, 2]."""
    box: Numbers
    """Yaw, velocity along x and y of the world, and spin of the box, [..., 4 or 0]."""
    statics: Numbers
    """Buttons or pillars, [..., S, 2]."""
    button: Numbers
    """Index of the goal button."""
    timer: Numbers
    time: Numbers
    """Steps since the reset."""
    signals: Numbers
    """1 where the last step had a contact (or moved a vase), in the order of `signals`."""


def signals(config: FamilyConfig) -> tuple[str, ...]:
    """Names of the contacts that reward or cost depend on; they are not known, but learned."""
    by_touch = ("vases_contact", "vases_velocity", "gremlins", "pillars")
    press = ("buttons",) if config.task == "button" else ()
    return press + tuple(name for name in config.cost_kinds if name in by_touch)


def view(config: FamilyConfig, s: FamilyState) -> View:
    """The views of real states."""
    n, frees = s.bodies.shape[:2]
    box = np.zeros((n, 0))
    if config.task == "push":
        w, x, y, z = s.bodies[:, 0, 3:].T
        yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        box = np.column_stack([yaw, s.speeds[:, 0, :2], s.speeds[:, 0, 5]])
    names, happened = signals(config), np.zeros((n, len(signals(config))))
    for column, name in enumerate(names):
        if name == "vases_velocity":
            v = s.speeds[..., :3]
            happened[:, column] = ((v * v).sum(-1) >= SLOW * SLOW).any(1)
        else:
            free = name in ("vases_contact", "gremlins")
            happened[:, column] = (s.touch[:, :frees] if free else s.touch[:, frees:]).any(1)
    return View(
        s.position[:, :2], s.heading[:, None], s.body, s.goal, s.hazards,
        s.home if config.task == "button" else s.bodies[..., :2],
        box, s.statics, s.button[:, None].astype(float), s.timer[:, None].astype(float),
        np.round(s.seconds / _seconds(robot_of(config)))[:, None], happened,
    )  # fmt: skip


@cache
def _seconds(robot: FamilyRobot) -> float:
    """Duration of an environment step."""
    return FRAME_SKIP * compile_world(robot).opt.timestep


def ego_size(config: FamilyConfig) -> int:
    """Length of the ego observation."""
    walls, task = config.walls, config.task
    points = {"goal": 1, "button": 1 + (config.gremlins > 0), "push": 2, "circle": 1, "run": 1}
    more = {"push": 5, "button": 1}
    lidars = sum(kind in LIDARS for kind in config.kinds)
    size = robot_of(config).robot.proprioception + 2 * (points[task] + walls)
    return size + more.get(task, 0) + geometry.BINS * lidars


def orbit(xp: Namespace, config: FamilyConfig, time: Numbers) -> Numbers:
    """Where gremlins are, relative to the centres of their circles: [..., 2] for [..., 1] steps.

    Once it is uniform, the motion is a turn of the table's last entry.
    """
    robot = robot_of(config)
    table = xp.asarray(free_path(robot, SOLIDS["gremlins"]).until(STEADY).place[: STEADY + 1, :2])
    index = xp.minimum(time[..., 0], STEADY)
    angle = (index - time[..., 0]) * _seconds(robot)  # clockwise
    place = table[index.astype(int)]
    x, y = geometry.to_world(place[..., 0], place[..., 1], xp.cos(angle), xp.sin(angle))
    return xp.stack([x, y], -1)


def places(xp: Namespace, config: FamilyConfig, v: View, kind: str) -> Numbers:
    """Places of the objects of a kind, [..., K, 2]."""
    if kind == "hazards":
        return v.hazards
    if kind in ("buttons", "pillars"):
        return v.statics
    if kind == "gremlins":
        return v.movable + orbit(xp, config, v.time)[..., None, :]
    return v.movable


def walls(xp: Namespace, config: FamilyConfig, v: View) -> Numbers:
    """The nearest points of the boundaries, [..., walls, 2]."""
    out = xp.asarray(WALLS[: config.walls])
    place = v.position[..., None, :]
    return out * config.boundary + place * (1 - xp.abs(out))


def turned(xp: Namespace, v: View, vectors: Numbers) -> Numbers:
    """Vectors [..., K, 2] of the world in the robot's frame."""
    cos, sin = xp.cos(v.heading[..., 0]), xp.sin(v.heading[..., 0])
    return geometry.to_ego(xp, vectors, xp.zeros_like(v.position), cos, sin)


def to_world(xp: Namespace, v: View, vector: Numbers) -> Numbers:
    """A vector [..., 2] of the robot's frame in the world."""
    cos, sin = xp.cos(v.heading[..., 0]), xp.sin(v.heading[..., 0])
    return xp.stack(geometry.to_world(vector[..., 0], vector[..., 1], cos, sin), -1)


def box_in_ego(xp: Namespace, v: View) -> Numbers:
    """Orientation (its shape repeats every quarter turn), velocity and spin: [..., 5]."""
    angle = 4 * (v.box[..., :1] - v.heading)
    speed = turned(xp, v, v.box[..., None, 1:3])[..., 0, :]
    return xp.concatenate([xp.cos(angle), xp.sin(angle), speed, v.box[..., 3:]], -1)


def ego_observation(xp: Namespace, config: FamilyConfig, v: View) -> Numbers:
    """The ego observation, [..., D]: everything in the robot's own frame.

    All tasks: proprioception, and a lidar of each kind of obstacles. Goal: the goal. Circle: its
    centre. Push: box (place, orientation, velocity, spin) and goal. Run: the goal's direction.
    Circle and Run: the nearest point of each boundary. Button: the goal button, steps until wrong
    buttons cost, where gremlins head. Its lidar shows the wrong buttons alone, at all times.
    Gremlins are shown on their circles, also while they are pushed aside.
    """
    task, place = config.task, v.position[..., None, :]
    seen = {
        "goal": lambda: [v.goal[..., None, :] - place],
        "button": lambda: [v.goal[..., None, :] - place],
        "push": lambda: [v.movable - place, v.goal[..., None, :] - place],
        "circle": lambda: [-place, walls(xp, config, v) - place],
        "run": lambda: [
            (xp.asarray(RUN_TARGET) - place) / 1000,
            walls(xp, config, v) - place,
        ],
    }[task]()
    more = []
    if task == "push":
        more = [box_in_ego(xp, v)]
    elif task == "button":
        more = [v.timer / max(1, config.button_delay)]
        if config.gremlins:
            x, y = xp.moveaxis(orbit(xp, config, v.time), -1, 0)
            seen.append(xp.stack([y, -x], -1)[..., None, :] / TRAVEL)
    points = turned(xp, v, xp.concatenate(seen, -2))
    parts = [v.body, points.reshape(*points.shape[:-2], -1), *more]
    for kind in config.kinds:
        if kind not in LIDARS:
            continue
        objects = places(xp, config, v, kind)
        if kind == "buttons":
            goal = xp.arange(config.buttons) == v.button
            objects = xp.where(goal[..., None], NOWHERE, objects)
        ego = turned(xp, v, objects - place)
        lidar = geometry.numpy_lidar if xp is np else geometry.compiled_lidar
        parts.append(lidar(ego, config.lidar_range))
    return xp.concatenate(parts, -1)
