"""Which claim of the paper is judged by which runs."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from surefoot.experiments.job import Job
from surefoot.experiments.results import Results
from surefoot.experiments.sections import time_for
from surefoot.paper import claims
from surefoot.paper.claims import Claim
from surefoot.report.data import Group

Judge = Callable[..., Claim]


def goal_claims(
    results: Results, ppo: Job, lagrangian: Job, cpo: Job, loop: Job, ours: Job
) -> list[Claim]:
    """Of a Goal task: reward, cost and violations against the baselines."""
    reward = lambda group: group.final("reward")
    name = ours.task
    return [
        _judged(
            results, f"{name}: MBPPO-Lagrangian comes to the reward of converged PPO-Lagrangian",
            (ours, lagrangian),
            lambda text, a, b: _with_doubt(claims.at_least(text, reward(a), reward(b)), b),
        ),
        _judged(
            results, f"{name}: MBPPO-Lagrangian ends with policies that keep the limit",
            (ours,), lambda text, a: claims.within_limit(text, a.final("cost"), a.cost_limit),
        ),
        _judged(
            results, f"{name}: MBPPO-Lagrangian earns more than safe-LOOP over the same real steps",
            (ours, loop), _earns_more,
        ),
        _judged(
            results, f"{name}: fewer violations until convergence than PPO-Lagrangian",
            (ours, lagrangian),
            lambda text, a, b: claims.at_most(text, a.violations, b.violations),
        ),
        _judged(
            results, f"{name}: in violations competitive with safe-LOOP over the same real steps",
            (ours, loop),
            lambda text, a, b: claims.competitive(text, *_violations_together(a, b)),
        ),
        _judged(
            results, f"{name}: PPO-Lagrangian ends with policies that keep the limit",
            (lagrangian,), lambda text, a: claims.within_limit(text, a.final("cost"), a.cost_limit),
        ),
        _judged(
            results, f"{name}: CPO ends with policies that break the limit",
            (cpo,), lambda text, a: claims.breaks_limit(text, a.final("cost"), a.cost_limit),
        ),
        _judged(
            results, f"{name}: PPO without a constraint earns more than MBPPO-Lagrangian",
            (ppo, ours), lambda text, a, b: claims.at_least(text, reward(a), reward(b)),
        ),
    ]  # fmt: skip


def beta_claims(results: Results, jobs: Sequence[Job], horizon_share: Job | None) -> list[Claim]:
    """Of a sweep of beta; `horizon_share` is the job whose beta is H/T, if the paper judges it.

    Two that have come to their end are enough; those that have not are left out, and told.
    """
    there = results.ended(jobs)
    judged = [job for job, _ in there]
    without = ", ".join(job.note for job in jobs if job not in judged)
    name = jobs[0].task
    found = []
    for metric in ("reward", "cost"):
        text = f"{name}: the lower beta, the lower the {metric}"
        if len(there) < 2:
            found.append(claims.unjudged(text, results.lacking(jobs)))
            continue
        betas = [float(job.changes["beta"]) for job, _ in there]
        claim = claims.rises_with(text, betas, _alike(metric, *(group for _, group in there)))
        if without:
            claim = replace(claim, by=f"{claim.by}; without {without}")
        found.append(_at_the_end(results, claim, judged))
    if horizon_share is not None:
        found.append(_judged(
            results, f"{name}: beta = H/T is not enough to keep the limit", (horizon_share,),
            lambda text, a: claims.breaks_limit(text, a.final("cost"), a.cost_limit),
        ))  # fmt: skip
    return found


def time_claims(results: Results, lagrangian: Job, loop: Job, ours: Job, steps: int) -> list[Claim]:
    """Of the running time for so many real steps."""
    times = lambda group: np.array([time_for(run.rows, steps) for run in group.runs])
    return [
        _judged(
            results, "MBPPO-Lagrangian takes a fraction (0.12) of safe-LOOP's time",
            (ours, loop), lambda text, a, b: claims.at_most(text, times(a), times(b), "s"),
        ),
        _judged(
            results, "MBPPO-Lagrangian takes longer (114 times) than PPO-Lagrangian",
            (ours, lagrangian), lambda text, a, b: claims.at_least(text, times(a), times(b), "s"),
        ),
    ]  # fmt: skip


def loss_claims(results: Results, free: Job, ours: Job) -> list[Claim]:
    """Of the model's error on held-out steps, without and with the constraint."""
    return [
        _judged(
            results, "The model's validation loss converges sooner without the constraint",
            (free, ours),
            lambda text, a, b: claims.settles_sooner(
                text, a.curve("model_error"), b.curve("model_error")
            ),
        )
    ]  # fmt: skip


def doggo_claims(results: Results, ppo: Job, lagrangian: Job, loop: Job, ours: Job) -> list[Claim]:
    """Of the quadruped, on which the paper's algorithm fails."""
    reward = lambda group: group.final("reward")
    return [
        _judged(
            results, f"DoggoGoal: {name} earns no more than PPO-Lagrangian", (job, lagrangian),
            lambda text, a, b: claims.at_most(text, reward(a), reward(b)),
        )
        for name, job in (("MBPPO-Lagrangian", ours), ("safe-LOOP", loop))
    ] + [
        _judged(
            results, "DoggoGoal: PPO without a constraint earns more than PPO-Lagrangian",
            (ppo, lagrangian), lambda text, a, b: claims.at_least(text, reward(a), reward(b)),
        )
    ]  # fmt: skip


def car_claims(results: Results, loop: Job, ours: Job) -> list[Claim]:
    """Of the RC car, where both model-based algorithms do well."""
    reward = lambda group: group.final("reward")
    return [
        _judged(
            results, "RCCar: safe-LOOP's reward is not above MBPPO-Lagrangian's beyond the scatter",
            (loop, ours), lambda text, a, b: claims.competitive(text, reward(a), reward(b)),
        ),
        _judged(
            results, "RCCar: safe-LOOP's reward varies more from seed to seed",
            (loop, ours), lambda text, a, b: claims.scatters_more(text, reward(a), reward(b)),
        ),
    ]  # fmt: skip


def _judged(results: Results, text: str, jobs: Sequence[Job], judge: Judge) -> Claim:
    groups = [results.group(job) for job in jobs]
    lacking = results.lacking(jobs)
    if lacking:
        return claims.unjudged(text, lacking)
    return _at_the_end(results, judge(text, *groups), jobs)


def _at_the_end(results: Results, claim: Claim, jobs: Sequence[Job]) -> Claim:
    unfinished = results.unfinished(jobs)
    return claims.so_far(claim, unfinished) if unfinished else claim


def _earns_more(text: str, a: Group, b: Group) -> Claim:
    """Of rewards after as many real steps; and what comes of the longer one in the end."""
    if a.info["config"]["steps"] == b.info["config"]["steps"]:
        here, there = _alike("reward", a, b)
        return _with_doubt(claims.at_least(text, here, there), b)
    steps = min(a.real_steps, b.real_steps)
    here, there = (group.by_epochs("reward", steps) for group in (a, b))
    found = claims.at_least(text, here, there, f"after {steps:,} real steps")
    if b.real_steps == steps:
        found = _with_doubt(found, b)
    longer = a if b.real_steps == steps else b
    end = f"{longer.final('reward').mean():.3g} after {longer.real_steps:,}"
    return replace(found, by=f"{found.by}; {longer.label} comes to {end}")


def _alike(name: str, *groups: Group) -> list[np.ndarray]:
    """A metric of each group's seeds at the end: on fresh episodes, if all have met some."""
    evaluated = all(run.evaluation for group in groups for run in group.runs)
    return [group.final(name) if evaluated else group.by_epochs(name) for group in groups]


def _with_doubt(claim: Claim, level: Group) -> Claim:
    """A claim about a converged group says so, if it has not."""
    if not claims.still_rising(*level.curve("reward")):
        return claim
    return replace(claim, by=f"{claim.by}; but {level.label} still rises at its end")


def _violations_together(a: Group, b: Group) -> tuple[np.ndarray, np.ndarray]:
    """Violations of each seed by the last real step that both have come to."""
    steps = min(a.real_steps, b.real_steps)
    at = lambda curve: np.array([np.interp(steps, curve[0], v) for v in curve[1].T])
    return at(a.curve("violations")), at(b.curve("violations"))
