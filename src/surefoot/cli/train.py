"""The command `train`."""

from ast import literal_eval
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from surefoot.cli.runs import print_result


def train(argv: list[str]) -> int:
    """Train on a task. Task, algorithm and preset are read first: they decide the defaults."""
    import jax

    from surefoot.algorithms.algorithm import ALGORITHMS, DEFAULT
    from surefoot.envs.task import Task, find_task
    from surefoot.runs import train as runs
    from surefoot.runs.device import use_device

    argv, named_limits = _named_limits([part for word in argv for part in _full_name(word)])
    use_device(_value(argv, "--device", "auto"))
    name, preset = _value(argv, "--algorithm", DEFAULT), _value(argv, "--preset", "default")
    chosen, source = ALGORITHMS[name], _task_in(argv)
    nothing: Any = None  # only help is wanted
    task = find_task(source, _value(argv, "--cost", None)) if source else Task("", "", nothing)
    config = chosen.preset(preset, task, jax.default_backend())
    config = replace(config, cost_limit=tuple(task.cost_limits.values()))
    kind = type(config)

    def command(
        task: Positional[str],
        config: Annotated[kind, tyro.conf.arg(name="")] = config,  # type: ignore[valid-type]
        algorithm: str = name,
        preset: str = preset,
        seeds: int = 1,
        seed: int = 0,
        out_: Annotated[Path | None, tyro.conf.arg(name="out")] = None,
        cost: str | None = None,
        env: tuple[str, ...] = (),
        loggers: tuple[str, ...] = (),
        checkpoint_every: float | None = None,
        keep: int = 2,
        device: Literal["auto", "cpu", "gpu"] = "auto",
        quiet: bool = False,
    ) -> int:
        """Train a policy that keeps its episode cost under a limit.

        Args:
            task: A task's name (see surefoot envs), a Gymnasium id, or file.py:function.
            algorithm: Name of an algorithm, or file.py:ALGORITHM.
            preset: One of the algorithm's presets, such as default and paper.
            seeds: Number of seeds to train side by side.
            seed: The first seed.
            out_: The run's folder (default: a new one under runs/).
            cost: For Gymnasium environments: info:KEY, or file.py:function of batches (obs, action,
                next obs).
            env: Options of the task, as NAME=VALUE.
            loggers: Additional loggers: tensorboard, wandb, or file.py:Logger.
            checkpoint_every: Minimum seconds between checkpoints (default: checkpoints take at most
                1 % of the time).
            keep: Number of the latest checkpoints to keep, besides the best.
            device: What learns; auto takes a GPU if there is one.
            quiet: Show no progress.
        """
        if task != source:  # defaults were chosen for another task
            raise ValueError(f"task={task!r} must be the first word after train")
        settings = dict(vars(config))
        limits = settings.pop("cost_limit") or None
        limits = limits if named_limits is None else named_limits
        path = runs.train(
            task, algorithm, preset, seeds, seed, out_, task_options=_options(env), cost=cost,
            cost_limit=limits, loggers=loggers, checkpoint_every=checkpoint_every, keep=keep,
            quiet=quiet, **settings,
        )  # fmt: skip
        print_result(path)
        return 0

    return tyro.cli(command, args=argv, prog="surefoot train")


def _full_name(word: str) -> list[str]:
    """--multiplier pid is short for --multiplier.kind pid; --cost-limit=X becomes two words."""
    name, sign, value = word.partition("=")
    if name == "--multiplier":
        return [f"--multiplier.kind{sign}{value}"]
    return [name, value] if name == "--cost-limit" and sign else [word]


def _value(argv: list[str], flag: str, default: Any) -> Any:
    """The value of a flag, before the rest is parsed."""
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            return argv[i + 1]
        if word.startswith(flag + "="):
            return word.split("=", 1)[1]
    return default


def _task_in(argv: list[str]) -> str | None:
    """The task: the first word, or a registered name anywhere; None if only help is wanted."""
    from surefoot.envs.task import TASKS

    names = [word for word in argv if word in TASKS]
    first = [word for word in argv[:1] if not word.startswith("-")]
    return next(iter([*first, *names]), None)


def _named_limits(argv: list[str]) -> tuple[list[str], dict[str, float] | None]:
    """Take `--cost-limit NAME=VALUE …` out of the words; numbers alone stay."""
    if "--cost-limit" not in argv:
        return argv, None
    start = argv.index("--cost-limit")
    end = start + 1
    while end < len(argv) and not argv[end].startswith("--"):
        end += 1
    words = argv[start + 1 : end]
    if not any("=" in word for word in words):
        return argv, None
    limits = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            limits[name] = float(value)
        except ValueError:
            raise ValueError(f"--cost-limit {word!r} must be NAME=NUMBER") from None
    return argv[:start] + argv[end:], limits


def _options(pairs: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE pairs as Python values."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise ValueError(f"--env {pair!r} must be NAME=VALUE, such as hazards=8")
        try:
            options[name] = literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    return options
