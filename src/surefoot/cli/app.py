"""The table of commands, and `main`."""

import os
import select
import signal
import sys
from importlib import import_module

import tyro
from rich.markup import escape
from rich.table import Table

from surefoot.cli.output import err, out
from surefoot.cli.runs import full_plan_option
from surefoot.core.config import did_you_mean

COMMANDS = {
    "check": ("check:check", "check an environment before training on it"),
    "train": ("train:train", "train a policy on a task"),
    "resume": ("runs:resume", "resume a run, or make it longer"),
    "runs": ("runs:runs", "list runs with their state"),
    "show": ("runs:show", "show a run and check its files"),
    "evaluate": ("runs:evaluate", "evaluate a run on fresh episodes"),
    "compare": ("report:compare", "compare runs: statistics, figures and a page"),
    "reproduce": ("reproduce:reproduce", "run an experiment and write its page"),
    "diagnose": ("diagnose:diagnose", "check a run's learned model on real episodes"),
    "export": ("runs:export", "write a run's policy to a file that needs only numpy"),
    "envs": ("envs:envs", "list the tasks with their sizes and options"),
    "watch": ("envs:watch", "film an episode"),
    "parity": ("envs:parity", "compare with recordings of the reference environment"),
    "benchmark env": ("benchmark:benchmark_env", "steps per second of environments"),
    "benchmark train": ("benchmark:benchmark_train", "steps per second of training"),
    "benchmark imagination": ("benchmark:benchmark_imagination", "imagined steps per second"),
    "benchmark planner": ("benchmark:benchmark_planner", "planned steps per second"),
}
"""Where the function of each command lives, imported when it runs, and what it does."""
PARSES = ("train", "evaluate")
"""Commands that take the words as they are, to choose their defaults before parsing them."""


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
        module, _, attribute = COMMANDS[name][0].partition(":")
        function = getattr(import_module(f"surefoot.cli.{module}"), attribute)
        args = full_plan_option(argv[words:])
        parse = lambda: tyro.cli(function, args=args, prog=f"surefoot {name}")
        code = function(args) if name in PARSES else parse()
        sys.stdout.flush()
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        if isinstance(error, BrokenPipeError) and _reader_has_gone():
            sys.exit(128 + signal.SIGPIPE)
        # Messages may contain brackets, such as surefoot[video].
        err.print(f"[red]surefoot {name}:[/] {escape(str(error))}")
        sys.exit(2)
    except KeyboardInterrupt as stop:
        if str(stop):
            err.print(f"[red]surefoot {name}:[/] {escape(str(stop))}")
        sys.exit(getattr(stop, "code", 130))
    sys.exit(code or 0)


def _reader_has_gone() -> bool:
    """Whether nothing reads what is printed any more, as in `surefoot runs | head -1`."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    if not poll.poll(0):
        return False
    # Python would fail once more at exit with what it still buffers.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def _help() -> None:
    out.print("[bold]surefoot[/]: safe reinforcement learning that looks before it steps\n")
    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, (_, summary) in COMMANDS.items():
        table.add_row(name, summary)
    out.print(table)
    out.print("\nSee surefoot COMMAND --help for its options.")
