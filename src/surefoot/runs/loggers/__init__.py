"""Loggers: each receives every epoch of a run.

A logger is a class with the methods of `Logger`. Add one in one file: register it by an entry point
in the group `surefoot.loggers`, or name it by reference: `--loggers path/to/file.py:MyLogger`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from surefoot.algorithms.loop import Epoch
from surefoot.core.registry import Registry
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import RunInfo

BUILTIN = {
    "tensorboard": "surefoot.runs.loggers.tensorboard:TensorBoardLogger",
    "wandb": "surefoot.runs.loggers.wandb:WandbLogger",
}


class Logger(Protocol):
    """Receives every epoch of a run. Made once per process that trains, resumed ones included."""

    def __init__(self, folder: Path, info: RunInfo) -> None:
        """`folder` is the run's; files may be written there. Raise a ValueError if unusable."""
        ...

    def epoch(self, epoch: Epoch) -> None:
        """Log an epoch: `epoch.metrics` has one row per seed."""
        ...

    def message(self, text: str) -> None:
        """Log a message to the user."""
        ...

    def close(self) -> None: ...


LOGGERS: Registry[type] = Registry(type, "logger", BUILTIN)


def register_logger(name: str, logger: type) -> type:
    """Make a logger known by a name in this process."""
    return LOGGERS.register(name, logger)


def check_loggers(names: Sequence[str]) -> None:
    """Raise a ValueError if a logger is unknown or cannot be imported."""
    for name in names:
        logger: Any = LOGGERS[name]
        getattr(logger, "check", lambda: None)()


class Loggers:
    """The console and all other loggers of a run, as one."""

    def __init__(self, folder: RunFolder, info: RunInfo, quiet: bool, seconds: float = 0.0):
        """`seconds` is the time that the run has taken already."""
        from surefoot.runs.loggers.console import ConsoleLogger

        self._loggers: list[Any] = [ConsoleLogger(folder.path, info, quiet, seconds)]
        self._loggers += [LOGGERS[name](folder.path, info) for name in info.loggers]

    def __enter__(self) -> "Loggers":
        self._loggers[0].start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def epoch(self, epoch: Epoch) -> None:
        self._each(lambda logger: logger.epoch(epoch))

    def message(self, text: str) -> None:
        self._each(lambda logger: logger.message(text))

    def close(self) -> None:
        for logger in self._loggers:
            with suppress(OSError):  # a full disk was reported where it was met first
                logger.close()

    def _each(self, call: Callable[[Any], None]) -> None:
        for logger in self._loggers:
            call(logger)
