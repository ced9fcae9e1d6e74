"""Running blocks, so many at once: each is started, asked how it goes, and if need be stopped."""

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
from surefoot.experiments.progress import Progress
from surefoot.runs.device import cores
from surefoot.runs.folder import RunFolder
from surefoot.runs.listing import describe_run

CORES_PER_JOB = 2
CORES_PER_GPU_JOB = 4
"""Beside a GPU the cores only step the environments, but of many more seeds at once."""
JOBS_PER_GPU = 4
SHARING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""Lets several processes share a GPU's memory."""
PATIENCE = 30.0  # seconds that trainings have for saving
PAUSE = 0.5  # seconds between looking round


@dataclass(frozen=True)
class Outcome:
    """How the training of a block has ended."""

    finished: bool
    message: str = ""
    """What went wrong, if anything did."""


class Handle(Protocol):
    """A training that goes on somewhere."""

    def poll(self) -> Outcome | None:
        """How it has ended, or None while it goes on."""
        ...

    def stop(self) -> None:
        """Ask it to save and end."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


def run_blocks(
    blocks: Sequence[Block],
    start: Callable[[Block], Handle],
    slots: Callable[[], int],
    progress: Progress,
    pause: float = PAUSE,
) -> dict[Block, Outcome]:
    """Train all blocks, at most `slots()` at once; one that fails does not hold up the others.

    Blocks whose time is to be told come last, each alone. When this is stopped, by Ctrl-C or
    otherwise, all that run are asked to save and waited for.
    """
    waiting = sorted(blocks, key=lambda block: block.job.alone)
    running: dict[Block, Handle] = {}
    outcomes: dict[Block, Outcome] = {}
    try:
        while waiting or running:
            while waiting and _room(waiting[0], running, slots()):
                block = waiting.pop(0)
                running[block] = start(block)
                progress.began(block)
            for block, handle in list(running.items()):
                outcome = handle.poll()
                if outcome is not None:
                    del running[block]
                    outcomes[block] = outcome
                    progress.ended(block, outcome.finished, outcome.message)
            progress.refresh()
            if waiting or running:
                time.sleep(pause)
    except BaseException:
        progress.say("stopping: every training saves its last epoch; once more stops at once")
        for handle in running.values():
            handle.stop()
        end = time.monotonic() + PATIENCE
        while any(h.poll() is None for h in running.values()) and time.monotonic() < end:
            time.sleep(pause)
        raise
    finally:
        for handle in running.values():
            if handle.poll() is None:
                handle.kill()
    return outcomes


def _room(block: Block, running: dict[Block, Handle], slots: int) -> bool:
    if block.job.alone or any(other.job.alone for other in running):
        return not running
    return len(running) < slots


def default_slots(gpus: int) -> int:
    """How many trainings this machine takes at once."""
    if gpus:
        return max(1, min(JOBS_PER_GPU * gpus, cores() // CORES_PER_GPU_JOB))
    return max(1, cores() // CORES_PER_JOB)


class Local:
    """Trains each block in a process of its own, so that a crash is that block's alone."""

    def __init__(self, device: str, gpus: int, logs: Path, environment: Mapping[str, str]):
        """`device` is cpu or gpu; what the processes print goes to files in `logs`.

        `environment` holds variables for them, where they are not set otherwise.
        """
        self.device, self.logs = device, logs
        self.environment = {**SHARING, **environment, **os.environ}
        self.load = [0] * gpus if device == "gpu" else []

    def __call__(self, block: Block) -> Handle:
        if RunFolder(block.folder).is_running():
            return Elsewhere(block.folder)
        environment = dict(self.environment)
        gpu = None
        if len(self.load) > 1:  # else there is nothing to choose
            gpu = self.load.index(min(self.load))
            self.load[gpu] += 1
            environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
        self.logs.mkdir(parents=True, exist_ok=True)
        block.folder.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "surefoot", *block.words(self.device)]
        log = self.logs / f"{block.folder.name}.txt"
        with log.open("wb") as file:
            # A group of its own, for a Ctrl-C at the terminal must reach it only once.
            process = subprocess.Popen(
                command, env=environment, process_group=0, stdin=subprocess.DEVNULL,
                stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
        return Child(process, log, lambda: self._leave(gpu))

    def _leave(self, gpu: int | None) -> None:
        if gpu is not None:
            self.load[gpu] -= 1


class Child:
    """A training in a process on this machine."""

    def __init__(self, process: subprocess.Popen, log: Path, leave: Callable[[], None]):
        self.process, self.log, self._leave = process, log, leave
        self.outcome: Outcome | None = None

    def poll(self) -> Outcome | None:
        code = self.process.poll()
        if self.outcome is None and code is not None:
            self._leave()
            self.outcome = Outcome(code == 0, "" if code == 0 else self._why(code))
        return self.outcome

    def _why(self, code: int) -> str:
        """The last that the process said."""
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        lines = self.log.read_text(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return said[-1] if said else f"its process ended with {code}"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Elsewhere:
    """A training that another command has begun: waited for, and left alone."""

    def __init__(self, folder: Path):
        self.folder = folder

    def poll(self) -> Outcome | None:
        if RunFolder(self.folder).is_running():
            return None
        found = describe_run(self.folder)
        done = found["state"] == "finished"
        return Outcome(done, "" if done else "the command that trained it has stopped")

    def stop(self) -> None: ...

    def kill(self) -> None: ...
