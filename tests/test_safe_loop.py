"""safe-LOOP: small runs end to end, resumed exactly, and plans that keep out of danger."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from surefoot.algorithms.mbppo_memory import World
from surefoot.algorithms.presets import preset

from harness import TASK, TINY, start
from surefoot.algorithms import sac, safe_loop
from surefoot.algorithms.safe_loop import SafeLoopConfig
from surefoot.core.snapshot import Saved, to_arrays
from surefoot.core.spaces import ActionSpec
from surefoot.envs.gym.adapters import adapt
from surefoot.runs.folder import RunFolder
from surefoot.runs.train import PLANNED_EPISODES, evaluate, make_task, task_model
from surefoot.world.black_box import BlackBox
from surefoot.world.planner import PlannerConfig
from toys import Drift, TwoState, linear_ensemble

TINY_LOOP = replace(TINY["safe-loop"], steps=120)


def run(config, saved=None, seeds=(0, 1)):
    make_env, know = make_task("PointGoal", TASK), lambda env: task_model(env, config.model)
    return safe_loop.epochs(config, make_env, know, list(seeds), saved)


@pytest.fixture(scope="module")
def trained():
    """Epochs of a tiny run on PointGoal, with all that each left behind."""
    return [(epoch, to_arrays(epoch.snapshot)) for epoch in run(TINY_LOOP)]


def test_a_run_on_a_task(trained):
    """60 random steps, then plans; the model is fitted and SAC updated on the way."""
    numbers = [(epoch.number, epoch.total) for epoch, _ in trained]
    assert numbers == [(1, 3), (2, 3), (3, 3)]
    first, second, last = (epoch.metrics for epoch, _ in trained)
    for name in (*safe_loop.PLANNED, *sac.METRICS):
        assert all(np.isnan(row[name]) for row in first)
        assert all(np.isfinite(row[name]) for row in (*second, *last))
    for row in (*first, *second, *last):
        assert 0 < row["model_error"] < 10 and row["episodes"] == 2
    assert all(0 <= row["safe_plans"] <= 1 for row in last)
    assert [row["steps"] for row in last] == [120, 120]
    assert last[0]["planned_value"] != last[1]["planned_value"]  # seeds are not the same
    epoch, arrays = trained[-1]
    assert epoch.policy.kind == "squashed" and epoch.policy.seed(0).actions == 2
    assert {"collect", "fit", "update", "save"} == set(epoch.seconds)
    assert len(arrays["memory/0/inputs"][0]) == 40 and len(arrays["replay/0/reward"][0]) == 40


def test_real_steps_are_remembered_as_they_were(trained):
    """What SAC and the model are told of a step: the same actions, in the unit box and not."""
    arrays = trained[-1][1]
    sac_actions, inputs = arrays["replay/1/action"], arrays["memory/1/inputs"]
    np.testing.assert_allclose(sac_actions, inputs[..., -2:], atol=1e-6)  # bounds of -1 and 1
    body = arrays["replay/1/obs"][..., : inputs.shape[-1] - 2]
    np.testing.assert_allclose(body, inputs[..., :-2], atol=1e-6)


def test_a_resumed_run_is_the_run_that_was_never_interrupted(trained):
    whole = {k: v for k, v in trained[-1][1].items() if not k.startswith("phases/")}
    (again,) = run(TINY_LOOP, Saved(trained[1][1]))
    found = to_arrays(again.snapshot)
    assert whole.keys() <= found.keys()
    different = [name for name, x in whole.items() if x.tobytes() != found[name].tobytes()]
    assert different == [] and again.metrics[0]["epoch"] == 3
    rows = zip(trained[-1][0].metrics, again.metrics, strict=True)
    assert all(a == b for a, b in rows)


@pytest.mark.slow
def test_a_run_on_a_black_box():
    """Nothing is known: next observation, reward and cost are all learned."""
    config = replace(
        TINY_LOOP, model="black-box", steps=80, planner=replace(TINY_LOOP.planner, kind="cem")
    )
    make_env = lambda n, _: adapt(Drift, num_envs=n)
    know = lambda env: task_model(env, config.model)
    *_, last = safe_loop.epochs(config, make_env, know, [0])
    (row,) = last.metrics
    assert all(np.isfinite(row[name]) for name in safe_loop.PLANNED)
    # An action costs a + 3 >= 0, so three of them cost something in the worst case.
    assert row["planned_cost"] > 0 and row["safe_plans"] < 1


@pytest.mark.slow
def test_a_run_is_judged_with_its_planner(tmp_path, call):
    """Its evaluation is that of the planner, and may be repeated."""
    run = start("safe-loop", tmp_path / "run", 2)
    result = RunFolder(run).read_json("result.json")
    found = result["evaluation"]
    assert found["plan"]["how"] == "look-ahead" and found["plan"]["followed"] == 1.0
    assert found["plan"]["planner"]["horizon"] == 3 and result["plans_per_second"] > 0
    again = evaluate(run, PLANNED_EPISODES)  # which looks ahead, as training did
    assert (again["reward"], again["cost"]) == (found["reward"], found["cost"])
    assert again["plan"]["followed"] == 1.0
    _, out, _ = call("export", str(run), str(tmp_path / "policy.npz"))
    assert "without its planner" in out


def test_choices_are_refused():
    know = lambda env: BlackBox(2)
    with pytest.raises(ValueError, match=r"Discrete\(2\), but SAC and safe-LOOP need a Box"):
        next(safe_loop.epochs(TINY_LOOP, lambda n, _: adapt(TwoState, num_envs=n), know, [0]))


# A line on which the action is the step: 20 for going right, a wall at 1.

WALL = BlackBox(
    1,
    terminates=False,
    reward_fn=lambda obs, action, after: 20 * action[0],
    cost_fn=lambda obs, action, after: (after[0] > 1.0) * 1.0,
)
LINE = World(WALL, ActionSpec(1, low=(-1.0,), high=(1.0,)), 20)
EXACT = linear_ensemble(np.array([[[0.0], [1.0]]]), np.zeros((1, 1)), gaussian=1)
PLANNER = PlannerConfig(
    horizon=3, samples=100, particles=1, iterations=4, fewest_safe=5, actor_share=0.05
)


CONFIG = replace(TINY_LOOP, environments=2, planner=PLANNER)
DECIDE = jax.jit(lambda *args: safe_loop.decide(CONFIG, LINE, *args))


@cache
def worthless():
    """A learner whose values are all 0."""
    learner = jax.jit(lambda key: sac.init(TINY_LOOP.sac, 1, 1, key))(jax.random.key(0)).learner
    zero = jax.tree.map(jnp.zeros_like, learner.targets)
    return eqx.tree_at(lambda s: s.targets, learner, zero)


def decided(mean: float, fresh: bool):
    """Plans from 0.9 and from -2, the key to go on with, and metrics."""
    return DECIDE(
        worthless(), EXACT, jnp.full((2, 3, 1), mean), jax.random.key(1),
        jnp.array([[0.9], [-2.0]]), jnp.full(2, fresh),
    )  # fmt: skip


def test_a_safe_plan_is_preferred():
    """From 0.9 there is 0.1 to go; from -2 one may go on as fast as one can for three steps."""
    plan, key, metrics = decided(0.0, True)
    assert plan.safe.all() and metrics["safe_plans"] == 1 and metrics["planned_cost"] == 0
    assert plan.action[0, 0] <= 0.1 and plan.action[1, 0] > 0.5
    # All three steps together stay this side of the wall, and earn what there is to earn.
    assert 0 < plan.value[0] <= 20 * 0.1 and plan.value[1] > 20 * 2
    assert metrics["planned_value"] == pytest.approx(float(plan.value.mean()))
    assert not jnp.array_equal(jax.random.key_data(key), jax.random.key_data(jax.random.key(1)))


def test_plans_go_on_within_an_episode_and_start_anew_after_it():
    """In a fresh episode it does not matter what was planned before."""
    a, *_ = decided(0.0, True)
    b, *_ = decided(0.7, True)
    c, *_ = decided(0.7, False)
    np.testing.assert_array_equal(a.action, b.action)
    assert not np.array_equal(b.action, c.action)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "lidar"}, "model='lidar' must be one of"),
        ({"refit_every": 275}, "refit_every=275 must be a positive multiple of update_every=50"),
        ({"refit_every": 0}, "refit_every=0 must be a positive multiple"),
        ({"random_steps": 200}, "random_steps=200 must be at least refit_every=250"),
        ({"steps": 10**10}, "steps=10000000000 must be at most 1,000,000,000"),
        ({"environments": 7}, "update_every=50 must be a multiple of environments=7; 56 would do"),
    ],
)
def test_bad_settings(change, said):
    with pytest.raises(ValueError, match=said):
        SafeLoopConfig(**change)


def test_presets():
    paper = preset("safe-loop", "paper", "PointGoal", "gpu")
    assert (paper.model, paper.planner.horizon, paper.planner.cost_threshold) == ("paper", 8, 0.0)
    assert (paper.ensemble.members, paper.random_steps, paper.refit_every) == (8, 10_000, 250)
    default = preset("safe-loop", "default", "PointGoal", "gpu")
    assert default.model == "ego" and default.planner.steps == 30
    assert default.planner.cost_threshold == 0.0  # which is known
    assert (paper.planner.value_weight, default.planner.value_weight) == (1.0, 0.0)
    small = preset("safe-loop", "default", "PointGoal", "cpu")
    assert small.ensemble.hidden == (64, 64) and default.ensemble.hidden == (200,) * 4
    assert small.planner == default.planner and small.random_steps == 250
    assert (small.steps, default.steps, paper.steps) == (15_000, 30_000, 450_000)
    car = preset("safe-loop", "default", "RCCar", "cpu")
    assert car.cost_limit == 5.0 and (car.planner.hold, car.planner.steps) == (3, 15)
    own = preset("safe-loop", "default", None, "cpu").planner
    assert (own.cost_threshold, own.value_weight) == (0.2, 1.0)
