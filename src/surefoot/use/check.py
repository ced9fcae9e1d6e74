"""Check an environment before training on it: what it is, what fits it, and what stops it."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import numpy as np
from gymnasium.spaces import Discrete

from surefoot.algorithms.algorithm import Overrides
from surefoot.core.config import Count, Positive, check_values
from surefoot.core.spaces import UNBOUNDED
from surefoot.envs.base import TaskEnv
from surefoot.envs.gym import snapshot as snapshots
from surefoot.envs.gym.adapted import Cost, MissingCost, numbers_of
from surefoot.envs.task import GYMNASIUM_ID, Task, find_task
from surefoot.runs.folder import Values
from surefoot.runs.known import OWN, check_parts
from surefoot.runs.setup import CostLimits, MakeEnv, limits_by_name
from surefoot.use.forecast import training
from surefoot.use.probe import (
    Seen,
    advance,
    finite_or_none,
    indices,
    random_steps,
    short,
    statistics,
)

TINY, HUGE = 1e-3, 1e3
"""Scales outside of which observations and actions are pointed out."""
TWICE = 500
"""Steps that are taken a second time, to see whether they are the same."""


@dataclass
class Report:
    """What is reported about an environment, piece by piece."""

    values: Values = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[Values] = field(default_factory=list)

    def problem(self, problem: str, do: str, stops: bool = False) -> None:
        self.problems.append({"problem": problem, "do": do, "stops": stops})

    def result(self) -> Values:
        return {**self.values, "notes": self.notes, "problems": self.problems}


def check(
    env: str | Task | MakeEnv,
    cost: Cost | None = None,
    cost_limit: CostLimits | None = None,
    steps: int = 2_000,
    seconds: float = 20.0,
    seed: int = 0,
    task_options: Overrides | None = None,
    learning: bool = True,
) -> Values:
    """Try an environment with random actions; returns a report in plain values.

    `problems` lists what is wrong, what to do about it, and whether it stops training; `notes`
    point out what may be right. `environment_seconds` and `learning_seconds` estimate the time of
    the default training on this machine.

    Args:
        env: Whatever `train` takes: a task's name, a Gymnasium id, a reference
            (`file.py:make_env`), a `Task`, or a function that makes environments.
        cost: As for `train`.
        cost_limit: As for `train`; the task's if not given.
        steps: Random steps to take.
        seconds: Time for these steps; the first limit counts.
        seed: Seed of the environment and of the actions.
        task_options: Options of the task.
        learning: Estimate `learning_seconds` too, which takes some seconds of compiling.
    """
    check_values({"steps": steps, "seconds": seconds}, {"steps": Count, "seconds": Positive})
    report, task = Report(), find_task(env, cost)
    options: Values = dict(task_options or {})
    if cost is not None:
        options.pop("cost", None)
    report.values |= {"env": task.name, "device": jax.default_backend()}
    try:
        made = task.make(1, **options)
        limits = cost_limit if cost_limit is not None else task.cost_limits
        limits = limits_by_name(limits, made.cost_names, task.name) if limits != {} else ()
    except Exception as error:  # whatever a user's function raises
        problem, _, do = str(error).partition("; ")
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        report.problem(f"{kind}{problem}", do or "correct this, then check again", stops=True)
        return report.result()
    seen = random_steps(made, seed, 1, 1.0)
    missing = isinstance(seen.cause, MissingCost)
    if missing:
        do = "pass --cost info:KEY, or --cost file.py:function of (obs, action, next_obs)"
        reason = str(seen.cause).partition("; ")[0]
        report.problem(f"costs are missing: {reason}", do, stops=True)
        # The rest can be checked all the same.
        options["cost"] = lambda obs, action, next_obs: np.zeros(len(obs))
        made, limits = task.make(1, **options), limits[:1]
    _spaces(report, made)
    seen = random_steps(made, seed, steps, seconds)
    sound = _faults(report, seen)
    report.values |= {"steps": len(seen.reward), "seconds": round(seen.seconds, 3)}
    seen = seen.finite()
    if len(seen.reward):
        report.values["steps_per_second"] = len(seen.reward) / seen.seconds
        _scales(report, made, seen)
        registered = isinstance(env, str) and bool(GYMNASIUM_ID.match(env))
        _episodes(report, made, seen, registered)
        _signals(report, made, seen, () if missing else made.cost_names, limits)
    if sound:
        _repeats(report, task.make(1, **options), seed, seen, seconds / 4)
        _snapshots(report, made)
        if not made.max_episode_steps:  # reported already
            made.max_episode_steps = report.values["episodes"]["longest"]
        rate = report.values["steps_per_second"]
        report.values |= training(task, made, options, limits, rate, learning)
        reasons = list(report.values["algorithms"].values())
        if None not in reasons:
            problem, _, do = str(reasons[0]).partition("; ")
            report.problem(problem, do or "correct this, then check again", stops=True)
        if not missing and getattr(made, "cost_function", None) is not None:
            _known_cost(report, made)
    return report.result()


def _spaces(report: Report, env: TaskEnv) -> None:
    """Spaces, and the ranges of actions."""
    observed, acted = env.single_observation_space, env.single_action_space
    native = getattr(env, "native_spaces", (observed, acted))
    report.values["observation"] = {"space": short(native[0]), "size": observed.shape[0]}
    if parts := numbers_of(native[0]):
        ends = np.cumsum([size for _, size in parts]).tolist()
        numbers = {
            name: [end - size, end - 1] for (name, size), end in zip(parts, ends, strict=True)
        }
        report.values["observation"]["parts"] = numbers
    action = {"space": short(native[1])}
    if isinstance(acted, Discrete):
        report.values["action"] = {**action, "choices": int(acted.n)}
        return
    low, high = acted.low, acted.high
    bounds = {"low": finite_or_none(low), "high": finite_or_none(high)}
    report.values["action"] = {**action, "size": len(low), **bounds}
    width = high.astype(float) - low.astype(float)
    free = ~(width < UNBOUNDED)
    half = np.where(free, 1.0, width / 2)
    for rows, words in (
        (free, "no bounds: policies begin at the scale of 1. Declare bounds if another is usual"),
        (half > HUGE, f"a range of up to {2 * half.max():g}"),
        ((half < TINY) & (half > 0), f"a range of only {2 * half.min():g}"),
    ):
        if rows.any():
            report.notes.append(f"action {indices(rows)} has {words}")
    if (half <= 0).any():
        do = "leave it out of the action space"
        report.problem(f"action {indices(half <= 0)} has one value only", do)


def _faults(report: Report, seen: Seen) -> bool:
    """Report exceptions and numbers that are not finite; returns whether there were none."""
    before = len(report.problems)
    if seen.fault is not None:
        text = f"{type(seen.fault).__name__}: {seen.fault}".removeprefix("EnvironmentFault: ")
        do = "correct the environment or its cost; nothing after this step was checked"
        report.problem(text, do, stops=True)
    first = np.zeros(0) if seen.first is None else seen.first
    for name, values, when in (
        ("observation", first[None], "after reset"),
        ("observation", seen.obs, f"after {len(seen.obs)} random steps"),
        ("reward", seen.reward, f"in random step {len(seen.obs)}"),
        ("cost", seen.cost, f"in random step {len(seen.obs)}"),
    ):
        bad = ~np.isfinite(values)
        if bad.any():
            place = " ".join([name, *map(str, np.argwhere(bad)[0][1:])])
            report.problem(
                f"{place} is {values[bad][0]} {when}",
                "return finite numbers; end the episode where the simulation fails",
                stops=True,
            )
    return len(report.problems) == before


def _scales(report: Report, env: TaskEnv, seen: Seen) -> None:
    space, obs = env.single_observation_space, seen.obs
    low, high, spread = obs.min(0), obs.max(0), obs.std(0)
    moves = spread > 0
    report.values["observation"] |= {
        "from": float(low.min()),
        "to": float(high.max()),
        "smallest_spread": float(spread[moves].min()) if moves.any() else 0.0,
        "largest_spread": float(spread.max()),
        "constant": np.flatnonzero(~moves).tolist(),
    }
    size = np.maximum(np.abs(low), np.abs(high))
    slack = 1e-4 * np.maximum(1.0, size)  # of rounding
    outside = (low < space.low - slack) | (high > space.high + slack)
    if outside.any():
        i = int(np.argmax(outside))
        report.problem(
            f"observation {indices(outside)} leaves its Box: number {i} goes from {low[i]:g} to "
            f"{high[i]:g}, declared are {space.low[i]:g} to {space.high[i]:g}",
            "widen observation_space, or clip the observation",
        )
    for rows, words in (
        (~moves & (len(obs) > 1), "never changed"),
        (size > HUGE, f"is huge, up to {size.max():g}"),
        (moves & (spread < TINY), f"hardly changes, by {spread[moves].min(initial=TINY):.2g}"),
    ):
        if rows.any():
            report.notes.append(f"observation {indices(rows)} {words}")


def _episodes(report: Report, env: TaskEnv, seen: Seen, registered: bool) -> None:
    """Lengths and ends of episodes."""
    lengths = np.array([end - start for start, end in seen.episodes()], int)
    running = len(seen.reward) - lengths.sum()
    longest, declared = int(max([*lengths, running])), env.max_episode_steps
    cut = lengths[seen.truncated[np.cumsum(lengths) - 1]]
    report.values["episodes"] = {
        "finished": len(lengths),
        "terminated": int(seen.terminated.sum()),
        "truncated": len(cut),
        "steps": statistics(lengths),
        "longest": longest,
        "max_episode_steps": declared,
    }
    number = int(cut.max()) if len(cut) else "N"
    declare = (
        f"--env \"kwargs={{'max_episode_steps': {number}}}\""
        if registered
        else f"give the environment an attribute max_episode_steps = {number}, or wrap it in "
        f"gymnasium.wrappers.TimeLimit(env, {number})"
    )
    if not declared:
        how = "ended itself" if longest in lengths else "had not ended"
        report.problem(
            f"no time limit is declared; the longest episode {how} after {longest:,} steps",
            declare,
            stops=True,
        )
    elif longest > declared:
        report.problem(
            f"an episode went on for {longest:,} steps, though max_episode_steps={declared:,}",
            "return truncated=True at the time limit, or declare the true one",
        )
    elif len(cut) and len(set(cut.tolist())) == 1 and cut[0] < declared:
        report.problem(
            f"episodes are cut after {cut[0]:,} steps, though max_episode_steps={declared:,}",
            declare,
        )


def _signals(
    report: Report, env: TaskEnv, seen: Seen, costs: Sequence[str], limits: tuple[float, ...]
) -> None:
    """Reward and costs per step and per episode."""
    scale = env.max_episode_steps or report.values["episodes"]["longest"]
    report.values |= {"reward": seen.signal(seen.reward, scale), "costs": {}}
    if len(seen.reward) > 1 and not seen.reward.std():
        report.notes.append(f"the reward was {seen.reward[0]:g} in every step")
    for i, name in enumerate(costs):
        cost = seen.cost[:, i]
        signal = seen.signal(cost, scale)
        limit, mean = limits[i] if limits else None, signal["episode"]["mean"]
        binary = bool(np.isin(cost, (0.0, 1.0)).all())
        signal |= {"binary": binary, "share_of_steps": float((cost > 0).mean()), "limit": limit}
        report.values["costs"][name] = signal
        if (cost < 0).any():
            report.problem(
                f"{name} is negative, down to {cost.min():g}; models learn such costs as 0",
                "return costs of at least 0, and benefits as reward",
            )
        elif not cost.any():
            report.notes.append(f"{name} was 0 in every random step")
        if limit is None:
            report.notes.append(
                f"{name} has no limit yet; training needs --cost-limit. Random actions cost "
                f"{mean:.3g} per episode"
            )
        elif binary and limit >= scale:
            report.notes.append(f"the limit of {limit:g} on {name} can never be exceeded")


def _repeats(report: Report, env: TaskEnv, seed: int, seen: Seen, seconds: float) -> None:
    """Whether a second copy takes the same steps."""
    again = advance(env, seen.action[:TWICE], seconds, seed)
    same = seen.same_until(again)
    report.values["deterministic"] = same == len(again.reward) and again.fault is None
    if not report.values["deterministic"]:
        report.problem(
            f"two copies with the same seed and actions differ from step {same + 1} on",
            "call super().reset(seed=seed), and draw all random numbers from self.np_random",
        )


def _snapshots(report: Report, env: TaskEnv) -> None:
    """Whether the environment continues exactly from a snapshot."""
    actions = [np.asarray(env.single_action_space.sample()) for _ in range(5)]
    report.values["snapshot"] = False
    try:
        saved = copy.deepcopy(snapshots.snapshot(env))
        if saved is None:
            return
        first = advance(env, actions, 1.0)
        env.restore(saved)
        again = advance(env, actions, 1.0)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    else:
        problem = "the steps after restore differ from those after snapshot"
        report.values["snapshot"] = first.fault is None and first.same_until(again) == 5
    if not report.values["snapshot"]:
        report.problem(
            f"snapshot and restore fail: {problem}",
            "save all that the next steps depend on; see surefoot.envs.gym.snapshot",
        )


def _known_cost(report: Report, env: TaskEnv) -> None:
    """Whether the environment's cost function can be a known part of the model."""
    try:
        check_parts({"cost": OWN}, env)
        report.values["known_cost"] = True
    except Exception as error:
        report.values["known_cost"] = False
        report.notes.append(f"the model must learn the cost; --known cost is refused: {error}")
