"""`RunInfo`: what config.json records of a run, with a format number and migrations."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated

from surefoot import __version__
from surefoot.algorithms.algorithm import ALGORITHMS, Algorithm, Config, Steps
from surefoot.core.config import (
    Count,
    NonNegative,
    NonNegativeInt,
    Range,
    check,
    check_value,
    from_dict,
)
from surefoot.core.files import Damaged
from surefoot.runs.folder import RunFolder, Values

FORMAT = 4
Seed = Annotated[int, Range(least=0, most=2**32 - 1)]


@dataclass(frozen=True)
class WarmStart:
    """What a run took over from another run before its first step."""

    run: str
    """The other run's folder."""
    checkpoint: str
    """The file it was taken from; its name has the checksum of its content."""
    task: str
    algorithm: str
    seeds: list[Seed]
    """The seed of the other run that each seed of this run starts from."""
    taken: list[str]
    """The parts that were taken."""
    left_out: dict[str, str] = field(default_factory=dict)
    """The parts that did not fit, and why."""
    data_steps: NonNegativeInt = 0
    """Real steps of each seed in the data that were taken."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class RunInfo:
    """How a run was made: enough to repeat it, to resume it and to evaluate it."""

    version: str
    """Surefoot's version."""
    task: str | None
    """The task's name, or a reference that makes it again; None if only Python can."""
    task_name: str
    """The task's name, for titles."""
    task_options: Values
    algorithm: str
    """The algorithm's name, or a reference to it."""
    preset: str
    """The preset whose settings the config started from; `custom` for a config given whole."""
    seeds: list[Seed]
    device: str
    started: str
    config: Values
    """The algorithm's config as plain values; see `config_of`."""
    format: Count = FORMAT
    cost_limits: dict[str, float] = field(default_factory=dict)
    """The limit of each constraint, by name."""
    known: list[str] = field(default_factory=list)
    """Parts of the environment that the model knows; the others are learned."""
    known_from: list[str] = field(default_factory=list)
    """What `known` was, as words that `train` takes; without a reference if it was in Python."""
    backend: str | None = None
    command: str = ""
    started_at: float | None = None
    checkpoint_every: NonNegative | None = None
    keep: Count = 2
    loggers: list[str] = field(default_factory=list)
    restarts: list[Values] = field(default_factory=list)
    """Epochs after which environments without a snapshot began new episodes."""
    algorithm_title: str = ""
    """The algorithm's title, so that reports need not load an algorithm that is a reference."""
    warm_start: WarmStart | None = None
    """What it took over from another run, if it did."""

    def __post_init__(self) -> None:
        check(self)
        if not self.seeds:
            raise ValueError("seeds=[] must not be empty")
        check_value("config.steps", self.config.get("steps"), Steps)

    @property
    def steps(self) -> int:
        """Real steps requested, of each seed."""
        return self.config["steps"]

    @property
    def cost_limit(self) -> float:
        """The only limit, or the largest of several."""
        return max(self.cost_limits.values())

    def to_dict(self) -> Values:
        return asdict(self)


def _from_format_1(values: Values) -> Values:
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


def _from_format_2(values: Values) -> Values:
    """Real and imagined costs were compared by their difference."""
    config = dict(values["config"])
    if "gap_memory" in config:
        config["ratio_memory"] = config.pop("gap_memory")
    return {**values, "config": config, "format": 3}


def _from_format_3(values: Values) -> Values:
    """Practice on a model that misjudged the reward took fewer passes, not shorter rollouts."""
    config = {name: x for name, x in values["config"].items() if name != "adapt_passes"}
    return {**values, "config": config, "format": 4}


MIGRATIONS: dict[int, Callable[[Values], Values]] = {
    1: _from_format_1,
    2: _from_format_2,
    3: _from_format_3,
}
"""From each earlier format to the next."""


def parse_info(values: Values, path: Path) -> RunInfo:
    """A RunInfo from the values of a config.json; `Damaged` if they are not those of a run.

    `path` is that of the file, or of the folder of checkpoints.
    """
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
        if (warm := values.get("warm_start")) is not None:
            values = {**values, "warm_start": WarmStart(**warm)}
        info = RunInfo(**{name: x for name, x in values.items() if name in names})
        if not info.cost_limits:
            raise ValueError("cost_limits={} must not be empty")
        _check_references(info, os.path.realpath(path.parent))
        return info
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged(f"{path} is damaged: {error}") from None


def _check_references(info: RunInfo, run: str) -> None:
    """A ValueError if code that the run refers to lies in its own folder, or is not certain."""
    cost = info.task_options.get("cost", ())
    costs = cost if isinstance(cost, list | tuple) else [cost]
    known = (word.partition("=")[2] for word in info.known_from)
    for text in (info.task, info.algorithm, *info.loggers, *costs, *known):
        source = str(text).rpartition(":")[0]
        inside = os.path.realpath(source).startswith(run + os.sep)
        if source.endswith(".py") and (inside or not os.path.isabs(source)):
            raise ValueError(
                f"{source!r} must be an absolute path outside the run's folder; code that comes "
                f"with a run is not executed"
            )


def read_info(folder: RunFolder) -> RunInfo:
    """A run's config.json; `Damaged` if a value is missing or invalid."""
    if not folder.path.is_dir():
        raise ValueError(f"{folder.path} is not a run: there is no such folder")
    return parse_info(folder.read_json("config.json"), folder.path / "config.json")


def algorithm_of(info: RunInfo) -> Algorithm:
    """The algorithm that trained a run."""
    return ALGORITHMS[info.algorithm]


def keeps_limit(info: RunInfo) -> bool:
    """Whether a run keeps its cost limit, rather than only reporting by it."""
    if info.algorithm not in ALGORITHMS:
        return True
    try:
        return algorithm_of(info).keeps_limit(config_of(info, Path("config.json")))
    except ValueError:
        return True


def config_of(info: RunInfo, path: Path) -> Config:
    """The algorithm's config of a run."""
    try:
        return from_dict(algorithm_of(info).config, info.config)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path}: this version ({__version__}) does not understand the config of version "
            f"{info.version}: {error}"
        ) from None
