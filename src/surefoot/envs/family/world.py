"""MuJoCo models of a robot among some of its task's solid objects, and their simulation."""
# pyright: reportAttributeAccessIssue=false
# (pyright cannot resolve the names of compiled modules)

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import sqrt

import mujoco
import numpy as np
from mujoco import MjModel, mjtDisableBit
from mujoco.batch import SimulationError

from surefoot.envs.family.config import FamilyConfig
from surefoot.envs.family.robots import FamilyRobot, robot_of
from surefoot.envs.navigation.robots import load_model
from surefoot.envs.physics import Physics, RungeKutta

FRAME_SKIP = 10
FLOOR, SOLID, ROBOT = 1, 2, 4  # contact bits
LARGEST = 1e10
TRAVEL, RIDE = 0.35, 0.1  # radius of a gremlin's circle; how far it is lifted


@dataclass(frozen=True)
class Solid:
    """A kind of solid object."""

    geoms: str
    """MJCF; {solid} stands for what all solids have in common."""
    height: float
    """Of its centre at the start of an episode."""
    half: float
    """Half its width; half its diameter if it is round."""
    radius: float
    """No part of it is farther from its centre than this, however it lies."""
    density: float = 0.001
    guided: bool = False
    """Welded to a mocap body, as gremlins are."""


def _cube(half: float) -> str:
    return f'<geom type="box" size="{half} {half} {half}" {{solid}}/>'


def _box(half: float) -> str:
    posts = "".join(
        f'<geom type="box" size="{half / 2} {half / 2} {half}" pos="{x} {y} 0" {{solid}}/>'
        for x, y in ((half, half), (-half, half), (half, -half), (-half, -half))
    )
    return _cube(half) + posts


SOLIDS = {
    "vases": Solid(_cube(0.1), 0.1 - 4e-5, 0.1, 0.175),
    "gremlins": Solid(_cube(0.1), 0.1, 0.1, 0.175, guided=True),
    "buttons": Solid('<geom type="sphere" size=".1" {solid}/>', 0.1, 0.1, 0.1),
    "pillars": Solid('<geom type="cylinder" size=".2 .5" {solid}/>', 0.5, 0.2, 0.2),
}


def solid_of(config: FamilyConfig, kind: str) -> Solid:
    """The shape of a kind of objects."""
    if kind == "push_box":
        half, density = robot_of(config).box
        return Solid(_box(half), half, 1.5 * half, half * sqrt(5.5), density)
    return SOLIDS[kind]


Solids = tuple[Solid | None, int]
"""A kind of objects and how many there are."""
NONE: Solids = (None, 0)


@cache
def compile_world(robot: FamilyRobot, movable: Solids = NONE, fixed: Solids = NONE) -> MjModel:
    """A robot with objects that move and objects that do not. Do not change it."""
    (free, frees), (still, statics) = movable, fixed
    if not (frees or statics) and not robot.runge_kutta:
        return load_model(robot.robot.name)
    bodies = sensors = welds = ""

    def body(name: str, solid: Solid, start: str) -> str:
        shared = f'contype="{SOLID}" conaffinity="{FLOOR | SOLID | ROBOT}" condim="6"'
        shared += f' friction="1 .005 .0001" density="{solid.density}"'
        return f'<body name="{name}" {start}>{solid.geoms.format(solid=shared)}</body>'

    def touch(name: str) -> str:
        return (
            f'<contact name="touch_{name}" subtree1="robot" body2="{name}" data="found" num="1"/>'
        )

    for j in range(frees):
        assert free is not None
        name, place = f"free{j}", f'pos="{50 + j} 50 {free.height}"'
        bodies += body(name, free, place).replace(">", "><freejoint/>", 1)
        sensors += touch(name)
        if free.guided:
            bodies += f'<body name="guide{j}" mocap="true"/>'
            ends = f'name="{name}" body1="guide{j}" body2="{name}"'
            welds += f'<weld {ends} solref=".02 1.5" relpose="0 0 0 1 0 0 0"/>'
    for j in range(statics):
        assert still is not None
        bodies += body(f"fixed{j}", still, f'mocap="true" pos="{-50 - j} 50 {still.height}"')
        sensors += touch(f"fixed{j}")
    xml = files("surefoot.envs.navigation").joinpath("assets", robot.robot.asset).read_text()
    xml = xml.replace("</worldbody>", f"{bodies}</worldbody><equality>{welds}</equality>")
    spec = mujoco.MjSpec.from_string(xml.replace("</sensor>", f"{sensors}</sensor>"))
    for geom in spec.geoms:
        if robot.heavy is not None and geom.name.startswith("foot"):
            geom.density = robot.heavy
        if geom.name == "floor":
            geom.contype, geom.conaffinity = FLOOR, ROBOT
        elif not geom.contype & SOLID:
            geom.contype = ROBOT if robot.floor else SOLID
            geom.conaffinity = geom.contype if robot.collides_with_itself else 0
    model = spec.compile()
    model.opt.disableflags &= ~mjtDisableBit.mjDSBL_CONTACT.value
    for j in range(frees if free is not None and free.guided else 0):
        # The reference's MuJoCo scaled a weld's rotation by the inverse mass, not inertia.
        place, turn = model.body_invweight0[model.body(f"free{j}").id]
        model.eq_data[model.equality(f"free{j}").id, 10] = sqrt(turn / place)
    return model


class World(Physics):
    """N copies of a model with `frees` slots for movable and `statics` for fixed objects."""

    def __init__(
        self, robot: FamilyRobot, movable: Solids, fixed: Solids, native_ccd: bool, num_envs: int,
        threads: int,
    ):  # fmt: skip
        self.robot, (free, frees), (_, statics) = robot, movable, fixed
        model = compile_world(robot, movable, fixed)
        super().__init__(model, num_envs, threads)
        self.frees, self.statics = frees, statics
        self.alone = not (frees or statics)
        bare = compile_world(robot)
        self.nq, self.nv = bare.nq, bare.nv
        make_sensors = robot.robot.closed_form if self.alone else None
        self.closed_form = make_sensors and make_sensors(model)
        self.guided = bool(frees and free and free.guided)
        self._mocap = self.batch.bind("mocap_pos"), self.batch.bind("mocap_quat")
        self._qacc = self.batch.bind("qacc")
        if not self.closed_form:
            self.sensordata = self.batch.bind("sensordata")
            names = [f"free{j}" for j in range(frees)] + [f"fixed{j}" for j in range(statics)]
            adr = [model.sensor(f"touch_{name}").adr[0] for name in names]
            self._touch = np.array(adr, dtype=np.intp)
        flags = model.opt.disableflags
        if not native_ccd:
            flags |= mjtDisableBit.mjDSBL_NATIVECCD.value
        quiet = mjtDisableBit.mjDSBL_SENSOR.value  # sensors of intermediate states are unused
        self._flags = self.batch.expand("opt.disableflags"), flags | quiet, flags
        self._runge_kutta = RungeKutta(model) if self.robot.runge_kutta else None
        self._ids, self._guides, self._seconds = np.arange(num_envs), np.zeros(0), np.zeros(0)
        self._broken = np.zeros(num_envs, dtype=bool)

    def place_statics(self, ids: np.ndarray, xy: np.ndarray) -> None:
        """Put the fixed objects of `ids` at xy [n, S, 2]."""
        first = self.frees * self.guided
        self._mocap[0][ids, first:, :2] = xy

    def load(
        self, ids: np.ndarray, robot: tuple[np.ndarray, ...], bodies: tuple[np.ndarray, ...],
        guides: np.ndarray, quats: np.ndarray, seconds: np.ndarray,
    ) -> None:  # fmt: skip
        """Take over states: qpos, qvel and warm start of robots [n, _] and of bodies [n, k, _].

        Gremlins follow `guides` [n, k, 2], with the orientation `quats` [n, k, 4].
        """
        self._ids, self._guides, self._seconds = ids, guides, seconds
        for ours, theirs, free, size in zip(
            (self.qpos, self.qvel, self.warmstart), robot, bodies, (self.nq, self.nv, self.nv),
            strict=True,
        ):  # fmt: skip
            ours[ids, :size] = theirs
            if self.frees:
                ours[ids, size:] = free.reshape(len(ids), -1)
        if self.guided:
            self._mocap[1][ids, : self.frees] = quats

    def run(self, actions: np.ndarray) -> None:
        ids, whole = self._ids, len(self._ids) == len(self.qpos)
        self.ctrl[ids] = actions
        some = None if whole else ids
        flags, quiet, loud = self._flags
        flags[:] = quiet
        if self._runge_kutta is None and not self.guided:
            self.batch.step(some, FRAME_SKIP)
        else:
            for k in range(FRAME_SKIP):
                self._move_guides(k * self.model.opt.timestep)
                if self._runge_kutta is None:
                    self.batch.step(some)
                else:
                    self._integrate(some)
        flags[:] = loud
        if not self.closed_form:
            self.batch.forward(some)

    def forward(self, ids: np.ndarray) -> None:
        """Compute the sensors of robots that were placed."""
        if not self.closed_form:
            self.batch.forward(ids)

    def touches(self, ids: np.ndarray) -> np.ndarray:
        """Whether robots touch the objects, first movable ones: [n, k + S]."""
        return self.sensordata[ids[:, None], self._touch] > 0

    def step(self, actions: np.ndarray) -> np.ndarray:
        self._broken[:] = False
        failed = super().step(actions) | self._broken
        if self._runge_kutta is not None:  # MuJoCo's checks are part of its integrator
            for values in (self.qpos[self._ids], self.qvel[self._ids]):
                failed[self._ids] |= ~(np.abs(values) < LARGEST).all(1)
        return failed

    def _move_guides(self, offset: float) -> None:
        if self.guided:
            t = self._seconds + offset
            guide = self._mocap[0]
            guide[self._ids, : self.frees, 0] = self._guides[..., 0] + (TRAVEL * np.sin(t))[:, None]
            guide[self._ids, : self.frees, 1] = self._guides[..., 1] + (TRAVEL * np.cos(t))[:, None]
            guide[self._ids, : self.frees, 2] = 0.1 + RIDE

    def _integrate(self, some: np.ndarray | None) -> None:
        """One physics step by the classical scheme."""
        assert self._runge_kutta is not None
        ids = self._ids
        qpos, qvel = self.qpos[ids], self.qvel[ids]

        def accelerations() -> np.ndarray:
            self.qpos[ids], self.qvel[ids] = qpos, qvel
            try:
                self.batch.forward(some)
            except SimulationError as error:  # the others ran
                self._broken[error.ids] = True
            acceleration = self._qacc[ids]
            self.warmstart[ids] = acceleration
            return acceleration

        self._runge_kutta.step(qpos, qvel, accelerations)
        self.qpos[ids], self.qvel[ids] = qpos, qvel
