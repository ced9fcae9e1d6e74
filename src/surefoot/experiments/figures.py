"""Figures that only experiments have."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from surefoot.report.curves import COLOURS, GREY
from surefoot.report.data import Group
from surefoot.report.figures import legend, panel
from surefoot.report.statistics import interval, mean


def draw_setting(
    groups: Sequence[tuple[float, Group]], setting: str, name: str, path: Path
) -> Path:
    """Reward or cost at the end for each value of a setting: seeds, their mean and its interval."""
    groups = sorted(groups, key=lambda pair: pair[0])
    xs = np.array([value for value, _ in groups])
    found = [group.final(name) for _, group in groups]
    task = groups[0][1].task
    caption = (
        f"{task}: {name} at the end for each {setting}. A dot per seed; the line is their mean, "
        "with its 95 % bootstrap interval."
    )
    with panel(path, caption, height=2.3) as axis:
        for x, values in zip(xs, found, strict=True):
            axis.plot(np.full(len(values), x), values, ".", color=GREY, ms=4, alpha=0.6)
        bounds = np.array([interval(mean, [values]) for values in found]).T
        means = np.array([values.mean() for values in found])
        axis.plot(xs, means, "o-", color=COLOURS[0], ms=4, lw=1.5, label="mean over seeds")
        axis.vlines(xs, *bounds, color=COLOURS[0], lw=2.2, alpha=0.5)
        if name == "cost":
            limit = groups[0][1].cost_limit
            axis.axhline(limit, color=GREY, ls="--", lw=1, label=f"limit {limit:g}")
            axis.set_ylim(bottom=0)
        axis.set_xscale("log")
        axis.set_xticks(xs, [f"{x:g}" for x in xs])
        axis.minorticks_off()
        axis.set_xlabel(setting)
        axis.set_ylabel(f"episode {name}")
        axis.set_title(task)
        legend(axis)
    return path
