"""`Job`: an algorithm to train on a task; and `Block`: seeds of a job that one run trains."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from surefoot.algorithms.algorithm import ALGORITHMS, Config, Overrides
from surefoot.core.config import changed, to_dict
from surefoot.envs.task import find_task
from surefoot.report.command import preset_config, train_command
from surefoot.report.table import with_note
from surefoot.runs.listing import is_run


@dataclass(frozen=True)
class Job:
    """An algorithm to train on a task with some settings and seeds."""

    task: str
    """Whatever `find_task` takes."""
    algorithm: str
    """Name of the algorithm, or a reference to it."""
    preset: str = "default"
    """Preset that the settings start from."""
    seeds: int = 8
    """Number of seeds; they are 0, 1, …"""
    steps: int | None = None
    """Real steps; the preset's if None."""
    changes: Overrides = field(default_factory=dict)
    """Other settings by dotted name, such as ppo.hidden."""
    task_options: Overrides = field(default_factory=dict)
    alone: bool = False
    """Whether to measure its time: one seed per run, and no other training beside it."""
    note: str = ""
    """Suffix of the label in figures, such as beta = 0.1."""

    def __post_init__(self) -> None:
        find_task(self.task)
        if self.seeds < 1:
            raise ValueError(f"seeds={self.seeds} must be at least 1")

    @property
    def label(self) -> str:
        return with_note(f"{self.task} {self.algorithm} ({self.preset})", self.note)

    def config(self, device: str) -> Config:
        """The config of the algorithm for a device (cpu or gpu)."""
        steps = {} if self.steps is None else {"steps": self.steps}
        start = preset_config(self.algorithm, self.preset, self.task, device)
        return changed(start, {**self.changes, **steps})

    def name(self, device: str) -> str:
        """A name that is unique to the settings; the number of seeds does not count."""
        config = to_dict(self.config(device))
        settings = [self.task, self.algorithm, config, dict(self.task_options)]
        digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=4)
        task = find_task(self.task).name
        algorithm = ALGORITHMS[self.algorithm].name
        return f"{task}-{algorithm}-{self.preset}-{digest.hexdigest()}"


@dataclass(frozen=True)
class Block:
    """Seeds of a job that one run trains side by side."""

    job: Job
    first: int
    count: int
    folder: Path
    """The run's folder; a run that exists is resumed."""

    def __str__(self) -> str:
        job, last = self.job, self.first + self.count - 1
        seeds = f"seed {last}" if self.count == 1 else f"seeds {self.first} to {last}"
        return f"{job.task}, {with_note(f'{job.algorithm} ({job.preset})', job.note)}, {seeds}"

    def __hash__(self) -> int:
        return hash(self.folder)

    def command(self, device: str) -> list[str]:
        """The arguments of `surefoot` that train this block, or resume its run."""
        if is_run(self.folder):
            return ["resume", str(self.folder), "--device", device, "--quiet"]
        job = self.job
        words = train_command(
            job.task, job.algorithm, job.preset, job.config(device), self.count, self.first,
            device, job.task_options,
        )  # fmt: skip
        return [*words[1:], "--out", str(self.folder), "--quiet"]
