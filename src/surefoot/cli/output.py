"""Where commands print: rich consoles for people, JSON for programs."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import Positional

from surefoot.core.files import printable, printable_lines


class SafeConsole(Console):
    """A console that escapes control characters: texts may come from a run's files."""

    def print(self, *objects: Any, **options: Any) -> None:
        texts = [printable_lines(x) if isinstance(x, str) else x for x in objects]
        super().print(*texts, **options)


out = SafeConsole(highlight=False, soft_wrap=True)
err = SafeConsole(stderr=True, highlight=False, soft_wrap=True)

Run = Positional[Annotated[Path, tyro.conf.arg(metavar="RUN", help="The run's folder.")]]
Json = Annotated[bool, tyro.conf.arg(name="json", help="Print JSON.")]


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
