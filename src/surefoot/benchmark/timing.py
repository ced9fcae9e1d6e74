"""What the benchmarks share: timing a call, and timing another library under its own Python."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

SECONDS = 3.0
WINDOWS = 10
Row = dict[str, object]
"""A measurement in plain values."""


def fastest(call: Callable[[], object]) -> float:
    """Seconds per call in the fastest of several windows: other work on the machine only slows."""
    return alternate(call)[0]


def alternate(*calls: Callable[[], object]) -> list[float]:
    """`fastest` of each call, with windows in turn, so that other work slows all of them alike."""
    for call in calls:
        call()  # compiles
    best = [float("inf")] * len(calls)
    for _ in range(WINDOWS):
        for i, call in enumerate(calls):
            count, start = 0, time.perf_counter()
            while (spent := time.perf_counter() - start) < SECONDS / WINDOWS / len(calls):
                call()
                count += 1
            best[i] = min(best[i], spent / count)
    return best


def ask_python(
    python: str, library: str, needs: str, script: str, words: Sequence[str], folder: str = "."
) -> Any:
    """The last line that `script` prints, as JSON, run in `folder` by --reference-python.

    Errors name the `library` that the script times, and what it `needs`.
    """
    # Symbolic links are not resolved: a virtual environment's Python is identified by its path.
    program = os.path.abspath(python) if os.sep in python else python
    command = [program, "-W", "ignore", "-c", script, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    except OSError as error:
        raise ValueError(f"--reference-python {python!r} cannot be run: {error}") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(
            f"--reference-python {python!r} could not run {library}: {last}. It needs {needs}"
        )
    return json.loads(done.stdout.strip().splitlines()[-1])
