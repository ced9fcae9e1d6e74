"""A run read back: its policies and, if it has one, its learned model."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from surefoot.algorithms.algorithm import Mode
from surefoot.algorithms.trainer import Planning
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved
from surefoot.envs.gym.adapted import Cost
from surefoot.runs.cache import use_cache
from surefoot.runs.checkpoint import Checkpoint, newest_sound
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import RunInfo, algorithm_of, config_of, parse_info, read_info
from surefoot.runs.known import Known
from surefoot.runs.setup import MakeEnv, Setup, recorded_setup


class LearnedModel(NamedTuple):
    """What a run with a model has learned, of all its seeds."""

    checkpoint: Checkpoint
    info: RunInfo
    setup: Setup
    policy: Policy
    planning: Planning


def load_policies(folder: RunFolder, info: RunInfo) -> Policy:
    """The policies of all seeds of a run."""
    policy = folder.read_policy()
    if any(len(array) != len(info.seeds) for array in (*policy.weights, *policy.biases)):
        raise ValueError(
            f"{folder.path / 'policy.npz'} is not of this run, which has {len(info.seeds)} seeds"
        )
    return policy


def load(run: str | Path, which: int = 0) -> Policy:
    """The numpy policy of a run's seed number `which`, counted from 0, or of an exported file."""
    if Path(run).is_file():
        return Policy.load(Path(run))
    folder = RunFolder(Path(run))
    info = read_info(folder)
    check_which(run, len(info.seeds), which)
    return load_policies(folder, info).seed(which)


def check_which(run: str | Path, count: int, which: int) -> None:
    """Raise a ValueError if a run of `count` seeds has no seed of that number."""
    if not 0 <= which < count:
        raise ValueError(f"which={which} must be from 0 to {count - 1}: {run} has {count} seeds")


def plan_of(run: str | Path) -> Mode | None:
    """How a run plans by itself, so that its policy alone is not what was trained."""
    try:
        info = read_info(RunFolder(Path(run)))
        return algorithm_of(info).acts(config_of(info, Path(run)))
    except (ValueError, OSError):  # reported by the caller
        return None


def load_model(
    run: str | Path,
    purpose: str,
    make_env: MakeEnv | None = None,
    known: Known = None,
    cost: Cost | None = None,
) -> LearnedModel:
    """What a run's newest sound checkpoint holds; a ValueError if it has no model to `purpose`."""
    use_cache()
    folder = RunFolder(Path(run))
    if not folder.path.is_dir():
        raise ValueError(f"{run} is not a run: there is no such folder")
    last, problems = newest_sound(folder.checkpoints)
    if last is None:
        why = "; ".join(problems) or "there is none"
        raise ValueError(f"{run} has no checkpoint that can be read: {why}")
    info = parse_info(last.meta["info"], folder.checkpoints)
    setup = recorded_setup(info, folder.path, make_env, known, cost)
    algorithm = setup.algorithm
    if not algorithm.uses_model:
        raise ValueError(
            f"{run} has no model to {purpose}: {algorithm.title} does not learn one; use a run of "
            f"mbppo-lagrangian or safe-loop"
        )
    setup.check_known(info, folder.path)
    problem = setup.problem(setup.make_envs(1), 1)
    environments = algorithm.environments(setup.config, problem.episode_steps)
    trainer = algorithm.trainer(setup.config, replace(problem, environments=environments))
    saved = Saved(last.arrays).under("trainer")
    trainer.restore(saved, int(last.arrays["totals/steps"]), data=False)
    planning = trainer.planning()
    assert planning is not None
    return LearnedModel(last, info, setup, trainer.policy(), planning)
