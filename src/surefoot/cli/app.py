"""The command line. Each command parses, calls the library and prints; no logic lives here."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional

from surefoot.cli.model import benchmark_imagination, diagnose
from surefoot.cli.planner import benchmark_planner
from surefoot.cli.report import compare
from surefoot.cli.reproduce import reproduce
from surefoot.cli.runs import evaluate, export, plan_in_full, print_result, resume, runs, show

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def envs(json_: Annotated[bool, tyro.conf.arg(name="json")] = False) -> None:
    """List the tasks with their sizes and options.

    Args:
        json_: Print one JSON list.
    """
    from surefoot.envs.task import TASKS, describe

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


def train(argv: list[str]) -> int:
    """Train on a task. Parsed in two steps: algorithm and preset choose the defaults shown."""
    import jax

    from surefoot.algorithms.presets import preset as preset_config
    from surefoot.envs.task import TASKS
    from surefoot.runs import train as runs
    from surefoot.runs.device import use_device

    argv = [_long(word) for word in argv]
    use_device(_early(argv, "--device", "auto"))
    algorithm = _early(argv, "--algorithm", "mbppo-lagrangian")
    preset = _early(argv, "--preset", "default")
    task = next((a for a in argv if a in TASKS), None)
    config = preset_config(algorithm, preset, task, jax.default_backend())
    kind = type(config)

    def command(
        task: Positional[str],
        config: Annotated[kind, tyro.conf.arg(name="")] = config,  # type: ignore[valid-type]
        algorithm: str = algorithm,
        preset: str = preset,
        seeds: int = 1,
        seed: int = 0,
        out_: Annotated[Path | None, tyro.conf.arg(name="out")] = None,
        env: tuple[str, ...] = (),
        tensorboard: bool = False,
        checkpoint_every: float | None = None,
        keep: int = 2,
        device: Literal["auto", "cpu", "gpu"] = "auto",
        quiet: bool = False,
    ) -> int:
        """Train a policy that keeps its episode cost under a limit.

        Args:
            task: A task's name; see surefoot envs.
            algorithm: mbppo-lagrangian, ppo-lagrangian, ppo, trpo-lagrangian, cpo, sac or
                safe-loop.
            preset: default or paper.
            seeds: How many seeds to train side by side.
            seed: The first seed.
            out_: The run's folder (default: a fresh one under runs/).
            env: Options of the task, as NAME=VALUE.
            tensorboard: Write TensorBoard events too.
            checkpoint_every: Least seconds between checkpoints (default: so that they take at most
                a hundredth of the time).
            keep: How many of the last checkpoints are kept, beside the best.
            device: What learns; auto takes a GPU where there is one.
            quiet: Show no progress.
        """
        path = runs.train(
            task, algorithm, preset, seeds, seed, out_, config, _options(env), quiet=quiet,
            tensorboard=tensorboard, checkpoint_every=checkpoint_every, keep=keep,
        )  # fmt: skip
        print_result(path)
        return 0

    return tyro.cli(command, args=argv, prog="surefoot train")


def _long(word: str) -> str:
    """A short option in full: --multiplier pid means --multiplier.kind pid."""
    name, sign, value = word.partition("=")
    return f"--multiplier.kind{sign}{value}" if name == "--multiplier" else word


def _early(argv: list[str], flag: str, default: str) -> str:
    """The value of a flag, before the rest is parsed."""
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            return argv[i + 1]
        if word.startswith(flag + "="):
            return word.split("=", 1)[1]
    return default


def _options(pairs: tuple[str, ...]) -> dict[str, Any]:
    """NAME=VALUE pairs as Python values."""
    from ast import literal_eval

    options: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise ValueError(f"--env {pair!r} must have the form NAME=VALUE, such as hazards=8")
        try:
            options[name] = literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    return options


def watch(
    what: Positional[str],
    out_: Annotated[Path, tyro.conf.arg(name="out")] = Path("clip.mp4"),
    policy: Literal["random", "still"] = "random",
    which: int = 0,
    plan: Literal["look-ahead", "filter"] | None = None,
    view: Literal["top", "camera"] = "top",
    steps: int | None = None,
    seed: int = 0,
    every: int = 2,
    size: int = 640,
    cost_limit: float | None = None,
) -> None:
    """Film one episode of a task or of a run: from above, or through MuJoCo's camera.

    Args:
        what: A task's name, or a run's folder, whose policy then acts.
        out_: Where the clip goes: .mp4 or .gif.
        policy: What acts where no run does.
        which: Which of the run's seeds acts, counted from 0.
        plan: Plan on top of the run's policy, as in evaluate; safe-loop's runs look ahead anyway.
        view: top needs no OpenGL; camera does.
        steps: Steps to film (default: one episode).
        seed: Which episode.
        every: Film every so many steps.
        size: Width of the picture in pixels.
        cost_limit: Limit shown beside the running cost.
    """
    if Path(what).is_dir():
        from surefoot.use.film import film_run

        path = film_run(what, which, out_, view, steps, seed, every, size, plan)
    elif plan is not None:
        raise ValueError(
            f"--plan {plan} plans with the model of a run: {what!r} is no run's folder"
        )
    else:
        from surefoot.envs.render.film import film

        path = film(what, out_, policy, view, steps, seed, every, size, cost_limit)
    out.print(f"wrote {path}", markup=False)


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
    from surefoot.benchmark.env import benchmark

    rows = []
    for row in benchmark(tasks, num_envs, threads, reference_python):
        rows.append(row)
        if not json_:
            line = f"{row['task']:<12} {row['num_envs']:>4} envs  {row['threads']} threads"
            line += f"  {row['steps_per_second']:>9,.0f} steps/s"
            if row["overhead_beyond_physics"] is not None:
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


def benchmark_train(
    epochs: int = 3,
    reference_python: str | None = None,
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Real steps per second of training PPO-Lagrangian on PointGoal, collecting and updating.

    Args:
        epochs: Updates timed, after one that compiles; the fastest counts.
        reference_python: A Python 3.10 that has OmniSafe 0.5.0, to be timed in the same run.
        json_: Print one JSON list.
    """
    from surefoot.benchmark.train import benchmark

    rows = []
    for row in benchmark(epochs, reference_python):
        rows.append(row)
        if not json_:
            out.print(
                f"{row['schedule']:<10} {row['steps_per_update']:,} steps per update, "
                f"{row['does']}: {row['steps_per_second']:,.0f} steps/s (collecting "
                f"{row['collect_seconds']:.2f} s, updating {row['update_seconds']:.2f} s)"
            )
            if "ratio" in row:
                out.print(
                    f"{'':<10} {row['reference']}: {row['reference_steps_per_second']:,.0f} steps/s"
                    f" (collecting {row['reference_collect_seconds']:.2f} s, updating "
                    f"{row['reference_update_seconds']:.2f} s); ratio {row['ratio']:.1f}"
                )
    if json_:
        print(json.dumps(rows, indent=1))


COMMANDS: dict[str, tuple[Callable[..., Any], str]] = {
    "train": (train, "train a policy on a task"),
    "resume": (resume, "go on with a run that was interrupted, or make it longer"),
    "runs": (runs, "list runs with their state"),
    "show": (show, "show a run and check its files"),
    "evaluate": (evaluate, "evaluate a run on fresh episodes"),
    "compare": (compare, "compare runs: statistics, figures and a page"),
    "reproduce": (reproduce, "run an experiment of the paper and write its page"),
    "diagnose": (diagnose, "tell how far to believe a run's learned model"),
    "export": (export, "write a run's policy to a file that needs only numpy"),
    "envs": (envs, "list the tasks with their sizes and options"),
    "watch": (watch, "film an episode"),
    "parity": (parity, "compare with recordings of the reference environment"),
    "benchmark env": (benchmark_env, "steps per second of the environments"),
    "benchmark train": (benchmark_train, "steps per second of training"),
    "benchmark imagination": (benchmark_imagination, "imagined steps per second"),
    "benchmark planner": (benchmark_planner, "planned steps per second"),
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
        err.print(
            f"[red]surefoot:[/] unknown command {escape(repr(name))}.{hint} See surefoot --help."
        )
        sys.exit(2)
    try:
        command = COMMANDS[name][0]
        args = plan_in_full(argv[words:])
        if command in (train, evaluate):  # which choose by themselves what they parse
            code = command(args)
        else:
            code = tyro.cli(command, args=args, prog=f"surefoot {name}")
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        # Messages may hold brackets of their own, such as surefoot[video].
        err.print(f"[red]surefoot {name}:[/] {escape(str(error))}")
        sys.exit(2)
    except KeyboardInterrupt as stop:
        if str(stop):
            err.print(f"[red]surefoot {name}:[/] {escape(str(stop))}")
        sys.exit(getattr(stop, "code", 130))
    sys.exit(code or 0)


def _help() -> None:
    out.print("[bold]surefoot[/]: safe reinforcement learning that looks before it steps\n")
    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, (_, summary) in COMMANDS.items():
        table.add_row(name, summary)
    out.print(table)
    out.print("\nsurefoot COMMAND --help says more.")
