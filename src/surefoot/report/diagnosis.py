"""A picture of how far a learned model can be believed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.report.curves import COLOURS, plt

MOST_DOTS = 2000


def draw_diagnosis(
    trials: Sequence[Any], cost_names: Sequence[str], title: str, path: Path
) -> Path:
    """Error against horizon, cost so far, and cost of each rollout, real and imagined.

    `trials` are one `Trial` per seed; of several costs the largest is shown.
    """
    figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
    together = lambda name: np.concatenate([getattr(trial, name) for trial in trials], 1)
    real, imagined = together("real_cost"), together("imagined_cost")
    which = int(np.argmax(real[-1].mean(0)))
    _errors(axes[0], together("error"), together("counted"))
    _so_far(axes[1], real[..., which], imagined[..., which], cost_names[which])
    _each(axes[2], real[-1, :, which], imagined[-1, :, which], len(real), cost_names[which])
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, lw=0.6)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=160)
    plt.close(figure)
    return path


def _errors(axis: Any, error: np.ndarray, counted: np.ndarray) -> None:
    """The error of all rollouts [H, B] that count, and the range of most of them."""
    rows = [(t + 1, row[use]) for t, (row, use) in enumerate(zip(error, counted, strict=True))]
    rows = [(t, row) for t, row in rows if len(row)]
    steps = [t for t, _ in rows]
    low, middle, high = np.transpose([np.percentile(row, (10, 50, 90)) for _, row in rows])
    rms = [np.sqrt(np.mean(row**2)) for _, row in rows]
    axis.fill_between(steps, low, high, color=COLOURS[0], alpha=0.18, lw=0, label="80 % of them")
    axis.plot(steps, middle, color=COLOURS[0], lw=1.2, ls=":", label="median rollout")
    axis.plot(steps, rms, color=COLOURS[0], lw=1.6, label="all (RMSE)")
    axis.set_xlabel("steps imagined")
    axis.set_ylabel("error of features / their spread")
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, fontsize=7)


def _so_far(axis: Any, real: np.ndarray, imagined: np.ndarray, name: str) -> None:
    """Mean cost so far, [H, B] each."""
    steps = np.arange(1, len(real) + 1)
    for colour, label, values in ((COLOURS[6], "real", real), (COLOURS[1], "imagined", imagined)):
        axis.plot(steps, values.mean(1), color=colour, lw=1.6, label=label)
    axis.set_xlabel("steps")
    axis.set_ylabel(f"mean cost so far ({name})")
    axis.set_xlim(left=0)
    axis.legend(frameon=False, fontsize=7)


def _each(axis: Any, real: np.ndarray, imagined: np.ndarray, horizon: int, name: str) -> None:
    """Cost of each rollout over the horizon, [B] each."""
    some = slice(None, None, -(-len(real) // MOST_DOTS))
    most = max(real.max(), imagined.max(), 1e-9) * 1.05
    axis.plot([0, most], [0, most], color="#444444", ls="--", lw=1)
    axis.plot(real[some], imagined[some], ".", color=COLOURS[1], ms=4, alpha=0.25, mew=0)
    axis.set_xlabel(f"real cost of {horizon} steps ({name})")
    axis.set_ylabel("imagined cost")
