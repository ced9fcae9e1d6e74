"""Compare runs: group them over seeds, draw figures, and write a page."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from surefoot.report import figures, statistics
from surefoot.report.data import Group, load_runs
from surefoot.report.groups import by_task, groups
from surefoot.report.page import Section, write_page
from surefoot.report.summary import Scores, as_csv, baseline, normalised, summary, units
from surefoot.report.table import Table, plural, slug, with_interval

LOG_RATIO = 5.0
"""Runs whose real steps differ by a larger factor are drawn over the logarithm of steps."""
STATISTICS = (statistics.mean, statistics.median, statistics.iqm, statistics.optimality_gap)
AGGREGATES_CAPTION = (
    "Normalised reward, with 95 % stratified-bootstrap intervals. IQM: mean of the middle half of "
    "all runs. Optimality gap: mean shortfall of runs below 1. The last column is the probability "
    "that a run has a higher reward than one of the other algorithm on the same task."
)
PAGE, SUMMARY = "report.html", "summary.json"


def compare(runs: Sequence[str | Path], out: Path, title: str | None = None) -> Path:
    """Write report.html, summary.json, summary.csv and figures into `out`; returns the page.

    Runs that cannot be read are left out, and the page and summary.json list them. A ValueError
    lists the problems if no run can be read.
    """
    if not runs:
        raise ValueError("no run was given: surefoot compare RUN RUN …")
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise ValueError(f"out={out} is a file; it must be a folder")
    loaded, problems = load_runs(runs)
    if not loaded:
        raise ValueError("\n".join(problems))
    every = groups(loaded)
    rows = [summary(group) for group in every]
    out.mkdir(parents=True, exist_ok=True)
    contents = json.dumps({"groups": rows, "left_out": problems}, indent=1)
    (out / SUMMARY).write_text(contents + "\n")
    (out / "summary.csv").write_text(as_csv(rows))
    sections = [task_section(members, out / "figures") for members in by_task(every).values()]
    sections += over_tasks(every, out / "figures")
    if problems:
        sections.append(Section("Left out", "\n\n".join(problems)))
    title = title or f"Runs on {', '.join(by_task(every))}"
    command = shlex.join(["surefoot", "compare", *(str(run.path) for run in loaded)])
    return write_page(out / PAGE, title, _lead(every), every, sections, command)


def task_section(members: Sequence[Group], folder: Path) -> Section:
    """All figures of the groups of one task."""
    task = members[0].task
    name = lambda kind: folder / f"{slug(task)}-{kind}.png"
    steps = [group.real_steps for group in members]
    log = max(steps) > LOG_RATIO * min(steps)
    drawn = [
        figures.draw_curves(members, metric, name(metric), log)
        for metric in ("reward", "cost", "violations")
    ]
    level = float(np.min([group.final("reward").mean() for group in members]))
    reached = any(np.isfinite(group.first_reaching(level)).any() for group in members)
    if reached and len(members) > 1:
        drawn.append(figures.draw_sample_efficiency(members, level, name("sample-efficiency")))
    evaluated = [group for group in members if np.isfinite(group.final("cost_cvar")).all()]
    if evaluated:
        drawn.append(figures.draw_cvar(evaluated, name("cvar")))
    drawn.append(figures.draw_wall_clock(members, name("wall-clock")))
    return Section(task, figures=tuple(drawn))


def over_tasks(every: Sequence[Group], folder: Path) -> list[Section]:
    """Reward and violations divided by those of an algorithm without a limit, over its tasks."""
    unit = baseline(every)
    scores, tasks = normalised(every, "reward", units(every, unit, "reward"))
    violations, _ = normalised(every, "violations", units(every, unit, "violations"))
    if len(scores) < 2:
        return []
    numbers = {group.label: group.number for group in every}
    text = f"Reward and violations at the end of training on {', '.join(tasks)}, divided by those "
    text += f"of {unit}."
    if left := sorted({group.label for group in every} - set(scores)):
        text += f" Left out, because not finished on all of these tasks: {', '.join(left)}."
    path = lambda name: folder / f"{slug(name)}.png"
    drawn = [
        figures.draw_aggregates(some, name, path(name), numbers)
        for some, name in ((scores, "normalised reward"), (violations, "normalised violations"))
        if some
    ]
    drawn.append(figures.draw_profiles(scores, "normalised reward", path("profile"), numbers))
    return [Section("Over tasks and seeds", text, tuple(drawn), (_aggregates(scores),))]


def _aggregates(scores: Scores) -> Table:
    """The statistics of normalised rewards in numbers; the first label is compared with."""
    first = next(iter(scores))
    rows = []
    for label, tasks in scores.items():
        cells = [_with_interval(statistic, tasks) for statistic in STATISTICS]
        better = _with_interval(statistics.probability_of_improvement, tasks, scores[first])
        rows.append((label, *cells, "-" if label == first else better))
    head = ("algorithm", "mean", "median", "IQM", "optimality gap", f"beats {first}")
    return Table(head, tuple(rows), AGGREGATES_CAPTION)


def _with_interval(statistic: statistics.Statistic, *scores: Sequence[np.ndarray]) -> str:
    low, high = statistics.interval(statistic, *scores)
    return with_interval(float(statistic(*scores)), float(low), float(high))


def _lead(every: Sequence[Group]) -> str:
    seeds = sum(len(group.seeds) for group in every)
    text = f"{plural(len(every), 'group')} of runs, {plural(seeds, 'seed')} in total."
    open_ = [f"{g.label} on {g.task} ({g.state})" for g in every if g.state != "finished"]
    return text + (f" Not finished: {', '.join(open_)}." if open_ else "")
