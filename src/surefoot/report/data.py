"""Runs read from their folders, and groups of runs that differ only in their seeds."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypedDict

import numpy as np

from surefoot.core.config import check_values
from surefoot.report.curves import Rows, by_step
from surefoot.report.statistics import share_within
from surefoot.report.table import with_note
from surefoot.runs.checkpoint import Damaged
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import RunInfo, read_info
from surefoot.runs.listing import is_run

LAST_EPOCHS = 5
"""Epochs that stand for the end of a run without an evaluation; at most half of all epochs."""


class SeedEvaluation(TypedDict):
    """The evaluation of one seed on fresh episodes."""

    seed: int
    reward: float
    cost: float
    within_limit: float
    cost_cvar: float


@dataclass(frozen=True)
class Result:
    """The parts of result.json that reports use."""

    seconds: float | None = None
    failed: str | None = None
    episodes: int | None = None
    """Fresh episodes of the evaluation of each seed; None without an evaluation."""
    evaluation: tuple[SeedEvaluation, ...] = ()
    known: list[str] = field(default_factory=list)
    """Known parts, which early versions recorded here."""


@dataclass(frozen=True)
class RunData:
    """One run's folder, read and checked."""

    path: Path
    info: RunInfo
    rows: Rows
    result: Result = Result()
    ended: bool = False
    """Whether training has ended, and `result` holds its result."""
    cut_from: int | None = None
    """Real steps requested of the whole run, if this is only its start; see `cut`."""

    @property
    def state(self) -> str:
        """finished, failed or unfinished."""
        if self.result.failed is not None:
            return "failed"
        return "finished" if self.ended else "unfinished"

    @property
    def known(self) -> list[str]:
        """Parts of the environment that the model knows."""
        return self.info.known or self.result.known

    @property
    def seconds(self) -> float:
        """Wall clock of the run; all its seeds train side by side."""
        seconds = self.result.seconds
        return self.rows[-1]["seconds"] if seconds is None else seconds

    @cached_property
    def real_steps(self) -> int:
        """Real steps that every seed has taken."""
        seeds = self.info.seeds
        return int(min(max(r["steps"] for r in self.rows if r["seed"] == s) for s in seeds))

    def cut(self, steps: int) -> "RunData":
        """The run as if only `steps` real steps had been requested.

        Later epochs are left out, and so is the evaluation at the end. A run that was not requested
        to be longer, or has not reached `steps`, is returned as it is.
        """
        if steps >= self.info.steps or steps > self.real_steps:
            return self
        # Training stops after the epoch that reaches the requested steps.
        end = min(row["steps"] for row in self.rows if row["steps"] >= steps)
        rows = [row for row in self.rows if row["steps"] <= end]
        info = replace(self.info, config={**self.info.config, "steps": steps})
        result = Result(rows[-1]["seconds"], known=self.known)
        cut_from = self.info.steps
        return replace(self, info=info, rows=rows, result=result, ended=True, cut_from=cut_from)


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seeds."""

    label: str
    task: str
    runs: tuple[RunData, ...]
    number: int = 0
    """Index of the label among all labels of a report; it selects the colour in every figure."""
    requested: int | None = None
    """Real steps that an experiment requests; by default those requested of the run."""

    @property
    def info(self) -> RunInfo:
        """config.json of the first run."""
        return self.runs[0].info

    @property
    def state(self) -> str:
        """failed or unfinished if one of the runs is, or is too short; otherwise finished."""
        states = {run.state for run in self.runs}
        if "failed" in states:
            return "failed"
        short = self.real_steps < self.requested_steps
        return "unfinished" if short or "unfinished" in states else "finished"

    @property
    def requested_steps(self) -> int:
        return self.info.steps if self.requested is None else self.requested

    @property
    def shown(self) -> str:
        """The label in figures and tables, which marks groups that are not finished.

        `label` stays the same, so that an algorithm has one colour.
        """
        return with_note(self.label, "" if self.state == "finished" else self.state)

    @property
    def steps_text(self) -> str:
        """Real steps, and how many were requested if that differs."""
        if self.state != "finished":
            return f"{self.real_steps:,} of {self.requested_steps:,}"
        return f"{self.real_steps:,}{' of a longer run' * self.is_cut}"

    @property
    def is_cut(self) -> bool:
        """Whether some of the runs are longer than shown here."""
        return any(run.cut_from is not None for run in self.runs)

    @property
    def algorithm(self) -> str:
        return self.info.algorithm

    @property
    def cost_limit(self) -> float:
        return self.info.cost_limit

    @cached_property
    def rows(self) -> Rows:
        """The metrics of all runs."""
        return [row for run in self.runs for row in run.rows]

    @cached_property
    def seeds(self) -> list[int]:
        """All seeds, in the order of `final` and of the columns of `curve`."""
        return sorted(seed for run in self.runs for seed in run.info.seeds)

    @cached_property
    def real_steps(self) -> int:
        """Real steps that every seed has taken."""
        return min(run.real_steps for run in self.runs)

    @property
    def seconds(self) -> float:
        """Wall clock of a run, averaged over the runs."""
        return float(np.mean([run.seconds for run in self.runs]))

    @property
    def measured_on(self) -> str:
        """What reward and cost at the end are measured on."""
        return " or ".join(dict.fromkeys(_measured_on(run) for run in self.runs))

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Real steps [E] and a metric's values [E, S]."""
        return by_step(self.rows, name)

    def final(self, name: str) -> np.ndarray:
        """reward, cost, within_limit or cost_cvar of each seed [S] at the end.

        Measured on fresh episodes if the run was evaluated. Otherwise reward and cost are means of
        the last epochs, and the others are NaN.
        """
        evaluated: dict[int, float] = {
            one["seed"]: one[name] for run in self.runs for one in run.result.evaluation
        }
        rows = zip(self.seeds, self._by_seed, strict=True)
        return np.array([evaluated.get(seed, _end(some, name)) for seed, some in rows], float)

    def by_epochs(self, name: str, steps: int | None = None) -> np.ndarray:
        """The mean of a metric over the last epochs of each seed [S], up to `steps` real steps."""
        within = lambda row: steps is None or row["steps"] <= steps
        return np.array([_end([r for r in rows if within(r)], name) for rows in self._by_seed])

    @property
    def violations(self) -> np.ndarray:
        """Real steps of each seed [S] that had a cost, over all of training."""
        return np.array([rows[-1]["violations"] for rows in self._by_seed])

    @property
    def epochs_within(self) -> float:
        """Share of all seeds' epochs whose mean cost is within the limit."""
        cost, limit = (np.array([r[name] for r in self.rows]) for name in ("cost", "cost_limit"))
        return share_within(cost, limit)

    @property
    def seeds_within(self) -> float:
        """Share of seeds whose mean cost at the end is within the limit."""
        return share_within(self.final("cost"), self.cost_limit)

    def first_reaching(self, reward: float, name: str = "steps") -> np.ndarray:
        """A metric of each seed [S] at its first epoch with this reward; NaN if it has none."""
        at = lambda rows: next((r[name] for r in rows if r["reward"] >= reward), np.nan)
        return np.array([at(rows) for rows in self._by_seed])

    @cached_property
    def _by_seed(self) -> list[Rows]:
        return [[row for row in self.rows if row["seed"] == seed] for seed in self.seeds]


def load_run(path: str | Path) -> RunData:
    """Read a run's folder; a ValueError names what is wrong with it."""
    folder = RunFolder(Path(path))
    if folder.path.is_dir() and not is_run(folder.path):
        raise ValueError(f"{path} is not a run: it holds no config.json")
    info, rows = read_info(folder), folder.read_metrics()
    if not rows:
        raise ValueError(f"{path} has no finished epoch yet")
    if {row["seed"] for row in rows} != set(info.seeds):
        raise Damaged(f"{folder.path / 'metrics.csv'} is damaged: its seeds are not the run's")
    result = load_result(folder, info)
    return RunData(folder.path, info, rows, result or Result(), result is not None)


def load_result(folder: RunFolder, info: RunInfo) -> Result | None:
    """result.json of a run; None if the run has not ended, `Damaged` if a value is invalid."""
    path = folder.path / "result.json"
    if not path.exists():
        return None
    values = folder.read_json("result.json")
    try:
        values = {"seconds": None, "failed": None, "known": [], **values}
        check_values(values, {"seconds": float | None, "failed": str | None, "known": list[str]})
        episodes, rows = None, []
        if "evaluation" in values:
            check_values(values["evaluation"], {"episodes": int, "seeds": list[dict]})
            episodes, rows = values["evaluation"]["episodes"], values["evaluation"]["seeds"]
            for row in rows:
                check_values(row, SeedEvaluation.__annotations__)
            if [row["seed"] for row in rows] != info.seeds:
                raise ValueError("its seeds are not the run's")
    except (ValueError, TypeError, AttributeError) as error:
        raise Damaged(f"{path} is damaged: {error}") from None
    return Result(values["seconds"], values["failed"], episodes, tuple(rows), values["known"])


def load_runs(paths: Iterable[str | Path]) -> tuple[list[RunData], list[str]]:
    """The runs that can be read, each once, and a message for each that cannot."""
    runs, problems = [], []
    for path in {Path(p).resolve(): Path(p) for p in paths}.values():
        try:
            runs.append(load_run(path))
        except (ValueError, OSError) as error:
            problems.append(str(error))
    return runs, problems


def _measured_on(run: RunData) -> str:
    if run.result.episodes is not None:
        return f"{run.result.episodes} fresh episodes"
    epochs = len(_last([row for row in run.rows if row["seed"] == run.info.seeds[0]]))
    return "the last epoch" if epochs == 1 else f"the last {epochs} epochs"


def _end(rows: Rows, name: str) -> float:
    values = np.array([row.get(name, np.nan) for row in _last(rows)])
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else float("nan")


def _last(rows: Rows) -> Rows:
    """The last epochs of one seed."""
    return rows[-min(LAST_EPOCHS, max(1, len(rows) // 2)) :]
