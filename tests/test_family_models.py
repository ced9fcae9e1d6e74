"""The family's models against the environments themselves."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import surefoot
from surefoot.algorithms.algorithm import ALGORITHMS
from surefoot.envs.family import ego, starts
from surefoot.envs.family.config import stock
from surefoot.envs.family.env import FamilyEnv
from surefoot.envs.family.paths import free_path
from surefoot.envs.family.robots import ROBOTS
from surefoot.envs.family.task_models import MODELS, ego_model
from surefoot.envs.family.world import SOLIDS
from surefoot.envs.task import TASKS


class Real(NamedTuple):
    """Real steps, arrays [N, …]."""

    before: np.ndarray
    obs: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    terminated: np.ndarray
    after: np.ndarray
    then: np.ndarray
    """Records after goals were drawn."""
    met: np.ndarray


def towards(env: FamilyEnv, rng: np.random.Generator) -> np.ndarray:
    """Actions that drive Points to one object after another, so that they touch them."""
    s = env.state()
    first = [] if env.config.task == "push" else [s.goal[:, None]]
    things = np.concatenate([*first, s.bodies[..., :2], s.statics, s.hazards], 1)
    x, y = (things[np.arange(len(things)), env.elapsed // 110 % things.shape[1]] - env.place).T
    turn = np.arctan2(y, x) - s.heading
    steer = np.clip(2 * np.arctan2(np.sin(turn), np.cos(turn)), -1, 1)
    return np.stack([np.ones_like(x), steer], 1) + rng.normal(0, 0.3, (len(x), 2))


@cache
def driven(robot: str, task: str, level: int, steps: int):
    """A model and real steps of two environments."""
    options = {"observation": "ego", "costs": "separate" if level == 2 else "sum"}
    env = surefoot.make(f"{robot}{task}{level}", num_envs=2, seed=3, threads=1, **options)
    model, rng, rows = ego_model(env), np.random.default_rng(0), []
    obs, _ = env.reset()
    for _ in range(steps):
        before, seen = model.record(env.state()), obs
        low, high = env.action_space.low, env.action_space.high
        action = towards(env, rng) if robot == "Point" else rng.uniform(low, high)
        obs, reward, terminated, _, info = env.step(action)
        end, then = model.record(env.outcome), model.record(env.state())
        rows.append((before, seen, reward, info["cost"], terminated, end, then, env.met))
    return model, Real(*map(np.concatenate, zip(*rows, strict=True)))


def imagined(model, real: Real):
    """One imagined step from every real state, with the motion and contacts that really were."""
    before, after = jnp.asarray(real.before), jnp.asarray(real.after)
    state = model.restore(jax.random.key(0), before)
    target = jax.vmap(model.target)(before, after)
    gaussian, binary = jnp.split(target, [model.target_size], 1)
    # What is out of reach has no target and must not matter.
    gaussian = jnp.where(jnp.isnan(gaussian), 1.0, gaussian)
    binary = jnp.stack([binary, jnp.full_like(binary, 0.5)], 1)
    bounds = (jnp.full(model.feature_size, -1e9), jnp.full(model.feature_size, 1e9))
    step = jax.jit(jax.vmap(model.advance, (0, None, 0, 0, None)))
    return step(state, jnp.zeros(2), gaussian, binary, bounds)


CASES = {
    ("Point", "Goal", 1): 200,
    ("Point", "Goal", 2): 150,
    ("Point", "Button", 1): 250,
    ("Point", "Push", 2): 250,
    ("Point", "Circle", 2): 100,
    ("Point", "Run", 0): 100,
    ("Car", "Circle", 1): 30,
    ("Ant", "Circle", 1): 6,  # then it lies on its back, which its proprioception does not tell
}


@pytest.mark.parametrize("case", CASES)
def test_imagined_steps_with_the_real_motion_are_the_real_steps(case):
    model, real = driven(*case, CASES[case])
    after, reward, cost, terminated = imagined(model, real)
    if case[1] == "Push":
        # The box hops by centimetres, which cancels out; against a pillar it moves by itself.
        pushed = np.abs(np.asarray(after.view.movable) - model._view(real.after).movable) < 1e-3
        error = (reward - real.reward)[pushed.all((1, 2))]
        assert len(error) > 400 and np.median(np.abs(error)) < 1e-3 and abs(error.mean()) < 1e-3
        assert (np.abs(model._view(real.after).box[:, 1:3]) > 0.5).any()
    else:
        tolerance = 2e-4 if case[1] == "Run" else 2e-6
        np.testing.assert_allclose(reward, real.reward, atol=tolerance)
    np.testing.assert_array_equal(cost, real.cost)
    np.testing.assert_array_equal(terminated, real.terminated)
    assert real.cost.any() or case[1] in ("Circle", "Run")
    names = set(after.view._fields) - {"goal", "button", "box"}
    if case[1] in ("Goal", "Push"):  # only the nearest vase moves, and the box within reach
        names -= {"movable", "signals"}
    want = model._view(real.after)
    for name in names - {"timer"}:
        assert getattr(want, name).shape == getattr(after.view, name).shape
        difference = np.asarray(getattr(after.view, name)) - getattr(want, name)
        if name == "heading":
            difference = np.arctan2(np.sin(difference), np.cos(difference))
        np.testing.assert_allclose(difference, 0, atol=5e-6, err_msg=name)
    if model.config.task == "button":
        assert real.met.any()
        np.testing.assert_array_equal(after.used, real.met)
        same = ~np.asarray(real.terminated)
        np.testing.assert_array_equal(
            np.asarray(after.view.timer)[same], model._view(real.then).timer[same]
        )
        at = np.asarray(after.view.button)[:, 0].astype(int)
        goals = np.asarray(after.view.statics)[np.arange(len(at)), at]
        np.testing.assert_array_equal(after.view.goal, goals)
    if model.config.task == "goal":
        np.testing.assert_array_equal(np.asarray(after.used) > 0, real.met)


@pytest.mark.parametrize("case", CASES)
def test_observations_of_records_are_those_of_the_environment(case):
    model, real = driven(*case, CASES[case])
    assert real.obs.shape[1] == model.observation_size
    state = model.restore(jax.random.key(0), jnp.asarray(real.before))
    np.testing.assert_allclose(jax.vmap(model.observe)(state), real.obs, atol=2e-5)


def test_what_the_robot_pushes_is_learned():
    model, real = driven("Point", "Push", 2, CASES["Point", "Push", 2])
    target = np.asarray(jax.vmap(model.target)(real.before, real.after))
    assert len(model.output_names) == target.shape[1] == model.target_size + model.binary_size
    push = target[:, [model.output_names.index(f"box {x}") for x in ("forward", "left", "turn")]]
    assert np.nanmax(np.abs(push)) > 0.01
    assert np.isnan(push).any() and not np.isnan(push).all()
    features = np.asarray(jax.vmap(model.record_features)(real.before))
    assert features.shape[1] == len(model.feature_names) == model.feature_size
    box = features[:, [i for i, name in enumerate(model.feature_names) if "box" in name]]
    moves = ~np.isnan(push).any(1)
    assert (box[moves] != 0).any(1).all() and (box[~moves] == 0).all(1).any()


def test_new_goals_keep_clear_of_robot_and_box():
    config = stock("point", "push", 1)
    model = MODELS["push"](config)
    records = model.initial_records(jax.random.key(0), 500)
    state = model.restore(jax.random.key(1), records)
    after = jax.vmap(model._renew, (0, 0, None))(state, state.view, jnp.array(True))
    gap = lambda a, b: np.linalg.norm(np.asarray(a) - np.asarray(b), axis=-1)
    assert (gap(after.view.goal, state.view.position) >= 0.8 - 1e-5).mean() > 0.97
    assert (gap(after.view.goal, state.view.movable[:, 0]) >= 0.6 - 1e-5).mean() > 0.97
    assert (gap(after.view.goal[:, None], state.view.hazards) >= 0.8 - 1e-5).mean() > 0.97
    assert (after.used > state.used).all()


@pytest.mark.parametrize("task", ["goal", "button", "push", "circle", "run"])
def test_imagined_episodes_start_as_real_ones(task):
    config = stock("point", task, 0 if task == "run" else 1)
    if task == "button":  # stock layouts take seconds
        config = replace(config, extent=2.0)
    model = MODELS[task](config)
    records = model.initial_records(jax.random.key(0), 2000)
    assert records.shape == (2000, model.record_size)
    mine = jax.tree.map(np.asarray, model._view(records))
    env = FamilyEnv(config, 300, seed=0, threads=1)
    env.reset()
    real = ego.view(config, env.state())
    for name, ours, theirs in zip(real._fields, mine, real, strict=True):
        assert ours.shape[1:] == theirs.shape[1:], name
        for a, b in zip(ours.reshape(2000, -1).T, theirs.reshape(300, -1).T, strict=True):
            if np.ptp(b) > 1e-6:
                if name in ("heading", "box"):
                    a, b = a % (2 * np.pi), b % (2 * np.pi)
                assert stats.ks_2samp(a, b).pvalue > 1e-4, name
            else:
                np.testing.assert_allclose(a, b[0], atol=1e-5, err_msg=name)
    slots = starts._slots(config)
    drawn = starts._sample_layouts(slots, starts.LAYOUTS)
    keepouts = np.array([slot.keepout for slot in slots])
    gaps = np.linalg.norm(drawn[:, :, None] - drawn[:, None], axis=-1)
    needed = keepouts[:, None] + keepouts
    np.fill_diagonal(needed, 0)
    assert (gaps >= needed - 1e-6).all()


def test_gremlins_of_the_model_are_where_the_simulation_moves_them():
    config = stock("car", "button", 1)
    path = free_path(ROBOTS["car"], SOLIDS["gremlins"]).until(600).place[:600, :2]
    time = np.arange(600.0)[:, None]
    np.testing.assert_allclose(ego.orbit(np, config, time), path, atol=1e-9)
    np.testing.assert_allclose(ego.orbit(jnp, config, jnp.asarray(time)), path, atol=1e-5)


def test_real_goals_and_buttons_are_handed_over():
    model = MODELS["button"](stock("point", "button", 0))
    records = np.zeros((6, 1, model.record_size), np.float32)
    records[:, 0, model._columns["button"]] = np.array([[0], [0], [2], [2], [2], [3]])
    records[:, 0, model._columns["timer"]] = np.array([[3], [2], [10], [9], [10], [10]])
    ended = np.zeros((6, 1), bool)
    ended[4] = True  # the last press belongs to another episode
    start, place, within = np.array([0]), np.array([0]), np.ones((3, 1), bool)
    states = model.restore(jax.random.key(0), jnp.asarray(records[0]))
    followed, comparable = model.follow_real(states, records, ended, start, place, within)
    np.testing.assert_array_equal(followed.spare[0, :2, 0], [2, 2])
    np.testing.assert_array_equal(followed.spare[0, 2:], states.spare[0, 2:])
    assert comparable is within and int(model.events(states)) == 0


def test_a_fixed_layout_is_imagined_as_it_is():
    config = replace(stock("point", "push", 1), layout_seed=5)
    env = FamilyEnv(config, 2, seed=0, threads=1)
    env.reset()
    model = ego_model(env)
    records = model.initial_records(jax.random.key(0), 3)
    np.testing.assert_allclose(records, np.tile(model.record(env.state())[:1], (3, 1)), atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", ["PointGoal1", "CarButton2", "AntPush0", "DoggoRun0"])
def test_every_task_of_the_family_has_presets(name, device):
    config = ALGORITHMS["mbppo-lagrangian"].preset("default", TASKS[name], device)
    assert config.model == "ego" and 60_000 <= config.steps <= 400_000
    baseline = ALGORITHMS["ppo-lagrangian"].preset("default", TASKS[name], device)
    assert baseline.observation == "reference" and baseline.ppo.normalise_observations
    assert TASKS[name].cost_limits == {"sum": 25.0}


def test_a_goal_can_be_shown_elsewhere():
    model = MODELS["goal"](stock("point", "goal", 0))
    state = model.restore(jax.random.key(1), model.initial_records(jax.random.key(0), 3))
    seen = jax.vmap(model.observe_toward, (0, None))(state, jnp.array(1.0))
    heading = np.asarray(state.view.heading)[:, 0]
    goal = 1.5 * np.stack([np.cos(1 - heading), np.sin(1 - heading)], 1)
    np.testing.assert_allclose(seen[:, 3:5], goal, atol=1e-5)
