"""The experiments of the paper, figure by figure and table by table."""

from dataclasses import replace
from functools import partial

from surefoot.experiments.experiment import Experiment
from surefoot.experiments.job import Job
from surefoot.experiments.sections import curves, efficiency, sweep
from surefoot.paper.claims import TIMED_STEPS, Claim
from surefoot.paper.sections import Claims, aggregates, final_table, running_time

STEPS = 450_000
"""Real steps of the paper's model-based runs on the Goal tasks."""
CONVERGED_STEPS = 2_000_000
"""Real steps after which the paper calls its model-free runs converged."""
RC_STEPS = 150_000
"""Real steps of the paper's runs on the RC car."""
DOGGO_STEPS = 10_000_000
"""Real steps of model-free runs on the quadruped: the usual length, as the paper states none."""
BETAS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""The paper's text names 0.02, which it uses, and 0.1 = H/T."""
RC_BETAS = (0.02, 0.1, 0.4, 0.8)
"""For episodes of 100 steps, where H/T is 0.8."""


def _paper(task: str) -> tuple[Job, Job]:
    """MBPPO-Lagrangian and safe-LOOP with the paper's settings."""
    steps, seeds = (RC_STEPS, 5) if task == "RCCar" else (STEPS, 8)
    ours = Job(task, "mbppo-lagrangian", "paper", seeds, steps)
    return ours, replace(ours, algorithm="safe-loop")


def _model_free(task: str, steps: int = CONVERGED_STEPS) -> tuple[Job, Job, Job]:
    """PPO, PPO-Lagrangian and CPO."""
    ppo = Job(task, "ppo", steps=steps)
    return ppo, replace(ppo, algorithm="ppo-lagrangian"), replace(ppo, algorithm="cpo")


def goal_claims(
    task: str, ppo: Job, lagrangian: Job, cpo: Job, loop: Job, ours: Job
) -> tuple[Claim, ...]:
    """The claims about a Goal task: reward, cost and violations against the baselines."""
    name = f"{task}: MBPPO-Lagrangian"
    # fmt: off
    return (
        Claim(f"{name} reaches the reward of converged PPO-Lagrangian",
              "reward", "above", (ours, lagrangian)),
        Claim(f"{name} ends with policies within the limit", "cost", "within limit", (ours,)),
        Claim(f"{name} earns more than safe-LOOP over the same real steps",
              "reward by then", "above", (ours, loop)),
        Claim(f"{name} has fewer violations until convergence than PPO-Lagrangian",
              "violations", "below", (ours, lagrangian)),
        Claim(f"{name} has no more violations than safe-LOOP over the same real steps",
              "violations by then", "below", (ours, loop)),
        Claim(f"{task}: PPO-Lagrangian ends with policies within the limit",
              "cost", "within limit", (lagrangian,)),
        Claim(f"{task}: CPO ends with policies above the limit", "cost", "above limit", (cpo,)),
        Claim(f"{task}: unconstrained PPO earns more than MBPPO-Lagrangian",
              "reward", "above", (ppo, ours)),
    )
    # fmt: on


def _goal(task: str, figure: str) -> Experiment:
    ppo, lagrangian, cpo = _model_free(task)
    ours, loop = _paper(task)
    jobs = (ppo, lagrangian, cpo, loop, ours, Job(task, "mbppo-lagrangian"), Job(task, "safe-loop"))
    text = (
        "The dotted line is the final reward of PPO-Lagrangian, as in the paper. “(paper)” marks "
        "the paper's settings, “(default)” those of Surefoot."
    )
    reach = "Real steps, violations and time until the final reward of PPO-Lagrangian is reached."
    return Experiment(
        task.lower(),
        f"{task}: reward and cost",
        f"{figure} of the paper: reward and cost on {task}. The default settings of Surefoot for "
        "both model-based algorithms are shown beside the paper's.",
        jobs,
        (
            Claims(goal_claims(task, ppo, lagrangian, cpo, loop, ours)),
            partial(curves, title=f"{task}: learning curves", jobs=jobs, text=text,
                    converged=lagrangian),
            partial(efficiency, title=f"{task}: sample efficiency", jobs=jobs, level=lagrangian,
                    text=reach),
        ),
    )  # fmt: skip


def _beta(task: str, figure: str, betas: tuple[float, ...]) -> Experiment:
    """A sweep over beta; the paper judges beta = H/T on PointGoal only."""
    ours, _ = _paper(task)
    jobs = tuple(replace(ours, changes={"beta": b}, note=f"beta = {b:g}") for b in betas)
    claims = (
        Claim(f"{task}: a lower beta lowers the reward", "reward", "rises", jobs),
        Claim(f"{task}: a lower beta lowers the cost", "cost", "rises", jobs),
        Claim(f"{task}: beta = H/T is not low enough to keep the limit",
              "cost", "above limit", jobs[3:4]),
    )  # fmt: skip
    text = "The multiplier compares the cost of H imagined steps with beta times the limit."
    return Experiment(
        f"beta-{task.lower()}",
        f"{task}: the effect of beta",
        f"{figure} of the paper: reward and cost of MBPPO-Lagrangian for several beta on {task}.",
        jobs,
        (
            Claims(claims if task == "PointGoal" else claims[:2]),
            partial(sweep, title=f"{task}: beta", jobs=jobs, text=text, setting="beta"),
        ),
    )


def _aggregates() -> Experiment:
    tasks = ("PointGoal", "CarGoal")
    unit = tuple(_model_free(task)[0] for task in tasks)
    jobs: tuple[Job, ...] = ()
    for task in tasks:
        ours, loop = _paper(task)
        jobs += (_model_free(task)[1], loop, ours, Job(task, "mbppo-lagrangian"))
    return Experiment(
        "aggregates",
        "Reward and violations at convergence",
        "Figure 4 of the paper: mean, median and interquartile mean over PointGoal and CarGoal.",
        (*unit, *jobs),
        (partial(aggregates, jobs=jobs, unit=unit),),
    )


def _running_time() -> Experiment:
    alone = lambda job: replace(job, steps=TIMED_STEPS, seeds=3, alone=True, note="one seed")
    lagrangian, cpo = map(alone, _model_free("PointGoal")[1:])
    ours, loop = map(alone, _paper("PointGoal"))
    default = replace(ours, preset="default", steps=None)
    paper = (
        (lagrangian, 187.95), (cpo, 266.25), (ours, 21420.91), (loop, 183156.33), (default, None),
    )  # fmt: skip
    claims = (
        Claim("MBPPO-Lagrangian takes less time (0.12 times) than safe-LOOP",
              "seconds", "below", (ours, loop)),
        Claim("MBPPO-Lagrangian takes more time (114 times) than PPO-Lagrangian",
              "seconds", "above", (ours, lagrangian)),
    )  # fmt: skip
    text = (
        "From the start of training to its end, including compilation. Shorter runs are "
        "extrapolated at the pace of their epochs after the first. The default settings of "
        "MBPPO-Lagrangian need far fewer steps than these, and more time for each. The paper used "
        "other hardware."
    )
    return Experiment(
        "running-time",
        "Running time",
        f"Table 2 of the paper: the time for {TIMED_STEPS:,} real steps.",
        tuple(job for job, _ in paper),
        (Claims(claims), partial(running_time, title="Running time", paper=paper, text=text)),
    )


def _validation_loss() -> Experiment:
    ours, _ = _paper("PointGoal")
    free = replace(ours, changes={"constrained": False}, note="no limit")
    text = "The model's validation loss settles sooner without the constraint"
    about = "Error of the model's mean on held-out steps, over the real steps collected."
    return Experiment(
        "validation-loss",
        "Validation loss of the model",
        "Figure 6 of the paper: the model's validation loss with and without the constraint.",
        (ours, free),
        (
            Claims((Claim(text, "settling steps", "below", (free, ours)),)),
            partial(curves, title="Validation loss", jobs=(ours, free), text=about,
                    metrics=("model_error",)),
        ),
    )  # fmt: skip


def _doggo() -> Experiment:
    # The paper trains safety-gym's quadruped on level 1.
    task, level = "DoggoGoalOpenAI", {"level": 1}
    jobs = (*_model_free(task, DOGGO_STEPS)[:2], *_paper(task), Job(task, "mbppo-lagrangian"))
    ppo, lagrangian, ours, loop, default = (replace(job, task_options=level) for job in jobs)
    unlimited = replace(default, changes={"constrained": False}, note="no limit")
    paper = (
        (ppo, "21.3 ± 1.23"), (lagrangian, "1.63 ± 0.46"), (loop, "-0.14 ± 0.05"),
        (ours, "-0.69 ± 0.06"), (default, "-"), (unlimited, "-"),
    )  # fmt: skip
    jobs = tuple(job for job, _ in paper)
    claims = (
        Claim(f"{task}: MBPPO-Lagrangian earns less than PPO-Lagrangian",
              "reward", "below", (ours, lagrangian)),
        Claim(f"{task}: safe-LOOP earns less than PPO-Lagrangian",
              "reward", "below", (loop, lagrangian)),
        Claim(f"{task}: unconstrained PPO earns more than PPO-Lagrangian",
              "reward", "above", (ppo, lagrangian)),
    )  # fmt: skip
    text = "On the quadruped the paper's algorithm fails. Ours is shown with and without the limit."
    return Experiment(
        "doggogoal",
        "DoggoGoal: reward at convergence",
        "Table 3 of the paper.",
        jobs,
        (
            Claims(claims),
            partial(final_table, title="DoggoGoal: reward", paper=paper, text=text),
            partial(curves, title="DoggoGoal: learning curves", jobs=jobs, text=""),
        ),
    )


def _rc_car() -> Experiment:
    ours, loop = _paper("RCCar")
    jobs = (ours, loop, *(replace(job, preset="default", steps=None) for job in (ours, loop)))
    claims = (
        Claim("RCCar: safe-LOOP's reward is not above MBPPO-Lagrangian's",
              "reward", "below", (loop, ours)),
        Claim("RCCar: safe-LOOP's reward varies more over seeds",
              "reward", "varies more", (loop, ours)),
    )  # fmt: skip
    text = f"{RC_STEPS:,} real steps and five seeds, as in the paper. The limit is 5."
    return Experiment(
        "rccar",
        "RC car: reward and cost",
        "Figure 10 of the paper: both model-based algorithms on the RC car. The default settings "
        "of Surefoot are shown beside the paper's.",
        jobs,
        (Claims(claims), partial(curves, title="RCCar: learning curves", jobs=jobs, text=text)),
    )


def _all(*experiments: Experiment) -> Experiment:
    parts = [part for experiment in experiments for part in experiment.parts]
    claims = tuple(c for part in parts if isinstance(part, Claims) for c in part.claims)
    return Experiment(
        "paper",
        "The paper, reproduced",
        "All figures and tables of the paper.",
        tuple(job for experiment in experiments for job in experiment.jobs),
        (Claims(claims), *(part for part in parts if not isinstance(part, Claims))),
    )


POINT_GOAL = _goal("PointGoal", "Figure 2")
CAR_GOAL = _goal("CarGoal", "Figure 3")
RC_CAR = _rc_car()
BETA_POINT_GOAL = _beta("PointGoal", "Figure 1", BETAS)
BETA_CAR_GOAL = _beta("CarGoal", "Figure 8", BETAS)
BETA_RC_CAR = _beta("RCCar", "Figure 9", RC_BETAS)
AGGREGATES = _aggregates()
RUNNING_TIME = _running_time()
VALIDATION_LOSS = _validation_loss()
DOGGO_GOAL = _doggo()
PAPER = _all(
    POINT_GOAL, CAR_GOAL, RC_CAR, BETA_POINT_GOAL, BETA_CAR_GOAL, BETA_RC_CAR, AGGREGATES,
    RUNNING_TIME, VALIDATION_LOSS, DOGGO_GOAL,
)  # fmt: skip
