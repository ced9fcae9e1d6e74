"""safe-LOOP: small runs end to end, resumed exactly, and plans that avoid costs."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import in_memory
from harness import TASK, TINY, start
from surefoot.algorithms import safe_loop
from surefoot.algorithms.off_policy import METRICS
from surefoot.algorithms.safe_loop import SafeLoopConfig, SafeLoopTrainer
from surefoot.algorithms.trainer import Problem
from surefoot.core.snapshot import Saved, to_arrays
from surefoot.core.spaces import ActionSpec
from surefoot.runs.folder import RunFolder
from surefoot.use.evaluate import evaluate
from surefoot.world import planner
from surefoot.world.black_box import BlackBox
from surefoot.world.imagination import LearnedWorld
from surefoot.world.planner import PlannerConfig
from toys import Drift, TwoState, linear_ensemble

TINY_LOOP = replace(TINY["safe-loop"], steps=120)


def run(config, saved=None, seeds=(0, 1)):
    return in_memory.epochs(config, "PointGoal", seeds, TASK, saved=saved)


@pytest.fixture(scope="module")
def trained():
    """Epochs of a tiny run on PointGoal, and the arrays of each one's snapshot."""
    return [(epoch, to_arrays(epoch.snapshot)) for epoch in run(TINY_LOOP)]


def test_a_run_on_a_task(trained):
    """60 random steps, then plans; the model is fitted and SAC updated on the way."""
    numbers = [(epoch.number, epoch.total) for epoch, _ in trained]
    assert numbers == [(1, 3), (2, 3), (3, 3)]
    first, second, last = (epoch.metrics for epoch, _ in trained)
    for name in (*safe_loop.PLAN_METRICS, *METRICS):
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
    assert len(arrays["trainer/dataset/0/inputs"][0]) == 40
    assert len(arrays["trainer/replay/0/reward"][0]) == 40


def test_real_steps_are_stored_as_they_were(trained):
    """SAC and the model learn from the same actions, in the unit box and not."""
    arrays = trained[-1][1]
    sac_actions, inputs = arrays["trainer/replay/1/action"], arrays["trainer/dataset/1/inputs"]
    np.testing.assert_allclose(sac_actions, inputs[..., -2:], atol=1e-6)  # bounds of -1 and 1
    body = arrays["trainer/replay/1/obs"][..., : inputs.shape[-1] - 2]
    np.testing.assert_allclose(body, inputs[..., :-2], atol=1e-6)


def test_a_resumed_run_is_the_run_that_was_never_interrupted(trained):
    whole = {k: v for k, v in trained[-1][1].items() if not k.startswith("phases/")}
    (again,) = run(TINY_LOOP, Saved(trained[1][1]))
    arrays = to_arrays(again.snapshot)
    assert whole.keys() <= arrays.keys()
    different = [name for name, x in whole.items() if x.tobytes() != arrays[name].tobytes()]
    assert different == [] and again.metrics[0]["epoch"] == 3
    rows = zip(trained[-1][0].metrics, again.metrics, strict=True)
    assert all(a == b for a, b in rows)


@pytest.mark.slow
def test_a_run_on_a_black_box():
    """Nothing is known: next observation, reward and cost are all learned."""
    config = replace(
        TINY_LOOP, model="black-box", steps=80, planner=replace(TINY_LOOP.planner, kind="cem")
    )
    *_, last = in_memory.epochs(config, Drift)
    (row,) = last.metrics
    assert all(np.isfinite(row[name]) for name in safe_loop.PLAN_METRICS)
    # An action costs a + 3 >= 0, so three of them cost something in the worst case.
    assert row["planned_cost"] > 0 and row["safe_plans"] < 1


@pytest.mark.slow
def test_a_run_is_evaluated_with_its_planner(tmp_path, call):
    """At its end, with the state in memory; afterwards the same from the checkpoint."""
    run = start("safe-loop", tmp_path / "run", 2)
    result = RunFolder(run).read_json("result.json")
    at_end = result["evaluation"]
    assert at_end["plan"]["how"] == "look-ahead" and at_end["plan"]["followed"] == 1.0
    assert at_end["plan"]["planner"]["horizon"] == 3 and result["plans_per_second"] > 0
    again = evaluate(run)
    assert again["plan"].pop("plans_per_second") > 0
    assert again == at_end
    _, out, _ = call("export", str(run), str(tmp_path / "policy.npz"))
    assert "without its planner" in out


def test_discrete_actions_are_refused():
    config = replace(TINY_LOOP, model="black-box")
    with pytest.raises(ValueError, match=r"Discrete\(2\): SAC, SAC-Lagrangian and safe-L"):
        next(in_memory.epochs(config, TwoState))


# A line on which the action is the step: 20 for going right, a wall at 1.

WALL = BlackBox(
    1,
    terminates=False,
    reward_fn=lambda obs, action, after: 20 * action[0],
    cost_fn=lambda obs, action, after: (after[0] > 1.0) * 1.0,
)
LINE = Problem((0,), 2, 20, 1, ActionSpec(1, low=(-1.0,), high=(1.0,)), ("cost",), WALL)
EXACT = linear_ensemble(np.array([[[0.0], [1.0]]]), np.zeros((1, 1)), gaussian=1)
PLANNER = PlannerConfig(
    horizon=3, samples=100, particles=1, iterations=4, fewest_safe=5, actor_share=0.05
)
CONFIG = replace(TINY_LOOP, environments=2, planner=PLANNER)


@cache
def line():
    """A compiled `decide`, and a state with the exact model and values that are all 0."""
    trainer = SafeLoopTrainer(CONFIG, LINE)
    planning = trainer.planning()
    decide = jax.jit(lambda *args: safe_loop.decide(CONFIG, LINE, planning, *args))
    state = jax.tree.map(lambda x: x[0], trainer.state)
    parts = lambda s: (s.sac.learner.targets, s.ensemble)
    zero = jax.tree.map(jnp.zeros_like, state.sac.learner.targets)
    return decide, eqx.tree_at(parts, state, (zero, EXACT))


def decided(mean: float, begins: bool):
    """Actions from 0.9 and from -2, the next state, and metrics."""
    decide, state = line()
    state = replace(state, mean=jnp.full((2, 3, 1), mean))
    return decide(state, jnp.array([[0.9], [-2.0]]), jnp.full(2, begins))


def test_a_safe_plan_is_preferred():
    """From 0.9 there is 0.1 left; from -2 full speed is safe for three steps."""
    action, state, metrics = decided(0.0, True)
    assert metrics["safe_plans"] == 1 and metrics["planned_cost"] == 0
    assert action[0, 0] <= 0.1 and action[1, 0] > 0.5
    # The mean over both: at most 20 * 0.1 from 0.9, and more than 20 * 2 from -2.
    assert 20 < metrics["planned_value"] <= 20 * (0.1 + 3) / 2
    data = lambda state: jax.random.key_data(state.key)
    assert not jnp.array_equal(data(state), data(line()[1]))
    assert state.mean.shape == (2, 3, 1)


def test_a_planner_keeps_each_plan_within_the_wall():
    """All steps together stay this side of the wall, and earn what they can."""
    _, state = line()
    planning = SafeLoopTrainer(CONFIG, LINE).planning()
    learner, key = state.sac.learner, jax.random.key(1)
    plan = jax.jit(
        lambda states: planner.plan(
            PLANNER, LearnedWorld(WALL, LINE.actions, EXACT), states, jnp.zeros((2, 3, 1)),
            lambda obs, key: planning.act(learner, obs, key),
            lambda obs, key: planning.value(learner, obs, key), key,
        )
    )(jnp.array([[0.9], [-2.0]]))  # fmt: skip
    assert plan.safe.all()
    assert 0 < plan.value[0] <= 20 * 0.1 and plan.value[1] > 20 * 2


def test_plans_continue_within_an_episode_and_start_afresh_after_it():
    """In a new episode the earlier plan does not matter."""
    a, *_ = decided(0.0, True)
    b, *_ = decided(0.7, True)
    c, *_ = decided(0.7, False)
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(b, c)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"refit_every": 275}, "refit_every=275 must be a multiple of update_every=50"),
        ({"refit_every": 0}, "refit_every=0 must be at least 1"),
        ({"random_steps": 200}, "random_steps=200 must be at least refit_every=250"),
        ({"steps": 10**10}, "steps=10000000000 must be .*at most 1,000,000,000"),
        ({"environments": 7}, "update_every=50 must be a multiple of environments=7.* 56"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        SafeLoopConfig(**change)


def test_an_unknown_model_is_refused():
    with pytest.raises(ValueError, match=r"model='lidar' is unknown.*black-box"):
        in_memory.new_training(replace(TINY_LOOP, model="lidar"), "PointGoal", options=TASK)
