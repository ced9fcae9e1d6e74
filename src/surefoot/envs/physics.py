"""N copies of one MuJoCo model, simulated together on native threads."""

import numpy as np

# Compiled names, which pyright cannot resolve.
from mujoco import MjModel, mjtStage, mjtWarning  # pyright: ignore[reportAttributeAccessIssue]
from mujoco.batch import Batch, SimulationError

# MuJoCo resets a simulation by itself, with one of these warnings, when its numbers blow up.
BLOW_UPS = [
    mjtWarning.mjWARN_BADQPOS.value,
    mjtWarning.mjWARN_BADQVEL.value,
    mjtWarning.mjWARN_BADQACC.value,
    mjtWarning.mjWARN_BADCTRL.value,
]


class Physics:
    """The simulations and their states."""

    def __init__(self, model: MjModel, num_envs: int, threads: int):
        self.model = model
        self.batch = Batch(model, num_envs, min(threads, num_envs))
        self.qpos, self.qvel = self.batch.bind("qpos"), self.batch.bind("qvel")
        self.ctrl, self.warmstart = self.batch.bind("ctrl"), self.batch.bind("qacc_warmstart")

    def reset(self, ids: np.ndarray) -> None:
        """Put the robots `ids` at rest, in the model's default pose."""
        self.batch.reset(ids, stage=mjtStage.mjSTAGE_NONE.value)

    def run(self, actions: np.ndarray) -> None:
        """The physics of one environment step, without looking for failures."""
        raise NotImplementedError

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

    def set_state(self, qpos: np.ndarray, qvel: np.ndarray, warmstart: np.ndarray) -> None:
        """Set positions [N, nq], velocities [N, nv] and the solver's warm start [N, nv]."""
        self.qpos[:], self.qvel[:], self.warmstart[:] = qpos, qvel, warmstart
