"""The ensemble's predictions against loops in numpy, and the model diagnostics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from surefoot.world import ensemble as ens
from surefoot.world.diagnostics import calibration, rollout_rmse
from surefoot.world.ensemble import EnsembleConfig

CONFIG = EnsembleConfig(members=5, elites=3, hidden=(7, 6), activation="tanh")


def make(n_binary=2):
    """An untrained ensemble with scales and elites that are not the trivial ones."""
    e = ens.init(CONFIG, 4, 3, n_binary, jax.random.key(0))
    return ens.Ensemble(
        members=e.members,
        input_mean=jnp.array([1.0, -2.0, 0.5, 0.0]),
        input_std=jnp.array([2.0, 0.5, 1.0, 3.0]),
        target_mean=jnp.array([10.0, 0.0, -1.0]),
        target_std=jnp.array([0.1, 4.0, 1.0]),
        base_logits=jnp.arange(n_binary) - 1.5,
        elites=jnp.array([4, 0, 2]),
        activation=e.activation,
    )


def by_hand(e, member, row):
    """One row through one network, in float64 numpy."""
    h = (np.float64(row) - np.float64(e.input_mean)) / np.float64(e.input_std)
    weights = [np.float64(w[member]) for w in e.members.weights]
    biases = [np.float64(b[member]) for b in e.members.biases]
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        h = np.tanh(h @ w + b)
    out = h @ weights[-1] + biases[-1]
    mean, logvar, logits = out[:3], out[3:6], out[6:]
    logvar = 0.5 - np.log1p(np.exp(0.5 - logvar))
    logvar = -10.0 + np.log1p(np.exp(logvar + 10.0))
    scale = np.float64(e.target_std)
    logits = logits + np.float64(e.base_logits)
    return mean * scale + np.float64(e.target_mean), np.exp(logvar / 2) * scale, logits


def test_predictions_in_physical_units():
    e = make()
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    mean, std, logits = jax.tree.map(np.asarray, jax.jit(ens.predict_all)(e, x))
    arrays = jax.tree.map(np.asarray, e)
    assert (mean.shape, std.shape, logits.shape) == ((5, 6, 3), (5, 6, 3), (5, 6, 2))
    for member in range(5):
        for i in range(6):
            expected = by_hand(arrays, member, x[i])
            for got, want in zip((mean, std, logits), expected, strict=True):
                np.testing.assert_allclose(got[member, i], want, rtol=2e-4, atol=2e-5)
    chosen = jax.tree.map(lambda leaf: leaf[3], e.members)
    one_mean, one_std, one_logits = jax.jit(ens.predict_member)(e, chosen, x)
    expected = by_hand(arrays, 3, x[2])
    np.testing.assert_allclose(one_mean[2], expected[0], rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(one_std[2], expected[1], rtol=2e-4)
    np.testing.assert_allclose(one_logits[2], expected[2], rtol=2e-4, atol=2e-5)


def test_members_start_differently():
    mean, _, _ = jax.jit(ens.predict_all)(make(), jnp.ones((1, 4)))
    assert len(np.unique(np.asarray(mean[:, 0, 0]))) == 5


def test_logvar_stays_within_its_bounds():
    e = make()
    out = 100.0 * jnp.ones_like(e.members.biases[-1])
    for sign, bound in ((1, 0.5), (-1, -10.0)):
        biases = (*e.members.biases[:-1], sign * out)
        members = ens.Members(e.members.weights, biases, e.members.min_logvar, e.members.max_logvar)
        member = jax.tree.map(lambda leaf: leaf[0], members)
        _, variance, _ = ens.forward(member, "tanh", jnp.zeros((1, 4)))
        np.testing.assert_allclose(jnp.log(variance), bound, atol=1e-3)


def test_rounded_networks_say_nearly_the_same():
    """16 bits hold 8 of a weight: what comes out differs by about a hundredth, in 32 bits."""
    e, x = make(), jax.random.normal(jax.random.key(1), (500, 4))
    exact = jax.jit(ens.predict_all)(e, x)
    coarse = jax.jit(ens.predict_all)(ens.rounded(e), x)
    for whole, part in zip(exact, coarse, strict=True):
        assert part.dtype == jnp.float32
        apart = np.sqrt(np.mean(np.square(np.asarray(part - whole))))
        assert 1e-4 * np.std(whole) < apart < 0.02 * np.std(whole)
    bits = np.asarray(coarse[0]).view(np.uint32)
    assert (bits & 0xFFFF).any()


def served_by(shared, everyone):
    """Index of the member whose prediction each row got; fails unless there is exactly one."""
    same = np.isclose(everyone, shared[None], rtol=1e-5, atol=1e-6).all(axis=-1)
    assert (same.sum(axis=0) == 1).all()
    return same.argmax(axis=0)


def test_each_elite_serves_its_share():
    e = make()
    x = jax.random.normal(jax.random.key(1), (12, 4))
    all_mean, all_std, all_logits = map(np.asarray, jax.jit(ens.predict_all)(e, x))
    shared = jax.jit(ens.predict_elites_shared)
    for seed in range(5):
        order = jax.random.permutation(jax.random.key(seed), 3)
        mean, std, logits = map(np.asarray, shared(e, x, order))
        member = served_by(mean, all_mean)
        assert sorted(member.tolist()) == [0] * 4 + [2] * 4 + [4] * 4
        rows = np.arange(12)
        np.testing.assert_allclose(std, all_std[member, rows], rtol=1e-5)
        np.testing.assert_allclose(logits, all_logits[member, rows], rtol=1e-4, atol=1e-6)


def test_shared_elites_are_uniform_and_independent_over_time():
    e = make()
    x = jax.random.normal(jax.random.key(1), (6, 4))
    keys = jax.random.split(jax.random.key(2), 3000)
    orders = jax.vmap(lambda key: jax.random.permutation(key, 3))(keys)
    mean = jax.jit(jax.vmap(lambda order: ens.predict_elites_shared(e, x, order)[0]))(orders)
    all_mean = np.asarray(jax.jit(ens.predict_all)(e, x)[0])
    member = served_by(np.asarray(mean).reshape(-1, 3), np.tile(all_mean, (1, 3000, 1))).reshape(
        3000, 6
    )
    slot = np.searchsorted([0, 2, 4], member)
    for row in range(6):
        assert stats.chisquare(np.bincount(slot[:, row], minlength=3)).pvalue > 1e-4
        # Successive choices for the same row: all nine pairs are equally likely.
        pairs = 3 * slot[:-1:2, row] + slot[1::2, row]
        assert stats.chisquare(np.bincount(pairs, minlength=9)).pvalue > 1e-4


def test_batch_must_divide_among_elites():
    with pytest.raises(ValueError, match="batch=10 must be a multiple of the 3 elites"):
        ens.predict_elites_shared(make(), jnp.zeros((10, 4)), jnp.arange(3))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("members", 0),
        ("elites", 9),
        ("hidden", ()),
        ("activation", "gelu"),
        ("learning_rate", 0.0),
        ("batch_size", 0),
        ("weight_decay", (1e-4,)),
        ("weight_decay", (-1e-4, 0.0)),
        ("holdout", 0.0),
        ("holdout", 0.9),
        ("patience", 0),
        ("min_gain", 1.0),
        ("max_epochs", 0),
        ("max_steps", 0),
        ("min_logvar", 1.0),
        ("min_logvar", -100.0),
        ("max_logvar", 90.0),
    ],
)
def test_impossible_settings_name_the_field(field, value):
    with pytest.raises(ValueError, match=f"^{field}="):
        EnsembleConfig(**{field: value})


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("n_inputs", (0, 1, 0)), ("n_gaussian", (1, 0, 1)), ("n_binary", (1, 1, -1))],
)
def test_impossible_sizes_name_the_argument(name, sizes):
    with pytest.raises(ValueError, match=f"^{name}="):
        ens.init(CONFIG, *sizes, jax.random.key(0))


def test_calibration_by_hand():
    # Residuals of 0.5, 1, 1.8 and 3 deviations; the half-widths are 0.674, 1.645 and 1.960.
    mean = jnp.zeros((4, 1))
    std = jnp.full((4, 1), 2.0)
    result = calibration(mean, std, 2.0 * jnp.array([[0.5], [-1.0], [1.8], [3.0]]))
    np.testing.assert_allclose(result.coverage[:, 0], [0.25, 0.5, 0.75])
    np.testing.assert_allclose(result.chi2, [(0.25 + 1.0 + 3.24 + 9.0) / 4], rtol=1e-6)


def test_rollout_error_by_hand():
    error = jnp.array([[[3.0, 0.0], [4.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    result = rollout_rmse(error, jnp.ones((2, 2)))
    np.testing.assert_allclose(result, [[np.sqrt(12.5), 0.0], [0.0, 1.0]], rtol=1e-6)
