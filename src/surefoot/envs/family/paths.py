"""How objects move that nothing touches, computed once and looked up."""

from functools import cache
from typing import NamedTuple

import numpy as np

from surefoot.envs.family.robots import FamilyRobot
from surefoot.envs.family.world import FRAME_SKIP, NONE, Solid, World

SETTLED = 200
"""Environment steps after which a vase or a box has come to rest."""
SHORTEST = 256
FAR = -50.0


class Path(NamedTuple):
    """The motion of an object, by environment steps since the reset."""

    place: np.ndarray
    """Position relative to where it was put, but for its height: [T, 3]."""
    velocity: np.ndarray
    """[T, 3]."""


def free_path(robot: FamilyRobot, solid: Solid, steps: int) -> Path:
    """The path for at least `steps` steps; time steps are those of the robot."""
    length = SHORTEST
    while length <= steps:
        length *= 2
    return _path(robot, solid, length)


@cache
def _path(robot: FamilyRobot, solid: Solid, length: int) -> Path:
    world = World(robot, (solid, 1), NONE, True, 1, 1)
    if solid.guided:
        # Whether a gremlin touches the floor at first depends on rounding. Its later path does not.
        world.batch.expand("geom_contype")[:, world.model.geom("floor").id] = 0
    place, velocity = np.zeros((2, length, 3))
    place[0, 2] = solid.height
    start = world.model.qpos0[None, : world.nq].copy()
    start[:, :2] = FAR
    rest, ids, nobody = np.zeros((1, world.nv)), np.arange(1), np.zeros((1, world.model.nu))
    body = np.zeros((1, 1, 7)), np.zeros((1, 1, 6)), np.zeros((1, 1, 6))
    body[0][0, 0, 2:4] = solid.height, 1.0
    home, upright = np.zeros((1, 1, 2)), np.array([[[1.0, 0.0, 0.0, 0.0]]])
    for t in range(1, length):
        now = np.array([(t - 1) * FRAME_SKIP * world.model.opt.timestep])
        # The robot, far away, starts anew each time: only the object's motion matters.
        world.load(ids, (start, rest, rest), body, home, upright, now)
        world.step(nobody)
        rows = (world.qpos, world.nq), (world.qvel, world.nv), (world.warmstart, world.nv)
        body = tuple(x[:, None, n:].copy() for x, n in rows)
        place[t], velocity[t] = body[0][0, 0, :3], body[1][0, 0, :3]
    return Path(place, velocity)
