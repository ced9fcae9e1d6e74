"""The public functions: those of the rooms, with the figures that belong to a run."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from surefoot.report.diagnosis import draw_diagnosis
from surefoot.report.figures import draw_curve
from surefoot.report.run_page import write_report as write_report
from surefoot.runs import resume as runs_resume
from surefoot.runs import train as runs_train
from surefoot.runs.folder import RunFolder, Values
from surefoot.runs.info import read_info
from surefoot.use import diagnose as use_diagnose

P = ParamSpec("P")


def learning_curve(run: str | Path) -> Path:
    """Draw the run's learning curve into its folder."""
    folder = RunFolder(Path(run))
    info = read_info(folder)
    title = f"{info.task_name}, {info.algorithm} ({info.preset})"
    result = folder.read_json("result.json") if (folder.path / "result.json").exists() else {}
    path = folder.path / "curve.png"
    rows = folder.read_metrics()
    return draw_curve(rows, info.cost_limit, title, path, result.get("evaluation"))


def _with_curve(function: Callable[P, Path]) -> Callable[P, Path]:
    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Path:
        run = function(*args, **kwargs)
        with suppress(OSError):  # the run is complete without its figure
            learning_curve(run)
        return run

    return call


train = _with_curve(runs_train.train)
resume = _with_curve(runs_resume.resume)


def diagnose(run: str | Path, *args: Any, **kwargs: Any) -> Values:
    diagnosis = use_diagnose.diagnose(run, *args, **kwargs)
    path = Path(run) / "diagnosis.png"
    figure = draw_diagnosis(diagnosis.trials, diagnosis.cost_names, diagnosis.title, path)
    return {**diagnosis.values, "figure": str(figure)}


diagnose.__doc__ = f"{use_diagnose.diagnose.__doc__}\n    Draws `diagnosis.png` into the folder."
