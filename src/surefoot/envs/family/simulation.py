"""N robots among solid objects, where only objects that may be touched are simulated.

Most objects are calm: vases and boxes rest, gremlins follow their circle. A calm object takes part
in the physics only when the robot, or an object that is not calm, comes near. So every step
distributes the environments over models with different numbers of movable objects.
"""

import math

import numpy as np

from surefoot.envs import geometry
from surefoot.envs.family.config import FamilyConfig
from surefoot.envs.family.paths import free_path
from surefoot.envs.family.robots import native_ccd, robot_of
from surefoot.envs.family.world import FRAME_SKIP, TRAVEL, World, solid_of
from surefoot.envs.navigation.robots import Reading
from surefoot.envs.navigation.sensors import read_sensors

FREE, FIXED = ("vases", "gremlins", "push_box"), ("buttons", "pillars")
LADDER = (1, 2, 3, 5, 8)
"""Numbers of movable objects for which there is a model, besides all of them."""
STILL, STEADY = 1e-9, 1e-6
"""Largest velocity and acceleration of an object at rest."""
CLOSE = 1e-10
"""A gremlin as near as this to its circle follows it."""
UPRIGHT = 1e-5
"""Largest squared sine of half the tilt of an upright object."""
SETTLING = 1.5
"""Seconds after which a vase or a box that nothing touches has come to rest."""
CLEARANCE = 0.1
"""Metres between objects beyond which they do not touch within a step."""


class Simulation:
    """States of all robots and objects; bodies are F movable objects of one kind."""

    def __init__(self, config: FamilyConfig, num_envs: int, threads: int):
        self.config, self.robot = config, robot_of(config)
        pick = lambda kinds: next((k for k in config.kinds if k in kinds), "")
        self.kinds = pick(FREE), pick(FIXED)
        self.free, self.fixed = (solid_of(config, k) if k else None for k in self.kinds)
        frees, statics = (config.number(k) if k else 0 for k in self.kinds)
        sizes = [n for n in LADDER if n < frees] + [frees] * (frees > 0)
        sizes = [(0, 0)] + [(0, statics)] * (statics > 0) + [(n, statics) for n in sizes]
        native = native_ccd(config)
        self.worlds = [
            World(self.robot, (self.free, f), (self.fixed, s), native, num_envs, threads)
            for f, s in sizes
        ]
        self._capacity = np.array([n for n, _ in sizes])
        bare, n = self.worlds[0], num_envs
        self.model, self.num_envs = bare.model, num_envs
        self.dt = FRAME_SKIP * self.model.opt.timestep
        self._settled = math.ceil(SETTLING / self.dt)
        self.qpos, self.qvel = np.zeros((n, bare.nq)), np.zeros((n, bare.nv))
        self.warm, self.ctrl = np.zeros((n, bare.nv)), np.zeros((n, self.model.nu))
        self.bodies = np.zeros((n, frees, 7))
        self.speeds, self.body_warm = np.zeros((n, frees, 6)), np.zeros((n, frees, 6))
        self.home = np.zeros((n, frees, 6))
        """Where movable objects were put: x, y, quaternion."""
        self.statics = np.zeros((n, statics, 2))
        self.calm, self.untouched = np.ones((2, n, frees), dtype=bool)
        self.steps = np.zeros(n, dtype=np.int64)
        self.touch = np.zeros((n, frees + statics), dtype=bool)
        size = read_sensors(self.model, self.robot.robot.sensors, self._blank()).shape[1]
        self.sensors = np.zeros((n, size))

    def _blank(self) -> np.ndarray:
        return np.ones((1, self.model.nsensordata))

    ARRAYS = (
        "qpos", "qvel", "warm", "ctrl", "bodies", "speeds", "body_warm", "home", "statics", "calm",
        "untouched", "steps", "touch", "sensors",
    )  # fmt: skip
    """All that a snapshot must hold."""

    def save(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name).copy() for name in self.ARRAYS}

    def load(self, state: dict[str, np.ndarray]) -> None:
        for name in self.ARRAYS:
            getattr(self, name)[:] = state[name]
        self._place_statics(np.arange(self.num_envs))

    def begin(self, i: int, poses: np.ndarray, bodies: np.ndarray, statics: np.ndarray) -> None:
        """Start environment i: robot x, y, yaw; bodies [F, 3] likewise; fixed objects [S, 2]."""
        self.qpos[i], self.qvel[i], self.ctrl[i], self.warm[i] = self.model.qpos0, 0.0, 0.0, 0.0
        self.robot.robot.place(self.qpos[i], *poses)
        self.statics[i], self.steps[i], self.touch[i] = statics, 0, False
        self.speeds[i] = self.body_warm[i] = 0.0
        if self.free is not None:
            turns = [geometry.turn(yaw) for yaw in bodies[:, 2].tolist()]
            self.home[i] = np.concatenate([bodies[:, :2], turns], 1)
            self.bodies[i, :, [0, 1]] = bodies[:, :2].T
            self.bodies[i, :, 2], self.bodies[i, :, 3:] = self.free.height, self.home[i, :, 2:]
            self.calm[i] = self.untouched[i] = not self.free.guided

    def started(self, ids: np.ndarray) -> None:
        """Compute the sensors of robots whose episodes began."""
        self._place_statics(ids)
        bare = self.worlds[0]
        self._fill(bare, ids, np.zeros((len(ids), 0), dtype=np.intp))
        bare.ctrl[ids] = self.ctrl[ids]
        bare.forward(ids)
        self._sense(bare, ids)

    def set_state(
        self, robot: tuple[np.ndarray, ...], bodies: tuple[np.ndarray, ...], home: np.ndarray,
        statics: np.ndarray, steps: np.ndarray,
    ) -> None:  # fmt: skip
        """Set qpos, qvel and warm start of robots and bodies, and how long episodes have lasted."""
        self.qpos[:], self.qvel[:], self.warm[:] = robot
        self.bodies[:], self.speeds[:], self.body_warm[:] = bodies
        self.home[:], self.statics[:], self.steps[:] = home, statics, steps
        self.untouched[:] = False
        self.calm[:] = self._calm(np.arange(self.num_envs)) if self.free else True
        self._place_statics(np.arange(self.num_envs))

    def place(self, i: int) -> tuple[float, float]:
        """Where robot i is."""
        return float(self.qpos[i, 0]), float(self.qpos[i, 1])

    def read(self) -> Reading:
        """Poses and proprioception of the robots."""
        return self.robot.robot.read(self.qpos, self.qvel)

    def step(self, actions: np.ndarray) -> np.ndarray:
        """The physics of one environment step; returns which simulations failed, [N]."""
        self.ctrl[:] = actions
        active, choice = self._distribute()
        order = np.argsort(~active, axis=1, kind="stable")
        failed = np.zeros(self.num_envs, dtype=bool)
        self.touch[:] = False
        for v in np.unique(choice):
            world, ids = self.worlds[v], np.flatnonzero(choice == v)
            slots = np.sort(order[ids, : world.frees], axis=1)
            self._fill(world, ids, slots)
            broken = world.step(actions[ids])[ids]
            failed[ids] = broken
            if broken.any():  # these keep the state they had
                ids, slots = ids[~broken], slots[~broken]
            if len(ids):
                self._take(world, ids, slots)
        self.steps += 1
        if self.free is not None:
            self._guide(active)
        return failed

    def _distribute(self) -> tuple[np.ndarray, np.ndarray]:
        """Which objects take part in the next step, [N, F], and the model for each environment."""
        n, frees = self.calm.shape
        active, choice = ~self.calm, np.zeros(n, dtype=np.intp)
        if len(self.worlds) == 1:
            return active, choice
        place = self.qpos[:, :2]
        speed = np.sqrt((self.qvel[:, :2] ** 2).sum(1))
        reach = self.robot.radius + self.robot.slack + 2 * self.dt * speed
        if self.fixed is not None:
            gap = self.statics - place[:, None]
            near = (gap * gap).sum(-1) < ((reach + self.fixed.radius) ** 2)[:, None]
            choice[near.any(1)] = 1
        if self.free is None:
            return active, choice
        drift = 2 * TRAVEL * self.dt if self.free.guided else 0.0
        active |= self._gaps(place) < (reach + drift)[:, None]
        some = np.flatnonzero(active.any(1))
        if len(some):
            if frees > 1:
                active[some] = self._chain(some, active[some])
            first = len(self.worlds) - np.count_nonzero(self._capacity)
            counts = active[some].sum(1)
            choice[some] = first + np.searchsorted(self._capacity[first:], counts)
        return active, choice

    def _gaps(self, place: np.ndarray) -> np.ndarray:
        """Distances from places [N, 2] to the outlines of movable objects, at most: [N, F]."""
        assert self.free is not None
        d = place[:, None] - self.bodies[..., :2]
        w, x, y, z = np.moveaxis(self.bodies[..., 3:], -1, 0)
        # In the axes of an upright object, which is a square from above.
        cos, sin = w * w - z * z, 2 * w * z
        across = np.maximum(np.abs(cos * d[..., 0] + sin * d[..., 1]) - self.free.half, 0.0)
        along = np.maximum(np.abs(cos * d[..., 1] - sin * d[..., 0]) - self.free.half, 0.0)
        upright = x * x + y * y < UPRIGHT
        lying = np.sqrt((d * d).sum(-1)) - self.free.radius
        return np.where(upright, np.sqrt(across * across + along * along), lying)

    def _chain(self, ids: np.ndarray, active: np.ndarray) -> np.ndarray:
        """Add objects that active ones may push, and those that these may push."""
        assert self.free is not None
        xy = self.bodies[ids, :, :2]
        gap = xy[:, :, None] - xy[:, None]
        limit = 2 * self.free.radius + CLEARANCE
        close = (gap * gap).sum(-1) < limit * limit
        for _ in range(2):
            active = active | (close & active[:, None]).any(2)
        return active

    def _fill(self, world: World, ids: np.ndarray, slots: np.ndarray) -> None:
        """Hand the states of environments, with some of their objects, to a model."""
        rows = ids[:, None]
        robot = self.qpos[ids], self.qvel[ids], self.warm[ids]
        bodies = self.bodies[rows, slots], self.speeds[rows, slots], self.body_warm[rows, slots]
        home = self.home[rows, slots]
        seconds = self.steps[ids] * self.dt
        world.load(ids, robot, bodies, home[..., :2], home[..., 2:], seconds)

    def _take(self, world: World, ids: np.ndarray, slots: np.ndarray) -> None:
        """Take back the states of environments after a step."""
        rows = ids[:, None]
        for ours, bodies, theirs, size in (
            (self.qpos, self.bodies, world.qpos, world.nq),
            (self.qvel, self.speeds, world.qvel, world.nv),
            (self.warm, self.body_warm, world.warmstart, world.nv),
        ):
            state = theirs[ids]
            ours[ids] = state[:, :size]
            if world.frees:
                bodies[rows, slots] = state[:, size:].reshape(
                    len(ids), world.frees, bodies.shape[2]
                )
        self._sense(world, ids)
        if not world.alone:
            touch = world.touches(ids)
            self.touch[rows, slots] = touch[:, : world.frees]
            self.touch[ids, self.calm.shape[1] :] = touch[:, world.frees :]

    def _sense(self, world: World, ids: np.ndarray) -> None:
        robot = self.robot.robot
        if world.closed_form:
            _, _, rows, body = robot.read(self.qpos[ids], self.qvel[ids])
            self.sensors[ids] = world.closed_form(body, rows, self.ctrl[ids])
        else:
            self.sensors[ids] = read_sensors(world.model, robot.sensors, world.sensordata[ids])

    def _guide(self, simulated: np.ndarray) -> None:
        """Move objects that were not simulated, and find those that have become calm."""
        assert self.free is not None
        ids = np.flatnonzero(simulated.any(1))
        self.untouched &= ~simulated
        if len(ids):
            self.calm[ids] = ~simulated[ids] | self._calm(ids)
        if self.free.guided:
            i, j = np.nonzero(self.calm)
            path = free_path(self.robot, self.free).until(int(self.steps.max()))
            at = self.steps[i]
            self.bodies[i, j, :2] = self.home[i, j, :2] + path.place[at, :2]
            self.bodies[i, j, 2], self.bodies[i, j, 3:] = path.place[at, 2], self.home[i, j, 2:]
            self.speeds[i, j, :3], self.speeds[i, j, 3:] = path.velocity[at], 0.0
            self.body_warm[i, j] = 0.0
        elif self.untouched.any():
            path = free_path(self.robot, self.free).until(self._settled)
            i, j = np.nonzero(self.untouched)
            at = np.minimum(self.steps[i], self._settled)
            self.bodies[i, j, 2] = path.place[at, 2]
            self.speeds[i, j, 2] = path.velocity[at, 2]
            self.untouched &= (self.steps < self._settled)[:, None]

    def _calm(self, ids: np.ndarray) -> np.ndarray:
        """Which objects of `ids` need not be simulated, [n, F]."""
        assert self.free is not None
        speeds = self.speeds[ids]
        if not self.free.guided:
            still = (np.abs(speeds) < STILL).all(2) & (np.abs(self.body_warm[ids]) < STEADY).all(2)
            return still | self.untouched[ids]
        path = free_path(self.robot, self.free).until(int(self.steps.max()))
        at, bodies, home = self.steps[ids], self.bodies[ids], self.home[ids]
        place = bodies[..., :3] - path.place[at, None]
        place[..., :2] -= home[..., :2]
        turn = np.abs(bodies[..., 3:] - home[..., 2:]).max(2)
        pace = np.abs(speeds[..., :3] - path.velocity[at, None]).max(2)
        spin = np.abs(speeds[..., 3:]).max(2)
        near = (np.abs(place).max(2) < CLOSE) & (turn < CLOSE)
        # At the start it may touch the floor, which depends on rounding.
        return near & (pace < 100 * CLOSE) & (spin < 100 * CLOSE) & (at > 0)[:, None]

    def _place_statics(self, ids: np.ndarray) -> None:
        for world in self.worlds:
            if world.statics:
                world.place_statics(ids, self.statics[ids])
