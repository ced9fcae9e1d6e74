"""Drawings of the robots: polygons in the robot's frame, in metres."""

import math
from typing import NamedTuple

import numpy as np

Point = tuple[float, float] | np.ndarray


class Glyph(NamedTuple):
    """Groups of polygons [K, 2]."""

    dark: list[np.ndarray]
    body: list[np.ndarray]
    mark: list[np.ndarray]
    """A white arrow that points forward."""


def _disc(x: float, y: float, r: float) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    return np.stack([x + r * np.cos(angle), y + r * np.sin(angle)], -1)


def _box(x: float, y: float, half_x: float, half_y: float, cut: float = 0.0) -> np.ndarray:
    """A rectangle [8, 2] whose corners are cut off by `cut`."""
    a, b, c = half_x, half_y, cut
    corners = [(a, c - b), (a, b - c), (a - c, b), (c - a, b), (-a, b - c), (-a, c - b)]
    return np.array([*corners, (c - a, -b), (a - c, -b)]) + (x, y)


def limb(a: Point, b: Point, r: float, corners: int = 10) -> np.ndarray:
    """A stroke [2 * corners, 2] of half-width r with round ends."""
    angle = math.atan2(b[1] - a[1], b[0] - a[0]) + np.linspace(-np.pi / 2, np.pi / 2, corners)
    cap = r * np.stack([np.cos(angle), np.sin(angle)], -1)
    return np.concatenate([b + cap, a - cap])


_CORNERS = [(u, v) for u in (-1, 1) for v in (-1, 1)]

GLYPHS: dict[str, Glyph] = {
    "point": Glyph(
        [_box(0.1, 0, 0.05, 0.05, 0.012)],
        [_disc(0, 0, 0.1)],
        [np.array([(0.07, 0), (-0.045, 0.05), (-0.02, 0), (-0.045, -0.05)])],
    ),
    "car": Glyph(  # drives along -y
        [_box(s * 0.13, 0.1, 0.025, 0.05, 0.008) for s in (-1, 1)]
        + [_box(0, 0.15, 0.1, 0.012), _box(0, -0.15, 0.05, 0.025, 0.01)],
        [_box(0, 0, 0.1, 0.13, 0.03)],
        [np.array([(0, -0.1), (-0.055, 0.02), (0, -0.01), (0.055, 0.02)])],
    ),
    "doggo": Glyph(
        [limb((u * 0.12, 0), (u * 0.17, v * 0.13), 0.022) for u, v in _CORNERS]
        + [limb((u * 0.17, v * 0.13), (u * 0.17 + 0.05, v * 0.16), 0.022) for u, v in _CORNERS],
        [limb((-0.13, 0), (0.13, 0), 0.06), _disc(0.2, 0, 0.05)],
        [np.array([(0.12, 0), (0.03, 0.036), (0.05, 0), (0.03, -0.036)])],
    ),
    "rc_car": Glyph(
        [_box(u * 0.13, v * 0.095, 0.04, 0.018, 0.006) for u, v in _CORNERS],
        [_box(0, 0, 0.19, 0.085, 0.035)],
        [np.array([(0.14, 0), (0.03, 0.05), (0.055, 0), (0.03, -0.05)])],
    ),
    "racecar": Glyph(
        [_box(u, v * 0.1225, 0.05, 0.0225, 0.008) for u in (-0.16, 0.165) for v in (-1, 1)]
        + [_box(0.23, 0, 0.0165, 0.0875, 0.006)],
        [
            np.array(
                [(-0.2, -0.08), (-0.19, -0.09), (0.075, -0.09), (0.19, -0.058), (0.205, -0.04)]
                + [(0.205, 0.04), (0.19, 0.058), (0.075, 0.09), (-0.19, 0.09), (-0.2, 0.08)]
            )
        ],
        [np.array([(0.13, 0), (0.02, 0.05), (0.045, 0), (0.02, -0.05)])],
    ),
    "ant": Glyph(
        [limb((u * 0.03, v * 0.03), (u * 0.1, v * 0.1), 0.02) for u, v in _CORNERS]
        + [limb((u * 0.1, v * 0.1), (u * 0.155, v * 0.13), 0.02) for u, v in _CORNERS],
        [_disc(0, 0, 0.0625)],
        [np.array([(0.045, 0), (-0.025, 0.033), (-0.01, 0), (-0.025, -0.033)])],
    ),
}
