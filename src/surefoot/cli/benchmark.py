"""The commands that measure speed."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from surefoot.cli.output import Json, emit, out


def _report(rows: Iterable[dict[str, Any]], as_json: bool, line: Callable[..., str]) -> None:
    """Print each row as it is measured, or all of them as JSON."""
    done = []
    for row in rows:
        if not as_json:
            out.print(line(row, not done), markup=False)
        done.append(row)
    if as_json:
        print(json.dumps(done, indent=1))


def benchmark_env(
    tasks: tuple[str, ...] = ("PointGoal", "CarGoal", "DoggoGoal", "RCCar"),
    num_envs: tuple[int, ...] = (1, 16, 64, 256),
    threads: tuple[int, ...] = (1, 2),
    reference_python: str | None = None,
    json_: Json = False,
) -> None:
    """Steps per second of the complete environment step.

    Args:
        tasks: Tasks to measure.
        num_envs: Numbers of environments.
        threads: Numbers of threads.
        reference_python: A Python 3.10 that has safety-gymnasium, to be timed in the same run.
    """
    from surefoot.benchmark.env import benchmark

    def line(row: dict[str, Any], first: bool) -> str:
        text = f"{row['task']:<12} {row['num_envs']:>4} envs  {row['threads']} threads"
        text += f"  {row['steps_per_second']:>9,.0f} steps/s"
        if row["overhead_beyond_physics"] is not None:
            text += f"  {row['overhead_beyond_physics']:>4.0%} beyond physics"
        if "ratio" in row:
            text += (
                f"  reference {row['reference_steps_per_second']:,.0f} stepping"
                f" ({row['ratio']:.1f}x), {row['reference_with_resets']:,.0f} with resets"
                f" ({row['ratio_with_resets']:.0f}x)"
            )
        return text

    _report(benchmark(tasks, num_envs, threads, reference_python), json_, line)


def benchmark_train(
    epochs: int = 3, reference_python: str | None = None, json_: Json = False
) -> None:
    """Real steps per second of training PPO-Lagrangian on PointGoal, collecting and updating.

    Args:
        epochs: Updates timed, after one that compiles; the fastest counts.
        reference_python: A Python 3.10 that has OmniSafe 0.5.0, to be timed in the same run.
    """
    from surefoot.benchmark.train import benchmark

    def line(row: dict[str, Any], first: bool) -> str:
        text = (
            f"{row['schedule']:<10} {row['steps_per_update']:,} steps per update, "
            f"{row['does']}: {row['steps_per_second']:,.0f} steps/s (collecting "
            f"{row['collect_seconds']:.2f} s, updating {row['update_seconds']:.2f} s)"
        )
        if "ratio" in row:
            text += (
                f"\n{'':<10} {row['reference']}: {row['reference_steps_per_second']:,.0f} steps/s"
                f" (collecting {row['reference_collect_seconds']:.2f} s, updating "
                f"{row['reference_update_seconds']:.2f} s); ratio {row['ratio']:.1f}"
            )
        return text

    _report(benchmark(epochs, reference_python), json_, line)


def benchmark_imagination(task: str = "PointGoal", json_: Json = False) -> None:
    """Imagined steps per second as training runs them, and one state at a time.

    Args:
        task: The task, with its default preset.
    """
    from surefoot.benchmark.imagination import benchmark

    row = benchmark(task)
    emit(
        json_,
        row,
        [
            f"{row['task']}, {row['model']} model of {row['members']} networks "
            f"({'-'.join(map(str, row['hidden']))}), {row['elites']} elites, on {row['device']}",
            f"together:       {row['steps_per_second']:>12,.0f} steps/s  ({row['together']})",
            f"one at a time:  {row['one_at_a_time_steps_per_second']:>12,.0f} steps/s  "
            f"({row['one_at_a_time']})",
            f"ratio:          {row['ratio']:>12,.0f}",
        ],
    )


def benchmark_planner(num_envs: tuple[int, ...] = (), json_: Json = False) -> None:
    """Planned steps per second on PointGoal with the paper's settings; networks are untrained.

    Args:
        num_envs: Numbers of environments (default: as suits the device).
    """
    from surefoot.benchmark.planner import benchmark

    def line(row: dict[str, Any], first: bool) -> str:
        plan, size = row["planner"], "-".join(map(str, row["hidden"]))
        head = (
            f"{row['task']}, {row['model']} model of {row['members']} untrained networks ({size}), "
            f"{row['elites']} elites; horizon {plan['horizon']}, {plan['samples']} samples, "
            f"{plan['particles']} particles, {plan['iterations']} iterations; on {row['device']}\n"
        )
        return (head if first else "") + (
            f"{row['num_envs']:>4} envs  {row['plans_per_second']:>9,.1f} plans/s  "
            f"{row['steps']:,} steps in {row['seconds']:,.0f} s (paper {row['paper_seconds']:,} s, "
            f"{row['ratio']:.1f}x)"
        )

    _report(benchmark(num_envs), json_, line)
