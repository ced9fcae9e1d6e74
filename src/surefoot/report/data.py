"""What runs have come to: read from their folders, and joined over seeds (see `groups`)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.core.config import check_kinds
from surefoot.report.curves import Rows, by_step
from surefoot.report.statistics import share_within
from surefoot.runs.checkpoint import Damaged
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import read_info
from surefoot.runs.listing import is_run, read_result

LAST_EPOCHS = 5
"""What stands for the end of a run that was not evaluated on fresh episodes; half of all at most,
since those of a run that has just begun are no end."""
_PER_SEED = {
    "seed": int, "reward": float, "cost": float, "within_limit": float, "cost_cvar": float,
}  # fmt: skip


@dataclass(frozen=True)
class RunData:
    """One run's folder, read and checked."""

    path: Path
    info: dict[str, Any]
    """config.json."""
    rows: Rows
    """metrics.csv: a row per seed and epoch."""
    result: dict[str, Any]
    """result.json; empty if the run has not ended."""

    @property
    def state(self) -> str:
        """finished, failed or unfinished."""
        if "failed" in self.result:
            return "failed"
        return "finished" if self.result else "unfinished"

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """Of fresh episodes, where there was one."""
        return self.result.get("evaluation")

    @property
    def known(self) -> list[str]:
        """What the model was told rather than had to learn."""
        return self.info["known"] or self.result.get("known", [])

    @property
    def seconds(self) -> float:
        """Wall clock of all its seeds, which learn side by side."""
        return float(self.result.get("seconds", self.rows[-1]["seconds"]))

    @property
    def real_steps(self) -> int:
        """Real steps that every seed has taken."""
        seeds = self.info["seeds"]
        return int(min(max(r["steps"] for r in self.rows if r["seed"] == s) for s in seeds))

    def cut(self, steps: int) -> "RunData":
        """The run as if no more than `steps` real steps had been asked for.

        What came later is left out, and with it what was measured at the end, on fresh episodes. A
        run that was to be no longer, or has not come as far, is what it is.
        """
        if steps >= self.info["config"]["steps"] or steps > self.real_steps:
            return self
        # An epoch that is begun is gone through.
        end = min(row["steps"] for row in self.rows if row["steps"] >= steps)
        rows = [row for row in self.rows if row["steps"] <= end]
        whole = self.info["config"]["steps"]
        info = {**self.info, "config": {**self.info["config"], "steps": steps}, "cut_from": whole}
        result = {"known": self.known, "seconds": rows[-1]["seconds"]}
        return replace(self, info=info, rows=rows, result=result)


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seeds."""

    label: str
    task: str
    runs: tuple[RunData, ...]
    number: int = 0
    """Of its label among all labels of a report, which gives it its colour in every figure."""

    @property
    def info(self) -> dict[str, Any]:
        """config.json of its first run."""
        return self.runs[0].info

    @property
    def state(self) -> str:
        """finished; or else failed or unfinished, if one of its runs is."""
        states = {run.state for run in self.runs}
        return next((s for s in ("failed", "unfinished") if s in states), "finished")

    @property
    def shown(self) -> str:
        """Its label in figures and tables: one that has not come to its end is not to pass for it.

        `label` itself stays the same, so that an algorithm keeps its colour.
        """
        notes = {"finished": "", "failed": "failed", "unfinished": "so far"}
        return with_note(self.label, notes[self.state])

    @property
    def steps_told(self) -> str:
        """Its real steps in words, and whether more were to come."""
        if self.state != "finished":
            return f"{self.real_steps:,} of {self.info['config']['steps']:,}"
        return f"{self.real_steps:,}{' of a longer run' * self.is_cut}"

    @property
    def is_cut(self) -> bool:
        """Whether some of its runs were to be longer, and are taken up to here."""
        return any("cut_from" in run.info for run in self.runs)

    @property
    def algorithm(self) -> str:
        return self.info["algorithm"]

    @property
    def cost_limit(self) -> float:
        return float(self.info["config"]["cost_limit"])

    @cached_property
    def rows(self) -> Rows:
        """The rows of all its runs' metrics."""
        return [row for run in self.runs for row in run.rows]

    @cached_property
    def seeds(self) -> list[int]:
        """All seeds, in the order of `final` and of the columns of `curve`."""
        return sorted(seed for run in self.runs for seed in run.info["seeds"])

    @property
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
        kinds = dict.fromkeys(
            f"{run.evaluation['episodes']} fresh episodes" if run.evaluation
            else _epochs(len(_last([r for r in run.rows if r["seed"] == run.info["seeds"][0]])))
            for run in self.runs
        )  # fmt: skip
        return " or ".join(kinds)

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Real steps [E] and a metric's values [E, S]."""
        return by_step(self.rows, name)

    def final(self, name: str) -> np.ndarray:
        """reward, cost, within_limit or cost_cvar of each seed [S] at the end.

        On fresh episodes where the run was evaluated, else the mean of the last epochs; shares of
        episodes and the tail of their costs are NaN then.
        """
        found: dict[int, float] = {}
        for run in self.runs:
            for row in run.evaluation["seeds"] if run.evaluation else []:
                found[row["seed"]] = row[name]
        values = [
            found.get(seed, _end(rows, name))
            for seed, rows in zip(self.seeds, self._by_seed, strict=True)
        ]
        return np.array(values, float)

    def by_epochs(self, name: str, steps: int | None = None) -> np.ndarray:
        """A metric of each seed [S], the mean of its last epochs; of those within so many steps."""
        within = lambda row: steps is None or row["steps"] <= steps
        return np.array([_end([r for r in rows if within(r)], name) for rows in self._by_seed])

    @property
    def violations(self) -> np.ndarray:
        """Real steps of each seed [S] that cost something, over the whole of training."""
        return np.array([rows[-1]["violations"] for rows in self._by_seed])

    @property
    def epochs_within(self) -> float:
        """Share of all seeds' epochs whose mean cost is within the limit."""
        return share_within(np.array([row["cost"] for row in self.rows]), self.cost_limit)

    @property
    def seeds_within(self) -> float:
        """Share of seeds whose mean cost at the end is within the limit."""
        return share_within(self.final("cost"), self.cost_limit)

    def first_reaching(self, reward: float, name: str = "steps") -> np.ndarray:
        """A metric of each seed [S] at its first epoch with this reward; NaN if there is none."""
        at = lambda rows: next((r[name] for r in rows if r["reward"] >= reward), np.nan)
        return np.array([at(rows) for rows in self._by_seed])

    @cached_property
    def _by_seed(self) -> list[Rows]:
        return [[row for row in self.rows if row["seed"] == seed] for seed in self.seeds]


def load_run(path: str | Path) -> RunData:
    """Read a run's folder; a ValueError says what is wrong with it."""
    folder = RunFolder(Path(path))
    if folder.path.is_dir() and not is_run(folder.path):
        raise ValueError(f"{path} is not a run: it holds no config.json")
    info, rows = read_info(folder), folder.read_metrics()
    if not rows:
        raise ValueError(f"{path} has no finished epoch yet")
    if {row["seed"] for row in rows} != set(info["seeds"]):
        raise Damaged(f"{folder.path / 'metrics.csv'} is damaged: its seeds are not the run's")
    result = read_result(folder) if (folder.path / "result.json").exists() else {}
    _check_result(result, info, folder.path / "result.json")
    return RunData(folder.path, info, rows, result)


def load_runs(paths: Iterable[str | Path]) -> tuple[list[RunData], list[str]]:
    """The runs that can be read, each once, and a sentence for each that cannot."""
    runs, problems = [], []
    for path in {Path(p).resolve(): Path(p) for p in paths}.values():
        try:
            runs.append(load_run(path))
        except (ValueError, OSError) as error:
            problems.append(str(error))
    return runs, problems


def _check_result(result: dict[str, Any], info: dict[str, Any], path: Path) -> None:
    try:
        if "seconds" in result:
            check_kinds(result, {"seconds": float})
        if "evaluation" in result:
            check_kinds(result["evaluation"], {"seeds": list[dict]})
            for row in result["evaluation"]["seeds"]:
                check_kinds(row, _PER_SEED)
            if [row["seed"] for row in result["evaluation"]["seeds"]] != info["seeds"]:
                raise ValueError("its seeds are not the run's")
    except ValueError as error:
        raise Damaged(f"{path} is damaged: {error}") from None


def _end(rows: Rows, name: str) -> float:
    values = np.array([row.get(name, np.nan) for row in _last(rows)])
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def _last(rows: Rows) -> Rows:
    """The last epochs of one seed."""
    return rows[-min(LAST_EPOCHS, max(1, len(rows) // 2)) :]


def _epochs(count: int) -> str:
    return "the last epoch" if count == 1 else f"the last {count} epochs"


def with_note(label: str, note: str) -> str:
    """A label with a note in its brackets; the label itself if there is no note."""
    if not note:
        return label
    return f"{label[:-1]}, {note})" if label.endswith(")") else f"{label} ({note})"
