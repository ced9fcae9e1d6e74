"""Runs on disk: the state of each, and a check of its files."""

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Any, Literal, TypedDict

from surefoot.core.config import check_values
from surefoot.runs.checkpoint import Damaged, best_of, epoch_of, list_checkpoints, read_checkpoint
from surefoot.runs.drive import how_to_resume
from surefoot.runs.folder import METRICS, RunFolder, rows_of
from surefoot.runs.info import RunInfo, read_info
from surefoot.runs.keeper import scores_of

EVALUATION = {"episodes": int, "reward": float, "cost": float, "within_limit": float}
"""What the evaluation in result.json holds at least."""


class RunState(TypedDict):
    """A run at a glance, in plain values."""

    run: str
    state: Literal["running", "finished", "stopped", "failed", "damaged"]
    problem: str | None
    """Why a run failed, or what is damaged."""
    task: str | None
    algorithm: str | None
    seeds: int
    epoch: int
    real_steps: int
    """Real steps so far, of each seed."""
    steps: int | None
    """Real steps requested, of each seed."""
    reward: float | None
    """Mean of the last epoch over seeds; None if no episode ended."""
    cost: float | None
    cost_limit: float | None
    started: str | None
    started_at: float


class SavedEpoch(TypedDict):
    epoch: int
    path: str


class RunReport(RunState):
    """A run with all its files checked."""

    config: dict[str, Any] | None
    """The values of config.json."""
    result: dict[str, Any] | None
    """The values of result.json."""
    checkpoints: list[SavedEpoch]
    """Newest first."""
    best: int | None
    """Epoch of the checkpoint whose policy scored best in the epoch after it."""
    problems: list[str]
    """What is damaged."""
    resume: str
    """The command that resumes the run."""


def list_runs(folder: str | Path = "runs") -> list[RunState]:
    """The states of all runs in a folder, newest first."""
    path = Path(folder)
    if not path.is_dir():
        raise ValueError(f"{folder} is not a folder")
    rows = [describe_run(p) for p in path.iterdir() if is_run(p)]
    return sorted(rows, key=lambda row: (row["started_at"], row["run"]), reverse=True)


def is_run(path: Path) -> bool:
    """Whether a path is a run's folder, possibly a damaged one."""
    return any((path / name).exists() for name in ("config.json", METRICS, "checkpoints"))


def describe_run(run: str | Path) -> RunState:
    """A run's state, task, progress and last metrics, without reading its checkpoints."""
    folder = RunFolder(Path(run))
    row: RunState = {
        "run": str(folder.path), "state": "stopped", "problem": None, "task": None,
        "algorithm": None, "seeds": 0, "epoch": 0, "real_steps": 0, "steps": None, "reward": None,
        "cost": None, "cost_limit": None, "started": None, "started_at": 0.0,
    }  # fmt: skip
    try:
        row["started_at"] = folder.path.stat().st_mtime
        info = read_info(folder)
        row.update(
            {
                "task": info.task_name,
                "algorithm": info.algorithm,
                "seeds": len(info.seeds),
                "steps": info.steps,
                "cost_limit": info.cost_limit,
                "started": info.started,
                "started_at": info.started_at or row["started_at"],
            }
        )
        _add_metrics(row, rows_of(folder.metrics_bytes(), folder.path / METRICS))
        if (folder.path / "result.json").exists():
            result = read_result(folder)
            row["state"] = "finished"
            if "failed" in result:
                row.update({"state": "failed", "problem": result["failed"]})
    except (ValueError, OSError) as error:
        row.update({"state": "damaged", "problem": str(error)})
    if folder.is_running():
        row.update({"state": "running", "problem": None})
    return row


def show_run(run: str | Path) -> RunReport:
    """A run's state after checking every one of its files."""
    folder = RunFolder(Path(run))
    if not folder.path.is_dir() or not is_run(folder.path):
        raise ValueError(f"{run} is not a run")
    row = describe_run(run)
    info, result, problems = _read_records(folder)
    paths = list_checkpoints(folder.checkpoints)
    problems += _checkpoint_problems(folder, paths)
    if problems and row["state"] != "running":
        row.update({"state": "damaged", "problem": problems[0]})
    return RunReport(
        **row,
        config=None if info is None else info.to_dict(),
        result=result,
        checkpoints=[{"epoch": epoch_of(p), "path": str(p)} for p in paths],
        best=_best_epoch(folder, paths),
        problems=problems,
        resume=how_to_resume(folder, info),
    )


def _read_records(folder: RunFolder) -> tuple[RunInfo | None, dict[str, Any] | None, list[str]]:
    """config.json, result.json, and what is damaged in them."""
    info, result, problems = None, None, []
    try:
        info = read_info(folder)
    except ValueError as error:
        problems.append(str(error))
    if (folder.path / "result.json").exists():
        try:
            result = read_result(folder)
        except ValueError as error:
            problems.append(str(error))
    return info, result, problems


def _checkpoint_problems(folder: RunFolder, paths: Sequence[Path]) -> list[str]:
    """What is damaged in checkpoints, newest first, and in the files that they hold copies of."""
    metrics, problems, newest = folder.metrics_bytes(), [], True
    for path in paths:
        try:
            checkpoint = read_checkpoint(path)
        except ValueError as error:
            problems.append(str(error))
            continue
        copy = checkpoint.arrays.get("metrics")
        if copy is None:
            problems.append(f"{path} is damaged: it holds no metrics")
        elif newest and not metrics.startswith(copy.tobytes()):
            problems.append(f"{folder.path / METRICS} is damaged")
        newest = False
    if paths:
        try:
            folder.read_policy()
        except ValueError as error:
            problems.append(str(error))
    return problems


def _best_epoch(folder: RunFolder, paths: Sequence[Path]) -> int | None:
    try:
        rows = rows_of(folder.metrics_bytes(), folder.path / METRICS)
    except Damaged:
        return None
    best = best_of(paths, scores_of(rows))
    return None if best is None else epoch_of(best)


def read_result(folder: RunFolder) -> dict[str, Any]:
    """result.json; `Damaged` if its evaluation, if there is one, is incomplete."""
    result = folder.read_json("result.json")
    try:
        if "evaluation" in result:
            check_values(result, {"evaluation": dict})
            check_values(result["evaluation"], EVALUATION)
    except ValueError as error:
        raise Damaged(f"{folder.path / 'result.json'} is damaged: {error}") from None
    return result


def _add_metrics(row: RunState, rows: Sequence[dict[str, float]]) -> None:
    """Add the last epoch's numbers."""
    if not rows:
        return
    last = [r for r in rows if r["epoch"] == rows[-1]["epoch"]]

    def mean(name: str) -> float | None:
        x = sum(r[name] for r in last) / len(last)
        return None if isnan(x) else x

    row.update(
        {
            "epoch": int(rows[-1]["epoch"]),
            "real_steps": int(rows[-1]["steps"]),
            "reward": mean("reward"),
            "cost": mean("cost"),
        }
    )
