"""Safety-Gymnasium's navigation tasks, against recordings of the reference and by their rules."""

import json
from dataclasses import replace

import numpy as np
import pytest

import surefoot
from conftest import DATA
from surefoot.envs.family.config import FamilyConfig, stock
from surefoot.envs.family.env import FamilyEnv
from surefoot.envs.family.robots import ROBOTS
from surefoot.envs.family.world import compile_world
from surefoot.envs.navigation.layout import ImpossibleLayout
from surefoot.envs.parity import check
from surefoot.envs.render.draw import draw
from surefoot.envs.streams import WordStreams
from surefoot.envs.task import FAMILY, FAMILY_ROBOTS

FILES = ["PointGoal2_1", "PointButton1_1", "PointPush2_1", "CarPush1_0", "AntCircle1_0"]
FILES += ["RacecarRun0_0"]
LAYOUTS = np.load(DATA / "family_layouts.npz")
HARDEST = [f"{robot}{task}{n - 1}" for robot in FAMILY_ROBOTS for task, n in FAMILY.items()]


def make(name, num_envs=1, seed=0, **options):
    env = surefoot.make(name, num_envs=num_envs, seed=seed, threads=1, **options)
    env.reset()
    return env


def noise(env, steps, seed=0):
    """Random actions within the bounds."""
    low, high = env.single_action_space.low, env.single_action_space.high
    return np.random.default_rng(seed).uniform(low, high, (steps, env.num_envs, len(low)))


@pytest.mark.parametrize("name", FILES)
def test_one_step_from_every_recorded_state(name):
    report = check(DATA / f"{name}.npz")
    assert report.failures() == []
    assert (report.robot + report.task).lower() == name[:-2].lower()
    assert report.steps in (210, 280) and report.untouched > 0.95
    if name.startswith("Ant"):
        assert report.layouts > 1 and report.position < 1e-9


@pytest.mark.parametrize(
    ("name", "array", "change", "word"),
    [
        ("CarPush1_0", "xpos", 1e-2, "position"),
        ("CarPush1_0", "cost", 1.0, "cost mismatches"),
        ("PointButton1_1", "timer", 1, "timer mismatches"),
        ("PointButton1_1", "button", 1, "redraws differ"),
        ("PointButton1_1", "layout_xy", 1e-12, "1 of 1 layouts"),
        ("PointButton1_1", "obs", 1e-8, "lidar"),
    ],
)
def test_a_spoiled_recording_is_reported(tmp_path, name, array, change, word):
    data = dict(np.load(DATA / f"{name}.npz"))
    spoiled = 1 - data[array] if array == "cost" else data[array] + change
    if array == "button":  # only after presses, so that rewards stay as they are
        after = data["post"][data["met"].astype(bool)]
        spoiled = data[array].copy()
        spoiled[after] = (spoiled[after] + 1) % 4
    if array == "timer":  # only after the steps
        spoiled = data[array] + np.where(np.isin(np.arange(len(spoiled)), data["post"]), 100, 0)
    np.savez(tmp_path / "x.npz", **{**data, array: spoiled})
    assert word in " ".join(check(tmp_path / "x.npz").failures())


def test_a_recording_of_unknown_objects_is_refused(tmp_path):
    data = dict(np.load(DATA / "AntCircle1_0.npz"))
    np.savez(tmp_path / "x.npz", **{**data, "layout_names": np.array(["agent", "teapot"])})
    with pytest.raises(ValueError, match="no stock task"):
        check(tmp_path / "x.npz")


@pytest.mark.parametrize("name", sorted({key.split("/")[0] for key in LAYOUTS if "/" in key}))
def test_layouts_bit_by_bit(name):
    """Two resets in a row for ten seeds; the second continues the stream."""
    arrays = {k: LAYOUTS[f"{name}/{k}"] for k in ("xy", "yaw", "goal", "button", "rng_words")}
    env = make(name, num_envs=10)
    kinds = np.array([slot.kind for slot in env.slots])
    for episode in range(2):
        env.reset(seed=0 if episode == 0 else None)
        xy, state = arrays["xy"][:, episode], env.state()
        assert np.array_equal(state.position[:, :2], xy[:, 0])
        assert np.array_equal(state.hazards, xy[:, kinds == "hazards"])
        assert np.array_equal(state.bodies[..., :2], xy[:, env.free_slots])
        assert np.array_equal(state.statics, xy[:, env.fixed_slots])
        if "goal" in kinds:
            assert np.array_equal(state.goal, arrays["goal"][:, episode])
        if env.config.task == "button":
            assert np.array_equal(state.button, arrays["button"][:, episode])
        turned = state.heading - arrays["yaw"][:, episode, 0]
        np.testing.assert_allclose(np.exp(1j * turned), 1.0, atol=1e-12)
    fresh = WordStreams(list(range(10)))
    for seed, words in enumerate(arrays["rng_words"][:, 1]):
        assert [fresh.choose(seed, 4) for _ in range(words)][-1] >= 0
        assert fresh.draw(seed, 0.0, 1.0) == env.streams.draw(seed, 0.0, 1.0)


def test_words_as_numpys_twister():
    ours, theirs = WordStreams([3, 5]), np.random.RandomState(5)
    for k in range(2000):
        if k % 5 == 0:
            assert ours.choose(1, 3 + k % 2) == theirs.choice(3 + k % 2)
        elif k % 5 == 1:
            assert ours.draw(1, -2.0, 3.0) == theirs.uniform(-2.0, 3.0)
        elif k % 5 == 2:
            theirs.binomial(10, 1.0)
            ours.skip_one()
        else:
            ahead = ours.peek(1, k % 130)
            ours.skip(1, k % 130)
            assert np.array_equal(ahead, theirs.uniform(size=k % 130))


def crowded(name, **options):
    """An environment whose robot soon meets movable objects."""
    env = make(name, num_envs=4, seed=1, **options)
    sim = env.simulation
    for i in range(4):
        yaw = np.pi / 2 if name.startswith("Car") else 0.0  # Car drives along -y
        sim.robot.robot.place(sim.qpos[i], *(sim.bodies[i, 0, :2] - (0.45, 0.0)), yaw)
    env.refresh()
    return env


@pytest.mark.parametrize("name", ["PointGoal2", "RacecarButton1", "CarPush1"])
def test_a_restored_snapshot_continues_exactly(name):
    env = crowded(name)
    actions = noise(env, 40)
    actions[..., 0] = env.single_action_space.high[0]
    if name.startswith("Car"):
        actions[..., 1] = 1.0
    for action in actions[:25]:
        env.step(action)
    copy = surefoot.make(name, num_envs=4, seed=9, threads=2)
    copy.restore(env.snapshot())
    assert not env.simulation.calm.all()
    for action in actions[25:]:
        for a, b in zip(env.step(action)[:4], copy.step(action)[:4], strict=True):
            assert np.array_equal(a, b)
    for a, b in zip(env.state(), copy.state(), strict=True):
        assert np.array_equal(a, b)


def test_episodes_do_not_depend_on_the_number_of_environments():
    one, three = make("DoggoButton1", seed=2), make("DoggoButton1", num_envs=3, seed=0)
    for action in noise(three, 6):
        assert np.array_equal(three.step(action)[0][2], one.step(action[2:])[0][0])


@pytest.mark.parametrize("name", ["CarGoal2", "DoggoPush1", "CarButton1"])
def test_objects_at_rest_need_not_be_simulated(name):
    """The same steps with all objects in the physics."""
    env, full = make(name, num_envs=2), make(name, num_envs=2)
    full.simulation.robot = replace(full.simulation.robot, slack=100.0)
    simulated = 0
    for action in noise(env, 12):
        env.step(action)
        full.step(action)
        simulated += env.simulation._distribute()[0].sum()
    assert full.simulation._distribute()[0].all()
    assert simulated < 0.9 * 12 * env.simulation.calm.size
    for part in ("position", "bodies", "sensors"):
        ours, theirs = getattr(env.state(), part), getattr(full.state(), part)
        np.testing.assert_allclose(ours, theirs, atol=1e-7)


def test_a_pushed_vase_costs_until_it_rests():
    env = crowded("PointGoal2", costs="separate")
    assert env.cost_names == ("hazards", "vases_contact", "vases_velocity")
    forward = np.tile([1.0, 0.0], (4, 1))
    costs = np.array([env.step(forward)[4]["cost"] for _ in range(40)])
    assert costs[..., 1].any(0).all() and costs[..., 2].any(0).all()
    assert set(np.unique(costs)) <= {0.0, 1.0}
    touched = costs[..., 1] > 0
    assert (costs[..., 2][touched] > 0).mean() > 0.9
    assert not env.simulation.calm[:, 0].all()


def test_the_sum_is_an_indicator():
    both = crowded("PointGoal2"), crowded("PointGoal2", costs="separate")
    for _ in range(40):
        total, parts = (env.step(np.tile([1.0, 0.0], (4, 1)))[4]["cost"] for env in both)
        assert np.array_equal(total[:, 0], parts.max(1))
    assert both[0].cost_names == ("sum",)


@pytest.mark.parametrize(("version", "start"), [("1.0.0", 0), ("1.2.0", 10)])
def test_button_timer(version, start):
    env = make("PointButton1", button_timer=version)
    assert env.timer[0] == start
    lidar = env.observe(np.arange(1))[0, 12:28]
    assert (lidar == 0).all() == (start > 0)
    env.step(np.zeros((1, 2)))
    assert env.timer[0] == max(start - 1, 0)


def test_pressing_the_right_button():
    env = make("PointButton0", num_envs=2, seed=3)
    sim, before = env.simulation, env.goal.copy()
    for i in range(2):
        sim.robot.robot.place(sim.qpos[i], *(env.goal[i] + (0.19, 0.0)), 0.0)
    env.refresh()
    reward = env.step(np.zeros((2, 2)))[1]
    assert env.met.all() and (env.timer == 10).all() and (reward > 0.5).all()
    assert np.array_equal(env.goal, sim.statics[np.arange(2), env.button])
    assert (env.outcome.goal == before).all() and env.outcome.touch.any(1).all()


def test_gremlins_circle():
    env = make("CarButton2")
    for _ in range(120):
        env.step(np.zeros((1, 2)))
    sim = env.simulation
    away = sim.bodies[0, :, :2] - sim.home[0, :, :2]
    np.testing.assert_allclose(np.hypot(*away[sim.calm[0]].T), 0.35, atol=2e-3)
    assert sim.calm[0].sum() >= 5
    np.testing.assert_allclose(sim.bodies[0, sim.calm[0], 2], 0.2, atol=1e-3)


def test_ants_of_both_versions_fall():
    mass = {v: compile_world(ROBOTS[v]).body_mass.sum() for v in ("ant", "ant-1.2.0")}
    assert mass["ant"] == pytest.approx(0.01423, rel=1e-3)
    assert mass["ant-1.2.0"] == pytest.approx(42.26, rel=1e-3)
    env = make("AntRun0", num_envs=8)
    ended = np.zeros(8, dtype=bool)
    for action in noise(env, 70):
        ended |= env.step(action)[2]
    assert ended.mean() > 0.5
    heavy = make("AntRun0", num_envs=8, ant="1.2.0")
    assert sum(heavy.step(action)[2].sum() for action in noise(heavy, 20)) == 0


def test_sizes_of_the_reference():
    sizes = {"Goal": (28, 60, 60), "Button": (44, 76, 76), "Push": (44, 76, 76)}
    sizes |= {"Circle": (28, 28, 28), "Run": (12,)}
    sensors = {"Point": 0, "Car": 12, "Doggo": 44, "Racecar": 0, "Ant": 28}
    from surefoot.envs.family.tasks import describe_families

    listed = {k: v for row in describe_families() for k, v in row["observations"].items()}
    expected = {
        f"{robot}{task}{level}": size + more
        for robot, more in sensors.items()
        for task, levels in sizes.items()
        for level, size in enumerate(levels)
    }
    assert listed == expected
    for name in ("CarGoal1", "RacecarButton0", "AntPush2"):
        assert make(name).single_observation_space.shape == (expected[name],)


def test_levels_and_options():
    assert make("PointGoal1", level=2).config == stock("point", "goal", 2)
    assert make("PointGoal2", level=0).config == stock("point", "goal", 0)
    few = make("PointGoal1", hazards=2, vases=0)
    assert few.config.lidars == ("goal", "hazards") and few.hazards.shape == (1, 2, 2)
    assert make("PointPush1", constrained=("hazards", "pillars")).config.cost_kinds[1] == "pillars"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vases": 3, "task": "push"}, "vases=3 must be 0"),
        ({"task": "button"}, "buttons=0 must be at least 1"),
        ({"positions": {"vases": ((0, 0),)}}, "must not have 1 of 'vases'"),
        ({"constrained": ("goal",)}, "must name kinds of: hazards, vases"),
        ({"robot": "teapot"}, "robot='teapot' must be one of"),
        ({"task": "run", "walls": 4}, "walls=4 must be 2"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        FamilyConfig(**options)


def test_fixed_layouts():
    env = make("CarGoal1", num_envs=2, layout_seed=7)
    first = env.state()
    env.reset()
    for a, b in zip(first, env.state(), strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(first.hazards[0], first.hazards[1])
    places = {"agent": [[0.0, 0.0]], "goal": [[1.0, 0.5]], "hazards": [[-0.9, 0.0], [0.9, -0.5]]}
    env = make("CarGoal1", num_envs=2, positions=places)
    for _ in range(2):
        np.testing.assert_allclose(env.place, 0.0, atol=2e-9)
        np.testing.assert_allclose(env.goal, [[1.0, 0.5]] * 2, atol=2e-9)
        np.testing.assert_allclose(env.hazards[:, :2], [places["hazards"]] * 2, atol=2e-9)
        env.reset()
    with pytest.raises(ImpossibleLayout, match="no layout of 11 objects"):
        make("CarGoal1", positions={"hazards": ((0.0, 0.0), (0.01, 0.0))})


@pytest.mark.parametrize("name", HARDEST)
def test_pictures_of_every_task(name):
    env = make(name)
    env.step(noise(env, 1)[0])
    colours = {shape.colour for shape in env.scene(0).shapes if hasattr(shape, "colour")}
    assert len(colours) >= len(env.config.lidars) - 1
    assert len(np.unique(draw(env.scene(0), 96).reshape(-1, 3), axis=0)) > 20


def test_a_failed_simulation_ends_the_episode():
    env = FamilyEnv(stock("ant", "goal", 1), num_envs=2, seed=0, threads=1)
    env.reset()
    env.simulation.qvel[1] = 1e12
    _, reward, terminated, truncated, info = env.step(np.zeros((2, 8)))
    assert truncated.tolist() == [False, True] and not terminated[1]
    assert reward[1] == -10.0 and info["cost"][1, 0] == 1.0 and env.failures == 1
    assert np.isfinite(info["final_obs"]).all() and np.isfinite(env.observe(np.arange(2))).all()
    assert not env.step(np.zeros((2, 8)))[3].any()


def test_from_the_command_line(call, tmp_path):
    tiny = ("--algorithm", "ppo-lagrangian", "--ppo.hidden", "8", "--ppo.epochs", "1")
    tiny += ("--steps-per-epoch", "40", "--quiet")
    words = ("train", "AntGoal1", *tiny, "--env", "max_episode_steps=20", "vases=2")
    from harness import came_to, differences

    run, whole = tmp_path / "run", tmp_path / "whole"
    for line in (
        (*words, "--steps", "40", "--out", str(run)),
        ("resume", str(run), "--steps", "80", "--quiet"),
        (*words, "--steps", "80", "--out", str(whole)),
        ("watch", str(run), "--steps", "4", "--size", "96", "--out", str(tmp_path / "clip.gif")),
    ):
        code, _, err = call(*line)
        assert code == 0, err
    assert differences(came_to(run), came_to(whole)) == []
    code, out, _ = call("parity", str(DATA / "PointButton1_1.npz"), "--json")
    assert code == 0 and json.loads(out)[0]["ok"]
