"""MuJoCo's camera view of a robot among its hazards, where OpenGL can be had.

`mujoco.Renderer` fixes its backend when mujoco is first imported, long before anybody asks for a
picture, and on Linux its default needs a display. So the context is opened here, with a backend
that was seen to work: in a process of its own, since a broken driver may print or crash.
"""
# pyright: reportAttributeAccessIssue=false
# (mujoco takes its names from compiled modules, which pyright cannot look into)

import atexit
import functools
import importlib
import os
import platform
import subprocess
import sys
import weakref

import mujoco
import numpy as np

from surefoot.envs.render.draw import GREEN, VERMILION, Colour, Scene

_PROBE = """
import mujoco
context = mujoco.GLContext(8, 8)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_50)
"""
_FLAT = 0.004  # half-height of a hazard or goal, metres: above the floor, below the robot


def gl_available() -> bool:
    """Whether `CameraView` can work here. Takes a second the first time, nothing later."""
    return _backend() is not None


def _backend() -> str | None:
    """The first backend that opens a context; if MUJOCO_GL names one, that or none."""
    wish = os.environ.get("MUJOCO_GL", "").strip().lower()
    ours = {"Linux": ("egl", "osmesa"), "Darwin": ("cgl",)}.get(platform.system(), ("glfw",))
    if wish in ("egl", "osmesa", "cgl", "glfw"):
        ours = (wish,)
    elif wish in ("disable", "disabled", "off", "false", "0"):
        ours = ()
    return next((name for name in ours if _works(name)), None)


@functools.cache
def _works(backend: str) -> bool:
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
        self._gl = self._mjr = None
        camera_id = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, camera)
        if camera_id < 0:
            names = ", ".join(model.camera(k).name for k in range(model.ncam)) or "none"
            raise ValueError(f"camera: {camera!r} is not in the model, which has: {names}")
        for name, value in (("width", width), ("height", height)):
            if not value > 0:
                raise ValueError(f"{name}: {value} should be positive")
        backend = _backend()
        if backend is None:
            raise RuntimeError(
                "no OpenGL for the camera view: install EGL or OSMesa (on Debian: libegl1 and "
                "libgl1-mesa-dri, or libosmesa6), check MUJOCO_GL "
                f"({os.environ.get('MUJOCO_GL', 'not set')}), or use surefoot.envs.render.draw"
            )
        # MuJoCo's own loader of OpenGL functions looks at this variable, too.
        os.environ["MUJOCO_GL"] = backend
        self._model, self._data = model, mujoco.MjData(model)
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
        self._camera.fixedcamid = camera_id
        self._option = mujoco.MjvOption()
        self._scene = mujoco.MjvScene(model, maxgeom=1000)
        self._rect = mujoco.MjrRect(0, 0, width, height)
        self._gl = importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
        # Registered after the backend's own clean-up, so called before it.
        atexit.register(_close, weakref.ref(self))
        self._gl.make_current()
        self._mjr = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_resizeOffscreen(width, height, self._mjr)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._mjr)

    def render(self, qpos: np.ndarray, scene: Scene) -> np.ndarray:
        """The robot at `qpos` [nq] with the scene's hazards and goal, uint8 [height, width, 3]."""
        if self._gl is None or self._mjr is None:
            raise RuntimeError("this CameraView has been closed")
        if np.shape(qpos) != (self._model.nq,):
            raise ValueError(f"qpos: shape {np.shape(qpos)}, should be ({self._model.nq},)")
        self._data.qpos[:] = qpos
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)  # what tracking cameras follow
        mujoco.mj_camlight(self._model, self._data)
        mujoco.mjv_updateScene(
            self._model,
            self._data,
            self._option,
            None,
            self._camera,
            mujoco.mjtCatBit.mjCAT_ALL.value,
            self._scene,
        )
        for xy in () if scene.hazards is None else scene.hazards:
            self._add_disc(xy, scene.hazard_size, VERMILION)
        if scene.goal_xy is not None:
            self._add_disc(scene.goal_xy, scene.goal_size, GREEN)
        self._gl.make_current()
        mujoco.mjr_render(self._rect, self._scene, self._mjr)
        pixels = np.empty((self._rect.height, self._rect.width, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, self._rect, self._mjr)
        return pixels[::-1].copy()  # OpenGL's first row is the lowest

    def _add_disc(self, xy: np.ndarray, radius: float, colour: Colour):
        if self._scene.ngeom >= self._scene.maxgeom:
            raise ValueError(f"hazards: more than the {self._scene.maxgeom} shapes a view can hold")
        geom = self._scene.geoms[self._scene.ngeom]
        mujoco.mjv_initGeom(
            geom,
            mujoco.mjtGeom.mjGEOM_CYLINDER.value,
            np.array([radius, _FLAT, 0]),
            np.array([*xy, 1.1 * _FLAT]),
            np.eye(3).ravel(),
            np.array([*(c / 255 for c in colour), 0.45], np.float32),
        )
        geom.category = mujoco.mjtCatBit.mjCAT_DECOR.value  # decoration casts no shadow
        self._scene.ngeom += 1

    def close(self):
        """Free the OpenGL context; the view draws nothing afterwards."""
        if self._gl is not None:
            self._gl.make_current()
            if self._mjr is not None:
                self._mjr.free()
            self._gl.free()
        self._gl = self._mjr = None

    def __enter__(self) -> "CameraView":
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()


def _close(view: weakref.ref[CameraView]):
    if (alive := view()) is not None:
        alive.close()
