"""The fault harness: tiny runs of every algorithm, all they computed, and ways to break them.

As a program it is the process that gets killed: `python tests/harness.py ALGORITHM FOLDER EPOCHS`
starts a run, or resumes it if the folder exists. `benchmarks/faults.py` kills it many times.
"""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from surefoot.algorithms.cpo import CPOConfig
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.algorithms.sac import SACConfig
from surefoot.algorithms.sac_lagrangian import SACLagrangianConfig
from surefoot.algorithms.safe_loop import SafeLoopConfig
from surefoot.algorithms.trpo_lagrangian import TRPOLagrangianConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.learn.sac import SACLearnerConfig
from surefoot.learn.sac_lagrangian import SACLagrangianLearnerConfig
from surefoot.learn.trust_region import TrustRegionConfig
from surefoot.runs.checkpoint import newest_sound
from surefoot.runs.folder import RunFolder
from surefoot.runs.resume import resume
from surefoot.runs.train import train
from surefoot.world.ensemble import EnsembleConfig
from surefoot.world.planner import PlannerConfig

PPO = PPOConfig(hidden=(8,), epochs=2, critic_epochs=2, minibatches=2, normalise_observations=True)
REAL = {"cost_limit": (1.0,), "steps_per_epoch": 40}
SAC = SACLearnerConfig(hidden=(8,), batch_size=16)
SAC_LAGRANGIAN = SACLagrangianLearnerConfig(hidden=(8,), batch_size=16, policy_every=1)
OFF = {
    "environments": 2,
    "random_steps": 60,
    "update_every": 10,
    "updates": 5,
    "replay": 90,
    **REAL,
}
TRUST = TrustRegionConfig(hidden=(8,), critic_epochs=2)
TINY = {
    "ppo-lagrangian": PPOLagrangianConfig(ppo=PPO, **REAL),
    "ppo": PPOLagrangianConfig(constrained=False, ppo=PPO, **REAL),
    "trpo-lagrangian": TRPOLagrangianConfig(trpo=TRUST, **REAL),
    "cpo": CPOConfig(cpo=TRUST, **REAL),
    "sac": SACConfig(sac=SAC, **OFF),
    "sac-lagrangian": SACLagrangianConfig(sac=SAC_LAGRANGIAN, **OFF),
    "safe-loop": SafeLoopConfig(
        sac=SAC, refit_every=20, model="ego",
        planner=PlannerConfig(
            horizon=3, samples=8, actor_share=0.25, particles=1, iterations=2, fewest_safe=2
        ),
        ensemble=EnsembleConfig(members=3, elites=2, hidden=(8,), max_steps=20), **OFF,
    ),
    "mbppo-lagrangian": MBPPOConfig(
        cost_limit=(1.0,), episodes=2, model="ego", horizon=5, rollouts=12, carry=0.5,
        replay_share=0.25, passes=3, pr_rollouts=6, pr_horizon=5, ppo=PPO,
        ensemble=EnsembleConfig(members=3, elites=3, hidden=(8,), max_steps=20),
    ),
}  # fmt: skip
PER_EPOCH = 40
TASK = {"max_episode_steps": 20}


@contextmanager
def child(*words: str, **pipes: int) -> Iterator[subprocess.Popen]:
    """A Python process that does not outlive the test, however that ends."""
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, text=True, **pipes
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def start(algorithm: str, out: Path, epochs: int, **options) -> Path:
    """Train a tiny run of two seeds, if `options` do not say otherwise."""
    options = {"checkpoint_every": 0, "seeds": 2, **options}
    return train(
        "PointGoal", config=TINY[algorithm], out=out, task_options=TASK, quiet=True,
        steps=PER_EPOCH * epochs, **options,
    )  # fmt: skip


def came_to(run: Path) -> dict[str, object]:
    """Everything a run computed, except for times."""
    checkpoint, problems = newest_sound(run / "checkpoints")
    assert checkpoint is not None and not problems, problems
    timed = lambda name: name == "metrics" or name.startswith("phases/")
    everything: dict[str, object] = {
        name: (array.dtype.str, array.shape, array.tobytes())
        for name, array in checkpoint.arrays.items()
        if not timed(name)
    }
    folder = RunFolder(run)
    everything |= {f"policy.npz {k}": v.tobytes() for k, v in folder.read_policy().arrays().items()}
    rows = [line.split(",") for line in folder.metrics_bytes().decode().splitlines()]
    clock = rows[0].index("seconds")
    everything["metrics.csv"] = [row[:clock] + row[clock + 1 :] for row in rows]
    everything["evaluation"] = folder.read_json("result.json")["evaluation"]
    return everything


def differences(a: dict[str, object], b: dict[str, object]) -> list[str]:
    """Names of values that are not equal bit for bit."""
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def spawn(*words: str) -> subprocess.Popen:
    """This file as a program."""
    command = [sys.executable, __file__, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_until_done(
    algorithm: str, out: Path, epochs: int, kills: int, rng: random.Random, seconds: float,
    spawn=spawn,
) -> list[int]:  # fmt: skip
    """Train in processes that are killed at random moments, at most `kills` of them.

    A moment is within `seconds` of the first epoch that a process finishes, or, one time in four,
    before that. Returns the last epoch that each killed process had written, 0 for none.
    """
    killed: list[int] = []
    while True:
        child = spawn(algorithm, str(out), str(epochs))
        assert child.stdout is not None
        output, hit = "", False
        if len(killed) < kills:
            if rng.random() < 0.25:
                time.sleep(rng.uniform(0.0, 2 * seconds))
            else:
                output = child.stdout.readline()
                time.sleep(rng.uniform(0.0, seconds))
            if child.poll() is None:
                child.kill()
                hit = True
        rest, errors = child.communicate()
        if hit and child.returncode == -9:
            killed.append(int((output + rest or "0").split()[-1]))
        if child.returncode == 0:
            return killed
        if child.returncode != -9:
            raise AssertionError(f"{algorithm} ended with {child.returncode}: {errors}")


def flip(path: Path, rng: np.random.Generator) -> None:
    """Flip one bit somewhere in a file."""
    data = bytearray(path.read_bytes())
    data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)


def main(algorithm: str, folder: str, count: str) -> None:
    out, epochs = Path(folder), int(count)
    from surefoot.runs.keeper import Keeper

    write = Keeper.write

    def reporting(self, only_if_due=False):
        write(self, only_if_due)
        print(self.written or 0, flush=True)

    Keeper.write = reporting
    if (out / "config.json").exists():
        resume(out, quiet=True)
    else:
        start(algorithm, out, epochs)


def nothing_more(*_, **__):
    """Replaces work that a test does not need."""
    raise ValueError("far enough")


if __name__ == "__main__":
    main(*sys.argv[1:])
