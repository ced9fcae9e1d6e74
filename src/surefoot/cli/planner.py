"""The command that times the planner."""

import json
from typing import Annotated

import tyro
from rich.console import Console

out = Console(highlight=False, soft_wrap=True)


def benchmark_planner(
    num_envs: tuple[int, ...] = (), json_: Annotated[bool, tyro.conf.arg(name="json")] = False
) -> None:
    """Planned steps per second on PointGoal with the paper's settings; networks are untrained.

    Args:
        num_envs: For how many environments at once (default: as suits the device).
        json_: Print one JSON list.
    """
    from surefoot.benchmark.planner import benchmark

    rows = []
    for row in benchmark(num_envs):
        rows.append(row)
        if json_:
            continue
        if len(rows) == 1:
            plan, size = row["planner"], "-".join(map(str, row["hidden"]))
            out.print(
                f"{row['task']}, {row['model']} model of {row['members']} untrained networks "
                f"({size}), {row['elites']} elites; horizon {plan['horizon']}, {plan['samples']} "
                f"samples, {plan['particles']} particles, {plan['iterations']} iterations; on "
                f"{row['device']}"
            )
        out.print(
            f"{row['num_envs']:>4} envs  {row['plans_per_second']:>9,.1f} plans/s  "
            f"{row['steps']:,} steps in {row['seconds']:,.0f} s (paper {row['paper_seconds']:,} s, "
            f"{row['ratio']:.1f}x)"
        )
    if json_:
        print(json.dumps(rows, indent=1))
