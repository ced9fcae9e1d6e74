"""The Safety-Velocity tasks, against recordings of the reference and by their rules."""

import dataclasses
import json

import mujoco
import numpy as np
import pytest
from mujoco.batch import SimulationError

import surefoot
from conftest import DATA
from surefoot.envs.base import EXCEPTION_REWARD
from surefoot.envs.parity import check
from surefoot.envs.render.draw import draw, view_of
from surefoot.envs.task import TASKS, describe
from surefoot.envs.velocity import robots
from surefoot.runs.setup import new_setup

FILES = sorted(DATA.glob("*Velocity_0.npz"))
NAMES = [path.stem.removesuffix("_0") for path in FILES]


def make(name, num_envs=1, seed=0, **options):
    env = surefoot.make(name, num_envs=num_envs, seed=seed, **options)
    env.reset()
    return env


def noise(env, steps, seed=0):
    """Random actions within the bounds."""
    low, high = env.single_action_space.low, env.single_action_space.high
    return np.random.default_rng(seed).uniform(low, high, (steps, env.num_envs, len(low)))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_one_step_from_every_recorded_state(path):
    report = check(path)
    assert report.failures() == []
    assert report.robot.replace("-", "") + "velocity_0" == path.stem.lower()
    assert report.steps in (100, 300) and report.starts >= 1


def test_recordings_hold_costs_and_falls():
    for path in FILES:
        data = np.load(path)
        assert 0.1 < data["cost"].mean() < 0.6
        assert data["term"].any() == TASKS[path.stem.removesuffix("_0")].terminates


@pytest.mark.parametrize(
    ("array", "change", "word"),
    [
        ("rew", 1e-9, "reward"),
        ("cost", 1.0, "cost mismatches 300"),
        ("obs", 1e-8, "observation"),
        ("qvel", 1e-7, "velocity"),
        ("qpos", 1e-9, "1 of 1 initial states"),
        ("spot", 1e-9, "reward"),
    ],
)
def test_a_spoiled_recording_is_reported(tmp_path, array, change, word):
    data = dict(np.load(DATA / "HalfCheetahVelocity_0.npz"))
    changed = data[array] + change
    if array == "spot":  # only of rows before a step, or the change would cancel
        changed = np.where(np.arange(len(changed))[:, None] == data["pre"][5], changed, data[array])
    np.savez(tmp_path / "x.npz", **{**data, array: changed})
    assert word in " ".join(check(tmp_path / "x.npz").failures())


def test_parity_command(call, tmp_path):
    code, out, _ = call("parity", str(DATA / "HopperVelocity_0.npz"), "--json")
    (row,) = json.loads(out)
    assert code == 0 and row["ok"] and row["starts_exact"] == row["starts"] == 16
    assert row["position"] < 1e-14 and row["cost_mismatches"] == row["end_mismatches"] == 0
    code, out, _ = call("parity", str(DATA / "SwimmerVelocity_0.npz"))
    assert code == 0 and "initial states exact 1 of 1" in " ".join(out.split())
    data = dict(np.load(DATA / "SwimmerVelocity_0.npz"))
    np.savez(tmp_path / "odd.npz", **{**data, "act": data["act"][:, :1]})
    code, _, err = call("parity", str(tmp_path / "odd.npz"))
    assert code == 2 and "5 positions, 5 velocities and 1 actuators" in " ".join(err.split())
    del data["pre"]
    np.savez(tmp_path / "short.npz", **data)
    code, _, err = call("parity", str(tmp_path / "short.npz"))
    assert code == 2 and "lacks pre" in " ".join(err.split())


SIZES = {
    "HalfCheetahVelocity": (17, 6), "HopperVelocity": (11, 3), "Walker2dVelocity": (17, 6),
    "SwimmerVelocity": (8, 2), "AntVelocity": (27, 8), "HumanoidVelocity": (376, 17),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_described(name):
    row = describe(TASKS[name])
    assert (row["observations"]["default"], row["actions"]) == SIZES[name]
    assert row["costs"] == ["velocity"] and row["cost_limits"] == {"velocity": 25.0}
    assert row["max_episode_steps"] == 1000
    assert np.allclose(row["action_high"], 0.4 if name == "HumanoidVelocity" else 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_snapshots_continue_exactly(name):
    """Over ends of episodes, by falling and by time."""
    env = make(name, 3, seed=5, max_episode_steps=13)
    actions = noise(env, 40)
    for action in actions[:20]:
        env.step(action)
    state, before = env.snapshot(), env.speed.copy()
    expected = [env.step(action) for action in actions[20:]]
    other = make(name, 3, seed=77, max_episode_steps=13)
    other.step(actions[0])
    other.restore(state)
    np.testing.assert_array_equal(other.speed, before)
    for a, b in zip(expected, [other.step(action) for action in actions[20:]], strict=True):
        for x, y in zip(a[:4], b[:4], strict=True):
            np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(a[4]["cost"], b[4]["cost"])
    np.testing.assert_array_equal(env.episode_reward, other.episode_reward)


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_depends_on_its_seed_alone(name):
    """Not on the other environments, or on threads."""
    many, one = make(name, 3, seed=4, threads=2), make(name, 1, seed=6, threads=1)
    for action in noise(many, 25):
        obs, reward, terminated, *_ = many.step(action)
        same = one.step(action[2:])
        for x, y in zip((obs, reward, terminated), same[:3], strict=True):
            np.testing.assert_array_equal(x[2:], y)


def test_the_reward_charges_for_the_raw_action_and_the_motors_clip_it():
    envs = [make("HalfCheetahVelocity") for _ in range(2)]
    (within, gained), (beyond, less) = (
        env.step(np.full((1, 6), size))[:2] for env, size in zip(envs, (1.0, 3.0), strict=True)
    )
    np.testing.assert_array_equal(within, beyond)
    assert gained[0] - less[0] == pytest.approx(0.1 * 6 * (9 - 1))


def test_versions_have_their_speed_limits():
    ours = {name: [make(name, version=v).speed_limit for v in ("v1", "v0")] for name in NAMES}
    assert ours == {
        "HalfCheetahVelocity": [3.2096, 2.8795], "HopperVelocity": [0.7402, 0.37315],
        "Walker2dVelocity": [2.3415, 1.7075], "SwimmerVelocity": [0.2282, 0.04845],
        "AntVelocity": [2.6222, 2.5745], "HumanoidVelocity": [1.4149, 2.3475],
    }  # fmt: skip
    with pytest.raises(ValueError, match="version='v2' must be one of 'v1', 'v0'"):
        surefoot.make("AntVelocity", version="v2")


@pytest.mark.parametrize(
    ("name", "version", "planar"),
    [
        ("HopperVelocity", "v1", False), ("SwimmerVelocity", "v1", False),
        ("SwimmerVelocity", "v0", True), ("AntVelocity", "v1", True),
    ],
)  # fmt: skip
def test_sideways_and_backward_speed_cost_only_in_the_plane(name, version, planar):
    env = make(name, 2, version=version)
    axis = 1 if env.robot.axes == 2 else 0
    env.simulation.qvel[:] = 0.0
    env.simulation.qvel[1, axis] = -4.0
    *_, info = env.step(np.zeros((2, len(env.single_action_space.low))))
    assert info["cost"][:, 0].tolist() == [0.0, float(planar)]


def test_a_failed_simulation_is_truncated(monkeypatch):
    for name in ("HopperVelocity", "AntVelocity"):
        env = make(name, 2)
        env.simulation.qvel[0, 0] = np.nan
        obs, reward, terminated, truncated, info = env.step(noise(env, 1)[0])
        assert truncated.tolist() == [True, False] and not terminated.any()
        assert reward[0] == EXCEPTION_REWARD and info["cost"][0] == 1 and env.failures == 1
        assert np.isfinite(info["final_obs"]).all() and np.isfinite(obs).all()
    forward = env.simulation.batch.forward

    def broken(ids=None):
        forward(ids)
        if ids is None:
            raise SimulationError(np.array([1]), "broken")

    alone = make("AntVelocity", 2)
    alone.restore(env.snapshot())
    monkeypatch.setattr(env.simulation.batch, "forward", broken)
    action = noise(env, 1)[0]
    obs, _, _, truncated, _ = env.step(action)
    assert truncated.tolist() == [False, True]
    np.testing.assert_array_equal(obs[0], alone.step(action)[0][0])


def test_loading_writes_no_log(tmp_path, monkeypatch, capfd):
    """MuJoCo warns of the half-cheetah's file, into a file in the working directory."""
    monkeypatch.chdir(tmp_path)
    model = robots.load_model.__wrapped__("half-cheetah")
    assert model.body_mass.sum() == pytest.approx(14)
    assert not list(tmp_path.iterdir()) and not capfd.readouterr().err


def test_the_black_box_knows_what_can_happen():
    def model(task):
        setup = new_setup(task, "mbppo-lagrangian", "default", "cpu", [0], None, {}, {})
        return setup.model(setup.make_envs(1))

    for name in NAMES:
        box, falls = model(name), name not in ("HalfCheetahVelocity", "SwimmerVelocity")
        assert box.terminates == falls


@pytest.mark.parametrize("name", NAMES)
def test_pictures(name):
    env = make(name, render_mode="rgb_array")
    scene = env.scene(0)
    assert scene.title.endswith(f"0.00 of {env.speed_limit:.2f} m/s")
    (picture,) = env.render()
    np.testing.assert_array_equal(picture, draw(scene))
    blue = np.abs(picture.astype(int) - (0, 114, 178)).max(-1) < 12
    assert blue.sum() > 2000
    columns = np.flatnonzero(blue.any(0))
    assert columns[0] > 0 and columns[-1] < 639, "the whole robot is shown"
    # Wherever the robot is, the view follows it.
    env.simulation.qpos[0, 0] += 50.0
    moved = env.scene(0)
    assert view_of(moved).left == pytest.approx(view_of(scene).left + 50.0)
    env.speed[0] = 99.0
    fast = draw(dataclasses.replace(env.scene(0), step=0))
    vermilion = np.abs(fast.astype(int) - (213, 94, 0)).max(-1) < 12
    assert vermilion[:640].sum() > 200


def test_limbs_are_where_the_geoms_are():
    env = make("HopperVelocity")
    (x, z), *_ = (polygon.points.mean(0) for polygon in env.scene(0).limbs)
    model, qpos = env.pose(0)
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    np.testing.assert_allclose((x, z), data.geom("torso_geom").xpos[[0, 2]], atol=1e-9)
