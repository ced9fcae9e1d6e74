"""MuJoCo's camera view of a robot and the circles around it; needs OpenGL."""
# pyright: reportAttributeAccessIssue=false
# (pyright cannot resolve the names of compiled modules)

import copy
import importlib
import os
import platform
import sys

import mujoco
import numpy as np

from surefoot.envs.render.scene import Circle, Scene

# Of a disc, in metres: above the floor, below the robot.
HALF_HEIGHT = 0.004


def use_backend() -> None:
    """Let MuJoCo render with the backend named by MUJOCO_GL, else the platform's offscreen one.

    MuJoCo chooses its backend when it is imported, and on Linux its default needs a display.
    """
    default = {"Linux": "egl", "Darwin": "cgl"}.get(platform.system(), "glfw")
    backend = os.environ.get("MUJOCO_GL", "").strip().lower() or default
    try:
        context = importlib.import_module(f"mujoco.{backend}").GLContext
        context(8, 8).free()
    except Exception as error:
        raise RuntimeError(
            f"no OpenGL for the camera view (MUJOCO_GL={backend}): {error}. Install EGL or OSMesa "
            "(on Debian: libegl1 and libgl1-mesa-dri, or libosmesa6), set MUJOCO_GL to egl or "
            "osmesa, or use the top-down view"
        ) from error
    os.environ["MUJOCO_GL"] = backend
    sys.modules[mujoco.Renderer.__module__].gl_context.GLContext = context


class CameraView:
    """Pictures of one robot's model from one of its cameras ("track" or "top").

    Holds an OpenGL context until `close`.
    """

    def __init__(
        self, model: mujoco.MjModel, width: int = 640, height: int = 480, camera: str = "track"
    ):
        names = [model.camera(k).name for k in range(model.ncam)]
        if camera not in names:
            raise ValueError(f"camera={camera!r} must be one of {', '.join(names) or 'none'}")
        use_backend()
        self._model = copy.copy(model)
        self._model.vis.global_.offwidth, self._model.vis.global_.offheight = width, height
        self._data, self._camera = mujoco.MjData(self._model), camera
        self._renderer = mujoco.Renderer(self._model, height, width)
        self.close = self._renderer.close

    def render(self, qpos: np.ndarray, scene: Scene) -> np.ndarray:
        """The robot at `qpos` [nq] with the scene's filled circles, uint8 [height, width, 3]."""
        self._data.qpos[:] = qpos
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)  # for tracking cameras
        mujoco.mj_camlight(self._model, self._data)
        self._renderer.update_scene(self._data, self._camera)
        for shape in scene.shapes:
            if isinstance(shape, Circle) and shape.fill and shape.outline:
                self._add_disc(shape)
        return self._renderer.render()

    def _add_disc(self, circle: Circle) -> None:
        scene = self._renderer.scene
        geom = scene.geoms[scene.ngeom]
        mujoco.mjv_initGeom(
            geom,
            mujoco.mjtGeom.mjGEOM_CYLINDER.value,
            np.array([circle.radius, HALF_HEIGHT, 0]),
            np.array([*circle.xy, 1.1 * HALF_HEIGHT]),
            np.eye(3).ravel(),
            np.array([*(c / 255 for c in circle.colour), 0.45], np.float32),
        )
        geom.category = mujoco.mjtCatBit.mjCAT_DECOR.value  # decoration casts no shadow
        scene.ngeom += 1
