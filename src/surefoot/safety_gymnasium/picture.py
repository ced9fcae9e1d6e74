"""`render`: the drawing from above, or MuJoCo's camera that follows the robot."""

from typing import TYPE_CHECKING

import numpy as np

from surefoot.envs.base import TaskEnv

if TYPE_CHECKING:
    from surefoot.envs.render.camera import CameraView

CAMERAS = ("vision", "track", "fixednear", "fixedfar")
"""The reference's cameras, by `camera_id`."""
FROM_ABOVE = (None, "fixednear", "fixedfar")
SMALLEST = 64


class Picture:
    """Pictures [height, width, 3] of one environment or several."""

    def __init__(
        self, width: int = 256, height: int = 256, camera_id: int | None = None,
        camera_name: str | None = None,
    ):  # fmt: skip
        for name, value in (("width", width), ("height", height)):
            if isinstance(value, bool) or not isinstance(value, int) or value < SMALLEST:
                raise ValueError(f"{name}={value!r} must be a whole number, at least {SMALLEST}")
        if camera_id is not None and camera_name is not None:
            raise ValueError(
                f"camera_id={camera_id!r} must be None where camera_name={camera_name!r}"
            )
        if camera_id is not None:
            if not 0 <= camera_id < len(CAMERAS):
                raise ValueError(f"camera_id={camera_id!r} must be from 0 to {len(CAMERAS) - 1}")
            camera_name = CAMERAS[camera_id]
        if camera_name not in (*FROM_ABOVE, "track"):
            raise ValueError(
                f"camera_name={camera_name!r} must be 'track', or 'fixednear' or 'fixedfar' for "
                "the drawing from above; other cameras are left out"
            )
        self.width, self.height, self.camera = width, height, camera_name
        self._views: dict[int, CameraView] = {}

    def draw(self, env: TaskEnv, i: int = 0) -> np.ndarray:
        """Environment i as it is now."""
        if self.camera == "track":
            return self._track(env, i)
        from surefoot.envs.render.draw import draw

        scene, size = env.scene(i), min(self.width, self.height)
        picture = np.empty((self.height, self.width, 3), dtype=np.uint8)
        picture[:] = scene.background
        top, left = (self.height - size) // 2, (self.width - size) // 2
        picture[top : top + size, left : left + size] = draw(scene, size)[:size]
        return picture

    def _track(self, env: TaskEnv, i: int) -> np.ndarray:
        from surefoot.envs.render.camera import CameraView

        pose = env.pose(i)
        assert pose is not None
        if i not in self._views:
            self._views[i] = CameraView(pose[0], self.width, self.height, "track")
        return self._views[i].render(pose[1], env.scene(i))

    def close(self) -> None:
        for view in self._views.values():
            view.close()
        self._views.clear()


def tile(pictures: list[np.ndarray], padding: int = 5) -> np.ndarray:
    """Pictures of the same size side by side, in about as many rows as columns."""
    rows = int(np.ceil(np.sqrt(len(pictures))))
    columns = int(np.ceil(len(pictures) / rows))
    height, width = (n + 2 * padding for n in pictures[0].shape[:2])
    out = np.zeros((rows * height, columns * width, 3), dtype=np.uint8)
    for k, picture in enumerate(pictures):
        y, x = (k // columns) * height + padding, (k % columns) * width + padding
        out[y : y + picture.shape[0], x : x + picture.shape[1]] = picture
    return out
