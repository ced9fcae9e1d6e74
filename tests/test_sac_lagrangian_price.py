"""The price of costs in SAC-Lagrangian, round by round."""

from dataclasses import replace
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sac_toys import KEY, SMALL, transitions
from surefoot.algorithms import sac_lagrangian as algorithm
from surefoot.algorithms.sac_lagrangian import SACLagrangianConfig
from surefoot.algorithms.trainer import Problem
from surefoot.core.spaces import ActionSpec
from surefoot.learn import sac_lagrangian as learning
from surefoot.learn.multiplier import MultiplierConfig

ROUND = SACLagrangianConfig(
    cost_limit=(10.0,), beta=0.5, update_every=1_000, updates=1, sac=SMALL,
    multiplier=MultiplierConfig(kind="projected", initial=0.25, learning_rate=0.1),
)  # fmt: skip
improve = jax.jit(lambda *args: algorithm.improve(ROUND, *args))


def improved(cost: float, priced: bool = False, spread: float = 1.0) -> tuple[bool, float, float]:
    """After a round in which an episode of this cost ended: whether costs have a price, the
    multiplier, and the lambda that the policy felt. The limit is 10, the aim 5."""
    actions = ActionSpec(2, (-1.0,) * 2, (1.0,) * 2)
    problem = Problem((0,), 1, 20, 3, actions, ("cost",))
    state = replace(algorithm.init(ROUND, problem, KEY), priced=jnp.array(priced))
    state = eqx.tree_at(lambda s: s.learner.spread, state, jnp.full(2, spread))
    seen = jnp.array([cost])
    state, metrics = improve(state, transitions(32), jnp.int32(32), seen, jnp.array(0.5))
    raw = float(state.learner.multiplier.raw[0])
    return bool(state.priced), raw, float(metrics["lambda"][0])


def test_costs_have_no_price_before_the_limit_is_first_exceeded():
    """Then lambda moves by 0.1 times the distance to the aim, whenever an episode has ended."""
    assert improved(4.0) == (False, 0.25, 0.0)
    assert improved(6.0) == (True, pytest.approx(0.35), pytest.approx(0.35))
    assert improved(4.0, priced=True) == (True, pytest.approx(0.15), pytest.approx(0.15))
    assert improved(float("nan"), priced=True) == (True, 0.25, 0.25)
    assert improved(6.0, spread=0.0) == (False, 0.25, 0.0)  # the critics know nothing yet


def test_what_controls_the_price_counts_real_steps():
    """Episodes that end after 250 steps weigh a quarter as much as those that take 1,000."""
    pid = MultiplierConfig(kind="log-pi", proportional_gain=0.0, integral_gain=0.2)
    config = replace(ROUND, update_every=250, multiplier=pid, cost_memory=0.5**4)
    actions = ActionSpec(2, (-1.0,) * 2, (1.0,) * 2)
    state = algorithm.init(config, Problem((0,), 1, 20, 3, actions, ("cost",)), KEY)
    spread = lambda state: eqx.tree_at(lambda s: s.learner.spread, state, jnp.ones(2))
    run = jax.jit(lambda *args: algorithm.improve(config, *args)[0])
    step = lambda state, cost: run(
        spread(state), transitions(32), jnp.int32(32), jnp.array([cost]), jnp.array(0.0)
    )
    raw = lambda state: float(state.learner.multiplier.raw[0])
    first = step(state, 20.0)  # sets the integral
    nothing = step(first, float("nan"))
    assert int(nothing.waited) == 250 and raw(nothing) == raw(first)
    second = step(nothing, 10.0)  # 500 steps later; a memory of 0.5^4 per 1,000 steps is 0.5^2
    np.testing.assert_allclose(second.cost, 0.25 * 20 + 0.75 * 10, rtol=1e-5)
    assert raw(second) - raw(first) == pytest.approx(0.5 * 0.2 * np.log(12.5 / 5), rel=1e-4)
    assert int(second.waited) == 0


def test_many_steps_between_episodes_are_one_measurement():
    """5,000 steps after the last end of an episode, the gain is not five times as large."""
    pid = MultiplierConfig(kind="log-pi", proportional_gain=0.0, integral_gain=0.2)
    config = replace(ROUND, update_every=5_000, steps_per_epoch=5_000, multiplier=pid)
    actions = ActionSpec(2, (-1.0,) * 2, (1.0,) * 2)
    state = algorithm.init(config, Problem((0,), 1, 20, 3, actions, ("cost",)), KEY)
    raw = []
    for _ in range(2):
        state = eqx.tree_at(lambda s: s.learner.spread, state, jnp.ones(2))
        given = transitions(32), jnp.int32(32), jnp.array([10.0]), jnp.array(0.0)
        state = algorithm.improve(config, state, *given)[0]
        raw.append(float(state.learner.multiplier.raw[0]))
    assert raw[1] - raw[0] == pytest.approx(0.2 * np.log(10 / 5), rel=1e-4)


def test_what_controls_the_price_is_as_slow_as_learning():
    """At half of the learning rate, 1,000 steps count as 500."""
    pid = MultiplierConfig(kind="log-pi", proportional_gain=0.0, integral_gain=0.2)
    config = replace(ROUND, multiplier=pid, cost_memory=0.5**2, final_rate=0.5)
    actions = ActionSpec(2, (-1.0,) * 2, (1.0,) * 2)
    state = algorithm.init(config, Problem((0,), 1, 20, 3, actions, ("cost",)), KEY)
    states = [state]
    for cost in (20.0, 10.0):
        state = eqx.tree_at(lambda s: s.learner.spread, states[-1], jnp.ones(2))
        given = transitions(32), jnp.int32(32), jnp.array([cost]), jnp.array(1.0)
        states.append(algorithm.improve(config, state, *given)[0])
    _, first, second = states
    np.testing.assert_allclose(second.cost, 0.5 * 20 + 0.5 * 10, rtol=1e-5)
    change = second.learner.multiplier.raw - first.learner.multiplier.raw
    np.testing.assert_allclose(change, 0.5 * 0.2 * np.log(15 / 5), rtol=1e-4)


def test_a_limit_of_0_remembers_no_cost():
    """Lambda rises at most by 1.5 times the gain after one cost, and then stays."""
    config = replace(ROUND, cost_limit=(0.0,), multiplier=MultiplierConfig(kind="log-pi"))
    actions = ActionSpec(2, (-1.0,) * 2, (1.0,) * 2)
    state = algorithm.init(config, Problem((0,), 1, 20, 3, actions, ("cost",)), KEY)
    seen, costs = [], [1.0, 0.0, 0.0, 0.0]
    for cost in costs:
        state = eqx.tree_at(lambda s: s.learner.spread, state, jnp.ones(2))
        given = transitions(32), jnp.int32(32), jnp.array([cost]), jnp.array(0.5)
        state, metrics = algorithm.improve(config, state, *given)
        seen.append(float(metrics["lambda"][0]))
        assert float(state.cost[0]) == cost
    assert seen[0] > seen[1] == seen[2] == seen[3]


def test_without_a_limit_costs_have_no_price():
    config = replace(ROUND, constrained=False)
    actions = ActionSpec(2, (-1.0,) * 2, (1.0,) * 2)
    state = algorithm.init(config, Problem((0,), 1, 20, 3, actions, ("cost",)), KEY)
    state = eqx.tree_at(lambda s: s.learner.spread, state, jnp.ones(2))
    given = transitions(32), jnp.int32(32), jnp.array([1e3]), jnp.array(0.5)
    after, metrics = algorithm.improve(config, state, *given)
    assert float(metrics["lambda"][0]) == 0.0
    np.testing.assert_array_equal(after.learner.multiplier.raw, state.learner.multiplier.raw)


def test_the_cost_that_counts_is_the_mean_of_the_episodes_that_ended():
    """Two episodes of the first seed ended, at 2 and 4; none of the second."""
    ended = SimpleNamespace(cost=[2.0, 4.0], mean_cost=lambda: np.array([3.0]))
    none = SimpleNamespace(cost=[], mean_cost=lambda: pytest.fail("no episode has ended"))
    experience = SimpleNamespace(cost=np.zeros((2, 5, 1, 1)), episodes=[ended, none])
    np.testing.assert_array_equal(algorithm.episode_cost(experience), [[3.0], [np.nan]])


def test_the_policys_step_by_finite_differences(monkeypatch):
    """Down the mean of T log pi - (Q_R - p Q_C) / (1 + w), by the rate, with p and w by hand."""
    monkeypatch.setattr(learning, "adam", lambda rate, _: optax.sgd(rate))
    config, lam, rate = replace(SMALL, learning_rate=0.01), jnp.array([3.0]), 0.5
    learner = learning.init(
        config, MultiplierConfig(), 3, ActionSpec(2, (-1.0,) * 2, (1.0,) * 2), 1, KEY
    )
    batch = transitions(20)
    learner = learning.observe(learner, batch, jnp.array(0), jnp.array(20))
    learner = eqx.tree_at(lambda s: s.spread, learner, jnp.array([0.5, 0.25]))
    unit = float(learner.cost_scale[0])
    price, weight = 3.0 * unit, 3.0 * unit * 0.25 / 0.5
    where = lambda actor: actor.network.biases[-1]

    def objective(bias) -> float:
        actor = eqx.tree_at(where, learner.networks.actor, bias)
        obs = learner.normalizer(batch.obs)
        action, log_prob = actor(obs).draw(KEY)
        reward, cost = jnp.mean(learner.networks.critics(obs, action), 0)
        heat = jnp.exp(learner.networks.log_temperature)
        return float(jnp.mean(heat * log_prob - (reward - price * cost) / (1 + weight)))

    new, _ = learning.improve_policy(config, learner, batch, lam, KEY, rate, -1.0)
    before, after = where(learner.networks.actor), where(new.networks.actor)
    for i in range(len(before)):
        nudge = jnp.zeros_like(before).at[i].set(1e-3)
        slope = (objective(before + nudge) - objective(before - nudge)) / 2e-3
        expected = pytest.approx(-rate * 0.01 * slope, rel=0.05, abs=2e-5)
        assert float(after[i] - before[i]) == expected
