"""Sections of an experiment's page. Each takes the results; a section without runs is None."""

from collections.abc import Sequence

import numpy as np

from surefoot.experiments.job import Job
from surefoot.experiments.library import Results
from surefoot.report.figures import draw_curves, draw_sample_efficiency, draw_setting
from surefoot.report.page import Section
from surefoot.report.table import Table, duration, slug, spread_of

ENDS = ("reward", "cost")


def curves(
    results: Results,
    title: str,
    jobs: Sequence[Job],
    text: str,
    metrics: Sequence[str] = ENDS,
    converged: Job | None = None,
) -> Section | None:
    """Metrics over real steps; a line marks the reward at the end of `converged`."""
    groups = results.groups(jobs)
    if not groups:
        return None
    level = None if converged is None else results.group(converged)
    line = None
    if level is not None and level.state == "finished":
        line = (f"{level.label} at its end", float(level.final("reward").mean()))
    path = lambda name: results.folder / f"{slug(title)}-{slug(name)}.png"
    figures = tuple(draw_curves(groups, name, path(name), line) for name in metrics)
    return Section(title, text, figures)


def sweep(
    results: Results, title: str, jobs: Sequence[Job], text: str, setting: str
) -> Section | None:
    """Reward and cost at the end for each value of a setting, and the learning curves."""
    pairs = [
        (float(str(job.changes[setting])), group) for job in jobs if (group := results.group(job))
    ]
    if len(pairs) < 2:
        return None
    finished = [(value, group) for value, group in pairs if group.state == "finished"]
    ends = finished if len(finished) > 1 else pairs
    path = lambda name: results.folder / f"{slug(title)}-{name}.png"
    figures = [draw_setting(ends, setting, name, path(f"{setting}-{name}")) for name in ENDS]
    figures += [draw_curves([group for _, group in pairs], name, path(name)) for name in ENDS]
    rows = tuple(
        (f"{value:g}", group.steps_text, spread_of(group.final("reward")),
         spread_of(group.final("cost")), spread_of(group.final("violations")),
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
    figure = draw_sample_efficiency(groups, reward, results.folder / f"{slug(title)}.png")
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
    return Section(title, text, (figure,), (Table(head, tuple(rows), caption),))


def missing(results: Results) -> Section | None:
    """The jobs whose runs are missing or too short."""
    rows = []
    for job, plan, group in zip(results.jobs, results.plans, results.each, strict=True):
        if plan.done < plan.job.seeds:
            steps = group.steps_text if group and group.state != "finished" else "-"
            rows.append((job.label, f"{plan.done} of {plan.job.seeds}", steps))
    if not rows:
        return None
    text = "Jobs whose runs are missing or shorter than requested. Partial runs are shown only if "
    text += "the job has no complete run."
    head = ("job", "complete seeds", "real steps of partial runs")
    return Section("Missing runs", text, (), (Table(head, tuple(dict.fromkeys(rows))),))
