"""Surefoot: safe reinforcement learning that looks before it steps."""

import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

__version__ = "0.3.0"

if TYPE_CHECKING:
    from surefoot.algorithms.algorithm import Algorithm as Algorithm
    from surefoot.algorithms.algorithm import register_algorithm as register_algorithm
    from surefoot.api import diagnose as diagnose
    from surefoot.api import resume as resume
    from surefoot.api import train as train
    from surefoot.api import write_report as write_report
    from surefoot.core.policy import Policy as Policy
    from surefoot.envs.gym.adapters import adapt as adapt
    from surefoot.envs.task import Task as Task
    from surefoot.envs.task import make as make
    from surefoot.envs.task import register_task as register_task
    from surefoot.runs.loggers import Logger as Logger
    from surefoot.runs.loggers import register_logger as register_logger
    from surefoot.use.check import check as check
    from surefoot.use.evaluate import evaluate as evaluate
    from surefoot.use.film import film as film
    from surefoot.use.run import load as load

# Loaded on first use: an exported policy acts without JAX.
_PUBLIC = {
    "make": "surefoot.envs.task",
    "Task": "surefoot.envs.task",
    "register_task": "surefoot.envs.task",
    "adapt": "surefoot.envs.gym.adapters",
    "Algorithm": "surefoot.algorithms.algorithm",
    "register_algorithm": "surefoot.algorithms.algorithm",
    "Logger": "surefoot.runs.loggers",
    "register_logger": "surefoot.runs.loggers",
    "check": "surefoot.use.check",
    "train": "surefoot.api",
    "resume": "surefoot.api",
    "diagnose": "surefoot.api",
    "write_report": "surefoot.api",
    "evaluate": "surefoot.use.evaluate",
    "film": "surefoot.use.film",
    "load": "surefoot.use.run",
    "Policy": "surefoot.core.policy",
}

__all__ = [  # noqa: RUF022 - in the order of use
    "make", "Task", "register_task", "adapt", "check", "train", "resume", "evaluate", "diagnose",
    "film", "write_report", "load", "Policy", "Algorithm", "register_algorithm", "Logger",
    "register_logger", "__version__",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name in _PUBLIC:
        from importlib import import_module

        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'surefoot' has no attribute {name!r}")


_started = sys.orig_argv[1:3]
if _started == ["-m", "surefoot"] or "".join(_started[:1]).endswith("/surefoot"):
    # The program itself, not its library: Ctrl-C must end it also during the imports below.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

with suppress(ImportError):  # an exported policy acts without gymnasium too
    from surefoot.envs.gym.registration import register

    register()
    del register
