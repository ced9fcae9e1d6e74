"""Trains blocks, several at once: each is started, polled, and stopped if necessary."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
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


class Handle(Protocol):
    """A training in progress."""

    def poll(self) -> str | None:
        """None while the training runs; then its error, which is empty if it finished."""
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
) -> dict[Block, str]:
    """Train all blocks, at most `slots()` at once; returns the errors of those that failed.

    Blocks whose time is measured run last, one at a time. If this function is interrupted, it
    stops all trainings and waits for their checkpoints. `report` receives a line when a training
    starts or ends; `done` is the number of runs that need no training.
    """
    waiting = sorted(blocks, key=lambda block: block.job.alone)
    running: dict[Block, Handle] = {}
    errors: dict[Block, str] = {}
    try:
        while waiting or running:
            while waiting and _fits(waiting[0], running, slots()):
                block = waiting.pop(0)
                report(f"{'resuming' if is_run(block.folder) else 'training'}: {block}")
                running[block] = start(block)
            for block, handle in list(running.items()):
                if (error := handle.poll()) is None:
                    continue
                del running[block]
                if error:
                    errors[block] = error
                done += not error
                report(f"failed: {block}: {error}" if error else f"finished: {block}")
                counts = f"{done} done, {len(running)} running, {len(waiting)} waiting"
                report(counts + f", {len(errors)} failed" * bool(errors))
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
    return errors


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
        self.device, self.gpus, self.logs = device, gpus, logs
        self.environment = {**SHARING, **environment, **os.environ}
        self.children: list[Child] = []

    def __call__(self, block: Block) -> "Child":
        running = [child.gpu for child in self.children if child.poll() is None]
        gpu = min(range(self.gpus), key=running.count, default=0)
        chosen = {"CUDA_VISIBLE_DEVICES": str(gpu)} if self.gpus > 1 else {}
        self.logs.mkdir(parents=True, exist_ok=True)
        block.folder.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "surefoot", *block.command(self.device)]
        log = self.logs / f"{block.folder.name}.txt"
        with log.open("wb") as file:
            # In its own process group: Ctrl-C at the terminal must reach it only once.
            process = subprocess.Popen(
                command, env={**self.environment, **chosen}, process_group=0,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.children.append(Child(process, log, gpu))
        return self.children[-1]


class Child:
    """A training in a process on this machine."""

    def __init__(self, process: subprocess.Popen, log: Path, gpu: int = 0):
        self.process, self.log, self.gpu = process, log, gpu

    def poll(self) -> str | None:
        code = self.process.poll()
        if not code:
            return None if code is None else ""
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
