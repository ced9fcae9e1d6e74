"""Fitting against hand-worked losses and systems whose answer is known."""

from dataclasses import replace
from functools import partial
from operator import itemgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from surefoot.world import ensemble as ens
from surefoot.world import fitting
from surefoot.world.diagnostics import calibration
from surefoot.world.ensemble import EnsembleConfig

SMALL = EnsembleConfig(members=3, elites=2, hidden=(16,), batch_size=32, max_epochs=4, max_steps=20)
CAPACITY, COUNT = 256, 200
KEY = jax.random.key(0)


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


prepare = jax.jit(fitting.prepare, static_argnums=0)
evaluate = jax.jit(fitting.evaluate, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def train_epoch(config, ensemble, rows, n_steps, key, moments=None, done=0):
    moments = fitting.OPTIMISER.init(ensemble.members) if moments is None else moments
    average = ensemble.members
    return fitting.train_epoch(config, ensemble, average, moments, rows, done, n_steps, key)


def assert_same(a, b, **tolerance):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, **(tolerance or {"rtol": 0, "atol": 0}))


def test_loss_by_hand():
    loss = fitting.row_loss(
        mean=jnp.array([[1.0, 0.0], [0.0, 0.0]]),
        variance=jnp.array([[4.0, 1.0], [0.25, 1.0]]),
        logits=jnp.array([[0.0], [jnp.log(3.0)]]),
        target=jnp.array([[3.0, 0.0, 1.0], [0.5, 2.0, 0.0]]),
    )
    # Row 1: (4/4 + ln 4 + 0 + 0) / 2 and -ln 1/2. Row 2: (1 + ln 1/4 + 4 + 0) / 2 and -ln 1/4.
    # Binary outputs weigh ten times as much.
    expected = [
        (1 + np.log(4)) / 2 + 10 * np.log(2),
        (5 - np.log(4)) / 2 + 10 * np.log(4),
    ]
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_missing_targets_add_nothing_to_the_loss():
    """Rows 1 and 2 of `test_loss_by_hand` with one target missing each; row 3 has only a label,
    and row 4 nothing at all."""
    nan = jnp.nan
    mean = jnp.array([[1.0, 0.0], [0.0, 0.0], [7.0, 7.0], [7.0, 7.0]])
    variance = jnp.array([[4.0, 1.0], [0.25, 1.0], [1.0, 1.0], [1.0, 1.0]])
    target = jnp.array([[3.0, nan, 1.0], [nan, 2.0, 0.0], [nan, nan, 1.0], [nan, nan, nan]])
    logits = jnp.zeros((4, 1))
    expected = np.array([(1 + np.log(4)) / 2, 4 / 2, 0.0, 0.0]) + 10 * np.log([2, 2, 2, 1])
    np.testing.assert_allclose(
        fitting.row_loss(mean, variance, logits, target), expected, rtol=1e-6
    )
    total = lambda *outputs: fitting.row_loss(*outputs, target).sum()
    gradients = jax.grad(total, (0, 1, 2))(mean, variance, logits)
    missing = np.isnan(np.asarray(target[:, :2]))
    for gradient in gradients[:2]:
        assert np.isfinite(gradient).all() and (np.asarray(gradient)[missing] == 0).all()
    np.testing.assert_allclose(gradients[2][:, 0], [-5.0, 5.0, -5.0, 0.0])


def test_scales_are_those_of_targets_that_are_known():
    """Of targets that are missing in some rows, those of held-out rows count too."""
    x, y = data()
    known = jnp.arange(CAPACITY) % 3 == 0
    scaled, rows = prepare(
        SMALL, fresh(), x, y.at[:, 1].set(jnp.where(known, y[:, 1], jnp.nan)), COUNT
    )
    some = np.asarray(y)[:COUNT][np.asarray(known)[:COUNT], 1]
    np.testing.assert_allclose(scaled.target_mean[1], some.mean(), rtol=1e-5)
    np.testing.assert_allclose(scaled.target_std[1], some.std(), rtol=1e-5)
    whole, _ = prepare(SMALL, fresh(), x, y, COUNT)
    np.testing.assert_array_equal(scaled.target_mean[0], whole.target_mean[0])
    np.testing.assert_array_equal(scaled.base_logits, whole.base_logits)
    share = np.isnan(np.asarray(rows.table)[:COUNT]).mean(0)
    assert share[4] > 0.6 and (np.delete(share, 4) == 0).all()


def test_targets_that_are_never_known_are_predicted_as_zero():
    x, y = data()
    scaled, _ = prepare(SMALL, fresh(), x, y.at[:, 1].set(jnp.nan), COUNT)
    assert (float(scaled.target_mean[1]), float(scaled.target_std[1])) == (0.0, np.float32(1e-6))


def test_the_noise_of_a_rare_target_does_not_grow():
    """Its bounds are drawn together by their penalty alone, and must not pass each other."""
    config = replace(SMALL, learning_rate=0.05, max_steps=1000, max_epochs=1000, patience=1000)
    x, y = data()
    rare = jnp.where(jnp.arange(CAPACITY)[:, None] == 1, y[:, :1], jnp.nan)
    y = jnp.concatenate([rare, y[:, 1:]], -1)
    fitted, metrics = jax.jit(partial(fitting.fit, config))(fresh(config), x, y, COUNT, KEY)
    members = fitted.members
    gap = np.asarray(members.max_logvar - members.min_logvar)[:, 0]
    assert int(metrics.steps) == 1000 and (gap < 1).all() and (gap > -1).all()


def test_missing_targets_do_not_change_the_fit_of_other_outputs():
    """Output 1 has half of its targets, none, or others: output 0 and the event fit the same.

    The hidden layer is put back after every step: outputs share no weight of the last one.
    """
    config = EnsembleConfig(members=2, elites=1, hidden=(16,), batch_size=180, learning_rate=1e-2)
    x, y = data()
    some = jnp.where(jnp.arange(CAPACITY) % 2 == 0, y[:, 1], jnp.nan)
    results = []
    for target in (y[:, 1], some, jnp.full(CAPACITY, jnp.nan)):
        ensemble, rows = prepare(config, fresh(config), x, y.at[:, 1].set(target), COUNT)
        first = ensemble.members.weights[0], ensemble.members.biases[0]
        moments = None
        for i in range(60):
            key = jax.random.fold_in(jax.random.key(5), i)
            members, _, moments, loss = train_epoch(config, ensemble, rows, 1, key, moments)
            fields = lambda m: (m.weights[0], m.biases[0])
            members = eqx.tree_at(fields, members, first)
            ensemble = eqx.tree_at(lambda e: e.members, ensemble, members)
        assert np.isfinite(loss).all()
        results.append([np.asarray(z) for z in jax.jit(ens.predict_all)(ensemble, x)])
    (mean, std, logits), *others = results
    for one in others:
        np.testing.assert_allclose(one[0][..., 0], mean[..., 0], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(one[1][..., 0], std[..., 0], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(one[2], logits, rtol=1e-3, atol=1e-4)
    # With half of the targets output 1 is learned all the same: their deviation is 3.
    error = [np.sqrt(np.mean((z[0][..., 1] - np.asarray(y[:, 1])) ** 2)) for z in results]
    assert error[0] < 2.0 and error[1] < 2.4 and error[2] > 2.8


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_events_of_every_step_and_of_none(small_fit, label):
    """Their probability is 1 or 0 for all purposes, and the fit is sound."""
    x, y = data()
    fitted, metrics = small_fit(fresh(), x, y.at[:, 2].set(label), COUNT, jax.random.key(0))
    assert bool(metrics.finite)
    *_, logits = jax.jit(ens.predict_all)(fitted, x)
    assert np.abs(jax.nn.sigmoid(logits) - label).max() < 1e-6


def test_holdout_rule():
    rule = np.asarray(fitting.is_holdout(jnp.arange(20_000), 0.1))
    np.testing.assert_array_equal(rule[:2000], held_out(2000))
    assert rule[0] and not rule[1]
    assert abs(rule.mean() - 0.1) < 0.006


def test_rows_are_split_and_scaled_by_training_rows_alone():
    x, y = data()
    x = x.at[:, 1].set(5.0)
    scaled, rows = prepare(SMALL, fresh(), x, y, COUNT)
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
    # Bounds so wide that no prediction feels them: their penalty alone pulls them together.
    config = EnsembleConfig(
        members=2,
        elites=1,
        hidden=(4,),
        batch_size=8,
        weight_decay=(0.5, 1.0),
        min_logvar=-50.0,
        max_logvar=50.0,
    )
    scaled, rows = prepare(config, fresh(config), *data(), 8)
    members, *_ = train_epoch(config, scaled, rows, 1, jax.random.key(0))
    before = scaled.members
    for layer, decay in ((0, 0.5), (1, 1.0)):
        step = members.weights[layer] - (1 - 1e-3 * decay) * before.weights[layer]
        np.testing.assert_allclose(np.abs(step), 1e-3, rtol=2e-2)
        step = members.biases[layer] - before.biases[layer]
        np.testing.assert_allclose(np.abs(step), 1e-3, rtol=2e-2)
    np.testing.assert_allclose(members.max_logvar, 49.999, atol=1e-5)
    np.testing.assert_allclose(members.min_logvar, -49.999, atol=1e-5)


def test_the_average_of_the_weights_by_hand():
    """The mean of the first two steps, then half of each new step."""
    config = replace(SMALL, averaging=0.5)
    scaled, rows = prepare(config, fresh(config), *data(), COUNT)
    after = [train_epoch(config, scaled, rows, n, KEY)[0] for n in (1, 2, 3)]
    average = train_epoch(config, scaled, rows, 3, KEY)[1]
    expected = jax.tree.map(lambda a, b, c: 0.25 * a + 0.25 * b + 0.5 * c, *after)
    assert_same(average, expected, rtol=1e-5, atol=1e-7)
    assert_same(*train_epoch(SMALL, scaled, rows, 3, KEY)[:2])  # without averaging


def test_averaged_weights_predict_better_at_a_large_learning_rate():
    """Noisy gradients keep the last weights from the optimum; the average of many comes closer."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2048, 3))
    clean = np.stack([np.sin(2 * x[:, 0]), x[:, 1] * x[:, 2]], -1)
    y = np.concatenate([clean + rng.normal(size=clean.shape), np.zeros((2048, 1))], -1)
    x, y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    plain = replace(
        SMALL, hidden=(32,), learning_rate=2e-2, max_steps=600, max_epochs=100, patience=100
    )
    errors = []
    for averaging in (0.0, 0.99):
        config = replace(plain, averaging=averaging)
        fitted, _ = jax.jit(partial(fitting.fit, config))(fresh(config), x, y, 2048, KEY)
        mean = jax.jit(ens.predict_all)(fitted, x)[0][fitted.elites]
        errors.append(np.square(np.asarray(mean) - clean).mean())
    assert errors[1] < 0.6 * errors[0]


def test_holdout_rows_never_influence_training(small_fit):
    x, y = data()
    out = jnp.asarray(held_out(CAPACITY))[:, None]
    y_changed = jnp.where(out, 1.5 * y + 0.3, y).at[:, 2].set(y[:, 2])
    x_changed = jnp.where(out, 0.7 * x, x)
    before, key = fresh(), jax.random.key(5)
    pairs = ((x, y), (x_changed, y_changed))
    trained = [train_epoch(SMALL, *prepare(SMALL, before, *pair, COUNT), 6, key) for pair in pairs]
    assert_same(trained[0], trained[1])
    # The whole fit too, as long as the hold-out loss falls in both until the last epoch.
    (a, a_metrics), (b, b_metrics) = (small_fit(before, *pair, COUNT, key) for pair in pairs)
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
        mine = jax.tree.map(itemgetter(i), both)
        assert_same(mine, alone[i], rtol=2e-4, atol=2e-5)
    # 6 steps an epoch, of which the cap cuts the last one short, against 2.
    assert both[1].steps.tolist() == [20, 8]
    assert both[1].epochs.tolist() == [4, 4]


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
    current, rows = prepare(config, fresh(config), x, y, COUNT)
    moments = fitting.OPTIMISER.init(current.members)
    history = [evaluate(config, current, current.members, rows)[0]]
    n_steps = -(-int(rows.n_train) // 32)
    for i in range(int(metrics.epochs)):
        epoch_key = jax.random.fold_in(key, i)
        members, _, moments, _ = train_epoch(config, current, rows, n_steps, epoch_key, moments)
        current = eqx.tree_at(lambda e: e.members, current, members)
        history.append(evaluate(config, current, members, rows)[0])
    history = np.stack(history)
    worse = history[-1] - history.min(axis=0)
    assert worse.mean() > 0.03 and (worse > 0.008).all()
    np.testing.assert_allclose(metrics.holdout_loss, history.min(axis=0), rtol=1e-3, atol=1e-3)

    # The weights kept are the ones with that loss: worked out row by row in physical units.
    rows_out = np.flatnonzero(held_out(COUNT))
    mean, std, logits = (np.asarray(p) for p in jax.jit(ens.predict_all)(fitted, x[rows_out]))
    scale = np.asarray(fitted.target_std)
    y_out = np.asarray(y)[rows_out]
    gaussian = (mean - y_out[:, :2]) ** 2 / std**2 + 2 * np.log(std / scale)
    cross_entropy = np.log1p(np.exp(logits[..., 0]))
    loss = (gaussian.mean(-1) + cross_entropy).mean(-1)
    np.testing.assert_allclose(metrics.holdout_loss, loss, rtol=1e-4, atol=1e-4)
    assert fitted.elites.tolist() == np.argsort(loss)[:2].tolist()
    mse = (((mean - y_out[:, :2]) / scale) ** 2).mean(1)
    np.testing.assert_allclose(metrics.holdout_mse, mse[fitted.elites].mean(0), rtol=1e-4)


@pytest.mark.parametrize(
    ("part", "column", "value"),
    [("inputs", 0, np.nan), ("inputs", 1, np.inf), ("targets", 0, np.inf), ("targets", 2, np.inf)],
)
def test_non_finite_data_are_reported_and_leave_the_ensemble_alone(small_fit, part, column, value):
    """A target may be NaN: it is missing then."""
    rows = dict(zip(("inputs", "targets"), data(), strict=True))
    rows[part] = rows[part].at[1, column].set(value)
    before = fresh()
    after, metrics = small_fit(before, *rows.values(), COUNT, jax.random.key(0))
    assert not bool(metrics.finite)
    assert_same(after, before)


def test_a_broken_member_is_reported_and_does_not_spoil_the_others(small_fit):
    healthy = fresh()
    broken = eqx.tree_at(
        lambda e: e.members.biases[-1], healthy, healthy.members.biases[-1].at[0].set(1e30)
    )
    args = (*data(), COUNT, jax.random.key(0))
    good, bad = small_fit(healthy, *args), small_fit(broken, *args)
    assert bool(good[1].finite) and not bool(bad[1].finite)
    others = [jax.tree.map(itemgetter(slice(1, 3)), e.members) for e in (good[0], bad[0])]
    assert_same(*others)
    assert set(bad[0].elites.tolist()) == {1, 2}


def test_divergence_keeps_the_last_finite_weights():
    config = EnsembleConfig(members=2, elites=1, hidden=(4,), learning_rate=1e18)
    before = fresh(config)
    after, metrics = jax.jit(partial(fitting.fit, config))(
        before, *data(), COUNT, jax.random.key(0)
    )
    assert not bool(metrics.finite)
    assert int(metrics.epochs) == config.patience
    assert_same(after.members, before.members)
    assert np.isfinite(metrics.holdout_loss).all() and np.isfinite(metrics.holdout_mse).all()


def test_more_data_do_not_compile_again():
    compiled = jax.jit(partial(fitting.fit, SMALL))
    first, _ = compiled(fresh(), *data(), 50, jax.random.key(0))
    compiled(first, *data(), COUNT, jax.random.key(1))
    assert compiled._cache_size() == 1


def test_recovers_a_noisy_linear_system_and_probabilities():
    config = EnsembleConfig(members=4, elites=3, hidden=(32,), max_steps=3000, patience=20)
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
    mean, std, logits = (
        np.asarray(out)[np.asarray(fitted.elites)]
        for out in jax.jit(ens.predict_all)(fitted, x[n:])
    )
    error = np.sqrt(np.mean((mean - np.asarray(x[n:]) @ a) ** 2, axis=(0, 1)))
    assert (error < 0.15 * sigma).all(), error / sigma
    np.testing.assert_allclose(std.mean((0, 1)), sigma, rtol=0.1)
    assert np.abs(1 / (1 + np.exp(-logits)) - p[n:]).mean() < 0.04
    target = jnp.broadcast_to(y[n:, :2], mean.shape)
    report = calibration(jnp.asarray(mean), jnp.asarray(std), target)
    np.testing.assert_allclose(report.coverage[0], 0.5, atol=0.05)
    np.testing.assert_allclose(report.coverage[1], 0.9, atol=0.03)
    np.testing.assert_allclose(report.coverage[2], 0.95, atol=0.02)
    np.testing.assert_allclose(report.chi2, 1.0, atol=0.1)
    assert bool(metrics.finite)


def test_shapes_are_checked():
    x, y = data()
    with pytest.raises(ValueError, match=r"inputs\.shape=\(256, 2\) must be \[C, 3\]"):
        fitting.fit(SMALL, fresh(), x[:, :2], y, COUNT, jax.random.key(0))
    with pytest.raises(ValueError, match=r"targets\.shape=\(256, 2\) must be \[256, 3\]"):
        fitting.fit(SMALL, fresh(), x, y[:, :2], COUNT, jax.random.key(0))


def test_variance_weight_makes_gradients_those_of_least_squares():
    """d/dmu of sigma^2b ((mu - y)^2 / sigma^2 + log sigma^2) is 2 (mu - y) sigma^(2b - 2), and
    d/dsigma^2 is sigma^2b (1 / sigma^2 - (mu - y)^2 / sigma^4), the factor being a constant."""
    mean, variance, target = jnp.array([[3.0]]), jnp.array([[0.25]]), jnp.array([[1.0]])
    no_logits = jnp.zeros((1, 0))
    for weight, factor in ((0.0, 1.0), (0.5, 0.5), (1.0, 0.25)):
        loss = lambda m, v, w=weight: fitting.row_loss(m, v, no_logits, target, w).sum()
        by_mean, by_variance = jax.grad(loss, (0, 1))(mean, variance)
        np.testing.assert_allclose(by_mean, 2 * 2.0 / 0.25 * factor)
        np.testing.assert_allclose(by_variance, (1 / 0.25 - 4.0 / 0.0625) * factor)


@pytest.mark.slow
def test_variance_weight_learns_what_the_likelihood_neglects():
    """One output is constant but for the rows where x > 1, where it is hard. The likelihood makes
    a tiny variance elsewhere, and its steep errors keep the network from learning the rest."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 1))
    far = x[:, 0] > 1
    y = np.where(far, 3 * np.sin(6 * x[:, 0]), 0.0)
    config = EnsembleConfig(
        members=2, elites=2, hidden=(64, 64), max_steps=1500, patience=30, learning_rate=3e-3
    )
    errors = {}
    for weight in (0.0, 1.0):
        config = replace(config, variance_weight=weight)
        ensemble = ens.init(config, 1, 1, 0, jax.random.key(0))
        fit = jax.jit(partial(fitting.fit, config))
        ensemble, _ = fit(
            ensemble, jnp.asarray(x, jnp.float32), jnp.asarray(y[:, None], jnp.float32), 4000,
            jax.random.key(1),
        )  # fmt: skip
        mean, std, _ = ens.predict_all(ensemble, jnp.asarray(x, jnp.float32))
        errors[weight] = float(np.mean((mean[:, far, 0] - y[far]) ** 2))
        # Variances are learned too: small where nothing happens.
        assert float(jnp.median(std[:, x[:, 0] < 0.5])) < 0.1
    assert errors[1.0] < 0.5 * errors[0.0], errors


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_noise_in_a_binary_output_does_not_end_a_weighted_fit(rate):
    """The label is a coin toss, which a network soon overfits; the other output can be learned."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 4))
    y = np.stack([x[:, 0] * x[:, 1], rng.uniform(size=2000) < rate], -1)
    config = EnsembleConfig(
        members=2, elites=2, hidden=(64, 64), max_steps=1000, variance_weight=0.5
    )
    fit = jax.jit(partial(fitting.fit, config))
    rows = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    _, metrics = fit(ens.init(config, 4, 1, 1, KEY), *rows, 2000, KEY)
    assert metrics.epochs > 30 and metrics.holdout_mse[0] < 0.5


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_rare_target_among_the_held_out_rows_does_not_end_a_fit(weight):
    """The second output is known in two rows: one of 1.0 to train on, one of 100 held out."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1000, 2))
    rare = np.full(1000, np.nan)
    out = held_out(1000)
    rare[np.flatnonzero(~out)[5]], rare[np.flatnonzero(out)[5]] = 1.0, 100.0
    y = np.stack([x[:, 0] * x[:, 1], rare], -1)
    config = EnsembleConfig(
        members=2, elites=2, hidden=(32, 32), max_steps=600, variance_weight=weight
    )
    rows = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    fit = jax.jit(partial(fitting.fit, config))
    ensemble, metrics = fit(ens.init(config, 2, 2, 0, KEY), *rows, 1000, KEY)
    np.testing.assert_allclose(ensemble.target_mean[1], 50.5)
    assert metrics.epochs > 20 and metrics.holdout_mse[0] < 0.5
