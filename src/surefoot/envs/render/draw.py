"""Pictures of an episode: a top-down drawing that needs no OpenGL, and MuJoCo's camera view.

The drawing (`draw`) is made with Pillow at twice the size and averaged down, so edges are smooth;
`CameraView` shows the robot in 3-D where the machine can open an OpenGL context (`gl_available`).
"""

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Robot = Literal["point", "car", "doggo", "rc_car"]
Colour = tuple[int, int, int]

# Okabe and Ito's palette: told apart by colour-blind readers too.
BLUE: Colour = (0, 114, 178)
GREEN: Colour = (0, 158, 115)
VERMILION: Colour = (213, 94, 0)
INK: Colour = (38, 42, 48)
GREY: Colour = (122, 128, 136)
PAPER: Colour = (252, 252, 250)
PANEL: Colour = (243, 244, 244)
RULE: Colour = (225, 227, 229)
COST_ZONE: Colour = (248, 236, 225)  # a tenth vermilion on paper

HAZARD_ALPHA = 0.24
GOAL_ALPHA = 0.26

VIEW_MARGIN = 1.25  # half-width of the view / half-width of the placement area
ROBOT_MARGIN = 0.45  # metres kept visible around the robot: its lidar rings end at 0.42
LIDAR_BINS = 16
_SS = 2  # supersampling


@dataclass(frozen=True, eq=False)
class Scene:
    """What a picture shows, in metres and radians. Shapes: H hazards, K trail points."""

    robot_xy: np.ndarray  # [2]
    heading: float  # of the robot's x axis, counter-clockwise from the world's
    robot: Robot = "point"
    trail: np.ndarray | None = None  # [K, 2], oldest first
    goal_xy: np.ndarray | None = None  # [2]
    goal_size: float = 0.3
    hazards: np.ndarray | None = None  # [H, 2]
    hazard_size: float = 0.2
    extent: float = 2.0  # half-width of the placement area
    circle: tuple[float, float] | None = None  # (radius, epsilon): cost outside their sum
    goal_lidar: np.ndarray | None = None  # [16], in [0, 1]
    hazard_lidar: np.ndarray | None = None  # [16], in [0, 1]
    step: int = 0
    max_steps: int = 1
    reward: float = 0.0  # return so far
    cost: float = 0.0  # cost so far
    cost_limit: float | None = None
    in_hazard: bool = False
    title: str = ""

    def __post_init__(self):
        if self.robot not in get_args(Robot):
            raise ValueError(f"robot: {self.robot!r} is not one of {', '.join(get_args(Robot))}")
        shapes = dict(robot_xy=(2,), goal_xy=(2,), trail=(-1, 2), hazards=(-1, 2))
        shapes |= dict(goal_lidar=(LIDAR_BINS,), hazard_lidar=(LIDAR_BINS,))
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value is None:
                continue
            got = np.shape(value)
            if len(got) != len(shape) or any(
                w not in (-1, g) for w, g in zip(shape, got, strict=True)
            ):
                wanted = str(list(shape)).replace("-1", "any")
                raise ValueError(f"{name}: shape {list(got)}, should be {wanted}")
            if not np.all(np.isfinite(value)):
                raise ValueError(f"{name}: {value} should be finite")
        for name in ("extent", "max_steps", "goal_size", "hazard_size"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: {getattr(self, name)} should be positive")


@dataclass(frozen=True)
class View:
    """The square of the world that the map shows."""

    left: float
    top: float
    width: float

    def pixels(self, xy, size: float) -> np.ndarray:
        """World [..., 2] in metres -> (column, row) [..., 2] in a map `size` pixels wide."""
        scale = size / self.width
        return (np.asarray(xy, np.float64) - (self.left, self.top)) * (scale, -scale)


def view_of(scene: Scene) -> View:
    """The placement area and a margin; widened towards a robot that has left it (no walls)."""
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
    """Top-down picture, uint8 [size + size // 8, size, 3]: a square map, numbers below it."""
    if size < 64:
        raise ValueError(f"size: {size} pixels should be at least 64")
    canvas = _Canvas(view_of(scene), size * _SS)
    _ground(canvas, scene)
    for xy in () if scene.hazards is None else scene.hazards:
        touched = scene.in_hazard and math.dist(xy, scene.robot_xy) <= scene.hazard_size
        canvas.disc(xy, scene.hazard_size, VERMILION, 2 * HAZARD_ALPHA if touched else HAZARD_ALPHA)
        canvas.ring(xy, scene.hazard_size, VERMILION)
    if scene.goal_xy is not None:
        canvas.disc(scene.goal_xy, scene.goal_size, GREEN, GOAL_ALPHA)
        canvas.ring(scene.goal_xy, scene.goal_size, GREEN)
        canvas.disc(scene.goal_xy, scene.goal_size / 8, GREEN)
    if scene.trail is not None and len(scene.trail) > 1:
        _trail(canvas, scene.trail)
    _lidar(canvas, scene)
    _robot(canvas, scene)
    picture = Image.new("RGB", (size, size + size // 8), PANEL)
    picture.paste(canvas.image.reduce(_SS))
    _panel(picture, scene, canvas.view)
    return np.array(picture)


class _Canvas:
    """Pillow in world coordinates; lengths called `u` are pixels of a picture 640 wide."""

    def __init__(self, view: View, size: int):
        self.image = Image.new("RGB", (size, size), PAPER)
        # "RGBA" on an RGB image makes Pillow blend translucent colours in place.
        self.pen = ImageDraw.Draw(self.image, "RGBA")
        self.view, self.size, self.unit = view, size, size / 640

    def at(self, xy) -> np.ndarray:
        return self.view.pixels(xy, self.size)

    def disc(self, xy, radius: float, colour: Colour, alpha: float = 1.0):
        self.pen.ellipse(self._box(xy, radius), _rgba(colour, alpha))

    def ring(self, xy, radius: float, colour: Colour, u: float = 1.6):
        self.pen.ellipse(self._box(xy, radius), None, _rgba(colour, 0.9), round(u * self.unit))

    def _box(self, xy, radius: float):
        # Whole pixels, or Pillow's rounding makes small discs lopsided.
        (x, y), r = np.rint(self.at(xy)), round(radius * self.size / self.view.width)
        return x - r, y - r, x + r, y + r

    def polygon(self, points, colour: Colour, alpha: float = 1.0):
        self.pen.polygon(self.at(points).ravel().tolist(), _rgba(colour, alpha))

    def line(self, points, colour: Colour, u: float, alpha: float = 1.0, joint=None):
        width = max(1, round(u * self.unit))
        self.pen.line(self.at(points).ravel().tolist(), _rgba(colour, alpha), width, joint)


def _rgba(colour: Colour, alpha: float = 1.0) -> tuple[int, int, int, int]:
    return (*colour, round(255 * alpha))


def _pitch(width: float) -> float:
    """Of the grid: a round number of metres, at most eight to the view."""
    power = 10.0 ** math.floor(math.log10(width / 8))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= width / 8)


def _ground(canvas: _Canvas, scene: Scene):
    view, pitch = canvas.view, _pitch(canvas.view.width)
    if scene.circle is not None:
        canvas.image.paste(COST_ZONE, (0, 0, canvas.size, canvas.size))
        canvas.disc((0, 0), sum(scene.circle), PAPER)
    right, bottom = view.left + view.width, view.top - view.width
    for k in range(math.ceil(view.left / pitch), math.floor(right / pitch) + 1):
        canvas.line([(k * pitch, bottom), (k * pitch, view.top)], INK, 1, 0.07)
    for k in range(math.ceil(bottom / pitch), math.floor(view.top / pitch) + 1):
        canvas.line([(view.left, k * pitch), (right, k * pitch)], INK, 1, 0.07)
    if scene.circle is not None:
        canvas.ring((0, 0), sum(scene.circle), VERMILION)
        canvas.ring((0, 0), scene.circle[0], GREEN)
    else:
        # An odd number of pieces: each side begins and ends with a dash, so the corners close.
        along = np.linspace(-scene.extent, scene.extent, 41 + 1).reshape(-1, 2)
        across = np.full_like(along, scene.extent)
        right_side = np.stack([across, along], -1)  # [dash, end, xy]
        sides = np.concatenate(
            [right_side, -right_side, right_side[..., ::-1], -right_side[..., ::-1]]
        )
        for dash in canvas.at(sides).reshape(-1, 4).tolist():
            canvas.pen.line(dash, _rgba(GREY, 0.7), round(canvas.unit))


def _trail(canvas: _Canvas, trail: np.ndarray, pieces: int = 40):
    """Ever paler towards the past.

    Drawn into a mask, where a piece replaces what it crosses: translucent strokes would blot.
    """
    every = math.ceil(len(trail) / 120)  # joints are what takes time
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


def _lidar(canvas: _Canvas, scene: Scene):
    # A sliver is left free between neighbours, so that bins can be counted.
    bins = np.arange(LIDAR_BINS)[:, None] + np.linspace(0.06, 0.94, 6)
    angle = scene.heading + bins * (2 * np.pi / LIDAR_BINS)
    arcs = np.stack([np.cos(angle), np.sin(angle)], -1) * _magnification(canvas.view.width)
    rings = ((scene.hazard_lidar, VERMILION, 0.28, 0.34), (scene.goal_lidar, GREEN, 0.36, 0.42))
    for values, colour, inner, outer in rings:
        if values is None:
            continue
        segments = np.concatenate([inner * arcs, outer * arcs[:, ::-1]], 1) + scene.robot_xy
        corners = canvas.at(segments).reshape(LIDAR_BINS, -1).tolist()
        for segment, value in zip(corners, np.clip(values, 0, 1).tolist(), strict=True):
            canvas.pen.polygon(segment, _rgba(GREY, 0.13))
            canvas.pen.polygon(segment, _rgba(colour, value))


def _disc(x: float, y: float, r: float) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    return np.stack([x + r * np.cos(angle), y + r * np.sin(angle)], -1)


def _box(x: float, y: float, half_x: float, half_y: float, cut: float = 0.0) -> np.ndarray:
    """A rectangle [8, 2] whose corners are cut off by `cut`."""
    a, b, c = half_x, half_y, cut
    corners = [(a, c - b), (a, b - c), (a - c, b), (c - a, b), (-a, b - c), (-a, c - b)]
    return np.array([*corners, (c - a, -b), (a - c, -b)]) + (x, y)


def _limb(a: tuple[float, float], b: tuple[float, float], r: float) -> np.ndarray:
    """A stroke [20, 2] of half-width r with round ends."""
    angle = math.atan2(b[1] - a[1], b[0] - a[0]) + np.linspace(-np.pi / 2, np.pi / 2, 10)
    cap = r * np.stack([np.cos(angle), np.sin(angle)], -1)
    return np.concatenate([b + cap, a - cap])


# Polygons in the robot's frame: dark parts, body, and the white mark that shows where forward is.
_GLYPHS: dict[str, tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]] = {
    "point": (
        [_box(0.1, 0, 0.05, 0.05, 0.012)],
        [_disc(0, 0, 0.1)],
        [np.array([(0.07, 0), (-0.045, 0.05), (-0.02, 0), (-0.045, -0.05)])],
    ),
    "car": (  # drives along -y
        [_box(s * 0.13, 0.1, 0.025, 0.05, 0.008) for s in (-1, 1)]
        + [_box(0, 0.15, 0.1, 0.012), _box(0, -0.15, 0.05, 0.025, 0.01)],
        [_box(0, 0, 0.1, 0.13, 0.03)],
        [np.array([(0, -0.1), (-0.055, 0.02), (0, -0.01), (0.055, 0.02)])],
    ),
    "doggo": (
        [_limb((u * 0.12, 0), (u * 0.17, v * 0.13), 0.022) for u in (-1, 1) for v in (-1, 1)]
        + [
            _limb((u * 0.17, v * 0.13), (u * 0.17 + 0.05, v * 0.16), 0.022)
            for u in (-1, 1)
            for v in (-1, 1)
        ],
        [_limb((-0.13, 0), (0.13, 0), 0.06), _disc(0.2, 0, 0.05)],
        [np.array([(0.12, 0), (0.03, 0.036), (0.05, 0), (0.03, -0.036)])],
    ),
    "rc_car": (
        [_box(u * 0.13, v * 0.095, 0.04, 0.018, 0.006) for u in (-1, 1) for v in (-1, 1)],
        [_box(0, 0, 0.19, 0.085, 0.035)],
        [np.array([(0.14, 0), (0.03, 0.05), (0.055, 0), (0.03, -0.05)])],
    ),
}


def _robot(canvas: _Canvas, scene: Scene):
    cos, sin = math.cos(scene.heading), math.sin(scene.heading)
    rotation = np.array([(cos, sin), (-sin, cos)]) * _magnification(canvas.view.width)
    parts, body, mark = (
        [polygon @ rotation + scene.robot_xy for polygon in group] for group in _GLYPHS[scene.robot]
    )
    # Strokes first and fillings over them: only the outline of the whole remains.
    outline, u = (VERMILION, 6.0) if scene.in_hazard else (INK, 3.4)
    for polygon in parts + body:
        canvas.line(np.concatenate([polygon, polygon[:2]]), outline, u, joint="curve")
    for group, colour in ((parts, INK), (body, BLUE), (mark, PAPER)):
        for polygon in group:
            canvas.polygon(polygon, colour)


def _panel(picture: Image.Image, scene: Scene, view: View):
    """Scale bar and numbers; coordinates are those of a picture 640 wide."""
    pen, unit = ImageDraw.Draw(picture), picture.width / 640

    def text(x: float, y: float, words: str, size: float, colour: Colour, centred=False):
        mask = _lettering(words, round(size * unit))
        left = x * unit - (mask.width / 2 if centred else 0)
        picture.paste(colour, (round(left), round(y * unit) - 2 * mask.height // 3), mask)

    def bar(x0: float, y0: float, x1: float, y1: float, colour: Colour):
        left, top, right, bottom = (round(v * unit) for v in (x0, y0, x1, y1))
        if right > left:
            pen.rectangle((left, top, right - 1, max(top, bottom - 1)), colour)

    pitch = _pitch(view.width)
    bar(16, 622, 16 + 640 * pitch / view.width, 624, GREY)
    text(16, 617, f"{pitch:g} m", 12, GREY)
    bar(0, 640, 640, 642, RULE)
    bar(0, 640, 640 * min(1.0, scene.step / scene.max_steps), 642, GREY)

    title = scene.title if len(scene.title) <= 32 else scene.title[:31] + "\N{HORIZONTAL ELLIPSIS}"
    text(20, 676, title, 17, INK)
    text(20, 702, f"step {scene.step} / {scene.max_steps}", 13, GREY)
    text(310, 676, "return", 13, GREY)
    text(310, 702, f"{scene.reward:.2f}", 20, INK)
    limit = scene.cost_limit
    over = limit is not None and scene.cost > limit
    text(410, 676, "cost", 13, GREY)
    text(410, 702, f"{scene.cost:g}", 20, VERMILION if over else INK)
    if limit is None:
        return
    # Two thirds of the bar are the allowance: it is full at one and a half limits.
    left, tick, right = 470, 570, 620
    share = min(scene.cost / limit, 1.5) if limit > 0 else 1.5 * over
    bar(left, 691, right, 699, RULE)
    bar(left, 691, left + (tick - left) * min(share, 1), 699, BLUE)
    bar(tick, 691, left + (tick - left) * share, 699, VERMILION)
    bar(tick - 1, 686, tick + 1, 704, INK)
    text(tick, 676, f"limit {limit:g}", 13, GREY, centred=True)


@functools.lru_cache(512)
def _lettering(words: str, size: int) -> Image.Image:
    """Mask of a line of text whose baseline is two thirds down; most lines recur every frame."""
    font = ImageFont.load_default(size * _SS)
    height = 3 * max(1, size // 2) * _SS
    mask = Image.new("L", (math.ceil(font.getlength(words)) + _SS, height))
    ImageDraw.Draw(mask).text((0, 2 * mask.height // 3), words, 255, font, "ls")
    return mask.reduce(_SS)
