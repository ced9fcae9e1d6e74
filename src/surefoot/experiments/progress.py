"""Progress over a whole experiment: what is done, running and left, and how long it will take."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from surefoot.experiments.job import Block
from surefoot.experiments.library import Known
from surefoot.runs.folder import RunFolder
from surefoot.runs.listing import describe_run, is_run

EVERY = 60.0
"""Seconds between lines where there is no terminal."""
LOOK = 2.0
"""Seconds between looks into the folders of running trainings."""


@dataclass
class Running:
    """What is known of a training that goes on."""

    since: float
    before: float
    """Share of it that was done when it was begun, or gone on with."""
    share: float
    row: dict[str, Any] = field(default_factory=dict)


def pace_of(run: Known) -> tuple[tuple[str, str], float] | None:
    """(task, algorithm) and the seconds that a real step of a finished run has taken."""
    result = RunFolder(run.path).read_json("result.json")
    steps = result.get("real_steps", 0)
    if not steps:
        return None
    return (run.info["task"], run.info["algorithm"]), result["seconds"] / steps


def time_left(durations: Sequence[float | None], lanes: int) -> float | None:
    """Seconds for trainings that still take `durations`, so many `lanes` at once.

    Of those that nothing is known of, the mean of the others is assumed; with no others there is no
    telling. The longest of them is the least it takes.
    """
    known = [d for d in durations if d is not None]
    if not durations:
        return 0.0
    if not known:
        return None
    mean = sum(known) / len(known)
    every = [mean if d is None else d for d in durations]
    return max(sum(every) / max(1, lanes), *every)


def words_of(seconds: float | None) -> str:
    """A time as people say it."""
    if seconds is None:
        return "time not known yet"
    if seconds < 90:
        return f"about {max(1, round(seconds))} s to go"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min to go"
    return f"about {seconds / 3600:.1f} h to go"


class Progress:
    """A live table on a terminal, plain lines elsewhere."""

    def __init__(
        self,
        blocks: Sequence[Block],
        done: Sequence[Known],
        lanes: int,
        device: str,
        quiet: bool = False,
        console: Console | None = None,
    ):
        """`done` are the runs that need not be trained; they tell how long others will take."""
        self.console = console or Console(highlight=False, soft_wrap=True, quiet=quiet)
        self.waiting, self.lanes = list(blocks), lanes
        self.steps = {block: block.job.config(device).steps for block in blocks}
        self.running: dict[Block, Running] = {}
        self.finished, self.failed = len(done), 0
        self.pace: dict[tuple[str, str], float] = dict(filter(None, map(pace_of, done)))
        self.looked = self.told = time.monotonic()
        terminal = self.console.is_terminal and not self.console.quiet
        self.live = Live(console=self.console, auto_refresh=False) if terminal else None

    def __enter__(self) -> "Progress":
        self.say(self.line())
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.live.stop()

    def began(self, block: Block) -> None:
        self.waiting.remove(block)
        share = self._share(block)[0]
        self.running[block] = Running(time.monotonic(), share, share)
        if not self.live:
            self.say(f"{'going on with' if share else 'training'} {block}")

    def ended(self, block: Block, finished: bool, message: str) -> None:
        was = self.running.pop(block)
        if finished:
            self.finished += 1
            self._learn_pace(block, was, 1.0)
            row = describe_run(block.folder) if is_run(block.folder) else {}
            found = _numbers(row)
            self.say(f"finished: {block}{found}")
        else:
            self.failed += 1
            self.say(f"failed: {block}: {message}")
        if not self.live:
            self.say(self.line())
            self.told = time.monotonic()

    def refresh(self) -> None:
        """Look how far everything is, and show it now and then."""
        now = time.monotonic()
        if now - self.looked >= LOOK:
            self.looked = now
            for block, known in self.running.items():
                known.share, known.row = self._share(block)
                self._learn_pace(block, known, known.share)
        if self.live:
            self.live.update(self._table(), refresh=True)
        elif now - self.told >= EVERY:
            self.told = now
            self.say(self.line())

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)

    def line(self) -> str:
        """Everything in one line."""
        parts = [f"{self.finished} done", f"{len(self.running)} running"]
        parts += [f"{len(self.waiting)} left"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.running or self.waiting:
            parts.append(words_of(self.left()))
        return ", ".join(parts)

    def left(self) -> float | None:
        """Seconds until all is done, as far as that can be told."""
        durations: list[float | None] = []
        for block in (*self.running, *self.waiting):
            pace = self.pace.get((block.job.task, block.job.algorithm))
            to_do = 1 - (self.running[block].share if block in self.running else 0.0)
            durations.append(None if pace is None else pace * to_do * self.steps[block])
        return time_left(durations, self.lanes)

    def _share(self, block: Block) -> tuple[float, dict[str, Any]]:
        """How much of a block is done, and its run as `describe_run` tells it."""
        if not is_run(block.folder):
            return 0.0, {}
        row = describe_run(block.folder)
        return min(1.0, row["real_steps"] / self.steps[block]), row

    def _learn_pace(self, block: Block, known: Running, share: float) -> None:
        done = (share - known.before) * self.steps[block]
        if done > 0:
            seconds = time.monotonic() - known.since
            self.pace[block.job.task, block.job.algorithm] = seconds / done

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, caption=self.line(), show_header=False)
        table.caption_justify = "left"
        for block, known in self.running.items():
            minutes = (time.monotonic() - known.since) / 60
            table.add_row(
                str(block), f"{known.share:.0%}", _numbers(known.row)[2:], f"{minutes:.1f} min"
            )
        return table


def _numbers(row: dict[str, Any]) -> str:
    if row.get("reward") is None or row.get("cost") is None:
        return ""
    return f", reward {row['reward']:.2f}, cost {row['cost']:.1f}"
