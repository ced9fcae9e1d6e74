"""Velocity tasks against recordings of the reference, one step from every recorded state.

A recording has several episodes, and between steps the robot may have been given another velocity.
So `pre` and `post` name the rows before and after each step.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.core.config import check_choice
from surefoot.envs import recordings
from surefoot.envs.recordings import Recording, Report
from surefoot.envs.velocity.env import VelocityConfig, VelocityEnv
from surefoot.envs.velocity.robots import ROBOTS, load_model

ARRAYS = (
    "qpos", "qvel", "warm", "obs", "spot", "first_row", "pre", "post", "act", "rew", "cost", "term",
    "seed",
)  # fmt: skip


@dataclass(frozen=True)
class VelocityParity(Report):
    """Largest absolute differences over one recording of version v1."""

    file: str
    robot: str
    steps: int
    position: float
    velocity: float
    observation: float
    """Relative to the recorded value where that is above 1."""
    reward: float
    cost_mismatches: int
    end_mismatches: int
    """Steps that terminated in one of the two only."""
    starts: int
    starts_exact: int
    """Initial states that agree bit by bit."""

    def limits(self) -> dict[str, float]:
        exact = {"position": 1e-12, "velocity": 1e-10, "observation": 1e-10, "reward": 1e-12}
        # Its solver stops before it has converged; most of the difference is in contact forces.
        loose = {"position": 1e-6, "velocity": 1e-4, "observation": 5e-3, "reward": 1e-5}
        counts = {"cost_mismatches": 0, "end_mismatches": 0}
        return (loose if self.robot == "humanoid" else exact) | counts

    def failures(self) -> list[str]:
        differ = self.starts - self.starts_exact
        words = [f"{differ} of {self.starts} initial states differ"] if differ else []
        return super().failures() + words

    def line(self) -> str:
        columns = ("position", "velocity", "observation", "reward")
        return (
            f"{Path(self.file).name}: {self.steps} steps; {self.differences(*columns)}; "
            f"mismatches: {self.cost_mismatches} cost, {self.end_mismatches} end; "
            f"initial states exact {self.starts_exact} of {self.starts}"
        )


def check(path: Path, rec: Recording, robot: str | None = None) -> VelocityParity:
    """Measure one recording; the robot is the recorded one if none is named."""
    recordings.require(path, rec, ARRAYS)
    name = robot or _robot_of(path, rec)
    check_choice("robot", name, ROBOTS)
    config, steps = VelocityConfig(robot=name), len(rec["act"])
    before, after = ({k: rec[k][rec[r]] for k in ARRAYS[:5]} for r in ("pre", "post"))
    env = VelocityEnv(config, num_envs=steps, seed=0)
    env.reset()
    place = before["spot"][:, : env.robot.axes]
    env.set_state(before["qpos"], before["qvel"], before["warm"], place)
    reward, cost, terminated, _ = env.advance(rec["act"])
    worst = lambda ours, recorded: float(np.abs(ours - recorded).max())
    scale = np.maximum(np.abs(after["obs"]), 1.0)
    return VelocityParity(
        file=str(path),
        robot=name,
        steps=steps,
        position=worst(env.simulation.qpos, after["qpos"]),
        velocity=worst(env.simulation.qvel, after["qvel"]),
        observation=worst(env.observe(np.arange(steps)) / scale, after["obs"] / scale),
        reward=worst(reward, rec["rew"]),
        cost_mismatches=int((cost[:, 0] != rec["cost"]).sum()),
        end_mismatches=int((terminated != rec["term"]).sum()),
        starts=len(rec["first_row"]),
        starts_exact=_exact_starts(config, rec),
    )


def _robot_of(path: Path, rec: Recording) -> str:
    """The robot with the recorded sizes whose pose at rest is nearest to the first state."""
    if "robot" in rec:
        return str(rec["robot"])
    sizes = tuple(rec[name].shape[-1] for name in ("qpos", "qvel", "act"))
    models = {name: load_model(name) for name in ROBOTS}
    fitting = [name for name, m in models.items() if (m.nq, m.nv, m.nu) == sizes]
    if not fitting:
        nq, nv, nu = sizes
        raise ValueError(f"{path}: no robot has {nq} positions, {nv} velocities and {nu} actuators")
    first = rec["qpos"][rec["first_row"][0]]
    return min(fitting, key=lambda name: np.abs(models[name].qpos0 - first).max())


def _exact_starts(config: VelocityConfig, rec: Recording) -> int:
    """Number of episodes whose initial state the seed gives; only the first is seeded."""
    env, exact = VelocityEnv(config, seed=int(rec["seed"])), 0
    for row in rec["first_row"]:
        env.reset()
        exact += all(
            np.array_equal(ours[0], rec[name][row])
            for name, ours in (("qpos", env.simulation.qpos), ("qvel", env.simulation.qvel))
        )
    return exact
