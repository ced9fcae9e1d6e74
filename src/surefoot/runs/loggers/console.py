"""Live progress: a table on a terminal, plain lines elsewhere, and log.txt always."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from surefoot.algorithms.common import Epoch

SHOWN = 12
ROOMY = 100


class _Stdout:
    """Standard output without which a run goes on: what cannot be shown is left out."""

    def __init__(self) -> None:
        self._file = sys.stdout

    def write(self, text: str) -> None:
        with self._lenient():
            self._file.write(text)

    def flush(self) -> None:
        with self._lenient():
            self._file.flush()

    @contextmanager
    def _lenient(self) -> Iterator[None]:
        try:
            yield
        except UnicodeError:
            pass
        except (OSError, ValueError):  # its reader has gone, its disk is full, or it was closed
            with suppress(OSError, ValueError):
                # What Python still holds would fail once more at its end.
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._file.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Progress:
    """Shows each epoch as it ends. Neither a console nor a log.txt that fails stops a run."""

    def __init__(
        self,
        folder: Path,
        seeds: list[int],
        config: Any,
        quiet: bool,
        tensorboard: bool,
        seconds: float = 0.0,
    ):
        """`seconds` is the time that the run has taken already."""
        self.console = Console(
            file=cast("IO[str]", _Stdout()), highlight=False, soft_wrap=True, quiet=quiet
        )
        self.seeds, self.config = seeds, config
        self.names: tuple[str, ...] = ()
        self.lines: list[tuple[str, ...]] = []
        self.start = time.perf_counter() - seconds
        self.log = (folder / "log.txt").open("a")
        self.live = Live(console=self.console, auto_refresh=False) if self._terminal else None
        self.events = _events(folder) if tensorboard else None

    @property
    def _terminal(self) -> bool:
        return self.console.is_terminal and not self.console.quiet

    def __enter__(self) -> "Progress":
        seeds = f"{len(self.seeds)} seed{'s' * (len(self.seeds) > 1)}"
        self.say(
            f"{self.config.steps:,} real steps, {seeds}, cost limit {self.config.cost_limit:g}"
        )
        if self.live:
            self.live.start()
            waiting = Text("compiling and collecting the first episodes …", "dim italic")
            self.live.update(waiting, refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.live.stop()
        with suppress(OSError):  # a full disk is told of where it was met first
            if self.events:
                self.events.close()
            self.log.close()

    def show(self, epoch: Epoch) -> None:
        """One more epoch."""
        mean = lambda name: float(np.mean([r.get(name, np.nan) for r in epoch.metrics]))
        cost, limit = mean("cost"), self.config.cost_limit
        columns = {
            "epoch": f"{epoch.number}/{epoch.total}",
            "real steps": f"{epoch.metrics[0]['steps']:,}",
            "reward": f"{mean('reward'):.2f}",
            "cost": f"{cost:.1f} {'≤' if cost <= limit else '>'} {limit:g}",
            "imagined": f"{mean('imagined_reward'):.1f}/{mean('imagined_cost'):.1f}",
            "lambda": f"{mean('lambda'):.3f}",
            "planned": f"{mean('planned_value'):.1f}/{mean('planned_cost'):.1f}",
            "safe plans": f"{mean('safe_plans'):.0%}",
            "temperature": f"{mean('temperature'):.3f}",
            "model error": f"{mean('model_error'):.4f}",
            "passes": f"{mean('passes'):.0f}",
            "violations": f"{mean('violations'):.0f}",
            "time": f"{time.perf_counter() - self.start:.0f} s",
        }
        known = epoch.metrics[0]
        columns = {k: v for k, v in columns.items() if k not in NEEDS or NEEDS[k] in known}
        phases = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in epoch.seconds.items())
        line = "  ".join(f"{name} {value}" for name, value in columns.items())
        self._write_log(f"{line}  ({phases})")
        self._write_events(epoch)
        if self.live:
            self.names = tuple(columns)
            self.lines.append(tuple(columns.values()))
            self.live.update(self._table(f"so far: {phases}"), refresh=True)
        else:
            self.console.print(f"{line}  ({phases})")
        for row in epoch.metrics:
            if row.get("cost_mismatch"):
                self.say(
                    f"warning: seed {row['seed']}: real cost {row['cost']:.1f}, imagined "
                    f"{row['imagined_cost_before']:.1f} for the same policy: the model misjudges "
                    f"the cost"
                )

    def say(self, text: str) -> None:
        self._write_log(text)
        self.console.print(text, soft_wrap=self.live is None)

    def _write_log(self, line: str) -> None:
        with suppress(OSError):  # metrics.csv and the checkpoints decide whether a run can go on
            self.log.write(line + "\n")
            self.log.flush()

    def _table(self, status: str) -> Table:
        narrow = self.console.width < ROOMY  # then two lines of names, and little between columns
        table = Table(box=None, pad_edge=False, collapse_padding=narrow, caption=status)
        table.caption_justify = "left"
        for name in self.names:
            header = name.replace(" ", "\n") if narrow else name
            table.add_column(header, justify="right", vertical="bottom", no_wrap=True)
        for line in self.lines[-SHOWN:]:
            table.add_row(*line)
        return table

    def _write_events(self, epoch: Epoch) -> None:
        if self.events is None:
            return
        for row in epoch.metrics:
            for name, value in row.items():
                if name not in ("seed", "steps") and np.isfinite(value):
                    tag = f"{name}/seed_{row['seed']}"
                    self.events.add_scalar(tag, value, row["steps"])


NEEDS = {
    "imagined": "imagined_reward", "lambda": "lambda", "planned": "planned_value",
    "safe plans": "safe_plans", "temperature": "temperature", "model error": "model_error",
    "passes": "passes",
}  # fmt: skip
"""Columns that not all algorithms have, and the metric that tells."""


def _events(folder: Path) -> Any:
    try:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: F401
    except ImportError:
        raise ValueError(
            "--tensorboard needs the extra: pip install 'surefoot[tensorboard]'"
        ) from None
    return _EventWriter(folder)


class _EventWriter:
    """Scalars as TensorBoard reads them, without torch or tensorflow."""

    def __init__(self, folder: Path):
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(folder))

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        summary = Summary(value=[Summary.Value(tag=tag, simple_value=float(value))])
        self._writer.add_event(Event(wall_time=time.time(), step=int(step), summary=summary))

    def close(self) -> None:
        self._writer.close()
