"""Train: from a task and an algorithm to a run folder with a result."""

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import jax

from surefoot import __version__
from surefoot.algorithms import loop
from surefoot.algorithms.algorithm import CUSTOM, DEFAULT, Algorithm, Config, Overrides
from surefoot.algorithms.loop import Epoch, Training
from surefoot.core.config import Range, check_values, to_dict
from surefoot.core.registry import absolute_reference, reference_to
from surefoot.core.snapshot import Saved
from surefoot.envs.gym.adapted import Cost
from surefoot.envs.task import Task
from surefoot.runs.acting import EVALUATION_EPISODES, EVALUATION_SEED, PLANNED_EPISODES, Acting
from surefoot.runs.cache import use_cache
from surefoot.runs.checkpoint import Checkpoint
from surefoot.runs.device import device_name
from surefoot.runs.drive import WriteFault, drive, how_to_resume
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import RunInfo, Seed
from surefoot.runs.interrupt import Interrupt
from surefoot.runs.known import IN_PYTHON, Known, to_words
from surefoot.runs.loggers import check_loggers
from surefoot.runs.loggers.csv import CsvLogger
from surefoot.runs.setup import CostLimits, MakeEnv, Setup, new_setup
from surefoot.runs.warm_start import choose_seeds, describe, open_source, warm_start

Seeds = Annotated[int, Range(least=1, most=10_000)]


def train(
    task: str | Task | MakeEnv,
    algorithm: str | Algorithm | None = None,
    preset: str = "default",
    seeds: int = 1,
    seed: int = 0,
    out: str | Path | None = None,
    config: Config | None = None,
    task_options: Overrides | None = None,
    cost: Cost | None = None,
    cost_limit: CostLimits | None = None,
    known: Known = None,
    loggers: Sequence[str] = (),
    on_epoch: Callable[[Epoch], object] | None = None,
    checkpoint_every: float | None = None,
    keep: int = 2,
    quiet: bool = False,
    from_run: str | Path | None = None,
    from_parts: Sequence[str] | None = None,
    from_seed: int | None = None,
    **changes: object,
) -> Path:
    """Train a policy that keeps its episode cost under a limit; returns the run's folder.

    Args:
        task: A task's name, a Gymnasium id, a reference (`file.py:make_env`), a `Task`, or a
            function that makes environments.
        algorithm: Name of, or reference to, an algorithm; mbppo-lagrangian if not given.
        preset: One of the algorithm's presets.
        seeds: Number of seeds to train side by side.
        seed: The first seed.
        out: The run's folder; a new one under runs/ if not given.
        config: A whole config instead of a preset.
        task_options: Options of the task, such as {"hazards": 8}.
        cost: For Gymnasium environments: a key of `info`, or a function of batches
            (obs, action, next_obs).
        cost_limit: One limit, one per constraint, or a dict by name; the task's if not given.
        known: Parts of the environment that the model need not learn: ("cost",) for the cost
            function given as `cost`, a dict such as {"reward": function, "termination": function}
            of functions in JAX of batches (obs, action, next_obs), or a function that makes a
            whole `TaskModel` for an environment. Functions may be references.
        loggers: Additional loggers, such as "tensorboard" and "wandb".
        on_epoch: Called after every epoch.
        checkpoint_every: Minimum seconds between checkpoints; 0 writes one after every epoch. If
            not given, they take at most 1 % of the time. The last epoch is always written.
        keep: Number of the latest checkpoints to keep, besides the best.
        quiet: Show no progress.
        from_run: A run to take policy, critics, model, multipliers and data from, as far as they
            fit; its task, limit and algorithm may be others. The policy must fit.
        from_parts: The parts to take instead, such as ("policy", "critics"); each must fit.
        from_seed: The seed of `from_run` that all seeds start from. If not given, each starts from
            its counterpart, or all from the only one.
        **changes: Settings to change: `steps=30_000`, `ppo={"clip": 0.1}`, `**{"ppo.clip": 0.1}`.
    """
    check_values({"seeds": seeds, "seed": seed}, {"seeds": Seeds, "seed": Seed})
    check_loggers(loggers)
    use_cache()
    if algorithm is None and config is None:
        algorithm = DEFAULT
    setup = new_setup(
        task, algorithm, preset, jax.default_backend(), range(seed, seed + seeds), config, changes,
        task_options or {}, cost, cost_limit, known,
    )  # fmt: skip
    training, warm = begin(setup), None
    notes = [*setup.notes, *rounded_up(training)]
    if setup.task.reference is None:
        notes.append(
            f"the run cannot record how to make {setup.task.name}, which is not at the top of a "
            f"module: pass make_env to surefoot.evaluate and the like. The shell's commands need a "
            f"class or function in a file that can be imported"
        )
    if from_run is not None:
        source = open_source(from_run)
        chosen = choose_seeds(source, seeds, from_seed)
        parts = training.problem.model.known if training.problem.model else ()
        warm = warm_start(training.trainer, source, chosen, from_parts, parts)
        notes += describe(warm, source, setup.algorithm.sees(setup.config))
    elif from_parts is not None or from_seed is not None:
        raise ValueError("from_parts and from_seed go with from_run, which is not given")
    name = absolute_reference(algorithm) if isinstance(algorithm, str) else setup.algorithm.name
    info = RunInfo(
        version=__version__,
        task=setup.task.reference,
        task_name=setup.task.name,
        task_options={**setup.options, **recorded_cost(cost)},
        algorithm=name,
        preset=preset if config is None else CUSTOM,
        seeds=list(setup.seeds),
        device=device_name(),
        started=time.strftime("%Y-%m-%d %H:%M:%S"),
        config=to_dict(setup.config),
        backend=jax.default_backend(),
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        started_at=time.time(),
        checkpoint_every=checkpoint_every,
        keep=keep,
        loggers=[absolute_reference(name) for name in loggers],
        known_from=to_words(setup.known),
        algorithm_title=setup.algorithm.title,
        warm_start=warm,
    )
    folder = RunFolder.new(f"{setup.task.name}-{setup.algorithm.name}", out)
    with folder.locked():
        return train_to_end(folder, info, setup, training, None, notes, quiet, on_epoch)


def recorded_cost(cost: Cost | None) -> Overrides:
    """A cost that is a function, as the run records it."""
    return {"cost": reference_to(cost) or IN_PYTHON} if callable(cost) else {}


def rounded_up(training: Training) -> list[str]:
    """A note if more real steps will be taken than asked for: episodes are taken whole."""
    problem, steps = training.problem, training.steps
    size = training.trainer.round_steps * problem.environments
    whole = -(-steps // size) * size
    if whole == steps:
        return []
    return [f"{whole:,} real steps instead of {steps:,}: {size:,} are taken at a time"]


def begin(setup: Setup, last: Checkpoint | None = None) -> Training:
    """Environments and trainer of a run at its beginning, or as of the checkpoint `last`."""
    probe = setup.make_envs(1)
    environments = setup.algorithm.environments(setup.config, setup.problem(probe, 1).episode_steps)
    env = setup.make_envs(len(setup.seeds) * environments)
    saved = None if last is None else Saved(last.arrays)
    problem = setup.problem(env, environments)
    return loop.begin(setup.algorithm, setup.config, problem, env, saved)


def train_to_end(
    folder: RunFolder,
    info: RunInfo,
    setup: Setup,
    training: Training,
    last: Checkpoint | None,
    notes: list[str],
    quiet: bool,
    on_epoch: Callable[[Epoch], object] | None = None,
) -> Path:
    """Train from what was begun, or from the checkpoint `last`; evaluate; write the result."""
    problem = training.problem
    limits = dict(zip(problem.cost_names, setup.config.cost_limit, strict=True))
    known = [] if problem.model is None else list(problem.model.known)
    info = replace(info, cost_limits=limits, known=known)
    folder.write_json("config.json", info.to_dict())
    metrics = CsvLogger(folder, b"" if last is None else last.arrays["metrics"].tobytes())
    result = drive(folder, info, loop.epochs(training), last, metrics, notes, quiet, on_epoch)
    result |= {"known": known, "device": device_name()}
    mode, trainer = setup.algorithm.acts(setup.config), training.trainer
    todo = f"training is finished and saved; to evaluate it: {how_to_resume(folder, info)}"
    stopped = lambda: f"stopped: {todo}"
    with Interrupt(farewell=lambda: print(stopped(), file=sys.stderr, flush=True)) as interrupt:
        evaluation = Acting(
            setup, trainer.policy(), PLANNED_EPISODES if mode else EVALUATION_EPISODES,
            EVALUATION_SEED, planning=trainer.planning() if mode else None,
            mode=mode or "look-ahead", before_step=lambda: interrupt.check(stopped),
        ).evaluate()  # fmt: skip
    interrupt.check(stopped)
    if "plan" in evaluation:
        result["plans_per_second"] = evaluation["plan"].pop("plans_per_second")
    result["evaluation"] = evaluation
    try:
        metrics.restore()  # the file may have changed since
        folder.write_json("result.json", result)
    except OSError as error:
        raise WriteFault(
            f"{folder.path / 'result.json'} cannot be written: {error.strerror or error}. Once "
            f"that is fixed: {todo}"
        ) from None
    return folder.path
