"""A tiny experiment with every algorithm, which checks that everything runs."""

from functools import partial

from surefoot.algorithms.algorithm import ALGORITHMS, BUILTIN, Overrides
from surefoot.core.config import flat
from surefoot.envs.task import find_task
from surefoot.experiments.experiment import Experiment, Part
from surefoot.experiments.job import Job
from surefoot.experiments.sections import curves, efficiency
from surefoot.paper.catalogue import goal_claims
from surefoot.paper.sections import Claims, aggregates

TINY: Overrides = {
    "steps": 300, "cost_limit": (1.0,), "steps_per_epoch": 100, "episodes": 2, "horizon": 5,
    "rollouts": 12, "passes": 2, "pr_rollouts": 6, "pr_horizon": 5, "hidden": (8,), "epochs": 2,
    "critic_epochs": 2, "minibatches": 2, "members": 3, "elites": 3, "max_steps": 20,
    "environments": 2, "random_steps": 100, "update_every": 20, "updates": 2, "replay": 1000,
    "batch_size": 16, "refit_every": 100, "samples": 12, "particles": 2, "iterations": 2,
    "fewest_safe": 4,
}  # fmt: skip
"""Small values by the last part of a setting's name."""
QUICK_COMPILATION = (
    "--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true",
)  # fmt: skip


def tiny(config: object) -> Overrides:
    """The changes that make a config tiny, as `Job.changes`."""
    names = [name for name, value in flat(config).items() if value is not None]
    last = lambda name: name.rpartition(".")[2]
    return {name: TINY[last(name)] for name in names if last(name) in TINY}


def _smoke() -> Experiment:
    jobs = {
        task: tuple(
            Job(
                task, algorithm, preset, seeds=2, task_options={"max_episode_steps": 50},
                changes=tiny(ALGORITHMS[algorithm].preset(preset, find_task(task), "cpu")),
            )
            for algorithm in BUILTIN
            for preset in ALGORITHMS[algorithm].presets
        )
        for task in ("PointGoal", "RCCar")
    }  # fmt: skip
    every = tuple(job for some in jobs.values() for job in some)
    unit = tuple(job for job in every if job.algorithm == "ppo")
    rest = tuple(job for job in every if job.algorithm != "ppo")
    names = ("ppo", "ppo-lagrangian", "cpo", "safe-loop", "mbppo-lagrangian")
    by_name = {job.algorithm: job for job in jobs["PointGoal"]}
    claims = Claims(goal_claims("PointGoal", *(by_name[name] for name in names)))
    parts: list[Part] = [claims, partial(aggregates, jobs=rest, unit=unit)]
    for task, some in jobs.items():
        level = next(job for job in some if job.algorithm == "ppo-lagrangian")
        parts += [
            partial(curves, title=f"{task}: learning curves", jobs=some, text="", converged=level),
            partial(
                efficiency, title=f"{task}: sample efficiency", jobs=some, level=level, text=""
            ),
        ]
    return Experiment(
        "smoke",
        "A smoke test",
        "Every algorithm on two tasks, with so few steps that nothing is learned.",
        every,
        tuple(parts),
        {"XLA_FLAGS": " ".join(QUICK_COMPILATION)},
    )


SMOKE = _smoke()
