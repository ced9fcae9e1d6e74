"""The numbers of a report: a row per group, and scores that can be averaged over tasks."""

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from surefoot.report import statistics
from surefoot.report.data import Group
from surefoot.report.groups import by_task
from surefoot.report.table import Table

PAPER_UNITS = {"reward": 20.0, "violations": 2e5}
"""Unconstrained PPO on the paper's Goal tasks, by which the paper divides."""
PAPER_TASKS = ("PointGoal", "CarGoal")


def summary(group: Group) -> dict[str, Any]:
    """A group in numbers: means over seeds, their standard deviations and 95 % intervals.

    What is not known is None: the spread of one seed, and what only an evaluation tells.
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
    of_seeds = {name: group.final(name) for name in ("reward", "cost", "within_limit", "cost_cvar")}
    for name, values in (of_seeds | {"violations": group.violations}).items():
        low, high = statistics.interval(statistics.mean, values[:, None])
        row |= {name: values.mean(), f"{name}_low": low, f"{name}_high": high}
        row[f"{name}_std"] = values.std(ddof=1) if len(values) > 1 else np.nan
    row |= {"seconds": group.seconds, "runs": [str(run.path) for run in group.runs]}
    return {name: _plain(value) for name, value in row.items()}


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
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
        found = summary(group)
        rows.append((
            group.shown, group.task, f"{found['seeds']}", group.steps_told,
            _spread(found, "reward"), _spread(found, "cost"), f"{found['cost_limit']:g}",
            _percent(found["seeds_within"]), _percent(found["epochs_within"]),
            _percent(found["within_limit"]), _spread(found, "cost_cvar"),
            _spread(found, "violations", 0), duration(group.seconds),
        ))  # fmt: skip
    return Table(head, tuple(rows), _caption(groups))


def normalised(groups: Sequence[Group], name: str) -> tuple[dict[str, list[np.ndarray]], list[str]]:
    """Scores of each label, an array [S] per task, as shares of unconstrained PPO's mean.

    `name` is reward or violations. Of the tasks, whose names come second, those count where PPO was
    run or the paper tells its numbers; of the labels, those that have all these tasks. Only what is
    finished counts: the others have not come to their end.
    """
    groups = [group for group in groups if group.state == "finished"]
    units = {task: _unit(members, name) for task, members in by_task(groups).items()}
    used = [task for task, unit in units.items() if unit > 0]
    scores: dict[str, list[np.ndarray]] = {}
    for label in dict.fromkeys(group.label for group in groups):
        members = {group.task: group for group in groups if group.label == label}
        if used and set(used) <= set(members):
            scores[label] = [_scores(members[task], name) / units[task] for task in used]
    return scores, used


def duration(seconds: float) -> str:
    """A time as one would say it."""
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _unit(members: Sequence[Group], name: str) -> float:
    for group in members:
        if group.algorithm == "ppo":
            return float(_scores(group, name).mean())
    return PAPER_UNITS[name] if members[0].task in PAPER_TASKS else 0.0


def _scores(group: Group, name: str) -> np.ndarray:
    return group.violations if name == "violations" else group.final(name)


def _caption(groups: Sequence[Group]) -> str:
    measured = " or ".join(dict.fromkeys(group.measured_on for group in groups))
    so_far = any(group.state == "unfinished" for group in groups)
    longer = any(group.is_cut for group in groups)
    text = (
        f"Reward and cost at the end of training, on {measured} of each seed. Mean over seeds ± "
        "standard deviation over seeds. Within the limit: seeds by their mean cost at the end, "
        "epochs by the mean cost of their real episodes in training, and single fresh episodes. "
        "Worst tenth: mean cost of the worst tenth of fresh episodes (CVaR). Violations: real "
        "steps that cost something, in all of training. Wall clock: of a run, whose seeds learn "
        "side by side."
    )
    text += so_far * " So far: not at its end yet, and measured on its last epochs."
    cut = " Of a longer run: what came later is left out, and the last epochs before count."
    return text + longer * cut


def _spread(found: dict[str, Any], name: str, digits: int = 1) -> str:
    value, spread = found[name], found[f"{name}_std"]
    if value is None:
        return "-"
    return f"{value:,.{digits}f}" + ("" if spread is None else f" ± {spread:,.{digits}f}")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _plain(value: Any) -> Any:
    """A Python value; None for NaN, which JSON does not know."""
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value
