"""N robots of one kind, simulated together by MuJoCo on native threads."""

import numpy as np
from mujoco import mjtStage  # pyright: ignore[reportAttributeAccessIssue]

from surefoot.envs.navigation.robots import Robot, load_model
from surefoot.envs.navigation.sensors import read_sensors
from surefoot.envs.physics import Physics


class Simulation(Physics):
    """The robots alone: a task's objects do not touch them and are not simulated."""

    def __init__(
        self, robot: Robot, num_envs: int, threads: int, frame_skip: int, use_sensors: bool
    ):
        super().__init__(load_model(robot.name), num_envs, threads)
        self.robot, self.frame_skip = robot, frame_skip
        self._stage = mjtStage.mjSTAGE_NONE.value
        if use_sensors and robot.closed_form is None:
            # Sensors of the new state need one more forward pass.
            self._stage = mjtStage.mjSTAGE_ACC.value
            self._sensordata = self.batch.bind("sensordata")

    def forward(self, ids: np.ndarray) -> None:
        """Compute the sensors of robots that were placed."""
        if self._stage:
            self.batch.forward(ids, self._stage)

    def run(self, actions: np.ndarray) -> None:
        self.ctrl[:] = actions
        self.batch.step(nstep=self.frame_skip, stage=self._stage)

    def sensors(self, ids: np.ndarray, body: np.ndarray, rotation: np.ndarray) -> np.ndarray:
        """Sensors [len(ids), S] of the reference observation; needs `use_sensors`."""
        if self.robot.closed_form is not None:
            return self.robot.closed_form(self.model)(body, rotation, self.ctrl[ids])
        return read_sensors(self.model, self.robot.sensors, self._sensordata[ids])
