"""How objects move that nothing touches, computed once and looked up."""

from functools import cache

import numpy as np

from surefoot.envs.family.robots import FamilyRobot
from surefoot.envs.family.world import FRAME_SKIP, NONE, Solid, World

FAR = -50.0
AHEAD = 32


class Path:
    """The motion of an object, by environment steps since the reset."""

    def __init__(self, robot: FamilyRobot, solid: Solid):
        self._world = world = World(robot, (solid, 1), NONE, True, 1, 1)
        if solid.guided:
            # Whether a gremlin touches the floor at first depends on rounding; where it is later
            # does not.
            world.batch.expand("geom_contype")[:, world.model.geom("floor").id] = 0
        self._dt = FRAME_SKIP * world.model.opt.timestep
        self._robot = world.model.qpos0[None, : world.nq].copy()
        self._robot[:, :2] = FAR
        self._body = np.zeros((1, 1, 7)), np.zeros((1, 1, 6)), np.zeros((1, 1, 6))
        self._body[0][0, 0, 2:4] = solid.height, 1.0
        self.place = self._body[0][0, :, :3].copy()
        """Position relative to where the object was put, but for its height: [T, 3]."""
        self.velocity = np.zeros((1, 3))

    def until(self, step: int) -> "Path":
        """The path, continued to a step at least."""
        if step < len(self.place):
            return self
        world, start = self._world, len(self.place)
        rest, nothing = np.zeros((1, world.nv)), np.zeros((1, world.model.nu))
        home, upright = np.zeros((1, 1, 2)), np.array([[[1.0, 0.0, 0.0, 0.0]]])
        place, velocity = np.zeros((2, step + AHEAD - start, 3))
        for t in range(len(place)):
            # The robot, far away, starts anew each time: only the object's motion matters.
            robot, now = (self._robot, rest, rest), np.array([(start + t - 1) * self._dt])
            world.load(np.arange(1), robot, self._body, home, upright, now)
            world.step(nothing)
            rows = (world.qpos, world.nq), (world.qvel, world.nv), (world.warmstart, world.nv)
            self._body = tuple(x[:, None, n:].copy() for x, n in rows)
            place[t], velocity[t] = self._body[0][0, 0, :3], self._body[1][0, 0, :3]
        self.place = np.concatenate([self.place, place])
        self.velocity = np.concatenate([self.velocity, velocity])
        return self


@cache
def free_path(robot: FamilyRobot, solid: Solid) -> Path:
    """The path of a kind of objects, in the time steps of a robot."""
    return Path(robot, solid)
