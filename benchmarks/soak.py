"""Millions of random steps: no crash, no NaN, no growing memory.

    python benchmarks/soak.py --steps 10_000_000

Prints one line per task with steps, broken simulations, and resident memory before and after.
"""

import argparse
import resource
import sys
import time

import numpy as np

import surefoot

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


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def soak(task: str, steps: int, num_envs: int = 256) -> bool:
    env = surefoot.make(task, num_envs=num_envs, seed=0)
    env.reset()
    rng = np.random.default_rng(0)
    low, high = env.single_action_space.low, env.single_action_space.high
    finite, after_warm_up, start = True, 0.0, time.perf_counter()
    vector_steps = -(-steps // num_envs)
    for t in range(vector_steps):
        action = rng.uniform(low, high, (num_envs, len(low)))
        obs, reward, _, _, info = env.step(action)
        finite &= bool(np.isfinite(obs).all() and np.isfinite(reward).all())
        finite &= bool(np.isfinite(info["cost"]).all())
        if t == vector_steps // 4:
            after_warm_up = peak_mib()
    grown = peak_mib() - after_warm_up
    print(
        f"{task}: {vector_steps * num_envs:,} steps in {time.perf_counter() - start:.0f} s, "
        f"{env.failures} broken simulations, all finite: {finite}, "
        f"peak memory grew {grown:.1f} MiB over the last three quarters",
        flush=True,
    )
    return finite and grown < 20


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000_000)
    total = parser.parse_args().steps
    ok = [soak(task, int(total * share)) for task, share in SHARES.items()]
    sys.exit(0 if all(ok) else 1)
