"""The figure of a diagnosis: how far a learned model agrees with the real environment."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from surefoot.core.files import printable
from surefoot.report.figures import COLOURS, GREY, LONGEST, plt, save_into_run, tidy
from surefoot.world.diagnostics import Trial

MAX_DOTS = 2000


def draw_diagnosis(
    trials: Sequence[Trial], cost_names: Sequence[str], title: str, path: Path
) -> Path:
    """Draw error over horizon, cumulative cost, and the cost of each rollout, real and imagined.

    `trials` has one entry per seed. Of several costs the largest is drawn.
    """
    figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
    real = np.concatenate([trial.real_cost for trial in trials], 1)
    imagined = np.concatenate([trial.imagined_cost for trial in trials], 1)
    largest = int(np.argmax(real[-1].mean(0)))
    real, imagined, name = real[..., largest], imagined[..., largest], cost_names[largest]
    error = np.concatenate([trial.error for trial in trials], 1)
    _draw_errors(axes[0], error, np.concatenate([trial.counted for trial in trials], 1))
    for colour, label, costs in ((COLOURS[6], "real", real), (COLOURS[1], "imagined", imagined)):
        axes[1].plot(np.arange(1, len(real) + 1), costs.mean(1), color=colour, lw=1.6, label=label)
    axes[1].set(xlabel="steps", ylabel=f"mean cost so far ({name})")
    some = slice(None, None, -(-real.shape[1] // MAX_DOTS))
    most = max(real[-1].max(), imagined[-1].max(), 1e-9) * 1.05
    axes[2].plot([0, most], [0, most], color=GREY, ls="--", lw=1)
    dots = {"color": COLOURS[1], "ms": 4, "alpha": 0.25, "mew": 0}
    axes[2].plot(real[-1][some], imagined[-1][some], ".", **dots)
    axes[2].set(xlabel=f"real cost of {len(real)} steps ({name})", ylabel="imagined cost")
    for axis in axes:
        tidy(axis)
    for axis in axes[:2]:
        axis.set_xlim(left=0)
        axis.legend(frameon=False, fontsize=7)
    figure.suptitle(printable(title)[: 2 * LONGEST], fontsize=10, parse_math=False)
    return save_into_run(figure, path)


def _draw_errors(axis: Axes, error: np.ndarray, counted: np.ndarray) -> None:
    """Errors [H, B] of the rollouts that are counted at each step, and their range."""
    rows = [(t + 1, row[use]) for t, (row, use) in enumerate(zip(error, counted, strict=True))]
    rows = [(t, row) for t, row in rows if len(row)]
    steps = [t for t, _ in rows]
    low, median, high = np.transpose([np.percentile(row, (10, 50, 90)) for _, row in rows])
    rms = [np.sqrt(np.mean(row**2)) for _, row in rows]
    axis.fill_between(steps, low, high, color=COLOURS[0], alpha=0.18, lw=0, label="middle 80 %")
    axis.plot(steps, median, color=COLOURS[0], lw=1.2, ls=":", label="median rollout")
    axis.plot(steps, rms, color=COLOURS[0], lw=1.6, label="all (RMSE)")
    axis.set(xlabel="imagined steps", ylabel="error of features / their spread")
    axis.set_ylim(bottom=0)
