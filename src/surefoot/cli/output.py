"""Where commands print: rich consoles for people, JSON for programs."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tyro.conf import Positional

from surefoot.core.files import printable, printable_lines


class SafeConsole(Console):
    """A console that escapes control characters: texts may come from a run's files."""

    def print(self, *objects: object, **options: Any) -> None:
        texts = [printable_lines(x) if isinstance(x, str) else x for x in objects]
        super().print(*texts, **options)


out = SafeConsole(highlight=False, soft_wrap=True)
err = SafeConsole(stderr=True, highlight=False, soft_wrap=True)

Run = Positional[Annotated[Path, tyro.conf.arg(metavar="RUN", help="The run's folder.")]]
Json = Annotated[bool, tyro.conf.arg(name="json", help="Print JSON.")]


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function that shows steps done, and of all: as a bar with the time left on a terminal,
    otherwise as a line every now and then."""
    if not err.is_terminal:
        yield _lines_of(what)
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, steps: bar.update(task, completed=done, total=steps)


def _lines_of(what: str, every: float = 30.0) -> Callable[[int, int], None]:
    """A function that prints steps done and of all, and the time left, every so many seconds."""
    start = last = time.perf_counter()

    def show(done: int, steps: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if done and now - last >= every:
            last, left = now, (now - start) * (steps - done) / done
            err.print(f"{what}: {done:,} of {steps:,} steps, about {left:,.0f} s left")

    return show


def emit(as_json: bool, value: object, lines: Iterable[str]) -> None:
    """Print a value as JSON, or lines of text: none can look like several."""
    if as_json:
        print(json.dumps(value, indent=1))
    else:
        out.print("\n".join(map(printable, lines)), markup=False)


def with_mean(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of all seeds, and a row `mean` if there are several."""
    seeds = result["seeds"]
    return seeds if len(seeds) == 1 else [*seeds, {**result, "seed": "mean"}]
