"""Replay recordings of the reference environment and measure the largest differences.

Here for the Goal tasks; `velocity.parity` and `family.parity` have the others. Point's turning
servo and Doggo's contacts are chaotic, so those are compared one step at a time from every recorded
state; Car also open loop. Layouts and redrawn goals must agree bit by bit.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.core.config import check_choice
from surefoot.envs import geometry, recordings
from surefoot.envs.family import parity as family
from surefoot.envs.navigation.goal import GoalConfig, GoalEnv
from surefoot.envs.navigation.robots import ROBOTS, PlanarRobot, load_model
from surefoot.envs.recordings import Recording, Report
from surefoot.envs.velocity import parity as velocity

ARRAYS = (
    "qpos", "qvel", "warm", "xpos", "act", "rew", "cost", "met", "obs", "goal", "haz", "xy0",
    "rot0", "seed",
)  # fmt: skip
OPEN_LOOP_TOLERANCE = 1e-6
OPEN_LOOP_ROBOTS = ("car",)


@dataclass(frozen=True)
class GoalParity(Report):
    """Largest absolute differences over one recording."""

    file: str
    robot: str
    steps: int
    position: float
    reward: float
    lidar: float
    accelerometer: float
    sensors: float
    cost_mismatches: int
    goal_mismatches: int
    layout_exact: bool
    redraws: int
    redraws_exact: int
    open_loop_position: float | None
    """Car only: largest distance when only the first state and the actions are given."""

    def limits(self) -> dict[str, float]:
        return {
            "position": 1e-8 if self.robot == "car" else 1e-9,
            "reward": 1e-9,
            "lidar": 1e-8,
            "accelerometer": 1e-5,
            "sensors": 1e-8,
            "cost_mismatches": 0,
            "goal_mismatches": 0,
            "open_loop_position": OPEN_LOOP_TOLERANCE,
        }

    def failures(self) -> list[str]:
        out = super().failures()
        if not self.layout_exact:
            out.append("layout differs")
        if self.redraws_exact != self.redraws:
            out.append(f"{self.redraws - self.redraws_exact} of {self.redraws} redraws differ")
        return out

    def line(self) -> str:
        columns = ("position", "reward", "lidar", "accelerometer", "sensors", "open_loop_position")
        return (
            f"{Path(self.file).name}: {self.steps} steps; {self.differences(*columns)}; "
            f"mismatches: {self.cost_mismatches} cost, {self.goal_mismatches} goal; "
            f"layout {'exact' if self.layout_exact else 'differs'}, "
            f"re-draws exact {self.redraws_exact} of {self.redraws}"
        )


def check(path: str | Path, robot: str | None = None) -> Report:
    """Measure one recording (.npz) of a Goal task (ARRAYS), a velocity task or the family.

    The robot is `robot`, else the recording's array "robot", else the first one whose model has
    the recorded numbers of positions, velocities and actuators.
    """
    path = Path(path)
    rec = recordings.load(path)
    if "spot" in rec:
        return velocity.check(path, rec, robot)
    if "layout_names" in rec:
        return family.check(path, rec, robot)
    recordings.require(path, rec, ARRAYS)
    name = robot or _robot_of(path, rec)
    check_choice("robot", name, ROBOTS)
    config = GoalConfig(robot=name, hazards=len(rec["haz"]))
    steps = len(rec["act"])
    env = recorded_states(config, rec)
    reward, costs, _, _ = env.advance(np.clip(rec["act"], -1, 1))
    met = geometry.distance(np, env.place, rec["goal"][:-1]) <= config.goal_size
    env.goal = rec["goal"][1:]  # redrawn goals are compared separately, below
    error = np.abs(env.observe(np.arange(steps)) - rec["obs"][1:])
    lidar = 2 * geometry.BINS
    layout_exact, redraws, exact = _layouts(config, rec)
    return GoalParity(
        file=str(path),
        robot=name,
        steps=steps,
        position=float(np.abs(env.position - rec["xpos"][1:]).max()),
        reward=float(np.abs(reward - rec["rew"]).max()),
        lidar=float(error[:, -lidar:].max()),
        accelerometer=float(error[:, :3].max()),
        sensors=float(error[:, 3:-lidar].max()),
        cost_mismatches=int((costs.sum(1) != rec["cost"]).sum()),
        goal_mismatches=int((met != rec["met"].astype(bool)).sum()),
        layout_exact=layout_exact,
        redraws=redraws,
        redraws_exact=exact,
        open_loop_position=_open_loop(config, rec) if name in OPEN_LOOP_ROBOTS else None,
    )


def recorded_states(config: GoalConfig, rec: Recording) -> GoalEnv:
    """As many environments as recorded steps, each in the state before its step."""
    steps = len(rec["act"])
    env = GoalEnv(config, num_envs=steps, seed=0)
    env.reset()
    qpos, qvel = _world_state(config.robot, rec)
    hazards = np.repeat(rec["haz"][None], steps, 0)
    env.set_state(qpos[:-1], qvel[:-1], rec["warm"][:-1], rec["goal"][:-1], hazards)
    env.distance = geometry.distance(np, rec["xpos"][:-1, :2], env.goal)
    return env


def _robot_of(path: Path, rec: Recording) -> str:
    if "robot" in rec:
        return str(rec["robot"])
    nq, nv, nu = (rec[name].shape[-1] for name in ("qpos", "qvel", "act"))
    for name in ROBOTS:
        model = load_model(name)
        if (model.nq, model.nv, model.nu) == (nq, nv, nu):
            return name
    raise ValueError(f"{path}: no robot has {nq} positions, {nv} velocities and {nu} actuators")


def _world_state(robot: str, rec: Recording) -> tuple[np.ndarray, np.ndarray]:
    """qpos and qvel in world axes; the reference records planar robots relative to their start."""
    if not isinstance(ROBOTS[robot], PlanarRobot):
        return rec["qpos"], rec["qvel"]
    c, s = np.cos(rec["rot0"]), np.sin(rec["rot0"])
    turn = np.array([[c, -s], [s, c]])
    qpos, qvel = rec["qpos"].copy(), rec["qvel"].copy()
    qpos[:, :2] = rec["xy0"] + rec["qpos"][:, :2] @ turn.T
    qpos[:, 2] += rec["rot0"]
    qvel[:, :2] = rec["qvel"][:, :2] @ turn.T
    return qpos, qvel


def _layouts(config: GoalConfig, rec: Recording) -> tuple[bool, int, int]:
    """Whether the seed gives the recorded layout, redrawn goals, and how many of those agree."""
    env = GoalEnv(config, num_envs=1, seed=int(rec["seed"]))
    env.reset()
    heading = env.heading[0] - rec["rot0"]
    same = (
        np.array_equal(env.hazards[0], rec["haz"])
        and np.array_equal(env.place[0], rec["xy0"])
        and abs(np.arctan2(np.sin(heading), np.cos(heading))) < 1e-12
        and np.array_equal(env.goal[0], rec["goal"][0])
    )
    exact = 0
    for t, met in enumerate(rec["met"].astype(bool)):
        env.streams.skip_one()
        if met:
            x, y = rec["xpos"][t + 1, :2]
            exact += env.draw_goal(0, (float(x), float(y))) == tuple(rec["goal"][t + 1])
    return bool(same), int(rec["met"].sum()), exact


def _open_loop(config: GoalConfig, rec: Recording) -> float:
    """Largest distance from the recording, given its first state and its actions only."""
    env = GoalEnv(config, num_envs=1, seed=int(rec["seed"]))
    env.reset()
    qpos, qvel = _world_state(config.robot, rec)
    env.simulation.set_state(qpos[:1], qvel[:1], rec["warm"][:1])
    worst = 0.0
    for action, expected in zip(np.clip(rec["act"], -1, 1), rec["xpos"][1:], strict=True):
        env.advance(action[None])
        worst = max(worst, float(np.abs(env.position[0] - expected).max()))
    return worst
