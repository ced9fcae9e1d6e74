"""A run read back: its setup, policies and, if it has one, its learned model."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from surefoot.algorithms.trainer import Planning, Problem, Trainer
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved
from surefoot.runs.checkpoint import Checkpoint, newest_sound
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import RunInfo, parse_info, read_info
from surefoot.runs.resume import check_checkpoint
from surefoot.runs.setup import MakeEnv, MakeModel, Setup, recorded_setup


class Run(NamedTuple):
    """A run on disk with its policies."""

    path: Path
    info: RunInfo
    setup: Setup
    policy: Policy
    """Of all seeds."""


class LearnedModel(NamedTuple):
    """What a run with a model has learned, of all its seeds."""

    checkpoint: Checkpoint
    info: RunInfo
    setup: Setup
    trainer: Trainer
    planning: Planning


def load_run(
    run: str | Path, make_env: MakeEnv | None = None, make_model: MakeModel | None = None
) -> Run:
    """A finished or running run. `make_env` is needed if the run does not record its task."""
    folder = RunFolder(Path(run))
    info = read_info(folder)
    return Run(folder.path, info, recorded_setup(info, folder.path, make_env, make_model),
               load_policies(folder, info))  # fmt: skip


def load_policies(folder: RunFolder, info: RunInfo) -> Policy:
    """The policies of all seeds of a run."""
    policy = folder.read_policy()
    if any(len(array) != len(info.seeds) for array in (*policy.weights, *policy.biases)):
        raise ValueError(
            f"{folder.path / 'policy.npz'} is not of this run, which has {len(info.seeds)} seeds"
        )
    return policy


def load(run: str | Path, which: int = 0) -> Policy:
    """The numpy policy of a run's seed number `which`, counted from 0."""
    folder = RunFolder(Path(run))
    info = read_info(folder)
    check_which(run, info, which)
    return load_policies(folder, info).seed(which)


def check_which(run: str | Path, info: RunInfo, which: int) -> None:
    """Raise a ValueError if the run has no seed of that number."""
    count = len(info.seeds)
    if not 0 <= which < count:
        raise ValueError(f"which={which} must be from 0 to {count - 1}: {run} has {count} seeds")


def plans_itself(run: str | Path) -> bool:
    """Whether a run acts by planning, so that its policy alone is not what was trained."""
    from surefoot.runs.info import algorithm_of

    try:
        return algorithm_of(read_info(RunFolder(Path(run)))).plans
    except (ValueError, OSError):  # reported by the caller
        return False


def load_model(
    run: str | Path,
    purpose: str,
    make_env: MakeEnv | None = None,
    make_model: MakeModel | None = None,
) -> LearnedModel:
    """What a run's newest sound checkpoint holds; a ValueError if it has no model to `purpose`."""
    folder = RunFolder(Path(run))
    if not folder.path.is_dir():
        raise ValueError(f"{run} is not a run: there is no such folder")
    last, problems = newest_sound(folder.checkpoints)
    if last is None:
        why = "; ".join(problems) or "there is none"
        raise ValueError(f"{run} has no checkpoint that can be read: {why}")
    check_checkpoint(last, folder)
    info = parse_info(last.meta["info"], folder.checkpoints)
    setup = recorded_setup(info, folder.path, make_env, make_model)
    if not setup.algorithm.uses_model:
        raise ValueError(
            f"{run} has no model to {purpose}: {setup.algorithm.title} does not learn one; use a "
            f"run of mbppo-lagrangian or safe-loop"
        )
    problem = _problem(setup)
    if list(problem.task_model.known) != info.known:
        raise ValueError(
            f"known: the model of {run} knows {info.known}, not "
            f"{list(problem.task_model.known)}; pass what was given to train"
        )
    trainer = setup.algorithm.trainer(setup.config, problem)
    saved = Saved(last.arrays)
    trainer.restore(saved.under("trainer"), int(last.arrays["totals/steps"]), data=False)
    planning = trainer.planning()
    assert planning is not None
    return LearnedModel(last, info, setup, trainer, planning)


def _problem(setup: Setup) -> Problem:
    env: Any = setup.make_envs(1)
    problem = setup.problem(env, 1)
    environments = setup.algorithm.environments(setup.config, problem.episode_steps)
    return replace(problem, environments=environments)
