"""Progress of an experiment: a live table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from surefoot.experiments.job import Block
from surefoot.report.data import load_run
from surefoot.report.table import duration
from surefoot.runs.listing import is_run

LINE_EVERY = 60.0
"""Seconds between lines without a terminal."""
READ_EVERY = 2.0
"""Seconds between readings of the metrics of running trainings."""


class Progress:
    """Shows which blocks are done, running and waiting."""

    def __init__(
        self,
        blocks: Sequence[Block],
        done: int,
        device: str,
        quiet: bool = False,
        console: Console | None = None,
    ):
        """`done` is the number of runs that need no training."""
        self.console = console or Console(highlight=False, soft_wrap=True, quiet=quiet)
        self.steps = {block: block.job.config(device).steps for block in blocks}
        self.waiting, self.finished, self.failed = len(blocks), done, 0
        self.running: dict[Block, float] = {}
        """When each running block was started."""
        self.status: dict[Block, str] = {}
        self.read_at = self.line_at = time.monotonic()
        terminal = self.console.is_terminal and not self.console.quiet
        self.live = Live(console=self.console, auto_refresh=False) if terminal else None

    def __enter__(self) -> "Progress":
        self.print(self.line())
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.live.stop()

    def started(self, block: Block) -> None:
        self.waiting -= 1
        self.running[block] = time.monotonic()
        if not self.live:
            self.print(f"{'resuming' if is_run(block.folder) else 'training'}: {block}")

    def ended(self, block: Block, finished: bool, message: str) -> None:
        del self.running[block]
        self.finished += finished
        self.failed += not finished
        self.print(
            f"finished: {block}, {self._status(block)}"
            if finished
            else f"failed: {block}: {message}"
        )
        if not self.live:
            self.print(self.line())
            self.line_at = time.monotonic()

    def refresh(self) -> None:
        """Read the metrics of running trainings, and show them from time to time."""
        now = time.monotonic()
        if now - self.read_at >= READ_EVERY:
            self.read_at = now
            self.status = {block: self._status(block) for block in self.running}
        if self.live:
            self.live.update(self._table(), refresh=True)
        elif now - self.line_at >= LINE_EVERY:
            self.line_at = now
            self.print(self.line())

    def print(self, text: str) -> None:
        self.console.print(text, markup=False)

    def line(self) -> str:
        """Everything in one line."""
        parts = [f"{self.finished} done", f"{len(self.running)} running", f"{self.waiting} waiting"]
        return ", ".join(parts + [f"{self.failed} failed"] * bool(self.failed))

    def _status(self, block: Block) -> str:
        try:
            run = load_run(block.folder)
        except (ValueError, OSError):
            return "no epoch yet"
        last = [row for row in run.rows if row["epoch"] == run.rows[-1]["epoch"]]
        reward, cost = (sum(row[name] for row in last) / len(last) for name in ("reward", "cost"))
        share = min(1.0, run.real_steps / self.steps[block])
        return f"{share:.0%} of {self.steps[block]:,} steps, reward {reward:.2f}, cost {cost:.1f}"

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, caption=self.line(), show_header=False)
        table.caption_justify = "left"
        for block, since in self.running.items():
            status = self.status.get(block, "no epoch yet")
            table.add_row(str(block), status, duration(time.monotonic() - since))
        return table
