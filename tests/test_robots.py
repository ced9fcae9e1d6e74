"""The robots' MJCF against the numbers and the recordings of safety-gymnasium 1.0.0."""

import json
from functools import cache
from importlib.resources import files
from pathlib import Path

import mujoco
import numpy as np
import pytest
from mujoco import mjtObj, mjtTrn
from mujoco.batch import Batch

DATA = Path(__file__).parent / "data"
ORIGINS = {
    "point": "Point (safety-gymnasium)",
    "car": "Car (safety-gymnasium)",
    "doggo": "Doggo (safety-gymnasium)",
    "doggo_openai": "Doggo (openai safety-gym)",
}
PRINTED = 0.51e-9  # robots.json rounds to nine decimals
RECORDINGS = [f"{r}_{mode}" for r in ("Point", "Car", "Doggo") for mode in ("seek_0", "random_1")]
robots = pytest.mark.parametrize("robot", ORIGINS)


@cache
def load(robot: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(
        str(files("surefoot.envs.navigation") / "assets" / f"{robot}.xml")
    )


@cache
def reference(robot: str) -> dict:
    """The entry of robots.json without the goal, which is no part of the robot."""
    entry = json.loads((DATA / "robots.json").read_text())[ORIGINS[robot]]
    for key in ("bodies", "geoms"):
        entry[key] = [row for row in entry[key] if row["name"] != "goal"]
    entry["sensors"] = [s for s in entry["sensors"] if not s["name"].startswith("subtree")]
    return entry


def column(rows: list[dict], key: str) -> np.ndarray:
    return np.array([row[key] for row in rows], dtype=float)


def close(actual: np.ndarray, rows: list[dict], key: str) -> None:
    np.testing.assert_allclose(actual, column(rows, key), rtol=0, atol=PRINTED, err_msg=key)


@robots
def test_sizes_and_options(robot: str) -> None:
    m, ref = load(robot), reference(robot)
    assert (m.nq, m.nv, m.nu) == (ref["nq"], ref["nv"], ref["nu"])
    assert m.opt.timestep == ref["timestep"]
    np.testing.assert_array_equal(m.opt.gravity, ref["gravity"])
    np.testing.assert_array_equal(m.opt.magnetic, ref["magnetic"])
    assert m.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
    assert m.opt.solver == mujoco.mjtSolver.mjSOL_NEWTON
    assert m.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL
    assert (m.opt.iterations, m.opt.impratio, m.opt.tolerance) == (100, 1, 1e-16)
    assert m.nexclude == m.neq == m.ntendon == 0
    assert {m.camera(i).name for i in range(m.ncam)} == {"top", "track"}


@robots
def test_bodies(robot: str) -> None:
    m, bodies = load(robot), reference(robot)["bodies"]
    assert m.nbody == len(bodies)
    np.testing.assert_allclose(m.body_mass, column(bodies, "mass"), rtol=1e-12)
    np.testing.assert_allclose(m.body_mass.sum(), reference(robot)["total_mass"], rtol=1e-12)
    close(m.body_ipos, bodies, "com")
    close(m.body_inertia, bodies, "inertia")
    # The reference moves the root to where its layout puts it; ours waits at the origin.
    assert m.body("robot").id == 1
    pos = column(bodies, "pos")
    pos[1, :2] = 0
    np.testing.assert_allclose(m.body_pos, pos, rtol=0, atol=PRINTED)
    np.testing.assert_array_equal(m.body_quat, np.tile([1, 0, 0, 0], (m.nbody, 1)))


@robots
def test_tree(robot: str) -> None:
    """Parents by position in the tree: names are not unique in the reference."""
    m, bodies = load(robot), reference(robot)["bodies"]
    last: dict[str, int] = {}
    parents = []
    for i, body in enumerate(bodies):
        parents.append(last.get(body["parent"], 0))
        last[body["name"]] = i
    np.testing.assert_array_equal(m.body_parentid, parents)


@robots
def test_geoms(robot: str) -> None:
    m, geoms = load(robot), reference(robot)["geoms"]
    types = [getattr(mujoco.mjtGeom, f"mjGEOM_{g['type'].upper()}") for g in geoms]
    np.testing.assert_array_equal(m.geom_type, types)
    for key in ("pos", "quat", "friction", "condim"):
        close(getattr(m, f"geom_{key}"), geoms, key)
    close(m.geom_size, geoms, "size")
    np.testing.assert_array_equal(m.geom_solref, np.tile([0.02, 1], (m.ngeom, 1)))
    np.testing.assert_array_equal(m.geom_solimp, np.tile([0.9, 0.95, 0.001, 0.5, 2], (m.ngeom, 1)))
    assert (m.geom_margin == 0).all() and (m.geom_gap == 0).all()


@robots
def test_every_body_can_touch_the_floor_and_only_doggo_itself(robot: str) -> None:
    m = load(robot)
    touches = lambda i, j: bool(
        m.geom_contype[i] & m.geom_conaffinity[j] or m.geom_contype[j] & m.geom_conaffinity[i]
    )
    pairs = [(i, j) for i in range(1, m.ngeom) for j in range(i)]
    assert all(touches(i, 0) for i in range(1, m.ngeom))
    assert all(touches(i, j) == (robot != "car") for i, j in pairs if j > 0)
    contacts_off = bool(m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CONTACT)
    assert contacts_off == (robot == "point")


@robots
def test_joints(robot: str) -> None:
    m, joints = load(robot), reference(robot)["joints"]
    types = [getattr(mujoco.mjtJoint, f"mjJNT_{j['type'].upper()}") for j in joints]
    np.testing.assert_array_equal(m.jnt_type, types)
    rows = [(i, j) for i, j in enumerate(joints) if j["type"] != "free"]
    ids, joints = [i for i, _ in rows], [j for _, j in rows]
    assert [m.joint(i).name for i in ids] == [j["name"] for j in joints]
    close(m.jnt_axis[ids], joints, "axis")
    close(m.jnt_pos[ids], joints, "pos")
    close(m.jnt_range[ids], joints, "range_rad")
    close(m.jnt_limited[ids], joints, "limited")
    close(m.jnt_stiffness[ids], joints, "stiffness")
    for i, joint in rows:
        np.testing.assert_allclose(m.joint(i).damping, joint["damping"][0], rtol=1e-12)
        np.testing.assert_allclose(m.joint(i).armature, joint["armature"][0], rtol=1e-12)
        width = len(joint["springref"])
        spring = m.qpos_spring[m.jnt_qposadr[i] :][:width]
        np.testing.assert_allclose(spring, joint["springref"], rtol=0, atol=PRINTED)


@robots
def test_actuators(robot: str) -> None:
    m, actuators = load(robot), reference(robot)["actuators"]
    assert [m.actuator(i).name for i in range(m.nu)] == [a["name"] for a in actuators]
    kinds = {
        "site": (mjtTrn.mjTRN_SITE, mjtObj.mjOBJ_SITE),
        "joint": (mjtTrn.mjTRN_JOINT, mjtObj.mjOBJ_JOINT),
        "jointinparent": (mjtTrn.mjTRN_JOINTINPARENT, mjtObj.mjOBJ_JOINT),
    }
    for i, a in enumerate(actuators):
        kind, target = a["transmission"]
        trn, obj = kinds[kind]
        assert m.actuator_trntype[i] == trn
        name = mujoco.mj_id2name(m, obj, m.actuator_trnid[i, 0])
        assert name == target.replace("agent", "robot")
    for key in ("gear", "ctrlrange", "forcelimited", "forcerange"):
        close(getattr(m, f"actuator_{key}"), actuators, key)
    close(m.actuator_gainprm[:, :3], actuators, "gainprm")
    # A motor has no bias; the reference still carries an unused number for Point's.
    affine = m.actuator_biastype == mujoco.mjtBias.mjBIAS_AFFINE
    assert affine.tolist() == ([False, True] if robot == "point" else [False] * m.nu)
    bias = column(actuators, "biasprm") * affine[:, None]
    np.testing.assert_array_equal(m.actuator_biasprm[:, :3], bias)


@robots
def test_sites(robot: str) -> None:
    m, sites = load(robot), reference(robot)["sites"]
    assert [m.site(i).name for i in range(m.nsite)] == [
        s["name"].replace("agent", "robot") for s in sites
    ]
    close(m.site_pos, sites, "pos")
    close(m.site_size[:, 0], [{"r": s["size"][0]} for s in sites], "r")
    assert (m.site_type == mujoco.mjtGeom.mjGEOM_SPHERE).all()
    assert m.site("robot").bodyid == m.body("robot").id


@robots
def test_sensors(robot: str) -> None:
    m, sensors = load(robot), reference(robot)["sensors"]
    assert [m.sensor(i).name for i in range(m.nsensor)] == [s["name"] for s in sensors]
    types = [getattr(mujoco.mjtSensor, f"mjSENS_{s['type'].upper()}") for s in sensors]
    np.testing.assert_array_equal(m.sensor_type, types)
    assert m.sensor_dim.tolist() == [s["dim"] for s in sensors]
    on = [mujoco.mj_id2name(m, t, i) for t, i in zip(m.sensor_objtype, m.sensor_objid, strict=True)]
    assert on == [s["on"].replace("agent", "robot") for s in sensors]


def recording(name: str) -> tuple[str, dict[str, np.ndarray]]:
    """A recorded trajectory, its state as the pose in the world.

    The reference moves Point's body to the layout's place and counts qpos from there.
    """
    with np.load(DATA / f"{name}.npz") as file:
        z = dict(file)
    robot = name.split("_")[0].lower()
    if robot == "point":
        c, s = np.cos(z["rot0"]), np.sin(z["rot0"])
        turn = np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
        z["qpos"] = z["qpos"] @ turn + [*z["xy0"], z["rot0"]]
        z["qvel"], z["warm"] = z["qvel"] @ turn, z["warm"] @ turn
    return robot, z


@pytest.mark.parametrize("name", RECORDINGS)
def test_one_env_step_from_every_recorded_state(name: str) -> None:
    robot, z = recording(name)
    m = load(robot)
    batch = Batch(m, nsim=len(z["act"]), nthread=2)
    batch.qpos[:], batch.qvel[:], batch.qacc_warmstart[:] = (
        z[key][:-1] for key in ("qpos", "qvel", "warm")
    )
    batch.ctrl[:] = np.clip(z["act"], -1, 1)
    sensors, xpos = batch.bind("sensordata"), batch.bind("xpos")
    batch.step(nstep=10, stage=mujoco.mjtStage.mjSTAGE_ACC)

    tol = 1e-8 if robot == "car" else 1e-9
    np.testing.assert_allclose(batch.qpos, z["qpos"][1:], rtol=0, atol=tol)
    np.testing.assert_allclose(xpos[:, m.body("robot").id], z["xpos"][1:], rtol=0, atol=tol)
    # The recorded vector ends with the three subtree sensors, which nobody reads.
    expected = z["sens"][1:, :-9]
    assert sensors.shape == expected.shape
    atol = np.full(expected.shape[1], 1e-8)
    atol[m.sensor("accelerometer").adr[0] :][:3] = 1e-5
    assert (np.abs(sensors - expected) <= atol).all()
    # Every observation begins with these four, and the robots keep them last.
    inertial = m.sensor("accelerometer").adr[0]
    np.testing.assert_allclose(sensors[:, inertial:], z["obs"][1:, :12], rtol=0, atol=1e-5)


def test_car_follows_the_recording_open_loop() -> None:
    """Only the first state and the actions are given; a solver that stops early is off by 0.1 m."""
    robot, z = recording("Car_seek_0")
    batch = Batch(load(robot), nsim=1, nthread=1)
    batch.qpos[:], batch.qvel[:], batch.qacc_warmstart[:] = z["qpos"][0], z["qvel"][0], z["warm"][0]
    control = np.repeat(np.clip(z["act"], -1, 1), 10, axis=0)[None]
    qpos = batch.rollout(control.shape[1], control, record=("qpos",))["qpos"]
    np.testing.assert_allclose(qpos[0, 9::10, :3], z["qpos"][1:, :3], rtol=0, atol=1e-7)


@pytest.mark.parametrize(("robot", "height"), [("doggo", 0.077), ("doggo_openai", 0.165)])
def test_doggo_stands_after_three_seconds_without_control(robot: str, height: float) -> None:
    """Three seconds: the OpenAI one creeps on, its feet sliding, to 0.161 m by 30 s."""
    batch = Batch(load(robot), nsim=1, nthread=1)
    batch.reset()
    batch.step(nstep=300)
    assert batch.qpos[0, 2] == pytest.approx(height, abs=5e-4)
    assert np.abs(batch.qvel).max() < 0.05
