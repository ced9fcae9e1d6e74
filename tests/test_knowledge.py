"""What the tasks tell the learner, against the environments themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import surefoot
from conftest import DATA
from surefoot.envs import geometry
from surefoot.envs.navigation.goal import GoalConfig
from surefoot.envs.navigation.goal_model import goal_model
from surefoot.envs.navigation.sampler import sample_layouts, sample_spare_goals


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
    """An environment set to every recorded state of a recording, and what happened next."""
    from surefoot.envs.parity import _set_state, _world_state

    rec = dict(np.load(DATA / f"{robot.capitalize()}_seek_0.npz"))
    steps = len(rec["act"])
    env = surefoot.make(f"{robot.capitalize()}Goal", num_envs=steps, observation=observation)
    env.reset(seed=0)
    qpos, qvel = _world_state(robot, rec)
    _set_state(env, qpos[:-1], qvel[:-1], rec["warm"][:-1])
    env._read()
    env.goal, env.hazards = rec["goal"][:-1], np.repeat(rec["haz"][None], steps, 0)
    env.distance = geometry.distance(np, env.place, env.goal)
    return env, rec


@pytest.mark.parametrize("robot", ["point", "car", "doggo"])
@pytest.mark.parametrize("model", ["ego", "paper"])
def test_knowledge_equals_the_environment_on_recorded_states(robot, model):
    with jax.enable_x64(True):
        env, rec = recorded(robot, model)
        steps = env.num_envs
        knowledge = goal_model(env.config, model)
        before = env.state()
        obs = env._observe(np.arange(steps))
        reward, cost, _, _ = env._advance(np.clip(rec["act"], -1, 1))
        after = env.outcome if env.outcome is before else env._after_physics

        old, new = knowledge.record(before), knowledge.record(after)
        assert old.shape == (steps, knowledge.record_size)
        # Records are kept in single precision; the arithmetic is checked in double.
        wide = jnp.asarray(np.where(True, old, old), jnp.float64)
        state = knowledge.restore(jax.random.key(0), wide)
        ours = jax.vmap(knowledge.observe)(state)
        # A tilted Doggo's own axes are not the plane's: the paper's lidar knows no tilt.
        np.testing.assert_allclose(ours, obs, atol=2e-5)

        zero = jnp.zeros(steps)
        target = jax.vmap(knowledge.target)(
            wide, jnp.asarray(new, jnp.float64), zero, zero[:, None], zero
        )
        none = jnp.zeros((steps, 0))
        bounds = (jnp.full(knowledge.feature_size, -1e9), jnp.full(knowledge.feature_size, 1e9))
        move = jax.vmap(knowledge.advance, (0, 0, 0, 0, None))
        nxt, r, c, terminated = move(state, jnp.asarray(rec["act"]), target, none, bounds)
        np.testing.assert_allclose(r, reward, atol=3e-6)
        np.testing.assert_array_equal(c, cost)
        assert not terminated.any()
        met = np.asarray(nxt.course.used) > 0
        np.testing.assert_array_equal(met, rec["met"].astype(bool))
        place = nxt.position if model == "ego" else nxt.vector[:, -2:]
        np.testing.assert_allclose(place, after.position[:, :2], atol=1e-6)
        if model == "ego":
            np.testing.assert_allclose(nxt.body, after.body, atol=2e-5)


@pytest.mark.parametrize("model", ["ego", "paper"])
@pytest.mark.parametrize("task", ["PointGoal", "CarGoal", "DoggoGoal"])
def test_imagined_episodes_start_as_real_ones(task, model):
    env = surefoot.make(task, num_envs=1, seed=0, observation=model)
    obs, _ = env.reset()
    knowledge = goal_model(env.config, model)
    records = knowledge.initial_records(jax.random.key(0), 50)
    assert records.shape == (50, knowledge.record_size)
    # Everything about the robot's body is the same in all starts, and the same as in the real one.
    mine = np.asarray(jax.vmap(knowledge.record_features)(records))
    real = knowledge.record(env.state())
    theirs = np.asarray(knowledge.record_features(jnp.asarray(real[0])))
    if model == "ego":
        np.testing.assert_allclose(mine, np.tile(theirs, (50, 1)), atol=1e-6)
    else:
        own = np.asarray(jax.vmap(knowledge.observe)(knowledge.restore(jax.random.key(1), records)))
        assert own.shape[1] == obs.shape[1]
        np.testing.assert_allclose(np.hypot(mine[:, -4], mine[:, -3]), 1, atol=1e-5)


def test_new_goals_in_imagination_follow_the_tasks_rule():
    config = GoalConfig()
    knowledge = goal_model(config, "ego")
    records = knowledge.initial_records(jax.random.key(0), 2000)
    state = knowledge.restore(jax.random.key(1), records)
    from surefoot.envs.navigation.goal_model import arrive

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
        theirs.append(np.hypot(*np.subtract(env._draw_goal(i, place), place)))
    assert stats.ks_2samp(gap, np.array(theirs)).pvalue > 1e-3
