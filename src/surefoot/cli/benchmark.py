"""The commands that measure speed."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from surefoot.cli.output import Json, emit, err, out

if TYPE_CHECKING:
    from surefoot.runs.folder import Values


def _report(
    rows: Iterable["Values"], as_json: bool, line: Callable[["Values", bool], str]
) -> list["Values"]:
    """Print each row as it is measured, or all of them as JSON; `line(row, first)` is its text."""
    done = []
    for row in rows:
        if not as_json:
            out.print(line(row, not done), markup=False)
        done.append(row)
    if as_json:
        print(json.dumps(done, indent=1))
    return done


def benchmark_all(
    record: bool = False,
    check: bool = False,
    history: Path = Path("docs/benchmarks.json"),
    json_: Json = False,
) -> int:
    """What each part of training does while a fixed loop runs once on the same machine.

    Args:
        record: Append the ratios to the history.
        check: Exit with 1 if a part does less than a third of what was recorded last on this kind
            of device.
        history: A file with recorded ratios.
    """
    from surefoot.benchmark import suite

    past = suite.read_history(history)

    def line(row: "Values", first: bool) -> str:
        text = "{part:<12} {per_second:>11,.0f} {unit:<15} per s  ratio {ratio:>10,.4g}"
        return (text + ("  {share:.2f} of the recorded" if "share" in row else "")).format_map(row)

    rows = _report(suite.benchmark(suite.last_ratios(past)), json_, line)
    if record:
        suite.record(history, past, rows)
    slower = suite.slower(rows)
    if slower:
        err.print(f"below a third of the recorded ratio: {', '.join(slower)}", markup=False)
    return int(check and bool(slower))


def benchmark_profile(
    task: str = "PointGoal", preset: str = "default", seeds: int = 1, json_: Json = False
) -> None:
    """Where the time of an epoch goes: real episodes, the model's fit, practice and its parts.

    Args:
        task: The task.
        preset: Preset of MBPPO-Lagrangian.
        seeds: Number of seeds that train together.
    """
    from surefoot.benchmark.profile import benchmark

    def line(row: "Values", first: bool) -> str:
        head = "{task}, {preset}, seeds: {seeds}, {device}\n{empty:<38}     a call  calls"
        head += "  of an epoch  compiling\n"
        text = "{part:<38} {milliseconds:>8,.2f} ms {calls:>5,.0f} {share:>12.1%}"
        text += " {compile_seconds:>8.1f} s"
        values = {**row, "preset": preset, "empty": "", "milliseconds": 1e3 * row["seconds"]}
        return ((head if first else "") + text).format_map(values)

    _report(benchmark(task, preset, seeds), json_, line)


def benchmark_growth(
    quantities: tuple[str, ...] = ("seeds", "rollouts", "rows", "environments"),
    sizes: tuple[int, ...] = (),
    preset: str | None = None,
    out_: Annotated[Path, tyro.conf.arg(name="out")] = Path("growth.png"),
    json_: Json = False,
) -> int:
    """How time and peak memory grow; exits with 1 if one grows faster than linearly.

    Args:
        quantities: What grows: seeds and rollouts (a pass of practice), rows (a fit of the model),
            environments (collecting).
        sizes: Sizes of each; a range of each quantity if none is given.
        preset: Measure with a preset's settings instead of small ones.
        out_: The figure.
    """
    from surefoot.benchmark.growth import benchmark, worse_than_linear
    from surefoot.report.growth import draw_growth

    def line(row: "Values", first: bool) -> str:
        text = "{size:>9,} {quantity:<12} {seconds:>9.4f} s {mib:>9,.1f} MiB"
        if "exponent" in row:
            text += "  time ~ size^{exponent:.2f}, memory ~ size^{bytes_exponent:.2f}"
        return text.format(**row, mib=row["bytes"] / 2**20)

    rows = _report(benchmark(preset, quantities, sizes), json_, line)
    figure = draw_growth(rows, out_)
    if not json_:
        out.print(f"figure: {figure}", markup=False)
    steep = [f"{row['quantity']} at {row['size']:,}" for row in worse_than_linear(rows)]
    if steep:
        err.print(f"worse than linear: {', '.join(steep)}", markup=False)
    return int(bool(steep))


def benchmark_env(
    tasks: tuple[str, ...] = ("PointGoal", "CarGoal", "DoggoGoal", "RCCar"),
    num_envs: tuple[int, ...] = (1, 16, 64, 256),
    threads: tuple[int, ...] = (1, 2),
    reference_python: str | None = None,
    gymnasium: bool = False,
    json_: Json = False,
) -> None:
    """Steps per second of the complete environment step.

    Args:
        tasks: Tasks to measure.
        num_envs: Numbers of environments.
        threads: Numbers of threads.
        reference_python: A Python 3.10 that has safety-gymnasium, to be timed in the same run.
        gymnasium: Time Gymnasium's own vector environments of the velocity tasks' robots too.
    """
    from surefoot.benchmark.env import benchmark

    def line(row: "Values", first: bool) -> str:
        text = "{task:<19} {num_envs:>4} envs  {threads} threads  {steps_per_second:>9,.0f} steps/s"
        if row["overhead_beyond_physics"] is not None:
            text += "  {overhead_beyond_physics:>4.0%} beyond physics"
        if "ratio" in row:
            text += "  reference {reference_steps_per_second:,.0f} stepping ({ratio:.1f}x), "
            text += "{reference_with_resets:,.0f} with resets ({ratio_with_resets:.0f}x)"
        if "times" in row:
            text += "  gymnasium {gymnasium_sync_steps_per_second:,.0f} sync, "
            text += "{gymnasium_async_steps_per_second:,.0f} async ({times:.1f}x the faster)"
        return text.format_map(row)

    _report(benchmark(tasks, num_envs, threads, reference_python, gymnasium), json_, line)


def benchmark_train(
    epochs: int = 3, reference_python: str | None = None, json_: Json = False
) -> None:
    """Real steps per second of training PPO-Lagrangian on PointGoal, collecting and updating.

    Args:
        epochs: Updates timed, after one that compiles; the fastest counts.
        reference_python: A Python 3.10 that has OmniSafe 0.5.0, to be timed in the same run.
    """
    from surefoot.benchmark.train import benchmark

    def line(row: "Values", first: bool) -> str:
        text = (
            "{schedule:<10} {steps_per_update:,} steps per update, {does}: {steps_per_second:,.0f} "
            "steps/s (collecting {collect_seconds:.2f} s, updating {update_seconds:.2f} s)"
        )
        if "ratio" in row:
            text += (
                "\n           {reference}: {reference_steps_per_second:,.0f} steps/s (collecting "
                "{reference_collect_seconds:.2f} s, updating {reference_update_seconds:.2f} s); "
                "ratio {ratio:.1f}"
            )
        return text.format_map(row)

    _report(benchmark(epochs, reference_python), json_, line)


def benchmark_imagination(task: str = "PointGoal", json_: Json = False) -> None:
    """Imagined steps per second as training runs them, and one state at a time.

    Args:
        task: The task, with its default preset.
    """
    from surefoot.benchmark.imagination import benchmark

    row = benchmark(task)
    lines = (
        "{task}, {model} model of {members} networks ({size}), {elites} elites, on {device}",
        "together:       {steps_per_second:>12,.0f} steps/s  ({together})",
        "one at a time:  {one_at_a_time_steps_per_second:>12,.0f} steps/s  ({one_at_a_time})",
        "ratio:          {ratio:>12,.0f}",
    )
    size = "-".join(map(str, row["hidden"]))
    emit(json_, row, [line.format(**row, size=size) for line in lines])


def benchmark_planner(
    num_envs: tuple[int, ...] = (), task: str | None = None, json_: Json = False
) -> None:
    """Planned steps per second on PointGoal with the paper's settings; networks are untrained.

    Args:
        num_envs: Numbers of environments; as suits the device if none is given.
        task: Measure the safety filter of this task instead, as --careful and --plan filter use it.
    """
    from surefoot.benchmark.planner import benchmark

    def line(row: "Values", first: bool) -> str:
        steers = row["planner"]["kind"] == "steer"
        plans = "{planner[directions]} directions" if steers else "{planner[samples]} samples"
        rounds = "" if steers else ", {planner[iterations]} iterations"
        head = (
            "{task}, {model} model of {members} untrained networks ({size}), {elites} elites; "
            "horizon {planner[horizon]}, " + plans + ", {planner[particles]} particles" + rounds
        ) + "; on {device}\n"
        text = "{num_envs:>4} envs  {plans_per_second:>9,.1f} plans/s"
        if "ratio" in row:
            text += (
                "  {steps:,} steps in {seconds:,.0f} s (paper {paper_seconds:,} s, {ratio:.1f}x)"
            )
        size = "-".join(map(str, row["hidden"]))
        return (head + text if first else text).format(**row, size=size)

    _report(benchmark(num_envs, task), json_, line)
