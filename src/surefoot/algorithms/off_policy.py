"""What the off-policy algorithms share: rounds of a few real steps and a few updates."""

from typing import Any

import jax
import numpy as np

from surefoot.algorithms.dataset import Dataset
from surefoot.algorithms.experience import Experience
from surefoot.algorithms.seeds import flatten_steps
from surefoot.algorithms.trainer import Problem
from surefoot.core.config import check
from surefoot.core.policy import Policy
from surefoot.core.spaces import ActionSpec
from surefoot.learn import sac
from surefoot.learn.replay import Transitions


def check_rounds(config: Any) -> None:
    """Check a config whose fields say how steps and updates alternate."""
    check(config)
    for name, part in (("update_every", "environments"), ("steps_per_epoch", "update_every")):
        whole, unit = getattr(config, name), getattr(config, part)
        if whole % unit:
            near = -(-whole // unit) * unit
            raise ValueError(f"{name}={whole} must be a multiple of {part}={unit}, such as {near}")
    if config.replay < config.steps_per_epoch:
        raise ValueError(
            f"replay={config.replay} must be at least steps_per_epoch={config.steps_per_epoch}"
        )


def environments(config: Any, episode_steps: int) -> int:
    """As many environments as the config says."""
    return config.environments


def check_actions(actions: ActionSpec) -> None:
    """Raise a ValueError unless actions are a Box with finite bounds."""
    if actions.discrete:
        raise ValueError(
            f"action_space=Discrete({actions.size}): SAC and safe-LOOP need a Box; ppo-lagrangian, "
            f"cpo and mbppo-lagrangian support discrete actions"
        )
    bounds = np.array([actions.low, actions.high])
    if not (np.isfinite(bounds).all() and (bounds[0] < bounds[1]).all()):
        raise ValueError(
            f"action_space=Box({actions.low}, {actions.high}): SAC and safe-LOOP need finite "
            f"bounds, the lower below the upper"
        )


def replay_buffer(config: Any, problem: Problem) -> Dataset:
    """An empty replay buffer with room for `config.replay` steps, or all of them if fewer."""
    every = config.update_every
    capacity = min(config.replay, -(-config.steps // every) * every)
    return Dataset(capacity, len(problem.seeds))


def transitions(experience: Experience, actions: ActionSpec) -> dict[str, np.ndarray]:
    """Real steps as rows of a replay buffer, [S, N, …]."""
    unit = sac.to_unit(actions, flatten_steps(experience.action))
    return {
        "obs": flatten_steps(experience.obs),
        "action": np.asarray(unit, np.float32),
        "reward": flatten_steps(experience.reward),
        "next_obs": flatten_steps(experience.next_obs),
        "terminated": flatten_steps(experience.terminated),
    }


def as_transitions(buffer: Dataset) -> Transitions:
    """A replay buffer's rows as learners take them."""
    return Transitions(**buffer.rows)  # type: ignore[arg-type]


def squashed_policy(learner: sac.Learner, actions: ActionSpec) -> Policy:
    """The policies of a learner with a leading axis of seeds, for acting."""
    network = jax.device_get(learner.networks.actor.network)
    low, high = (np.asarray(x, np.float32) for x in (actions.low, actions.high))
    return Policy(tuple(network.weights), tuple(network.biases), None, low, high, kind="squashed")
