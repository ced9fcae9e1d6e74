"""The imagined rollouts of a pass: where they start, how they go on, and what they tell."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Index, RandomKey, Scalar, Tree, choose
from surefoot.world import trust
from surefoot.world.imagination import Restarts, Rollout


class ImaginedEpisodes(eqx.Module):
    """Imagined episodes that continue from pass to pass."""

    states: Tree
    age: Int[Array, " B"]
    """Steps imagined so far; -1 before the first."""
    costs: trust.EpisodeCosts | None = None
    """Of whole episodes, if their distribution matters."""


class Past(eqx.Module):
    """Real states that imagined rollouts may start from."""

    starts: Float[Array, "M R"]
    """Recent initial states, used if the model does not know its own."""
    records: Float[Array, "C R"]
    """All past states; one empty row if they are not used."""
    count: Index
    """Number of past states."""


def starting_states(
    config: MBPPOConfig, problem: Problem, past: Past, n: int, key: RandomKey
) -> Tree:
    """Line 6: s0 ~ mu, and a share of past real states."""
    fresh_key, old_key, restore_key = jax.random.split(key, 3)
    old = round(config.replay_share * n)
    fresh = problem.task_model.initial_records(fresh_key, n - old)
    if fresh is None:
        index = jax.random.randint(fresh_key, (n - old,), 0, past.starts.shape[0])
        fresh = past.starts[index]
    if old:
        fresh = jnp.concatenate([fresh, past_records(past, old, config.recency, old_key)])
    return problem.task_model.restore(restore_key, fresh)


def past_records(past: Past, n: int, recency: float, key: RandomKey) -> Float[Array, "n R"]:
    """n past real states, drawn at random: all alike if `recency` is 1, otherwise rather late ones.

    The share of draws among the first m of M states is (m / M)^recency.
    """
    place = jax.random.uniform(key, (n,)) ** (1 / recency)
    index = (place * past.count).astype(jnp.int32)
    return past.records[jnp.minimum(index, past.count - 1)]


def next_rollouts(
    config: MBPPOConfig, problem: Problem, before: ImaginedEpisodes, fresh: Tree
) -> ImaginedEpisodes:
    """The rollouts of the next pass: carried episodes continue, fresh ones take all other places.

    The very first carried ones spread over all windows of an episode.
    """
    place = jnp.arange(config.rollouts)
    spread = place % windows(config, problem) * horizon(config, problem)
    over = (place >= config.carried) | (before.age < 0) | (before.age >= problem.episode_steps)
    first = (place < config.carried) & (before.age < 0)
    age = jnp.where(first, spread, jnp.where(over, 0, before.age))
    return ImaginedEpisodes(choose(over, fresh, before.states), age, before.costs)


def horizon(config: MBPPOConfig, problem: Problem) -> int:
    """Steps of a rollout: if episodes are carried, whole windows of nearly equal length."""
    steps = problem.episode_steps
    longest = min(config.horizon, steps)
    return -(-steps // -(-steps // longest)) if config.carried else longest


def windows(config: MBPPOConfig, problem: Problem) -> int:
    """Number of rollouts, one after the other, that an episode without termination takes."""
    return -(-problem.episode_steps // horizon(config, problem))


def episode_means(
    config: MBPPOConfig,
    problem: Problem,
    rollout: Rollout,
    age: Int[Array, " B"],
    near: Bool[Array, " B"],
) -> tuple[Scalar, Float[Array, " k"]]:
    """Expected reward and costs of an episode of the policy; rollouts `near` the data are none."""
    length, many = horizon(config, problem), windows(config, problem)
    totals = jnp.concatenate([rollout.returns()[:, None], rollout.cost_returns()], -1)
    survived = ~rollout.terminated.any(0)
    window = jnp.where(near, trust.NO_WINDOW, jnp.where(from_past(config), -1, age // length))
    last_share = (problem.episode_steps - (many - 1) * length) / length
    means = trust.episode_totals(totals, survived, window, many, last_share)
    return means[0], means[1:]


def from_past(config: MBPPOConfig) -> Bool[Array, " B"]:
    """Which rollouts start from past real states: the last ones."""
    return jnp.arange(config.rollouts) >= config.rollouts - config.replayed


def near_data(
    config: MBPPOConfig, problem: Problem, past: Past, reach: Index, key: RandomKey
) -> Restarts:
    """The last rollouts, which start from past states every `reach` steps; none at full reach."""
    place = jnp.arange(config.rollouts)
    short = (place >= config.rollouts - config.short) & (reach < horizon(config, problem))
    draw_key, restore_key = jax.random.split(key)
    records = past_records(past, config.short, config.recency, draw_key)
    return Restarts(short, problem.task_model.restore(restore_key, records), reach)


def trusted(
    config: MBPPOConfig, problem: Problem, age: Int[Array, " B"], restarts: Restarts
) -> Bool[Array, "T B"]:
    """Steps to learn from: all at full reach, otherwise those within reach of a real state."""
    length = horizon(config, problem)
    since = jnp.where(from_past(config), 0, age) + jnp.arange(length)[:, None]
    return restarts.rollouts | (since < restarts.every) | (restarts.every >= length)
