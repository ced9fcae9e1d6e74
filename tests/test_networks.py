"""Networks against closed forms, scipy and numpy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from surefoot.algorithms.on_policy import numpy_policy
from surefoot.core.spaces import ActionSpec
from surefoot.learn import ppo
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.networks import (
    MLP,
    Actor,
    Categorical,
    Critics,
    Gaussian,
    Normalizer,
    orthogonal,
)
from surefoot.learn.ppo import PPOConfig


def test_mlp_is_layers_by_hand():
    net = MLP([2, 2, 1], jax.random.key(0))
    net = eqx.tree_at(
        lambda n: (n.weights, n.biases),
        net,
        (
            [jnp.array([[1.0, 0.0], [2.0, -1.0]]), jnp.array([[3.0], [4.0]])],
            [jnp.array([0.5, 0.0]), jnp.array([-1.0])],
        ),
    )
    # Hidden: tanh(1 + 2*1 + 0.5), tanh(-1).
    by_hand = 3 * np.tanh(3.5) + 4 * np.tanh(-1.0) - 1
    assert net(jnp.array([1.0, 1.0])) == pytest.approx(by_hand, abs=1e-6)
    assert net(jnp.ones((5, 3, 2))).shape == (5, 3, 1)


def test_initial_weights_are_orthogonal_with_their_gains():
    net = MLP([8, 8, 4], jax.random.key(1), last_gain=0.01)
    first, last = (np.asarray(w, np.float64) for w in net.weights)
    np.testing.assert_allclose(first @ first.T, 2 * np.eye(8), atol=1e-5)
    np.testing.assert_allclose(last.T @ last, 1e-4 * np.eye(4), atol=1e-8)
    with pytest.raises(ValueError, match="sizes"):
        MLP([3], jax.random.key(0))


def test_gaussian_against_scipy():
    mean, log_std = np.array([[0.3, -1.0], [2.0, 0.0]]), np.array([-0.5, 0.7])
    action = np.array([[1.0, 1.0], [0.0, -2.0]])
    dist = Gaussian(jnp.array(mean, jnp.float32), jnp.array(log_std, jnp.float32))
    reference = stats.norm(mean, np.exp(log_std))
    expected = reference.logpdf(action).sum(-1)
    np.testing.assert_allclose(
        dist.log_prob(jnp.array(action, jnp.float32)), expected, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(dist.entropy(), reference.entropy().sum(-1), rtol=1e-5)
    np.testing.assert_array_equal(dist.mode(), dist.mean)


def test_gaussian_samples_have_the_mean_and_deviation():
    dist = Gaussian(jnp.full((40_000, 1), 2.0), jnp.array([-0.5]))
    sample = np.asarray(dist.sample(jax.random.key(0)))
    assert sample.mean() == pytest.approx(2.0, abs=0.015)
    assert sample.std() == pytest.approx(np.exp(-0.5), abs=0.015)


def test_gaussian_kl_closed_form_and_integral():
    old = Gaussian(jnp.array([0.0]), jnp.log(jnp.array([1.0])))
    new = Gaussian(jnp.array([1.0]), jnp.log(jnp.array([2.0])))
    # KL(N(0,1) || N(1,2)) = ln 2 + (1 + 1) / 8 - 1/2.
    assert old.kl(new) == pytest.approx(np.log(2) - 0.25, abs=1e-6)
    p, q = stats.norm(0, 1), stats.norm(1, 2)
    integral = integrate.quad(lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), -12, 12)[0]
    assert old.kl(new) == pytest.approx(integral, abs=1e-6)
    two = Gaussian(jnp.array([0.0, 0.0]), jnp.zeros(2))
    both = Gaussian(jnp.array([1.0, 1.0]), jnp.log(jnp.array([2.0, 2.0])))
    assert two.kl(both) == pytest.approx(2 * (np.log(2) - 0.25), abs=1e-6)


def test_categorical_by_hand():
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.2, 0.2, 0.6])
    old, new = (Categorical(jnp.log(jnp.array(x, jnp.float32)) + 3.0) for x in (p, q))
    np.testing.assert_allclose(old.log_prob(jnp.array(1)), np.log(0.25), rtol=1e-5)
    np.testing.assert_allclose(old.entropy(), 1.5 * np.log(2), rtol=1e-5)
    np.testing.assert_allclose(old.kl(new), (p * np.log(p / q)).sum(), rtol=1e-5)
    assert int(new.mode()) == 2
    many = Categorical(jnp.broadcast_to(old.logits, (40_000, 3))).sample(jax.random.key(0))
    np.testing.assert_allclose(np.bincount(np.asarray(many)) / 40_000, p, atol=0.015)


@pytest.mark.parametrize("discrete", [False, True])
def test_actor_shapes_and_start(discrete):
    actor = Actor(5, ActionSpec(3, discrete), jax.random.key(0))
    obs = jax.random.normal(jax.random.key(1), (4, 2, 5))
    action = actor(obs).sample(jax.random.key(2))
    assert action.shape == ((4, 2) if discrete else (4, 2, 3))
    assert actor(obs).mode().shape == action.shape
    assert actor(obs).log_prob(action).shape == actor(obs).entropy().shape == (4, 2)
    np.testing.assert_allclose(actor(obs).kl(actor(obs)), 0, atol=1e-6)
    # Near-uniform, or near-centred with deviation exp(-0.5): the entropies are known.
    start = np.log(3) if discrete else 3 * (-0.5 + 0.5 * np.log(2 * np.pi * np.e))
    np.testing.assert_allclose(actor(obs).entropy(), start, atol=1e-3)


def test_actions_are_clipped_for_the_environment_only():
    actions = ActionSpec(2, low=(-1.0, -1.0), high=(1.0, 1.0))
    drawn = np.array([[-3.0, 0.5]])
    np.testing.assert_array_equal(actions.to_env(drawn), [[-1.0, 0.5]])
    np.testing.assert_array_equal(actions.encode(jnp.asarray(drawn)), [[-1.0, 0.5]])


def test_policies_work_in_units_of_the_action_bounds():
    """From 0 to 100, of 0.01 around 0, and without an upper bound; in JAX and in numpy."""
    actions = ActionSpec(3, low=(0.0, -0.01, -1.0), high=(100.0, 0.01, np.inf))
    assert actions.scale == ((50.0, 0.0, 0.0), (50.0, 0.01, 1.0))
    learner = ppo.init(PPOConfig(), MultiplierConfig(), 4, actions, 1, jax.random.key(0))
    # As after training: a last layer that is not small.
    last = lambda s: s.actor.network.weights[-1]
    learner = eqx.tree_at(last, learner, 100 * last(learner))
    obs = np.random.default_rng(0).normal(size=(20, 4))
    rows = jnp.asarray(obs, jnp.float32)
    distribution, heads = learner.actor(rows), np.asarray(learner.actor.heads(rows))
    mean = np.array([50.0, 0.0, 0.0]) + np.array([50.0, 0.01, 1.0]) * heads
    np.testing.assert_allclose(distribution.mean, mean, rtol=1e-4, atol=1e-5)
    assert np.std(distribution.mean, 0)[0] > 5
    np.testing.assert_allclose(
        jnp.exp(distribution.log_std), np.exp(-0.5) * np.array([50.0, 0.01, 1.0]), rtol=1e-5
    )
    policy = numpy_policy(jax.tree.map(lambda x: x[None], learner), actions).seed(0)
    clipped = np.clip(mean, actions.low, actions.high)
    np.testing.assert_allclose(policy.act(obs), clipped, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [(64, 64), (26, 64), (64, 2), (1, 5)])
def test_orthogonal_weights(shape):
    """Also of noise whose singular values lie far apart."""
    noise = np.random.default_rng(0).normal(size=shape)
    noise[:, :1] *= 1e-3
    w = np.asarray(orthogonal(jnp.asarray(noise, jnp.float32)))
    gram = w.T @ w if shape[0] >= shape[1] else w @ w.T
    np.testing.assert_allclose(gram, np.eye(min(shape)), atol=1e-5)
    u, _, v = np.linalg.svd(noise, full_matrices=False)
    np.testing.assert_allclose(w, u @ v, atol=1e-3)


def test_critics_are_independent_networks():
    critics = Critics(4, 2, jax.random.key(0), hidden=(8,))
    obs = jax.random.normal(jax.random.key(1), (6, 5, 4))
    values = np.asarray(critics(obs))
    assert values.shape == (6, 5, 3)
    w, b = critics.network.weights, critics.network.biases
    for i in range(3):
        hidden = np.tanh(np.asarray(obs) @ np.asarray(w[0][i]) + np.asarray(b[0][i]))
        expected = (hidden @ np.asarray(w[1][i]) + np.asarray(b[1][i]))[..., 0]
        np.testing.assert_allclose(values[..., i], expected, atol=1e-5)
    assert np.abs(values[..., 0] - values[..., 1]).max() > 0.1


def test_normalizer_matches_numpy_over_uneven_batches():
    rng = np.random.default_rng(0)
    data = rng.normal([1.0, -50.0, 0.0], [0.1, 5.0, 3.0], (700, 3)).astype(np.float32)
    normalizer = Normalizer(3)
    np.testing.assert_allclose(normalizer(jnp.ones(3)), 1.0, atol=1e-6)
    for part in (data[:1], data[1:60].reshape(-1, 1, 3), data[60:].reshape(10, 64, 3)):
        normalizer = normalizer.update(jnp.asarray(part))
    np.testing.assert_allclose(normalizer.mean, data.mean(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(normalizer.var, data.var(0), rtol=1e-3)
    assert float(normalizer.count) == 700
    scaled = np.asarray(normalizer(jnp.asarray(data)))
    np.testing.assert_allclose(scaled, (data - data.mean(0)) / data.std(0), atol=2e-3)
    assert float(normalizer(jnp.array([1e6, 0.0, 0.0]))[0]) == 10.0


def test_rows_of_weight_zero_do_not_count():
    """Among them whole batches, whose statistics are those of no rows."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(3, 20, 2)).astype(np.float32)
    keep = rng.random((3, 20)) < 0.6
    keep[2] = False
    wild = np.where(keep[..., None], data, 1e4).astype(np.float32)
    normalizer = Normalizer(2)
    for part, weight in zip(wild, keep, strict=True):
        normalizer = normalizer.update(jnp.asarray(part), jnp.asarray(weight, jnp.float32))
    kept = data[keep]
    assert float(normalizer.count) == len(kept)
    np.testing.assert_allclose(normalizer.mean, kept.mean(0), atol=1e-5)
    np.testing.assert_allclose(normalizer.var, kept.var(0), rtol=1e-4)
