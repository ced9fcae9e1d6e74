"""The command `train`."""

from argparse import ArgumentParser
from ast import literal_eval
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from surefoot.cli.runs import print_result

if TYPE_CHECKING:
    from surefoot.runs.setup import CostLimits


def train(argv: list[str]) -> int:
    """Train on a task. Task, algorithm and preset are read first: they decide the defaults."""
    import jax

    from surefoot.algorithms.algorithm import ALGORITHMS, DEFAULT
    from surefoot.envs.task import Task, find_task
    from surefoot.runs import train as runs
    from surefoot.runs.device import use_device
    from surefoot.runs.setup import preset_config
    from surefoot.runs.warm_start import Part

    first = ArgumentParser("surefoot train", add_help=False, allow_abbrev=False)
    first.add_argument("--device", default="auto")
    first.add_argument("--algorithm", default=DEFAULT)
    first.add_argument("--preset", default="default")
    first.add_argument("--cost")
    first.add_argument("--cost-limit", nargs="*", default=())
    argv = [_full_name(word) for word in argv]
    shaping = ArgumentParser(add_help=False, allow_abbrev=False)
    shaping.add_argument("--model")
    shaping.add_argument("--env", nargs="*", default=())
    shapes, _ = shaping.parse_known_args(argv)
    given, argv = first.parse_known_args(argv)
    cost_limit = cost_limits_of(given.cost_limit)
    use_device(given.device)
    chosen, source = ALGORITHMS[given.algorithm], _task_in(argv)
    nothing: Any = None  # only help is wanted
    task = find_task(source, given.cost) if source else Task("", "", nothing)
    device = jax.default_backend()
    if source:
        options = options_of(shapes.env)
        config = preset_config(chosen, given.preset, task, device, options, shapes.model)
    else:
        config = chosen.preset(given.preset, task, device)
    config = replace(config, cost_limit=tuple(task.cost_limits.values()))
    kind = type(config)

    def command(
        task: Positional[Annotated[str, tyro.conf.arg(metavar="TASK")]],
        config: Annotated[kind, tyro.conf.arg(name="")] = config,  # type: ignore[valid-type]
        algorithm: str = given.algorithm,
        preset: str = given.preset,
        seeds: int = 1,
        seed: int = 0,
        out_: Annotated[Path | None, tyro.conf.arg(name="out")] = None,
        cost: str | None = given.cost,
        known: tuple[str, ...] = (),
        env: tuple[str, ...] = (),
        loggers: tuple[str, ...] = (),
        checkpoint_every: float | None = None,
        keep: int = 2,
        device: Literal["auto", "cpu", "gpu"] = given.device,
        quiet: bool = False,
        from_run: Annotated[Path | None, tyro.conf.arg(name="from", metavar="RUN")] = None,
        from_parts: tuple[Part, ...] | None = None,
        from_seed: int | None = None,
    ) -> int:
        """Train a policy that keeps its episode cost under a limit.

        Args:
            task: A task's name (see surefoot envs), a Gymnasium id, or file.py:function.
            algorithm: Name of an algorithm, or file.py:ALGORITHM.
            preset: One of the algorithm's presets, such as default and paper.
            seeds: Number of seeds to train side by side.
            seed: The first seed.
            out_: The run's folder; a new one under runs/ if not given.
            cost: For Gymnasium environments: info:KEY, several as info:KEY,KEY, or file.py:function
                of batches (obs, action, next obs).
            known: Parts that the model is given and need not learn: cost (the function given as
                --cost), or PART=file.py:function for reward, cost, termination, initial_states or
                a whole model. They must be traceable by JAX.
            env: Options of the task, or arguments of your environment, as NAME=VALUE.
            loggers: Additional loggers: tensorboard, wandb, or file.py:Logger.
            checkpoint_every: Minimum seconds between checkpoints; if not given, they take at most
                1 % of the time.
            keep: Number of the latest checkpoints to keep, besides the best.
            device: What learns; auto takes a GPU if there is one.
            quiet: Show no progress.
            from_run: A run to take policy, critics, model, multipliers and data from, as far as
                they fit; its task, limit and algorithm may be others. The policy must fit.
            from_parts: The parts to take instead of all that fit; each must fit.
            from_seed: The seed of that run that all seeds start from; if not given, each starts
                from its counterpart, or all from the only one.
        """
        if task != source:  # defaults were chosen for another task
            raise ValueError(f"task={task!r} must be the first word after train")
        settings = {**vars(config), "cost_limit": cost_limit or config.cost_limit or None}
        path = runs.train(
            task, algorithm, preset, seeds, seed, out_, task_options=options_of(env), cost=cost,
            known=known, loggers=loggers, checkpoint_every=checkpoint_every, keep=keep, quiet=quiet,
            from_run=from_run, from_parts=from_parts, from_seed=from_seed, **settings,
        )  # fmt: skip
        print_result(path)
        return 0

    return tyro.cli(command, args=argv, prog="surefoot train")


def _full_name(word: str) -> str:
    """--multiplier pid is short for --multiplier.kind pid."""
    name, sign, value = word.partition("=")
    return f"--multiplier.kind{sign}{value}" if name == "--multiplier" else word


def _task_in(argv: list[str]) -> str | None:
    """The task: the first word, or a registered name anywhere; None if only help is wanted."""
    from surefoot.envs.task import TASKS

    names = [word for word in argv if word in TASKS]
    first = [word for word in argv[:1] if not word.startswith("-")]
    return next(iter([*first, *names]), None)


def cost_limits_of(words: Sequence[str]) -> "CostLimits":
    """Limits given as numbers, or each as NAME=NUMBER; empty if none is given."""
    pairs = [word.rpartition("=") for word in words]
    names = [name for name, sign, _ in pairs if sign]
    try:
        limits = [float(number) for _, _, number in pairs]
        return dict(zip(names, limits, strict=True)) if names else tuple(limits)
    except ValueError:
        raise ValueError(
            f"--cost-limit {' '.join(words)} must be numbers, or NAME=NUMBER for each"
        ) from None


def options_of(pairs: Sequence[str]) -> dict[str, object]:
    """NAME=VALUE pairs as Python values."""
    options: dict[str, object] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise ValueError(f"--env {pair!r} must be NAME=VALUE, such as hazards=8")
        options[name] = value
        with suppress(ValueError, SyntaxError):  # a text
            options[name] = literal_eval(value)
    return options
