"""Runs read from their folders, and groups of runs that differ only in their seeds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypedDict

import numpy as np

from surefoot.core.config import check_values
from surefoot.core.files import Damaged
from surefoot.report.statistics import share_within
from surefoot.report.table import with_note
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import RunInfo, read_info
from surefoot.runs.listing import is_run

Rows = Sequence[Mapping[str, float]]
"""Rows of metrics.csv: one per seed and epoch."""
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
class RunData:
    """One run's folder, read and checked."""

    path: Path
    info: RunInfo
    rows: Rows
    seconds: float
    """Wall clock of the run; all its seeds train side by side."""
    state: str = "unfinished"
    """finished, failed or unfinished."""
    error: str | None = None
    """Why it failed."""
    episodes: int | None = None
    """Fresh episodes of the evaluation of each seed; None without an evaluation."""
    evaluation: tuple[SeedEvaluation, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each phase of training."""

    @cached_property
    def real_steps(self) -> int:
        """Real steps that every seed has taken."""
        seeds = self.info.seeds
        return int(min(max(r["steps"] for r in self.rows if r["seed"] == s) for s in seeds))

    @property
    def measured_on(self) -> str:
        """What reward and cost at the end are measured on."""
        if self.episodes is not None:
            return f"{self.episodes} fresh episodes"
        epochs = len(_last([row for row in self.rows if row["seed"] == self.info.seeds[0]]))
        return "the last epoch" if epochs == 1 else f"the last {epochs} epochs"


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
        """failed or unfinished if one of the runs is, longer than requested, or finished."""
        states = {run.state for run in self.runs}
        for state in ("failed", "unfinished"):
            if state in states:
                return state
        steps = self.info.steps - (self.requested or self.info.steps)
        return "finished" if not steps else "longer" if steps > 0 else "unfinished"

    @property
    def shown(self) -> str:
        """The label in figures and tables, which marks groups that are not finished.

        `label` stays the same, so that an algorithm has one colour.
        """
        return with_note(self.label, "" if self.state == "finished" else self.state)

    @property
    def steps_text(self) -> str:
        """Real steps, and how many were requested if that differs."""
        if self.state == "finished":
            return f"{self.real_steps:,}"
        word = "instead of" if self.state == "longer" else "of"
        return f"{self.real_steps:,} {word} {self.requested or self.info.steps:,}"

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
        return " or ".join(dict.fromkeys(run.measured_on for run in self.runs))

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Real steps [E] and a metric's values [E, S]."""
        return by_step(self.rows, name)

    def final(self, name: str) -> np.ndarray:
        """reward, cost, within_limit, cost_cvar or violations of each seed [S] at the end.

        Violations are the real steps with a cost in all of training. Others are measured on fresh
        episodes if the run was evaluated. Otherwise reward and cost are means of the last epochs,
        and the rest is NaN.
        """
        if name == "violations":
            return np.array([rows[-1][name] for rows in self._by_seed])
        values = dict(zip(self.seeds, self.by_epochs(name), strict=True))
        values |= {one["seed"]: one[name] for run in self.runs for one in run.evaluation}
        return np.array(list(values.values()), float)

    def by_epochs(self, name: str, steps: int | None = None) -> np.ndarray:
        """The mean of a metric over the last epochs of each seed [S], up to `steps` real steps."""
        within = lambda row: steps is None or row["steps"] <= steps
        return np.array([_end([r for r in rows if within(r)], name) for rows in self._by_seed])

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
    run = RunData(folder.path, info, rows, rows[-1]["seconds"])
    return _with_result(run, folder) if (folder.path / "result.json").exists() else run


def load_runs(paths: Iterable[str | Path]) -> tuple[list[RunData], list[str]]:
    """The runs that can be read, each once, and a message for each that cannot."""
    runs, problems = [], []
    for path in {Path(p).resolve(): Path(p) for p in paths}.values():
        try:
            runs.append(load_run(path))
        except (ValueError, OSError) as error:
            problems.append(str(error))
    return runs, problems


def _with_result(run: RunData, folder: RunFolder) -> RunData:
    """A run with what its result.json holds; `Damaged` if a value is invalid."""
    missing = {"seconds": None, "failed": None, "known": [], "phases": {}}
    values = {**missing, **folder.read_json("result.json")}
    try:
        check_values(
            values,
            {
                "seconds": float | None,
                "failed": str | None,
                "known": list[str],
                "phases": dict[str, float],
            },
        )
        evaluation = values.get("evaluation", {"episodes": 0, "seeds": []})
        check_values(evaluation, {"episodes": int, "seeds": list[dict]})
        for row in evaluation["seeds"]:
            check_values(row, SeedEvaluation.__annotations__)
        if "evaluation" in values and [r["seed"] for r in evaluation["seeds"]] != run.info.seeds:
            raise ValueError("its seeds are not the run's")
    except (ValueError, TypeError, AttributeError) as error:
        raise Damaged(f"{folder.path / 'result.json'} is damaged: {error}") from None
    return replace(
        run,
        info=replace(run.info, known=run.info.known or values["known"]),  # of early versions
        seconds=run.seconds if values["seconds"] is None else values["seconds"],
        state="finished" if values["failed"] is None else "failed",
        error=values["failed"],
        episodes=evaluation["episodes"] or None,
        evaluation=tuple(evaluation["seeds"]),
        phases=values["phases"],
    )


def _end(rows: Rows, name: str) -> float:
    values = np.array([row.get(name, np.nan) for row in _last(rows)])
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else float("nan")


def _last(rows: Rows) -> Rows:
    """The last epochs of one seed."""
    return rows[-min(LAST_EPOCHS, max(1, len(rows) // 2)) :]


def by_step(rows: Rows, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Real steps [E] and the values [E, S] of a metric for each seed.

    The steps are those of the first seed that all seeds have reached; values between the epochs of
    another seed are interpolated.
    """
    seeds = sorted({row["seed"] for row in rows})
    table = [[r for r in rows if r["seed"] == seed and np.isfinite(r[name])] for seed in seeds]
    if not all(table):
        return np.zeros(0), np.zeros((0, len(seeds)))
    points = [np.array([(r["steps"], r[name]) for r in one]) for one in table]
    first, last = max(p[0, 0] for p in points), min(p[-1, 0] for p in points)
    steps = np.array([x for x in points[0][:, 0] if first <= x <= last])
    return steps, np.array([np.interp(steps, p[:, 0], p[:, 1]) for p in points]).T
