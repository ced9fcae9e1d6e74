"""Compare runs: group them over seeds, draw figures, and write a page."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from surefoot.report import figures, statistics
from surefoot.report.data import Group, load_runs
from surefoot.report.groups import by_task, groups
from surefoot.report.page import Section, write_page
from surefoot.report.summary import Scores, as_csv, baseline, estimate, normalised, summary, units
from surefoot.report.table import Table, plural, slug

AGGREGATES = {"mean": statistics.mean, "median": statistics.median, "IQM": statistics.iqm}
AGGREGATES_CAPTION = (
    "With 95 % stratified-bootstrap intervals. IQM: mean of the middle half of all runs. "
    "Optimality gap: mean shortfall of runs below 1. The last column is the probability that a run "
    "has a higher reward than one of the other algorithm on the same task."
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
    out.mkdir(parents=True, exist_ok=True)
    contents = {"groups": [summary(group) for group in every], "left_out": problems}
    (out / SUMMARY).write_text(json.dumps(contents, indent=1) + "\n")
    (out / "summary.csv").write_text(as_csv(every))
    sections = every_task(every, out / "figures")
    if problems:
        sections.append(Section("Left out", "\n\n".join(problems)))
    seeds = sum(len(group.seeds) for group in every)
    lead = f"{plural(len(every), 'group')} of runs, {plural(seeds, 'seed')} in total."
    if left := [f"{g.label} on {g.task} ({g.state})" for g in every if g.state != "finished"]:
        lead += f" Not finished: {', '.join(left)}."
    title = title or f"Runs on {', '.join(by_task(every))}"
    command = shlex.join(["surefoot", "compare", *(str(run.path) for run in loaded)])
    return write_page(out / PAGE, title, lead, every, sections, command)


def every_task(every: Sequence[Group], folder: Path) -> list[Section]:
    """Figures for every task, and statistics over the tasks of an algorithm without a limit."""
    sections = [_task_section(members, folder) for members in by_task(every).values()]
    across = over_tasks(every, baseline(every), folder)
    return sections if across is None else [*sections, across]


def _task_section(members: Sequence[Group], folder: Path) -> Section:
    """All figures of the groups of one task."""
    task = members[0].task
    path = lambda kind: folder / f"{slug(task)}-{kind}.png"
    names = ("reward", "cost", "violations")
    drawn = [figures.draw_curves(members, name, path(name)) for name in names]
    level = float(np.min([group.final("reward").mean() for group in members]))
    reached = any(np.isfinite(group.first_reaching(level)).any() for group in members)
    if reached and len(members) > 1:
        drawn.append(figures.draw_sample_efficiency(members, level, path("sample-efficiency")))
    evaluated = [group for group in members if np.isfinite(group.final("cost_cvar")).all()]
    if evaluated:
        caption = (
            f"{task}: mean cost of fresh episodes, and of the worst tenth of them (CVaR). Mean "
            "over seeds with its 95 % bootstrap interval."
        )
        of = lambda group, name: (statistics.mean, [group.final(name)])
        rows = {g.shown: (g.number, [of(g, "cost"), of(g, "cost_cvar")]) for g in evaluated}
        drawn.append(
            figures.draw_points(
                rows, ("all episodes", "worst tenth"), "episode cost", caption,
                path("cvar"), task, sorted({g.cost_limit for g in evaluated}),
            )
        )  # fmt: skip
    return Section(task, figures=tuple(drawn))


def over_tasks(
    every: Sequence[Group],
    unit: str | None,
    folder: Path,
    published: Mapping[str, Mapping[str, float]] | None = None,
    fewest: int = 2,
) -> Section | None:
    """Reward and violations divided by those of the label `unit`, over all tasks that have it.

    `published` holds units by metric and task, for tasks where `unit` was not run. The section is
    None if fewer than `fewest` labels are finished on all these tasks.
    """
    numbers = {group.label: group.number for group in every}
    drawn, rows, tasks, labels = [], [], [], []
    for name in ("reward", "violations"):
        by_task = {**(published or {}).get(name, {}), **units(every, unit, name)}
        scores, tasks_used = normalised(every, name, by_task)
        if len(scores) < fewest:
            continue
        tasks, labels = tasks or tasks_used, labels or list(scores)
        drawn.append(_draw_aggregates(scores, f"normalised {name}", numbers, folder))
        rows += _aggregates(scores, f"normalised {name}")
    if not drawn:
        return None
    text = f"Reward and violations at the end of training on {', '.join(tasks)}, divided by those "
    text += f"of {unit}."
    if left := sorted(set(numbers) - set(labels)):
        text += f" Left out, because not finished on all of these tasks: {', '.join(left)}."
    head = ("algorithm", "score", *AGGREGATES, "optimality gap", f"beats {labels[0]}")
    table = Table(head, tuple(rows), AGGREGATES_CAPTION)
    return Section("Over tasks and seeds", text, tuple(drawn), (table,))


def _draw_aggregates(scores: Scores, what: str, numbers: Mapping[str, int], folder: Path) -> Path:
    caption = f"{what.capitalize()}: mean, median and interquartile mean with 95 % "
    caption += "stratified-bootstrap intervals."
    rows = {
        label: (numbers[label], [(statistic, tasks) for statistic in AGGREGATES.values()])
        for label, tasks in scores.items()
    }
    path = folder / f"{slug(what)}.png"
    return figures.draw_points(rows, list(AGGREGATES), what, caption, path)


def _aggregates(scores: Scores, what: str) -> list[tuple[str, ...]]:
    """Rows of statistics; the first label is compared with."""
    first = next(iter(scores))
    rows = []
    for label, tasks in scores.items():
        gap, beats = "-", "-"
        if what == "normalised reward":
            gap = estimate(statistics.optimality_gap, tasks)
            if label != first:
                beats = estimate(statistics.probability_of_improvement, tasks, scores[first])
        cells = [estimate(statistic, tasks) for statistic in AGGREGATES.values()]
        rows.append((label, what, *cells, gap, beats))
    return rows
