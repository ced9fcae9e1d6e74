"""Live progress: a table on a terminal, plain lines elsewhere, and log.txt always."""

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from surefoot.algorithms.loop import Epoch
from surefoot.core.files import Folder, printable
from surefoot.runs.info import RunInfo, algorithm_of, config_of

LINES_SHOWN = 12
WIDE = 100
"""Characters of a terminal in which every column has one line."""


class _Stdout:
    """Standard output that never fails: what cannot be shown is dropped, and the run continues."""

    def __init__(self) -> None:
        self._file = sys.stdout

    def write(self, text: str) -> None:
        self._try(lambda: self._file.write(text))

    def flush(self) -> None:
        self._try(self._file.flush)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except UnicodeError:
            pass
        except (OSError, ValueError):  # the reader has gone, the disk is full, or it was closed
            with suppress(OSError, ValueError):
                # Python would fail once more at exit with what it still buffers.
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._file.fileno())

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class ConsoleLogger:
    """Shows each epoch as it ends. Neither a console nor a log.txt that fails stops a run."""

    def __init__(self, folder: Path, info: RunInfo, quiet: bool = False, seconds: float = 0.0):
        """`seconds` is the time that the run has taken already."""
        self._console = Console(
            file=cast("IO[str]", _Stdout()), highlight=False, soft_wrap=True, quiet=quiet
        )
        self._info, self._algorithm = info, algorithm_of(info)
        self._lines: list[tuple[str, ...]] = []
        self._start = time.perf_counter() - seconds
        self._last = time.perf_counter()
        self._log = Folder(folder).open("log.txt", "ab")
        terminal = self._console.is_terminal and not quiet
        self._live = Live(console=self._console, auto_refresh=False) if terminal else None

    def start(self) -> None:
        """Show what will be trained."""
        info = self._info
        seeds = f"{len(info.seeds)} seed{'s' * (len(info.seeds) > 1)}"
        limits = ", ".join(f"{x:g}" for x in dict.fromkeys(info.cost_limits.values()))
        if within := info.config.get("within"):
            limits += f" for {within:.0%} of the episodes"
        self.message(f"{info.steps:,} real steps, {seeds}, cost limit {limits}")
        with suppress(ValueError):
            if settings := self._algorithm.summary(config_of(info, Path(info.algorithm))):
                self.message(settings)
        if self._live:
            self._live.start()
            waiting = Text("compiling and collecting the first episodes …", "dim italic")
            self._live.update(waiting, refresh=True)

    def epoch(self, epoch: Epoch) -> None:
        """Show one more epoch: means over seeds."""
        means = _means(epoch)
        sign = "≤" if means["cost"] <= means["cost_limit"] else ">"
        ended = np.isfinite(means["reward"])  # otherwise no episode did
        columns = {
            "epoch": f"{epoch.number}/{epoch.total}",
            "real steps": f"{epoch.metrics[0]['steps']:,}",
            "reward": f"{means['reward']:.2f}" if ended else "-",
            "cost": f"{means['cost']:.1f} {sign} {means['cost_limit']:g}" if ended else "-",
        }
        for title, template in self._algorithm.columns.items():
            columns[title] = template(means) if callable(template) else template.format_map(means)
        columns["violations"] = f"{means['violations']:.0f}"
        columns["time"] = f"{time.perf_counter() - self._start:.0f} s"
        phases = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in epoch.seconds.items())
        line = "  ".join(f"{name} {value}" for name, value in columns.items())
        if self._live:
            self._lines.append(tuple(columns.values()))
            status = Text(f"so far: {printable(phases)}{self._left(epoch)}")
            self._live.update(self._table(tuple(columns), status), refresh=True)
            self._write_log(f"{line}  ({phases})")
        else:
            self.message(f"{line}  ({phases})")
        for warning in epoch.warnings:
            self.message(f"warning: {warning}")
        for row in epoch.metrics:
            if warning := self._algorithm.warning(row):
                self.message(f"warning: seed {row['seed']}: {warning}")

    def _left(self, epoch: Epoch) -> str:
        """The time left, if the other epochs take as long as this one."""
        now = time.perf_counter()
        seconds, self._last = (now - self._last) * (epoch.total - epoch.number), now
        if seconds < 1:
            return ""
        return (
            f"; about {seconds:.0f} s left"
            if seconds < 100
            else f"; about {seconds / 60:.0f} min left"
        )

    def message(self, text: str) -> None:
        self._write_log(text)
        # It may quote a file of the run.
        self._console.print(printable(text), soft_wrap=self._live is None, markup=False)

    def close(self) -> None:
        if self._live:
            self._live.stop()
        with suppress(OSError):  # a full disk was reported at the first failed write
            self._log.close()

    def _write_log(self, line: str) -> None:
        with suppress(OSError, ValueError):  # metrics.csv and checkpoints decide whether to stop
            self._log.write(f"{printable(line)}\n".encode())
            self._log.flush()

    def _table(self, names: tuple[str, ...], status: Text) -> Table:
        narrow = self._console.width < WIDE  # then column names take two lines
        table = Table(box=None, pad_edge=False, collapse_padding=narrow, caption=status)
        table.caption_justify = "left"
        for name in names:
            header = name.replace(" ", "\n") if narrow else name
            table.add_column(header, justify="right", vertical="bottom", no_wrap=True)
        for line in self._lines[-LINES_SHOWN:]:
            table.add_row(*line)
        return table


def _means(epoch: Epoch) -> defaultdict[str, float]:
    """Means over seeds of an epoch's metrics; NaN for one that is missing."""
    means = {
        name: float(np.mean([row[name] for row in epoch.metrics])) for name in epoch.metrics[0]
    }
    return defaultdict(lambda: float("nan"), means)
