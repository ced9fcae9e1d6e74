"""Compare any runs: group them over seeds, draw, and write a page."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from surefoot.report import figures, statistics
from surefoot.report.data import Group, load_runs
from surefoot.report.groups import by_task, groups
from surefoot.report.page import Section, Table, write_page
from surefoot.report.summary import as_csv, normalised, summary

FAR_APART = 5.0
"""Runs whose real steps differ by more than this are drawn over the logarithm of steps."""
STATISTICS = (statistics.mean, statistics.median, statistics.iqm, statistics.optimality_gap)
AGGREGATES_CAPTION = (
    "Normalised reward, with 95 % stratified-bootstrap intervals. IQM: mean of the middle half of "
    "all runs. Optimality gap: how far runs fall short of 1 on average. The last column is the "
    "probability that a run has a higher reward than one of the other algorithm on the same task."
)
PAGE, SUMMARY = "report.html", "summary.json"


def compare(runs: Sequence[str | Path], out: Path, title: str | None = None) -> Path:
    """Write report.html, summary.json, summary.csv and figures into `out`; returns the page.

    Runs that cannot be read are left out, and the page and summary.json say so; if none can be
    read, that is a ValueError with a sentence for each.
    """
    if not runs:
        raise ValueError("no run was named: surefoot compare RUN RUN …")
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise ValueError(f"out={out} is a file; name a folder")
    found, problems = load_runs(runs)
    if not found:
        raise ValueError("\n".join(problems))
    every = groups(found)
    rows = [summary(group) for group in every]
    out.mkdir(parents=True, exist_ok=True)
    said = json.dumps({"groups": rows, "left_out": problems}, indent=1)
    (out / SUMMARY).write_text(said + "\n")
    (out / "summary.csv").write_text(as_csv(rows))
    sections = [task_section(members, out / "figures") for members in by_task(every).values()]
    sections += over_tasks(every, out / "figures")
    if problems:
        sections.append(Section("Left out", "\n\n".join(problems)))
    tasks = ", ".join(by_task(every))
    again = shlex.join(["surefoot", "compare", *(str(run.path) for run in found)])
    title = title or f"Runs on {tasks}"
    return write_page(out / PAGE, title, _lead(every), every, sections, again)


def task_section(members: Sequence[Group], folder: Path) -> Section:
    """All figures of the groups of one task."""
    task = members[0].task
    name = lambda kind: folder / f"{slug(task)}-{kind}.png"
    log = _far_apart(members)
    level, whose = _level(members)
    drawn = [
        figures.draw_curves(
            members, "reward", name("reward"), log, {whose: level} if whose else {}
        ),
        figures.draw_curves(members, "cost", name("cost"), log),
        figures.draw_curves(members, "violations", name("violations"), log),
    ]
    reached = any(np.isfinite(group.first_reaching(level)).any() for group in members)
    if reached and len(members) > 1:
        drawn.append(figures.draw_sample_efficiency(members, level, name("sample-efficiency")))
    evaluated = [group for group in members if np.isfinite(group.final("cost_cvar")).all()]
    if evaluated:
        drawn.append(figures.draw_cvar(evaluated, name("cvar")))
    drawn.append(figures.draw_wall_clock(members, name("wall-clock")))
    return Section(task, figures=tuple(drawn))


def over_tasks(every: Sequence[Group], folder: Path) -> list[Section]:
    """Rewards and violations as shares of unconstrained PPO's, over the tasks that have them."""
    scores, tasks = normalised(every, "reward")
    violations, _ = normalised(every, "violations")
    if len(scores) < 2:
        return []
    numbers = {group.label: group.number for group in every}
    text = (
        f"Reward and violations at the end of training on {', '.join(tasks)}, divided by those of "
    )
    text += "unconstrained PPO: of its runs here, else the paper's 20 and 200,000."
    left = sorted({group.label for group in every} - set(scores))
    if left:
        text += f" Not finished on all of these tasks, and left out: {', '.join(left)}."
    drawn = (
        figures.draw_aggregates(
            scores, "normalised reward", folder / "normalised-reward.png", numbers
        ),
        figures.draw_aggregates(
            violations, "normalised violations", folder / "normalised-violations.png", numbers
        ),
        figures.draw_profiles(scores, "normalised reward", folder / "profile.png", numbers),
    )
    return [Section("Over tasks and seeds", text, drawn, (_aggregates(scores, every),))]


def _aggregates(scores: figures.ByLabel, every: Sequence[Group]) -> Table:
    """The statistics of normalised rewards in numbers."""
    lagrangian = (g.label for g in every if g.algorithm == "ppo-lagrangian" and g.label in scores)
    other = next(lagrangian, next(iter(scores)))
    rows = []
    for label, tasks in scores.items():
        cells = [_with_interval(statistic, tasks) for statistic in STATISTICS]
        better = _with_interval(statistics.probability_of_improvement, tasks, scores[other])
        rows.append((label, *cells, "-" if label == other else better))
    head = ("algorithm", "mean", "median", "IQM", "optimality gap", f"beats {other}")
    return Table(head, tuple(rows), AGGREGATES_CAPTION)


def _with_interval(statistic: Callable, *scores: Sequence[np.ndarray]) -> str:
    low, high = statistics.interval(statistic, *scores)
    words = f"{statistic(*scores):.2f}"
    return f"{words} ({low:.2f} to {high:.2f})" if np.isfinite(low) else words


def slug(text: str) -> str:
    """A text as a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "task"


def _far_apart(members: Sequence[Group]) -> bool:
    steps = [group.real_steps for group in members]
    return max(steps) > FAR_APART * min(steps)


def _level(members: Sequence[Group]) -> tuple[float, str]:
    """A reward to reach, and what to call it: PPO-Lagrangian's at the end, else the lowest."""
    for group in members:
        if group.algorithm == "ppo-lagrangian" and group.state == "finished":
            return float(group.final("reward").mean()), "PPO-Lagrangian at its end"
    return float(np.min([group.final("reward").mean() for group in members])), ""


def _lead(every: Sequence[Group]) -> str:
    seeds = sum(len(group.seeds) for group in every)
    kinds = f"{len(every)} group{'' if len(every) == 1 else 's'}"
    text = f"{kinds} of runs, {seeds} seed{'' if seeds == 1 else 's'} in all."
    open_ = [f"{g.label} on {g.task} ({g.state})" for g in every if g.state != "finished"]
    return text + (f" Not at their end: {', '.join(open_)}." if open_ else "")
