"""What was asked of `train`, checked before anything is begun; contradictions are explained."""

import math
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any

from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.algorithms.presets import algorithm_of
from surefoot.envs.task import find_task

MOST_SEEDS = 10_000
RESERVED = ("task", "name", "num_envs", "seed", "render_mode")
"""Arguments of `make` that a run sets itself."""


def check_run(seeds: Any, seed: Any, checkpoint_every: Any, keep: Any) -> None:
    """Complain of what is no part of a config."""
    if not (isinstance(seeds, int) and 1 <= seeds <= MOST_SEEDS):
        raise ValueError(f"seeds={seeds} must be a whole number from 1 to {MOST_SEEDS}")
    if not (isinstance(seed, int) and 0 <= seed <= 2**32 - seeds):
        raise ValueError(f"seed={seed} must be a whole number, 0 or more, and all below 2**32")
    if checkpoint_every is not None and not 0 <= checkpoint_every < math.inf:
        raise ValueError(f"checkpoint_every={checkpoint_every} must be seconds, 0 or more")
    if not (isinstance(keep, int) and keep >= 1):
        raise ValueError(f"keep={keep} must be a whole number of at least 1")


def changed(config: Any, changes: dict[str, Any]) -> Any:
    """A config with fields changed by name."""
    names = [f.name for f in fields(config)]
    for change in changes:
        if change not in names:
            raise ValueError(
                f"{type(config).__name__} has no field {change!r}{_hint(change, names)}"
            )
    return replace(config, **changes)


def check_algorithm(wanted: str | None, config: Any) -> str:
    """The algorithm of a config, which must be the one that was asked for, if one was."""
    algorithm = algorithm_of(config)
    if wanted is not None and wanted != algorithm:
        if {wanted, algorithm} == {"ppo", "ppo-lagrangian"}:
            why = f"with constrained={config.constrained} this is {algorithm}"
        else:
            why = f"config is a {type(config).__name__}, which is for {algorithm}"
        raise ValueError(f"algorithm={wanted!r} contradicts the config: {why}; leave one out")
    usual = PPOLagrangianConfig().multiplier
    if algorithm == "ppo" and config.multiplier != usual:
        raise ValueError(
            f"multiplier={config.multiplier.kind!r} contradicts algorithm='ppo', which keeps no "
            f"limit and so has no multiplier; did you mean ppo-lagrangian?"
        )
    return algorithm


def check_options(task: str, options: dict[str, Any], config: Any) -> None:
    """Complain of task options that a run sets itself, and of an observation there is not."""
    for name in RESERVED:
        if name in options:
            raise ValueError(f"{name}={options[name]!r} is no option of a task; see surefoot envs")
    repeat, model = options.get("action_repeat", 1), getattr(config, "model", "black-box")
    if repeat != 1 and model != "black-box":
        raise ValueError(
            f"the task option action_repeat={repeat!r} contradicts model={model!r}, which judges "
            f"costs where an action ends, and so would miss those on the way; set model='black-box'"
            + (f", or planner.hold={repeat!r} instead" if hasattr(config, "planner") else "")
        )
    names = getattr(find_task(task).env, "observations", ())
    if not names:
        return
    if hasattr(config, "model"):
        field, seen = "model", config.model
        if seen == "black-box":  # which takes any observation
            return
    else:
        field, seen = "observation", config.observation
        if seen not in names:
            known = f"must be one of {', '.join(names)}"
            raise ValueError(f"observation={seen!r} {known}{_hint(seen, names)}")
    if options.get("observation", seen) != seen:
        raise ValueError(
            f"the task option observation={options['observation']!r} contradicts {field}={seen!r} "
            f"of the config, which says what the policy sees; leave it out"
            + (f" and set {field} instead" if field == "observation" else "")
        )


def _hint(word: str, known: Any) -> str:
    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
