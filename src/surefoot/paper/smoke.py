"""A tiny experiment with every algorithm, which checks that everything runs."""

from surefoot.algorithms.algorithm import ALGORITHMS, BUILTIN, Overrides
from surefoot.core.config import flat
from surefoot.envs.task import find_task
from surefoot.experiments.experiment import Experiment
from surefoot.experiments.job import Job

TINY: Overrides = {
    "steps": 300, "cost_limit": (1.0,), "steps_per_epoch": 100, "episodes": 2, "horizon": 5,
    "rollouts": 12, "passes": 2, "pr_rollouts": 6, "pr_horizon": 5, "hidden": (8,), "epochs": 2,
    "critic_epochs": 2, "minibatches": 2, "members": 3, "elites": 3, "max_steps": 20,
    "environments": 2, "random_steps": 100, "update_every": 20, "updates": 2, "replay": 1000,
    "batch_size": 16, "refit_every": 100, "samples": 12, "particles": 2, "iterations": 2,
    "fewest_safe": 4, "policy_every": 1,
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
    jobs = tuple(
        Job(
            task, algorithm, preset, seeds=2, task_options={"max_episode_steps": 50},
            changes=tiny(ALGORITHMS[algorithm].preset(preset, find_task(task), "cpu")),
        )
        for task in ("PointGoal", "RCCar")
        for algorithm in BUILTIN
        for preset in ALGORITHMS[algorithm].presets
    )  # fmt: skip
    return Experiment(
        "smoke",
        "A smoke test",
        "Every algorithm on two tasks, with so few steps that nothing is learned.",
        jobs,
        environment={"XLA_FLAGS": " ".join(QUICK_COMPILATION)},
    )


SMOKE = _smoke()
