"""The command that repeats a run."""

import shlex
from collections.abc import Sequence
from dataclasses import replace

from surefoot.algorithms.algorithm import ALGORITHMS, Config, Overrides
from surefoot.core.config import flat
from surefoot.core.registry import is_reference
from surefoot.envs.task import TASKS, find_task
from surefoot.runs import setup
from surefoot.runs.info import RunInfo
from surefoot.runs.known import IN_PYTHON


def preset_config(algorithm: str, preset: str, task: str, device: str) -> Config:
    """The config of a preset, with the task's cost limits filled in."""
    made = find_task(task)
    config = setup.preset_config(ALGORITHMS[algorithm], preset, made, device, {})
    return replace(config, cost_limit=config.cost_limit or tuple(made.cost_limits.values()))


def train_command(
    task: str,
    algorithm: str,
    preset: str,
    config: object,
    seeds: int,
    first: int,
    device: str,
    task_options: Overrides,
    known: Sequence[str] = (),
) -> list[str]:
    """The words of `surefoot train …`, with each setting that differs from the preset's.

    `config` is a config or its nested values; the run has `seeds` seeds from `first` on. A
    ValueError reports settings, presets or algorithms that this version does not know.
    """
    start = flat(preset_config(algorithm, preset, task, device))
    settings = flat(config)
    if unknown := sorted(set(settings) - set(start)):
        raise ValueError(f"{algorithm} has no setting {', '.join(unknown)}")
    words = ["surefoot", "train", task, "--algorithm", algorithm, "--preset", preset]
    words += ["--seeds", str(seeds), "--seed", str(first), "--device", device]
    for name, value in settings.items():
        if _listed(value) != _listed(start[name]):
            words += option(name, value)
    if task_options:
        words += ["--env", *(f"{name}={value!r}" for name, value in task_options.items())]
    if known:
        words += ["--known", *known]
    return words


def repeat_command(info: RunInfo) -> str:
    """The command that trains a run again.

    It is the recorded command if this version cannot express the run's settings, or if that would
    take code that the run refers to: a report must not execute it.
    """
    in_python = info.task_options.get("cost") == IN_PYTHON or any(
        word.endswith("=") for word in info.known_from
    )
    if info.task is None or info.backend is None or in_python or info.algorithm not in ALGORITHMS:
        return info.command
    if info.task not in TASKS and is_reference(info.task):
        return info.command
    try:
        words = train_command(
            info.task, info.algorithm, info.preset, info.config, len(info.seeds), info.seeds[0],
            info.backend, info.task_options, info.known_from,
        )  # fmt: skip
    except ValueError:
        return info.command
    return shlex.join(words)


def option(name: str, value: object) -> list[str]:
    """A setting as the command line takes it: ppo.max_grad_norm as --ppo.max-grad-norm."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        group, dot, last = flag.rpartition(".")
        return [f"--{flag}" if value else f"--{group}{dot}no-{last}"]
    return [f"--{flag}", *map(str, value if isinstance(value, list | tuple) else [value])]


def _listed(value: object) -> object:
    """A value as JSON has it, without tuples."""
    return list(value) if isinstance(value, tuple) else value
