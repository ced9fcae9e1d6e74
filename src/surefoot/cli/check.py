"""The command `check`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import tyro
from tyro.conf import Positional

from surefoot.cli.output import Json, emit
from surefoot.cli.train import cost_limits_of, options_of

if TYPE_CHECKING:
    from surefoot.runs.folder import Values


def check(
    env: Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]],
    cost: str | None = None,
    cost_limit: tuple[str, ...] = (),
    steps: int = 2_000,
    seconds: float = 20.0,
    seed: int = 0,
    options: Annotated[tuple[str, ...], tyro.conf.arg(name="env")] = (),
    learning: bool = True,
    json_: Json = False,
) -> int:
    """Check an environment before training on it; exit 1 if something stops training.

    Args:
        env: A task's name, a Gymnasium id (also package:Id-v0), or file.py:function.
        cost: Where costs come from, as for train: info:KEY, info:KEY,KEY or
                file.py:function.
        cost_limit: The limit on an episode's cost, or NAME=NUMBER for each constraint.
        steps: Random steps to take.
        seconds: Time for these steps; the first limit counts.
        seed: Seed of the environment and of the actions.
        options: Options of the task, or arguments of your environment, as NAME=VALUE.
        learning: Estimate the time of learning too, which takes some seconds of compiling.
    """
    from surefoot.use.check import check

    limits = cost_limits_of(cost_limit) or None
    result = check(env, cost, limits, steps, seconds, seed, options_of(options), learning)
    emit(json_, result, _lines(result))
    return int(any(problem["stops"] for problem in result["problems"]))


def _lines(result: "Values") -> Iterator[str]:
    steps, seconds = result.get("steps", 0), result.get("seconds", 0.0)
    yield f"{result['env']}: {steps:,} random steps in {seconds:.1f} s"
    for title, text in _rows(result):
        yield f"  {title:<12} {text}"
    yield from (f"note: {note}" for note in result["notes"])
    for problem in result["problems"]:
        yield f"problem: {problem['problem']}  do: {problem['do']}"
    stops = any(problem["stops"] for problem in result["problems"])
    if stops:
        yield "training is not possible yet"
    else:
        see = "training is possible, but see the problems above"
        without = [name for name, cost in result.get("costs", {}).items() if cost["limit"] is None]
        needs = f"ready to train with --cost-limit, which {', '.join(without)} needs"
        yield see if result["problems"] else needs if without else "ready to train"


def _rows(result: "Values") -> Iterator[tuple[str, str]]:
    """Titles and texts, as far as the check came."""
    from surefoot.algorithms.algorithm import WITHOUT_MODEL
    from surefoot.envs.task import BLACK_BOX

    if observed := result.get("observation"):
        text = f"{observed['size']} numbers, {observed['space']}"
        if "from" in observed:
            text += (
                f"; seen from {observed['from']:.3g} to {observed['to']:.3g}, standard deviations "
                f"{observed['smallest_spread']:.2g} to {observed['largest_spread']:.2g}"
            )
        yield "observation", text
        if parts := observed.get("parts"):
            span = lambda first, last: f"{first}" if first == last else f"{first} to {last}"
            yield "", f"flattened: {', '.join(f'{n} {span(*ends)}' for n, ends in parts.items())}"
    if action := result.get("action"):
        many = f"{action['size']} numbers" if "size" in action else f"{action['choices']} choices"
        yield "action", f"{many}, {action['space']}"
    if episodes := result.get("episodes"):
        yield "episodes", _episodes(episodes)
    if reward := result.get("reward"):
        yield "reward", _signal(reward)
    for name, cost in result.get("costs", {}).items():
        kind = "0 or 1" if cost["binary"] else "any size"
        text = f"{_signal(cost)}; {kind}, at {cost['share_of_steps']:.1%} of steps"
        if limit := cost["limit"]:
            text += f"; random episodes cost {cost['episode']['mean'] / limit:.2g} times the limit"
        text += "" if limit is None else f" of {limit:g}" if limit else "; the limit is 0"
        yield f"cost {name}" if name != "cost" else "cost", text
    if "deterministic" in result:
        same = "the same" if result["deterministic"] else "different"
        yield "seed", f"the same seed and actions give {same} steps"
    if "steps_per_second" in result:
        yield (
            "speed",
            f"{result['steps_per_second']:,.0f} steps per second, one environment at a time",
        )
    if "snapshot" in result:
        exact = "supported: a run resumes exactly"
        yield "snapshot", exact if result["snapshot"] else "none: a resumed run begins new episodes"
    if "known_cost" in result:
        possible = "possible: --known cost gives the cost function to the model"
        yield "known cost", possible if result["known_cost"] else "not possible"
    fits = result.get("algorithms", {})
    if fits:
        yield "algorithms", ", ".join(name for name in fits if fits[name] is None) or "none"
    for reason in dict.fromkeys(filter(None, fits.values())):
        yield "", f"not {', '.join(name for name in fits if fits[name] == reason)}: {reason}"
    if settings := result.get("settings"):
        yield "settings", f"mbppo-lagrangian on {result['device']}: {result['summary']}"
        parts = {"environment": "the environment", "learning": "learning"}
        times = [
            f"{_minutes(result[f'{name}_seconds'])} of {words}"
            for name, words in parts.items()
            if f"{name}_seconds" in result
        ]
        yield "time", f"about {' and '.join(times)} for {settings['steps']:,} real steps here"
        if settings["model"] == BLACK_BOX and fits.get(WITHOUT_MODEL, "") is None:
            yield "also try", f"--algorithm {WITHOUT_MODEL}, which learns from real steps alone"


def _minutes(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 100 else f"{seconds / 60:,.0f} min"


def _episodes(episodes: "Values") -> str:
    declared, lengths = episodes["max_episode_steps"], episodes["steps"]
    limit = f"time limit {declared:,} steps" if declared else "no time limit declared"
    if lengths is None:
        return f"none ended within {episodes['longest']:,} steps; {limit}"
    return (
        f"{episodes['finished']} ended after {lengths['min']:,.0f} to {lengths['max']:,.0f} steps, "
        f"mean {lengths['mean']:,.0f}: {episodes['terminated']} terminated, "
        f"{episodes['truncated']} at a time limit; {limit}"
    )


def _signal(signal: "Values") -> str:
    """Per step and per episode."""
    step, episode = signal["step"], signal["episode"]
    text = (
        f"{step['mean']:.3g} ± {step['std']:.2g} per step ({step['min']:.3g} to {step['max']:.3g})"
    )
    if "estimated" in episode:
        return f"{text}; about {episode['mean']:.3g} per episode"
    return f"{text}; {episode['mean']:.3g} ± {episode['std']:.2g} per episode"
