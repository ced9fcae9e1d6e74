"""MuJoCo's camera view of a robot and the circles around it; needs OpenGL."""
# pyright: reportAttributeAccessIssue=false
# (pyright cannot resolve the names of compiled modules)

import copy
import functools
import importlib
import os
import platform
import subprocess
import sys

import mujoco
import numpy as np

from surefoot.envs.render.scene import Circle, Colour, Scene

_PROBE = """
import mujoco
context = mujoco.GLContext(8, 8)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_50)
"""
_HALF_HEIGHT = 0.004  # of a disc, in metres: above the floor, below the robot


def find_backend() -> str | None:
    """The first OpenGL backend that works; if MUJOCO_GL names one, only that is tried."""
    requested = os.environ.get("MUJOCO_GL", "").strip().lower()
    backends = {"Linux": ("egl", "osmesa"), "Darwin": ("cgl",)}.get(platform.system(), ("glfw",))
    if requested in ("egl", "osmesa", "cgl", "glfw"):
        backends = (requested,)
    elif requested in ("disable", "disabled", "off", "false", "0"):
        backends = ()
    return next((name for name in backends if _works(name)), None)


@functools.cache
def _works(backend: str) -> bool:
    """Whether the backend opens a context, in a separate process: a broken driver may crash."""
    environment = os.environ | {"MUJOCO_GL": backend}
    environment.pop("PYOPENGL_PLATFORM", None)
    try:
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE], env=environment, capture_output=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return probe.returncode == 0


class CameraView:
    """Pictures of one robot's model from one of its cameras ("track" or "top").

    Holds an OpenGL context: `close` it, or use it in a `with` statement.
    """

    def __init__(
        self, model: mujoco.MjModel, width: int = 640, height: int = 480, camera: str = "track"
    ):
        names = [model.camera(k).name for k in range(model.ncam)]
        if camera not in names:
            raise ValueError(f"camera={camera!r} must be one of {', '.join(names) or 'none'}")
        for name, value in (("width", width), ("height", height)):
            if not value > 0:
                raise ValueError(f"{name}={value} must be positive")
        backend = find_backend()
        if backend is None:
            raise RuntimeError(
                "no OpenGL for the camera view: install EGL or OSMesa (on Debian: libegl1 and "
                "libgl1-mesa-dri, or libosmesa6), check MUJOCO_GL "
                f"({os.environ.get('MUJOCO_GL', 'not set')}), or use the top-down view"
            )
        # MuJoCo fixed its backend at import, and on Linux its default needs a display.
        os.environ["MUJOCO_GL"] = backend
        renderer = sys.modules[mujoco.Renderer.__module__]
        renderer.gl_context.GLContext = importlib.import_module(f"mujoco.{backend}").GLContext
        self._model = copy.copy(model)
        self._model.vis.global_.offwidth, self._model.vis.global_.offheight = width, height
        self._data, self._camera = mujoco.MjData(self._model), camera
        self._renderer = mujoco.Renderer(self._model, height, width)

    def render(self, qpos: np.ndarray, scene: Scene) -> np.ndarray:
        """The robot at `qpos` [nq] with the scene's filled circles, uint8 [height, width, 3]."""
        if np.shape(qpos) != (self._model.nq,):
            raise ValueError(f"qpos has shape {np.shape(qpos)}; it must be ({self._model.nq},)")
        self._data.qpos[:] = qpos
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)  # for tracking cameras
        mujoco.mj_camlight(self._model, self._data)
        self._renderer.update_scene(self._data, self._camera)
        for shape in scene.shapes:
            if isinstance(shape, Circle) and shape.fill and shape.outline:
                self._add_disc(shape.xy, shape.radius, shape.colour)
        return self._renderer.render()

    def _add_disc(self, xy: np.ndarray, radius: float, colour: Colour) -> None:
        scene = self._renderer.scene
        if scene.ngeom >= scene.maxgeom:
            raise ValueError(f"a view can hold at most {scene.maxgeom} shapes")
        geom = scene.geoms[scene.ngeom]
        mujoco.mjv_initGeom(
            geom,
            mujoco.mjtGeom.mjGEOM_CYLINDER.value,
            np.array([radius, _HALF_HEIGHT, 0]),
            np.array([*xy, 1.1 * _HALF_HEIGHT]),
            np.eye(3).ravel(),
            np.array([*(c / 255 for c in colour), 0.45], np.float32),
        )
        geom.category = mujoco.mjtCatBit.mjCAT_DECOR.value  # decoration casts no shadow
        scene.ngeom += 1

    def close(self) -> None:
        """Free the OpenGL context."""
        self._renderer.close()

    def __enter__(self) -> "CameraView":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
