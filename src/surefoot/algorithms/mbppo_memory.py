"""What an algorithm with a model remembers: all real steps, as the model learns from them.

Memory lies in buffers of a fixed capacity on the learner's device. What each epoch adds is kept on
the host too, so that a checkpoint need not fetch the whole of it.
"""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from surefoot.core.spaces import ActionSpec
from surefoot.world.model import TaskModel, targets_of


class World(eqx.Module):
    """What stays the same during training; static for the compiler."""

    knowledge: TaskModel = eqx.field(static=True)
    actions: ActionSpec = eqx.field(static=True)
    episode_steps: int = eqx.field(static=True)


class Past(eqx.Module):
    """Real states that imagined rollouts may start from."""

    records: Float[Array, "C R"]
    """All of them; one empty row where none is asked for."""
    starts: Float[Array, "M R"]
    """Initial ones, used where the task does not know its own."""


class Memory(eqx.Module):
    """All real steps so far, as the model learns from them; rows beyond the count are empty."""

    inputs: Float[Array, "C F+A"]
    targets: Float[Array, "C D+b"]
    past: Past


def empty(world: World, capacity: int, records: bool) -> Memory:
    """A memory with room for `capacity` steps, and for the records of their states if asked."""
    know = world.knowledge
    return Memory(
        jnp.zeros((capacity, know.feature_size + world.actions.size)),
        jnp.zeros((capacity, know.target_size + know.binary_size)),
        Past(
            jnp.zeros((capacity if records else 1, know.record_size)),
            jnp.zeros((1, know.record_size)),
        ),
    )


def remember(
    world: World, memory: Memory, rows: dict[str, Array], count: Array, records: bool
) -> tuple[Memory, dict[str, Array]]:
    """Add real steps [N, …] at row `count`; returns also what was added."""
    know = world.knowledge
    inputs = jnp.concatenate(
        [jax.vmap(know.record_features)(rows["before"]), world.actions.encode(rows["action"])], -1
    )
    targets = targets_of(
        know, rows["before"], rows["after"], rows["reward"], rows["cost"], rows["terminated"]
    )
    added = {"inputs": inputs, "targets": targets}
    if records:
        added["records"] = rows["before"]
    return put(memory, added, rows["starts"], count), added


def put(
    memory: Memory, added: dict[str, Array], starts: Float[Array, "M R"], count: Array | int
) -> Memory:
    """The memory with rows `added` from row `count` on, and the latest initial states."""
    write = lambda buffer, name: (
        jax.lax.dynamic_update_slice_in_dim(buffer, added[name], count, 0)
        if name in added
        else buffer
    )
    return Memory(
        write(memory.inputs, "inputs"),
        write(memory.targets, "targets"),
        Past(write(memory.past.records, "records"), starts),
    )


def kept(added: dict[str, Array]) -> dict[str, np.ndarray]:
    """What was added, on the host, where it will not change any more."""
    rows = {name: np.asarray(x) for name, x in added.items()}
    for x in rows.values():
        x.flags.writeable = False
    return rows


def refill(memory: Memory, epochs: Iterable[dict[str, Any]], starts: np.ndarray) -> Memory:
    """The memory of several seeds, from empty, with what each epoch had added."""
    count = 0
    for added in epochs:
        fill = jax.vmap(put, (0, 0, 0, None))
        memory = fill(memory, added, jnp.asarray(starts), count)
        count += added["inputs"].shape[1]
    return memory
