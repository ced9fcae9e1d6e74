"""Record the metrics of every algorithm in a small configuration, or compare with a record.

    python benchmarks/same_numbers.py record /tmp/before.json
    python benchmarks/same_numbers.py compare /tmp/before.json

Run `record` before a change that must not alter any number and `compare` after it, on the same
machine. Each job is a `surefoot train` command; all columns of metrics.csv but the time must be
equal, character by character. Columns that were renamed are listed in `RENAMED`.
"""

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

NETWORKS = (
    "--ensemble.members 3 --ensemble.elites 3 --ensemble.hidden 16 16 --ensemble.max-steps 60"
)
SHORT = "--env max_episode_steps=100"
ON_POLICY = f"--steps 1200 --steps-per-epoch 400 {SHORT}"
PPO = f"{ON_POLICY} --ppo.epochs 5 --ppo.critic-epochs 5"
TRUST = ON_POLICY + " --{0}.hidden 16 16 --{0}.critic-epochs 5"
MBPPO = (
    f"--steps 600 --episodes 2 --horizon 20 --rollouts 24 --passes 4 --ppo.hidden 16 16 {NETWORKS}"
)
PAPER = f"--preset paper {MBPPO} --pr-rollouts 6 --pr-horizon 10"
SAC = (
    "--steps 900 --steps-per-epoch 300 --environments 3 --random-steps 300 --update-every 30 "
    f"--updates 6 --replay 600 --sac.hidden 16 16 --sac.batch-size 32 {SHORT}"
)
LOOP = (
    f"{SAC} {NETWORKS} --refit-every 60 --planner.horizon 4 --planner.samples 16 "
    "--planner.particles 2 --planner.iterations 2 --planner.fewest-safe 4"
)
JOBS = {
    "ppo-lagrangian": f"PointGoal --algorithm ppo-lagrangian {PPO}",
    "ppo-lagrangian-pid": f"PointGoal --algorithm ppo-lagrangian {PPO} --multiplier.kind pid",
    "ppo": f"CarGoal --algorithm ppo {PPO} --ppo.minibatches 2",
    "trpo-lagrangian": f"PointGoal --algorithm trpo-lagrangian {TRUST.format('trpo')}",
    "cpo": f"PointGoal --algorithm cpo {TRUST.format('cpo')}",
    "sac": f"PointGoal --algorithm sac {SAC}",
    "sac-lagrangian": f"PointGoal --algorithm sac-lagrangian {SAC} --updates 8",
    "safe-loop": f"PointGoal --algorithm safe-loop {LOOP}",
    "safe-loop-paper": f"RCCar --algorithm safe-loop --preset paper {LOOP}",
    "mbppo": f"PointGoal {MBPPO} {SHORT}",
    "mbppo-paper": f"PointGoal {PAPER} {SHORT}",
    "mbppo-black-box": f"PointGoal --model black-box {MBPPO} {SHORT}",
    "mbppo-doggo": f"DoggoGoal {MBPPO} {SHORT}",
    "mbppo-car": f"CarGoal {MBPPO} {SHORT}",
    "mbppo-rc-car": f"RCCar {MBPPO}",
}
RENAMED = {"gap": "cost_bias", "parted": "cost_mismatch"}
"""Columns of earlier versions and their present names."""
LEFT_OUT = ("seconds",)


def run(name: str, out: Path) -> dict[str, list[str]]:
    """Train one job with two seeds; the columns of its metrics.csv."""
    words = [sys.executable, "-m", "surefoot", "train", *JOBS[name].split()]
    words += ["--seeds", "2", "--device", "cpu", "--quiet", "--out", str(out / name)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stdout}{done.stderr}")
    with (out / name / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = {column: [row[column] for row in rows] for column in rows[0]}
    result = json.loads((out / name / "result.json").read_text())["evaluation"]
    columns["evaluation"] = [repr(result[key]) for key in ("reward", "cost")]
    return {RENAMED.get(key, key): values for key, values in columns.items() if key not in LEFT_OUT}


def differences(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """Columns of `before` that are missing or not equal; new columns are no difference."""
    return [name for name, values in before.items() if after.get(name) != values]


def main() -> int:
    command, path, *names = sys.argv[1:]
    before = json.loads(Path(path).read_text()) if command == "compare" else {}
    records, failed = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names or JOBS:
            records[name] = run(name, Path(folder))
            changed = differences(before.get(name, {}), records[name])
            failed += bool(changed)
            verdict = f"differs: {', '.join(changed)}" if changed else "same" if before else "done"
            print(f"{name:<20} {verdict}", flush=True)
    if command == "record":
        Path(path).write_text(json.dumps(records))
    return failed


if __name__ == "__main__":
    sys.exit(main())
