"""What a picture shows: a robot, its surroundings as plain shapes, and the running sums.

Each task builds its scene from these shapes, so a new task needs no new drawing code.
"""

from dataclasses import dataclass

import numpy as np

from surefoot.core.config import check_choice
from surefoot.envs.render.glyphs import GLYPHS

Colour = tuple[int, int, int]

# The palette of Okabe and Ito, which colour-blind readers can distinguish.
BLUE: Colour = (0, 114, 178)
GREEN: Colour = (0, 158, 115)
VERMILION: Colour = (213, 94, 0)
INK: Colour = (38, 42, 48)
GREY: Colour = (122, 128, 136)
PAPER: Colour = (252, 252, 250)
COST_ZONE: Colour = (248, 236, 225)  # a tenth vermilion on paper


@dataclass(frozen=True, eq=False)
class Circle:
    """A circle in the world, in metres."""

    xy: np.ndarray
    """Centre, [2]."""
    radius: float
    colour: Colour
    fill: float = 0.0
    """Opacity of the disc; 0 draws none."""
    outline: bool = True


@dataclass(frozen=True)
class DashedSquare:
    """The outline of a square around the origin."""

    half_width: float


@dataclass(frozen=True, eq=False)
class Polygon:
    """A filled polygon in the world, in metres."""

    points: np.ndarray
    """Corners, [K, 2]."""
    colour: Colour
    outline: Colour | None = None


Shape = Circle | DashedSquare | Polygon


@dataclass(frozen=True, eq=False)
class LidarRing:
    """Lidar values around the robot, from the heading on counter-clockwise."""

    values: np.ndarray
    """In [0, 1], one per bin."""
    colour: Colour
    inner: float
    outer: float


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The numbers below a picture."""

    step: int = 0
    max_steps: int = 1
    reward: float = 0.0
    """Sum so far."""
    cost: float = 0.0
    """Sum so far, over all constraints."""
    cost_limit: float | None = None
    title: str = ""


@dataclass(frozen=True, eq=False)
class Scene(Numbers):
    """One moment of an episode, in metres and radians."""

    robot_xy: np.ndarray
    """[2]."""
    heading: float
    """Of the robot's x axis, counter-clockwise from the world's."""
    glyph: str | None
    """Name of the robot's drawing; None if `limbs` draw it."""
    extent: float
    """Half-width of the area that is always shown."""
    shapes: tuple[Shape, ...] = ()
    """Drawn in order, above the grid."""
    ground: tuple[Shape, ...] = ()
    """Drawn below the grid."""
    limbs: tuple[Polygon, ...] = ()
    """A robot without a glyph, from its far side to the near one."""
    centre: np.ndarray | None = None
    """Centre of the area that is shown, [2], if it moves with the robot; else the origin."""
    lidar: tuple[LidarRing, ...] = ()
    background: Colour = PAPER
    trail: np.ndarray | None = None
    """Past positions, oldest first, [K, 2]."""
    alert: bool = False
    """Whether the robot is drawn as paying a cost now."""

    def __post_init__(self) -> None:
        if self.glyph is not None:
            check_choice("glyph", self.glyph, GLYPHS)
        if np.shape(self.robot_xy) != (2,) or not np.isfinite(self.robot_xy).all():
            raise ValueError(f"robot_xy={self.robot_xy} must be two finite numbers")
        if not self.extent > 0:
            raise ValueError(f"extent={self.extent} must be positive")
