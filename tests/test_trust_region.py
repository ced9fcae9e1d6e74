"""The arithmetic of trust regions: CPO's dual, Fisher products, CG, line search, one step."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from surefoot.algorithms import trpo_lagrangian
from surefoot.core.spaces import ActionSpec
from surefoot.learn import dual, natural, trust_region
from surefoot.learn.actor_critic import Rows
from surefoot.learn.networks import Actor
from surefoot.learn.trust_region import Judged, Region, TrustRegionConfig

DELTA = 0.01
solve_dual = jax.jit(partial(dual.solve, delta=DELTA))


def problem(seed: int, n: int = 4):
    """A random quadratic problem: H, g, b."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    return root @ root.T + 0.1 * np.eye(n), rng.normal(size=n), rng.normal(size=n)


def our_step(h, g, b, c):
    v, w = np.linalg.solve(h, g), np.linalg.solve(h, b)
    result = solve_dual(g @ v, b @ v, b @ w, c)
    return -(float(result.of_v) * v + float(result.of_w) * w), result


def reference_step(h, g, b=None, c=0.0):
    """min g'x with x'Hx <= 2 delta and, where there is a b, c + b'x <= 0, by scipy."""
    # In the ellipsoid's own coordinates x = sqrt(2 delta) L^-T y the region is the unit ball.
    back = np.sqrt(2 * DELTA) * np.linalg.inv(np.linalg.cholesky(h)).T
    slope = back.T @ g
    slope /= np.linalg.norm(slope)
    bounds = [{"type": "ineq", "fun": lambda y: 1 - y @ y, "jac": lambda y: -2 * y}]
    start = -0.5 * slope
    if b is not None:
        size = np.linalg.norm(back.T @ b)
        row, gap = back.T @ b / size, c / size
        bounds += [{"type": "ineq", "fun": lambda y: -gap - row @ y, "jac": lambda _: -row}]
        start = -gap * row  # meets the limit exactly
    result = minimize(
        lambda y: slope @ y,
        start,
        jac=lambda _: slope,
        constraints=bounds,
        method="SLSQP",
        options={"ftol": 1e-10, "maxiter": 500},
    )
    # It may call a point that it cannot improve a failure; that it is the best is for the caller,
    # who compares both ways.
    assert all(bound["fun"](result.x) > -1e-6 for bound in bounds)
    return back @ result.x


def reach(h, b) -> float:
    """The largest change of the cost within the trust region."""
    return float(np.sqrt(2 * DELTA * b @ np.linalg.solve(h, b)))


fuzz = lambda *strategies: (
    lambda test: settings(max_examples=80, deadline=None, derandomize=True)(
        given(st.integers(0, 2**32 - 1), *strategies)(test)
    )
)


def check_best(h, g, b, c):
    ours, result = our_step(h, g, b, c)
    best = reference_step(h, g, b, c)
    scale = reach(h, g)
    assert g @ ours == pytest.approx(g @ best, abs=2e-4 * scale)
    assert c + b @ ours <= 2e-4 * reach(h, b)
    assert ours @ h @ ours <= 2 * DELTA * 1.001
    return result


@fuzz(st.floats(0.0, 0.97))
def test_dual_below_the_limit(seed, share):
    """c < 0, and some steps of the trust region would break the limit."""
    h, g, b = problem(seed)
    assert not check_best(h, g, b, -share * reach(h, b)).recovery


@fuzz(st.floats(0.0, 0.97))
def test_dual_above_the_limit(seed, share):
    """c > 0, and some steps of the trust region would keep the limit."""
    h, g, b = problem(seed)
    assert not check_best(h, g, b, share * reach(h, b)).recovery


@fuzz(st.floats(1.03, 5.0))
def test_dual_where_every_step_is_safe(seed, share):
    h, g, b = problem(seed)
    result = check_best(h, g, b, -share * reach(h, b))
    assert not result.binding and not result.recovery and float(result.nu) == 0.0


@fuzz(st.floats(1.03, 5.0))
def test_dual_where_no_step_is_safe(seed, share):
    """The cost falls as much as it can: scipy minimises b'x alone."""
    h, g, b = problem(seed)
    ours, result = our_step(h, g, b, share * reach(h, b))
    assert result.recovery and not result.binding
    assert b @ ours == pytest.approx(b @ reference_step(h, b), abs=2e-4 * reach(h, b))


@fuzz(st.floats(-1.0, 1.0))
def test_dual_where_the_cost_does_not_respond(seed, c):
    """Then the constraint can be neither kept nor broken: the step is the one for the reward."""
    h, g, b = problem(seed)
    ours, result = our_step(h, g, 1e-6 * b / reach(h, b), c)
    assert not result.binding and not result.recovery
    best = reference_step(h, g)
    assert g @ ours == pytest.approx(g @ best, abs=2e-4 * reach(h, g))


@fuzz(st.floats(-0.97, 0.97), st.floats(0.1, 3.0), st.booleans())
def test_dual_where_reward_and_cost_lie_along_one_line(seed, share, scale, opposed):
    """A = 0: the dual's lambda_a is 0, by which the step would be divided."""
    h, g, _ = problem(seed)
    b = scale * g * (-1 if opposed else 1)
    check_best(h, g, b, share * reach(h, b))


def test_both_sides_of_the_dual_were_tried():
    """Of the random problems above many bind and many do not, on either side of the limit."""
    for side in (-0.5, 0.5):
        binds = []
        for seed in range(200):
            h, g, b = problem(seed)
            binds.append(bool(our_step(h, g, b, side * reach(h, b))[1].binding))
        assert 20 < sum(binds) < 200 - 5


def test_the_price_of_a_binding_constraint():
    """H = I, g = (-1, 0), b = (1, 0), delta = 0.5, c = -0.6: go 0.6 along the first axis and use
    the rest sideways, where nothing is to be gained. With g = (-1, -1) by hand: x = (0.6, 0.8),
    -g = lambda x + nu b, so lambda = 1 / 0.8 and nu = 1 - 0.6 / 0.8."""
    result = dual.solve(jnp.array(2.0), jnp.array(-1.0), jnp.array(1.0), jnp.array(-0.6), 0.5)
    assert float(result.of_v) == pytest.approx(0.8)
    assert float(result.nu) == pytest.approx(0.25)
    x = -(result.of_v * np.array([-1.0, -1.0]) + result.of_w * np.array([1.0, 0.0]))
    np.testing.assert_allclose(x, [0.6, 0.8], atol=1e-6)


def rows_of(actor, n=7, seed=0):
    """Rows of a random batch of the actor's own actions."""
    keys = jax.random.split(jax.random.key(seed), 4)
    obs = jax.random.normal(keys[0], (n, 3))
    heads = actor.heads(obs)
    action = actor.distribution(heads).sample(keys[1])
    reward = jax.random.normal(keys[2], (n,))
    cost = jax.random.normal(keys[3], (n, 1))
    return Rows(
        obs=obs,
        action=action,
        old_heads=heads,
        old_log_prob=actor.distribution(heads).log_prob(action),
        reward_advantage=reward - reward.mean(),
        cost_advantage=cost - cost.mean(0),
        values=jnp.zeros((n, 2)),
        targets=jnp.zeros((n, 2)),
        weight=None,
    )


@pytest.mark.parametrize("discrete", [False, True])
def test_fisher_products_against_the_matrix(discrete):
    """The matrix from scores: E[score score'], exact over choices, or by the Gaussian's formula."""
    actor = Actor(3, ActionSpec(2, discrete), jax.random.key(1), (4,), -0.3)
    # Away from the nearly constant policy that a new one is.
    actor = jax.tree.map(lambda x: x + 0.3 * jnp.sin(jnp.arange(x.size)).reshape(x.shape), actor)
    rows = rows_of(actor)
    flat, unflatten = ravel_pytree(actor)
    slopes = jax.jit(jax.jacobian(lambda p: unflatten(p).heads(rows.obs)))(flat)
    jacobian = np.asarray(slopes, np.float64)
    matrix = np.zeros((flat.size, flat.size))
    for heads, slope in zip(np.asarray(rows.old_heads, np.float64), jacobian, strict=True):
        if discrete:
            p = np.exp(heads) / np.exp(heads).sum()
            for choice in range(2):
                score = slope[choice] - p @ slope
                matrix += p[choice] * np.outer(score, score)
        else:
            matrix += slope.T @ (slope / np.exp(2 * np.asarray(actor.log_std))[:, None])
    matrix /= len(rows.obs)
    if not discrete:
        is_log_std, _ = ravel_pytree(
            eqx.tree_at(
                lambda a: a.log_std,
                jax.tree.map(jnp.zeros_like, actor),
                jnp.ones_like(actor.log_std),
            )
        )
        matrix += 2 * np.diag(is_log_std)

    @jax.jit
    def products(actor, rows):
        region = trust_region.around(TrustRegionConfig(damping=0.25), actor, rows)
        return jax.vmap(region.fisher, out_axes=1)(jnp.eye(flat.size))

    ours = products(actor, rows)
    np.testing.assert_allclose(ours, matrix + 0.25 * np.eye(flat.size), atol=2e-5)
    assert np.abs(matrix).max() > 0.1


def test_conjugate_gradients_against_a_direct_solve():
    solve = jax.jit(lambda h, g: natural.conjugate_gradients(lambda v: h @ v, g, 30))
    for seed in range(50):
        h, g, _ = problem(seed, n=8)
        h += 0.5 * np.eye(8)
        x = solve(h.astype(np.float32), g.astype(np.float32))
        np.testing.assert_allclose(x, np.linalg.solve(h, g), rtol=2e-3, atol=2e-3)


def test_conjugate_gradients_minimise_over_what_they_have_seen():
    """After k iterations x is the best of span(g, Hg, …, H^(k-1) g)."""
    h, g, _ = problem(3, n=6)
    basis = np.stack([np.linalg.matrix_power(h, i) @ g for i in range(3)], 1)
    basis, _ = np.linalg.qr(basis)
    best = basis @ np.linalg.solve(basis.T @ h @ basis, basis.T @ g)
    h32 = jnp.asarray(h, jnp.float32)
    x = natural.conjugate_gradients(lambda v: h32 @ v, jnp.asarray(g, jnp.float32), 3)
    np.testing.assert_allclose(x, best, rtol=1e-3, atol=1e-4)


def test_conjugate_gradients_of_nothing_are_nothing():
    x = natural.conjugate_gradients(lambda v: 2 * v, jnp.zeros(3), 10)
    np.testing.assert_array_equal(x, np.zeros(3))


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_a_kl_that_is_not_finite_shrinks_the_step(bad):
    """The KL is broken above 0.6 and 0.01 below: of 1, 0.8, 0.64, 0.512 the last is taken."""

    def judge(params):
        kl = jnp.where(params[0] > 0.6, bad, 0.01)
        return Judged(params[0], jnp.zeros(1), kl, jnp.array(0.0))

    region = Region(jnp.zeros(1), jnp.full(1, -jnp.inf), lambda p: p, judge, lambda v: v)
    search = lambda step: trust_region.search(
        TrustRegionConfig(), region, step, lambda judged: judged.reward >= 0
    )
    result, metrics = search(jnp.ones(1))
    np.testing.assert_allclose(result, [0.512], rtol=1e-6)
    assert float(metrics["step_share"]) == pytest.approx(0.512)
    # All ten tries fail, or the step itself is no number: the policy stays as it is.
    for step in (jnp.full(1, 100.0), jnp.full(1, bad), jnp.full(1, -1.0)):
        result, metrics = search(step)
        np.testing.assert_array_equal(result, [0.0])
        assert float(metrics["step_share"]) == 0.0


def test_one_step_of_trpo_by_hand():
    """A Gaussian without observations to tell apart: mean m and log deviation l are all there is.

    Fisher: 1 / s^2 for m and 2 for l. The rest is the formula of the step.
    """
    config = TrustRegionConfig(hidden=(), damping=0.1, delta=1e-4, initial_log_std=-0.7)
    actor = Actor(3, ActionSpec(1), jax.random.key(0), (), -0.7)
    rows = rows_of(actor, n=50)
    rows = eqx.tree_at(lambda r: r.obs, rows, jnp.zeros((50, 3)))
    rows = eqx.tree_at(lambda r: r.old_heads, rows, jnp.zeros((50, 1)))
    log_prob = actor.distribution(rows.old_heads).log_prob(rows.action)
    rows = eqx.tree_at(lambda r: r.old_log_prob, rows, log_prob)
    lam = 0.5
    improve = jax.jit(partial(trpo_lagrangian.improve, config))
    moved, metrics = improve(actor, rows, jnp.array([lam]))
    z = np.asarray(rows.action[:, 0], np.float64) / np.exp(-0.7)
    gain = np.asarray(rows.reward_advantage - lam * rows.cost_advantage[:, 0]) / (1 + lam)
    g = np.array([(gain * z).mean() / np.exp(-0.7), (gain * (z * z - 1)).mean()])
    direction = g / (np.array([np.exp(1.4), 2.0]) + 0.1)
    step = np.sqrt(2 * 1e-4 / (g @ direction)) * direction
    ours = [moved.network.biases[0][0], moved.log_std[0] + 0.7]
    np.testing.assert_allclose(ours, step, rtol=2e-3)
    assert float(metrics["step_share"]) == 1.0
    np.testing.assert_array_equal(moved.network.weights[0], actor.network.weights[0])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("delta", 0.0), ("delta", float("nan")), ("damping", -1.0), ("cg_iterations", 0),
        ("backtracks", 0), ("decay", 1.0), ("gamma", 1.5), ("critic_epochs", 0), ("hidden", (0,)),
        ("critic_learning_rate", 0.0), ("minimum_log_std", 0.0),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named(field, value):
    with pytest.raises(ValueError, match=f"^{field}="):
        TrustRegionConfig(**{field: value})
