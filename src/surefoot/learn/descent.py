"""Gradient descent over minibatches with early stopping, for policies and critics."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from surefoot.core.arrays import Flag, Index, RandomKey, Scalar

Params = TypeVar("Params")
Rows = TypeVar("Rows")
Info = TypeVar("Info")


def descend(
    loss: Callable[[Params, Rows], tuple[Array, tuple[Array | None, Info]]],
    optimiser: optax.GradientTransformation,
    params: Params,
    moments: optax.OptState,
    rows: Rows,
    epochs: int,
    minibatches: int,
    key: RandomKey,
) -> tuple[Params, optax.OptState, Index, Info]:
    """Minimise `loss` over minibatches of `rows` until all passes are done or it stops.

    `rows` is a pytree of arrays `[N, ...]`. `loss(params, rows)` returns its value and (stop,
    info). A step with a true stop is not taken. Without early stopping, stop is None, and no device
    waits for the host.

    Returns the parameters, the optimiser state, the number of steps taken and the last `info`.
    """
    count = jax.tree.leaves(rows)[0].shape[0]
    if count < minibatches:
        raise ValueError(f"minibatches={minibatches} must be at most the {count} rows of a batch")

    # All at once: step by step, an accelerator would start several small kernels for them.
    indices = minibatch_rows(key, count, minibatches, epochs) if minibatches > 1 else None

    # Parameters, optimiser state, steps taken, whether to stop, and the last info.
    def step(state: tuple) -> tuple:
        params, moments, taken, stop, _ = state
        part = rows
        if indices is not None:
            now = indices[taken]
            part = jax.tree.map(lambda x: x[now], rows)
        grads, (stops, info) = jax.grad(loss, has_aux=True)(params, part)
        updates, new_moments = optimiser.update(grads, moments, params)
        new = (optax.apply_updates(params, updates), new_moments, taken + 1)
        if stops is None:
            return *new, stop, info
        stops |= stop
        result = jax.tree.map(lambda a, b: jnp.where(stops, a, b), (params, moments, taken), new)
        return *result, stops, info

    def unfinished(state: tuple) -> Flag:
        return ~state[3] & (state[2] < epochs * minibatches)

    stops, shapes = jax.eval_shape(lambda: loss(params, rows)[1])
    info = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    start = (params, moments, jnp.array(0), jnp.array(False), info)
    if stops is None:
        end = jax.lax.fori_loop(0, epochs * minibatches, lambda _, state: step(state), start)
    else:
        # An accelerator waits for the host where a loop may end, so it looks once per pass. After a
        # stop, the rest of the pass measures the same parameters.
        until = lambda looks: (
            lambda start: jax.lax.while_loop(
                unfinished, lambda s: jax.lax.fori_loop(0, looks, lambda _, s: step(s), s), start
            )
        )
        end = jax.lax.platform_dependent(start, cpu=until(1), default=until(minibatches))
    return end[0], end[1], end[2], end[4]


def minibatch_size(count: int, minibatches: int) -> int:
    """Rows of a minibatch: a full share, or up to a sixteenth less to be a round binary number.

    An accelerator splits sums over the rows into equal parts. Of other sizes XLA would first make
    padded copies of every operand.
    """
    size = count // minibatches
    unit = 1 << max(0, (size // 16).bit_length() - 1)
    return size // unit * unit


def minibatch_rows(
    key: RandomKey, count: int, minibatches: int, epochs: int
) -> Int[Array, "steps n"]:
    """Indices of the rows of all steps; each pass takes every row once, less a remainder.

    From a random row on, neighbouring rows form groups of `minibatches`. Each minibatch takes one
    row of every group, at a random offset per group and pass. Neighbours are the same time step of
    several rollouts, so every minibatch covers all time steps evenly. A full permutation would need
    a sort, which takes a CPU about half as long as the policy's gradients of a pass.
    """
    size = minibatch_size(count, minibatches)

    def one_pass(epoch: Index) -> Int[Array, "minibatches n"]:
        offset_key, start_key = jax.random.split(jax.random.fold_in(key, epoch))
        offset = jax.random.randint(offset_key, (size,), 0, minibatches)
        start = jax.random.randint(start_key, (), 0, count)
        part = jnp.arange(minibatches)[:, None]
        return (start + jnp.arange(size) * minibatches + (offset + part) % minibatches) % count

    return jax.vmap(one_pass)(jnp.arange(epochs)).reshape(-1, size)


def adam(
    learning_rate: Scalar | float, max_grad_norm: float | None
) -> optax.GradientTransformation:
    """Adam, with gradients clipped to `max_grad_norm` if given."""
    plain = optax.adam(learning_rate)
    if max_grad_norm is None:
        return plain
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), plain)
