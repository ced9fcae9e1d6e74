"""The table of commands, and `main`."""

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import tyro
from rich.markup import escape
from rich.table import Table

from surefoot.cli.output import err, out
from surefoot.cli.runs import full_plan_option
from surefoot.core.config import did_you_mean


class Command(NamedTuple):
    """A command: where its function lives, and what it does."""

    function: str
    """`module:name`, imported when the command runs."""
    summary: str
    parses: bool = False
    """Whether it takes the words as they are, to choose its defaults before parsing them."""

    def load(self) -> Callable[..., Any]:
        module, _, name = self.function.partition(":")
        return getattr(import_module(f"surefoot.cli.{module}"), name)


COMMANDS = {
    "train": Command("train:train", "train a policy on a task", True),
    "resume": Command("runs:resume", "resume a run, or make it longer"),
    "runs": Command("runs:runs", "list runs with their state"),
    "show": Command("runs:show", "show a run and check its files"),
    "evaluate": Command("runs:evaluate", "evaluate a run on fresh episodes", True),
    "compare": Command("report:compare", "compare runs: statistics, figures and a page"),
    "reproduce": Command("reproduce:reproduce", "run an experiment and write its page"),
    "diagnose": Command("diagnose:diagnose", "check a run's learned model on real episodes"),
    "export": Command("runs:export", "write a run's policy to a file that needs only numpy"),
    "envs": Command("envs:envs", "list the tasks with their sizes and options"),
    "watch": Command("envs:watch", "film an episode"),
    "parity": Command("envs:parity", "compare with recordings of the reference environment"),
    "benchmark env": Command("benchmark:benchmark_env", "steps per second of environments"),
    "benchmark train": Command("benchmark:benchmark_train", "steps per second of training"),
    "benchmark imagination": Command(
        "benchmark:benchmark_imagination", "imagined steps per second"
    ),
    "benchmark planner": Command("benchmark:benchmark_planner", "planned steps per second"),
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
        hint = escape(f"{name!r}{did_you_mean(name, COMMANDS)}")
        err.print(f"[red]surefoot:[/] unknown command {hint}. See surefoot --help.")
        sys.exit(2)
    try:
        command, args = COMMANDS[name], full_plan_option(argv[words:])
        function = command.load()
        parse = lambda: tyro.cli(function, args=args, prog=f"surefoot {name}")
        code = function(args) if command.parses else parse()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone, as in `surefoot runs | head -1`
        # Python would fail once more at exit with what it still buffers.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        # Messages may contain brackets, such as surefoot[video].
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
    for name, command in COMMANDS.items():
        table.add_row(name, command.summary)
    out.print(table)
    out.print("\nSee surefoot COMMAND --help for its options.")
