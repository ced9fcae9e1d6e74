"""The experiments: what the paper shows, figure by figure and table by table, and what we add."""

from functools import partial
from typing import Any

from surefoot.experiments import sections
from surefoot.experiments.experiment import Experiment, Part
from surefoot.experiments.job import Job
from surefoot.paper import verdicts
from surefoot.paper.smoke import smoke

STEPS = 450_000
"""Real steps of the paper's runs."""
RC_STEPS = 150_000
"""Of its runs on the RC car."""
LOOP_STEPS = 90_000
"""Of safe-LOOP elsewhere, which plans at every step: where its longest runs so far were stopped."""
DOGGO_STEPS = 4_000_000
"""Of model-free algorithms on the quadruped; the paper does not say, and a seed of these takes
half an hour on a CPU core."""
BETAS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""The paper's text names 0.02, which it uses, and 0.1 = H/T."""
CARGOAL_BETA_STEPS = 325_000
"""Of the sweep on CarGoal: where the run of the largest beta was stopped."""
CAR_BETAS = (0.02, 0.1, 0.4, 0.8)
"""For episodes of 100 steps, where H/T is 0.8."""


def _ours(task: str, **changes: Any) -> Job:
    return Job(task, "mbppo-lagrangian", "paper", **changes)


def _loop(task: str, steps: int = LOOP_STEPS, **changes: Any) -> Job:
    return Job(task, "safe-loop", "paper", steps=steps, **changes)


def _goal_jobs(task: str) -> dict[str, Job]:
    return {
        "ppo": Job(task, "ppo"),
        "lagrangian": Job(task, "ppo-lagrangian"),
        "cpo": Job(task, "cpo"),
        "loop": _loop(task),
        "ours": _ours(task),
    }


def _goal(task: str, figure: str) -> Experiment:
    jobs = _goal_jobs(task)
    every = (*jobs.values(), Job(task, "mbppo-lagrangian"), Job(task, "safe-loop"))
    text = (
        "As in the paper, the dotted line is the reward that PPO-Lagrangian ends with after two "
        "million real steps. Real steps are on a logarithmic scale. “safe-LOOP” without more plans "
        f"as Surefoot does by default; “(paper)” is compared after {LOOP_STEPS:,} real steps, "
        "where its runs were stopped."
    )
    efficient = (
        "How many real steps, violations and seconds it takes to earn what PPO-Lagrangian earns "
        "at its end."
    )
    return Experiment(
        task.lower(),
        f"{task}: reward and cost",
        f"{figure} of the paper: learning curves of reward and cost on {task}, and beside them the "
        "default settings of Surefoot for both model-based algorithms.",
        every,
        (
            partial(
                sections.curves, title=f"{task}: learning curves", jobs=every, text=text,
                converged=jobs["lagrangian"],
            ),
            partial(
                sections.efficiency, title=f"{task}: sample efficiency", jobs=every,
                level=jobs["lagrangian"], text=efficient,
            ),
        ),
        (partial(verdicts.goal_claims, **jobs),),
    )  # fmt: skip


def _beta(
    task: str, figure: str, betas: tuple[float, ...], steps: int, judged: float | None, seeds: int
) -> Experiment:
    jobs = {
        beta: _ours(task, steps=steps, changes={"beta": beta}, note=f"beta = {beta:g}", seeds=seeds)
        for beta in betas
    }
    every = tuple(jobs.values())
    text = "The multiplier holds the cost of H imagined steps against beta times the limit."
    if steps == CARGOAL_BETA_STEPS:
        text += f" Compared after {steps:,} real steps, where a run was stopped, not {STEPS:,}."
    share = None if judged is None else jobs[judged]
    judge = partial(verdicts.beta_claims, jobs=every, horizon_share=share)
    return Experiment(
        f"beta-{task.lower()}",
        f"{task}: the effect of beta",
        f"{figure} of the paper: reward and cost of MBPPO-Lagrangian for several beta on {task}.",
        every,
        (partial(sections.sweep, title=f"{task}: beta", jobs=every, text=text, setting="beta"),),
        (judge,),
    )


def _aggregates() -> Experiment:
    tasks = [_goal_jobs(task) for task in ("PointGoal", "CarGoal")]
    unit = tuple(jobs["ppo"] for jobs in tasks)
    shown = tuple(jobs[name] for jobs in tasks for name in ("lagrangian", "loop", "ours"))
    shown += tuple(Job(task, "mbppo-lagrangian") for task in ("PointGoal", "CarGoal"))
    text = (
        "As shares of what unconstrained PPO earns and violates on the same task; where it was not "
        "run, of the paper's numbers for it (reward 20, 200,000 violations). safe-LOOP takes "
        f"{LOOP_STEPS:,} real steps, the others as many as they converge in."
    )
    part = partial(
        sections.aggregates, title="Normalised reward and violations", jobs=shown, unit=unit,
        text=text,
    )  # fmt: skip
    return Experiment(
        "aggregates",
        "Reward and violations at convergence",
        "Figure 4 of the paper: mean, median and interquartile mean over PointGoal and CarGoal.",
        (*unit, *shown),
        (part,),
    )


def _running_time() -> Experiment:
    alone: dict[str, Any] = {"seeds": 3, "alone": True, "note": "one seed"}
    lagrangian = Job("PointGoal", "ppo-lagrangian", steps=STEPS, **alone)
    cpo = Job("PointGoal", "cpo", steps=STEPS, **alone)
    ours, default = _ours("PointGoal", **alone), Job("PointGoal", "mbppo-lagrangian", **alone)
    loop = Job("PointGoal", "safe-loop", "paper", steps=15_000, **{**alone, "seeds": 1})
    paper = ((lagrangian, 187.95), (cpo, 266.25), (ours, 21420.91), (loop, 183156.33))
    judge = partial(verdicts.time_claims, lagrangian=lagrangian, loop=loop, ours=ours, steps=STEPS)
    text = (
        "From the start of training to its end, compilation included. A run of fewer real steps is "
        "extended at the pace of its epochs after the first. The default settings of "
        "MBPPO-Lagrangian need far fewer steps than these, and more time for each. The paper's "
        "times are of another machine."
    )
    return Experiment(
        "running-time",
        "Running time",
        f"Table 2 of the paper: the time for {STEPS:,} real steps.",
        (lagrangian, cpo, ours, loop, default),
        (
            partial(
                sections.running_time, title="Running time", paper=(*paper, (default, None)),
                steps=STEPS, text=text,
            ),
        ),
        (judge,),
    )  # fmt: skip


def _validation_loss() -> Experiment:
    ours = _ours("PointGoal")
    free = _ours("PointGoal", changes={"constrained": False}, note="no limit")
    text = "Error of the model's mean on steps held out from its fit, by real steps collected."
    return Experiment(
        "validation-loss",
        "What a constraint costs the model",
        "Figure 6 of the paper: the model's validation loss with the constraint and without.",
        (ours, free),
        (
            partial(
                sections.metric_curves, title="Validation loss", jobs=(ours, free), text=text,
                name="model_error",
            ),
        ),
        (partial(verdicts.loss_claims, free=free, ours=ours),),
    )  # fmt: skip


def _doggo() -> Experiment:
    task = "DoggoGoal"
    ppo = Job(task, "ppo", steps=DOGGO_STEPS)
    lagrangian = Job(task, "ppo-lagrangian", steps=DOGGO_STEPS)
    loop, ours, default = _loop(task), _ours(task), Job(task, "mbppo-lagrangian")
    free = Job(task, "mbppo-lagrangian", changes={"constrained": False}, note="no limit")
    paper = (
        (ppo, "21.3 ± 1.23"), (lagrangian, "1.63 ± 0.46"), (loop, "-0.14 ± 0.05"),
        (ours, "-0.69 ± 0.06"), (default, "-"), (free, "-"),
    )  # fmt: skip
    jobs = tuple(job for job, _ in paper)
    judge = partial(verdicts.doggo_claims, ppo=ppo, lagrangian=lagrangian, loop=loop, ours=ours)
    text = "The quadruped, at which the paper's algorithm fails; ours with and without the limit."
    return Experiment(
        "doggogoal",
        "DoggoGoal: reward at convergence",
        "Table 3 of the paper.",
        jobs,
        (
            partial(sections.final_table, title="DoggoGoal: reward", paper=paper, text=text),
            partial(sections.curves, title="DoggoGoal: learning curves", jobs=jobs, text=""),
        ),
        (judge,),
    )


def _rc_car() -> Experiment:
    ours, loop = _ours("RCCar", steps=RC_STEPS, seeds=5), _loop("RCCar", RC_STEPS, seeds=5)
    default = Job("RCCar", "mbppo-lagrangian", seeds=5)
    every = (ours, loop, default, Job("RCCar", "safe-loop", seeds=5))
    judge = partial(verdicts.car_claims, loop=loop, ours=ours)
    text = (
        f"{RC_STEPS:,} real steps and five seeds, as in the paper; the limit is 5. “safe-LOOP” "
        "without more plans as Surefoot does by default."
    )
    return Experiment(
        "rccar",
        "RC car: reward and cost",
        "Figure 10 of the paper: both model-based algorithms on the RC car, and beside them the "
        "default settings of Surefoot for both.",
        every,
        (partial(sections.curves, title="RCCar: learning curves", jobs=every, text=text),),
        (judge,),
    )


def _default_against_paper() -> Experiment:
    pairs = {
        task: (Job(task, "mbppo-lagrangian"), _ours(task)) for task in ("PointGoal", "CarGoal")
    }
    car = Job("RCCar", "mbppo-lagrangian", seeds=5)
    pairs["RCCar"] = car, _ours("RCCar", steps=RC_STEPS, seeds=5)
    text = "MBPPO-Lagrangian as Surefoot sets it, beside its settings as published."
    efficient = "Until the reward with which the paper's settings end."
    parts: list[Part] = []
    for task, (default, ours) in pairs.items():
        jobs = (default, ours)
        parts += [
            partial(sections.curves, title=f"{task}: learning curves", jobs=jobs, text=text),
            partial(
                sections.efficiency, title=f"{task}: sample efficiency", jobs=jobs, level=ours,
                text=efficient,
            ),
        ]  # fmt: skip
    return Experiment(
        "default-against-paper",
        "The default settings against the paper's",
        "Sample efficiency, violations and wall clock of the two presets of MBPPO-Lagrangian.",
        tuple(job for pair in pairs.values() for job in pair),
        tuple(parts),
    )


def _paper(experiments: list[Experiment]) -> Experiment:
    return Experiment(
        "paper",
        "The paper, reproduced",
        "All figures and tables of the paper.",
        tuple(job for experiment in experiments for job in experiment.jobs),
        tuple(part for experiment in experiments for part in experiment.parts),
        tuple(judge for experiment in experiments for judge in experiment.judges),
    )


_PAPER = [
    _goal("PointGoal", "Figure 2"),
    _goal("CarGoal", "Figure 3"),
    _rc_car(),
    _beta("PointGoal", "Figure 1", BETAS, STEPS, 0.1, 8),
    _beta("CarGoal", "Figure 8", BETAS, CARGOAL_BETA_STEPS, None, 8),
    _beta("RCCar", "Figure 9", CAR_BETAS, RC_STEPS, None, 5),
    _aggregates(),
    _running_time(),
    _validation_loss(),
    _doggo(),
]
EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (*_PAPER, _default_against_paper(), _paper(_PAPER), smoke())
}
