"""The whole chain in small: every algorithm, so few steps that nothing is learned."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

from surefoot.algorithms.presets import ALGORITHMS, preset
from surefoot.experiments import sections
from surefoot.experiments.experiment import Experiment, Part
from surefoot.experiments.job import Job
from surefoot.paper import verdicts

# So small that everything is tried and nothing learned. A field of any config, inner ones too.
TINY: dict[str, Any] = {
    "steps": 300, "cost_limit": 1.0, "steps_per_epoch": 100, "episodes": 2, "horizon": 5,
    "rollouts": 12, "passes": 2, "pr_rollouts": 6, "pr_horizon": 5, "hidden": (8,), "epochs": 2,
    "critic_epochs": 2, "minibatches": 2, "members": 3, "elites": 3, "max_steps": 20,
    "environments": 2, "random_steps": 100, "update_every": 20, "updates": 2, "replay": 1000,
    "batch_size": 16, "refit_every": 100, "samples": 12, "particles": 2, "iterations": 2,
    "fewest_safe": 4,
}  # fmt: skip


HASTY = ("--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true")


def tiny(config: Any, prefix: str = "") -> Mapping[str, Any]:
    """What makes a config tiny, as `Job.changes`."""
    changes: dict[str, Any] = {}
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            changes |= tiny(value, f"{prefix}{f.name}.")
        elif f.name in TINY and value is not None:
            changes[f"{prefix}{f.name}"] = TINY[f.name]
    return changes


def smoke() -> Experiment:
    kinds = [(name, "default") for name in ALGORITHMS] + [("mbppo-lagrangian", "paper")]
    options = {"max_episode_steps": 50}
    jobs = {
        task: tuple(
            Job(
                task, algorithm, kind, seeds=2, task_options=options,
                changes=tiny(preset(algorithm, kind, task, "cpu")),
            )
            for algorithm, kind in kinds
        )
        for task in ("PointGoal", "RCCar")
    }  # fmt: skip
    every = tuple(job for some in jobs.values() for job in some)
    unit = tuple(job for job in every if job.algorithm == "ppo")
    rest = tuple(job for job in every if job.algorithm != "ppo")
    by_name = {job.algorithm: job for job in jobs["PointGoal"]}  # of the presets, paper comes last
    judge = partial(
        verdicts.goal_claims, ppo=by_name["ppo"], lagrangian=by_name["ppo-lagrangian"],
        cpo=by_name["cpo"], loop=by_name["safe-loop"], ours=by_name["mbppo-lagrangian"],
    )  # fmt: skip
    parts: list[Part] = [
        partial(
            sections.aggregates, title="Normalised reward and violations", jobs=rest, unit=unit,
            text="",
        ),
    ]  # fmt: skip
    for task, some in jobs.items():
        level = next(job for job in some if job.algorithm == "ppo-lagrangian")
        parts += [
            partial(
                sections.curves, title=f"{task}: learning curves", jobs=some, text="",
                converged=level,
            ),
            partial(
                sections.efficiency, title=f"{task}: sample efficiency", jobs=some, level=level,
                text="",
            ),
        ]  # fmt: skip
    return Experiment(
        "smoke",
        "The whole chain, in small",
        "Every algorithm on two tasks with so few steps that nothing is learned: what it shows is "
        "that everything runs.",
        every,
        tuple(parts),
        (judge,),
        # Most of the time would go into compiling what then runs for a moment.
        {"XLA_FLAGS": " ".join(HASTY)},
    )
