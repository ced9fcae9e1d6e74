"""Runs a command: parses its words, calls its function, and turns errors into exit codes."""

import os
import select
import signal
import sys
from importlib import import_module

import tyro
from rich.markup import escape
from rich.table import Table

from surefoot.cli import COMMANDS
from surefoot.cli.output import err, out
from surefoot.cli.runs import full_plan_option
from surefoot.core.config import did_you_mean
from surefoot.runs.interrupt import end_at_signals

PARSES = ("train", "evaluate")
"""Commands that take the words as they are, to choose their defaults before parsing them."""

NO_CACHE_OPTION = "--no-cache"
"""An option of all commands."""
FAULTS = (ValueError, OSError, RuntimeError, MemoryError, ImportError)
"""Errors of a user, an environment or the machine, which need no traceback."""


def run(words: list[str] | None) -> None:
    """Run a command, given in `words` or as this process was started; ends in SystemExit."""
    argv = sys.argv[1:] if words is None else words
    if NO_CACHE_OPTION in argv:
        argv = [word for word in argv if word != NO_CACHE_OPTION]
        os.environ["SUREFOOT_NO_CACHE"] = "1"  # for this process and those that it starts
    if not argv or argv[0] in ("-h", "--help"):
        _help()
        sys.exit(0 if argv else 2)
    if argv[0] in ("-V", "--version"):
        from surefoot import __version__

        print(__version__)
        return
    count = 2 if " ".join(argv[:2]) in COMMANDS else 1
    name = " ".join(argv[:count])
    if name not in COMMANDS:
        hint = escape(f"{name!r}{did_you_mean(name, COMMANDS)}")
        err.print(f"[red]surefoot:[/] unknown command {hint}. See surefoot --help.")
        sys.exit(2)
    if words is None and name == "watch":  # removes its unfinished clip
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        module, _, attribute = COMMANDS[name][0].partition(":")
        function = getattr(import_module(f"surefoot.cli.{module}"), attribute)
        args = full_plan_option(argv[count:])
        parse = lambda: tyro.cli(function, args=args, prog=f"surefoot {name}")
        code = function(args) if name in PARSES else parse()
        sys.stdout.flush()
    except Exception as error:
        if not isinstance(error, FAULTS) and type(error).__module__ != "mujoco":
            raise
        if isinstance(error, BrokenPipeError) and _reader_has_gone():
            sys.exit(128 + signal.SIGPIPE)
        _report(name, error)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        if str(stop):
            _report(name, stop)
        if words is None:
            end_at_signals()  # ignored since the first one, so that this much is said
        sys.exit(getattr(stop, "code", 130))
    sys.exit(code or 0)


def _report(name: str, error: BaseException) -> None:
    # Messages may contain brackets, such as surefoot[video].
    lines = escape(str(error)).replace("\n", "\n  ")  # no line of it looks like one of ours
    err.print(f"[red]surefoot {name}:[/] {lines}")


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
    out.print("--no-cache, with any command, keeps no compiled programs in the cache directory.")
