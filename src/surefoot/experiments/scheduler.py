"""Trains blocks, several at once: each is started, polled, and stopped if necessary."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from surefoot.experiments.job import Block
from surefoot.runs.device import cores
from surefoot.runs.listing import is_run

CORES_PER_JOB = 2
CORES_PER_GPU_JOB = 4
"""With a GPU the cores only step the environments, but of more seeds at once."""
JOBS_PER_GPU = 4
SHARING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""Lets several processes share a GPU's memory."""
GRACE = 30.0
"""Seconds that trainings have to save a checkpoint when they are stopped."""
PAUSE = 0.5
"""Seconds between polls."""


@dataclass(frozen=True)
class Outcome:
    """How the training of a block has ended."""

    finished: bool
    message: str = ""
    """The error, if it failed."""

    @property
    def name(self) -> str:
        return "finished" if self.finished else "failed"


class Handle(Protocol):
    """A training in progress."""

    def poll(self) -> Outcome | None:
        """The outcome, or None while the training runs."""
        ...

    def stop(self) -> None:
        """Request a checkpoint and the end of the training."""
        ...

    def kill(self) -> None:
        """End the training at once."""
        ...


def run_blocks(
    blocks: Sequence[Block],
    start: Callable[[Block], Handle],
    slots: Callable[[], int],
    report: Callable[[str], None],
    done: int = 0,
    pause: float = PAUSE,
) -> dict[Block, Outcome]:
    """Train all blocks, at most `slots()` at once; a failure does not affect the others.

    Blocks whose time is measured run last, one at a time. If this function is interrupted, it
    stops all trainings and waits for their checkpoints. `report` receives a line when a training
    starts or ends; `done` is the number of runs that need no training.
    """
    waiting = sorted(blocks, key=lambda block: block.job.alone)
    running: dict[Block, Handle] = {}
    outcomes: dict[Block, Outcome] = {}
    try:
        while waiting or running:
            while waiting and _fits(waiting[0], running, slots()):
                block = waiting.pop(0)
                report(f"{'resuming' if is_run(block.folder) else 'training'}: {block}")
                running[block] = start(block)
            for block, handle in list(running.items()):
                if (outcome := handle.poll()) is not None:
                    del running[block]
                    outcomes[block] = outcome
                    report(f"{outcome.name}: {block}{outcome.message and f': {outcome.message}'}")
                    failed = sum(not end.finished for end in outcomes.values())
                    counts = f"{done + len(outcomes) - failed} done, {len(running)} running, "
                    counts += f"{len(waiting)} waiting"
                    report(counts + f", {failed} failed" * bool(failed))
            if waiting or running:
                time.sleep(pause)
    except BaseException:
        report("stopping: every training saves a checkpoint; Ctrl-C again stops at once")
        for handle in running.values():
            handle.stop()
        end = time.monotonic() + GRACE
        while any(h.poll() is None for h in running.values()) and time.monotonic() < end:
            time.sleep(pause)
        raise
    finally:
        for handle in running.values():
            if handle.poll() is None:
                handle.kill()
    return outcomes


def _fits(block: Block, running: Mapping[Block, Handle], slots: int) -> bool:
    if block.job.alone or any(other.job.alone for other in running):
        return not running
    return len(running) < slots


def default_slots(gpus: int) -> int:
    """How many trainings this machine runs at once."""
    if gpus:
        return max(1, min(JOBS_PER_GPU * gpus, cores() // CORES_PER_GPU_JOB))
    return max(1, cores() // CORES_PER_JOB)


class Local:
    """Trains each block in its own process, which isolates crashes."""

    def __init__(self, device: str, gpus: int, logs: Path, environment: Mapping[str, str]):
        """`device` is cpu or gpu; the output of processes goes to files in `logs`.

        `environment` holds variables for the processes; variables that are set already win.
        """
        self.device, self.logs = device, logs
        self.environment = {**SHARING, **environment, **os.environ}
        self.load = [0] * gpus if device == "gpu" else []

    def __call__(self, block: Block) -> Handle:
        environment = dict(self.environment)
        gpu = None
        if len(self.load) > 1:
            gpu = self.load.index(min(self.load))
            self.load[gpu] += 1
            environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
        self.logs.mkdir(parents=True, exist_ok=True)
        block.folder.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "surefoot", *block.command(self.device)]
        log = self.logs / f"{block.folder.name}.txt"
        with log.open("wb") as file:
            # In its own process group: Ctrl-C at the terminal must reach it only once.
            process = subprocess.Popen(
                command, env=environment, process_group=0, stdin=subprocess.DEVNULL,
                stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
        return Child(process, log, lambda: self._release(gpu))

    def _release(self, gpu: int | None) -> None:
        if gpu is not None:
            self.load[gpu] -= 1


class Child:
    """A training in a process on this machine."""

    def __init__(self, process: subprocess.Popen, log: Path, release: Callable[[], None]):
        self.process, self.log, self._release = process, log, release
        self.outcome: Outcome | None = None

    def poll(self) -> Outcome | None:
        code = self.process.poll()
        if self.outcome is None and code is not None:
            self._release()
            self.outcome = Outcome(code == 0, "" if code == 0 else self._error(code))
        return self.outcome

    def _error(self, code: int) -> str:
        """The signal that ended the process, or the last line of its output."""
        if code < 0:
            return f"the process was ended by {signal.Signals(-code).name}"
        return last_line(self.log.read_text(errors="replace")) or f"exit code {code}"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def last_line(text: str) -> str:
    """The last line of a text that is not empty."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return lines[-1] if lines else ""
