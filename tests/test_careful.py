"""Careful training: real episodes are driven through the safety filter."""

import json
from dataclasses import replace

import numpy as np
import pytest

import in_memory
from harness import came_to, differences, start
from surefoot.algorithms import careful
from surefoot.algorithms.careful import PROBE, Filter, has_model
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.runs import train as runs_train
from surefoot.runs.folder import RunFolder
from surefoot.runs.keeper import Keeper
from surefoot.runs.resume import resume
from surefoot.world.ensemble import EnsembleConfig
from surefoot.world.planner import PlannerConfig
from test_planning import WALL, Wall, carts, planned_actor
from toys import TwoState

SMALL = PlannerConfig(
    kind="cem", horizon=3, hold=2, samples=12, iterations=2, particles=1, fewest_safe=2
)
CONFIG = MBPPOConfig(
    steps=4 * 4 * 30, cost_limit=(2.0,), careful=True, filter=replace(SMALL, hold=3, samples=30),
    episodes=4, model="black-box", horizon=30, rollouts=60, passes=15, real_share=0.0, beta=0.7,
    anchor=True, gate="none",
    ppo=PPOConfig(hidden=(16,), actor_learning_rate=1e-2, epochs=4, minibatches=4, critic_epochs=4,
                  scale_costs=True, minimum_log_std=-1.5),
    multiplier=MultiplierConfig(kind="log-pi", initial=0.1),
    ensemble=EnsembleConfig(members=3, elites=3, hidden=(16,), max_steps=300),
)  # fmt: skip
COST = {"cost": lambda obs, action, after: (after[:, 0] > WALL) * 1.0}


@pytest.mark.parametrize(("steps", "round_"), [(750, 25), (20, 20), (90, 18), (53, 1)])
def test_an_episode_has_whole_rounds(steps, round_):
    assert careful.round_steps(steps) == round_


def test_the_model_is_fitted_as_data_grow():
    training = in_memory.new_training(CONFIG, Wall, known=COST)
    kept = Filter(SMALL, training.problem)
    assert not kept.fit_is_due(4 * PROBE - 1) and kept.fit_is_due(4 * PROBE)
    kept.fitted(200)
    assert not kept.fit_is_due(249) and kept.fit_is_due(250)


@pytest.mark.slow
def test_violations_are_rare_though_the_policy_alone_has_many():
    """The reward draws into the wall. What the filter does is what the model learns from.

    Before the first fit nothing is filtered, and a bold first policy reaches the wall.
    """
    seeds = [0, 1, 2, 3, 4]
    training = in_memory.new_training(CONFIG, Wall, seeds, known=COST)
    *_, before, rows = [epoch.metrics for epoch in in_memory.loop.epochs(training)]
    policy = training.trainer.policy()
    alone = in_memory.evaluate_policy(carts(100), policy, seeds, 20, 10_000, 2.0)
    violations = np.array([row["violations"] for row in rows])
    episodes = 16
    assert violations.mean() < 0.25 * alone.cost * episodes and np.median(violations) <= 20
    assert violations.tolist() == [row["violations"] for row in before]  # none in the last epoch
    assert alone.cost > 5 and all(row["interventions"] > 0.02 for row in rows)
    # The filter's cost says nothing about the policy's.
    ratio = training.trainer.state.ratio
    assert not np.asarray(ratio.real).any() and not np.asarray(ratio.imagined).any()


def test_before_the_first_fit_the_policy_acts():
    training = in_memory.new_training(CONFIG, Wall, known=COST)
    trainer, policy = training.trainer, lambda now: now
    assert not has_model(trainer.planning())
    kept = Filter(SMALL, training.problem)
    assert kept.actor(trainer.planning(), policy, 0, True) is policy
    assert kept.interventions(10).tolist() == [0]


def test_what_was_learned_since_is_used_without_compiling_again():
    actor = planned_actor("filter", [np.random.default_rng(s) for s in (0, 1)])
    before = actor._plan, actor._risk, actor._learned
    other = actor._planning._replace(learner=actor._planning.learner + 1)
    actor._mean = actor._begin + 1
    actor.renew(other, actor._policy, actor._keys, begins=False)
    assert (actor._plan, actor._risk) == before[:2] and (actor._mean != actor._begin).all()
    np.testing.assert_array_equal(actor._learned[1], before[2][1] + 1)
    actor.renew(other, actor._policy, actor._keys)
    assert actor._mean is actor._begin


@pytest.mark.slow
def test_a_careful_run_resumes_exactly_and_is_evaluated_as_it_acts(tmp_path, monkeypatch, call):
    monkeypatch.setattr(careful, "PROBE", 10)
    monkeypatch.setattr(runs_train, "PLANNED_EPISODES", 2)
    options = {"careful": True, "real_share": 0.0, "filter": SMALL}
    whole = start("mbppo-lagrangian", tmp_path / "whole", 2, **options)
    take = Keeper.take

    def crash(self, now, seconds):
        if now.number == 2:
            raise KeyError("crash")
        take(self, now, seconds)

    monkeypatch.setattr(Keeper, "take", crash)
    with pytest.raises(KeyError, match="crash"):
        start("mbppo-lagrangian", tmp_path / "cut", 2, **options)
    monkeypatch.setattr(Keeper, "take", take)
    assert differences(came_to(whole), came_to(resume(tmp_path / "cut", quiet=True))) == []
    rows = RunFolder(whole).read_metrics()
    assert all(0 <= row["interventions"] <= 1 for row in rows)
    assert RunFolder(whole).read_json("result.json")["evaluation"]["plan"]["how"] == "filter"
    code, out, _ = call("evaluate", str(whole), "--episodes", "2", "--json", "--plan", "none")
    assert code == 0 and "plan" not in json.loads(out)


def test_contradictions_are_named(call):
    code, _, error = call("train", "PointGoal", "--preset", "paper", "--careful")
    assert code == 2 and "real_share=0.05 must be 0 with careful=True" in error
    with pytest.raises(ValueError, match="actions must be a Box to plan in"):
        in_memory.new_training(CONFIG, TwoState)
