"""Pictures and clips: colours at computed places, files that open again."""

import dataclasses
import os
import subprocess
import sys
from typing import ClassVar

import mujoco
import numpy as np
import pytest
from PIL import Image, ImageSequence

from surefoot.envs.rc_car.env import RCCarEnv
from surefoot.envs.render import clip
from surefoot.envs.render.camera import CameraView
from surefoot.envs.render.clip import save_clip
from surefoot.envs.render.draw import draw, view_of
from surefoot.envs.render.film import film
from surefoot.envs.render.scene import Circle, DashedSquare, LidarRing, Scene
from toys import Drift

PAPER, BLUE, GREEN, VERMILION = (252, 252, 250), (0, 114, 178), (0, 158, 115), (213, 94, 0)
# 0.24 vermilion + 0.76 paper and 0.26 green + 0.74 paper, worked out by hand.
HAZARD, GOAL = (242.6, 214.1, 190.0), (186.5, 227.6, 214.9)


PLACES = ((1.0, 0.5), (-1.5, 1.0))


def hazards(*places, size=0.2) -> tuple[Circle, ...]:
    return tuple(Circle(np.array(xy), size, VERMILION, fill=0.24) for xy in places)


def scene(**changes) -> Scene:
    goal = np.array([0.5, -1.5])
    plain = Scene(
        robot_xy=np.array([-1.2, -1.2]),
        heading=0.0,
        glyph="point",
        extent=2.0,
        shapes=(
            DashedSquare(2.0),
            *hazards(*PLACES),
            Circle(goal, 0.3, GREEN, fill=0.26),
            Circle(goal, 0.3 / 8, GREEN, fill=1.0, outline=False),
        ),
        max_steps=100,
        cost_limit=20.0,
        title="a title",
    )
    return dataclasses.replace(plain, **changes)


def assert_colour(pixel, colour, within=2.5):
    np.testing.assert_allclose(np.asarray(pixel, float), colour, atol=within)


def count(picture, colour, within=12):
    """Pixels of the map that have the colour."""
    square = picture[: picture.shape[1]].astype(int)
    return int((np.abs(square - colour).max(-1) <= within).sum())


def test_hazards_and_goal_are_where_the_world_has_them():
    # Extent 2 is shown with a quarter more: 5 m over 640 pixels, 128 pixels to the metre, y up.
    picture = draw(scene())
    assert picture.shape == (720, 640, 3)
    assert picture.dtype == np.uint8
    # Hazard at (1, .5): column 320 + 128, row 320 - 64; radius 25.6. Off-centre to miss the grid.
    for dx, dy in ((6, 6), (-20, 5), (5, 20), (-14, -14)):
        assert_colour(picture[256 + dy, 448 + dx], HAZARD)
    for dx, dy in ((30, 5), (-30, 5), (5, 30), (22, 22)):
        assert_colour(picture[256 + dy, 448 + dx], PAPER)
    # Goal at (.5, -1.5): column 384, row 512; radius 38.4.
    assert_colour(picture[512 + 20, 384 + 20], GOAL)
    assert_colour(picture[512, 384], GREEN)
    assert_colour(picture[512 + 30, 384 + 30], PAPER)


def test_area_of_a_hazard_is_that_of_its_disc():
    with_one = draw(scene(shapes=hazards((0.5, 0.5), size=0.4)))
    # Without the outline (1.6 pixels wide) and the grid: no line of it meets this disc.
    assert count(with_one, HAZARD, 3) == pytest.approx(np.pi * (0.4 * 128 - 1.5) ** 2, rel=0.03)


def test_robot_is_drawn_at_its_place_and_its_outline_marks_costs():
    safe, unsafe = draw(scene()), draw(scene(alert=True, shapes=()))
    # (-1.2, -1.2): column 320 - 153.6, row 320 + 153.6; beside the white mark.
    assert_colour(safe[474 - 9, 166 + 1], BLUE, 6)
    assert count(safe, VERMILION) < 400  # the hazards' outlines only
    ring = unsafe[474 - 20 : 474 + 20, 166 - 20 : 166 + 20]
    assert (np.abs(ring.astype(int) - VERMILION).max(-1) < 12).sum() > 100
    assert count(draw(scene(shapes=())), VERMILION) == 0


@pytest.mark.parametrize(
    ("glyph", "forward"), [("point", 0), ("car", -np.pi / 2), ("doggo", 0), ("rc_car", 0)]
)
def test_heading_mark_points_forward(glyph, forward):
    """The white mark is an arrow: its centroid lies ahead of that of its widest, hindmost part."""
    heading = 0.7
    picture = draw(scene(glyph=glyph, robot_xy=np.zeros(2), heading=heading, shapes=()))
    ys, xs = np.nonzero(np.abs(picture[300:341, 300:341].astype(int) - PAPER).max(-1) < 8)
    x, y = (xs - 20) / 128, (20 - ys) / 128
    ahead = np.stack([np.cos(heading + forward), np.sin(heading + forward)])
    along, across = ahead @ (x, y), np.abs(np.array([-ahead[1], ahead[0]]) @ (x, y))
    inside = (across < 0.06) & (np.abs(along) < 0.1)
    if glyph == "rc_car":
        inside &= along > 0
    along, across = along[inside], across[inside]
    assert len(along) > 20
    middle = np.median(along)
    assert across[along > middle].mean() < across[along < middle].mean()


def test_lidar_bins_turn_with_the_robot():
    lidar = np.zeros(16)
    lidar[3] = 1.0  # from 67.5 to 90 degrees, so its middle is at 78.75
    rings = LidarRing(lidar, VERMILION, 0.28, 0.34), LidarRing(0.5 * lidar, GREEN, 0.36, 0.42)
    turned = scene(robot_xy=np.zeros(2), shapes=(), heading=np.deg2rad(30), lidar=rings)
    picture = draw(turned)
    # 108.75 degrees in the world; hazards' ring at .31 m (39.7 pixels), the goal's at .39 (49.9).
    assert_colour(picture[320 - 38, 320 - 13], VERMILION)
    middle = (117.5, 196.9, 175.1)  # half green over a 0.13 grey track on paper
    assert_colour(picture[320 - 47, 320 - 16], middle, 4)
    assert count(picture, VERMILION, 3) == pytest.approx(
        0.88 * np.pi / 16 * (0.34**2 - 0.28**2) * 128**2, rel=0.25
    )


@pytest.mark.parametrize("xy", [(3.5, 0.0), (-1.0, 6.0), (-30.0, -40.0)])
def test_robot_outside_of_the_area_is_still_in_the_picture(xy):
    ring = LidarRing(np.ones(16), GREEN, 0.36, 0.42)
    outside = scene(robot_xy=np.array(xy), lidar=(ring,))
    view, picture = view_of(outside), draw(outside)
    column, row = view.pixels(xy, 640)
    assert 25 < column < 615
    assert 25 < row < 615
    near = picture[int(row) - 16 : int(row) + 17, int(column) - 16 : int(column) + 17]
    assert (np.abs(near.astype(int) - BLUE).max(-1) < 12).sum() > 40
    # The whole placement area remains visible as well.
    corners = view.pixels([(-2, -2), (2, 2)], 640)
    assert (corners > 0).all()
    assert (corners < 640).all()


def test_view_widens_only_as_far_as_needed():
    assert view_of(scene()).width == 5.0
    # Robot at x = 3.5 with .45 m beside it: from -2.5 to 3.95.
    view = view_of(scene(robot_xy=np.array([3.5, 0.0])))
    assert view.width == pytest.approx(6.45)
    np.testing.assert_allclose(view.pixels((3.5, 0.0), 645), (600, 322.5))


def test_circle_task_tints_where_cost_is_paid():
    # Extent 1.6: 4 m over 640 pixels, 160 to the metre; cost beyond 1.05 m = 168 pixels.
    env = RCCarEnv(num_envs=1, seed=0)
    env.reset()
    picture = draw(dataclasses.replace(env.scene(0), extent=1.6))
    angle = np.deg2rad(20)
    for radius, colour in ((150, PAPER), (164, PAPER), (180, (248, 236, 225))):
        at = np.rint((320 - radius * np.sin(angle), 320 + radius * np.cos(angle))).astype(int)
        assert_colour(picture[tuple(at)], colour)


def test_trail_fades_into_the_past():
    trail = np.stack([np.linspace(-1.8, 1.8, 200), np.full(200, 1.75)], -1)
    picture = draw(scene(trail=trail, shapes=()))
    row = 320 - 224
    old, new = (np.abs(picture[row, c].astype(int) - PAPER).sum() for c in (110, 540))
    assert 0 < old < 60
    assert new > 300


def test_cost_bar_grows_and_turns_at_the_limit():
    def lengths(cost):
        line = draw(scene(cost=cost, cost_limit=20.0))[695, 470:].astype(int)
        return tuple(int((np.abs(line - c).max(-1) < 4).sum()) for c in (BLUE, VERMILION))

    # The bar is 150 pixels, the limit at 100 of them; its mark hides one pixel on each side.
    assert lengths(0.0) == (0, 0)
    assert lengths(10.0) == (50, 0)
    assert lengths(25.0) == (99, 24)
    assert lengths(400.0) == (99, 49)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: scene(glyph="bike"), "glyph='bike'"),
        (lambda: scene(robot_xy=np.array([np.nan, 0])), "robot_xy"),
        (lambda: scene(robot_xy=np.zeros(3)), "robot_xy"),
        (lambda: scene(extent=0.0), "extent=0.0"),
    ],
)
def test_bad_scenes_are_refused(make, field):
    with pytest.raises(ValueError, match=field):
        make()


def moving(frames):
    """Distinct frames of an odd height: a white square on grey moves by 4 pixels."""
    for k in range(frames):
        frame = np.full((51, 80, 3), 90, np.uint8)
        frame[10:30, 4 * k : 4 * k + 16] = 255
        yield frame


def test_gif_opens_again(tmp_path):
    path = save_clip(moving(12), tmp_path / "new" / "folder" / "a.gif", fps=30)
    with Image.open(path) as image:
        assert image.size == (80, 51)
        assert image.n_frames == 12
        frames, times = [], []
        for frame in ImageSequence.Iterator(image):
            frames.append(np.array(frame.convert("RGB")))
            times.append(frame.info["duration"])
    # 12 frames at 30 a second are .4 s, although no single frame can last 33.3 ms.
    assert sum(times) == 400
    assert set(times) == {30, 40}
    np.testing.assert_array_equal(frames, list(moving(12)))
    assert [p.name for p in path.parent.iterdir()] == ["a.gif"]


def test_gif_keeps_rare_colours_of_many(tmp_path):
    rng = np.random.default_rng(0)
    frames = rng.integers(100, 156, (3, 40, 40, 3)).astype(np.uint8)  # thousands of greyish colours
    frames[2, 5:8, 5:8] = VERMILION
    frames[:, 20:] = PAPER
    path = save_clip(frames, tmp_path / "a.gif", fps=10)
    with Image.open(path) as image:
        image.seek(2)
        last = np.array(image.convert("RGB"))
    assert_colour(last[6, 6], VERMILION, 12)
    assert_colour(last[30, 30], PAPER, 0)


# imageio's reader leaves the pipes to ffmpeg for the garbage collector to close.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_mp4_opens_again(tmp_path):
    imageio = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")
    path = save_clip(moving(12), tmp_path / "a.mp4", fps=25)
    with imageio.get_reader(path, "FFMPEG") as reader:
        assert reader.get_meta_data()["fps"] == 25
        frames = [np.asarray(frame) for frame in reader]
    # One row was added: the codec needs even sides.
    assert [frame.shape for frame in frames] == [(52, 80, 3)] * 12
    difference = np.abs(np.stack(frames)[:, :51].astype(float) - list(moving(12)))
    assert difference.mean() < 6


def test_mp4_frames_are_not_held_in_memory(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    alive = []

    def frames():
        import weakref

        for frame in moving(30):
            alive.append(weakref.ref(frame))
            yield frame
            del frame
            assert sum(ref() is not None for ref in alive) <= 3

    save_clip(frames(), tmp_path / "a.mp4", fps=25)
    assert len(alive) == 30


@pytest.mark.parametrize("name", ["a.avi", "a", "a.gif.txt"])
def test_other_suffixes_are_refused(tmp_path, name):
    suffix = os.path.splitext(name)[1]
    with pytest.raises(ValueError, match=f"'{suffix}' must be one of .gif, .mp4"):
        save_clip(moving(2), tmp_path / "folder" / name, fps=10)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_failures_leave_the_old_file_alone(tmp_path, suffix):
    if suffix == ".mp4":
        pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / f"a{suffix}"
    path.write_text("old")

    def breaking():
        yield from moving(3)
        raise RuntimeError("the simulation broke")

    with pytest.raises(RuntimeError, match="the simulation broke"):
        save_clip(breaking(), path, fps=10)
    changing = [np.zeros((8, 8, 3), np.uint8), np.zeros((8, 10, 3), np.uint8)]
    with pytest.raises(ValueError, match=r"frames\[1\] is uint8 \[8, 10, 3\]"):
        save_clip(changing, path, fps=10)
    with pytest.raises(ValueError, match=r"frames\[0\] is float64 \[8, 8, 3\]"):
        save_clip([np.zeros((8, 8, 3))], path, fps=10)
    with pytest.raises(ValueError, match="frames is empty"):
        save_clip([], path, fps=10)
    with pytest.raises(ValueError, match="fps=0"):
        save_clip(moving(2), path, fps=0)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_mp4_without_ffmpeg_names_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(clip, "_has_video", lambda: False)
    with pytest.raises(ValueError, match=r"pip install 'surefoot\[video\]'.*\.gif"):
        save_clip(moving(2), tmp_path / "a.mp4", fps=10)
    assert list(tmp_path.iterdir()) == []


class Painted(Drift):
    """Renders a picture of 60 x 40 that is brighter with every step, and reports no cost."""

    metadata: ClassVar = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def step(self, action):
        return *super().step(action)[:4], {}

    def render(self):
        return np.full((40, 60, 3), 10 * self.t, np.uint8) if self.render_mode else None


def test_a_foreign_environment_is_filmed_as_it_renders_itself(tmp_path):
    path = film(f"{__file__}:Painted", tmp_path / "a.gif", steps=25, every=5, size=120)
    with Image.open(path) as image:
        assert image.n_frames == 5 and image.size == (120, 80 + 15)
        frames = [np.array(f.convert("RGB")) for f in ImageSequence.Iterator(image)]
    # Its episodes have 20 steps.
    assert [frame[20, 20].tolist() for frame in frames] == [[b] * 3 for b in (0, 50, 100, 150, 0)]
    assert [f[80, 20].tolist() for f in frames[:2]] == [[225, 227, 229], [122, 128, 136]]
    with pytest.raises(ValueError, match="view='camera'"):
        film(f"{__file__}:Painted", tmp_path / "b.gif", view="camera")
    with pytest.raises(ValueError, match="renders no rgb_array"):
        film(f"{__file__}:Drift", tmp_path / "b.gif", steps=2)
    assert [p.name for p in tmp_path.iterdir()] == ["a.gif"]


def test_a_gymnasium_id_is_filmed(tmp_path):
    pytest.importorskip("pygame")
    path = film("CartPole-v1", tmp_path / "a.gif", steps=3, every=1, size=120)
    with Image.open(path) as image:
        assert image.n_frames == 3 and image.size == (120, 80 + 15)


ROOM = """
<mujoco>
  <visual><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>
  <worldbody>
    <geom type="plane" size="9 9 .1" rgba="1 1 1 1"/>
    <camera name="top" pos="0 0 5" fovy="53.13010235415598"/>
    <body pos="0 0 .1"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
      <geom size=".1" rgba="0 0 1 1"/></body>
  </worldbody>
</mujoco>
"""


def test_camera_view_without_opengl_raises(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    model = mujoco.MjModel.from_xml_string(ROOM)
    with pytest.raises(RuntimeError, match=r"no OpenGL.*MUJOCO_GL=disabled.*top-down"):
        CameraView(model, 64, 64, "top")
    with pytest.raises(ValueError, match="camera='side' must be one of top"):
        CameraView(model, 64, 64, "side")


CAMERA = """
import sys
import mujoco, numpy as np
from surefoot.envs.render.camera import CameraView
from surefoot.envs.render.scene import GREEN, VERMILION, Circle, Scene
model = mujoco.MjModel.from_xml_string(sys.argv[1])
shapes = (Circle(np.array([1.0, 0.5]), 0.2, VERMILION, 0.24),
          Circle(np.array([-1.0, -0.5]), 0.3, GREEN, 0.26))
scene = Scene(robot_xy=np.zeros(2), heading=0.0, glyph="point", extent=2.0, shapes=shapes)
view = CameraView(model, 320, 200, "top")
np.save(sys.argv[2], view.render(np.array([0.0, 1.5]), scene))
"""


def test_camera_view_shows_robot_hazards_and_goal(tmp_path):
    # In a process of its own: neither the variable it sets nor a context left open may disturb.
    path = tmp_path / "picture.npy"
    done = subprocess.run(
        [sys.executable, "-c", CAMERA, ROOM, path], capture_output=True, text=True
    )
    if "no OpenGL for the camera view" in done.stderr:
        pytest.skip("no OpenGL on this machine")
    assert (done.returncode, done.stderr) == (0, "")
    picture = np.load(path).astype(int)
    assert picture.shape == (200, 320, 3)
    # 5 m above the floor, twice atan(1/2) of view: 200 pixels show 5 m, 40 to the metre, y up.
    for (x, y), weak in (((1, 0.5), 2), ((-1, -0.5), 0)):
        pixel = picture[100 - int(40 * y), 160 + int(40 * x)]
        background = picture[100 - int(40 * y), 160 + int(40 * x) + 20]
        assert background.min() > 200
        assert pixel[weak] < 170  # vermilion takes blue from the white floor, green takes red
    blue = picture[..., 2] - picture[..., 0] > 100
    rows, columns = np.nonzero(blue)
    # The ball's centre is 0.1 m nearer to the camera: 1.5 m look like 1.5 * 5 / 4.9.
    assert columns.mean() == pytest.approx(159.5, abs=1)
    assert rows.mean() == pytest.approx(99.5 - 40 * 1.5 * 5 / 4.9, abs=1.5)
