"""Figures of a report: one panel each, at the width of a paper's column, as PNG and PDF.

Every function takes the path of the PNG, writes a PDF beside it and returns the path. The PNG
stores its caption (see `caption_of`), which a page shows below it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from surefoot.core.files import Folder, printable
from surefoot.report.data import Group, Rows, by_step
from surefoot.report.statistics import Statistic, band, interval, mean
from surefoot.report.table import plural
from surefoot.runs.folder import Values

# Okabe and Ito's palette.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":", "-.")
GREY = "#444444"
LABELS = {
    "reward": "episode reward", "cost": "episode cost", "violations": "violations so far",
    "model_error": "validation error of the model", "imagined_reward": "imagined episode reward",
    "imagined_cost": "imagined episode cost", "interventions": "share of steps that are planned",
}  # fmt: skip
WIDTH = 3.5  # inches
LOG_RATIO = 5.0
"""Curves whose lengths differ by a larger factor are drawn over the logarithm of steps."""
STYLE = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 8,
    "ytick.labelsize": 8, "legend.fontsize": 7, "axes.linewidth": 0.6, "xtick.major.width": 0.6,
    "ytick.major.width": 0.6, "pdf.fonttype": 42,
}  # fmt: skip
MARKERS = "osD"
LONGEST = 80
"""Letters of a label or title: a run's names may have any length."""
Estimate = tuple[Statistic, Sequence[np.ndarray]]
"""A statistic and the scores [S] of each task that it is computed from."""


def draw_curve(
    rows: Rows,
    cost_limit: float,
    title: str,
    path: Path,
    evaluation: Values | None = None,
) -> Path:
    """Draw reward and cost of one run side by side, and the evaluation that followed."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    axes[1].axhline(cost_limit, color=GREY, ls="--", lw=1)  # first, so that the axis includes it
    for axis, name in zip(axes, ("reward", "cost"), strict=True):
        plot_curve(axis, rows, name)
        if evaluation is not None:
            _plot_evaluation(axis, rows, name, evaluation)
        finish_curves(axis, name)
    axes[1].annotate(
        f"limit {cost_limit:g}", (1, cost_limit), xycoords=("axes fraction", "data"),
        xytext=(-3, 3), textcoords="offset points", ha="right", fontsize=8, color=GREY,
    )  # fmt: skip
    figure.suptitle(printable(title)[: 2 * LONGEST], fontsize=10, parse_math=False)
    # Tight: the layout may change the ticks after it has reserved room for their labels.
    return save_into_run(figure, path, bbox_inches="tight", pad_inches=0.05)


def save_into_run(figure: Figure, path: Path, **options: Any) -> Path:
    """Write a figure as PNG, whatever a run's folder has under that name."""
    picture = BytesIO()
    figure.savefig(picture, dpi=160, **options)
    plt.close(figure)
    return Folder(path.parent).write_bytes(path.name, picture.getvalue(), sync=False)


def _plot_evaluation(axis: Axes, rows: Rows, name: str, evaluation: Values) -> None:
    """Mark the mean over fresh episodes, with its 95 % interval, at the end of a curve."""
    steps, value = max(row["steps"] for row in rows), evaluation[name]
    low, high = evaluation.get(f"{name}_interval") or (value, value)
    label = f"{evaluation['episodes']} fresh episodes: {value:.1f}"
    axis.errorbar(
        [steps], [value], [[value - low], [high - value]], fmt="D", ms=5, color=COLOURS[1],
        capsize=3, label=label, zorder=5, clip_on=False,
    )  # fmt: skip
    axis.legend(loc="best", fontsize=8, frameon=False)


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
    elif name != "reward" and axis.get_ylim()[1] > 0:
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
    if 0 < high - low < (high - least) / 3:
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


def draw_curves(
    groups: Sequence[Group], name: str, path: Path, reward_level: tuple[str, float] | None = None
) -> Path:
    """Learning curves of one metric; `reward_level` labels a line in the figure of the reward.

    Groups whose lengths differ much are drawn over the logarithm of steps.
    """
    lengths = [group.real_steps for group in groups]
    log_steps = max(lengths) > LOG_RATIO * min(lengths)
    task, what = groups[0].task, LABELS.get(name, name)
    caption = f"{task}: {what} over real steps."
    if any(len({row["seed"] for row in group.rows}) > 1 for group in groups):
        caption += " Mean over seeds with its 95 % bootstrap interval."
    with panel(path, caption, task) as axis:
        for group in groups:
            plot_curve(axis, group.rows, name, group.shown, group.number)
        finish_curves(axis, name, log_steps)
        for limit in sorted({group.cost_limit for group in groups}) if name == "cost" else ():
            axis.axhline(limit, color=GREY, ls="--", lw=1, label=f"limit {limit:g}")
        if reward_level is not None and name == "reward":
            label, level = reward_level
            axis.axhline(level, color=GREY, ls=":", lw=1.2, label=label)
        legend(axis)
    return path


def draw_points(
    rows: Mapping[str, tuple[int, Sequence[Estimate]]],
    kinds: Sequence[str],
    what: str,
    caption: str,
    path: Path,
    title: str = "",
    limits: Sequence[float] = (),
) -> Path:
    """Estimates with their intervals: a row for each label, which has a number (see `style`).

    `kinds` names the estimates of a row; `limits` are vertical lines.
    """
    with panel(path, caption, title, list(rows)) as axis:
        for row, (number, estimates) in enumerate(rows.values()):
            shifts = 0.2 * (np.arange(len(kinds)) - (len(kinds) - 1) / 2)
            for y, marker, (statistic, tasks) in zip(
                row + shifts, MARKERS, estimates, strict=False
            ):
                bounds = [float(bound) for bound in interval(statistic, tasks)]
                colour = style(number)[0]
                axis.plot(bounds, [y, y], color=colour, lw=2.2, alpha=0.4, solid_capstyle="butt")
                value = float(statistic(tasks))
                axis.plot([value], [y], marker, color=colour, ms=4, clip_on=False)
        for kind, marker in zip(kinds, MARKERS, strict=False):
            axis.plot([], [], marker, color=GREY, ms=4, label=kind)
        for limit in limits:
            axis.axvline(limit, color=GREY, ls="--", lw=1, label=f"limit {limit:g}")
        if axis.get_xlim()[0] < 0 <= axis.dataLim.x0:
            axis.set_xlim(left=-0.03 * axis.get_xlim()[1])  # shows a marker at 0 in full
        axis.set_xlabel(what)
        legend(axis, 3)
    return path


def draw_sample_efficiency(groups: Sequence[Group], reward: float, path: Path) -> Path:
    """Real steps until an epoch first reaches a reward: each seed, and the median."""
    caption = (
        f"{groups[0].task}: real steps until the first epoch with a reward of {reward:.1f}. One "
        "dot per seed that reached it; the bar is their median."
    )
    with panel(path, caption, groups[0].task, [group.shown for group in groups]) as axis:
        for row, group in enumerate(groups):
            colour, _ = style(group.number)
            steps = group.first_reaching(reward)
            reached = steps[np.isfinite(steps)]
            axis.plot(reached, [row] * len(reached), "o", color=colour, ms=4, alpha=0.5, mew=0)
            if len(reached):
                axis.plot([np.median(reached)], [row], "|", color=colour, ms=14, mew=2)
            axis.annotate(
                f"{len(reached)} of {plural(len(steps), 'seed')}", (1, row), xytext=(3, 0),
                xycoords=("axes fraction", "data"), textcoords="offset points", va="center",
                fontsize=7, color=GREY,
            )  # fmt: skip
        axis.set_xscale("log")
        axis.margins(x=0.08)
        axis.xaxis.set_major_formatter(count)
        axis.set_xlabel(f"real steps to a reward of {reward:.1f}")
    return path


def draw_setting(
    groups: Sequence[tuple[float, Group]], setting: str, name: str, path: Path
) -> Path:
    """Reward or cost at the end for each value of a setting: seeds, mean and interval."""
    groups = sorted(groups, key=lambda pair: pair[0])
    xs = [value for value, _ in groups]
    finals = [group.final(name) for _, group in groups]
    task, limit = groups[0][1].task, groups[0][1].cost_limit
    caption = (
        f"{task}: {name} at the end for each {setting}. One dot per seed; the line is the mean, "
        "with its 95 % bootstrap interval."
    )
    with panel(path, caption, task) as axis:
        for x, values in zip(xs, finals, strict=True):
            axis.plot([x] * len(values), values, ".", color=GREY, ms=4, alpha=0.6)
        low, high = np.array([interval(mean, [values]) for values in finals]).T
        means = [values.mean() for values in finals]
        axis.plot(xs, means, "o-", color=COLOURS[0], ms=4, lw=1.5, label="mean over seeds")
        axis.vlines(xs, low, high, color=COLOURS[0], lw=2.2, alpha=0.5)
        if name == "cost":
            axis.axhline(limit, color=GREY, ls="--", lw=1, label=f"limit {limit:g}")
            axis.set_ylim(bottom=0)
        axis.set_xscale("log")
        axis.set_xticks(xs, [f"{x:g}" for x in xs])
        axis.minorticks_off()
        axis.set_xlabel(setting)
        axis.set_ylabel(f"episode {name}")
        legend(axis)
    return path


def caption_of(path: Path) -> str:
    """The caption stored in a figure; empty for other pictures."""
    with Image.open(path) as image:
        return str(image.info.get("Description", ""))


@contextmanager
def panel(path: Path, caption: str, title: str, rows: Sequence[str] = ()) -> Iterator[Axes]:
    """An axis at column width; the figure is written if the block ends without an error.

    `rows` are the labels of rows at y = 0, 1, …; without them the figure has a fixed height.
    """
    with plt.rc_context(STYLE):  # type: ignore[arg-type]
        size = (WIDTH, 0.75 + 0.45 * len(rows) if rows else 2.3)
        figure, axis = plt.subplots(figsize=size, layout="constrained")
        try:
            yield axis
            axis.set_title(printable(title)[:LONGEST], parse_math=False)
            if rows:
                names = [printable(row)[:LONGEST].replace(" (", "\n(", 1) for row in rows]
                axis.set_yticks(range(len(rows)), names, parse_math=False)
                axis.set_ylim(len(rows) - 0.5, -0.5)
                axis.tick_params(axis="y", length=0)
            tidy(axis)
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=240, metadata={"Description": caption})
            figure.set_layout_engine("none")  # keeps the layout of the PNG
            figure.savefig(path.with_suffix(".pdf"))
        finally:
            plt.close(figure)


def legend(axis: Axes, columns: int = 2) -> None:
    """Add a legend below the axis, in as many columns as fit; the figure grows by its height."""
    figure = axis.get_figure(root=True)
    assert figure is not None
    handles, labels = axis.get_legend_handles_labels()
    made = figure.legend(
        handles, [printable(label)[:LONGEST] for label in labels], loc="outside lower center",
        ncols=columns, frameon=False, handlelength=1.6, columnspacing=1.0, borderpad=0.2,
    )  # fmt: skip
    for text in made.get_texts():
        text.set_parse_math(False)
    size = made.get_window_extent()
    if columns > 1 and size.width > 0.98 * figure.bbox.width:
        made.remove()
        legend(axis, columns - 1)
    else:
        figure.set_figheight(figure.get_figheight() + size.height / figure.dpi)
