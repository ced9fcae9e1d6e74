"""Each multiplier for three updates by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from surefoot.learn import multiplier
from surefoot.learn.multiplier import MultiplierConfig

LIMIT = jnp.array([10.0, 2.0])
COSTS = jnp.array([[14.0, 1.0], [8.0, 0.0], [10.0, 40.0]])


def run(config, costs=COSTS, limit=LIMIT):
    state = multiplier.init(config, limit.shape[0])
    values = [multiplier.value(config, state)]
    for cost in costs:
        state = multiplier.update(config, state, cost, limit)
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


@pytest.mark.parametrize("kind", ["projected", "softplus", "pid"])
def test_works_compiled_over_seeds_and_without_constraints(kind):
    config = MultiplierConfig(kind=kind)
    state = multiplier.init(config, 2)
    many = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    step = jax.jit(jax.vmap(lambda s, c: multiplier.update(config, s, c, LIMIT)))
    got = jax.vmap(lambda s: multiplier.value(config, s))(step(many, COSTS[:2]))
    np.testing.assert_allclose(got[0], run(config)[1], rtol=1e-5)
    empty = multiplier.update(config, multiplier.init(config, 0), jnp.zeros(0), jnp.zeros(0))
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
