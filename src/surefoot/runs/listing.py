"""Runs on disk: the state of each, and a check of its files."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import isnan
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from surefoot.core.config import NonNegative, NonNegativeInt, Range, check_value, check_values
from surefoot.core.files import Damaged
from surefoot.runs.checkpoint import best_of, epoch_of, list_checkpoints, read_complete
from surefoot.runs.drive import how_to_resume
from surefoot.runs.folder import METRICS, RunFolder, Values
from surefoot.runs.info import read_info
from surefoot.runs.keeper import scores_of
from surefoot.runs.metrics import MOST_COUNT, rows_of

EVALUATION = {
    "episodes": NonNegativeInt,
    "reward": float,
    "cost": float,
    "within_limit": float,
    "cost_limit": float,
}
"""What the evaluation in result.json holds at least."""
RESULT = {
    "real_steps": Annotated[int, Range(least=0, most=MOST_COUNT)],
    "seconds": NonNegative,
    "phases": dict[str, float],
}
"""What the result.json of a finished run holds besides."""
T = TypeVar("T")


@dataclass
class RunState:
    """A run at a glance."""

    run: str
    state: Literal["running", "finished", "stopped", "failed", "damaged"] = "stopped"
    problem: str | None = None
    """Why a run failed, or what is damaged."""
    task: str | None = None
    algorithm: str | None = None
    seeds: int = 0
    epoch: int = 0
    real_steps: int = 0
    """Real steps so far, of each seed."""
    steps: int | None = None
    """Real steps requested, of each seed."""
    reward: float | None = None
    """Mean of the last epoch over seeds; None if no episode ended."""
    cost: float | None = None
    cost_limit: float | None = None
    evaluation: Values | None = None
    """Reward and cost of fresh episodes after training."""
    started: str | None = None
    started_at: float = 0.0


@dataclass
class RunReport(RunState):
    """A run with all its files checked."""

    config: Values | None = None
    """The values of config.json."""
    result: Values | None = None
    """The values of result.json."""
    checkpoints: list[Values] = field(default_factory=list)
    """`epoch` and `path` of each, newest first."""
    best: int | None = None
    """Epoch of the checkpoint whose policy scored best in the epoch after it."""
    problems: list[str] = field(default_factory=list)
    """What is damaged."""
    resume: str = ""
    """The command that resumes the run."""


def list_runs(folder: str | Path = "runs") -> list[RunState]:
    """The states of all runs in a folder, newest first."""
    path = Path(folder)
    if not path.is_dir():
        raise ValueError(f"{folder} is not a folder")
    states = [describe_run(p) for p in path.iterdir() if is_run(p)]
    return sorted(states, key=lambda state: (state.started_at, state.run), reverse=True)


def is_run(path: Path) -> bool:
    """Whether a path is a run's folder, possibly a damaged one."""
    return any((path / name).exists() for name in ("config.json", METRICS, "checkpoints"))


def describe_run(run: str | Path) -> RunState:
    """A run's state, task, progress and last metrics, without reading its checkpoints."""
    report, _ = _read(RunFolder(Path(run)))
    return RunState(**{f.name: getattr(report, f.name) for f in fields(RunState)})


def show_run(run: str | Path) -> RunReport:
    """A run's state after checking every one of its files."""
    folder = RunFolder(Path(run))
    if not folder.path.is_dir() or not is_run(folder.path):
        raise ValueError(f"{run} is not a run")
    report, rows = _read(folder)
    paths = _attempt(lambda: list_checkpoints(folder.checkpoints), report.problems) or []
    report.problems += _checkpoint_problems(folder, paths, report.state == "finished")
    report.checkpoints = [{"epoch": epoch_of(path), "path": str(path)} for path in paths]
    best = best_of(paths, scores_of(rows))
    report.best = None if best is None else epoch_of(best)
    if report.problems and report.state != "running":
        report.state, report.problem = "damaged", report.problems[0]
    return report


def _read(folder: RunFolder) -> tuple[RunReport, list[dict[str, float]]]:
    """What config.json, metrics.csv and result.json hold, and the rows of metrics.csv."""
    path = folder.path
    problems = _attempt(folder.foreign, []) or []
    report = RunReport(str(path), problems=problems)
    report.started_at = _attempt(lambda: path.stat().st_mtime, problems) or 0.0
    info = _attempt(lambda: read_info(folder), problems)
    rows = _attempt(lambda: rows_of(folder.metrics_bytes(), path / METRICS), problems) or []
    if (path / "result.json").exists():
        report.result = _attempt(lambda: read_result(folder), problems)
        report.state = "finished"
        report.evaluation = (report.result or {}).get("evaluation")
        if report.result and "failed" in report.result:
            report.state, report.problem = "failed", report.result["failed"]
    report.resume = how_to_resume(folder, info)
    if info is not None:
        report.task, report.algorithm, report.config = info.task_name, info.algorithm, asdict(info)
        report.seeds, report.steps, report.started = len(info.seeds), info.steps, info.started
        report.cost_limit = _attempt(lambda: info.cost_limit, problems)
        report.started_at = info.started_at or report.started_at
    if rows:
        last = [row for row in rows if row["epoch"] == rows[-1]["epoch"]]
        report.epoch, report.real_steps = int(last[-1]["epoch"]), int(last[-1]["steps"])
        report.reward, report.cost = _mean(last, "reward"), _mean(last, "cost")
        # Several constraints have several limits, and each seed reports the one that it kept worst.
        limits = {row["cost_limit"] for row in last}
        report.cost_limit = limits.pop() if len(limits) == 1 else None
    steps = (report.result or {}).get("real_steps", report.real_steps)
    if steps != report.real_steps:
        problems.append(f"{path / METRICS} is damaged: the run has done {steps:,} real steps")
    if problems:
        report.state, report.problem = "damaged", problems[0]
    if folder.is_running():
        report.state, report.problem = "running", None
    return report, rows


def _attempt(read: Callable[[], T], problems: list[str]) -> T | None:
    """What is read; None if it cannot be, with the reason added to `problems`."""
    try:
        return read()
    except (ValueError, OSError) as error:
        problems.append(str(error))
        return None


def _mean(rows: Sequence[dict[str, float]], name: str) -> float | None:
    mean = sum(row[name] for row in rows) / len(rows)
    return None if isnan(mean) else mean


def _checkpoint_problems(folder: RunFolder, paths: Sequence[Path], finished: bool) -> list[str]:
    """What is damaged in checkpoints, newest first, and in the files that they hold copies of."""
    problems, compared = list[str](), False
    metrics = _attempt(folder.metrics_bytes, []) or b""
    for path in paths:
        try:
            copy = read_complete(path).arrays["metrics"].tobytes()
        except FileNotFoundError:  # removed by the process that trains
            continue
        except (ValueError, OSError) as error:
            problems.append(str(error))
            continue
        # A run that stopped may have rows that no checkpoint has.
        exact = finished and path == paths[0]
        if not compared and not (metrics == copy if exact else metrics.startswith(copy)):
            problems.append(f"{folder.path / METRICS} is damaged")
        compared = True
    if paths:
        _attempt(folder.read_policy, problems)
    return problems


def read_result(folder: RunFolder) -> Values:
    """result.json; `Damaged` if a value is missing or invalid."""
    result = folder.read_json("result.json")
    try:
        if "failed" in result:
            check_values(result, {"failed": str})
        else:
            check_values(result, {"evaluation": dict})
            evaluation = result["evaluation"]
            check_values(evaluation, EVALUATION)
            for name in evaluation.keys() & {"reward_interval", "cost_interval"}:
                check_value(name, evaluation[name], list[float])
                if len(evaluation[name]) != 2:
                    raise ValueError(f"{name}={evaluation[name]} must be two numbers")
            check_values(result, RESULT)
    except ValueError as error:
        raise Damaged(f"{folder.path / 'result.json'} is damaged: {error}") from None
    return result
