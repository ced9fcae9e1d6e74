"""The tasks' models against the environments themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import surefoot
from conftest import DATA
from surefoot.envs import geometry
from surefoot.envs.navigation.goal import GoalConfig
from surefoot.envs.navigation.goal_course import arrive
from surefoot.envs.navigation.goal_model import goal_model
from surefoot.envs.navigation.sampler import sample_layouts, sample_spare_goals
from surefoot.envs.parity import recorded_states
from surefoot.envs.rc_car.env import RCCarConfig
from surefoot.envs.rc_car.model import RCCarModel


def test_bulk_layouts_have_the_distribution_of_resets():
    config = GoalConfig()
    env = surefoot.make("PointGoal", num_envs=2000, seed=0)
    env.reset()
    bulk = jax.tree.map(np.asarray, sample_layouts(config, jax.random.key(0), 20_000))
    pairs = {
        "goal distance": (
            np.hypot(*(bulk.robot - bulk.goal).T), env.distance,
        ),
        "nearest hazard": (
            np.linalg.norm(bulk.hazards - bulk.robot[:, None], axis=-1).min(1),
            np.linalg.norm(env.hazards - env.place[:, None], axis=-1).min(1),
        ),
        "first hazard": (bulk.hazards[:, 0, 0], env.hazards[:, 0, 0]),
        "last hazard": (np.abs(bulk.hazards[:, -1]).max(1), np.abs(env.hazards[:, -1]).max(1)),
        "goal": (np.abs(bulk.goal).max(1), np.abs(env.goal).max(1)),
        "robot": (bulk.robot[:, 1], env.place[:, 1]),
        "heading": (bulk.heading, env.heading % (2 * np.pi)),
    }  # fmt: skip
    for name, (ours, theirs) in pairs.items():
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-3, name


@pytest.mark.parametrize("hazards", [0, 1, 15])
def test_bulk_layouts_keep_their_distances(hazards):
    config = GoalConfig(hazards=hazards)
    drawn = jax.tree.map(np.asarray, sample_layouts(config, jax.random.key(1), 3000))
    assert drawn.hazards.shape == (3000, hazards, 2)
    points = np.concatenate([drawn.robot[:, None], drawn.goal[:, None], drawn.hazards], 1)
    keepouts = np.array(config.keepouts)
    gaps = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
    needed = keepouts[:, None] + keepouts[None]
    np.fill_diagonal(needed, 0)
    assert (gaps >= needed - 1e-6).all()
    assert (np.abs(points) <= config.extent - keepouts[:, None] + 1e-6).all()


def test_a_crowded_layout_restarts_instead_of_looping():
    config = GoalConfig(hazards=20, extent=1.6)
    drawn = sample_layouts(config, jax.random.key(0), 200)
    gaps = np.linalg.norm(drawn.hazards[:, :, None] - drawn.hazards[:, None], axis=-1)
    assert (gaps[:, ~np.eye(20, dtype=bool)] >= 0.36 - 1e-6).all()


def test_spare_goals_are_clear_of_hazards():
    config = GoalConfig()
    hazards = sample_layouts(config, jax.random.key(0), 500).hazards
    spare = sample_spare_goals(config, jax.random.key(1), hazards, 32)
    gaps = np.linalg.norm(spare[:, :, None] - hazards[:, None], axis=-1)
    assert (gaps >= 0.485 - 1e-6).mean() > 0.999
    assert len(np.unique(np.asarray(spare[0]), axis=0)) > 8


def recorded(robot, observation):
    """An environment set to every recorded state of a recording, and the recording."""
    rec = dict(np.load(DATA / f"{robot.capitalize()}_seek_0.npz"))
    config = GoalConfig(robot=robot, hazards=len(rec["haz"]), observation=observation)
    env = recorded_states(config, rec)
    env.distance = geometry.distance(np, env.place, env.goal)
    return env, rec


@pytest.mark.parametrize("robot", ["point", "car", "doggo"])
@pytest.mark.parametrize("kind", ["ego", "paper"])
def test_modelequals_the_environment_on_recorded_states(robot, kind):
    with jax.enable_x64(True):
        env, rec = recorded(robot, kind)
        steps = env.num_envs
        model = goal_model(env.config, kind)
        before = env.state()
        obs = env.observe(np.arange(steps))
        _, reward, _, _, info = env.step(np.clip(rec["act"], -1, 1))
        after = env.outcome

        old, new = model.record(before), model.record(after)
        assert old.shape == (steps, model.record_size)
        # Records are kept in single precision; the arithmetic is checked in double.
        wide = jnp.asarray(old, jnp.float64)
        state = model.restore(jax.random.key(0), wide)
        ours = jax.vmap(model.observe)(state)
        # A tilted Doggo's own axes are not the plane's: the paper's lidar knows no tilt.
        np.testing.assert_allclose(ours, obs, atol=2e-5)

        zero = jnp.zeros(steps)
        target = jax.vmap(model.target)(
            wide, jnp.asarray(new, jnp.float64), zero, zero[:, None], zero
        )
        none = jnp.zeros((steps, 0))
        bounds = (jnp.full(model.feature_size, -1e9), jnp.full(model.feature_size, 1e9))
        move = jax.vmap(model.advance, (0, 0, 0, 0, None))
        nxt, r, c, terminated = move(state, jnp.asarray(rec["act"]), target, none, bounds)
        np.testing.assert_allclose(r, reward, atol=3e-6)
        np.testing.assert_array_equal(c, info["cost"])
        assert not terminated.any()
        met = np.asarray(nxt.course.used) > 0
        np.testing.assert_array_equal(met, rec["met"].astype(bool))
        place = nxt.position if kind == "ego" else nxt.vector[:, -2:]
        np.testing.assert_allclose(place, after.position[:, :2], atol=1e-6)
        if kind == "ego":
            np.testing.assert_allclose(nxt.body, after.body, atol=2e-5)


@pytest.mark.parametrize("kind", ["ego", "paper"])
@pytest.mark.parametrize("task", ["PointGoal", "CarGoal", "DoggoGoal"])
def test_imagined_episodes_start_as_real_ones(task, kind):
    env = surefoot.make(task, num_envs=1, seed=0, observation=kind)
    obs, _ = env.reset()
    model = goal_model(env.config, kind)
    records = model.initial_records(jax.random.key(0), 50)
    assert records.shape == (50, model.record_size)
    # Everything about the robot's body is the same in all starts, and the same as in the real one.
    mine = np.asarray(jax.vmap(model.record_features)(records))
    real = model.record(env.state())
    theirs = np.asarray(model.record_features(jnp.asarray(real[0])))
    if kind == "ego":
        np.testing.assert_allclose(mine, np.tile(theirs, (50, 1)), atol=1e-6)
    else:
        observed = np.asarray(jax.vmap(model.observe)(model.restore(jax.random.key(1), records)))
        assert observed.shape[1] == obs.shape[1]
        np.testing.assert_allclose(np.hypot(mine[:, -4], mine[:, -3]), 1, atol=1e-5)


def test_new_goals_in_imagination_follow_the_tasks_rule():
    config = GoalConfig()
    model = goal_model(config, "ego")
    records = model.initial_records(jax.random.key(0), 2000)
    state = model.restore(jax.random.key(1), records)
    at_goal = state.course.goal  # every robot jumps onto its goal
    course, reward, _, met = jax.vmap(lambda c, p: arrive(config, c, p))(state.course, at_goal)
    assert met.all() and (course.used >= 1).all()
    np.testing.assert_allclose(reward, np.clip(state.course.distance + 1, -10, 10), rtol=1e-5)
    gap = np.linalg.norm(course.goal - at_goal, axis=-1)
    assert (gap >= 0.705 - 1e-5).mean() > 0.995
    np.testing.assert_allclose(gap, course.distance, atol=1e-5)
    # The task itself, from the same places:
    env = surefoot.make("PointGoal", num_envs=2000, seed=1)
    env.reset()
    theirs = []
    for i in range(2000):
        env.hazards[i] = state.course.hazards[i]
        place = (float(at_goal[i, 0]), float(at_goal[i, 1]))
        theirs.append(np.hypot(*np.subtract(env.draw_goal(i, place), place)))
    assert stats.ks_2samp(gap, np.array(theirs)).pvalue > 1e-3


def goal_course(model, goals, t):
    """Records [T, n, R] of an episode whose goals are given, [T, 2]; all else is zero."""
    records = np.zeros((t, 1, model.record_size), np.float32)
    first = model.record_size - 3 - 2 * model.config.hazards
    records[:, 0, first : first + 2] = goals
    return records


@pytest.mark.parametrize("kind", ["ego", "paper"])
def test_real_goals_are_handed_over(kind):
    model = goal_model(GoalConfig(hazards=2), kind)
    goals = np.array([[1, 1], [1, 1], [2, 2], [2, 2], [3, 3], [4, 4]], np.float32)
    records = goal_course(model, goals, 6)
    ended = np.zeros((6, 1), bool)
    ended[4] = True  # the last goal belongs to another episode
    start, place = np.array([0, 3]), np.zeros(2, int)
    within = np.array([[True, True], [True, True], [True, False]])
    states = model.restore(jax.random.key(0), jnp.asarray(records[start, place]))
    followed, comparable = model.follow_real(states, records, ended, start, place, within)
    spare = np.asarray(followed.course.spare)
    np.testing.assert_array_equal(spare[0, :2], [[2, 2], [3, 3]])
    np.testing.assert_array_equal(spare[1, :1], [[3, 3]])
    np.testing.assert_array_equal(spare[1, 1:], np.asarray(states.course.spare)[1, 1:])
    # Only the paper's features hold the goal; theirs compare until it changes.
    real = [[True, True], [True, False], [False, False]]
    np.testing.assert_array_equal(comparable, real if kind == "paper" else within)


def test_models_describe_themselves():
    config = GoalConfig(hazards=2)
    models = [goal_model(config, kind) for kind in ("ego", "paper")]
    for model in (*models, RCCarModel(RCCarConfig())):
        assert len(model.feature_names) == model.feature_size
        assert len(model.output_names) == model.target_size
    ego, paper = models
    assert ego.output_names == (
        "velocity x", "velocity y", "yaw rate", "forward", "left", "turn",
    )  # fmt: skip
    assert paper.feature_names[6:10] == ("goal x", "goal y", "hazard 0 x", "hazard 0 y")
    doggo = goal_model(GoalConfig(robot="doggo"), "ego").feature_names
    assert (doggo[5], doggo[8], doggo[-1]) == ("turning z", "joint 0", "height")
    assert ego.for_horizon(750).spare == 150 and ego.for_horizon(10) == ego


def test_only_the_papers_features_have_events():
    for kind, events in (("ego", [0, 0]), ("paper", [0, 1])):
        model = goal_model(GoalConfig(), kind)
        records = model.initial_records(jax.random.key(0), 2)
        states = model.restore(jax.random.key(1), records)
        states = states._replace(course=states.course._replace(used=jnp.array([0, 1])))
        np.testing.assert_array_equal(jax.vmap(model.events)(states), events)
    car = RCCarModel(RCCarConfig())
    states, within = jnp.zeros((2, 6)), np.ones((3, 2), bool)
    followed, comparable = car.follow_real(
        states, np.zeros((4, 1, 6)), np.zeros((4, 1), bool), np.arange(2), np.zeros(2, int), within
    )
    assert followed is states and comparable is within and int(car.events(states[0])) == 0
