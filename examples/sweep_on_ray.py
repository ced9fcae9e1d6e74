"""A sweep over limits as an experiment, trained here or on a Ray cluster.

    surefoot reproduce examples/sweep_on_ray.py:EXPERIMENT --device cpu --jobs 2
    surefoot reproduce examples/sweep_on_ray.py:EXPERIMENT --on ray

Both write a page with curves and statistics, and use runs that exist already.
"""

# --8<-- [start:experiment]
from surefoot.experiments.experiment import Experiment
from surefoot.experiments.job import Job

EXPERIMENT = Experiment(
    name="limits",
    title="PointGoal under several limits",
    summary="PPO-Lagrangian, four seeds for each limit.",
    jobs=tuple(
        Job(
            "PointGoal", "ppo-lagrangian", seeds=4, steps=300_000,
            changes={"cost_limit": (limit,)}, note=f"limit {limit:g}",
        )
        for limit in (5.0, 10.0, 20.0)
    ),
)  # fmt: skip
# --8<-- [end:experiment]
