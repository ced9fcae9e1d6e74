"""Gradient descent over minibatches with an early stop, for policies and critics alike."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

Params = TypeVar("Params")


def descend(
    loss: Callable[[Params, Any], tuple[Array, tuple[Array | None, Any]]],
    optimiser: optax.GradientTransformation,
    params: Params,
    moments: optax.OptState,
    rows: Any,
    epochs: int,
    minibatches: int,
    key: PRNGKeyArray,
) -> tuple[Params, optax.OptState, Int[Array, ""], Any]:
    """Step down `loss` over minibatches of `rows` until all passes are done or it says stop.

    `rows` is a pytree of arrays `[N, ...]`. `loss(params, rows)` returns its value and (stop,
    info); a step on which it says stop is not taken; stop is None where nothing ever stops it,
    which spares an accelerator the question. Returns the parameters, the optimiser's state, the
    number of steps taken and the last `info`.
    """
    count = jax.tree.leaves(rows)[0].shape[0]
    if count < minibatches:
        raise ValueError(f"minibatches = {minibatches}: must not exceed the batch's {count} steps")

    def step(state):
        params, moments, taken, stop, _ = state
        part = rows
        if minibatches > 1:
            index = minibatch(key, count, minibatches, taken)
            part = jax.tree.map(lambda x: x[index], rows)
        grads, (says, info) = jax.grad(loss, has_aux=True)(params, part)
        updates, new_moments = optimiser.update(grads, moments, params)
        new = (optax.apply_updates(params, updates), new_moments, taken + 1)
        if says is None:
            return *new, stop, info
        kept = jax.tree.map(lambda a, b: jnp.where(says, a, b), (params, moments, taken), new)
        return *kept, says, info

    def goes_on(state):
        _, _, taken, stop, _ = state
        return ~stop & (taken < epochs * minibatches)

    stops, shapes = jax.eval_shape(lambda: loss(params, rows)[1])
    info = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    start = (params, moments, jnp.array(0), jnp.array(False), info)
    end: Any
    if stops is None:
        end = jax.lax.fori_loop(0, epochs * minibatches, lambda _, state: step(state), start)
    else:
        end = jax.lax.while_loop(goes_on, step, start)
    return end[0], end[1], end[2], end[4]


def minibatch(
    key: PRNGKeyArray, count: int, minibatches: int, step: Int[Array, ""] | int
) -> Int[Array, " n"]:
    """Which rows step number `step` takes: in each pass every row once, less a remainder.

    Neighbouring rows form groups of `minibatches`, and each minibatch takes one row of every group,
    at an offset drawn anew for each group and pass. Neighbours are one moment of several rollouts,
    so every minibatch covers all moments evenly, and there is no sort as in a full permutation,
    which would take a CPU about half as long as the policy's gradients of a whole pass.
    """
    size = count // minibatches
    epoch, part = step // minibatches, step % minibatches
    offset = jax.random.randint(jax.random.fold_in(key, epoch), (size,), 0, minibatches)
    return jnp.arange(size) * minibatches + (offset + part) % minibatches


def adam(
    learning_rate: Float[Array, ""] | float, max_grad_norm: float | None
) -> optax.GradientTransformation:
    """Adam, on gradients cut to `max_grad_norm` if given."""
    plain = optax.adam(learning_rate)
    if max_grad_norm is None:
        return plain
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), plain)
