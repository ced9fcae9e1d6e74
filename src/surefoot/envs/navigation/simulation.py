"""N robots of one kind, simulated together by MuJoCo on native threads."""

import numpy as np

# Compiled names, which pyright cannot resolve.
from mujoco import mjtStage, mjtWarning  # pyright: ignore[reportAttributeAccessIssue]
from mujoco.batch import Batch, SimulationError

from surefoot.envs.navigation.robots import Robot, load_model
from surefoot.envs.navigation.sensors import read_sensors

# MuJoCo resets a simulation by itself, with one of these warnings, when its numbers blow up.
BLOW_UPS = [
    mjtWarning.mjWARN_BADQPOS.value,
    mjtWarning.mjWARN_BADQVEL.value,
    mjtWarning.mjWARN_BADQACC.value,
    mjtWarning.mjWARN_BADCTRL.value,
]


class Simulation:
    """The robots alone: a task's objects do not touch them and are not simulated."""

    def __init__(
        self, robot: Robot, num_envs: int, threads: int, frame_skip: int, use_sensors: bool
    ):
        self.robot, self.frame_skip = robot, frame_skip
        self.model = load_model(robot.name)
        self.batch = Batch(self.model, num_envs, min(threads, num_envs))
        self.qpos, self.qvel = self.batch.bind("qpos"), self.batch.bind("qvel")
        self.ctrl = self.batch.bind("ctrl")
        self._stage = mjtStage.mjSTAGE_NONE.value
        if use_sensors and robot.closed_form is None:
            # Sensors of the new state need one more forward pass.
            self._stage = mjtStage.mjSTAGE_ACC.value
            self._sensordata = self.batch.bind("sensordata")

    def reset(self, ids: np.ndarray) -> None:
        """Put the robots `ids` at rest, at the origin."""
        self.batch.reset(ids, stage=mjtStage.mjSTAGE_NONE.value)

    def forward(self, ids: np.ndarray) -> None:
        """Compute the sensors of robots that were placed."""
        if self._stage:
            self.batch.forward(ids, self._stage)

    def run(self, actions: np.ndarray) -> None:
        """The physics of one environment step, without looking for failures."""
        self.ctrl[:] = actions
        self.batch.step(nstep=self.frame_skip, stage=self._stage)

    def step(self, actions: np.ndarray) -> np.ndarray:
        """The physics of one environment step; returns which simulations failed, [N]."""
        failed = np.zeros(len(self.qpos), dtype=bool)
        warnings = self.batch.warning[..., 1]  # (last info, count)
        before = warnings.sum()
        counts = warnings[:, BLOW_UPS].sum(1) if before else 0
        try:
            self.run(actions)
        except SimulationError as error:
            failed[error.ids] = True
        if warnings.sum() != before:
            failed |= warnings[:, BLOW_UPS].sum(1) != counts
        return failed

    def sensors(self, ids: np.ndarray, body: np.ndarray, rotation: np.ndarray) -> np.ndarray:
        """Sensors [len(ids), S] of the reference observation; needs `use_sensors`."""
        if self.robot.closed_form is not None:
            return self.robot.closed_form(self.model)(body, rotation, self.ctrl[ids])
        return read_sensors(self.model, self.robot.sensors, self._sensordata[ids])

    def set_state(self, qpos: np.ndarray, qvel: np.ndarray, warmstart: np.ndarray) -> None:
        """Set positions [N, nq], velocities [N, nv] and the solver's warm start [N, nv]."""
        self.qpos[:], self.qvel[:] = qpos, qvel
        self.batch.bind("qacc_warmstart")[:] = warmstart
