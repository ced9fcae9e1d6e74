"""The loop that model-free algorithms share: collect real steps, update on them, report.

An algorithm brings `init` and `update`, pure functions for one seed; the loop compiles both for
all seeds at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from surefoot.algorithms.collect import Collector, Experience, numpy_policy
from surefoot.algorithms.common import (
    Epoch,
    Phases,
    TrainingFault,
    all_finite,
    new_totals,
    over_seeds,
    real_metrics,
    seed_keys,
)
from surefoot.core.config import check_types
from surefoot.core.snapshot import Saved
from surefoot.core.spaces import ActionSpec, action_spec
from surefoot.learn import multiplier, ppo
from surefoot.learn.multiplier import MultiplierConfig


@dataclass(frozen=True)
class Sizes:
    """What a learner must know of the environment."""

    obs: int
    actions: ActionSpec
    constraints: int


class State(eqx.Module):
    """Everything that learns."""

    learner: ppo.Learner
    key: Key[Array, ""]


class Measured(eqx.Module):
    """What the episodes that ended last were like on average."""

    cost: Float[Array, " k"]
    """Undiscounted cost of an episode; NaN before the first one has ended."""
    length: Float[Array, ""]
    """Steps of an episode."""


Init = Callable[[Any, Sizes, Key[Array, ""]], State]
"""`init(config, sizes, key)`."""
Update = Callable[[Any, State, ppo.Batch, Measured], tuple[State, dict[str, Array]]]
"""`update(config, state, batch, measured)`; every metric it returns is one number, and recorded."""


def check_schedule(config: Any) -> None:
    """Complain of the fields that all model-free configs have."""
    check_types(config)
    for name in ("steps", "steps_per_epoch"):
        if getattr(config, name) < 1:
            raise ValueError(f"{name}={getattr(config, name)} must be at least 1")
    if not config.cost_limit >= 0:
        raise ValueError(f"cost_limit={config.cost_limit} must not be negative")


def follow_cost(
    config: MultiplierConfig, learner: ppo.Learner, cost: Float[Array, " k"], limit: float
) -> tuple[ppo.Learner, Float[Array, " k"]]:
    """Move the learner's multipliers by the measured cost; returns lambda too."""
    moved = multiplier.update(config, learner.multiplier, cost, jnp.full_like(cost, limit))
    learner = eqx.tree_at(lambda s: s.multiplier, learner, moved)
    return learner, multiplier.value(config, moved)


def to_batch(experience: Experience) -> ppo.Batch:
    """Real steps as the learner takes them, with a leading axis of seeds."""
    real: Any = experience  # numpy arrays; the compiled update takes them as they are
    aligned = not real.ended[:, :-1].any()  # episodes end only with the last row
    follow = real.next_obs[:, -1:] if aligned else real.next_obs
    last = np.zeros_like(real.ended)
    last[:, -1] = True
    return ppo.Batch(
        obs=real.obs,
        action=real.action,
        reward=real.reward,
        cost=real.cost,
        next_obs=follow,
        terminated=real.terminated,
        ended=real.ended | last,
    )


def measure(experience: Experience, before: Measured) -> Measured:
    """Means over the episodes that ended; of a seed without any, what was known before stands."""
    cost, length = np.array(before.cost), np.array(before.length)
    for s, episodes in enumerate(experience.episodes):
        if len(episodes.cost):
            cost[s], length[s] = episodes.mean_cost(), episodes.length.mean()
    return Measured(cost, length)  # type: ignore[arg-type]  # numpy, as in `to_batch`


def guess(experience: Experience, measured: Measured) -> Measured:
    """What was measured; of seeds without any episode so far, what the steps tell of its cost."""
    known, length = np.asarray(measured.cost), np.asarray(measured.length)
    steps = experience.cost.mean((1, 2)) * length[:, None]
    return Measured(np.where(np.isnan(known), steps, known), measured.length)  # type: ignore[arg-type]


def epochs(
    config: Any,
    init: Init,
    update: Update,
    make_env: Callable[[int, str], Any],
    seeds: list[int],
    remedy: str,
    saved: Saved | None = None,
) -> Iterator[Epoch]:
    """Train, one epoch at a time. `make_env(n, observation)` makes n environments.

    `remedy` is what to try where numbers stop being finite. With `saved`, a snapshot of an epoch
    read back, training goes on from there.
    """
    length = make_env(1, config.observation).max_episode_steps or 1000
    per_seed = max(1, config.steps_per_epoch // length)
    many = len(seeds)
    env = make_env(many * per_seed, config.observation)
    actions = action_spec(env.single_action_space)
    sizes = Sizes(env.single_observation_space.shape[0], actions, len(env.cost_names))
    begin = over_seeds(lambda key: init(config, sizes, key), many)
    updating = over_seeds(lambda *args: update(config, *args), many)
    collector = Collector(env, seeds, per_seed)
    state = begin(seed_keys(seeds))
    phases, totals = Phases(), new_totals(many)
    measured = Measured(
        np.full((many, sizes.constraints), np.nan, np.float32),  # type: ignore[arg-type]
        np.full(many, length, np.float32),  # type: ignore[arg-type]
    )
    total = -(-config.steps // (per_seed * length))
    if saved is not None:
        state, totals = saved.like("state", state), saved.like("totals", totals)
        measured, phases = saved.like("measured", measured), Phases(saved.part("phases"))
        collector.restore(saved.part("collector"), totals["epoch"])
    for number in range(totals["epoch"], total):
        with phases("collect"):
            policy = numpy_policy(state.learner, actions)
            experience = collector.collect(policy, actions, length)
        with phases("update"):
            measured = measure(experience, measured)
            told = guess(experience, measured)
            state, metrics = jax.block_until_ready(updating(state, to_batch(experience), told))
        rows = real_metrics(experience, totals, config.cost_limit)
        add_metrics(rows, jax.device_get(metrics))
        check_finite(rows, metrics, state.learner, remedy)
        policy = numpy_policy(state.learner, actions)
        with phases("save"):
            where = collector.snapshot()
        seconds = phases.seconds()
        snapshot = {
            "state": state,
            "totals": totals,
            "measured": measured,
            "phases": seconds,
            "collector": where,
        }
        yield Epoch(number + 1, total, rows, state, policy, seconds, snapshot)


def add_metrics(rows: list[dict[str, Any]], metrics: dict[str, np.ndarray]) -> None:
    """Give each seed's row its part of the update's metrics, arrays of [S]."""
    for s, row in enumerate(rows):
        row |= {name: values[s].item() for name, values in metrics.items()}


def check_finite(
    rows: list[dict[str, Any]], metrics: dict[str, Any], learner: ppo.Learner, remedy: str
) -> None:
    """Stop where numbers went wrong; the last step may have broken what metrics do not show."""
    finite = all_finite((learner, metrics))
    for row, fine in zip(rows, finite, strict=True):
        if not fine:
            raise TrainingFault(
                f"seed {row['seed']}: the update of epoch {row['epoch']} became NaN or infinite. "
                f"Try {remedy}"
            )
