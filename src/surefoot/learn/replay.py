"""A memory of real steps on the device: a ring of fixed capacity, from which batches are drawn."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


class Transitions(eqx.Module):
    """Steps, in any order."""

    obs: Float[Array, "N D"]
    action: Float[Array, "N A"]
    """In the unit box, from -1 to 1."""
    reward: Float[Array, " N"]
    next_obs: Float[Array, "N D"]
    """What truly followed, the final observation where an episode ended."""
    terminated: Bool[Array, " N"]
    """Nothing more was to come; not so where only the time was up."""


class Replay(eqx.Module):
    """The latest C steps."""

    rows: Transitions
    place: Int[Array, ""]
    """Where the next step goes."""
    size: Int[Array, ""]
    """How many there are."""


def empty(capacity: int, obs_size: int, action_size: int, place: int = 0) -> Replay:
    """Room for `capacity` steps, the first of which will go to `place`."""
    rows = Transitions(
        obs=jnp.zeros((capacity, obs_size)),
        action=jnp.zeros((capacity, action_size)),
        reward=jnp.zeros(capacity),
        next_obs=jnp.zeros((capacity, obs_size)),
        terminated=jnp.zeros(capacity, bool),
    )
    return Replay(rows, jnp.int32(place % capacity), jnp.int32(0))


def add(replay: Replay, steps: Transitions) -> Replay:
    """Put N steps in, in place of the oldest where there is no more room."""
    capacity, count = replay.rows.reward.shape[0], steps.reward.shape[0]
    if count > capacity:
        raise ValueError(f"{count} steps at once must not exceed the replay's capacity, {capacity}")
    index = (replay.place + jnp.arange(count)) % capacity
    rows = jax.tree.map(lambda ring, new: ring.at[index].set(new), replay.rows, steps)
    place = (replay.place + count) % capacity
    return Replay(rows, place, jnp.minimum(replay.size + count, capacity))


def draw(replay: Replay, count: int, key: PRNGKeyArray) -> Transitions:
    """`count` steps, each drawn from all there are, of which there must be one."""
    index = jax.random.randint(key, (count,), 0, replay.size)
    return jax.tree.map(lambda ring: ring[index], replay.rows)
