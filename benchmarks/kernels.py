"""The kernels of a pass of practice on a GPU, from JAX's profiler: how many, and how long.

    python benchmarks/kernels.py --seeds 1 --task PointGoal

Kernels that run once or more in each imagined step belong to rollouts, those that run in each
gradient step to updates; initial states and advantages are among the others.
"""

import argparse
import collections
import gzip
import json
import tempfile
import time
from pathlib import Path

import jax

from surefoot.algorithms import mbppo_lagrangian as mbppo
from surefoot.algorithms.algorithm import ALGORITHMS
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.benchmark.parts import Parts
from surefoot.envs.task import find_task
from surefoot.runs.setup import preset_config

PASSES = 3


def kernels(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds and launches of each kernel in a pass, from a trace."""
    newest = max(folder.rglob("*.trace.json.gz"), key=lambda path: path.stat().st_mtime)
    events = json.loads(gzip.decompress(newest.read_bytes()))["traceEvents"]
    named = lambda kind: {
        (e["pid"], e.get("tid") if kind == "thread_name" else None): e["args"]["name"]
        for e in events
        if e.get("ph") == "M" and e["name"] == kind
    }
    processes, threads = named("process_name"), named("thread_name")
    spent, count = collections.defaultdict(float), collections.defaultdict(float)
    for e in events:
        on_gpu = e.get("ph") == "X" and "GPU" in processes.get((e["pid"], None), "")
        if on_gpu and "Stream" in threads.get((e["pid"], e["tid"]), ""):
            spent[e["name"]] += e["dur"] / 1e3 / PASSES
            count[e["name"]] += 1 / PASSES
    return spent, count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--task", default="PointGoal")
    parser.add_argument("--top", type=int, default=20, help="kernels to list")
    given = parser.parse_args()
    backend = jax.default_backend()
    if backend == "cpu":
        raise SystemExit("JAX has no GPU here; surefoot benchmark profile works on a CPU, too")
    config = preset_config(
        ALGORITHMS["mbppo-lagrangian"], "default", find_task(given.task), backend, {}
    )
    assert isinstance(config, MBPPOConfig)
    parts = Parts(config, given.seeds, given.task)
    one_pass = parts.practise().call
    one_pass()
    start = time.perf_counter()
    for _ in range(20):
        one_pass()
    print(f"a pass takes {(time.perf_counter() - start) / 20 * 1e3:.2f} ms")
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(PASSES):
                one_pass()
        spent, count = kernels(Path(folder))
    length = mbppo.horizon(parts.config, parts.problem)
    steps = parts.config.ppo.epochs * parts.config.ppo.minibatches
    groups, launches = collections.defaultdict(float), collections.defaultdict(float)
    for name in spent:
        turns = round(count[name])
        inside = lambda n, turns=turns: turns >= n and turns % n < 2
        group = "rollouts" if inside(length) else "updates" if inside(steps) else "others"
        groups[group] += spent[name]
        launches[group] += count[name]
    for group in ("rollouts", "updates", "others"):
        print(f"{group:9} {groups[group]:7.2f} ms in {launches[group]:6.0f} kernels")
    for name, milliseconds in sorted(spent.items(), key=lambda item: -item[1])[: given.top]:
        print(f"  {milliseconds:8.3f} ms {count[name]:7.1f} x  {name[:80]}")


if __name__ == "__main__":
    main()
