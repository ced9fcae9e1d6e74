"""`RunInfo`: what config.json records of a run, with a format number and migrations."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from surefoot import __version__
from surefoot.algorithms.algorithm import ALGORITHMS, Algorithm
from surefoot.core.config import check, from_dict
from surefoot.runs.checkpoint import Damaged
from surefoot.runs.folder import RunFolder

FORMAT = 2


@dataclass(frozen=True)
class RunInfo:
    """How a run was made: enough to repeat it, to resume it and to evaluate it."""

    version: str
    """Surefoot's version."""
    task: str | None
    """The task's name, or a reference that makes it again; None if only Python can."""
    task_name: str
    """The task's name, for titles."""
    task_options: dict[str, Any]
    algorithm: str
    """The algorithm's name, or a reference to it."""
    preset: str
    """The preset whose settings the config started from; `custom` for a config given whole."""
    seeds: list[int]
    device: str
    started: str
    config: dict[str, Any]
    """The algorithm's config as plain values; see `config_of`."""
    format: int = FORMAT
    cost_limits: dict[str, float] = field(default_factory=dict)
    """The limit of each constraint, by name."""
    known: list[str] = field(default_factory=list)
    """Parts of the environment that the model knows; the others are learned."""
    backend: str | None = None
    command: str = ""
    started_at: float | None = None
    checkpoint_every: float | None = None
    keep: int = 2
    loggers: list[str] = field(default_factory=list)
    restarts: list[dict[str, Any]] = field(default_factory=list)
    """Epochs after which environments without a snapshot began new episodes."""

    def __post_init__(self) -> None:
        check(self)
        for name, least in (("keep", 1), ("format", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {least}")
        if not self.seeds or not all(0 <= seed < 2**32 for seed in self.seeds):
            raise ValueError(f"seeds={self.seeds} must be numbers from 0 to 2**32 - 1")
        if not isinstance(self.config.get("steps"), int):
            raise ValueError(f"config.steps={self.config.get('steps')!r} must be a whole number")

    @property
    def steps(self) -> int:
        """Real steps requested, of each seed."""
        return self.config["steps"]

    @property
    def cost_limit(self) -> float:
        """The only limit, or the largest of several."""
        return max(self.cost_limits.values())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _from_format_1(values: dict[str, Any]) -> dict[str, Any]:
    """Version 0.1.0: no format number, one limit for all constraints, tensorboard as a flag."""
    config = dict(values["config"])
    limit = config.get("cost_limit")
    if isinstance(limit, int | float):
        config["cost_limit"] = [float(limit)]
    if "doubt" in config:
        config["signal_scaling"] = config.pop("doubt")
    return {
        **values,
        "config": config,
        "task_name": values["task"] or "own environment",
        "cost_limits": {"cost": config["cost_limit"][0]},
        "loggers": ["tensorboard"] if values.get("tensorboard") else [],
        "format": 2,
    }


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_format_1}
"""From each earlier format to the next."""


def parse_info(values: dict[str, Any], path: Path) -> RunInfo:
    """A RunInfo from the values of a config.json; `Damaged` if they are not those of a run."""
    try:
        required = ("version", "task", "algorithm", "config")
        missing = [name for name in required if name not in values]
        if missing:
            raise ValueError(f"{', '.join(missing)} is missing")
        while (number := values.get("format", 1)) != FORMAT:
            if number not in MIGRATIONS:
                raise ValueError(f"format={number!r} must be at most {FORMAT}; update Surefoot")
            values = MIGRATIONS[number](values)
        names = {f.name for f in fields(RunInfo)}
        return RunInfo(**{name: x for name, x in values.items() if name in names})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged(f"{path} is damaged: {error}") from None


def read_info(folder: RunFolder) -> RunInfo:
    """A run's config.json; `Damaged` if a value is missing or invalid."""
    if not folder.path.is_dir():
        raise ValueError(f"{folder.path} is not a run: there is no such folder")
    return parse_info(folder.read_json("config.json"), folder.path / "config.json")


def algorithm_of(info: RunInfo) -> Algorithm:
    """The algorithm that trained a run."""
    return ALGORITHMS[info.algorithm]


def config_of(info: RunInfo, path: Path) -> Any:
    """The algorithm's config of a run."""
    try:
        return from_dict(algorithm_of(info).config, info.config)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path}: this version ({__version__}) does not understand the config of version "
            f"{info.version}: {error}"
        ) from None
