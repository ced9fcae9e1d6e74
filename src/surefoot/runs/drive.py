"""The loop around training: every epoch is written down, and whatever happens, nothing is lost."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from surefoot.algorithms.common import Epoch, TrainingFault
from surefoot.core.snapshot import Saved
from surefoot.envs.gym.adapted import EnvironmentFault
from surefoot.runs.checkpoint import Checkpoint
from surefoot.runs.folder import RunFolder, rows_of
from surefoot.runs.interrupt import GRACE, Interrupt, Stopped
from surefoot.runs.keeper import Keeper, policy_in, scores_of
from surefoot.runs.loggers.console import Progress


class WriteFault(OSError):
    """The run could not be written down; says what is safe, and how to go on."""


def drive(
    folder: RunFolder,
    info: dict[str, Any],
    config: Any,
    epochs: Iterator[Epoch],
    last: Checkpoint | None,
    notes: list[str],
    quiet: bool,
) -> tuple[Any, dict[str, Any]]:
    """Train to the end and write everything down; returns the policy and the result so far.

    However training ends, the last epoch in memory is written if that is possible at all.

    `info` is the run's config.json. `epochs` goes on after the checkpoint `last`, if there is one;
    `notes` is what should be said first.
    """
    seeds = info["seeds"]
    before = float(last.meta["seconds"]) if last else 0.0
    rows = rows_of(last.arrays["metrics"].tobytes(), folder.path) if last else []
    keeper = Keeper(folder, info, scores_of(rows))
    start = time.perf_counter() - before
    policy = None
    phases: dict[str, float] = {}
    if last is not None:
        keeper.written, keeper.seconds = last.meta["epoch"], last.meta["save_seconds"]
        policy, spent = policy_in(last), Saved(last.arrays).part("phases")
        phases = _with_saving({name: float(x) for name, x in spent.items()}, keeper)
    progress = Progress(folder.path, seeds, config, quiet, info["tensorboard"], before)

    def first() -> None:
        progress.say(f"stopping: this epoch has {GRACE:.0f} s to end; once more stops at once")

    def last_resort() -> None:
        with suppress(OSError):
            keeper.write()
        progress.say(_stopped(folder, info, keeper))
        progress.__exit__()

    with progress, Interrupt(first, last_resort) as interrupt:
        for note in notes:
            progress.say(note)
        try:
            for epoch in epochs:
                for number, row in zip(seeds, epoch.metrics, strict=True):
                    row["seed"] = number
                    row["seconds"] = round(time.perf_counter() - start, 2)
                with _told(folder, info, keeper):
                    folder.append_metrics(epoch.metrics)
                    keeper.write_policy(epoch.policy)
                    keeper.take(epoch, time.perf_counter() - start)
                    if epoch.number == epoch.total:
                        keeper.write()
                    keeper.write_if_due()
                    policy, rows = epoch.policy, epoch.metrics
                    phases = _with_saving(epoch.seconds, keeper)
                    progress.show(replace(epoch, seconds=phases))
                    if interrupt.number:  # asked last, for it may come at any moment
                        keeper.write()
                        break
        except WriteFault:
            raise
        except BaseException as error:
            with suppress(OSError):
                keeper.write()
            if not isinstance(error, Exception):
                raise
            if interrupt.number:  # Ctrl-C reaches the environments' processes too
                raise Stopped(_stopped(folder, info, keeper), interrupt.number) from error
            told = isinstance(error, EnvironmentFault | TrainingFault)
            kind = "" if told else f"{type(error).__name__}: "
            with suppress(OSError):
                folder.write_json("result.json", {"failed": f"{kind}{error}"})
            raise
    if interrupt.number:
        raise Stopped(_stopped(folder, info, keeper), interrupt.number)
    assert policy is not None and rows
    return policy, {
        "seconds": time.perf_counter() - start,
        "phases": phases,
        "real_steps": int(rows[-1]["steps"]),
        "violations": [int(row["violations"]) for row in rows[-len(seeds) :]],
    }


def _with_saving(phases: dict[str, float], keeper: Keeper) -> dict[str, float]:
    """Time by phase; to the algorithm's own part in saving comes the keeper's."""
    return {**phases, "save": phases.get("save", 0.0) + keeper.seconds}


def how_to_finish(folder: RunFolder, info: dict[str, Any]) -> str:
    """Where a run stands that is trained but has no result."""
    return f"training is finished and saved; for its evaluation: {how_to_resume(folder, info)}"


def how_to_resume(folder: RunFolder, info: dict[str, Any]) -> str:
    """The command that goes on with a run."""
    if info["task"] is None:
        return f"surefoot.resume({str(folder.path)!r}, make_env)"
    return f"surefoot resume {folder.path}"


def _stopped(folder: RunFolder, info: dict[str, Any], keeper: Keeper) -> str:
    done = f"epoch {keeper.written} is saved" if keeper.written else "no epoch was finished"
    return f"stopped: {done}; go on with: {how_to_resume(folder, info)}"


@contextmanager
def _told(folder: RunFolder, info: dict[str, Any], keeper: Keeper) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            keeper.write()  # an epoch in memory may find room where the newest did not
        safe = f"epoch {keeper.written} is safe" if keeper.written else "no epoch was saved yet"
        raise WriteFault(
            f"{folder.path} cannot be written: {error.strerror or error}. {safe}; when that is put "
            f"right, go on with: {how_to_resume(folder, info)}"
        ) from None
