"""Runs on disk: the state of each, and a check of its files."""

from math import isnan
from pathlib import Path
from typing import Any

from surefoot.core.config import check_values
from surefoot.runs.checkpoint import Damaged, best_of, epoch_of, list_checkpoints, read_checkpoint
from surefoot.runs.drive import how_to_resume
from surefoot.runs.folder import RunFolder, rows_of
from surefoot.runs.info import read_info
from surefoot.runs.keeper import scores_of

EVALUATION = {"episodes": int, "reward": float, "cost": float, "within_limit": float}


def list_runs(folder: str | Path = "runs") -> list[dict[str, Any]]:
    """All runs in a folder, newest first, each as in `describe_run`."""
    path = Path(folder)
    if not path.is_dir():
        raise ValueError(f"{folder} is not a folder with runs: there is no such folder")
    rows = [describe_run(p) for p in path.iterdir() if is_run(p)]
    return sorted(rows, key=lambda row: (row["started_at"], row["run"]), reverse=True)


def is_run(path: Path) -> bool:
    """Whether a path is a run's folder, possibly a damaged one."""
    return any((path / name).exists() for name in ("config.json", "metrics.csv", "checkpoints"))


def describe_run(run: str | Path) -> dict[str, Any]:
    """A run's state, task, progress and last metrics, without reading its checkpoints.

    `state` is running, finished, stopped, failed or damaged; `problem` explains the last two.
    """
    folder = RunFolder(Path(run))
    row: dict[str, Any] = {
        "run": str(folder.path), "state": "stopped", "problem": None, "task": None,
        "algorithm": None, "seeds": 0, "epoch": 0, "real_steps": 0, "steps": None, "reward": None,
        "cost": None, "cost_limit": None, "started": None, "started_at": 0.0,
    }  # fmt: skip
    try:
        row["started_at"] = folder.path.stat().st_mtime
        info = read_info(folder)
        row |= {
            "task": info.task_name,
            "algorithm": info.algorithm,
            "seeds": len(info.seeds),
            "steps": info.steps,
            "cost_limit": info.cost_limit,
            "started": info.started,
            "started_at": info.started_at or row["started_at"],
        }
        _add_metrics(row, rows_of(folder.metrics_bytes(), folder.path / "metrics.csv"))
        if (folder.path / "result.json").exists():
            result = read_result(folder)
            row |= {"state": "finished"}
            if "failed" in result:
                row |= {"state": "failed", "problem": result["failed"]}
    except (ValueError, OSError) as error:
        row |= {"state": "damaged", "problem": str(error)}
    if folder.is_running():
        row |= {"state": "running", "problem": None}
    return row


def show_run(run: str | Path) -> dict[str, Any]:
    """A run with every file checked: `describe_run` and

    `config` (config.json), `result` (result.json), `checkpoints`, `best` (the checkpoint whose
    policy did best in the epoch after it), `problems` (what is damaged) and `resume` (the command
    that resumes it).
    """
    folder = RunFolder(Path(run))
    if not folder.path.is_dir() or not is_run(folder.path):
        raise ValueError(f"{run} is not a run")
    row, problems = describe_run(run), []
    info, result = None, None
    try:
        info = read_info(folder)
    except ValueError as error:
        problems.append(str(error))
    if (folder.path / "result.json").exists():
        try:
            result = read_result(folder)
        except ValueError as error:
            problems.append(str(error))
    paths = list_checkpoints(folder.checkpoints)
    metrics = folder.metrics_bytes()
    newest = True
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
            problems.append(f"{folder.path / 'metrics.csv'} is damaged")
        newest = False
    try:
        best = best_of(paths, scores_of(rows_of(metrics, folder.path / "metrics.csv")))
    except Damaged:
        best = None
    if paths:
        try:
            folder.read_policy()
        except ValueError as error:
            problems.append(str(error))
    if problems and row["state"] != "running":
        row |= {"state": "damaged", "problem": problems[0]}
    return row | {
        "config": None if info is None else info.to_dict(),
        "result": result,
        "checkpoints": [{"epoch": epoch_of(p), "path": str(p)} for p in paths],
        "best": None if best is None else epoch_of(best),
        "problems": problems,
        "resume": how_to_resume(folder, info),
    }  # fmt: skip


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


def _number(x: float) -> float | None:
    return None if isnan(x) else x


def _add_metrics(row: dict[str, Any], rows: list[dict[str, float]]) -> None:
    if not rows:
        return
    last = [r for r in rows if r["epoch"] == rows[-1]["epoch"]]
    mean = lambda name: _number(sum(r[name] for r in last) / len(last))
    row |= {
        "epoch": int(rows[-1]["epoch"]),
        "real_steps": int(rows[-1]["steps"]),
        "reward": mean("reward"),
        "cost": mean("cost"),
    }
