"""The parts of an experiment's page. Each takes the results; a part without runs is left out."""

from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.experiments.figures import draw_setting
from surefoot.experiments.job import Job
from surefoot.experiments.results import Results
from surefoot.paper.claims import Claim
from surefoot.report import statistics
from surefoot.report.compare import slug
from surefoot.report.figures import (
    draw_aggregates,
    draw_curves,
    draw_sample_efficiency,
    draw_wall_clock,
)
from surefoot.report.page import Section, Table
from surefoot.report.summary import duration, normalised

VERDICTS = ("held", "not held", "not judged")


def curves(
    results: Results, title: str, jobs: Sequence[Job], text: str, converged: Job | None = None
) -> Section | None:
    """Reward and cost over real steps; the reward that `converged` ends with is drawn as a line."""
    groups = results.groups(jobs)
    if not groups:
        return None
    level = None if converged is None else results.group(converged)
    lines = {}
    if level is not None and level.state == "finished":
        lines = {f"{level.label} at its end": level.final("reward").mean()}
    lengths = [group.real_steps for group in groups]
    far = max(lengths) > 4 * min(lengths)  # else short runs would be a dash at the left edge
    figures = [
        draw_curves(groups, name, results.folder / f"{slug(title)}-{name}.png", far, above)
        for name, above in (("reward", lines), ("cost", {}))
    ]
    return Section(title, text, tuple(figures), ())


def metric_curves(
    results: Results, title: str, jobs: Sequence[Job], text: str, name: str
) -> Section | None:
    """Another metric over real steps."""
    groups = results.groups(jobs)
    if not groups:
        return None
    path = results.folder / f"{slug(title)}.png"
    return Section(title, text, (draw_curves(groups, name, path),), ())


def sweep(
    results: Results, title: str, jobs: Sequence[Job], text: str, setting: str
) -> Section | None:
    """Reward and cost at the end for each value of a setting, and their learning curves."""
    there = [(_value(job, setting), group) for job in jobs if (group := results.group(job))]
    if len(there) < 2:  # one value tells nothing of the others
        return None
    groups = [group for _, group in there]
    ended = [(_value(job, setting), group) for job, group in results.ended(jobs)]
    stem = results.folder / slug(title)
    figures = [
        draw_setting(ended, setting, name, stem.with_name(f"{stem.name}-{setting}-{name}.png"))
        for name in ("reward", "cost")
    ]
    figures += [
        draw_curves(groups, name, stem.with_name(f"{stem.name}-{name}.png"))
        for name in ("reward", "cost")
    ]
    rows = tuple(
        (f"{value:g}", group.steps_told, _spread(group.final("reward")),
         _spread(group.final("cost")), _spread(group.violations), f"{group.seeds_within:.0%}")
        for value, group in there
    )  # fmt: skip
    head = (setting, "real steps", "reward", "cost", "violations", "seeds within the limit")
    return Section(title, text, tuple(figures), (Table(head, rows, "Mean ± standard deviation."),))


def aggregates(
    results: Results, title: str, jobs: Sequence[Job], unit: Sequence[Job], text: str
) -> Section | None:
    """Reward and violations as shares of those of the `unit` jobs (PPO), over all tasks."""
    numbers = {group.label: group.number for group in results.groups(jobs)}
    figures, rows, tasks_used = [], [], {}
    for name, what in (("reward", "normalised reward"), ("violations", "normalised violations")):
        scores, used = normalised(results.groups([*unit, *jobs]), name)
        scores = {label: tasks for label, tasks in scores.items() if label in numbers}
        if not scores:  # PPO earned, or violated, nothing that one could take a share of
            continue
        tasks_used |= dict.fromkeys(used)
        path = results.folder / f"{slug(what)}.png"
        figures.append(draw_aggregates(scores, what, path, numbers))
        for label, tasks in scores.items():
            rows.append((label, what, *(_estimate(s, tasks) for s in ("mean", "median", "iqm"))))
    if not figures:
        return None
    head = ("algorithm", "score", "mean", "median", "IQM")
    caption = (
        f"With 95 % stratified-bootstrap intervals. Tasks: {', '.join(tasks_used)}; what has not "
        "finished on all of them is left out."
    )
    return Section(title, text, tuple(figures), (Table(head, tuple(rows), caption),))


def running_time(
    results: Results, title: str, paper: Sequence[tuple[Job, float | None]], steps: int, text: str
) -> Section | None:
    """The time of one seed for so many real steps, beside the paper's seconds."""
    rows = []
    for job, theirs in paper:
        group = results.group(job)
        if group is None:
            continue
        times = np.array([time_for(run.rows, steps) for run in group.runs])
        known = "-" if theirs is None else f"{theirs:,.0f} s"
        ratio = "-" if theirs is None else f"{theirs / times.mean():,.1f} times"
        how = "measured" if group.real_steps >= steps else f"from {group.real_steps:,} steps"
        seconds = _spread(times)
        rows.append((group.shown, f"{seconds} s", how, known, ratio, group.info["device"]))
    if not rows:
        return None
    head = ("algorithm", f"{steps:,} real steps", "how", "the paper", "faster", "machine")
    return Section(title, text, (), (Table(head, tuple(rows), "One seed per run."),))


def final_table(
    results: Results, title: str, paper: Sequence[tuple[Job, str]], text: str
) -> Section | None:
    """Reward and cost at the end, beside the paper's reward."""
    rows = []
    for job, theirs in paper:
        group = results.group(job)
        if group is not None:
            reward, cost = _spread(group.final("reward")), _spread(group.final("cost"))
            seeds = f"{len(group.seeds)}"
            rows.append((group.shown, seeds, group.steps_told, reward, theirs, cost))
    if not rows:
        return None
    head = ("algorithm", "seeds", "real steps", "reward", "the paper's reward", "cost")
    return Section(title, text, (), (Table(head, tuple(rows), "Mean ± standard deviation."),))


def efficiency(
    results: Results, title: str, jobs: Sequence[Job], level: Job, text: str
) -> Section | None:
    """Real steps, violations and time until an epoch's reward reaches where `level` ends."""
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
        steps, violations, seconds = (
            group.first_reaching(reward, name) for name in ("steps", "violations", "seconds")
        )
        reached = np.isfinite(steps)
        median = lambda values, there=reached: float(np.median(values[there]))
        found = ("-", "-", "-")
        if reached.any():
            found = (
                f"{median(steps):,.0f}", f"{median(violations):,.0f}", duration(median(seconds))
            )  # fmt: skip
        rows.append((group.shown, f"{reached.sum()} of {len(steps)}", *found))
    head = ("algorithm", "seeds that reach it", "real steps", "violations", "wall clock")
    caption = (
        f"Until the first epoch with a reward of {reward:.1f}, where {aim.label} ends after "
        f"{aim.real_steps:,} real steps; medians over the seeds that reach it. Wall clock is "
        "that of the run, whose seeds learn side by side, and with whatever else the machine did."
    )
    return Section(title, text, figures, (Table(head, tuple(rows), caption),))


def claims(found: Sequence[Claim]) -> Section:
    """The paper's claims one by one."""
    counts = {name: sum(c.verdict == name for c in found) for name in VERDICTS}
    text = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    unbroken = lambda words: words.replace(" ", "\N{NO-BREAK SPACE}")
    judged = tuple((c.text, unbroken(c.verdict), c.by) for c in found if c.held is not None)
    others = tuple((c.text, c.by) for c in found if c.held is None)
    tables = []
    if judged:
        caption = "Means over seeds decide; intervals are by bootstrap."
        tables.append(Table(("what the paper says", "verdict", "by how much"), judged, caption))
    if others:
        tables.append(Table(("what the paper says", "why it is not judged"), others))
    return Section("The paper's claims", f"Of {len(found)}: {text}.", (), tuple(tables))


def missing(results: Results) -> Section | None:
    """What is not there yet."""
    rows = results.missing()
    if not rows:
        return None
    text = "Of runs that have not come to their end, those are shown that no finished run replaces."
    head = ("what", "seeds finished", "real steps so far")
    return Section("What is not there yet", text, (), (Table(head, tuple(rows)),))


def time_for(rows: Sequence[Mapping[str, float]], steps: int) -> float:
    """Seconds that a run of one seed takes for so many real steps.

    Between its epochs, and beyond the last one, as fast as from the first epoch to the last.
    """
    xs = np.array([row["steps"] for row in rows])
    seconds = np.array([row["seconds"] for row in rows])
    if steps <= xs[-1]:
        return float(np.interp(steps, xs, seconds))
    timed = len(xs) > 1  # the first epoch compiles, which is done once
    pace = (seconds[-1] - seconds[0]) / (xs[-1] - xs[0]) if timed else seconds[0] / xs[0]
    return float(seconds[-1] + pace * (steps - xs[-1]))


def _estimate(name: str, tasks: Sequence[np.ndarray]) -> str:
    statistic = getattr(statistics, name)
    low, high = statistics.interval(statistic, tasks)
    value = f"{statistic(tasks):.3f}"
    return value if np.isnan(low) else f"{value} ({low:.3f} to {high:.3f})"


def _value(job: Job, setting: str) -> float:
    return float(job.changes[setting])


def _spread(values: np.ndarray) -> str:
    digits = 0 if abs(values.mean()) >= 1000 else 1
    text = f"{values.mean():,.{digits}f}"
    return text if len(values) < 2 else f"{text} ± {values.std(ddof=1):,.{digits}f}"
