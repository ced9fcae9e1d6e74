"""The numbers of a report: a row per group, and scores that can be averaged over tasks."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from surefoot.report import statistics
from surefoot.report.data import Group
from surefoot.report.groups import by_task, keeps_limit
from surefoot.report.table import Table, duration, spread, std_of

Scores = dict[str, list[np.ndarray]]
"""Scores by label: an array [S] per task."""
METRICS = ("reward", "cost", "within_limit", "cost_cvar", "violations")


def summary(group: Group) -> dict[str, Any]:
    """A group in plain values: means over seeds, standard deviations and 95 % intervals.

    Unknown values are None: the spread of one seed, and what only an evaluation measures.
    """
    row: dict[str, Any] = {
        "label": group.label,
        "task": group.task,
        "state": group.state,
        "seeds": len(group.seeds),
        "real_steps": group.real_steps,
        "measured_on": group.measured_on,
        "cost_limit": group.cost_limit,
        "seeds_within": group.seeds_within,
        "epochs_within": group.epochs_within,
    }
    for name in METRICS:
        values = at_end(group, name)
        low, high = statistics.interval(statistics.mean, values[:, None])
        row |= {name: values.mean(), f"{name}_low": low, f"{name}_high": high}
        row[f"{name}_std"] = std_of(values)
    row |= {"seconds": group.seconds, "runs": [str(run.path) for run in group.runs]}
    return {name: _plain(value) for name, value in row.items()}


def at_end(group: Group, name: str) -> np.ndarray:
    """A metric of each seed [S] at the end of training."""
    return group.violations if name == "violations" else group.final(name)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of `summary` for a spreadsheet."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows([{**row, "runs": " ".join(row["runs"])} for row in rows])
    return text.getvalue()


def summary_table(groups: Sequence[Group]) -> Table:
    """The first table of a page."""
    head = (
        "algorithm", "task", "seeds", "real steps", "reward", "cost", "limit", "seeds within",
        "epochs within", "episodes within", "worst tenth", "violations", "wall clock",
    )  # fmt: skip
    rows = []
    for group in groups:
        row = summary(group)
        cell = lambda name, digits=1, row=row: spread(row[name], row[f"{name}_std"], digits)
        rows.append((
            group.shown, group.task, f"{row['seeds']}", group.steps_text, cell("reward"),
            cell("cost"), f"{row['cost_limit']:g}", _percent(row["seeds_within"]),
            _percent(row["epochs_within"]), _percent(row["within_limit"]), cell("cost_cvar"),
            cell("violations", 0), duration(group.seconds),
        ))  # fmt: skip
    return Table(head, tuple(rows), _caption(groups))


def baseline(groups: Sequence[Group]) -> str | None:
    """The label of an algorithm without a limit, the one that was run on most tasks."""
    free = [group.label for group in groups if not keeps_limit(group.info)]
    return max(free, key=free.count) if free else None


def units(groups: Sequence[Group], label: str | None, name: str) -> dict[str, float]:
    """The mean of reward or violations of the finished groups with this label, by task."""
    return {
        group.task: float(at_end(group, name).mean())
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
            scores[label] = [at_end(members[task], name) / units[task] for task in used]
    return scores, used


def _caption(groups: Sequence[Group]) -> str:
    measured = " or ".join(dict.fromkeys(group.measured_on for group in groups))
    text = (
        f"Reward and cost at the end of training, measured on {measured} of each seed: mean ± "
        "standard deviation over seeds. Within the limit: seeds by their mean cost at the end, "
        "epochs by the mean cost of their real episodes, and single fresh episodes. Worst tenth: "
        "mean cost of the worst tenth of fresh episodes (CVaR). Violations: real steps with a "
        "cost, in all of training. Wall clock: of a run, whose seeds train side by side."
    )
    if any(group.state == "unfinished" for group in groups):
        text += " Unfinished: shorter than requested; measured on the last epochs or episodes."
    if any(group.is_cut for group in groups):
        text += " Of a longer run: later epochs are left out."
    return text


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _plain(value: Any) -> Any:
    """A value for JSON, which has no NaN."""
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value
