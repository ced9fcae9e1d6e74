"""N copies of one MuJoCo model, simulated together on native threads."""

# pyright: reportAttributeAccessIssue=false
# (pyright cannot resolve the names of compiled modules)

from collections.abc import Callable

import numpy as np
from mujoco import MjModel, mjtJoint, mjtStage, mjtWarning
from mujoco.batch import Batch, SimulationError

# MuJoCo resets a simulation by itself, with one of these warnings, when its numbers blow up.
BLOW_UPS = [
    mjtWarning.mjWARN_BADQPOS.value,
    mjtWarning.mjWARN_BADQVEL.value,
    mjtWarning.mjWARN_BADQACC.value,
    mjtWarning.mjWARN_BADCTRL.value,
]
TINY = 1e-150
"""Instead of a zero angle to divide by; its square underflows."""


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


class RungeKutta:
    """The classical scheme, with a forward pass for each of its stages.

    MuJoCo's own has changed for free joints since the reference's version; without them, the two
    agree. Models must have no ball joints.
    """

    def __init__(self, model: MjModel):
        free = model.jnt_type == mjtJoint.mjJNT_FREE.value
        at, dof = model.jnt_qposadr, model.jnt_dofadr
        # Columns of qpos and qvel: places and quaternions of free joints, and all other joints.
        self._place = (at[free, None] + np.arange(3), dof[free, None] + np.arange(3))
        self._turn = (at[free, None] + np.arange(3, 7), dof[free, None] + np.arange(3, 6))
        self._other = (at[~free], dof[~free])
        self._dt = model.opt.timestep

    def step(
        self, qpos: np.ndarray, qvel: np.ndarray, accelerations: Callable[[], np.ndarray]
    ) -> None:
        """One physics step of qpos [N, nq] and qvel [N, nv], in place.

        `accelerations` runs a forward pass at what these arrays then hold, and returns [N, nv].
        """
        dt, start, speed = self._dt, qpos.copy(), qvel.copy()
        products = quaternion_products(start[:, self._turn[0]])
        velocity, acceleration = speed, accelerations()
        velocities, total = speed.copy(), acceleration.copy()
        for share, weight in ((0.5, 2.0), (0.5, 2.0), (1.0, 1.0)):
            self._move(qpos, start, products, (share * dt) * velocity)
            velocity = speed + (share * dt) * acceleration
            qvel[:] = velocity
            acceleration = accelerations()
            velocities += weight * velocity
            total += weight * acceleration
        self._move(qpos, start, products, (dt / 6) * velocities)
        qvel[:] = speed + (dt / 6) * total

    def _move(
        self, qpos: np.ndarray, start: np.ndarray, products: np.ndarray, change: np.ndarray
    ) -> None:
        """Set positions to `start` [N, nq] moved by `change` [N, nv]."""
        turn = change[:, self._turn[1]]
        angle = np.sqrt((turn * turn).sum(2))
        quaternion = np.empty((*turn.shape[:2], 4))
        quaternion[..., 0] = np.cos(0.5 * angle)
        quaternion[..., 1:] = turn * (np.sin(0.5 * angle) / np.maximum(angle, TINY))[..., None]
        qpos[:, self._turn[0]] = (products * quaternion[:, :, None]).sum(3)
        for at, dof in (self._place, self._other):
            qpos[:, at] = start[:, at] + change[:, dof]


def quaternion_products(quaternions: np.ndarray) -> np.ndarray:
    """Matrices [..., 4, 4] that multiply with the normalised quaternions [..., 4] from the left."""
    unit = quaternions / np.linalg.norm(quaternions, axis=-1, keepdims=True)
    w, x, y, z = np.moveaxis(unit, -1, 0)
    rows = ((w, -x, -y, -z), (x, w, -z, y), (y, z, w, -x), (z, -y, x, w))
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))
