"""Each multiplier for three updates by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from surefoot.core.spaces import ActionSpec
from surefoot.learn import multiplier, ppo
from surefoot.learn.actor_critic import Batch, prepare
from surefoot.learn.multiplier import LEAST_BALANCE, MOST_BALANCE, MultiplierConfig, Scales
from surefoot.learn.ppo import PPOConfig

LIMIT = jnp.array([10.0, 2.0])
COSTS = jnp.array([[14.0, 1.0], [8.0, 0.0], [10.0, 40.0]])


def scales(k, reward=1.0, costs=1.0):
    return Scales(jnp.asarray(reward), jnp.broadcast_to(jnp.asarray(costs), (k,)))


def run(config, costs=COSTS, limit=LIMIT, scale=None):
    """Lambda before the first update and after each."""
    k = limit.shape[0]
    state = multiplier.init(config, k)
    values = [multiplier.value(config, state)]
    for cost in costs:
        state = multiplier.update(config, state, cost, limit, scale or scales(k))
        values.append(multiplier.value(config, state))
    return np.asarray(values)


def test_projected_ascent():
    # First: 1 + .05*4 = 1.2, then -.05*2, then unchanged. Second: 1 - .05, -.1, +.05*38.
    expected = [[1, 1], [1.2, 0.95], [1.1, 0.85], [1.1, 2.75]]
    np.testing.assert_allclose(run(MultiplierConfig()), expected, rtol=1e-6)


def test_projected_stops_at_zero_and_at_the_maximum():
    values = run(MultiplierConfig(learning_rate=1.0, maximum=3.0))
    np.testing.assert_allclose(values, [[1, 1], [3, 0], [1, 0], [1, 3]], rtol=1e-6)


def test_projected_on_normalised_violation():
    # Violations in units of the limits: .4, -.2, 0 and -.5, -1, 19.
    expected = [[1, 1], [1.02, 0.975], [1.01, 0.925], [1.01, 1.875]]
    np.testing.assert_allclose(run(MultiplierConfig(normalise=True)), expected, rtol=1e-6)


def test_a_limit_of_zero_is_its_own_unit():
    config = MultiplierConfig(normalise=True)
    values = run(config, jnp.array([[2.0]]), jnp.array([0.0]))
    np.testing.assert_allclose(values[:, 0], [1.0, 1.1], rtol=1e-6)


def test_softplus_with_adam():
    rate, b1, b2, eps = 0.05, 0.9, 0.999, 1e-8
    z, m, v = np.log(np.expm1(1.0)) * np.ones(2), np.zeros(2), np.zeros(2)
    expected = [np.log1p(np.exp(z))]
    for t, cost in enumerate(np.asarray(COSTS, np.float64), 1):
        gradient = -(cost - np.array([10.0, 2.0]))
        m, v = b1 * m + (1 - b1) * gradient, b2 * v + (1 - b2) * gradient**2
        z = z - rate * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        expected.append(np.log1p(np.exp(z)))
    values = run(MultiplierConfig(kind="softplus"))
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    # Adam's first step is its learning rate in z whatever the violation: 1.0 -> softplus(z + .05).
    assert values[1, 0] == pytest.approx(np.log1p(np.expm1(1.0) * np.exp(0.05)), rel=1e-5)


def test_softplus_stays_below_its_maximum():
    config = MultiplierConfig(kind="softplus", learning_rate=5.0, maximum=2.0)
    np.testing.assert_allclose(run(config)[1, 0], 2.0, rtol=1e-6)


def test_pid():
    # Costs in units of the limits: 1.4, .8, 1 and .5, 0, 20; averages keep half; delay 2.
    config = MultiplierConfig(
        kind="pid",
        initial=0.0,
        proportional_gain=1.0,
        integral_gain=0.5,
        derivative_gain=2.0,
        derivative_delay=2,
        smoothing=0.5,
    )
    # First: average 1.4, 1.1, 1.05: P .4, .1, .05; I .2, .1, .1; no rise above 1.4.
    # Second: average .5, .25, 10.125: P -.5, -.75, 9.125; I 0, 0, 9.5; the delay of two compares
    # 10.125 with the first average, .5: 2 * 9.625.
    expected = [[0, 0], [0.6, 0], [0.2, 0], [0.15, 9.125 + 9.5 + 19.25]]
    np.testing.assert_allclose(run(config), expected, rtol=1e-5, atol=1e-6)


def test_pid_defaults_start_at_initial_and_respect_the_maximum():
    # 1 + .01 * .4 + .1 * .4 after the first update, with no derivative yet.
    values = run(MultiplierConfig(kind="pid"))
    np.testing.assert_allclose(values[:2, 0], [1.0, 1.044], rtol=1e-6)
    assert run(MultiplierConfig(kind="pid", maximum=1.01))[1, 0] == pytest.approx(1.01)


LOG = MultiplierConfig(kind="log-pi", initial=0.5, proportional_gain=0.3, integral_gain=0.1)


def test_log_pi():
    # The first update starts the integral: cost advantages of deviation .4 and 2 weigh .5.
    values = run(LOG, scale=scales(2, 5.0, [0.4, 2.0]))
    # Costs over limits: 1.4, .8, 1 and .5, 0, 20; of the last two, only 1.5 counts.
    error = np.array([[np.log(1.4), np.log(0.5)], [np.log(0.8), -1.5], [0.0, 1.5]])
    expected = [1.25, 0.25] * np.exp(0.1 * np.cumsum(error, 0) + 0.3 * error)
    np.testing.assert_allclose(values[1:], expected, rtol=1e-5)


def test_log_pi_integrates_as_slowly_as_the_policy_learns():
    """At a tenth of the learning rate the integral moves a tenth, the proportional part as ever."""
    state = multiplier.init(LOG, 1)
    cost, limit = jnp.array([np.e]), jnp.ones(1)
    state = multiplier.update(LOG, state, cost, limit, scales(1), 0.1)
    assert float(multiplier.value(LOG, state)[0]) == pytest.approx(0.5 * np.exp(0.01 + 0.3))


def test_log_pi_without_costs_in_the_first_batch():
    """The cost advantages would have a deviation of an eighth of the limit, over the reward's."""
    values = run(LOG, LIMIT[None], scale=scales(2, 5.0, 1e-8))
    np.testing.assert_allclose(values[1], 0.5 / (np.array([10.0, 2.0]) / 8 / 5.0), rtol=1e-5)


def test_log_pi_starts_alike_at_every_limit_below_the_first_cost():
    """Few costs in the first batch: their deviation is an eighth of the cost, not of the limit."""
    values = run(LOG, jnp.array([[40.0, 40.0]]), jnp.array([18.0, 5.0]), scales(2, 5.0, 1e-8))
    start = 0.5 / (40 / 8 / 5.0)
    error = np.minimum(np.log(40 / np.array([18.0, 5.0])), 1.5)
    np.testing.assert_allclose(values[1], start * np.exp(0.4 * error), rtol=1e-5)


def test_log_pi_starts_once():
    """Later batches may have other scales; they do not move lambda."""
    state = multiplier.init(LOG, 1)
    for units in (scales(1, 2.0, 0.25), scales(1, 1e6, 2.0)):
        state = multiplier.update(LOG, state, jnp.ones(1), jnp.ones(1), units)
    assert float(multiplier.value(LOG, state)[0]) == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize(
    ("beyond", "outwards", "moves"),
    [(False, True, True), (True, True, False), (True, False, True)],
)
@pytest.mark.parametrize("end", [0, 1])
def test_log_pi_stands_still_where_lambda_has_no_effect(end, beyond, outwards, moves):
    """The integral alone, just within or beyond an end of the range, driven out or back."""
    config = MultiplierConfig(kind="log-pi", initial=1.0, proportional_gain=0.0)
    sign = 2 * end - 1
    deviation = (LEAST_BALANCE, MOST_BALANCE)[end] * np.exp(0.01 * sign * (1 if beyond else -1))
    direction = sign * (1 if outwards else -1)
    state = multiplier.update(
        config, multiplier.init(config, 1), jnp.ones(1), jnp.ones(1), scales(1)
    )
    cost = jnp.array([np.exp(0.5 * direction)])
    # The reward's advantages are so large that a typical deviation of the costs is not.
    state = multiplier.update(config, state, cost, jnp.ones(1), scales(1, 1e6, deviation))
    expected = np.exp(0.01 * 0.5 * direction) if moves else 1.0  # lambda began at 1
    assert float(multiplier.value(config, state)[0]) == pytest.approx(expected, rel=1e-5)


def test_log_pi_does_not_wind_down_while_nothing_costs():
    """A policy that does nothing has cost advantages of 0, a typical deviation is .125."""
    values = run(LOG, jnp.zeros((300, 1)), jnp.ones(1), scales(1, 1.0, 1e-8))[:, 0]
    integral = values[-1] / np.exp(-1.5 * 0.3)
    assert 0.9 * LEAST_BALANCE < integral * 0.125 < LEAST_BALANCE


def test_log_pi_does_not_wind_up():
    """A hundred passes far above the limit, then far below: lambda answers within a few passes."""
    most = MOST_BALANCE
    values = run(LOG, jnp.array([[50.0]] * 100 + [[0.0]] * 8), jnp.ones(1))[:, 0]
    assert most < values[99] < most * np.exp(1.5 * (0.1 + 0.3))
    # The integral falls by .15, and the proportional part turns from .45 to -.45.
    assert values[101] == pytest.approx(values[100] * np.exp(-0.15 - 0.9), rel=1e-4)
    assert values[102] == pytest.approx(values[101] * np.exp(-0.15), rel=1e-4)
    assert values[-1] < 0.5 * most


def test_log_pi_respects_the_maximum_and_does_not_wind_up_above_it():
    """The initial weight may be larger: it is not in the units of lambda."""
    config = MultiplierConfig(
        kind="log-pi", initial=8.0, maximum=3.0, proportional_gain=0.0, integral_gain=0.1
    )
    values = run(config, jnp.array([[9.0]] * 20 + [[0.0]]), jnp.array([1.0]))[:, 0]
    np.testing.assert_allclose(values[1:-1], 3.0, rtol=1e-6)
    assert values[-1] == pytest.approx(3.0 * np.exp(-0.15), rel=1e-5)


def test_log_pi_with_a_limit_of_zero():
    """Any cost is far above it, and none leaves lambda alone."""
    values = run(LOG, jnp.array([[0.0], [1e-4], [7.0]]), jnp.zeros(1))[1:, 0]
    np.testing.assert_allclose(values, 0.5 * np.exp([0.0, 0.15 + 0.45, 0.3 + 0.45]), rtol=1e-5)


@pytest.mark.parametrize("scaled", [False, True])
def test_log_pi_gives_the_same_updates_at_any_scale(scaled):
    """Other units of reward, or of cost and limit: lambda follows them, the policy does not."""
    config = PPOConfig(hidden=(4,), scale_costs=scaled, epochs=5, critic_epochs=1)
    keys = jax.random.split(jax.random.key(0), 4)
    learner = ppo.init(config, LOG, 2, ActionSpec(1), 1, keys[0])
    # Critics of value 0 at any scale.
    nothing = jax.tree.map(jnp.zeros_like, learner.critics)
    learner = eqx.tree_at(lambda s: s.critics, learner, nothing)
    obs, action = (jax.random.normal(keys[n], (3, 40, n)) for n in (2, 1))
    reward, cost = jax.random.normal(keys[3], (2, 3, 40))
    end = jnp.zeros((3, 40), bool).at[-1].set(True)

    @jax.jit
    def after(rewards, costs):
        """The step of the policy, and lambda, after three measurements."""
        batch = Batch(
            obs, action, rewards * reward, costs * jnp.abs(cost)[..., None], obs[:1], end, end
        )
        rows, units = prepare(config, learner, batch)
        state = learner.multiplier
        for measured in (14.0, 8.0, 11.0):
            limit, cost_now = jnp.full(1, 10.0 * costs), jnp.full(1, measured * costs)
            state = multiplier.update(LOG, state, cost_now, limit, units)
        lam = multiplier.value(LOG, state)
        new, _ = ppo.update(config, learner, rows, lam, keys[3])
        step = jax.tree.map(jnp.subtract, new.actor, learner.actor)
        return ravel_pytree(step)[0], lam

    step, lam = after(1.0, 1.0)
    assert np.abs(step).max() > 1e-3
    for rewards, costs in ((1e3, 1.0), (1.0, 1e3), (1e-2, 1e2)):
        same, other = after(rewards, costs)
        np.testing.assert_allclose(other, lam * (rewards if scaled else 1.0) / costs, rtol=1e-4)
        # Adam's epsilon is not free of scale, so small steps of single weights differ a little.
        assert np.linalg.norm(same - step) < 0.1 * np.linalg.norm(step)


@pytest.mark.parametrize("kind", ["projected", "softplus", "pid", "log-pi"])
def test_works_compiled_over_seeds_and_without_constraints(kind):
    config = MultiplierConfig(kind=kind)
    state = multiplier.init(config, 2)
    many = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    step = jax.jit(jax.vmap(lambda s, c: multiplier.update(config, s, c, LIMIT, scales(2))))
    got = jax.vmap(lambda s: multiplier.value(config, s))(step(many, COSTS[:2]))
    np.testing.assert_allclose(got[0], run(config)[1], rtol=1e-5)
    empty = multiplier.init(config, 0)
    empty = multiplier.update(config, empty, jnp.zeros(0), jnp.zeros(0), scales(0))
    assert multiplier.value(config, empty).shape == (0,)


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("kind", "sgd"),
        ("learning_rate", 0.0),
        ("initial", -1.0),
        ("maximum", 0.5),
        ("integral_gain", -0.1),
        ("derivative_delay", 0),
        ("smoothing", 1.0),
    ],
)
def test_bad_values_are_named(field, bad):
    with pytest.raises(ValueError, match=f"^{field}={bad!r}"):
        MultiplierConfig(**{field: bad})


@pytest.mark.parametrize("kind", ["softplus", "log-pi"])
def test_rules_that_never_reach_zero_cannot_start_there(kind):
    with pytest.raises(ValueError, match=rf"^initial=0.0 must be positive for {kind}"):
        MultiplierConfig(kind=kind, initial=0.0)
