"""One line per run: reward, cost and violations at given real steps, mean and spread over seeds.

python benchmarks/summarise.py docs/results/* --at 9000 24000
"""

import argparse
import json
from itertools import pairwise
from pathlib import Path

import numpy as np

from surefoot.runs.folder import RunFolder


def cost_changes(rows: list[dict[str, float]], seeds: list[float]) -> tuple[np.ndarray, ...]:
    """What updates were expected to change the cost by, and what the next epoch's cost says."""
    pairs = []
    for seed in seeds:
        own = [row for row in rows if row["seed"] == seed]
        pairs += [
            (now["expected_cost_change"], after["cost"] - now["cost"])
            for now, after in pairwise(own)
        ]
    expected, real = np.array(pairs).T
    return expected, real


def tell_cpo(rows: list[dict[str, float]], seeds: list[float]) -> None:
    """How far CPO is from its limit, and what its batches promise."""
    if "expected_cost_change" in rows[0]:
        expected, real = cost_changes(rows, seeds)
        print(
            f"  cost per episode and update: expected {expected.mean():+.1f}, "
            f"came {real.mean():+.1f}, correlation {np.corrcoef(expected, real)[0, 1]:.2f}"
        )
    if "believed" in rows[0]:
        believed = [row["believed"] for row in rows]
        print(f"  of the cost's gradient {min(believed):.0%} to {max(believed):.0%} is signal")
    names = ("cost", "explained_variance_cost_0")
    means = [
        [np.mean([row[name] for row in rows if row["epoch"] == epoch]) for name in names]
        for epoch in sorted({row["epoch"] for row in rows if row["epoch"] > 2})
    ]
    cost, explained = np.array(means).T
    print(
        f"  from the third epoch on, means over seeds: cost {cost.min():.0f} to {cost.max():.0f}; "
        f"the critic of the cost explains {explained.min():.0%} to {explained.max():.0%}"
    )


def tell_training(rows: list[dict[str, float]], at: list[int]) -> None:
    """Reward, cost and violations of the epochs that end at such steps, and of the last one."""
    steps = sorted({row["steps"] for row in rows})
    wanted = sorted({max(s for s in steps if s <= a) for a in at if a >= steps[0]} | {steps[-1]})
    for step in wanted:
        now = [row for row in rows if row["steps"] == step]
        parts = []
        for name in ("reward", "cost", "violations"):
            values = np.array([row[name] for row in now])
            spread = f" ± {values.std(ddof=1):.1f}" if len(values) > 1 else ""
            parts.append(f"{name} {values.mean():.1f}{spread} (max {values.max():.1f})")
        print(f"  {int(step):>9,} real steps: " + ", ".join(parts))


def summarise(path: Path, at: list[int]) -> None:
    rows = RunFolder(path).read_metrics()
    seeds = sorted({row["seed"] for row in rows})
    print(f"{path.name} ({len(seeds)} seeds)")
    tell_training(rows, at)
    if "recovery" in rows[0]:
        tell_cpo(rows, seeds)
    times = sorted({(row["steps"], row["seconds"]) for row in rows if row["seed"] == seeds[0]})
    if len(times) > 2:
        # The median: the first epochs compile, and a run may have been interrupted.
        rate = np.median(np.divide(*np.diff(np.array(times), axis=0).T))
        print(f"  {rate:,.0f} real steps/s per seed; 450,000 would take {450_000 / rate:,.0f} s")
    result = path / "result.json"
    if result.exists():
        found = json.loads(result.read_text())
        line = f"  {found['seconds']:.0f} s on {found['device']}"
        if "evaluation" in found:
            e = found["evaluation"]
            spread = f" ± {e['reward_std']:.1f}" if "reward_std" in e else ""
            cost_spread = f" ± {e['cost_std']:.1f}" if "cost_std" in e else ""
            line += (
                f"; {e['episodes']} fresh episodes per seed: reward {e['reward']:.1f}{spread}, "
                f"cost {e['cost']:.1f}{cost_spread}, within the limit {e['within_limit']:.0%}, "
                f"worst tenth {e['cost_cvar']:.0f}"
            )
        print(line)
        phases = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in found["phases"].items())
        print(f"  time: {phases}")


def evaluations(path: Path) -> dict[str, list[dict[str, float]]]:
    """The seeds of every evaluation that lies in a run: training's own, and `evaluate --json`."""
    found = {p.stem: json.loads(p.read_text()) for p in sorted(path.glob("evaluate-*.json"))}
    if (path / "result.json").exists():
        result = json.loads((path / "result.json").read_text())
        found["result"] = result.get("evaluation", {"seeds": []})
    return {name: one["seeds"] for name, one in found.items()}


def tell_together(paths: list[Path], at: list[int]) -> None:
    """Several runs as if their seeds were one run's."""
    tell_training([row for path in paths for row in RunFolder(path).read_metrics()], at)
    joined: dict[str, list[dict[str, float]]] = {}
    for path in paths:
        for name, seeds in evaluations(path).items():
            joined.setdefault(name, []).extend(seeds)
    for name, seeds in joined.items():
        parts = []
        for what in ("reward", "cost", "within_limit", "cost_cvar"):
            values = np.array([seed[what] for seed in seeds])
            spread = f" ± {values.std(ddof=1):.1f}" if len(values) > 1 else ""
            parts.append(f"{what} {values.mean():.2f}{spread} (max {values.max():.1f})")
        print(f"{name}, {len(seeds)} seeds together: " + ", ".join(parts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--at", type=int, nargs="*", default=[])
    parser.add_argument("--together", action="store_true", help="join the runs' seeds")
    arguments = parser.parse_args()
    if arguments.together:
        tell_together(arguments.runs, arguments.at)
        raise SystemExit
    for run in arguments.runs:
        if (run / "metrics.csv").exists():
            summarise(run, arguments.at)
