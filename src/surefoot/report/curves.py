"""Learning curves: reward and cost over real steps, with the limit and the spread over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

# Okabe and Ito's palette.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
Rows = Sequence[Mapping[str, float]]


def by_step(rows: Rows, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Real steps [E] and the values [E, S] of a metric for each seed."""
    seeds = sorted({row["seed"] for row in rows})
    table = [[r for r in rows if r["seed"] == seed] for seed in seeds]
    length = min(len(t) for t in table)
    steps = np.array([r["steps"] for r in table[0][:length]])
    return steps, np.array([[r[name] for r in t[:length]] for t in table]).T


def draw_curve(rows: Rows, cost_limit: float, title: str, path: Path) -> Path:
    """Reward and cost of one run."""
    return draw_curves({"": rows}, cost_limit, title, path)


def draw_curves(runs: Mapping[str, Rows], cost_limit: float | None, title: str, path: Path) -> Path:
    """Reward and cost of several runs side by side: mean over seeds, and the range of the seeds."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for colour, (label, rows) in zip(COLOURS, runs.items(), strict=False):
        for axis, name in zip(axes, ("reward", "cost"), strict=True):
            steps, values = by_step(rows, name)
            axis.plot(steps, np.nanmean(values, 1), color=colour, label=label or None, lw=1.6)
            if values.shape[1] > 1:
                low, high = np.nanmin(values, 1), np.nanmax(values, 1)
                axis.fill_between(steps, low, high, color=colour, alpha=0.18, lw=0)
    axes[0].set_ylabel("episode reward")
    axes[1].set_ylabel("episode cost")
    if cost_limit is not None:
        axes[1].axhline(cost_limit, color="#444444", ls="--", lw=1)
        axes[1].annotate(
            f"limit {cost_limit:g}", (1, cost_limit), xycoords=("axes fraction", "data"),
            xytext=(-3, 3), textcoords="offset points", ha="right", fontsize=8, color="#444444",
        )  # fmt: skip
    for axis in axes:
        axis.set_xlabel("real steps")
        axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x else "0")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, lw=0.6)
        axis.set_xlim(left=0)
    axes[1].set_ylim(bottom=0)
    if any(runs):
        axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=160)
    plt.close(figure)
    return path
