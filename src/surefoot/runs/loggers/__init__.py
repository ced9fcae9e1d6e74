"""Loggers: each receives every epoch of a run.

A logger is a class with the methods of `Logger`. Add one in one file: register it by an entry point
in the group `surefoot.loggers`, or name it by reference: `--loggers path/to/file.py:MyLogger`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Protocol

from surefoot.algorithms.loop import Epoch, Row
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


def check_extra(name: str) -> None:
    """Raise a ValueError if the package of an extra is not installed."""
    try:
        import_module(name)
    except ImportError:
        raise ValueError(
            f"logger={name!r} needs an extra: pip install 'surefoot[{name}]'"
        ) from None


def scalars(row: Row) -> dict[str, float]:
    """The finite metrics of a row, each by its name and seed."""
    return {
        f"{name}/seed_{row['seed']}": float(value)
        for name, value in row.items()
        if name not in ("seed", "steps") and isfinite(value)
    }


def check_loggers(names: Sequence[str]) -> None:
    """Raise a ValueError if a logger is unknown, cannot be imported or lacks a method."""
    for name in names:
        logger, methods = LOGGERS[name], ("epoch", "message", "close")
        missing = [m for m in methods if not callable(getattr(logger, m, None))]
        if missing:
            raise ValueError(f"logger={name!r} has no method {', '.join(missing)}")
        getattr(logger, "check", lambda: None)()


class Loggers:
    """The console and all other loggers of a run, as one."""

    def __init__(self, folder: RunFolder, info: RunInfo, quiet: bool, seconds: float = 0.0):
        """`seconds` is the time that the run has taken already."""
        from surefoot.runs.loggers.console import ConsoleLogger

        self._console = ConsoleLogger(folder.path, info, quiet, seconds)
        self._loggers: dict[str, Logger] = {}
        try:
            for name in info.loggers:
                with _named(name):
                    self._loggers[name] = LOGGERS[name](folder.path, info)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Loggers":
        self._console.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def epoch(self, epoch: Epoch) -> None:
        """Log an epoch everywhere."""
        self._console.epoch(epoch)
        self._each(lambda logger: logger.epoch(epoch))

    def message(self, text: str) -> None:
        """Log a message everywhere."""
        self._console.message(text)
        self._each(lambda logger: logger.message(text))

    def close(self) -> None:
        """Close all; one that fails is reported and does not stop the run."""
        for name, logger in self._loggers.items():
            try:
                logger.close()
            except Exception as error:
                self._console.message(f"warning: logger={name!r} cannot be closed: {error}")
        self._console.close()

    def _each(self, call: Callable[[Logger], None]) -> None:
        for name, logger in self._loggers.items():
            with _named(name):
                call(logger)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the logger in whatever it raises."""
    try:
        yield
    except OSError as error:  # reported as a failed write
        raise OSError(error.errno, f"logger={name!r}: {error.strerror or error}") from error
    except Exception as error:
        raise RuntimeError(f"logger={name!r}: {type(error).__name__}: {error}") from error
