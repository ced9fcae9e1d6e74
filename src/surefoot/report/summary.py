"""The numbers of a report: a row per group, and scores that can be averaged over tasks."""

import csv
import io
from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.report.data import Group
from surefoot.report.groups import by_task
from surefoot.report.statistics import Statistic, interval, mean
from surefoot.report.table import Table, duration, spread_of, std_of
from surefoot.runs.info import keeps_limit

Scores = dict[str, list[np.ndarray]]
"""Scores by label: an array [S] per task."""
METRICS = ("reward", "cost", "within_limit", "cost_cvar", "violations")


def summary(group: Group) -> dict[str, object]:
    """A group in plain values: means over seeds, standard deviations and 95 % intervals.

    Unknown values are None: the spread of one seed, and what only an evaluation measures.
    """
    row: dict[str, object] = {
        "label": group.label, "task": group.task, "state": group.state, "seeds": len(group.seeds),
        "real_steps": group.real_steps, "measured_on": group.measured_on,
        "cost_limit": group.cost_limit, "seeds_within": group.seeds_within,
        "epochs_within": group.epochs_within,
    }  # fmt: skip
    for name in METRICS:
        values = group.final(name)
        low, high = interval(mean, values[:, None])
        row |= {name: float(values.mean()), f"{name}_low": float(low), f"{name}_high": float(high)}
        row[f"{name}_std"] = std_of(values)
    row |= {"seconds": group.seconds, "runs": [str(run.path) for run in group.runs]}
    unknown = lambda value: isinstance(value, float) and not np.isfinite(value)  # JSON has no NaN
    return {name: None if unknown(value) else value for name, value in row.items()}


def as_csv(groups: Sequence[Group]) -> str:
    """The summaries of groups for a spreadsheet."""
    rows = [
        summary(group) | {"runs": " ".join(str(run.path) for run in group.runs)} for group in groups
    ]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def summary_table(groups: Sequence[Group]) -> Table:
    """The first table of a page."""
    head = (
        "algorithm", "task", "seeds", "real steps", "reward", "cost", "limit", "seeds within",
        "epochs within", "episodes within", "worst tenth", "violations", "wall clock",
    )  # fmt: skip
    rows = tuple(
        (
            group.shown, group.task, f"{len(group.seeds)}", group.steps_text,
            spread_of(group.final("reward")), spread_of(group.final("cost")),
            f"{group.cost_limit:g}", _percent(group.seeds_within), _percent(group.epochs_within),
            _percent(group.final("within_limit").mean()), spread_of(group.final("cost_cvar")),
            spread_of(group.final("violations"), 0), duration(group.seconds),
        )
        for group in groups
    )  # fmt: skip
    measured = " or ".join(dict.fromkeys(group.measured_on for group in groups))
    caption = (
        f"Reward and cost at the end of training, measured on {measured} of each seed: mean ± "
        "standard deviation over seeds. Within the limit: seeds by their mean cost at the end, "
        "epochs by the mean cost of their real episodes, and single fresh episodes. Worst tenth: "
        "mean cost of the worst tenth of fresh episodes (CVaR). Violations: real steps with a "
        "cost, in all of training. Wall clock: of a run, whose seeds train side by side."
    )
    if any(group.state == "unfinished" for group in groups):
        caption += " Unfinished: shorter than requested; measured on the last epochs or episodes."
    return Table(head, rows, caption)


def baseline(groups: Sequence[Group]) -> str | None:
    """The label of an algorithm without a limit, the one that was run on most tasks."""
    free = [group.label for group in groups if not keeps_limit(group.info)]
    return max(free, key=free.count) if free else None


def units(groups: Sequence[Group], label: str | None, name: str) -> dict[str, float]:
    """The mean of reward or violations of the finished groups with this label, by task."""
    return {
        group.task: float(group.final(name).mean())
        for group in groups
        if group.label == label and group.state == "finished"
    }


def normalised(
    groups: Sequence[Group], name: str, units: Mapping[str, float]
) -> tuple[Scores, list[str]]:
    """Reward or violations of each label divided by the task's unit; and the tasks that count.

    Tasks without a positive unit do not count, and neither do labels that are not finished on all
    tasks that count.
    """
    groups = [group for group in groups if group.state == "finished"]
    used = [task for task in by_task(groups) if units.get(task, 0.0) > 0]
    scores: Scores = {}
    for label in dict.fromkeys(group.label for group in groups):
        members = {group.task: group for group in groups if group.label == label}
        if used and set(used) <= set(members):
            scores[label] = [members[task].final(name) / units[task] for task in used]
    return scores, used


def estimate(statistic: Statistic, *scores: Sequence[np.ndarray]) -> str:
    """A statistic and its 95 % interval, if that is known."""
    low, high = map(float, interval(statistic, *scores))
    text = f"{float(statistic(*scores)):.3f}"
    return text if np.isnan(low) else f"{text} ({low:.3f} to {high:.3f})"


def _percent(share: float) -> str:
    return "-" if np.isnan(share) else f"{share:.0%}"
