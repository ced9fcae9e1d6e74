"""Seeds as a leading axis: functions written for one seed, compiled for all of them."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key


def seed_keys(seeds: Sequence[int]) -> Key[Array, " S"]:
    """One key per seed, which depends on the seed alone."""
    return jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))


def over_seeds(
    step: Callable[..., Any],
    seeds: int,
    shared: tuple[int, ...] = (),
    donate: tuple[int, ...] = (),
    in_turn: bool = False,
) -> Any:
    """Compile a function of one seed for all seeds; arguments and results get a leading axis.

    Arguments in `shared` are the same for all seeds and have no such axis. Seeds are batched, or
    run one after the other if `in_turn`: loops then stop early and only taken branches run. A
    single seed is never batched.
    """

    def many(*args: Any) -> Any:
        if in_turn:
            own = {i: a for i, a in enumerate(args) if i not in shared}
            return jax.lax.map(
                lambda mine: step(*(mine.get(i, a) for i, a in enumerate(args))), own
            )
        axes = tuple(None if i in shared else 0 for i in range(len(args)))
        return jax.vmap(step, in_axes=axes)(*args)

    def single(*args: Any) -> Any:
        inner = [a if i in shared else jax.tree.map(lambda x: x[0], a) for i, a in enumerate(args)]
        return jax.tree.map(lambda x: x[None], step(*inner))

    return jax.jit(single if seeds == 1 else many, donate_argnums=donate)


def pick_seeds(tree: Any, index: Sequence[int]) -> Any:
    """Some seeds of a tree with a leading axis of them."""
    return jax.tree.map(lambda x: x[np.asarray(index)], tree)


def all_finite(tree: Any) -> np.ndarray:
    """For each seed of a tree with a leading axis of them, whether all its numbers are finite."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(tree)]
    return np.all([np.isfinite(x).reshape(len(x), -1).all(1) for x in leaves], axis=0)


def flatten_steps(x: np.ndarray) -> np.ndarray:
    """[S, T, n, …] to [S, T * n, …]."""
    return x.reshape(x.shape[0], -1, *x.shape[3:])
