"""The family's tasks against recordings of the reference, one step from every recorded state.

A recording has several episodes, and between steps the robot may have been moved. So `pre` and
`post` name the rows before and after each step. Contacts of boxes differ between versions of
MuJoCo, so most tolerances are shares of the steps. Everything that is drawn must agree bit by bit.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from surefoot.envs import recordings
from surefoot.envs.family.config import LEVELS, ROBOT_NAMES, FamilyConfig, RobotName, stock
from surefoot.envs.family.env import FamilyEnv
from surefoot.envs.family.robots import robot_of
from surefoot.envs.family.world import compile_world
from surefoot.envs.navigation.robots import PlanarRobot
from surefoot.envs.recordings import Recording, Report

ARRAYS = (
    "qpos", "qvel", "warm", "time", "xpos", "obs", "episode", "pre", "post", "act", "rew", "cost",
    "term", "met", "contact", "geom_name", "robot_geom", "layout_names", "layout_xy", "layout_yaw",
    "first_row", "seed",
)  # fmt: skip
SINGULAR = {
    "hazards": "hazard", "vases": "vase", "buttons": "button", "gremlins": "gremlin",
    "pillars": "pillar", "walls": "sigwall",
}  # fmt: skip
EXACT, NEAR = 1e-9, 1e-3
MOVING = 1e-3  # metres or radians per second


@dataclass(frozen=True)
class FamilyParity(Report):
    """Differences over one recording."""

    file: str
    robot: str
    task: str
    steps: int
    position: float
    """Largest distance of the robot from where it should be, in metres."""
    near: float
    """Share of the steps in which it is within a millimetre."""
    untouched: float
    """Share of the steps without contact of objects in which all positions agree to 1e-9."""
    bodies: float
    """Largest distance of a movable object from where it should be."""
    reward: float
    lidar: float
    """Largest difference at the recorded states."""
    sensors: float
    """Largest difference, relative to values above 1, in steps that are exact without contact."""
    cost_mismatches: int
    kind_mismatches: int
    """Steps in which any kind of cost differs."""
    goal_mismatches: int
    end_mismatches: int
    timer_mismatches: int
    layouts: int
    layouts_exact: int
    redraws: int
    redraws_exact: int

    def limits(self) -> dict[str, float]:
        kinds = {"goal_mismatches": 0, "end_mismatches": 0, "timer_mismatches": 0}
        kinds |= {"lidar": 1e-9, "sensors": 1e-3}
        if self.robot in ("racecar", "ant"):
            return {**kinds, "position": 3e-2, "cost_mismatches": 0.03 * self.steps}
        if self.task[:-1] in ("circle", "run"):
            return {**kinds, "position": EXACT, "cost_mismatches": 0}
        share = 0.025 if (self.robot, self.task) == ("car", "push2") else 0.02
        return {**kinds, "position": 5e-3, "cost_mismatches": share * self.steps}

    def failures(self) -> list[str]:
        out, loose = super().failures(), self.robot in ("racecar", "ant")
        least = {"near": 0.97 if loose else 0.96, "untouched": 0.0 if loose else 0.93}
        out += [
            f"{k} {getattr(self, k):.3f} < {x:g}" for k, x in least.items() if getattr(self, k) < x
        ]
        for what in ("layouts", "redraws"):
            differ = getattr(self, what) - getattr(self, f"{what}_exact")
            out += [f"{differ} of {getattr(self, what)} {what} differ"] if differ else []
        return out

    def line(self) -> str:
        columns = ("position", "bodies", "reward", "lidar", "sensors")
        return (
            f"{Path(self.file).name}: {self.steps} steps; {self.differences(*columns)}; "
            f"within 1 mm {self.near:.1%}, untouched exact {self.untouched:.1%}; "
            f"mismatches: {self.cost_mismatches} cost ({self.kind_mismatches} by kind), "
            f"{self.goal_mismatches} goal, "
            f"{self.end_mismatches} end, {self.timer_mismatches} timer; "
            f"layouts exact {self.layouts_exact} of {self.layouts}, "
            f"re-draws exact {self.redraws_exact} of {self.redraws}"
        )


def check(path: Path, rec: Recording, robot: str | None = None) -> FamilyParity:
    """Measure one recording of a stock task; the robot is the recorded one if none is named."""
    recordings.require(path, rec, ARRAYS)
    config, task = _config_of(path, rec, robot)
    steps, before, after = len(rec["act"]), rec["pre"], rec["post"]
    env = FamilyEnv(config, num_envs=steps, seed=0)
    low, high = env.simulation.model.actuator_ctrlrange.T
    _restore(env, rec, before)
    timer = env.timer.copy()
    reward, _, terminated, _ = env.advance(np.clip(rec["act"], low, high))
    robot_gap = np.abs(env.reading.position - rec["xpos"][after]).max(1)
    nq = env.simulation.qpos.shape[1]
    bodies = rec["qpos"][after][:, nq:].reshape(steps, env.simulation.calm.shape[1], 7)[..., :3]
    gaps = np.abs(env.simulation.bodies[..., :3] - bodies).max((1, 2), initial=0.0)
    exact = (robot_gap < EXACT) & (gaps < EXACT)
    touched = _touched(rec, env.simulation.calm.shape[1])
    cost = env.costs.any(1)
    kinds = [np.nan_to_num(rec[f"cost_{name}"]) for name in config.cost_kinds]
    wrong_kinds = int(np.any(kinds != env.costs.T, axis=0).sum()) if kinds else 0
    size = env.simulation.sensors.shape[1]
    recorded = rec["obs"][after][:, :size]
    error = np.abs(env.simulation.sensors - recorded) / np.maximum(np.abs(recorded), 1.0)
    expected_timer = np.where(env.met, config.button_delay, np.maximum(timer - 1, 0))
    met, wrong_timer = env.met.copy(), 0
    if config.task == "button":
        wrong_timer = int((expected_timer != rec["timer"][after]).sum())
    layouts_exact, redraws_exact = _draws(config, rec)
    _restore(env, rec, after)
    lidar = np.abs(env.observe(np.arange(steps)) - rec["obs"][after])[:, size:]
    return FamilyParity(
        file=str(path),
        robot=config.robot,
        task=task,
        steps=steps,
        position=float(robot_gap.max()),
        near=float((robot_gap < NEAR).mean()),
        untouched=float(exact[~touched].mean()),
        bodies=float(gaps.max()),
        reward=float(np.abs(reward - rec["rew"]).max()),
        lidar=float(lidar.max(initial=0.0)),
        sensors=float(error[exact & ~touched].max(initial=0.0)),
        kind_mismatches=wrong_kinds,
        cost_mismatches=int((cost != rec["cost"].astype(bool)).sum()),
        goal_mismatches=int((met != rec["met"].astype(bool)).sum()),
        end_mismatches=int((terminated != rec["term"].astype(bool)).sum()),
        timer_mismatches=wrong_timer,
        layouts=len(rec["first_row"]),
        layouts_exact=layouts_exact,
        redraws=int(rec["met"].sum()),
        redraws_exact=redraws_exact,
    )


def _config_of(path: Path, rec: Recording, robot: str | None) -> tuple[FamilyConfig, str]:
    """The stock task with the recorded objects, and the robot with the recorded sizes."""
    names = rec["layout_names"].tolist()
    bodies = sum(name.startswith(("vase", "gremlin", "push_box")) for name in names)
    sizes = rec["qpos"].shape[1] - 7 * bodies, rec["act"].shape[1]
    robots: tuple[RobotName, ...] = tuple(r for r in ROBOT_NAMES if robot in (None, r))
    for who, (task, levels) in product(robots, LEVELS.items()):
        model = compile_world(robot_of(stock(who, task, 0)))
        if (model.nq, model.nu) != sizes:
            continue
        for level in levels:
            config = stock(who, task, level)
            if _names(config) == names:
                return config, f"{task}{level}"
    raise ValueError(f"{path}: no stock task has the recorded robot and objects")


def _names(config: FamilyConfig) -> list[str]:
    kinds = [slot.kind for slot in config.slots()]
    numbers = [kinds[:i].count(kind) for i, kind in enumerate(kinds)]
    return [
        f"{SINGULAR[k]}{n}" if k in SINGULAR else k for k, n in zip(kinds, numbers, strict=True)
    ]


def _restore(env: FamilyEnv, rec: Recording, rows: np.ndarray) -> None:
    """Set the environments to recorded rows."""
    simulation, episode, n = env.simulation, rec["episode"][rows], len(rows)
    xy, yaw = rec["layout_xy"][episode], rec["layout_yaw"][episode]
    state = [rec[name][rows] for name in ("qpos", "qvel", "warm")]
    sizes = [x.shape[1] for x in (simulation.qpos, simulation.qvel, simulation.warm)]
    robot = [x[:, :k].copy() for x, k in zip(state, sizes, strict=True)]
    frees = simulation.calm.shape[1]
    bodies = [
        x[:, k:].reshape(n, frees, size) for x, k, size in zip(state, sizes, (7, 6, 6), strict=True)
    ]
    if isinstance(simulation.robot.robot, PlanarRobot):
        # The reference's planar robots move relative to where they were put.
        c, s = np.cos(yaw[:, 0]), np.sin(yaw[:, 0])
        for part in robot:
            x, y = part[:, 0].copy(), part[:, 1].copy()
            part[:, 0], part[:, 1] = c * x - s * y, s * x + c * y
        robot[0][:, :2] += xy[:, 0]
        robot[0][:, 2] += yaw[:, 0]
    home = np.zeros((n, len(env.free_slots), 6))
    home[..., :2] = xy[:, env.free_slots]
    half = yaw[:, env.free_slots] / 2
    home[..., 2], home[..., 5] = np.cos(half), np.sin(half)
    steps = np.rint(rec["time"][rows] / simulation.dt).astype(np.int64)
    simulation.set_state(tuple(robot), tuple(bodies), home, xy[:, env.fixed_slots], steps)
    env.hazards = xy[:, [s.kind == "hazards" for s in env.slots]]
    zeros = np.zeros(n)
    env.goal = rec["goal"][rows] if "goal" in rec else np.zeros((n, 2))
    env.button = rec["button"][rows] if "button" in rec else zeros.astype(np.int64)
    env.timer = rec["timer"][rows] if "timer" in rec else zeros.astype(np.int64)
    first = {"push": "last_dist_box", "run": "old_potential"}.get(env.config.task, "last_dist_goal")
    sign = -1.0 if env.config.task == "run" else 1.0
    last = [rec[name][rows] if name in rec else zeros for name in (first, "last_box_goal")]
    env.previous = np.stack([sign * last[0], last[1]], 1)
    env.refresh()


def _touched(rec: Recording, bodies: int) -> np.ndarray:
    """Steps that begin or end with a contact of an object, or while a pushed one still moves.

    A contact may begin and end within a step, so a moving object near the robot counts too.
    """
    steps, first, second = rec["contact"].T
    robot = rec["robot_geom"]
    counts = ~(robot[first] & robot[second])
    out = np.zeros(len(rec["act"]), dtype=bool)
    out[steps[counts]] = True
    # The row after a step is usually the row before the next.
    touched_rows = np.zeros(len(rec["qpos"]), dtype=bool)
    touched_rows[rec["post"][out]] = True
    moving = np.zeros(len(rec["qvel"]), bool)
    if not any(name.startswith("gremlin") for name in rec["layout_names"]):
        robot_speeds = rec["qvel"].shape[1] - 6 * bodies
        moving = np.any(np.abs(rec["qvel"][:, robot_speeds:]) > MOVING, axis=1)
    before = (moving | touched_rows)[rec["pre"]]
    return out | before | moving[rec["post"]] | (rec["jump"] > 0)


def _draws(config: FamilyConfig, rec: Recording) -> tuple[int, int]:
    """Numbers of layouts and of re-drawn goals or buttons that the seed gives bit by bit."""
    env, episode = FamilyEnv(config, num_envs=1, seed=int(rec["seed"])), -1
    layouts = redraws = 0
    for t, (pre, post) in enumerate(zip(rec["pre"], rec["post"], strict=True)):
        if rec["episode"][pre] != episode:
            env.reset()
            episode = int(rec["episode"][pre])
            layouts += _same_layout(env, rec, episode)
        env.streams.skip_one()
        if rec["met"][t]:
            nq = env.simulation.qpos.shape[1]
            env.simulation.qpos[0, :2] = rec["xpos"][post, :2]
            env.simulation.bodies[0] = rec["qpos"][post, nq:].reshape(
                env.simulation.bodies[0].shape
            )
            same = env.renew(0) and np.array_equal(env.goal[0], rec["goal"][post])
            redraws += same and ("button" not in rec or env.button[0] == rec["button"][post])
    return int(layouts), int(redraws)


def _same_layout(env: FamilyEnv, rec: Recording, episode: int) -> bool:
    state, xy = env.state(), rec["layout_xy"][episode]
    row = rec["first_row"][episode]
    hazards = [s.kind == "hazards" for s in env.slots]
    pairs = [
        (state.position[0, :2], xy[0]),
        (state.hazards[0], xy[hazards]),
        (state.bodies[0, :, :2], xy[env.free_slots]),
        (state.statics[0], xy[env.fixed_slots]),
    ]
    if "goal" in rec:
        pairs.append((state.goal[0], rec["goal"][row]))
    if "button" in rec:
        pairs.append((state.button[0], rec["button"][row]))
    yaw = env.reading.heading[0] - rec["layout_yaw"][episode, 0]
    turned = abs(np.arctan2(np.sin(yaw), np.cos(yaw))) < 1e-12
    if not isinstance(env.simulation.robot.robot, PlanarRobot):
        joints = slice(7, env.simulation.qpos.shape[1])
        pairs.append((env.simulation.qpos[0, joints], rec["qpos"][row, joints]))
    return turned and all(np.array_equal(a, b) for a, b in pairs)
