"""Layouts in bulk, on the learner's device: the distribution of `layout.py`, a hundred thousand at
a time.

All layouts are drawn side by side, each at its own object: in every round each layout draws one
candidate for the object it has come to, keeps it if it is clear of what is placed, and goes on.
Typical layouts need under thirty rounds, so the loop is short whatever their number.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from surefoot.envs.navigation.goal import GoalConfig
from surefoot.envs.navigation.layout import DRAWS_PER_OBJECT

MANY = 16_384
NOWHERE = 1e6  # where objects lie that are not placed yet


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
        # The goal's second draw, the last, does not see the first.
        seen = (slots[:objects] != 1) | (at < objects)
        clear = jnp.all((gap >= apart * apart) | ~seen, axis=0) & (at <= objects)
        tries = jnp.where(clear, 0, tries + 1)
        stuck = (tries >= DRAWS_PER_OBJECT) & (at < objects)
        here = (slots == at) & clear
        x = jnp.where(stuck, NOWHERE, jnp.where(here, u[0], x))
        y = jnp.where(stuck, NOWHERE, jnp.where(here, u[1], y))
        return jnp.where(stuck, 0, at + clear), jnp.where(stuck, 0, tries), x, y, key

    def until(left: int, carry):
        """Rounds until at most `left` layouts are unfinished."""
        return jax.lax.while_loop(lambda c: jnp.sum(c[0] <= objects) > left, round_, carry)

    key, turn = jax.random.split(key)
    start = jnp.zeros(n, jnp.int32)
    nowhere = jnp.full((objects + 1, n), NOWHERE)
    # Half of the rounds serve the last few layouts: of very many, those are gathered and finished
    # on their own.
    late = n // 8 if n >= MANY else 0
    at, tries, x, y, key = until(late, (start, start, nowhere, nowhere, key))
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
    """Goals to come for each layout: uniform where they are clear of the hazards.

    The task draws a new goal when one is reached. Drawing candidates for whole rollouts ahead of
    time leaves only the robot's own distance to be checked at every imagined step.
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
    # A crowded layout may have fewer clear spots than asked for: use those again, in turn.
    enough = jnp.maximum(clear.sum(1, keepdims=True), 1)
    chosen = jnp.take_along_axis(order, jnp.arange(count) % enough, axis=1)
    return jnp.take_along_axis(spots, chosen[..., None], axis=1)
