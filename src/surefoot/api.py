"""The public functions: those of the rooms, with the figures that belong to a run."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from surefoot.algorithms.loop import Epoch
from surefoot.report.diagnosis import draw_diagnosis
from surefoot.report.figures import draw_curve
from surefoot.runs import resume as runs_resume
from surefoot.runs import train as runs_train
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import read_info
from surefoot.runs.setup import MakeEnv, MakeModel
from surefoot.use import diagnose as use_diagnose


def train(task: Any, *args: Any, **kwargs: Any) -> Path:
    run = runs_train.train(task, *args, **kwargs)
    with suppress(OSError):  # the run is complete without its figure
        learning_curve(run)
    return run


train.__doc__ = runs_train.train.__doc__


def resume(
    run: str | Path,
    make_env: MakeEnv | None = None,
    steps: int | None = None,
    known: MakeModel | None = None,
    on_epoch: Callable[[Epoch], object] | None = None,
    quiet: bool = False,
) -> Path:
    path = runs_resume.resume(run, make_env, steps, known, on_epoch, quiet)
    with suppress(OSError):
        learning_curve(path)
    return path


resume.__doc__ = runs_resume.resume.__doc__


def diagnose(run: str | Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
    diagnosis = use_diagnose.diagnose(run, *args, **kwargs)
    figure = draw_diagnosis(
        diagnosis.trials, diagnosis.cost_names, diagnosis.title, Path(run) / "diagnosis.png"
    )
    return {**diagnosis.values, "figure": str(figure)}


diagnose.__doc__ = f"{use_diagnose.diagnose.__doc__}\n    Draws `diagnosis.png` into the folder."


def learning_curve(run: str | Path) -> Path:
    """Draw the run's learning curve into its folder."""
    folder = RunFolder(Path(run))
    info = read_info(folder)
    title = f"{info.task_name}, {info.algorithm} ({info.preset})"
    return draw_curve(folder.read_metrics(), info.cost_limit, title, folder.path / "curve.png")
