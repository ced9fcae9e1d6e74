"""Layouts drawn one at a time, with the same random numbers as the reference."""

from collections.abc import Callable, Sequence
from math import hypot

import numpy as np

DRAWS_PER_OBJECT = 100
LAYOUT_ATTEMPTS = 10_000
GOAL_DRAWS = 10_000

Draw = Callable[[float, float], float]
Point = tuple[float, float]
Disc = tuple[float, float, float]
"""x, y and keepout radius."""


class ImpossibleLayout(ValueError):
    """The objects do not fit into the extents."""


def sample_layout(draw: Draw, extent: float, keepouts: Sequence[float]) -> list[Point]:
    """One layout: a point for each keepout radius, none closer than the sum of two radii.

    The whole layout restarts when an object fits nowhere in a hundred draws.
    """
    return place_all(
        keepouts,
        lambda k, placed: sample_point(draw, extent, keepouts[k], placed, DRAWS_PER_OBJECT),
        f"within extent={extent} in {LAYOUT_ATTEMPTS} attempts; use fewer hazards, smaller "
        f"keepouts or a larger extent",
    )


def place_all(
    keepouts: Sequence[float], place: Callable[[int, list[Disc]], Point | None], advice: str
) -> list[Point]:
    """`place(k, placed)` for each object k; from the start again when one finds no place."""
    for _ in range(LAYOUT_ATTEMPTS):
        placed: list[Disc] = []
        for k, keepout in enumerate(keepouts):
            point = place(k, placed)
            if point is None:
                break
            placed.append((*point, keepout))
        else:
            return [(x, y) for x, y, _ in placed]
    raise ImpossibleLayout(f"no layout of {len(keepouts)} objects fits {advice}")


def sample_point(
    draw: Draw, extent: float, keepout: float, taken: Sequence[Disc], draws: int = GOAL_DRAWS
) -> Point | None:
    """A new point clear of everything taken, or None if `draws` draws find no room."""
    reach = extent - keepout
    for _ in range(draws):
        x, y = draw(-reach, reach), draw(-reach, reach)
        if all(hypot(x - u, y - v) >= keepout + k for u, v, k in taken):
            return x, y
    return None


def check_room(extent: float, keepouts: Sequence[float]) -> None:
    """Raise an error if no layout can exist, before the first reset would."""
    largest = max(keepouts)
    if extent <= largest:
        raise ImpossibleLayout(
            f"extent={extent} leaves no room for an object with keepout {largest}; "
            f"use an extent above {largest}"
        )
    # Discs of the keepout radii never overlap, and all lie inside the square of half-width extent;
    # no packing of discs covers more than pi / sqrt(12) of the plane.
    needed = float(np.sum(np.square(keepouts)) * np.pi)
    room = (2 * extent) ** 2 * np.pi / np.sqrt(12)
    if needed > room:
        raise ImpossibleLayout(
            f"{len(keepouts) - 2} hazards do not fit into extent={extent}: their keepout discs "
            f"cover {needed:.1f} m2, at most {room:.1f} m2 can be covered; use fewer hazards or a "
            f"larger extent"
        )
