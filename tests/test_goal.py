"""The Goal task: seeds, episodes, options, failures, bad input."""

import numpy as np
import pytest
from mujoco.batch import SimulationError

import surefoot
from surefoot.algorithms.collect import Collector
from surefoot.algorithms.model_data import ModelData
from surefoot.algorithms.trainer import Problem
from surefoot.core.spaces import action_spec
from surefoot.envs.navigation.goal import GoalConfig
from surefoot.envs.navigation.goal_model import goal_model
from surefoot.envs.navigation.layout import ImpossibleLayout
from surefoot.world.ensemble import EnsembleConfig


def rollout(env, steps, seed=3):
    """Observations, rewards and costs under actions that depend on the step alone."""
    rng = np.random.default_rng(seed)
    obs, _ = env.reset(seed=7)
    out = [obs]
    width = env.single_action_space.shape[0]
    for _ in range(steps):
        action = np.tile(rng.uniform(-1, 1, width), (env.num_envs, 1))
        obs, reward, _, _, info = env.step(action)
        out.append(np.column_stack([obs, reward, info["cost"]]))
    return out


@pytest.mark.parametrize("task", ["PointGoal", "CarGoal", "DoggoGoal", "DoggoGoalOpenAI"])
def test_an_episode_depends_on_its_seed_alone(task):
    many = rollout(surefoot.make(task, num_envs=5, threads=2, max_episode_steps=20), 45)
    one = surefoot.make(task, num_envs=1, threads=1, max_episode_steps=20)
    rng = np.random.default_rng(3)
    obs, _ = one.reset(seed=7 + 3)
    np.testing.assert_array_equal(obs[0], many[0][3])
    for t in range(45):
        action = rng.uniform(-1, 1, (1, one.single_action_space.shape[0]))
        obs, reward, _, _, info = one.step(action)
        np.testing.assert_array_equal(np.r_[obs[0], reward, info["cost"][0]], many[t + 1][3])


def test_truncation_and_final_observation():
    env = surefoot.make("PointGoal", num_envs=2, seed=0, max_episode_steps=3)
    first, _ = env.reset()
    for t in range(3):
        obs, _, terminated, truncated, info = env.step(np.ones((2, 2)))
        assert not terminated.any()
        assert truncated.all() == (t == 2)
        assert ("final_obs" in info) == (t == 2)
    assert info["_final_obs"].all()
    # The new episode starts at rest; the old one ended in motion.
    velocimeter = slice(3, 6)
    assert np.allclose(obs[:, velocimeter], 0)
    assert (np.abs(info["final_obs"][:, velocimeter]).sum(1) > 0.05).all()
    assert not np.allclose(obs, first)
    assert (env.elapsed == 0).all()


def test_reset_mask_restarts_only_some():
    env = surefoot.make("PointGoal", num_envs=3, seed=0)
    env.reset()
    env.step(np.ones((3, 2)))
    goals = env.goal.copy()
    env.reset(options={"reset_mask": np.array([False, True, False])})
    assert env.elapsed.tolist() == [1, 0, 1]
    assert (env.goal[[0, 2]] == goals[[0, 2]]).all() and (env.goal[1] != goals[1]).any()
    with pytest.raises(ValueError, match="reset_mask"):
        env.reset(options={"reset_mask": np.array([True])})


def test_reward_and_cost_by_hand():
    """Point, placed by hand: progress is reward, the goal pays 1, a hazard costs 1 once."""
    env = surefoot.make("PointGoal", num_envs=1, seed=0, hazards=2)
    env.reset()
    still, hazards = np.zeros((1, 3)), np.array([[[0.02, 0.1], [0.02, -0.1]]])
    env.set_state(still, np.array([[1.0, 0.0, 0.0]]), still, np.array([[0.31, 0.0]]), hazards)
    _, reward, _, _, info = env.step(np.zeros((1, 2)))
    # It rolls about 0.02 m against a drag of 0.01 N s/m on 0.0052 kg, and comes within 0.3 m.
    moved = env.position[0, 0]
    assert 0.019 < moved < 0.02
    assert reward[0] == pytest.approx(moved + 1.0)
    assert info["cost"][0] == 1.0
    # The new goal is clear of robot and hazards, and the distance belongs to it.
    assert np.hypot(*(env.goal[0] - env.place[0])) >= 0.705
    assert (np.hypot(*(env.hazards[0] - env.goal[0]).T) >= 0.485).all()
    assert env.distance[0] == pytest.approx(np.hypot(*(env.goal[0] - env.place[0])))


def test_outcome_is_the_state_before_redraw_and_reset():
    env = surefoot.make("PointGoal", num_envs=1, seed=0, max_episode_steps=1)
    env.reset()
    goal, place = env.goal.copy(), env.place.copy()
    env.step(np.ones((1, 2)))
    assert (env.outcome.goal == goal).all()
    assert 0 < np.abs(env.outcome.position[:, :2] - place).max() < 0.05
    assert (env.state().goal != goal).any()


def test_action_repeat_adds_up():
    single = surefoot.make("CarGoal", num_envs=1, seed=5)
    repeat = surefoot.make("CarGoal", num_envs=1, seed=5, action_repeat=5)
    single.reset()
    repeat.reset()
    action = np.array([[0.7, 0.3]])
    total = sum(single.step(action)[1][0] for _ in range(5))
    _, reward, *_ = repeat.step(action)
    assert reward[0] == pytest.approx(total, abs=1e-14)
    assert repeat.elapsed[0] == 5


def test_levels_are_one_keyword_away():
    env = surefoot.make("CarGoal", level=1)
    assert (env.config.hazards, env.config.extent, env.max_episode_steps) == (8, 1.5, 1000)
    assert surefoot.make("PointGoal", level=2).config.hazards == 10
    bare = surefoot.make("PointGoal", level=0)
    assert bare.single_observation_space.shape == (12 + 16,)
    bare.reset(seed=0)
    assert bare.step(np.ones((1, 2)))[4]["cost"] == 0
    assert surefoot.make("PointGoal", level=1, hazards=3).config.hazards == 3


@pytest.mark.parametrize(
    ("task", "sizes"),
    [("PointGoal", (44, 26, 21)), ("CarGoal", (56, 26, 28)), ("DoggoGoal", (88, 26, 53))],
)
def test_observation_sizes(task, sizes):
    for name, size in zip(("reference", "paper", "ego"), sizes, strict=True):
        env = surefoot.make(task, observation=name)
        obs, _ = env.reset(seed=0)
        assert obs.shape == (1, size) and env.single_observation_space.shape == (size,)


def test_paper_observation_by_hand():
    env = surefoot.make("PointGoal", observation="paper", seed=0)
    env.reset()
    qpos, qvel = np.array([[0.5, -0.25, np.pi / 2]]), np.array([[0.0, 0.3, 2.0]])
    env.set_state(qpos, qvel, np.zeros((1, 3)), np.array([[0.5, 0.75]]), env.hazards)
    obs = env.observe(np.arange(1))[0]
    # Facing +y: velocity is forward, the field (0, -0.5, 0) points backwards, the goal is ahead.
    np.testing.assert_allclose(obs[:8], [0.3, 0, 2, -0.5, 0, 0, 1.0, 0], atol=1e-12)
    np.testing.assert_allclose(obs[-2:], [0.5, -0.25])


class Broken:
    """A stand-in engine that fails in one simulation."""

    def __init__(self, batch):
        self._inner = batch
        self.warning = batch.warning

    def step(self, **kwargs):
        self._inner.step(**kwargs)
        raise SimulationError(np.array([1]), "made to fail")

    def __getattr__(self, name):
        return getattr(self._inner, name)


def test_a_failed_simulation_ends_its_episode_and_no_other():
    env = surefoot.make("PointGoal", num_envs=3, seed=0)
    twin = surefoot.make("PointGoal", num_envs=3, seed=0)
    env.reset()
    twin.reset()
    env.simulation.batch = Broken(env.simulation.batch)
    obs, reward, terminated, truncated, info = env.step(np.ones((3, 2)))
    obs2, reward2, *_ = twin.step(np.ones((3, 2)))
    assert truncated.tolist() == [False, True, False] and not terminated.any()
    assert reward[1] == -10 and info["cost"][1] == 1 and env.failures == 1
    keep = [0, 2]
    np.testing.assert_array_equal(obs[keep], obs2[keep])
    np.testing.assert_array_equal(reward[keep], reward2[keep])
    assert np.isfinite(info["final_obs"]).all()


def test_a_simulation_that_blows_up_ends_its_episode():
    """MuJoCo resets such a simulation by itself and only warns."""
    env = surefoot.make("CarGoal", num_envs=3, seed=0)
    env.reset()
    env.simulation.qvel[1, 0] = 1e11
    obs, reward, _, truncated, _ = env.step(np.zeros((3, 2)))
    assert truncated.tolist() == [False, True, False]
    assert reward[1] == -10 and env.failures == 1
    assert np.isfinite(obs).all()
    _, reward, _, truncated, _ = env.step(np.zeros((3, 2)))
    assert not truncated.any() and (np.abs(reward) < 0.1).all()


def test_a_model_does_not_learn_from_a_simulation_that_blew_up():
    env, k = surefoot.make("CarGoal", num_envs=2, seed=0), 3
    model = goal_model(env.config, "ego")
    collector = Collector(env, [0], 2, model)

    def act(now):
        if now.t == k:
            env.simulation.qvel[1, 0] = 1e11
        return np.zeros((1, 2, 2), np.float32)

    actions = action_spec(env.single_action_space)
    experience = collector.collect(act, actions, 6)
    assert np.argwhere(experience.failed).tolist() == [[0, k, 1]]
    size = env.single_observation_space.shape[0]
    problem = Problem((0,), 2, 750, size, actions, ("cost",), model)
    data = ModelData(EnsembleConfig(), problem, 12)
    data.add(experience)
    targets = np.asarray(data.dataset.rows["targets"])[0]
    missing = np.isnan(targets)
    assert missing[2 * k + 1].all() and missing.sum() == targets.shape[1]


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        (dict(task="PointGoa"), "did you mean PointGoal"),
        (dict(task="PointGoal", num_envs=0), "num_envs=0"),
        (dict(task="PointGoal", num_envs=2.5), "num_envs=2.5"),
        (dict(task="PointGoal", threads=-1), "threads=-1"),
        (dict(task="PointGoal", hazard=3), "did you mean hazards"),
        (dict(task="PointGoal", hazards=-1), "hazards=-1"),
        (dict(task="PointGoal", hazards=200), "do not fit"),
        (dict(task="PointGoal", extent=0.3), "extent=0.3"),
        (dict(task="PointGoal", extent=float("nan")), "extent=nan"),
        (dict(task="PointGoal", level=7), "level=7"),
        (dict(task="PointGoal", observation="pixels"), "observation='pixels'"),
        (dict(task="PointGoal", robot="cat"), "robot='cat'"),
        (dict(task="PointGoal", max_episode_steps=10, action_repeat=3), "multiple"),
        (dict(task="PointGoal", seed=-1), "seed -1"),
        (dict(task="PointGoal", render_mode="human"), "render_mode='human'"),
    ],
)
def test_bad_options(kwargs, words):
    with pytest.raises(ValueError, match=words):
        surefoot.make(**kwargs)


def test_a_layout_that_nearly_fits_is_refused_at_reset():
    """Room on paper, but random placement never finds it."""
    config = GoalConfig(hazards=75, extent=2.0)
    assert config.hazards == 75
    from surefoot.envs.navigation import layout

    draw = np.random.RandomState(0).uniform
    attempts, layout.LAYOUT_ATTEMPTS = layout.LAYOUT_ATTEMPTS, 20
    try:
        with pytest.raises(ImpossibleLayout, match="77 objects"):
            layout.sample_layout(draw, config.extent, config.keepouts)
    finally:
        layout.LAYOUT_ATTEMPTS = attempts


def test_bad_actions():
    env = surefoot.make("PointGoal", num_envs=2, seed=0)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(np.zeros((2, 2)))
    env.reset()
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        env.step(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="action 1 of environment 0 is nan"):
        env.step(np.array([[0.0, np.nan], [0.0, 0.0]]))
    before = env.position.copy()
    env.step(np.full((2, 2), 50.0))  # out of bounds is clipped, as in the reference
    assert np.abs(env.position - before).max() < 0.05


def test_streams_continue_from_a_saved_state():
    from surefoot.envs.streams import Streams

    a = Streams([1, 2])
    a.skip_one()
    [a.drawer(0)(0, 1) for _ in range(300)]
    saved = a.state()
    expected = [a.drawer(i)(0, 1) for i in (0, 1) for _ in range(400)]
    b = Streams([5, 6])
    b.restore(saved)
    assert [b.drawer(i)(0, 1) for i in (0, 1) for _ in range(400)] == expected
    twister = np.random.RandomState(2)
    twister.uniform()
    assert b.drawer(1)(-3, 3) != expected[-1]
    assert expected[400:403] == [twister.uniform() for _ in range(3)]


def test_costs_have_one_column_per_constraint_also_when_actions_repeat():
    env = surefoot.make("PointGoal", num_envs=3, seed=0, action_repeat=2, hazards=1)
    env.reset()
    env.hazards = env.place[:, None].copy()
    env.hazards[2] += 5.0
    _, _, _, _, info = env.step(np.zeros((3, 2)))
    assert info["cost"].dtype == np.float64
    assert info["cost"].tolist() == env.episode_cost.tolist() == [[2.0], [2.0], [0.0]]
    assert env.scene(0).cost == 2.0
