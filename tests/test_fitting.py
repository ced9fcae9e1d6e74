"""Fitting against hand-worked losses and systems whose answer is known."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from surefoot.world import ensemble as ens
from surefoot.world import fitting
from surefoot.world.diagnostics import calibration
from surefoot.world.ensemble import EnsembleConfig

SMALL = EnsembleConfig(
    members=3, elites=2, hidden=(16,), batch_size=32, max_epochs=4, max_steps=1000
)
CAPACITY, COUNT = 256, 200


def held_out(rows):
    """The rule in plain Python integers: a 32-bit finaliser of the row's index below 10 %."""
    result = []
    for h in range(rows):
        h ^= h >> 16
        h = h * 0x85EBCA6B % 2**32
        h ^= h >> 13
        h = h * 0xC2B2AE35 % 2**32
        h ^= h >> 16
        result.append(h < 0.1 * 2**32)
    return np.array(result)


def data(seed=0, capacity=CAPACITY):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(capacity, 3)).astype(np.float32)
    y = np.stack([x[:, 0] + x[:, 1] ** 2, 3 * x[:, 2]], axis=-1) + 0.1 * rng.normal(
        size=(capacity, 2)
    )
    label = rng.uniform(size=(capacity, 1)) < 0.3
    return jnp.asarray(x), jnp.asarray(np.concatenate([y, label], axis=-1), dtype=jnp.float32)


def fresh(config=SMALL, seed=0):
    return ens.init(config, 3, 2, 1, jax.random.key(seed))


@pytest.fixture(scope="module")
def small_fit():
    return jax.jit(partial(fitting.fit, SMALL))


def assert_same(a, b, **tolerance):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, **(tolerance or {"rtol": 0, "atol": 0}))


def test_loss_by_hand():
    loss = fitting.row_loss(
        mean=jnp.array([[1.0, 0.0], [0.0, 0.0]]),
        logvar=jnp.log(jnp.array([[4.0, 1.0], [0.25, 1.0]])),
        logits=jnp.array([[0.0], [jnp.log(3.0)]]),
        target=jnp.array([[3.0, 0.0, 1.0], [0.5, 2.0, 0.0]]),
    )
    # Row 1: (4/4 + ln 4 + 0 + 0) / 2 and -ln 1/2. Row 2: (1 + ln 1/4 + 4 + 0) / 2 and -ln 1/4.
    expected = [
        (1 + np.log(4)) / 2 + np.log(2),
        (5 - np.log(4)) / 2 + np.log(4),
    ]
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_holdout_rule():
    rule = np.asarray(fitting.is_holdout(jnp.arange(20_000), 0.1))
    np.testing.assert_array_equal(rule[:2000], held_out(2000))
    assert rule[0] and not rule[1]
    assert abs(rule.mean() - 0.1) < 0.006


def test_rows_are_split_and_scaled_by_training_rows_alone():
    x, y = data()
    x = x.at[:, 1].set(5.0)
    scaled, rows = fitting.prepare(SMALL, fresh(), x, y, COUNT)
    out = held_out(COUNT)
    train = np.flatnonzero(~out)
    assert (int(rows.n_train), int(rows.count)) == (len(train), COUNT)
    mean, std = np.asarray(x)[train].mean(0), np.asarray(x)[train].std(0)
    std[1] = 1.0
    np.testing.assert_allclose(scaled.input_mean, mean, atol=1e-6)
    np.testing.assert_allclose(scaled.input_std, std, rtol=1e-5)
    np.testing.assert_allclose(scaled.target_mean, np.asarray(y)[train, :2].mean(0), atol=1e-6)
    np.testing.assert_allclose(scaled.target_std, np.asarray(y)[train, :2].std(0), rtol=1e-5)
    order = np.concatenate([train, np.flatnonzero(out)])
    np.testing.assert_allclose(
        rows.table[:COUNT, :3], (np.asarray(x)[order] - mean) / std, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(rows.table[:COUNT, 5], np.asarray(y)[order, 2])


def test_order_is_a_permutation_per_member():
    order = np.asarray(fitting.minibatch_order(jax.random.key(0), 3, 300, jnp.array(210)))
    for member in order:
        assert sorted(member[:210].tolist()) == list(range(210))
    assert (order[0] != order[1]).any()
    # Uniform: every row is in the first third of the order in a third of many draws.
    keys = jax.random.split(jax.random.key(1), 1000)
    draws = jax.vmap(lambda k: fitting.minibatch_order(k, 1, 10, jnp.array(9))[0, :3])(keys)
    shares = np.bincount(np.asarray(draws).ravel(), minlength=9) / 1000
    np.testing.assert_allclose(shares, 1 / 3, atol=0.06)


def test_first_step_is_adam_with_decay():
    # Adam's first step is -lr * g / (|g| + eps), whatever the gradient's size; weights then decay.
    config = EnsembleConfig(
        members=2, elites=1, hidden=(4,), batch_size=8, weight_decay=(0.5, 1.0), max_epochs=1
    )
    x, y = data()
    scaled, rows = fitting.prepare(config, fresh(config), x, y, 8)
    moments = fitting.OPTIMISER.init(scaled.members)
    one = jnp.array(1)
    members, _, _ = fitting.train_epoch(config, scaled, moments, rows, one, jax.random.key(0))
    for layer, decay in ((0, 0.5), (1, 1.0)):
        before = np.asarray(scaled.members.weights[layer])
        step = np.asarray(members.weights[layer]) - before + 1e-3 * decay * before
        np.testing.assert_allclose(np.abs(step), 1e-3, rtol=2e-2)
    # The bounds are pulled together by at least the penalty, and not decayed.
    assert (np.asarray(members.max_logvar) < np.asarray(scaled.members.max_logvar)).any()
    np.testing.assert_allclose(
        np.abs(np.asarray(members.biases[1] - scaled.members.biases[1])), 1e-3, rtol=2e-2
    )


def test_holdout_rows_never_influence_training(small_fit):
    x, y = data()
    out = jnp.asarray(held_out(CAPACITY))[:, None]
    y_changed = jnp.where(out, 1.5 * y + 0.3, y).at[:, 2].set(y[:, 2])
    x_changed = jnp.where(out, 0.7 * x, x)
    args = (fresh(), COUNT, jax.random.key(5))
    trained = [
        fitting.train_epoch(
            SMALL,
            scaled,
            fitting.OPTIMISER.init(scaled.members),
            rows,
            jnp.array(6),
            args[2],
        )
        for scaled, rows in (
            fitting.prepare(SMALL, args[0], *xy, args[1]) for xy in ((x, y), (x_changed, y_changed))
        )
    ]
    assert_same(trained[0], trained[1])
    # The whole fit too, as long as the hold-out loss falls in both until the last epoch.
    (a, a_metrics), (b, b_metrics) = (
        small_fit(args[0], *xy, *args[1:]) for xy in ((x, y), (x_changed, y_changed))
    )
    assert_same(a.members, b.members)
    assert (np.asarray(a_metrics.holdout_loss) != np.asarray(b_metrics.holdout_loss)).all()


def test_padding_has_no_influence(small_fit):
    x, y = data()
    padding = (jnp.arange(CAPACITY) >= COUNT)[:, None]
    garbage = small_fit(
        fresh(),
        jnp.where(padding, jnp.nan, x),
        jnp.where(padding, 1e30, y),
        COUNT,
        jax.random.key(5),
    )
    assert_same(small_fit(fresh(), x, y, COUNT, jax.random.key(5)), garbage)
    assert bool(garbage[1].finite)


def test_seeds_do_not_disturb_each_other(small_fit):
    # Different counts: the second seed has fewer steps per epoch and waits for the first.
    x, y = (jnp.stack(z) for z in zip(data(0), data(1), strict=True))
    counts, keys = jnp.array([COUNT, 60]), jax.random.split(jax.random.key(5), 2)
    alone = [small_fit(fresh(seed=i), x[i], y[i], counts[i], keys[i]) for i in range(2)]
    both = jax.jit(jax.vmap(partial(fitting.fit, SMALL)))(
        jax.tree.map(lambda a, b: jnp.stack([a, b]), fresh(seed=0), fresh(seed=1)),
        x,
        y,
        counts,
        keys,
    )
    for i in range(2):
        assert_same(jax.tree.map(lambda leaf: leaf[i], both), alone[i], rtol=2e-4, atol=2e-5)
    assert both[1].steps.tolist() == [4 * 6, 4 * 2]


def test_early_stopping_keeps_the_best_weights():
    # Pure noise and few rows: the hold-out loss turns up soon, and by much.
    config = EnsembleConfig(
        members=3, elites=2, hidden=(64,), batch_size=32, learning_rate=1e-2, patience=8
    )
    rng = np.random.default_rng(3)
    x = jnp.asarray(rng.normal(size=(CAPACITY, 3)), jnp.float32)
    y = jnp.asarray(rng.normal(size=(CAPACITY, 2)), jnp.float32)
    y = jnp.concatenate([y, jnp.zeros((CAPACITY, 1))], axis=-1)
    key = jax.random.key(7)
    fitted, metrics = jax.jit(partial(fitting.fit, config))(fresh(config), x, y, COUNT, key)
    assert 8 <= int(metrics.epochs) < config.max_epochs

    # Epoch by epoch outside `fit`, keeping every hold-out loss.
    current, rows = fitting.prepare(config, fresh(config), x, y, COUNT)
    epoch = jax.jit(partial(fitting.train_epoch, config))
    moments = fitting.OPTIMISER.init(current.members)
    history = [fitting.evaluate(current, current.members, rows)[0]]
    for i in range(int(metrics.epochs)):
        n_steps = -(-int(rows.n_train) // 32)
        members, moments, _ = epoch(
            current, moments, rows, jnp.array(n_steps), jax.random.fold_in(key, i)
        )
        current = eqx.tree_at(lambda e: e.members, current, members)
        history.append(fitting.evaluate(current, members, rows)[0])
    history = np.stack(history)
    assert (history[-1] > history.min(axis=0) + 0.1).all()
    np.testing.assert_allclose(metrics.holdout_loss, history.min(axis=0), rtol=1e-3, atol=1e-3)

    # The weights kept are the ones with that loss: worked out row by row in physical units.
    rows_out = np.flatnonzero(held_out(COUNT))
    mean, logvar, logits = (np.asarray(p) for p in ens.predict_all(fitted, x[rows_out]))
    scale = np.asarray(fitted.target_std)
    y_out = np.asarray(y)[rows_out]
    gaussian = (mean - y_out[:, :2]) ** 2 / np.exp(logvar) + logvar - 2 * np.log(scale)
    cross_entropy = np.log1p(np.exp(logits[..., 0]))
    loss = (gaussian.mean(-1) + cross_entropy).mean(-1)
    np.testing.assert_allclose(metrics.holdout_loss, loss, rtol=1e-4, atol=1e-4)
    assert fitted.elites.tolist() == np.argsort(loss)[:2].tolist()
    mse = (((mean - y_out[:, :2]) / scale) ** 2).mean(1)
    np.testing.assert_allclose(metrics.holdout_mse, mse[fitted.elites].mean(0), rtol=1e-4)


def test_steps_are_capped():
    config = EnsembleConfig(members=2, elites=1, hidden=(4,), batch_size=32, max_steps=8)
    _, metrics = jax.jit(partial(fitting.fit, config))(
        fresh(config), *data(), COUNT, jax.random.key(0)
    )
    # 200 rows less the hold-out make 6 steps an epoch, so the second one is cut at 2.
    assert (int(metrics.steps), int(metrics.epochs)) == (8, 2)


def test_non_finite_data_are_reported_and_leave_the_ensemble_alone(small_fit):
    x, y = data()
    before = fresh()
    after, metrics = small_fit(before, x, y.at[1, 0].set(jnp.nan), COUNT, jax.random.key(0))
    assert not bool(metrics.finite)
    assert_same(after, before)


def test_a_diverging_member_keeps_its_last_finite_weights(small_fit):
    x, y = data()
    before = fresh()
    # One absurd training input overflows the hidden layer's squares, but no hold-out row.
    broken = eqx.tree_at(
        lambda e: e.members.min_logvar, before, before.members.min_logvar.at[0].set(-1e38)
    )
    broken = eqx.tree_at(
        lambda e: e.members.biases, broken, (broken.members.biases[0], broken.members.biases[1])
    )
    after, metrics = small_fit(broken, x, y, COUNT, jax.random.key(0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.members))
    assert int(metrics.epochs) == 4


def test_recovers_a_noisy_linear_system_and_probabilities():
    config = EnsembleConfig(members=4, elites=3, hidden=(32,), max_steps=1500)
    rng = np.random.default_rng(0)
    a = np.array([[1.0, -2.0], [0.5, 0.0], [0.0, 20.0]])
    sigma = np.array([0.3, 5.0])
    x = rng.normal(size=(8192, 3)) * [1.0, 3.0, 0.1] + [0.0, 5.0, 0.0]
    p = 1 / (1 + np.exp(-1.5 * x[:, :1]))
    y = x @ a + sigma * rng.normal(size=(8192, 2))
    label = rng.uniform(size=(8192, 1)) < p
    x = jnp.asarray(x, jnp.float32)
    y = jnp.asarray(np.concatenate([y, label], axis=-1), jnp.float32)
    n = 6000
    fitted, metrics = jax.jit(partial(fitting.fit, config))(
        fresh(config), x, y, n, jax.random.key(1)
    )
    mean, logvar, logits = (
        np.asarray(out)[np.asarray(fitted.elites)] for out in ens.predict_all(fitted, x[n:])
    )
    error = np.sqrt(np.mean((mean - np.asarray(x[n:]) @ a) ** 2, axis=(0, 1)))
    assert (error < 0.15 * sigma).all(), error / sigma
    np.testing.assert_allclose(np.exp(logvar / 2).mean((0, 1)), sigma, rtol=0.1)
    assert np.abs(1 / (1 + np.exp(-logits)) - p[n:]).mean() < 0.04
    target = jnp.broadcast_to(y[n:, :2], mean.shape)
    report = calibration(jnp.asarray(mean), jnp.exp(jnp.asarray(logvar) / 2), target)
    np.testing.assert_allclose(report.coverage[0], 0.5, atol=0.05)
    np.testing.assert_allclose(report.coverage[1], 0.9, atol=0.03)
    np.testing.assert_allclose(report.coverage[2], 0.95, atol=0.02)
    np.testing.assert_allclose(report.chi2, 1.0, atol=0.1)
    assert bool(metrics.finite)


def test_shapes_are_checked():
    x, y = data()
    with pytest.raises(ValueError, match=r"inputs \(256, 2\): must be \[C, 3\]"):
        fitting.fit(SMALL, fresh(), x[:, :2], y, COUNT, jax.random.key(0))
    with pytest.raises(ValueError, match=r"targets \(256, 2\): must be \[256, 3\]"):
        fitting.fit(SMALL, fresh(), x, y[:, :2], COUNT, jax.random.key(0))
