"""Millions of random steps: no crash, no NaN, no growing memory.

    python benchmarks/soak.py --steps 10_000_000 --tasks family

Prints one line per task, and at last one JSON object with all counts.
"""

import argparse
import json
import resource
import sys
import time

import numpy as np

import surefoot
from surefoot.envs.task import FAMILY, FAMILY_ROBOTS

# Share of the steps per task; the slow robots get less, so that no task takes most of the time.
SHARES = {
    "PointGoal": 0.7,
    "RCCar": 0.12,
    "CarGoal": 0.04,
    "DoggoGoal": 0.02,
    "DoggoGoalOpenAI": 0.02,
    "HalfCheetahVelocity": 0.04,
    "HopperVelocity": 0.02,
    "Walker2dVelocity": 0.015,
    "SwimmerVelocity": 0.015,
    "AntVelocity": 0.005,
    "HumanoidVelocity": 0.005,
}
# Relative shares of the robots of the family, whose tasks have equal ones.
ROBOTS = {"Point": 40, "Car": 10, "Doggo": 6, "Racecar": 2, "Ant": 2}
assert set(ROBOTS) == set(FAMILY_ROBOTS)
NAMES = {f"{r}{t}{k}": w for r, w in ROBOTS.items() for t, n in FAMILY.items() for k in range(n)}
FAMILY_SHARES = {name: weight / sum(NAMES.values()) for name, weight in NAMES.items()}


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def soak(task: str, steps: int, num_envs: int = 256) -> dict[str, object]:
    """Random steps, each action held for a while, so that robots get somewhere."""
    num_envs = max(1, min(num_envs, steps // 20))
    env = surefoot.make(task, num_envs=num_envs, seed=0)
    env.reset()
    rng = np.random.default_rng(0)
    low, high = env.single_action_space.low, env.single_action_space.high
    finite, after_warm_up, start = True, 0.0, time.perf_counter()
    vector_steps = -(-steps // num_envs)
    episodes, costs, action = 0, 0.0, rng.uniform(low, high, (num_envs, len(low)))
    for t in range(vector_steps):
        new = rng.uniform(size=num_envs) < 0.1
        action[new] = rng.uniform(low, high, (num_envs, len(low)))[new]
        obs, reward, terminated, truncated, info = env.step(action)
        finite &= bool(np.isfinite(obs).all() and np.isfinite(reward).all())
        finite &= bool(np.isfinite(info["cost"]).all())
        episodes += int((terminated | truncated).sum())
        costs += float(info["cost"].sum())
        if t == vector_steps // 4:
            after_warm_up = peak_mib()
    grown = peak_mib() - after_warm_up
    print(
        f"{task}: {vector_steps * num_envs:,} steps in {time.perf_counter() - start:.0f} s, "
        f"{env.failures} broken simulations, all finite: {finite}, "
        f"peak memory grew {grown:.1f} MiB over the last three quarters",
        file=sys.stderr,
        flush=True,
    )
    return {
        "task": task, "steps": vector_steps * num_envs, "episodes": episodes, "cost": costs,
        "failures": env.failures, "finite": finite, "grown_mib": grown, "ok": finite and grown < 20,
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--tasks", choices=("all", "family", "others"), default="all")
    given = parser.parse_args()
    parts = {"family": [FAMILY_SHARES], "others": [SHARES], "all": [SHARES, FAMILY_SHARES]}
    tables = parts[given.tasks]
    rows = [
        soak(task, max(1, int(given.steps * share / len(tables))))
        for table in tables
        for task, share in table.items()
    ]
    total = {k: sum(row[k] for row in rows) for k in ("steps", "episodes", "failures")}  # type: ignore[misc]
    print(json.dumps({**total, "ok": all(row["ok"] for row in rows), "tasks": rows}, indent=1))
    sys.exit(0 if all(row["ok"] for row in rows) else 1)
