"""The command line. Each command parses, calls the library and prints; no logic lives here."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def envs(json_: Annotated[bool, tyro.conf.arg(name="json")] = False) -> None:
    """List the tasks with their sizes and options.

    Args:
        json_: Print one JSON list.
    """
    from surefoot.envs.tasks import TASKS, describe

    rows = [describe(task) for task in TASKS.values()]
    if json_:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        sizes = ", ".join(f"{name} {size}" for name, size in row["observations"].items())
        out.print(f"\n[bold]{row['name']}[/]  ({row['id']})\n  {row['summary']}")
        out.print(f"  observations: {sizes}; actions: {row['actions']}; costs: {row['costs']}")
        table = Table("option", "default", "meaning", box=None, pad_edge=False, padding=(0, 2))
        for option in row["options"]:
            table.add_row(option["name"], str(option["default"]), option["help"])
        out.print(table)


def parity(
    files: Positional[tuple[Path, ...]],
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """Replay recordings of the reference environment and compare; exit 1 outside tolerance.

    Args:
        files: Recordings (.npz).
        json_: Print one JSON list.
    """
    from surefoot.envs.parity import check

    if not files:
        raise ValueError("no file was named: surefoot parity FILE.npz …")
    reports = [check(f) for f in files]
    if json_:
        print(json.dumps([r.as_dict() for r in reports], indent=1))
    else:
        columns = ("position", "reward", "lidar", "accelerometer", "sensors", "open_loop_position")
        for r in reports:
            numbers = {c: getattr(r, c) for c in columns if getattr(r, c) is not None}
            differences = ", ".join(f"{name} {value:.1e}" for name, value in numbers.items())
            out.print(
                f"{Path(r.file).name}: {r.steps} steps; {differences}; "
                f"mismatches: {r.cost_mismatches} cost, {r.goal_mismatches} goal; "
                f"layout {'exact' if r.layout_exact else 'differs'}, "
                f"re-draws exact {r.redraws_exact} of {r.redraws}"
            )
    bad = [(r.file, r.failures()) for r in reports if r.failures()]
    for name, failures in bad:
        err.print(f"[red]outside tolerance[/] {name}: {'; '.join(failures)}")
    return 1 if bad else 0


def watch(
    what: Positional[str],
    out_: Annotated[Path, tyro.conf.arg(name="out")] = Path("clip.mp4"),
    policy: Literal["random", "still"] = "random",
    view: Literal["top", "camera"] = "top",
    steps: int | None = None,
    seed: int = 0,
    every: int = 2,
    size: int = 640,
    cost_limit: float | None = None,
) -> None:
    """Film one episode of a task: a clip from above, or through MuJoCo's camera.

    Args:
        what: A task's name.
        out_: Where the clip goes: .mp4 or .gif.
        policy: What acts.
        view: top needs no OpenGL; camera does.
        steps: Steps to film (default: one episode).
        seed: Which episode.
        every: Film every so many steps.
        size: Height of the picture in pixels.
        cost_limit: Limit shown beside the running cost.
    """
    from surefoot.envs.filming import film

    path = film(what, out_, policy, view, steps, seed, every, size, cost_limit)
    out.print(f"wrote {path}")


def benchmark_env(
    tasks: tuple[str, ...] = ("PointGoal", "CarGoal", "DoggoGoal", "RCCar"),
    num_envs: tuple[int, ...] = (1, 16, 64, 256),
    threads: tuple[int, ...] = (1, 2),
    reference_python: str | None = None,
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Steps per second of the complete environment step.

    Args:
        tasks: Which tasks.
        num_envs: How many environments at once.
        threads: On how many threads.
        reference_python: A Python 3.10 that has safety-gymnasium, to be timed in the same run.
        json_: Print one JSON list.
    """
    from surefoot.envs.benchmark import benchmark

    rows = []
    for row in benchmark(tasks, num_envs, threads, reference_python):
        rows.append(row)
        if not json_:
            line = f"{row['task']:<12} {row['num_envs']:>4} envs  {row['threads']} threads"
            line += f"  {row['steps_per_second']:>9,.0f} steps/s"
            if row["overhead_beyond_physics"] == row["overhead_beyond_physics"]:
                line += f"  {row['overhead_beyond_physics']:>4.0%} beyond physics"
            if "ratio" in row:
                line += (
                    f"  reference {row['reference_steps_per_second']:,.0f} stepping"
                    f" ({row['ratio']:.1f}x), {row['reference_with_resets']:,.0f} with resets"
                    f" ({row['ratio_with_resets']:.0f}x)"
                )
            out.print(line)
    if json_:
        print(json.dumps(rows, indent=1))


COMMANDS: dict[str, tuple[Callable[..., Any], str]] = {
    "envs": (envs, "list the tasks with their sizes and options"),
    "watch": (watch, "film an episode"),
    "parity": (parity, "compare with recordings of the reference environment"),
    "benchmark env": (benchmark_env, "steps per second of the environments"),
}


def main(argv: list[str] | None = None) -> None:
    """Entry point of `surefoot`."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        _help()
        sys.exit(0 if argv else 2)
    if argv[0] in ("-V", "--version"):
        from surefoot import __version__

        print(__version__)
        return
    words = 2 if " ".join(argv[:2]) in COMMANDS else 1
    name = " ".join(argv[:words])
    if name not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean [bold]{near[0]}[/]?" if near else ""
        err.print(f"[red]surefoot:[/] unknown command {name!r}.{hint} See surefoot --help.")
        sys.exit(2)
    try:
        code = tyro.cli(COMMANDS[name][0], args=argv[words:], prog=f"surefoot {name}")
    except (ValueError, OSError) as error:
        err.print(f"[red]surefoot {name}:[/] {error}", markup=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code or 0)


def _help() -> None:
    out.print("[bold]surefoot[/]: safe reinforcement learning that looks before it steps\n")
    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, (_, summary) in COMMANDS.items():
        table.add_row(name, summary)
    out.print(table)
    out.print("\nsurefoot COMMAND --help says more.")
