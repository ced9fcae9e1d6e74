"""Sections of an experiment's page. Each takes the results; a section without runs is None."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from surefoot.experiments.job import Job
from surefoot.experiments.results import Results
from surefoot.report.compare import LOG_RATIO, over_tasks, task_section
from surefoot.report.curves import COLOURS, GREY
from surefoot.report.data import Group
from surefoot.report.figures import (
    draw_curves,
    draw_sample_efficiency,
    draw_wall_clock,
    legend,
    panel,
)
from surefoot.report.groups import by_task
from surefoot.report.page import Section
from surefoot.report.statistics import interval, mean
from surefoot.report.table import Table, duration, slug, spread_of


def every_task(results: Results) -> list[Section]:
    """The sections of an experiment that defines none: figures for every task, and over tasks."""
    groups = results.groups(results.jobs)
    sections = [task_section(members, results.folder) for members in by_task(groups).values()]
    return sections + over_tasks(groups, results.folder)


def curves(
    results: Results,
    title: str,
    jobs: Sequence[Job],
    text: str,
    metrics: Sequence[str] = ("reward", "cost"),
    converged: Job | None = None,
) -> Section | None:
    """Metrics over real steps; a line marks the reward at the end of `converged`."""
    groups = results.groups(jobs)
    if not groups:
        return None
    level = None if converged is None else results.group(converged)
    lines = {}
    if level is not None and level.state == "finished":
        lines = {f"{level.label} at its end": float(level.final("reward").mean())}
    lengths = [group.real_steps for group in groups]
    log = max(lengths) > LOG_RATIO * min(lengths)
    figures = [
        draw_curves(
            groups, name, results.folder / f"{slug(title)}-{slug(name)}.png", log,
            lines if name == "reward" else {},
        )
        for name in metrics
    ]  # fmt: skip
    return Section(title, text, tuple(figures))


def sweep(
    results: Results, title: str, jobs: Sequence[Job], text: str, setting: str
) -> Section | None:
    """Reward and cost at the end for each value of a setting, and the learning curves."""
    pairs = [(float(job.changes[setting]), group) for job in jobs if (group := results.group(job))]
    if len(pairs) < 2:
        return None
    path = lambda name: results.folder / f"{slug(title)}-{name}.png"
    finished = [(value, group) for value, group in pairs if group.state == "finished"]
    ends = finished if len(finished) > 1 else pairs
    figures = [
        draw_setting(ends, setting, name, path(f"{setting}-{name}")) for name in ("reward", "cost")
    ]
    groups = [group for _, group in pairs]
    figures += [draw_curves(groups, name, path(name)) for name in ("reward", "cost")]
    rows = tuple(
        (f"{value:g}", group.steps_text, spread_of(group.final("reward")),
         spread_of(group.final("cost")), spread_of(group.violations),
         f"{group.seeds_within:.0%}")
        for value, group in pairs
    )  # fmt: skip
    head = (setting, "real steps", "reward", "cost", "violations", "seeds within the limit")
    table = Table(head, rows, "Mean ± standard deviation over seeds.")
    return Section(title, text, tuple(figures), (table,))


def efficiency(
    results: Results, title: str, jobs: Sequence[Job], level: Job, text: str
) -> Section | None:
    """Real steps, violations and time until an epoch reaches the final reward of `level`."""
    aim, groups = results.group(level), results.groups(jobs)
    if aim is None or aim.state != "finished" or not groups:
        return None
    reward = float(aim.final("reward").mean())
    stem = results.folder / slug(title)
    figures = (
        draw_sample_efficiency(groups, reward, stem.with_suffix(".png")),
        draw_wall_clock(groups, stem.with_name(f"{stem.name}-wall-clock.png")),
    )
    rows = []
    for group in groups:
        reached = np.isfinite(group.first_reaching(reward))
        cells = ("-", "-", "-")
        if reached.any():
            steps, violations, seconds = (
                float(np.median(group.first_reaching(reward, name)[reached]))
                for name in ("steps", "violations", "seconds")
            )
            cells = (f"{steps:,.0f}", f"{violations:,.0f}", duration(seconds))
        rows.append((group.shown, f"{reached.sum()} of {len(reached)}", *cells))
    head = ("algorithm", "seeds that reach it", "real steps", "violations", "wall clock")
    caption = (
        f"Until the first epoch with a reward of {reward:.1f}, the final reward of {aim.label} "
        f"after {aim.real_steps:,} real steps. Medians over the seeds that reach it. Wall clock is "
        "that of the run, whose seeds train side by side, possibly beside other trainings."
    )
    return Section(title, text, figures, (Table(head, tuple(rows), caption),))


def missing(results: Results) -> Section | None:
    """The jobs whose runs are missing or too short."""
    rows = results.missing()
    if not rows:
        return None
    text = "Jobs whose runs are missing or shorter than requested. Partial runs are shown only if "
    text += "the job has no complete run."
    head = ("job", "complete seeds", "real steps of partial runs")
    return Section("Missing runs", text, (), (Table(head, tuple(rows)),))


def draw_setting(
    groups: Sequence[tuple[float, Group]], setting: str, name: str, path: Path
) -> Path:
    """Draw reward or cost at the end for each value of a setting: seeds, mean and interval."""
    groups = sorted(groups, key=lambda pair: pair[0])
    xs = np.array([value for value, _ in groups])
    finals = [group.final(name) for _, group in groups]
    task = groups[0][1].task
    caption = (
        f"{task}: {name} at the end for each {setting}. One dot per seed; the line is the mean, "
        "with its 95 % bootstrap interval."
    )
    with panel(path, caption, height=2.3) as axis:
        for x, values in zip(xs, finals, strict=True):
            axis.plot(np.full(len(values), x), values, ".", color=GREY, ms=4, alpha=0.6)
        low, high = np.array([interval(mean, [values]) for values in finals]).T
        means = np.array([values.mean() for values in finals])
        axis.plot(xs, means, "o-", color=COLOURS[0], ms=4, lw=1.5, label="mean over seeds")
        axis.vlines(xs, low, high, color=COLOURS[0], lw=2.2, alpha=0.5)
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
