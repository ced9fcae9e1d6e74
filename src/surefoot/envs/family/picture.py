"""Pictures of the family's tasks from above."""

from typing import TYPE_CHECKING

import numpy as np

from surefoot.envs import geometry
from surefoot.envs.family import rules
from surefoot.envs.family.config import FamilyConfig
from surefoot.envs.family.rules import FamilyState
from surefoot.envs.family.world import TRAVEL, solid_of
from surefoot.envs.render.scene import (
    COST_ZONE,
    GREEN,
    INK,
    VERMILION,
    Circle,
    Colour,
    DashedSquare,
    LidarRing,
    Polygon,
    Scene,
    Shape,
)

if TYPE_CHECKING:
    from surefoot.envs.family.env import FamilyEnv

# More of the palette of Okabe and Ito, and tints of it.
SKY: Colour = (86, 180, 233)
ORANGE: Colour = (230, 159, 0)
PURPLE: Colour = (204, 121, 167)
YELLOW: Colour = (240, 228, 66)
STONE: Colour = (146, 152, 162)
COLOURS = {
    "goal": GREEN, "circle": GREEN, "hazards": VERMILION, "vases": SKY, "buttons": ORANGE,
    "gremlins": PURPLE, "pillars": STONE, "push_box": YELLOW,
}  # fmt: skip
SQUARE = np.array([(1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0)])
RINGS = ((0.28, 0.32), (0.335, 0.375), (0.39, 0.43), (0.445, 0.485))
CORRIDOR = 40.0  # half the length of the boundaries that are drawn


def scene(env: "FamilyEnv", i: int) -> Scene:
    """What environment i looks like, without steps and sums."""
    c, s = env.config, env.state().select(slice(i, i + 1))
    ground, shapes = _boundaries(c), list[Shape]()
    if c.task not in ("circle", "run"):
        shapes.append(DashedSquare(c.extent))
    for kind in c.lidars:
        shapes += _objects(c, s, kind)
    rings = [
        LidarRing(_lidar(c, s, kind), COLOURS[kind], *ring)
        for kind, ring in zip(c.lidars, RINGS, strict=False)
    ]
    place = s.position[0, :2]
    return Scene(
        robot_xy=place,
        heading=float(s.heading[0]),
        glyph=env.simulation.robot.robot.glyph,
        extent=c.extent,
        ground=ground,
        shapes=tuple(shapes),
        centre=place if c.task == "run" else None,
        lidar=tuple(rings),
        alert=bool(env.costs[i].any()),
        title=f"{c.robot.capitalize()} {c.task}",
    )


def _lidar(config: FamilyConfig, s: FamilyState, kind: str) -> np.ndarray:
    if kind == "buttons" and s.timer[0]:
        return np.zeros(geometry.BINS)
    ego = np.stack(rules.in_body(s, rules.points(config, s, kind)), -1)
    return geometry.lidar(np, ego, config.lidar_range)[0]


def _boundaries(c: FamilyConfig) -> tuple[Shape, ...]:
    """The area that costs, with a line at its edge."""
    shapes, b = list[Shape](), c.boundary
    for k in range(c.walls):
        turn = np.array([(1.0, 0.0), (0.0, 1.0)]) if k < 2 else np.array([(0.0, 1.0), (1.0, 0.0)])
        side = 1.0 if k % 2 == 0 else -1.0
        # The zones beside two boundaries include the corners; lines end where they meet.
        length, line = CORRIDOR if k < 2 else b, b + 0.02 if c.walls == 4 else CORRIDOR

        for far, reach, colour in ((CORRIDOR, length, COST_ZONE), (b + 0.02, line, VERMILION)):
            corners = np.array([(b, -reach), (b, reach), (far, reach), (far, -reach)])
            shapes.append(Polygon(corners * (side, 1.0) @ turn, colour))
    return tuple(shapes)


def _objects(c: FamilyConfig, s: FamilyState, kind: str) -> list[Shape]:
    colour, out, frees = COLOURS[kind], list[Shape](), s.bodies.shape[1]
    touch = {"buttons": s.touch[0, frees:], "pillars": s.touch[0, frees:]}
    touch = touch.get(kind, s.touch[0, :frees])
    if kind == "circle":
        return [Circle(np.zeros(2), 1.5, colour, fill=0.07)]
    if kind == "goal":
        size = c.goal_size
        dot = Circle(s.goal[0], size / 8, colour, fill=1.0, outline=False)
        return [Circle(s.goal[0], size, colour, fill=0.26), *([dot] * (c.task != "button"))]
    if kind == "hazards":
        near = geometry.distance(np, s.hazards[0], s.position[0, :2]) < c.hazard_size
        return [
            Circle(xy, c.hazard_size, colour, fill=0.48 if hit else 0.24)
            for xy, hit in zip(s.hazards[0], near, strict=True)
        ]
    if kind in ("buttons", "pillars"):
        hidden = kind == "buttons" and s.timer[0] > 0
        for j, xy in enumerate(s.statics[0]):
            size, goal = solid_of(c, kind).half, kind == "buttons" and j == s.button[0]
            rim = VERMILION if touch[j] and not goal else INK
            fill = 0.35 if hidden else 1.0
            if fill == 1.0:
                out.append(Circle(xy, size + 0.014, rim, fill=1.0, outline=False))
            out.append(Circle(xy, size, GREEN if goal else colour, fill=fill, outline=hidden))
            if goal:
                out.append(Circle(xy, size / 2.2, (252, 252, 250), fill=1.0, outline=False))
        return out
    half = solid_of(c, kind).height if kind == "push_box" else 0.1
    for j, pose in enumerate(s.bodies[0]):
        rim = VERMILION if touch[j] and kind != "push_box" else INK
        turn = geometry.rotation(pose[None, 3:])[0]
        if kind == "gremlins":
            out.append(Circle(s.home[0, j], TRAVEL, colour, fill=0.05))
        if kind == "push_box":
            for corner in SQUARE:
                post = _outline(pose[:2], turn, half / 2, half, half * corner)
                out.append(Polygon(post, colour, rim))
            for corner in SQUARE:
                post = _outline(pose[:2], turn, half / 2, half, half * corner)
                out.append(Polygon(post, colour))
        out.append(Polygon(_outline(pose[:2], turn, half, half), colour, rim))
        if kind == "push_box":
            inner = _outline(pose[:2], turn, 0.72 * half, half)
            out.append(Polygon(inner, (248, 240, 140)))
        elif kind == "gremlins":
            out.append(Circle(pose[:2], 0.035, rim, fill=0.85, outline=False))
    return out


def _outline(
    place: np.ndarray, turn: np.ndarray, half: float, height: float, shift: np.ndarray | None = None
) -> np.ndarray:
    """The shadow of a box from above, [K, 2]: its convex outline, however it is turned."""
    x, y, z = (sign.ravel() for sign in np.meshgrid(*[(-1.0, 1.0)] * 3))
    corners = np.stack([half * x, half * y, height * z], -1)
    if shift is not None:
        corners[:, :2] += shift
    return _hull((corners @ turn.T)[:, :2] + place)


def _hull(points: np.ndarray) -> np.ndarray:
    """Convex hull [K, 2] of points, counter-clockwise."""
    ordered = points[np.lexsort((points[:, 1], points[:, 0]))]

    def chain(points: np.ndarray) -> list[np.ndarray]:
        out: list[np.ndarray] = []
        for p in points:
            while len(out) > 1:
                a, b = out[-1] - out[-2], p - out[-1]
                if a[0] * b[1] - a[1] * b[0] > 1e-12:
                    break
                out.pop()
            out.append(p)
        return out[:-1]

    return np.array(chain(ordered) + chain(ordered[::-1]))
