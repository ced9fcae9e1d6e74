"""Surrogates on chosen ratios and advantages."""

import jax
import jax.numpy as jnp
import numpy as np

from surefoot.learn import surrogate

RATIO = jnp.array([0.5, 0.5, 1.0, 1.5, 1.5])
ADVANTAGE = jnp.array([2.0, -2.0, 3.0, 2.0, -2.0])


def test_ratio():
    got = surrogate.ratio(jnp.log(jnp.array([0.2])), jnp.log(jnp.array([0.4])))
    np.testing.assert_allclose(got, 0.5, rtol=1e-6)


def test_reward_takes_the_smaller():
    # min(1, 1.6), min(-1, -1.6), 3, min(3, 2.4), min(-3, -2.4).
    got = surrogate.clipped_reward(RATIO, ADVANTAGE, 0.2)
    np.testing.assert_allclose(got, [1.0, -1.6, 3.0, 2.4, -3.0], rtol=1e-6)


def test_cost_takes_the_larger():
    costs = jnp.stack([ADVANTAGE, -ADVANTAGE], -1)
    got = surrogate.clipped_cost(RATIO, costs, 0.2)
    np.testing.assert_allclose(got[:, 0], [1.6, -1.0, 3.0, 3.0, -2.4], rtol=1e-6)
    # A cost is the reward of an adversary: max over c is minus min over -c.
    np.testing.assert_allclose(got[:, 1], [-1.0, 1.6, -3.0, -2.4, 3.0], rtol=1e-6)


def test_pessimism_stops_gradients_only_where_the_gain_is_already_taken():
    slope = jax.grad(lambda r: surrogate.clipped_cost(r, ADVANTAGE[:, None], 0.2).sum())(RATIO)
    # Less of a costly action below 0.8, or more of a cheap one above 1.2, pays no further.
    np.testing.assert_allclose(slope, [0.0, -2.0, 3.0, 2.0, 0.0], atol=1e-6)


def test_lagrangian():
    got = surrogate.lagrangian(jnp.array(4.0), jnp.array([1.0, 3.0]), jnp.array([2.0, 0.5]))
    np.testing.assert_allclose(got, (4 - 2 - 1.5) / 3.5, rtol=1e-6)
    none = jnp.zeros(0)
    np.testing.assert_allclose(surrogate.lagrangian(jnp.array(4.0), none, none), 4.0)


def test_advantage_scaling():
    a = np.array([1.0, 2.0, 6.0], np.float32)
    expected = (a - 3) / np.sqrt((4 + 1 + 9) / 3)
    np.testing.assert_allclose(surrogate.standardised(jnp.asarray(a)), expected, rtol=1e-5)
    costs = jnp.asarray(np.stack([a, 10 * a], -1))
    centred = np.stack([a - 3, 10 * a - 30], -1)
    np.testing.assert_allclose(surrogate.centred(costs), centred, atol=1e-5)


def test_weights_leave_rows_out():
    a, weight = jnp.array([1.0, 3.0, 1000.0]), jnp.array([1.0, 1.0, 0.0])
    np.testing.assert_allclose(surrogate.mean(a, weight), 2.0)
    np.testing.assert_allclose(surrogate.centred(a, weight)[:2], [-1.0, 1.0])
    np.testing.assert_allclose(surrogate.standardised(a, weight)[:2], [-1.0, 1.0], rtol=1e-5)
    np.testing.assert_allclose(surrogate.mean(a, jnp.array([3.0, 1.0, 0.0])), 1.5)
    assert surrogate.mean(a, jnp.zeros(3)) == 0.0
