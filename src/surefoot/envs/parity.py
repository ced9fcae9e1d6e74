"""Replay recordings of the reference environment and measure how far ours is from it.

Point's turning servo and Doggo's contacts are chaotic, so those are compared one step at a time
from every recorded state; Car also open loop. Layouts and goal re-draws must agree bit by bit.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from surefoot.envs import geometry
from surefoot.envs.navigation.goal import GoalConfig, GoalEnv

ARRAYS = (
    "qpos", "qvel", "warm", "xpos", "act", "rew", "cost", "met", "obs", "goal", "haz", "xy0",
    "rot0", "seed",
)  # fmt: skip
ROBOT_OF_SIZE = {3: "point", 13: "car", 20: "doggo"}
OPEN_LOOP_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Parity:
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
    """Car only: largest distance over the whole recording from initial state and actions alone."""

    def failures(self) -> list[str]:
        """What lies outside the tolerance, in words; empty when all is well."""
        limits = {
            "position": 1e-8 if self.robot == "car" else 1e-9,
            "reward": 1e-9,
            "lidar": 1e-8,
            "accelerometer": 1e-5,
            "sensors": 1e-8,
            "cost_mismatches": 0,
            "goal_mismatches": 0,
        }
        out = [
            f"{name} {getattr(self, name):.3g} > {limit:g}"
            for name, limit in limits.items()
            if not getattr(self, name) <= limit
        ]
        if not self.layout_exact:
            out.append("layout differs")
        if self.redraws_exact != self.redraws:
            out.append(f"{self.redraws - self.redraws_exact} of {self.redraws} re-draws differ")
        if self.open_loop_position is not None and not (
            self.open_loop_position <= OPEN_LOOP_TOLERANCE
        ):
            out.append(f"open loop {self.open_loop_position:.3g} > {OPEN_LOOP_TOLERANCE:g}")
        return out

    def as_dict(self) -> dict:
        """For --json."""
        failures = self.failures()
        return {**asdict(self), "ok": not failures, "failures": failures}


def check(path: str | Path) -> Parity:
    """Measure one recording (.npz with the arrays named in ARRAYS)."""
    path = Path(path)
    rec = _load(path)
    robot = ROBOT_OF_SIZE[rec["qpos"].shape[1]]
    qpos, qvel = _world_state(robot, rec)
    config = GoalConfig(robot=robot, hazards=len(rec["haz"]))
    steps = len(rec["act"])
    env = GoalEnv(config, num_envs=steps, seed=0)
    env.reset()
    _set_state(env, qpos[:-1], qvel[:-1], rec["warm"][:-1])
    env.goal, env.hazards = rec["goal"][:-1], np.repeat(rec["haz"][None], steps, 0)
    env.distance = geometry.distance(np, rec["xpos"][:-1, :2], env.goal)
    reward, costs, _, _ = env._advance(np.clip(rec["act"], -1, 1))
    met = geometry.distance(np, env.place, rec["goal"][:-1]) <= config.goal_size
    position = env.position
    env.goal = rec["goal"][1:]  # the re-drawn goal is checked on its own, below
    obs = env._observe(np.arange(steps))
    error = np.abs(obs - rec["obs"][1:])
    lidar = 2 * geometry.BINS
    layout_exact, redraws, exact = _layouts(config, rec)
    return Parity(
        file=str(path),
        robot=robot,
        steps=steps,
        position=float(np.abs(position - rec["xpos"][1:]).max()),
        reward=float(np.abs(reward - rec["rew"]).max()),
        lidar=float(error[:, -lidar:].max()),
        accelerometer=float(error[:, :3].max()),
        sensors=float(error[:, 3:-lidar].max()),
        cost_mismatches=int((costs.sum(1) != rec["cost"]).sum()),
        goal_mismatches=int((met != rec["met"].astype(bool)).sum()),
        layout_exact=layout_exact,
        redraws=redraws,
        redraws_exact=exact,
        open_loop_position=_open_loop(config, rec, qpos, qvel) if robot == "car" else None,
    )


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as data:
            rec = {name: np.asarray(data[name]) for name in ARRAYS if name in data}
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except (OSError, EOFError, ValueError, TypeError, BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as .npz: {error}") from None
    missing = [name for name in ARRAYS if name not in rec]
    if missing:
        raise ValueError(f"{path} is not a recording: it lacks {', '.join(missing)}")
    size = rec["qpos"].shape[-1]
    if size not in ROBOT_OF_SIZE:
        raise ValueError(
            f"{path}: qpos has {size} numbers per state; known robots have "
            + ", ".join(f"{n} ({name})" for n, name in ROBOT_OF_SIZE.items())
        )
    return rec


def _world_state(robot: str, rec: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """qpos and qvel in the world's axes; the reference's Point moves relative to its start."""
    if robot != "point":
        return rec["qpos"], rec["qvel"]
    c, s = np.cos(rec["rot0"]), np.sin(rec["rot0"])
    turn = np.array([[c, -s], [s, c]])
    qpos, qvel = rec["qpos"].copy(), rec["qvel"].copy()
    qpos[:, :2] = rec["xy0"] + rec["qpos"][:, :2] @ turn.T
    qpos[:, 2] += rec["rot0"]
    qvel[:, :2] = rec["qvel"][:, :2] @ turn.T
    return qpos, qvel


def _set_state(env: GoalEnv, qpos: np.ndarray, qvel: np.ndarray, warm: np.ndarray) -> None:
    env._qpos[:], env._qvel[:] = qpos, qvel
    env._batch.bind("qacc_warmstart")[:] = warm


def _layouts(config: GoalConfig, rec: dict[str, np.ndarray]) -> tuple[bool, int, int]:
    """Whether the seed gives the same layout, and how many of the goal re-draws are the same."""
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
            exact += env._draw_goal(0, (float(x), float(y))) == tuple(rec["goal"][t + 1])
    return bool(same), int(rec["met"].sum()), exact


def _open_loop(
    config: GoalConfig, rec: dict[str, np.ndarray], qpos: np.ndarray, qvel: np.ndarray
) -> float:
    """Largest distance from the recording, given its first state and its actions only."""
    env = GoalEnv(config, num_envs=1, seed=int(rec["seed"]))
    env.reset()
    _set_state(env, qpos[:1], qvel[:1], rec["warm"][:1])
    worst = 0.0
    for action, there in zip(np.clip(rec["act"], -1, 1), rec["xpos"][1:], strict=True):
        env._advance(action[None])
        worst = max(worst, float(np.abs(env.position[0] - there).max()))
    return worst
