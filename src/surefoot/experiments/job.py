"""What is to be trained, as plain values: an algorithm on a task, with how many seeds."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from surefoot.algorithms.presets import preset
from surefoot.envs.task import find_task, make
from surefoot.report.repeat import option
from surefoot.runs import asked
from surefoot.runs.folder import config_dict
from surefoot.runs.listing import is_run

FEWEST_EPOCHS = 5
"""Of a job that was made smaller, where its steps allow."""


@dataclass(frozen=True)
class Job:
    """An algorithm on a task: what to train, not where nor when."""

    task: str
    """The task's name."""
    algorithm: str
    """The algorithm's name."""
    preset: str = "default"
    """Which settings it starts from."""
    seeds: int = 8
    """Seeds 0, 1, … of so many runs."""
    steps: int | None = None
    """Real steps in all; the preset's if not given."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of its config; inner ones with a dot, such as ppo.hidden."""
    task_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the task."""
    alone: bool = False
    """Whether its time is to be told: one seed per run, and nothing beside it."""
    note: str = ""
    """What tells it from its like in figures, such as beta = 0.1."""

    def __post_init__(self) -> None:
        find_task(self.task)
        if self.seeds < 1:
            raise ValueError(f"seeds={self.seeds} must be at least 1")

    def config(self, device: str) -> Any:
        """All settings, as `device` (cpu or gpu) is to learn with."""
        steps = {} if self.steps is None else {"steps": self.steps}
        changes = {**self.changes, **steps}
        return with_changes(preset(self.algorithm, self.preset, self.task, device), changes)

    def name(self, device: str) -> str:
        """A name that no job with other settings has; jobs that differ in their seeds share it."""
        config = config_dict(self.config(device))
        said = [self.task, self.algorithm, config, dict(self.task_options)]
        digest = hashlib.blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=4)
        return f"{self.task}-{self.algorithm}-{self.preset}-{digest.hexdigest()}"

    def scaled(self, scale: float, device: str) -> "Job":
        """The same with fewer real steps, and epochs short enough that there are some."""
        if scale == 1:
            return self
        config = self.config(device)
        length = make(self.task, **self.task_options).max_episode_steps
        steps = max(length, round(config.steps * scale))
        changes = dict(self.changes)
        # Whole episodes, in all environments that go side by side whatever the epoch.
        least = length * getattr(config, "environments", 1)
        per_epoch = max(least, steps // FEWEST_EPOCHS // least * least)
        for name, most in (("steps_per_epoch", per_epoch), ("episodes", per_epoch // length)):
            if getattr(config, name, 0) > most:
                changes[name] = most
        if hasattr(config, "random_steps"):  # real steps before learning begins
            least = getattr(config, "refit_every", 0)
            changes["random_steps"] = max(least, round(config.random_steps * scale))
        return replace(self, steps=steps, changes=changes)


@dataclass(frozen=True)
class Block:
    """Seeds of a job that are trained side by side, in one run."""

    job: Job
    first: int
    count: int
    folder: Path
    """The run's folder, which may be there already."""

    def __str__(self) -> str:
        job = self.job
        last = self.first + self.count - 1
        seeds = f"seed {last}" if self.count == 1 else f"seeds {self.first} to {last}"
        note = f", {job.note}" if job.note else ""
        return f"{job.task}, {job.algorithm} ({job.preset}{note}), {seeds}"

    def __hash__(self) -> int:
        return hash(self.folder)

    def words(self, device: str) -> list[str]:
        """What to type after `surefoot` to train this, or to go on with it."""
        if is_run(self.folder):
            return ["resume", str(self.folder), "--device", device, "--quiet"]
        job, words = self.job, ["train", self.job.task]
        words += ["--algorithm", job.algorithm, "--preset", job.preset, "--device", device]
        words += ["--seeds", str(self.count), "--seed", str(self.first)]
        if job.steps is not None:
            words += ["--steps", str(job.steps)]
        for name, value in job.changes.items():
            words += option(name, value)
        if job.task_options:
            words += ["--env", *(f"{name}={value!r}" for name, value in job.task_options.items())]
        return [*words, "--out", str(self.folder), "--quiet"]


def with_changes(config: Any, changes: Mapping[str, Any]) -> Any:
    """A config with fields changed by name, all at once; inner ones with a dot."""
    flat: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        head, dot, rest = name.partition(".")
        if dot and head in {f.name for f in fields(config)}:
            inner.setdefault(head, {})[rest] = value
        else:
            flat[name] = value
    flat |= {head: with_changes(getattr(config, head), some) for head, some in inner.items()}
    return asked.changed(config, flat)
