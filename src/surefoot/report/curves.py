"""Learning curves: a metric over real steps, with its spread over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from surefoot.report.statistics import band

# Okabe and Ito's palette.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":", "-.")
GREY = "#444444"
LABELS = {
    "reward": "episode reward", "cost": "episode cost", "violations": "violations so far",
    "model_error": "validation error of the model",
}  # fmt: skip
Rows = Sequence[Mapping[str, float]]
"""Rows of metrics.csv: one per seed and epoch."""


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


def draw_curve(rows: Rows, cost_limit: float, title: str, path: Path) -> Path:
    """Draw reward and cost of one run side by side."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    axes[1].axhline(cost_limit, color=GREY, ls="--", lw=1)  # first, so that the axis includes it
    for axis, name in zip(axes, ("reward", "cost"), strict=True):
        plot_curve(axis, rows, name)
        finish_curves(axis, name)
    axes[1].annotate(
        f"limit {cost_limit:g}", (1, cost_limit), xycoords=("axes fraction", "data"),
        xytext=(-3, 3), textcoords="offset points", ha="right", fontsize=8, color=GREY,
    )  # fmt: skip
    figure.suptitle(title, fontsize=10)
    # Tight: the layout may change the ticks after it has reserved room for their labels.
    figure.savefig(path, dpi=160, bbox_inches="tight", pad_inches=0.05)
    plt.close(figure)
    return path


def plot_curve(axis: Axes, rows: Rows, name: str, label: str = "", number: int = 0) -> None:
    """Plot a metric's mean over seeds and its 95 % bootstrap interval; see `style`."""
    colour, dashes = style(number)
    steps, values = by_step(rows, name)
    marker = "." if len(steps) < 8 else ""
    axis.plot(
        steps, values.mean(1), dashes, color=colour, label=label or None, lw=1.5, marker=marker,
        ms=4,
    )  # fmt: skip
    if values.shape[1] > 1 and len(steps):
        low, high = band(values)
        axis.fill_between(steps, low, high, color=colour, alpha=0.18, lw=0)


def finish_curves(axis: Axes, name: str, log_steps: bool = False) -> None:
    """Set labels, scales and bounds of an axis with learning curves."""
    axis.set_xlabel("real steps")
    axis.set_ylabel(LABELS.get(name, name))
    if log_steps:
        axis.set_xscale("log")
    else:
        axis.set_xlim(left=0)
    if name == "violations" and log_steps:
        axis.set_yscale("log", nonpositive="mask")
    elif name != "reward":
        axis.set_ylim(bottom=-0.02 * axis.get_ylim()[1])  # keeps 0 off the axis line
    else:
        crop_start(axis)
    axis.xaxis.set_major_formatter(count)
    axis.yaxis.set_major_formatter(count)
    tidy(axis)


def crop_start(axis: Axes) -> None:
    """Crop the y axis if the first points of the curves would take most of it.

    At most a tenth of the points is cropped, and only if the others need less than a third.
    """
    lines = [np.asarray(line.get_ydata(), float) for line in axis.get_lines()]
    values = np.concatenate([line for line in lines if len(line) > 2] or [np.zeros(1)])
    least, low, high = values.min(), np.quantile(values, 0.1), values.max()
    if high - low < (high - least) / 3:
        margin = 0.1 * (high - low)
        axis.set_ylim(float(low - margin), float(high + margin))
        axis.annotate(
            "first values lie lower", (0.98, 0.02), xycoords="axes fraction", ha="right",
            fontsize=8, color=GREY,
        )  # fmt: skip


def style(number: int) -> tuple[str, str]:
    """Colour and dashes of curve `number`; all pairs differ until they repeat."""
    return COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]


def count(x: float, _: float | None = None) -> str:
    """A large number in short, for ticks."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(x) >= size:
            return f"{x / size:g}{letter}"
    return f"{x:g}"


def tidy(axis: Axes) -> None:
    """Remove the upper and right border and add a light grid."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, lw=0.6)
    axis.set_axisbelow(True)
