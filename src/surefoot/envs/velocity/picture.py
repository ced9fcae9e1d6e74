"""Pictures of the running robots: their geoms seen from the side, or from above if they swim."""
# pyright: reportAttributeAccessIssue=false
# (pyright cannot resolve the names of compiled modules)

import mujoco
import numpy as np

from surefoot.envs.render.glyphs import limb
from surefoot.envs.render.scene import BLUE, GREY, INK, VERMILION, Colour, Polygon, Scene

GROUND: Colour = (226, 228, 230)
FAR: Colour = (96, 150, 188)
CAPSULE, FREE = mujoco.mjtGeom.mjGEOM_CAPSULE.value, mujoco.mjtJoint.mjJNT_FREE.value


def scene(model: mujoco.MjModel, qpos: np.ndarray, over: bool, title: str) -> Scene:
    """A robot at `qpos` [nq]; it is outlined in the colour of costs where it is too fast."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    swims = not (model.geom_contype | model.geom_conaffinity).any()
    seen, depth, extent = ([0, 1], 2, 2.2) if swims else ([0, 2], 1, 1.6)
    root, depths = data.subtree_com[1][seen], data.geom_xpos[:, depth].copy()
    if model.jnt_type[0] != FREE:  # both legs of a flat robot have the same depth
        depths += ["left" in model.geom(g).name for g in range(model.ngeom)]
    limbs = []
    for g in np.argsort(-depths, kind="stable"):
        if model.geom_bodyid[g] == 0:
            continue
        radius, half = model.geom_size[g, :2]
        along = data.geom_xmat[g].reshape(3, 3)[:, 2] * half * (model.geom_type[g] == CAPSULE)
        a, b = ((data.geom_xpos[g] + end * along)[seen] for end in (-1, 1))
        far = depths[g] > data.xpos[1, depth] + 0.05
        outline = VERMILION if over else INK
        limbs.append(Polygon(limb(a, b, radius, 20), FAR if far else BLUE, outline))
    centre = root if swims else np.array([root[0], 0.7 * extent])
    floor = np.array([(-2, 0), (2, 0), (2, -2), (-2, -2)]) * extent + (root[0], 0.0)
    return Scene(
        robot_xy=root,
        heading=0.0,
        glyph=None,
        extent=extent,
        ground=() if swims else (Polygon(floor, GROUND, GREY),),
        limbs=tuple(limbs),
        centre=centre,
        title=title,
    )
