"""The programs of an accelerator, run on the CPU, against those of the CPU."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from surefoot.algorithms import seeds
from surefoot.core.spaces import ActionSpec
from surefoot.learn import ppo
from surefoot.learn.actor_critic import prepare
from surefoot.learn.networks import Critics
from surefoot.world import ensemble as ensembles
from surefoot.world.black_box import BlackBox
from surefoot.world.ensemble import EnsembleConfig, only_elites, predict_all, rounded
from surefoot.world.imagination import LearnedWorld, imagine
from test_ppo import SMALL, make


@pytest.fixture
def accelerator(monkeypatch):
    """Take the branch of `platform_dependent` that is not the CPU's."""
    choose = lambda *args, cpu, default: default(*args)
    return lambda: monkeypatch.setattr(jax.lax, "platform_dependent", choose)


@pytest.mark.parametrize("constraints", [1, 2])
def test_critics_side_by_side_are_the_same_critics(accelerator, constraints):
    critics = Critics(5, constraints, jax.random.key(0), (8, 6))
    obs = jax.random.normal(jax.random.key(1), (7, 3, 5))
    weight = jax.random.normal(jax.random.key(2), (7, 3, 1 + constraints))
    loss = lambda critics: jnp.sum(weight * critics(obs) ** 2)
    values, slopes = critics(obs), eqx.filter_grad(loss)(critics)
    accelerator()
    np.testing.assert_allclose(critics(obs), values, rtol=1e-5, atol=1e-6)
    for a, b in zip(
        jax.tree.leaves(eqx.filter_grad(loss)(critics)), jax.tree.leaves(slopes), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("minibatches", "kl_stop"), [(1, 0.01), (4, 0.01), (4, None)])
def test_updates_stop_at_the_same_step(accelerator, minibatches, kl_stop):
    config = dataclasses.replace(
        SMALL, epochs=20, minibatches=minibatches, actor_learning_rate=1e-2, kl_stop=kl_stop
    )
    learner, batch = make(config, envs=40)
    (rows, _), lam, key = prepare(config, learner, batch), jnp.ones(1), jax.random.key(3)
    expected, metrics = ppo.update(config, learner, rows, lam, key)
    accelerator()
    found, others = ppo.update(config, learner, rows, lam, key)
    steps = int(metrics["actor_steps"])
    assert int(others["actor_steps"]) == steps
    assert steps == 20 * minibatches if kl_stop is None else steps < 20 * minibatches
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("member", [None, 2])
def test_imagination_with_rounded_networks_is_nearly_the_same(accelerator, member):
    """Two costs, ends, and episodes with 1, 2 or all 3 steps before their time limit."""
    model = BlackBox(3, cost_names=("a", "b"))
    config = EnsembleConfig(members=4, elites=3, hidden=(32, 32))
    sizes = 4, model.target_size, model.binary_size
    fitted = ensembles.init(config, *sizes, jax.random.key(0))
    fitted = dataclasses.replace(fitted, elites=jnp.array([3, 0, 2]))
    world = LearnedWorld(model, ActionSpec(1, low=(-1.0,), high=(1.0,)), fitted)
    start, left = jax.random.normal(jax.random.key(1), (300, 3)), 1 + jnp.arange(300) % 3
    policy = lambda obs, key: jnp.tanh(obs[:, :1])
    roll = lambda: imagine(world, policy, start, 3, jax.random.key(2), member, left)[0]
    exact = roll()
    accelerator()
    coarse = roll()
    assert exact.cost.shape == (3, 300, 2) and 0.1 < exact.terminated.mean() < 0.9
    np.testing.assert_array_equal(coarse.obs[0], exact.obs[0])
    for name in ("obs", "reward", "cost", "alive", "terminated"):
        a, b = (np.asarray(getattr(x, name), float) for x in (coarse, exact))
        error = np.abs(a - b)[:2]
        assert np.median(error) < 0.01 * b[:2].std(), name
        assert np.mean(error > 0.1 * b[:2].std()) < 0.05, name  # a draw near its limit may differ
    assert np.any(coarse.obs[1] != exact.obs[1])


def test_the_elites_alone_predict_what_they_do_among_all():
    config = EnsembleConfig(members=5, elites=2, hidden=(6,))
    every = ensembles.init(config, 3, 2, 0, jax.random.key(0))
    every = dataclasses.replace(every, elites=jnp.array([4, 1]))
    few = only_elites(every)
    x = jax.random.normal(jax.random.key(1), (7, 3))
    for a, b in zip(predict_all(few, x), predict_all(every, x), strict=True):
        np.testing.assert_allclose(a, b[np.array([4, 1])], rtol=1e-6)
    assert few.elites.tolist() == [0, 1] and only_elites(few) is few
    assert rounded(few).members.weights[0].dtype == jnp.bfloat16


def test_options_that_a_compiler_does_not_know_are_left_out(monkeypatch):
    seeds.compiler_options.cache_clear()
    assert seeds.compiler_options() is None  # not a GPU
    seeds.compiler_options.cache_clear()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert seeds.compiler_options() == seeds.GPU_OPTIONS
    seeds.compiler_options.cache_clear()
    monkeypatch.setattr(seeds, "GPU_OPTIONS", {"xla_gpu_no_such_option": "1"})
    assert seeds.compiler_options() is None
    seeds.compiler_options.cache_clear()
