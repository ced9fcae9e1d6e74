"""A target share of episodes within the limit, instead of a limit on their mean cost."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import harness
import in_memory
from surefoot.algorithms.experience import Episodes
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.on_policy import Measured, measure
from surefoot.algorithms.ppo_lagrangian import PPO, PPOLagrangianConfig
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.world.trust import EpisodeCosts
from test_imagined_episodes import CONFIG, clock, passes
from toys import BANDIT_PPO, Drift


def test_costs_of_whole_episodes_by_hand():
    column = lambda *values: jnp.array(values, jnp.float32)[:, None]
    flags = lambda *values: jnp.array(values, bool)
    costs = EpisodeCosts.none(3, 1)
    assert costs.quantile(0.5, jnp.array([7.0])) == 7.0 and jnp.isnan(costs.within(jnp.zeros(1)))
    # The second place is in the middle of an episode: its cost remains unknown.
    costs = costs.seen(column(1, 2, 3), flags(1, 0, 1), flags(0, 0, 1))
    np.testing.assert_array_equal(costs.finished[:, 0], [np.nan, np.nan, 3])
    costs = costs.seen(column(10, 20, 30), flags(0, 0, 1), flags(1, 1, 0))
    np.testing.assert_array_equal(costs.finished[:, 0], [11, np.nan, 3])
    np.testing.assert_array_equal(costs.running[:, 0], [np.nan, np.nan, 30])
    costs = costs.seen(column(5, 6, 70), flags(1, 1, 0), flags(0, 1, 1))
    np.testing.assert_array_equal(costs.finished[:, 0], [11, 6, 100])
    assert costs.quantile(0.5, jnp.zeros(1)) == 11
    assert costs.quantile(0.95, jnp.zeros(1)) == pytest.approx(11 + 0.9 * 89)
    assert costs.within(jnp.array([11.0])) == pytest.approx(2 / 3)


@pytest.mark.parametrize(("steps", "carry"), [(100, 0.5), (50, 0.0)])
def test_every_whole_episode_has_its_cost(steps, carry):
    """Two windows of 50 steps, or one; those that start from past states do not count."""
    problem, ensemble, (_, total) = clock(steps)
    config = replace(CONFIG, horizon=50, carry=carry, replay_share=0.25, within=0.9, anchor=True)
    *_, (state, metrics) = passes(config, problem, ensemble, 4, past_states=((1e3,),))
    finished = np.asarray(state.imagined.costs.finished)[:, 0]
    counted = config.carried if carry else config.rollouts - config.replayed
    np.testing.assert_allclose(finished[:counted], total, rtol=1e-4)
    assert np.isnan(finished[counted:]).all()
    assert metrics["imagined_within"] == (total <= config.cost_limit[0])


def test_lambda_follows_the_quantile():
    """Episodes end at each step with a chance of 5 %, at a cost of 1 per step.

    A limit of 40 is above the mean cost of 20, but 0.95**40 = 13 % of the episodes are longer.
    """
    problem, ensemble, (_, mean) = clock(400, 0.05, cost_of=lambda age: 1.0)
    assert mean == pytest.approx(20, rel=0.01)
    rule = MultiplierConfig(kind="projected", initial=1.0, learning_rate=1e-3)
    config = replace(
        CONFIG, rollouts=2000, horizon=400, carry=0.0, cost_limit=(40.0,), beta=1.0, anchor=True,
        multiplier=rule,
    )  # fmt: skip
    lam = {}
    for within in (None, 0.8, 0.95):
        ((state, metrics),) = passes(replace(config, within=within), problem, ensemble, 1)
        lam[within] = float(state.learner.multiplier.raw[0])
        ratio = float(state.ratio.value(jnp.array([40.0]))[0])  # of real to imagined cost
        if within is not None:
            quantile = np.log(1 - within) / np.log(0.95)
            expected = 1.0 + 1e-3 * (quantile * ratio - 40)
            assert lam[within] == pytest.approx(expected, abs=3e-3)
            assert metrics["imagined_within"] == pytest.approx(1 - 0.95**40, abs=0.03)
    assert lam[None] < lam[0.8] < lam[0.95]


def test_real_episodes_by_hand():
    cost = np.array([[1.0, 8], [2, 6], [3, 4], [4, 2], [5, 0]])
    experience = type("Fake", (), {"episodes": [Episodes(np.zeros(5), cost, np.full(5, 9))]})
    before = Measured(np.full((1, 2), np.nan), np.zeros(1))
    np.testing.assert_allclose(measure(experience, before).cost, [[3, 4]])
    np.testing.assert_allclose(measure(experience, before, 0.75).cost, [[4, 6]])
    np.testing.assert_allclose(measure(experience, before, 0.9).cost, [[4.6, 7.2]], rtol=1e-6)


@pytest.mark.slow
def test_a_policy_learns_to_keep_most_episodes_within_the_limit():
    """On the mean, half of the episodes exceed the limit."""
    config = PPOLagrangianConfig(
        steps=100 * 800, cost_limit=(60.0,), steps_per_epoch=800,
        ppo=replace(BANDIT_PPO, scale_costs=True),
        multiplier=MultiplierConfig(kind="log-pi", initial=1.0, integral_gain=0.1),
    )  # fmt: skip
    share = {}
    for within in (None, 0.9):
        *_, last = in_memory.epochs(replace(config, within=within), Drift)
        env = in_memory.setup_of(config, Drift).make_envs(200)
        seen = in_memory.evaluate_policy(env, last.policy, [0], 200, 10_000, 60.0)
        share[within] = seen.within_limit
    assert share[None] < 0.65 and 0.8 < share[0.9] < 0.97


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"within": 1.0}, r"within=1.0 must be above 0, below 1"),
        ({"within": 0.9, "anchor": False}, r"within=0.9 must go with constrained=True and anchor="),
        ({"within": 0.9, "anchor": True, "carry": 0.0},
         r"within=0.9 must go with carry above 0, or with horizon=5 at least 20"),
    ],
)  # fmt: skip
def test_contradictions_are_named(changes, problem):
    with pytest.raises(ValueError, match=problem):
        config = replace(harness.TINY["mbppo-lagrangian"], **changes)
        in_memory.new_training(config, "PointGoal", options=harness.TASK)


def test_ppo_keeps_no_limit():
    with pytest.raises(ValueError, match=r"within=0\.9 contradicts algorithm='ppo'"):
        PPO.check(PPOLagrangianConfig(constrained=False, within=0.9))
    assert MBPPOConfig().within is None


@pytest.mark.slow
def test_from_the_command_line(call, tmp_path):
    """The target is in the progress line and in the result."""
    code, out, _ = call(
        "train", "PointGoal", "--env", "max_episode_steps=20", "--within", "0.95", "--steps", "40",
        "--episodes", "2", "--horizon", "20", "--rollouts", "12", "--passes", "3", "--ppo.hidden",
        "8", "--ensemble.hidden", "8", "--ensemble.max-steps", "20", "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert code == 0
    assert "cost limit 18 for 95% of the episodes" in out
    assert "100% within  lambda" in out
    assert "100% of episodes within it (target 95%), mean cost of the worst tenth" in out
