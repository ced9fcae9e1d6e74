"""TRPO-Lagrangian and CPO on problems with known answers, and seeds as an axis."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import in_memory
from surefoot.algorithms import cpo, ppo_lagrangian, trpo_lagrangian
from surefoot.algorithms.cpo import CPOConfig
from surefoot.algorithms.on_policy import Measured
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.algorithms.trainer import Problem
from surefoot.algorithms.trpo_lagrangian import TRPOLagrangianConfig
from surefoot.core.spaces import ActionSpec
from surefoot.envs.gym.adapters import adapt
from surefoot.learn import trust_region
from surefoot.learn.actor_critic import Batch, Rows
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.networks import Actor
from surefoot.learn.trust_region import TrustRegionConfig
from toys import BANDIT_PPO, Drift, Script, TwoState

BANDIT = Problem((0,), 512, 1, 1, ActionSpec(1), ("cost",))
REGION = TrustRegionConfig(hidden=(8,), critic_epochs=1, initial_log_std=-1.0, minimum_log_std=-1.0)
FROM_ZERO = MultiplierConfig(initial=0.0)
ALGORITHMS = {
    "ppo-lagrangian": (
        ppo_lagrangian,
        PPOLagrangianConfig(cost_limit=(1.0,), ppo=BANDIT_PPO, multiplier=FROM_ZERO),
    ),
    "trpo-lagrangian": (
        trpo_lagrangian,
        TRPOLagrangianConfig(cost_limit=(1.0,), trpo=REGION, multiplier=FROM_ZERO),
    ),
    "cpo": (cpo, CPOConfig(cost_limit=(1.0,), cpo=REGION)),
}


def play_bandit(algorithm, config, rounds, start=0.0):
    """Reward -(a - 2)^2, cost a, limit 1; the mode and metrics after every round."""
    obs, over = jnp.ones((1, 512, 1)), jnp.ones((1, 512), bool)

    def one_round(state, key):
        action = state.learner.sample(obs, key)
        batch = Batch(obs, action, -((action[..., 0] - 2) ** 2), action, obs, over, over)
        measured = Measured(action.mean((0, 1)), jnp.array(1.0))
        state, metrics = algorithm.update(config, state, batch, measured)
        return state, (state.learner.mode(obs[0, 0])[0], metrics)

    state = algorithm.init(config, BANDIT, jax.random.key(0))
    bias = lambda s: s.learner.actor.network.biases[-1]
    state = eqx.tree_at(bias, state, bias(state) + start)
    keys = jax.random.split(jax.random.key(1), rounds)
    return jax.device_get(jax.jit(lambda s: jax.lax.scan(one_round, s, keys)[1])(state))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_constrained_bandit_reaches_its_optimum(name):
    """The best safe action is 1. There the price of cost is 2 over the deviation of rewards, of
    -(e - 1)^2 with e ~ N(0, s): sqrt(4 s^2 + 2 s^4), as rewards' advantages are standardised."""
    mode, metrics = play_bandit(*ALGORITHMS[name], rounds=400)
    assert mode[-100:].mean() == pytest.approx(1.0, abs=0.1)
    s = np.exp(-1.0)
    price = 2 / np.sqrt(4 * s**2 + 2 * s**4)
    if name == "cpo":
        assert mode.max() < 1.1  # it solves for the price instead of waiting for one to grow
        assert np.median(metrics["lambda"][-100:]) == pytest.approx(price, abs=0.3)
    else:
        assert mode[:60].max() > 1.3  # it breaks the limit while lambda is still small
        assert metrics["lambda"][-100:].mean() == pytest.approx(price, abs=0.3)


def test_cpo_recovers_from_beyond_the_limit():
    """From 2, the best action there is, to the limit: reward is given up for it."""
    mode, metrics = play_bandit(*ALGORITHMS["cpo"], rounds=60, start=2.0)
    assert mode[0] < 2.0 and metrics["recovery"][0] == 1
    assert (metrics["recovery"][:8] == 1).all() and (np.diff(mode[:8]) < 0).all()
    # The cost is the action itself, so what is expected of a step is what the mode moves by.
    np.testing.assert_allclose(metrics["expected_cost_change"][1:8], np.diff(mode[:8]), rtol=0.15)
    assert mode[-20:].mean() == pytest.approx(1.0, abs=0.05)
    assert metrics["recovery"][-20:].mean() < 0.3 and metrics["binding"][-20:].mean() > 0.5


def test_signal_scaling_changes_nothing_without_noise():
    """A bandit's gradient is nearly all signal."""
    config = CPOConfig(cost_limit=(1.0,), cpo=REGION, signal_scaling=True)
    mode, metrics = play_bandit(cpo, config, rounds=400)
    assert mode[-100:].mean() == pytest.approx(1.0, abs=0.1)
    assert metrics["signal_fraction"].min() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("signal", "least", "most"), [(0.0, 0.05, 0.4), (0.3, 0.5, 0.9)])
def test_halves_separate_signal_from_noise(signal, least, most):
    """30 environments, each with a constant of its own in its costs, as in long episodes.

    The cost of an action is `signal` times its first part, the rest has nothing to do with it.
    """
    actor = Actor(3, ActionSpec(2), jax.random.key(1), hidden=(16,))
    keys = jax.random.split(jax.random.key(2), 4)
    obs = jax.random.normal(keys[0], (40, 30, 3)).reshape(-1, 3)
    heads = actor.heads(obs)
    policy = actor.distribution(heads)
    action = policy.sample(keys[1])
    noise = jax.random.normal(keys[2], (1, 30)) + jax.random.normal(keys[3], (40, 30))
    cost = (noise.reshape(-1) + signal * action[:, 0])[:, None]
    zeros = jnp.zeros((len(obs), 2))
    rows = Rows(
        obs, action, heads, policy.log_prob(action), zeros[:, 0], cost - cost.mean(), zeros, zeros,
        None,
    )  # fmt: skip
    region = trust_region.around(REGION, actor, rows)
    b = jax.grad(lambda p: region.judge(p).cost[0])(region.here)
    s = b @ trust_region.solve(REGION, region, b)
    fraction = cpo.signal_fraction(REGION, actor, rows, cpo.halves(40, 30), s)
    assert least <= float(fraction) <= most


def test_halves_are_of_environments_or_of_time():
    np.testing.assert_array_equal(cpo.halves(2, 5), [1, 1, 0, 0, 0] * 2)
    np.testing.assert_array_equal(cpo.halves(4, 1), [1, 1, 0, 0])


def test_cpo_measures_its_limit_per_step():
    """(3.75 - 4) / 25 and (3.875 - 4) / 12.5 are the same; (3.75 - 4) / 1 leaves more room."""
    config = CPOConfig(cost_limit=(4.0,), cpo=TrustRegionConfig(hidden=(4,), critic_epochs=1))
    state = cpo.init(config, BANDIT, jax.random.key(0))
    obs, over = jnp.ones((1, 64, 1)), jnp.ones((1, 64), bool)
    action = state.learner.sample(obs, jax.random.key(1))
    batch = Batch(obs, action, action[..., 0], action, obs, over, over)
    update = jax.jit(partial(cpo.update, config))
    measured = [(3.75, 25.0), (3.875, 12.5), (3.75, 1.0)]
    actors = [
        update(state, batch, Measured(jnp.array([cost]), jnp.array(length)))[0].learner.actor
        for cost, length in measured
    ]
    same, too, other = (ravel_pytree(actor)[0] for actor in actors)
    np.testing.assert_array_equal(same, too)
    assert np.abs(same - other).max() > 1e-3


TWO_LIMIT = 6.0
TWO = {
    "trpo-lagrangian": TRPOLagrangianConfig(
        steps=90 * 64 * 20,
        cost_limit=(TWO_LIMIT,),
        steps_per_epoch=64 * 20,
        trpo=TrustRegionConfig(
            gamma=0.95, gae_lambda=0.9, hidden=(16,), delta=0.015, critic_epochs=20,
            critic_learning_rate=5e-3,
        ),
        # Gentle, or price and policy swing about the limit.
        multiplier=MultiplierConfig(
            kind="pid", initial=0.3, smoothing=0.8, integral_gain=0.03, proportional_gain=0.2
        ),
    ),
    "cpo": CPOConfig(
        steps=50 * 64 * 20,
        cost_limit=(TWO_LIMIT,),
        steps_per_epoch=64 * 20,
        cpo=TrustRegionConfig(
            gamma=0.95, gae_lambda=0.9, hidden=(16,), delta=0.03, critic_epochs=20,
            critic_learning_rate=5e-3,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWO)
def test_two_states_are_solved_to_the_linear_program(name):
    """In the mean over the last third of training: a multiplier swings, and policies with it."""
    rows = [epoch.metrics[0] for epoch in in_memory.epochs(TWO[name], TwoState)]
    last = rows[-len(rows) // 3 :]
    reward, cost = (np.mean([row[key] for row in last]) for key in ("reward", "cost"))
    assert cost <= 1.05 * TWO_LIMIT
    assert reward >= 0.94 * TwoState.optimum(TWO_LIMIT)
    assert reward <= TwoState.optimum(cost) + 0.15


SHORT = TrustRegionConfig(hidden=(8,), critic_epochs=2, normalise_observations=True)
SHORTS = {
    "trpo-lagrangian": TRPOLagrangianConfig(
        steps=240, cost_limit=(50.0,), steps_per_epoch=80, trpo=SHORT
    ),
    "cpo": CPOConfig(steps=240, cost_limit=(50.0,), steps_per_epoch=80, cpo=SHORT),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORTS)
def test_a_seed_learns_the_same_beside_another(name):
    *_, both = in_memory.epochs(SHORTS[name], Drift, [3, 4])
    *_, alone = in_memory.epochs(SHORTS[name], Drift, [4])
    assert both.number == 3 and [row["seed"] for row in both.metrics] == [3, 4]
    for a, b in zip(both.policy.weights, alone.policy.weights, strict=True):
        np.testing.assert_allclose(a[1], b[0], atol=2e-3)
        assert np.abs(a[0] - a[1]).max() > 0.05
    for key in ("reward", "cost", "lambda", "kl", "step_share"):
        assert both.metrics[1][key] == pytest.approx(alone.metrics[0][key], rel=0.02, abs=1e-3)
    assert 0 < both.metrics[1]["kl"] <= 0.01


class Two(Script):
    def step(self, action):
        *rest, _ = super().step(action)
        return *rest, {"cost": np.array([1.0, 2.0])}


def two_costs(n):
    return adapt(Two, cost_names=("a", "b"), num_envs=n)


def test_cpo_refuses_several_constraints():
    config = CPOConfig(steps=12, cost_limit=(9.0,), steps_per_epoch=12)
    with pytest.raises(ValueError, match=r"cost_names=\('a', 'b'\): cpo .* one constraint"):
        next(in_memory.epochs(config, two_costs))


MULTIPLIER = MultiplierConfig(kind="projected", learning_rate=0.1)
PRICED = {
    "trpo-lagrangian": TRPOLagrangianConfig(
        steps=12, cost_limit=(9.0,), steps_per_epoch=12, trpo=SHORT, multiplier=MULTIPLIER
    ),
    "ppo-lagrangian": PPOLagrangianConfig(
        steps=12, cost_limit=(9.0,), steps_per_epoch=12, ppo=BANDIT_PPO, multiplier=MULTIPLIER
    ),
}


@pytest.mark.parametrize("name", PRICED)
def test_one_limit_holds_for_each_constraint(name):
    """Costs of 6 and 12 per episode against 9: the first multiplier falls from 1, the other rises.

    `cost`, `cost_limit` and `lambda` are those of the constraint worst kept.
    """
    first = next(in_memory.epochs(PRICED[name], two_costs))
    learner = first.snapshot.trainer["state"].learner
    np.testing.assert_allclose(learner.multiplier.raw, [[0.7, 1.3]], rtol=1e-5)
    (row,) = first.metrics
    assert (row["cost"], row["cost_a"], row["cost_b"]) == (12.0, 6.0, 12.0)
    assert row["cost_limit"] == row["cost_limit_a"] == row["cost_limit_b"] == 9.0
    assert (row["lambda_a"], row["lambda_b"]) == pytest.approx((0.7, 1.3))
    assert row["lambda"] == row["lambda_b"]


@pytest.mark.parametrize("name", PRICED)
def test_each_multiplier_follows_its_own_limit(name):
    """Costs of 6 and 12 per episode against 4 and 20: now the first rises and the other falls."""
    config = replace(PRICED[name], cost_limit=(4.0, 20.0))
    (row,) = next(in_memory.epochs(config, two_costs)).metrics
    assert (row["lambda_a"], row["lambda_b"]) == pytest.approx((1.2, 0.2))
    assert (row["cost_limit_a"], row["cost_limit_b"]) == (4.0, 20.0)
    # 2 above 4 is worse than 8 below 20.
    assert (row["cost"], row["cost_limit"], row["lambda"]) == (6.0, 4.0, row["lambda_a"])
