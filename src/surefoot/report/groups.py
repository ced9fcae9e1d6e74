"""Which runs form a group, and the group's label."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from surefoot.algorithms.algorithm import ALGORITHMS, Preset
from surefoot.core.config import changed, flat
from surefoot.report.data import Group, RunData
from surefoot.report.table import with_note
from surefoot.runs.info import RunInfo, keeps_limit

MAX_DIFFERENCES = 2
"""Settings that a label may name."""


def groups(runs: Iterable[RunData]) -> list[Group]:
    """Group runs of the same algorithm, preset, task and settings over their seeds.

    A run that repeats a seed starts a new group. Labels are unique within a task; the same label on
    another task is the same algorithm.
    """
    result: list[Group] = []
    keys: list[str] = []
    for run in runs:
        key, seeds = _key(run.info), set(run.info.seeds)
        for at, group in enumerate(result):
            if keys[at] == key and not seeds & set(group.seeds):
                result[at] = replace(group, runs=(*group.runs, run))
                break
        else:
            result.append(Group(label_of(run.info), task_title(run.info), (run,)))
            keys.append(key)
    return _distinguished(result)


def by_task(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups by their task, in the order of their first group."""
    tasks = dict.fromkeys(group.task for group in groups)
    return {task: [group for group in groups if group.task == task] for task in tasks}


def task_title(info: RunInfo) -> str:
    """The task's name with its options."""
    options = ", ".join(f"{name}={value}" for name, value in sorted(info.task_options.items()))
    return f"{info.task_name}{f' ({options})' if options else ''}"


def label_of(info: RunInfo) -> str:
    """The algorithm's title, with the preset if the algorithm has several."""
    if info.algorithm not in ALGORITHMS:  # a reference, whose code is not run, or another version's
        title = info.algorithm_title or info.algorithm
        return with_note(title, "" if info.preset == "default" else info.preset)
    algorithm = ALGORITHMS[info.algorithm]
    several = len(algorithm.presets) > 1 or info.preset != "default"
    label = with_note(algorithm.title, info.preset if several else "")
    default = algorithm.presets.get("default", Preset()).settings
    by_default = algorithm.keeps_limit(changed(algorithm.config(), default))
    return with_note(label, "no limit" if by_default and not keeps_limit(info) else "")


def _key(info: RunInfo) -> str:
    same = [info.algorithm, info.preset, info.task, info.task_name, info.task_options, info.config]
    return json.dumps(same, sort_keys=True)


def _distinguished(groups: list[Group]) -> list[Group]:
    """Add to labels that occur twice in a task what differs: settings, otherwise the folder."""
    labels = []
    for group in groups:
        same = [g for g in groups if (g.label, g.task) == (group.label, group.task)]
        labels.append(with_note(group.label, _difference(group, same) if len(same) > 1 else ""))
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return [
        replace(group, label=label, number=numbers[label])
        for group, label in zip(groups, labels, strict=True)
    ]


def _difference(group: Group, same: list[Group]) -> str:
    settings = [flat(g.info.config) for g in same]
    names = [n for n in settings[0] if len({repr(s.get(n)) for s in settings}) > 1]
    values = {repr([s.get(n) for n in names]) for s in settings}
    if len(values) == len(same) and len(names) <= MAX_DIFFERENCES:
        mine = flat(group.info.config)
        return ", ".join(f"{name}={mine.get(name)}" for name in names)
    paths = [g.runs[0].path.resolve() for g in same]
    path = group.runs[0].path.resolve()
    return path.name if len({p.name for p in paths}) == len(paths) else str(path)
