"""N robots of one kind, simulated together as the reference's MuJoCo 2.3.3 did."""

import numpy as np

# Compiled names, which pyright cannot resolve.
from mujoco import mjtJoint, mju_normalize4  # pyright: ignore[reportAttributeAccessIssue]
from mujoco.batch import SimulationError

from surefoot.envs.physics import Physics, RungeKutta
from surefoot.envs.velocity.robots import ROBOTS, load_model

LARGEST = 1e10
"""MuJoCo's own bound on positions and velocities."""


class Simulation(Physics):
    """Robots with a free root are integrated here: MuJoCo's Runge-Kutta scheme has changed."""

    def __init__(self, robot: str, num_envs: int, threads: int):
        super().__init__(load_model(robot), num_envs, threads)
        self.robot = ROBOTS[robot]
        self.seconds = self.robot.frame_skip * self.model.opt.timestep
        self._free = self.model.jnt_type[0] == mjtJoint.mjJNT_FREE.value
        self._runge_kutta = RungeKutta(self.model)
        self._broken = np.zeros(num_envs, dtype=bool)
        self._qacc = self.batch.bind("qacc")
        self._place = None if self.robot.place == "qpos" else self.batch.bind(self.robot.place)
        self._mass = self.model.body_mass / self.model.body_mass.sum()
        self._extras = [self.batch.bind(name).reshape(num_envs, -1) for name in self.robot.extras]

    def forward(self, ids: np.ndarray) -> None:
        """Compute the accelerations of robots that were placed, as the reference's reset does."""
        for i in ids if self._free else ():  # the reference's forward pass normalises in place
            mju_normalize4(self.qpos[i, 3:7])
        self.batch.forward(ids)
        self.warmstart[ids] = self._qacc[ids]

    def places(self) -> np.ndarray:
        """Horizontal positions [N, axes] in the last forward pass, whose changes are speeds.

        MuJoCo moves bodies only in the forward pass, so those of bodies lag behind the joints.
        """
        if self._place is None:
            return self.qpos[:, : self.robot.axes].copy()
        if self.robot.place == "xpos":
            return self._place[:, 1, : self.robot.axes].copy()
        # In a fixed order: einsum and matmul round differently for other numbers of robots.
        return np.add.accumulate(self._mass[:, None] * self._place[..., :2], 1)[:, -1]

    def extras(self) -> np.ndarray:
        """Further observations [N, E] from the last forward pass."""
        return np.concatenate([*self._extras, np.empty((len(self.qpos), 0))], 1)

    def step(self, actions: np.ndarray) -> np.ndarray:
        self._broken[:] = False
        failed = super().step(actions) | self._broken
        if self._free:  # MuJoCo's checks are part of its integrator
            bounded = (np.abs(self.qpos) < LARGEST).all(1) & (np.abs(self.qvel) < LARGEST).all(1)
            failed |= ~bounded
        if failed.any():
            ids = np.flatnonzero(failed)
            self.reset(ids)
            self.forward(ids)
        return failed

    def run(self, actions: np.ndarray) -> None:
        self.ctrl[:] = actions
        if not self._free:
            return self.batch.step(nstep=self.robot.frame_skip)
        for _ in range(self.robot.frame_skip):
            self._runge_kutta.step(self.qpos, self.qvel, self._accelerations)

    def _accelerations(self) -> np.ndarray:
        try:
            self.batch.forward()
        except SimulationError as error:  # the others ran
            self._broken[error.ids] = True
        self.warmstart[:] = self._qacc
        return self._qacc.copy()
