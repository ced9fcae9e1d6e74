"""Many layouts at once, in JAX, with the distribution of `layout.py`.

All layouts are drawn in parallel. In every round each layout draws one candidate for its next
object, and places it if it is clear of the others. Typical layouts need under thirty rounds, so the
loop is short for any number of layouts.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from surefoot.envs.navigation.goal import GoalConfig
from surefoot.envs.navigation.layout import DRAWS_PER_OBJECT

MANY = 16_384
UNPLACED = 1e6  # coordinate of objects that are not placed yet


class Layouts(NamedTuple):
    """N initial situations."""

    robot: Float[Array, "N 2"]
    heading: Float[Array, " N"]
    goal: Float[Array, "N 2"]
    hazards: Float[Array, "N H 2"]


def sample_layouts(config: GoalConfig, key: Key[Array, ""], n: int) -> Layouts:
    """Draw n layouts as resets do: robot, goal, hazards, then the goal once more."""
    objects = len(config.keepouts)
    keepouts = jnp.asarray(config.keepouts + (config.goal_keepout,), jnp.float32)
    slots = jnp.arange(objects + 1)[:, None]

    def round_(carry):
        at, tries, x, y, key = carry
        key, sub = jax.random.split(key)
        keepout = keepouts[jnp.minimum(at, objects)]
        u = jax.random.uniform(sub, (2, at.shape[0]), minval=-1.0, maxval=1.0)
        u = u * (config.extent - keepout)
        apart = keepouts[:objects, None] + keepout
        gap = (x[:objects] - u[0]) ** 2 + (y[:objects] - u[1]) ** 2
        # The goal's second draw, the last, ignores its first place.
        seen = (slots[:objects] != 1) | (at < objects)
        clear = jnp.all((gap >= apart * apart) | ~seen, axis=0) & (at <= objects)
        tries = jnp.where(clear, 0, tries + 1)
        stuck = (tries >= DRAWS_PER_OBJECT) & (at < objects)
        here = (slots == at) & clear
        x = jnp.where(stuck, UNPLACED, jnp.where(here, u[0], x))
        y = jnp.where(stuck, UNPLACED, jnp.where(here, u[1], y))
        return jnp.where(stuck, 0, at + clear), jnp.where(stuck, 0, tries), x, y, key

    def until(left: int, carry):
        """Rounds until at most `left` layouts are unfinished."""
        return jax.lax.while_loop(lambda c: jnp.sum(c[0] <= objects) > left, round_, carry)

    key, turn = jax.random.split(key)
    start = jnp.zeros(n, jnp.int32)
    unplaced = jnp.full((objects + 1, n), UNPLACED)
    # Half of the rounds serve the last few layouts. If there are many, finish those separately.
    late = n // 8 if n >= MANY else 0
    at, tries, x, y, key = until(late, (start, start, unplaced, unplaced, key))
    if late:
        ids = jnp.nonzero(at <= objects, size=late, fill_value=n)[0]
        pick = lambda v: jnp.take(v, ids, axis=-1, mode="clip")
        _, _, late_x, late_y, _ = until(0, (pick(at), pick(tries), pick(x), pick(y), key))
        x, y = x.at[:, ids].set(late_x, mode="drop"), y.at[:, ids].set(late_y, mode="drop")
    heading = jax.random.uniform(turn, (n,), maxval=2 * jnp.pi)
    points = jnp.stack([x, y], -1).transpose(1, 0, 2)
    return Layouts(points[:, 0], heading, points[:, -1], points[:, 2:objects])


def sample_spare_goals(
    config: GoalConfig, key: Key[Array, ""], hazards: Float[Array, "N H 2"], count: int
) -> Float[Array, "N count 2"]:
    """Future goals for each layout, uniform where they are clear of the hazards.

    The task draws a new goal when one is reached. With candidates drawn in advance, imagined steps
    only have to check the distance from the robot.
    """
    reach = config.extent - config.goal_keepout
    tries = 4 * count
    shape = (hazards.shape[0], tries, 2)
    spots = jax.random.uniform(key, shape, minval=-reach, maxval=reach)
    if not config.hazards:
        return spots[:, :count]
    apart = config.goal_keepout + config.hazard_keepout
    gap = jnp.sum((spots[:, :, None] - hazards[:, None]) ** 2, -1)
    clear = jnp.all(gap >= apart**2, -1)
    order = jnp.argsort(~clear, axis=1, stable=True)
    # A crowded layout may have fewer clear spots than requested, which then repeat.
    available = jnp.maximum(clear.sum(1, keepdims=True), 1)
    chosen = jnp.take_along_axis(order, jnp.arange(count) % available, axis=1)
    return jnp.take_along_axis(spots, chosen[..., None], axis=1)
