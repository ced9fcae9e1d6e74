"""Print reward, cost and violations of runs at given real steps: mean and spread over seeds.

python benchmarks/summarise.py docs/results/* --at 9000 24000
"""

import argparse
import json
from itertools import pairwise
from pathlib import Path

import numpy as np

from surefoot.report.table import spread_of
from surefoot.runs.folder import RunFolder

Rows = list[dict[str, float]]


def with_maximum(name: str, values: np.ndarray, digits: int = 1) -> str:
    return f"{name} {spread_of(values, digits)} (max {values.max():.1f})"


def print_cpo(rows: Rows, seeds: list[float]) -> None:
    """CPO's distance from its limit, and the cost changes that its updates expect."""
    if "expected_cost_change" in rows[0]:
        pairs = [
            (now["expected_cost_change"], after["cost"] - now["cost"])
            for seed in seeds
            for now, after in pairwise([row for row in rows if row["seed"] == seed])
        ]
        expected, real = np.array(pairs).T
        print(
            f"  cost change per update: expected {expected.mean():+.1f}, "
            f"real {real.mean():+.1f}, correlation {np.corrcoef(expected, real)[0, 1]:.2f}"
        )
    for name in ("signal_fraction", "believed"):  # the second is version 0.1.0's name
        if name in rows[0]:
            signal = [row[name] for row in rows]
            print(f"  signal fraction of the cost gradient: {min(signal):.0%} to {max(signal):.0%}")
    means = [
        [np.mean([row[name] for row in rows if row["epoch"] == epoch])
         for name in ("cost", "explained_variance_cost_0")]
        for epoch in sorted({row["epoch"] for row in rows if row["epoch"] > 2})
    ]  # fmt: skip
    cost, explained = np.array(means).T
    print(
        f"  from the third epoch on, means over seeds: cost {cost.min():.0f} to {cost.max():.0f}; "
        f"the cost critic explains {explained.min():.0%} to {explained.max():.0%}"
    )


def print_gate(rows: Rows, seeds: list[float]) -> None:
    """How often the performance ratio let practice continue."""
    passes = [[row["passes"] for row in rows if row["seed"] == seed] for seed in seeds]
    nothing = np.mean([np.mean(np.array(some) == 0) for some in passes])
    totals = np.array([float(sum(some)) for some in passes])
    print(
        f"  epochs without an accepted pass: {nothing:.0%}; "
        f"accepted passes per seed: {spread_of(totals, 0)}"
    )


def print_training(rows: Rows, at: list[int]) -> None:
    """Reward, cost and violations of the epochs that end at these steps, and of the last one."""
    steps = sorted({row["steps"] for row in rows})
    shown = sorted({max(s for s in steps if s <= a) for a in at if a >= steps[0]} | {steps[-1]})
    for step in shown:
        now = [row for row in rows if row["steps"] == step]
        values = {n: np.array([r[n] for r in now]) for n in ("reward", "cost", "violations")}
        parts = ", ".join(with_maximum(name, some) for name, some in values.items())
        print(f"  {int(step):>9,} real steps: {parts}")


def print_result(path: Path) -> None:
    result = json.loads(path.read_text())
    line = f"  {result['seconds']:.0f} s on {result['device']}"
    if "evaluation" in result:
        e = result["evaluation"]
        reward, cost = (
            spread_of(np.array([seed[name] for seed in e["seeds"]])) for name in ("reward", "cost")
        )
        line += (
            f"; {e['episodes']} fresh episodes per seed: reward {reward}, cost {cost}, "
            f"within the limit {e['within_limit']:.0%}, worst tenth {e['cost_cvar']:.0f}"
        )
    print(line)
    phases = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in result["phases"].items())
    print(f"  time: {phases}")


def summarise(path: Path, at: list[int]) -> None:
    """Print one run."""
    rows = RunFolder(path).read_metrics()
    seeds = sorted({row["seed"] for row in rows})
    print(f"{path.name} ({len(seeds)} seeds)")
    print_training(rows, at)
    if "recovery" in rows[0]:
        print_cpo(rows, seeds)
    if not np.isnan(rows[0].get("performance_ratio", np.nan)):
        print_gate(rows, seeds)
    times = sorted({(row["steps"], row["seconds"]) for row in rows if row["seed"] == seeds[0]})
    if len(times) > 2:
        # The median: the first epochs compile, and a run may have been interrupted.
        rate = np.median(np.divide(*np.diff(np.array(times), axis=0).T))
        print(f"  {rate:,.0f} real steps/s per seed; 450,000 would take {450_000 / rate:,.0f} s")
    if (path / "result.json").exists():
        print_result(path / "result.json")


def evaluations(path: Path) -> dict[str, Rows]:
    """The seeds of every evaluation in a run's folder: of training, and of `evaluate --json`."""
    files = {p.stem: json.loads(p.read_text()) for p in sorted(path.glob("evaluate-*.json"))}
    if (path / "result.json").exists():
        result = json.loads((path / "result.json").read_text())
        files["result"] = result.get("evaluation", {"seeds": []})
    return {name: one["seeds"] for name, one in files.items()}


def summarise_together(paths: list[Path], at: list[int]) -> None:
    """Print several runs as if their seeds were those of one run."""
    print_training([row for path in paths for row in RunFolder(path).read_metrics()], at)
    joined: dict[str, Rows] = {}
    for path in paths:
        for name, seeds in evaluations(path).items():
            joined.setdefault(name, []).extend(seeds)
    for name, seeds in joined.items():
        metrics = ("reward", "cost", "within_limit", "cost_cvar")
        parts = (with_maximum(m, np.array([seed[m] for seed in seeds]), 2) for m in metrics)
        print(f"{name}, {len(seeds)} seeds together: " + ", ".join(parts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--at", type=int, nargs="*", default=[])
    parser.add_argument("--together", action="store_true", help="join the seeds of the runs")
    arguments = parser.parse_args()
    if arguments.together:
        summarise_together(arguments.runs, arguments.at)
        raise SystemExit
    for run in arguments.runs:
        if (run / "metrics.csv").exists():
            summarise(run, arguments.at)
