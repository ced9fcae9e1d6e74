"""Layouts with the same random numbers as the reference, for objects of several kinds."""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from surefoot.envs.family.config import Rectangle, Slot
from surefoot.envs.navigation.layout import (
    DRAWS_PER_OBJECT,
    GOAL_DRAWS,
    LAYOUT_ATTEMPTS,
    Disc,
    Point,
    place_all,
)
from surefoot.envs.streams import WordStreams

SINGLE = 8  # draws made one by one; most objects need no more
MANY = 100  # draws made together after those


def sample_layout(streams: WordStreams, i: int, slots: Sequence[Slot]) -> list[Point]:
    """A place for each slot; the whole layout restarts when one fits nowhere in 100 draws."""
    _, keepouts, rectangles = zip(*slots, strict=True)
    return place_all(
        keepouts,
        lambda k, placed: sample_point(
            streams, i, rectangles[k], keepouts[k], placed, DRAWS_PER_OBJECT
        ),
        f"in {LAYOUT_ATTEMPTS} attempts; use fewer objects, a larger extent or other positions",
    )


def sample_point(
    streams: WordStreams,
    i: int,
    rectangle: Rectangle,
    keepout: float,
    taken: Sequence[Disc],
    draws: int = GOAL_DRAWS,
) -> Point | None:
    """A new point of stream i, clear of everything taken; None if `draws` draws find no room."""
    x0, y0, x1, y1 = rectangle
    for _ in range(min(draws, SINGLE)):
        x, y = streams.draw(i, x0, x1), streams.draw(i, y0, y1)
        for u, v, k in taken:
            if sqrt((x - u) * (x - u) + (y - v) * (y - v)) < keepout + k:
                break
        else:
            return x, y
    discs, low, span = np.array(taken), np.array((x0, y0)), np.array((x1 - x0, y1 - y0))
    for done in range(SINGLE, draws, MANY):
        count = min(MANY, draws - done)
        points = low + span * streams.peek(i, 2 * count).reshape(count, 2)
        gaps = points[:, None] - discs[:, :2]
        away = np.sqrt(gaps[..., 0] * gaps[..., 0] + gaps[..., 1] * gaps[..., 1])
        clear = (away >= keepout + discs[:, 2]).all(1)
        if clear.any():
            first = int(clear.argmax())
            streams.skip(i, 2 * (first + 1))
            return float(points[first, 0]), float(points[first, 1])
        streams.skip(i, 2 * count)
    return None
