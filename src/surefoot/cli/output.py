"""Where commands print: rich consoles for people, JSON for programs."""

import json
from collections.abc import Iterable
from typing import Annotated, Any

import tyro
from rich.console import Console

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

Json = Annotated[bool, tyro.conf.arg(name="json", help="Print JSON.")]


def emit(as_json: bool, value: Any, lines: Iterable[str]) -> None:
    """Print a value as JSON, or lines of text."""
    if as_json:
        print(json.dumps(value, indent=1))
    else:
        out.print("\n".join(lines), markup=False)
