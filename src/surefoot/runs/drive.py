"""The loop around training: every epoch is logged and checkpointed; nothing is lost on a stop."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from surefoot.algorithms.loop import Epoch, TrainingFault
from surefoot.core.snapshot import Saved
from surefoot.envs.gym.adapted import EnvironmentFault
from surefoot.runs.checkpoint import Checkpoint
from surefoot.runs.folder import METRICS, RunFolder, Values
from surefoot.runs.info import RunInfo
from surefoot.runs.interrupt import GRACE, Interrupt
from surefoot.runs.keeper import Keeper, scores_of
from surefoot.runs.loggers import Loggers
from surefoot.runs.loggers.csv import CsvLogger
from surefoot.runs.metrics import rows_of


class WriteFault(OSError):
    """The run could not be written; the message says what is saved, and how to resume."""


def drive(
    folder: RunFolder,
    info: RunInfo,
    epochs: Iterator[Epoch],
    last: Checkpoint | None,
    metrics: CsvLogger,
    notes: list[str],
    quiet: bool,
    on_epoch: Callable[[Epoch], object] | None = None,
) -> Values:
    """Train to the end, logging and checkpointing every epoch; returns the result so far.

    `epochs` continues after the checkpoint `last`, if there is one. However training ends, the
    last epoch in memory is written if at all possible. `notes` are shown first.
    """
    before = float(last.meta["seconds"]) if last else 0.0
    start = time.perf_counter() - before
    rows = rows_of(metrics.content, folder.path / METRICS)
    keeper = Keeper(folder, info, metrics, scores_of(rows))
    phases: dict[str, float] = {}
    if last is not None:
        keeper.written, keeper.seconds = last.meta["epoch"], last.meta["save_seconds"]
        phases = _with_saving(Saved(last.arrays).part("phases"), keeper)
    loggers = Loggers(folder, info, quiet, before)
    resume = how_to_resume(folder, info)
    stopped = lambda: f"stopped: {keeper.saved}; resume with: {resume}"

    def on_signal() -> None:
        loggers.message(f"stopping: this epoch has {GRACE:.0f} s to end; a second signal stops now")

    def farewell() -> None:
        if quiet:
            print(stopped(), file=sys.stderr, flush=True)
        loggers.message(stopped())

    with loggers, Interrupt(on_signal, keeper.write, farewell) as interrupt:
        for note in notes:
            loggers.message(note)
        try:
            for epoch in epochs:
                for number, row in zip(info.seeds, epoch.metrics, strict=True):
                    row["seed"] = number
                    row["seconds"] = round(time.perf_counter() - start, 2)
                with _writing(keeper, folder, resume):
                    metrics.append(epoch.metrics)
                    keeper.write_policy(epoch.policy)
                    keeper.take(epoch, time.perf_counter() - start)
                    keeper.write(only_if_due=epoch.number < epoch.total)
                    rows, phases = epoch.metrics, _with_saving(epoch.seconds, keeper)
                    epoch = replace(epoch, seconds=phases)
                    loggers.epoch(epoch)
                if on_epoch is not None:
                    on_epoch(epoch)
                if interrupt.number:  # checked last, as it may come at any moment
                    break
            with _writing(keeper, folder, resume):
                keeper.write()
                metrics.restore()  # the file may have changed since the last row
        except WriteFault:
            raise
        except BaseException as error:
            with suppress(OSError, ValueError):
                keeper.write()
            if not isinstance(error, Exception):
                raise
            interrupt.check(stopped)  # Ctrl-C reaches the environments' processes too
            named = isinstance(error, EnvironmentFault | TrainingFault)
            kind = "" if named else f"{type(error).__name__}: "
            with suppress(OSError, ValueError):
                folder.write_json("result.json", {"failed": f"{kind}{error}"})
            raise
    interrupt.check(stopped)
    return {
        "seconds": time.perf_counter() - start,
        "phases": phases,
        "real_steps": int(rows[-1]["steps"]),
        "violations": [int(row["violations"]) for row in rows[-len(info.seeds) :]],
    }


def how_to_resume(folder: RunFolder, info: RunInfo | None) -> str:
    """The command that resumes a run."""
    if info is not None and info.task is None:
        return f"surefoot.resume({str(folder.path)!r}, make_env)"
    return f"surefoot resume {folder.path}"


def _with_saving(phases: dict[str, float], keeper: Keeper) -> dict[str, float]:
    """Time by phase, with the keeper's added to the trainer's own part in saving."""
    seconds = {name: float(x) for name, x in phases.items()}
    return {**seconds, "save": seconds.get("save", 0.0) + keeper.seconds}


@contextmanager
def _writing(keeper: Keeper, folder: RunFolder, resume: str) -> Iterator[None]:
    """Explain what is saved if a write fails."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            keeper.write()  # the previous epoch may fit where the newest did not
        raise WriteFault(
            f"{folder.path} cannot be written: {error.strerror or error}. {keeper.saved}; once "
            f"that is fixed, resume with: {resume}"
        ) from None
