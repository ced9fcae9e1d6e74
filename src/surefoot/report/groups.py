"""Which runs belong together, and what to call them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from surefoot.report.data import Group, RunData, with_note

NAMES = {
    "mbppo-lagrangian": "MBPPO-Lagrangian",
    "ppo-lagrangian": "PPO-Lagrangian",
    "ppo": "PPO",
    "trpo-lagrangian": "TRPO-Lagrangian",
    "cpo": "CPO",
    "sac": "SAC",
    "safe-loop": "safe-LOOP",
}
_MOST_DIFFERENCES = 2  # settings that a label may name


def groups(runs: Iterable[RunData]) -> list[Group]:
    """Join runs of the same algorithm, preset, task and settings over their seeds.

    A seed counts once: a run that repeats one is a group of its own. Labels differ within a task;
    across tasks the same label is the same algorithm.
    """
    found: list[Group] = []
    keys: list[str] = []
    for run in runs:
        key, seeds = _key(run.info), set(run.info["seeds"])
        for at, group in enumerate(found):
            if keys[at] == key and not seeds & set(group.seeds):
                found[at] = replace(group, runs=(*group.runs, run))
                break
        else:
            found.append(Group(_label(run.info), task_title(run.info), (run,)))
            keys.append(key)
    return _told_apart(found)


def by_task(found: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups by their task, in the order in which they come."""
    return {
        task: [g for g in found if g.task == task] for task in dict.fromkeys(g.task for g in found)
    }


def task_title(info: dict[str, Any]) -> str:
    """A task's name with its options."""
    options = ", ".join(f"{name}={value}" for name, value in sorted(info["task_options"].items()))
    return f"{info['task'] or 'own environment'}{f' ({options})' if options else ''}"


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as ppo.clip, ppo.epochs and so on."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = isinstance(value, dict)
        found |= flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return found


def _key(info: dict[str, Any]) -> str:
    same = ("algorithm", "preset", "task", "task_options", "config")
    return json.dumps([info[name] for name in same], sort_keys=True)


def _label(info: dict[str, Any]) -> str:
    """As in the paper, with the preset where it makes a difference."""
    name: str = NAMES.get(info["algorithm"]) or info["algorithm"]
    notes = []
    if info["algorithm"] == "mbppo-lagrangian" or info["preset"] != "default":
        notes.append(info["preset"])
    if info["algorithm"] != "ppo" and info["config"].get("constrained") is False:
        notes.append("no limit")
    return f"{name} ({', '.join(notes)})" if notes else name


def _told_apart(found: list[Group]) -> list[Group]:
    """Labels that occur twice in a task get what differs: a few settings, else the folder."""
    labels = []
    for group in found:
        same = [g for g in found if (g.label, g.task) == (group.label, group.task)]
        settings = [flat(g.info["config"]) for g in same]
        names = [n for n in settings[0] if len({repr(s.get(n)) for s in settings}) > 1]
        mine = flat(group.info["config"])
        notes = ", ".join(f"{name}={_short(mine.get(name))}" for name in names)
        told = len({repr([s.get(n) for n in names]) for s in settings}) == len(same)
        if not told or len(names) > _MOST_DIFFERENCES:
            notes = _folder(group, same)
        labels.append(with_note(group.label, notes) if len(same) > 1 else group.label)
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return [
        replace(group, label=label, number=numbers[label])
        for group, label in zip(found, labels, strict=True)
    ]


def _folder(group: Group, same: list[Group]) -> str:
    """The folder's name, or all of its path where another has the same name."""
    paths = [g.runs[0].path.resolve() for g in same]
    mine = group.runs[0].path.resolve()
    names = {path.name for path in paths}
    return str(mine.name if len(names) == len(paths) else mine)


def _short(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
