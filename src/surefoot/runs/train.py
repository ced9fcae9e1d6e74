"""Train: from a task and an algorithm to a run folder with a result."""

import math
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from surefoot import __version__
from surefoot.algorithms import loop
from surefoot.algorithms.algorithm import CUSTOM, DEFAULT, Algorithm
from surefoot.algorithms.collect import Actor, Generators, draw_from
from surefoot.algorithms.evaluation import evaluate
from surefoot.algorithms.loop import Epoch, Training
from surefoot.algorithms.planning import PlannedActor
from surefoot.algorithms.seeds import seed_keys
from surefoot.core.config import to_dict
from surefoot.core.registry import absolute_reference
from surefoot.core.snapshot import Saved
from surefoot.runs.checkpoint import Checkpoint
from surefoot.runs.device import device_name
from surefoot.runs.drive import WriteFault, drive, how_to_finish
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import RunInfo
from surefoot.runs.interrupt import stop_at_once
from surefoot.runs.loggers import check_loggers
from surefoot.runs.setup import CostLimits, MakeModel, Setup, new_setup

EVALUATION_EPISODES = 50
PLANNED_EPISODES = 10
"""If every step is planned."""
EVALUATION_SEED = 10_000_000
"""Added to the seeds, so that evaluation meets other episodes than training."""
MOST_SEEDS = 10_000


def train(
    task: Any,
    algorithm: str | Algorithm | None = None,
    preset: str = "default",
    seeds: int = 1,
    seed: int = 0,
    out: str | Path | None = None,
    config: Any = None,
    task_options: Mapping[str, Any] | None = None,
    cost: Any = None,
    cost_limit: CostLimits | None = None,
    known: MakeModel | None = None,
    loggers: Sequence[str] = (),
    on_epoch: Callable[[Epoch], object] | None = None,
    checkpoint_every: float | None = None,
    keep: int = 2,
    quiet: bool = False,
    **changes: Any,
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
        known: A function that makes a `TaskModel` for an environment: what is known of it.
        loggers: Additional loggers, such as "tensorboard" and "wandb".
        on_epoch: Called after every epoch.
        checkpoint_every: Minimum seconds between checkpoints; 0 writes one after every epoch. If
            not given, they take at most 1 % of the time. The last epoch is always written.
        keep: Number of the latest checkpoints to keep, besides the best.
        quiet: Show no progress.
        **changes: Settings to change: `steps=30_000`, `ppo={"clip": 0.1}`, `**{"ppo.clip": 0.1}`.
    """
    _check_run(seeds, seed, checkpoint_every, keep)
    check_loggers(loggers)
    if algorithm is None and config is None:
        algorithm = DEFAULT
    setup = new_setup(
        task, algorithm, preset, jax.default_backend(), range(seed, seed + seeds), config, changes,
        task_options or {}, cost, cost_limit, known,
    )  # fmt: skip
    name = absolute_reference(algorithm) if isinstance(algorithm, str) else setup.algorithm.name
    info = RunInfo(
        version=__version__,
        task=setup.task.reference,
        task_name=setup.task.name,
        task_options=setup.options,
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
    )
    folder = RunFolder.new(f"{setup.task.name}-{setup.algorithm.name}", out)
    with folder.locked():
        return train_to_end(folder, info, setup, None, [], quiet, on_epoch)


def train_to_end(
    folder: RunFolder,
    info: RunInfo,
    setup: Setup,
    last: Checkpoint | None,
    notes: list[str],
    quiet: bool,
    on_epoch: Callable[[Epoch], object] | None = None,
) -> Path:
    """Train from the beginning, or from the checkpoint `last`; evaluate; write the result."""
    probe = setup.make_envs(1)
    environments = setup.algorithm.environments(setup.config, setup.problem(probe, 1).episode_steps)
    env = setup.make_envs(len(setup.seeds) * environments)
    problem = setup.problem(env, environments)
    limits = dict(zip(problem.cost_names, setup.config.cost_limit, strict=True))
    known = [] if problem.model is None else list(problem.model.known)
    info = replace(info, cost_limits=limits, known=known)
    folder.write_json("config.json", info.to_dict())
    saved = None if last is None else Saved(last.arrays)
    training = loop.begin(setup.algorithm, setup.config, problem, env, saved)
    result = drive(folder, info, loop.epochs(training), last, notes, quiet, on_epoch)
    result |= {"known": known, "device": device_name()}
    with stop_at_once(f"stopped: {how_to_finish(folder, info)}"):
        evaluation = _evaluate(setup, training)
    if "plan" in evaluation:
        result["plans_per_second"] = evaluation["plan"].pop("plans_per_second")
    result["evaluation"] = evaluation
    try:
        folder.write_json("result.json", result)
    except OSError as error:
        raise WriteFault(
            f"{folder.path / 'result.json'} cannot be written: {error.strerror or error}. Once "
            f"that is fixed: {how_to_finish(folder, info)}"
        ) from None
    return folder.path


def _evaluate(setup: Setup, training: Training) -> dict[str, Any]:
    """Evaluate what was trained on fresh episodes, with the state in memory; see `use.evaluate`."""
    plans = setup.algorithm.plans
    episodes = PLANNED_EPISODES if plans else EVALUATION_EPISODES
    env = setup.make_envs(len(setup.seeds) * episodes)
    planned: list[PlannedActor] = []

    def make_actor(rngs: Generators, steps: int) -> Actor:
        policy = draw_from(training.trainer.policy(), rngs, episodes, steps)
        planning = training.trainer.planning()
        if not plans or planning is None or planning.config is None:
            return policy
        keys = seed_keys([(EVALUATION_SEED + s) % 2**32 for s in setup.seeds])
        problem = replace(training.problem, environments=episodes)
        planned.append(PlannedActor(planning.config, problem, planning, "look-ahead", policy, keys))
        return planned[0]

    evaluation = evaluate(
        env, make_actor, setup.seeds, episodes, EVALUATION_SEED, setup.config.cost_limit,
        model=training.problem.model if plans else None,
    )  # fmt: skip
    plan = {"plan": planned[0].to_dict()} if planned else {}
    return {**evaluation.to_dict(), **plan}


def _check_run(seeds: Any, seed: Any, checkpoint_every: Any, keep: Any) -> None:
    """Check the arguments that are not part of a config."""
    if not (isinstance(seeds, int) and 1 <= seeds <= MOST_SEEDS):
        raise ValueError(f"seeds={seeds} must be a whole number from 1 to {MOST_SEEDS}")
    if not (isinstance(seed, int) and 0 <= seed <= 2**32 - seeds):
        raise ValueError(f"seed={seed} must be a whole number from 0 to 2**32 - {seeds}")
    if checkpoint_every is not None and not 0 <= checkpoint_every < math.inf:
        raise ValueError(f"checkpoint_every={checkpoint_every} must be at least 0 seconds")
    if not (isinstance(keep, int) and keep >= 1):
        raise ValueError(f"keep={keep} must be a whole number of at least 1")
