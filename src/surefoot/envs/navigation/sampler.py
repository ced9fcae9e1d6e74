"""Many layouts at once, in JAX, with the distribution of `layout.py`.

All layouts are drawn in parallel. In every round each layout draws one candidate for its next
object, and places it if it is clear of the others. Typical layouts need under thirty rounds, so the
loop is short for any number of layouts.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from surefoot.envs.navigation.goal import GoalConfig
from surefoot.envs.navigation.layout import DRAWS_PER_OBJECT

MANY = 16_384
# Rounds between looks at what is finished, for crowded layouts and for others. An accelerator
# waits for the host at each look; rounds of finished layouts change nothing.
AT_ONCE = 1000
ROUNDS = 4
UNPLACED = 1e6  # coordinate of objects that are not placed yet


class Layouts(NamedTuple):
    """N initial situations."""

    robot: Float[Array, "N 2"]
    heading: Float[Array, " N"]
    goal: Float[Array, "N 2"]
    hazards: Float[Array, "N H 2"]


def sample_layouts(config: GoalConfig, key: Key[Array, ""], n: int) -> Layouts:
    """Draw n layouts as resets do: robot, goal, hazards, then the goal once more."""
    key, turn = jax.random.split(key)
    reach = np.array([config.extent - keepout for keepout in config.keepouts])
    corners = np.stack([-reach, -reach, reach, reach], 1)
    points = sample_points(key, n, np.array(config.keepouts), corners, again=1)
    heading = jax.random.uniform(turn, (n,), maxval=2 * jnp.pi)
    return Layouts(points[:, 0], heading, points[:, 1], points[:, 2:])


def sample_points(
    key: Key[Array, ""],
    n: int,
    keepouts: Float[np.ndarray, " K"],
    corners: Float[np.ndarray, "K 4"],
    again: int | None = None,
) -> Float[Array, "n K 2"]:
    """n layouts of K objects, one after the other, none closer than the sum of two keepouts.

    Object k is in the rectangle corners[k]: x and y at the lower corner, x and y at the upper one.
    Object `again` is drawn once more at the end. A layout restarts when an object other than that
    fits nowhere in a hundred draws.
    """
    round_, total = _rounds(keepouts, corners, again)

    def until(left: int, carry: Carry) -> Carry:
        """Rounds until at most `left` layouts are unfinished."""
        rounds = lambda c: jax.lax.fori_loop(0, ROUNDS, lambda _, c: round_(c), c)
        return jax.lax.while_loop(lambda c: jnp.sum(c[0] < total) > left, rounds, carry)

    # Half of the rounds serve the last few layouts. If there are many, finish those separately.
    late = n // 8 if n >= MANY else 0
    at, tries, x, y, key = until(late, _unplaced(n, total, key))
    if late:
        ids = jnp.nonzero(at < total, size=late, fill_value=n)[0]
        pick = lambda v: jnp.take(v, ids, axis=-1, mode="clip")
        _, _, late_x, late_y, _ = until(0, (pick(at), pick(tries), pick(x), pick(y), key))
        x, y = x.at[:, ids].set(late_x, mode="drop"), y.at[:, ids].set(late_y, mode="drop")
    return _points(x, y, again)


def collect_points(
    seed: int,
    n: int,
    keepouts: Float[np.ndarray, " K"],
    corners: Float[np.ndarray, "K 4"],
    again: int | None = None,
) -> Float[np.ndarray, "n K 2"]:
    """As `sample_points`, for crowded layouts: places whose layout is finished begin another.

    Of such layouts the slowest takes ten times as long as the mean.
    """
    round_, total = _rounds(keepouts, corners, again)
    # Callers may be within the trace of a compiled function.
    with jax.ensure_compile_time_eval():
        many = jax.jit(lambda carry: jax.lax.fori_loop(0, AT_ONCE, lambda _, c: round_(c), carry))
        carry, found = _unplaced(n, total, jax.random.key(seed)), []
        while sum(map(len, found)) < n:
            at, tries, x, y, key = many(carry)
            done = np.asarray(at == total)
            found.append(np.asarray(_points(x, y, again))[done])
            x, y = jnp.where(done, UNPLACED, x), jnp.where(done, UNPLACED, y)
            carry = jnp.where(done, 0, at), tries, x, y, key
    return np.concatenate(found)[:n]


Carry = tuple[Array, Array, Array, Array, Array]
"""Objects placed and tries for the next one [N], coordinates [K, N], random key."""


def _unplaced(n: int, total: int, key: Key[Array, ""]) -> Carry:
    start, nowhere = jnp.zeros(n, jnp.int32), jnp.full((total, n), UNPLACED)
    return start, start, nowhere, nowhere, key


def _points(x: Array, y: Array, again: int | None) -> Float[Array, "N K 2"]:
    points = jnp.stack([x, y], -1).transpose(1, 0, 2)
    return points if again is None else points[:, :-1].at[:, again].set(points[:, -1])


def _rounds(
    keepouts: Float[np.ndarray, " K"], corners: Float[np.ndarray, "K 4"], again: int | None
) -> tuple[Callable[[Carry], Carry], int]:
    """A function that draws one candidate for every layout, and the number of objects to draw."""
    objects = len(keepouts)
    order = np.array([*range(objects), *([] if again is None else [again])])
    radii, areas = keepouts[order].astype(np.float32), corners[order].astype(np.float32)
    total, slots = len(order), np.arange(len(order))[:, None]

    def round_(carry: Carry) -> Carry:
        at, tries, x, y, key = carry
        key, sub = jax.random.split(key)
        now = jnp.minimum(at, total - 1)
        radius, (x0, y0, x1, y1) = jnp.asarray(radii)[now], jnp.asarray(areas)[now].T
        u, v = jax.random.uniform(sub, (2, at.shape[0]))
        u, v = x0 + u * (x1 - x0), y0 + v * (y1 - y0)
        apart = radii[:objects, None] + radius
        near = (x[:objects] - u) ** 2 + (y[:objects] - v) ** 2 < apart * apart
        if again is not None:  # its second draw ignores its first place
            near &= (slots[:objects] != again) | (at < objects)
        clear = ~near.any(0) & (at < total)
        tries = jnp.where(clear, 0, tries + 1)
        stuck = (tries >= DRAWS_PER_OBJECT) & (at < objects)
        here = (slots == at) & clear
        x = jnp.where(stuck, UNPLACED, jnp.where(here, u, x))
        y = jnp.where(stuck, UNPLACED, jnp.where(here, v, y))
        return jnp.where(stuck, 0, at + clear), jnp.where(stuck, 0, tries), x, y, key

    return round_, total


def sample_spare_goals(
    config: GoalConfig, key: Key[Array, ""], hazards: Float[Array, "N H 2"], count: int
) -> Float[Array, "N count 2"]:
    """Future goals for each layout, uniform where they are clear of the hazards.

    The task draws a new goal when one is reached. With candidates drawn in advance, imagined steps
    only have to check the distance from the robot.
    """
    reach = config.extent - config.goal_keepout
    apart = np.full(config.hazards, config.goal_keepout + config.hazard_keepout)
    return clear_points(key, (-reach, -reach, reach, reach), hazards, apart, count)


def clear_points(
    key: Key[Array, ""],
    rectangle: tuple[float, float, float, float],
    objects: Float[Array, "N K 2"],
    apart: Float[np.ndarray, " K"],
    count: int,
) -> Float[Array, "N count 2"]:
    """Points of a rectangle (x and y at its lower and upper corner) at distances from objects."""
    n, (x0, y0, x1, y1) = len(objects), rectangle
    tries = 4 * count if len(apart) else count
    low, high = jnp.array([x0, y0]), jnp.array([x1, y1])
    spots = jax.random.uniform(key, (n, tries, 2), minval=low, maxval=high)
    if not len(apart):
        return spots
    gap = jnp.sum((spots[:, :, None] - objects[:, None]) ** 2, -1)
    clear = jnp.all(gap >= apart**2, -1)
    order = jnp.argsort(~clear, axis=1, stable=True)
    # A crowded layout may have fewer clear spots than requested, which then repeat.
    available = jnp.maximum(clear.sum(1, keepdims=True), 1)
    chosen = jnp.take_along_axis(order, jnp.arange(count) % available, axis=1)
    return jnp.take_along_axis(spots, chosen[..., None], axis=1)
