"""Pictures of a scene, drawn with Pillow; no OpenGL needed.

The map is drawn at twice its size and averaged down, so edges are smooth.
"""

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw, ImageFont

from surefoot.envs.render.glyphs import GLYPHS
from surefoot.envs.render.scene import (
    BLUE,
    GREY,
    INK,
    PAPER,
    VERMILION,
    Colour,
    DashedSquare,
    Numbers,
    Polygon,
    Scene,
    Shape,
)

PANEL: Colour = (243, 244, 244)
RULE: Colour = (225, 227, 229)
VIEW_MARGIN = 1.25  # half-width of the view / extent
ROBOT_MARGIN = 0.45  # metres kept visible around the robot: its lidar rings end at 0.42
_SS = 2  # supersampling


@dataclass(frozen=True)
class View:
    """The square of the world that the map shows."""

    left: float
    top: float
    width: float

    def pixels(self, xy: ArrayLike, size: float) -> np.ndarray:
        """World [..., 2] in metres -> (column, row) [..., 2] in a map `size` pixels wide."""
        scale = size / self.width
        return (np.asarray(xy, np.float64) - (self.left, self.top)) * (scale, -scale)


def view_of(scene: Scene) -> View:
    """The extent and a margin, widened to include a robot that has left it."""
    if scene.centre is not None:
        x, y = scene.centre - (scene.extent, -scene.extent)
        return View(float(x), float(y), 2 * scene.extent)
    half = VIEW_MARGIN * scene.extent
    x, y = (float(v) for v in scene.robot_xy)
    margin = ROBOT_MARGIN * _magnification(half + max(half, abs(x), abs(y)))
    left, right = min(-half, x - margin), max(half, x + margin)
    bottom, top = min(-half, y - margin), max(half, y + margin)
    width = max(right - left, top - bottom)
    return View((left + right - width) / 2, (top + bottom + width) / 2, width)


def _magnification(width: float) -> float:
    """In a view wider than 7 m the robot is drawn larger than it is, to stay recognisable."""
    return max(1.0, width / 7)


def draw(scene: Scene, size: int = 640) -> np.ndarray:
    """A picture, uint8 [size + size // 8, size, 3]: a square map, numbers below it."""
    if size < 64:
        raise ValueError(f"size={size} must be at least 64 pixels")
    canvas = _Canvas(view_of(scene), size * _SS, scene.background)
    for shape in scene.ground:
        canvas.shape(shape)
    _grid(canvas)
    for shape in scene.shapes:
        canvas.shape(shape)
    if scene.trail is not None and len(scene.trail) > 1:
        _trail(canvas, scene.trail)
    _lidar(canvas, scene)
    if scene.glyph is not None:
        _robot(canvas, scene, scene.glyph)
    for limb in scene.limbs:
        canvas.shape(limb)
    return _with_numbers(canvas.image.reduce(_SS), scene, canvas.view.width)


def draw_below(frame: np.ndarray, numbers: Numbers, size: int) -> np.ndarray:
    """A frame [H, W, 3] scaled to `size` pixels of width, with numbers below it."""
    height, width, _ = frame.shape
    scaled = Image.fromarray(frame).resize((size, max(1, round(size * height / width))))
    return _with_numbers(scaled, numbers)


class _Canvas:
    """Pillow in world coordinates; lengths called `u` are pixels of a picture 640 wide."""

    def __init__(self, view: View, size: int, background: Colour):
        self.image = Image.new("RGB", (size, size), background)
        # "RGBA" on an RGB image makes Pillow blend translucent colours in place.
        self.pen = ImageDraw.Draw(self.image, "RGBA")
        self.view, self.size, self.unit = view, size, size / 640

    def at(self, xy: ArrayLike) -> np.ndarray:
        return self.view.pixels(xy, self.size)

    def polygon(self, points: np.ndarray, colour: Colour) -> None:
        self.pen.polygon(self.at(points).ravel().tolist(), _rgba(colour))

    def line(
        self, points: ArrayLike, colour: Colour, u: float, alpha: float = 1.0, curve: bool = False
    ) -> None:
        width = max(1, round(u * self.unit))
        joint = "curve" if curve else None
        self.pen.line(self.at(points).ravel().tolist(), _rgba(colour, alpha), width, joint)

    def shape(self, shape: Shape) -> None:
        if isinstance(shape, DashedSquare):
            return self._dashed_square(shape.half_width)
        if isinstance(shape, Polygon):
            if shape.outline is not None:
                closed = np.concatenate([shape.points, shape.points[:2]])
                self.line(closed, shape.outline, 4.0, curve=True)
            return self.polygon(shape.points, shape.colour)
        # Whole pixels, or Pillow's rounding makes small discs lopsided.
        (x, y), r = np.rint(self.at(shape.xy)), round(shape.radius * self.size / self.view.width)
        box = x - r, y - r, x + r, y + r
        if shape.fill:
            self.pen.ellipse(box, _rgba(shape.colour, shape.fill))
        if shape.outline:
            self.pen.ellipse(box, None, _rgba(shape.colour, 0.9), round(1.6 * self.unit))

    def _dashed_square(self, half: float) -> None:
        # An odd number of pieces: each side begins and ends with a dash, so the corners close.
        along = np.linspace(-half, half, 41 + 1).reshape(-1, 2)
        right = np.stack([np.full_like(along, half), along], -1)  # [dash, end, xy]
        sides = np.concatenate([right, -right, right[..., ::-1], -right[..., ::-1]])
        for dash in self.at(sides).reshape(-1, 4).tolist():
            self.pen.line(dash, _rgba(GREY, 0.7), round(self.unit))


def _rgba(colour: Colour, alpha: float = 1.0) -> tuple[int, int, int, int]:
    return (*colour, round(255 * alpha))


def _pitch(width: float) -> float:
    """Pitch of the grid: a round number of metres, at most eight to the view."""
    power = 10.0 ** math.floor(math.log10(width / 8))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= width / 8)


def _grid(canvas: _Canvas) -> None:
    view, pitch = canvas.view, _pitch(canvas.view.width)
    right, bottom = view.left + view.width, view.top - view.width
    for k in range(math.ceil(view.left / pitch), math.floor(right / pitch) + 1):
        canvas.line([(k * pitch, bottom), (k * pitch, view.top)], INK, 1, 0.07)
    for k in range(math.ceil(bottom / pitch), math.floor(view.top / pitch) + 1):
        canvas.line([(view.left, k * pitch), (right, k * pitch)], INK, 1, 0.07)


def _trail(canvas: _Canvas, trail: np.ndarray, pieces: int = 40) -> None:
    """A line that fades towards the past.

    It is drawn into a mask, where a piece replaces what it crosses: translucent strokes would add
    up.
    """
    every = math.ceil(len(trail) / 120)  # joints are slow to draw
    points, width = canvas.at(trail[::-1][::every][::-1]), round(2.8 * canvas.unit)
    low = np.clip(np.floor(points.min(0)) - width, 0, canvas.size).astype(int)
    high = np.clip(np.ceil(points.max(0)) + width + 1, 0, canvas.size).astype(int)
    mask = Image.new("L", tuple((high - low).tolist()))
    pen = ImageDraw.Draw(mask)
    cuts = np.unique(np.linspace(0, len(points) - 1, pieces + 1).astype(int)).tolist()
    for a, b in itertools.pairwise(cuts):
        shade = round(255 * (0.06 + 0.74 * (b / cuts[-1]) ** 1.6))
        pen.line((points[a : b + 1] - low).ravel().tolist(), shade, width, "curve")
    canvas.image.paste(BLUE, tuple(low.tolist()), mask)


def _lidar(canvas: _Canvas, scene: Scene) -> None:
    for ring in scene.lidar:
        count = len(ring.values)
        # Gaps between neighbours make the bins countable.
        bins = np.arange(count)[:, None] + np.linspace(0.06, 0.94, 6)
        angle = scene.heading + bins * (2 * np.pi / count)
        arcs = np.stack([np.cos(angle), np.sin(angle)], -1) * _magnification(canvas.view.width)
        segments = np.concatenate([ring.inner * arcs, ring.outer * arcs[:, ::-1]], 1)
        corners = canvas.at(segments + scene.robot_xy).reshape(count, -1).tolist()
        for segment, value in zip(corners, np.clip(ring.values, 0, 1).tolist(), strict=True):
            canvas.pen.polygon(segment, _rgba(GREY, 0.13))
            canvas.pen.polygon(segment, _rgba(ring.colour, value))


def _robot(canvas: _Canvas, scene: Scene, glyph: str) -> None:
    cos, sin = math.cos(scene.heading), math.sin(scene.heading)
    rotation = np.array([(cos, sin), (-sin, cos)]) * _magnification(canvas.view.width)
    dark, body, mark = (
        [polygon @ rotation + scene.robot_xy for polygon in group] for group in GLYPHS[glyph]
    )
    # Strokes first and fillings over them: only the outline of the whole remains.
    outline, u = (VERMILION, 6.0) if scene.alert else (INK, 3.4)
    for polygon in dark + body:
        canvas.line(np.concatenate([polygon, polygon[:2]]), outline, u, curve=True)
    for group, colour in ((dark, INK), (body, BLUE), (mark, PAPER)):
        for polygon in group:
            canvas.polygon(polygon, colour)


def _with_numbers(image: Image.Image, numbers: Numbers, metres: float | None = None) -> np.ndarray:
    """The image with numbers below it, and a scale bar if its width in metres is given."""
    # Coordinates are those of a picture 640 wide, from the bottom of the image.
    size, unit = image.width, image.width / 640
    picture = Image.new("RGB", (size, image.height + size // 8), PANEL)
    picture.paste(image)
    pen = ImageDraw.Draw(picture)

    def below(y: float) -> int:
        return round(image.height + y * unit)

    def text(
        x: float, y: float, words: str, size: float, colour: Colour, centred: bool = False
    ) -> None:
        mask = _lettering(words, round(size * unit))
        left = x * unit - (mask.width / 2 if centred else 0)
        picture.paste(colour, (round(left), below(y) - 2 * mask.height // 3), mask)

    def bar(x0: float, y0: float, x1: float, y1: float, colour: Colour) -> None:
        left, right, top, bottom = round(x0 * unit), round(x1 * unit), below(y0), below(y1)
        if right > left:
            pen.rectangle((left, top, right - 1, max(top, bottom - 1)), colour)

    if metres is not None:
        pitch = _pitch(metres)
        bar(16, -18, 16 + 640 * pitch / metres, -16, GREY)
        text(16, -23, f"{pitch:g} m", 12, GREY)
    n, limit = numbers, numbers.cost_limit
    bar(0, 0, 640, 2, RULE)
    bar(0, 0, 640 * min(1.0, n.step / n.max_steps), 2, GREY)
    title = n.title if len(n.title) <= 32 else n.title[:31] + "\N{HORIZONTAL ELLIPSIS}"
    text(20, 36, title, 17, INK)
    text(20, 62, f"step {n.step} / {n.max_steps}", 13, GREY)
    text(310, 36, "return", 13, GREY)
    text(310, 62, f"{n.reward:.2f}", 20, INK)
    over = limit is not None and n.cost > limit
    text(410, 36, "cost", 13, GREY)
    text(410, 62, f"{n.cost:g}", 20, VERMILION if over else INK)
    if limit is not None:
        # The limit is at two thirds of the bar, which is full at one and a half limits.
        left, tick, right = 470, 570, 620
        share = min(n.cost / limit, 1.5) if limit > 0 else 1.5 * over
        bar(left, 51, right, 59, RULE)
        bar(left, 51, left + (tick - left) * min(share, 1), 59, BLUE)
        bar(tick, 51, left + (tick - left) * share, 59, VERMILION)
        bar(tick - 1, 46, tick + 1, 64, INK)
        text(tick, 36, f"limit {limit:g}", 13, GREY, centred=True)
    return np.array(picture)


@functools.lru_cache(512)
def _lettering(words: str, size: int) -> Image.Image:
    """Mask of a line of text whose baseline is two thirds down; most lines recur every frame."""
    font = ImageFont.load_default(size * _SS)
    height = 3 * max(1, size // 2) * _SS
    mask = Image.new("L", (math.ceil(font.getlength(words)) + _SS, height))
    ImageDraw.Draw(mask).text((0, 2 * mask.height // 3), words, 255, font, "ls")
    return mask.reduce(_SS)
