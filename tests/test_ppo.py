"""PPO: problems with known answers, its early stop, and what it must leave alone."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from surefoot.core.spaces import ActionSpec
from surefoot.learn import actor_critic, multiplier, ppo
from surefoot.learn.actor_critic import Batch
from surefoot.learn.descent import minibatch_rows
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from toys import BANDIT_PPO

SMALL = PPOConfig(hidden=(8,), epochs=3, critic_epochs=2, kl_stop=None)
prepare = jax.jit(actor_critic.prepare, static_argnums=0)
improve = jax.jit(ppo.improve_policy, static_argnums=0)
fit = jax.jit(actor_critic.fit_critics, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def update(config, learner, batch, lam, key):
    rows, _ = actor_critic.prepare(config, learner, batch)
    return ppo.update(config, learner, rows, lam, key)


def make(config, *, k=1, discrete=False, steps=5, envs=4, seed=0):
    """A new learner and a random batch of its own actions."""
    keys = jax.random.split(jax.random.key(seed), 6)
    learner = ppo.init(config, MultiplierConfig(), 3, ActionSpec(2, discrete), k, keys[0])
    obs = jax.random.normal(keys[1], (steps, envs, 3))
    batch = Batch(
        obs=obs,
        action=learner.sample(obs, keys[2]),
        reward=jax.random.normal(keys[3], (steps, envs)),
        cost=jax.random.uniform(keys[4], (steps, envs, k)),
        next_obs=jax.random.normal(keys[5], (1, envs, 3)),
        terminated=jnp.zeros((steps, envs), bool),
        ended=jnp.zeros((steps, envs), bool),
    )
    return learner, batch


def assert_same(a, b, **tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, **tolerance)


def test_constrained_bandit_reaches_its_optimum():
    """Reward -(a - 2)^2, cost a, limit 1: the best safe action is 1.

    There the reward's slope is 2 and the cost's 1. Only reward advantages are standardised, so
    lambda settles at 2 over their deviation: of -(e - 1)^2 with e ~ N(0, s), sqrt(4 s^2 + 2 s^4).
    The deviation s is held at its floor.
    """
    config = BANDIT_PPO
    prices = MultiplierConfig(initial=0.0)
    learner = ppo.init(config, prices, 1, ActionSpec(1), 1, jax.random.key(0))
    obs = jnp.ones((1, 512, 1))
    over = jnp.ones((1, 512), bool)

    def one_round(learner, key):
        sample_key, update_key = jax.random.split(key)
        action = learner.sample(obs, sample_key)
        batch = Batch(obs, action, -((action[..., 0] - 2) ** 2), action, obs, over, over)
        rows, scales = actor_critic.prepare(config, learner, batch)
        cost = action.mean((0, 1))
        state = multiplier.update(prices, learner.multiplier, cost, jnp.ones(1), scales)
        learner = eqx.tree_at(lambda s: s.multiplier, learner, state)
        lam = multiplier.value(prices, state)
        learner, _ = ppo.update(config, learner, rows, lam, update_key)
        return learner, (learner.mode(obs[0, 0])[0], lam[0])

    keys = jax.random.split(jax.random.key(1), 400)
    _, (mode, lam) = jax.jit(lambda s: jax.lax.scan(one_round, s, keys))(learner)
    assert float(mode[:60].max()) > 1.3  # it breaks the limit while lambda is still small
    assert float(mode[-100:].mean()) == pytest.approx(1.0, abs=0.1)
    s = np.exp(-1.0)
    expected = 2 / np.sqrt(4 * s**2 + 2 * s**4)
    assert float(lam[-100:].mean()) == pytest.approx(expected, abs=0.15)


def test_discrete_policy_finds_the_paying_arm():
    config = PPOConfig(
        hidden=(8,),
        actor_learning_rate=3e-2,
        epochs=10,
        critic_epochs=1,
        minimum_log_std=-2.0,  # means nothing here, and must do no harm
    )
    learner = ppo.init(config, MultiplierConfig(), 1, ActionSpec(3, True), 0, jax.random.key(0))
    obs, over = jnp.ones((1, 64, 1)), jnp.ones((1, 64), bool)

    def one_round(learner, key):
        action = learner.sample(obs, key)
        batch = Batch(obs, action, (action == 2) * 1.0, jnp.zeros((1, 64, 0)), obs, over, over)
        return update(config, learner, batch, jnp.zeros(0), key)

    keys = jax.random.split(jax.random.key(1), 60)
    learner, _ = jax.jit(lambda s: jax.lax.scan(one_round, s, keys))(learner)
    assert float(jnp.exp(learner.actor(jnp.ones(1)).log_prob(jnp.array(2)))) > 0.9


def test_first_step_follows_the_lagrangian_gradient():
    """At ratio 1 the clip is idle: Adam's first step is the sign of the plain policy gradient."""
    config = dataclasses.replace(SMALL, epochs=1, critic_epochs=1, gamma=0.0)
    learner, batch = make(config)
    new, metrics = update(config, learner, batch, jnp.array([3.0]), jax.random.key(0))
    # With gamma = 0 advantages are signal - value.
    values = np.asarray(learner.critics(batch.obs))
    reward = np.asarray(batch.reward) - values[..., 0]
    cost = np.asarray(batch.cost)[..., 0] - values[..., 1]
    reward, cost = (reward - reward.mean()) / reward.std(), cost - cost.mean()
    mix = jnp.asarray((reward - 3 * cost) / 4)
    gradient = jax.grad(lambda a: jnp.mean(a(batch.obs).log_prob(batch.action) * mix))(
        learner.actor
    )
    step = jax.tree.map(lambda a, b: (b - a) / config.actor_learning_rate, learner.actor, new.actor)
    for g, s in zip(jax.tree.leaves(gradient), jax.tree.leaves(step), strict=True):
        sure = np.abs(g) > 1e-4
        np.testing.assert_allclose(np.asarray(s)[sure], np.sign(g)[sure], atol=2e-2)
    assert int(metrics["actor_steps"]) == 1
    assert float(metrics["clip_fraction"]) == 0.0
    losses = ((values - np.stack([batch.reward, batch.cost[..., 0]], -1)) ** 2).mean((0, 1))
    got = [metrics["critic_loss_reward"], metrics["critic_loss_cost_0"]]
    np.testing.assert_allclose(got, losses, rtol=1e-4)
    reward = np.asarray(batch.reward)
    explained = 1 - np.var(reward - values[..., 0]) / np.var(reward)
    assert float(metrics["explained_variance_reward"]) == pytest.approx(explained, abs=1e-4)


@pytest.mark.parametrize("minibatches", [1, 4])
def test_kl_stop_ends_the_policy(minibatches):
    free = dataclasses.replace(
        SMALL, epochs=30, minibatches=minibatches, actor_learning_rate=1e-2, clip=0.9
    )
    learner, batch = make(free, envs=40)
    (rows, _), lam, key = prepare(SMALL, learner, batch), jnp.ones(1), jax.random.key(3)
    _, metrics = improve(free, learner, rows, lam, key)
    assert int(metrics["actor_steps"]) == 30 * minibatches
    assert float(metrics["kl"]) > 0.05
    stopping = dataclasses.replace(free, kl_stop=0.01)
    near, metrics = improve(stopping, learner, rows, lam, key)
    assert 0 < int(metrics["actor_steps"]) < 25 * minibatches
    # The step that went too far was taken, as its KL can only be known afterwards; no more were.
    assert 0.01 < float(metrics["kl"]) < 0.05
    assert near.actor_moments[0].count == metrics["actor_steps"]
    if minibatches == 1:
        exact = float(jnp.mean(learner.actor(rows.obs).kl(near.actor(rows.obs))))
        assert float(metrics["kl"]) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("discrete", [False, True])
def test_a_step_that_goes_too_far_is_shortened(discrete):
    """To about twice `kl_stop`. One that goes a little too far is left as it is."""
    config = dataclasses.replace(
        SMALL, epochs=30, actor_learning_rate=0.3, minimum_log_std=-0.51, kl_stop=0.01
    )
    learner, batch = make(config, envs=40, discrete=discrete)
    (rows, _), lam, key = prepare(SMALL, learner, batch), jnp.ones(1), jax.random.key(3)
    far, metrics = improve(config, learner, rows, lam, key)
    assert int(metrics["actor_steps"]) == 1
    kl = float(jnp.mean(learner.actor(rows.obs).kl(far.actor(rows.obs))))
    assert 0.01 < kl < 0.06 < 0.2 < float(metrics["kl"])
    if not discrete:
        assert float(far.actor.log_std.min()) >= -0.51
    wide = dataclasses.replace(config, kl_stop=float(metrics["kl"]) / 1.9)
    kept, metrics = improve(wide, learner, rows, lam, key)
    whole, _ = improve(dataclasses.replace(config, epochs=1, kl_stop=None), learner, rows, lam, key)
    assert int(metrics["actor_steps"]) == 1
    assert_same(kept.actor, whole.actor)


def test_nothing_but_networks_and_moments_changes():
    config = dataclasses.replace(SMALL, normalise_observations=True)
    learner, batch = make(config)
    learner = actor_critic.observe(learner, dataclasses.replace(batch, obs=5 + 2 * batch.obs))
    new, _ = update(config, learner, batch, jnp.ones(1), jax.random.key(0))
    assert_same(new.multiplier, learner.multiplier)
    assert_same(new.normalizer, learner.normalizer)
    scaled = np.asarray(learner.scaled(5 + 2 * batch.obs))
    np.testing.assert_allclose(scaled.mean((0, 1)), 0, atol=1e-5)
    plain, _ = make(SMALL)
    assert actor_critic.observe(plain, batch) is plain


def test_observations_after_an_end_do_not_enter_the_statistics():
    learner, batch = make(dataclasses.replace(SMALL, normalise_observations=True))
    alive = jnp.ones((5, 4)).at[2:, 1].set(0.0)
    obs = jnp.where(alive[..., None] > 0, batch.obs, 1e3)
    learner = actor_critic.observe(learner, dataclasses.replace(batch, obs=obs, weight=alive))
    kept = np.asarray(batch.obs)[np.asarray(alive) > 0]
    np.testing.assert_allclose(learner.normalizer.mean, kept.mean(0), atol=1e-5)
    assert float(learner.normalizer.count) == 17


def test_last_observations_are_enough_without_ends_inside():
    learner, batch = make(SMALL)
    every = jnp.concatenate([batch.obs[1:], batch.next_obs])
    full = eqx.tree_at(lambda b: b.next_obs, batch, every)
    for config in (SMALL, dataclasses.replace(SMALL, value_targets="return")):
        a, b = (prepare(config, learner, x) for x in (batch, full))
        assert_same(a, b, atol=1e-5)
    # By hand, with every bootstrap from the right observation.
    values = np.asarray(learner.critics(batch.obs))[..., 1]
    after = np.asarray(learner.critics(every))[..., 1]
    delta = np.asarray(batch.cost)[..., 0] + 0.99 * after - values
    advantage = sum((0.99 * 0.95) ** i * delta[i] for i in range(5))
    targets = np.asarray(prepare(SMALL, learner, batch)[0].targets).reshape(5, 4, 2)
    np.testing.assert_allclose(targets[0, :, 1], advantage + values[0], atol=1e-4)


def test_a_fall_saves_no_endless_cost():
    """A robot falls in the middle of a batch. The value after it counts for costs, not for rewards.

    The critics are constant: 7 for the reward, 5 for the cost. Reward and cost are 1 per step.
    """
    learner, batch = make(SMALL, steps=3, envs=1)
    network = learner.critics.network
    last = lambda n: (n.weights[-1], n.biases[-1])
    weight, bias = last(network)
    constant = eqx.tree_at(last, network, (0 * weight, jnp.array([[7.0], [5.0]])))
    assert constant.biases[-1].shape == bias.shape
    learner = eqx.tree_at(lambda s: s.critics.network, learner, constant)
    falls = jnp.array([[False], [True], [False]])
    batch = dataclasses.replace(
        batch, reward=jnp.ones((3, 1)), cost=jnp.ones((3, 1, 1)), terminated=falls, ended=falls
    )
    for endless in (False, True):
        config = dataclasses.replace(SMALL, gamma=0.5, gae_lambda=0.0, endless_costs=endless)
        rows, _ = prepare(config, learner, batch)
        np.testing.assert_allclose(rows.targets[:, 0], [4.5, 1.0, 4.5], rtol=1e-6)
        np.testing.assert_allclose(rows.targets[:, 1], [3.5, 3.5 if endless else 1.0, 3.5])


@pytest.mark.slow
def test_a_trust_region_holds_the_policy():
    """Actions of 1 are rewarded. Without a bound the mean moves on, with one as far as it may.

    With a standard deviation s that hardly changes, a mean of m has a KL divergence of
    m^2 / (2 s^2) from one of 0.
    """
    config = dataclasses.replace(
        SMALL, epochs=30, actor_learning_rate=1e-2, initial_log_std=-1.0, minimum_log_std=-1.0
    )
    centre, _ = make(config)
    zero = jax.tree.map(jnp.zeros_like, centre.actor.network)
    centre = eqx.tree_at(lambda s: s.actor.network, centre, zero)

    def trained(radius):
        learner, shifts = centre, []
        region = None if radius is None else ppo.TrustRegion(centre.actor, radius)
        for i in range(15):
            _, batch = make(config, seed=i, steps=20)
            batch = dataclasses.replace(batch, action=learner.sample(batch.obs, jax.random.key(i)))
            reward = -jnp.square(batch.action - 1.0).sum(-1)
            batch = dataclasses.replace(batch, reward=reward)
            rows, _ = prepare(config, learner, batch)
            learner, metrics = improve(
                config, learner, rows, jnp.zeros(1), jax.random.key(i), region=region
            )
            shifts.append(float(metrics.get("shift", jnp.nan)))
        obs = jax.random.normal(jax.random.key(99), (500, 3))
        return np.asarray(learner.mode(obs)), shifts

    divergence = lambda mean: np.square(mean).sum(1).mean() / (2 * np.exp(-2.0))
    free, shifts = trained(None)
    assert divergence(free) > 0.8 and np.isnan(shifts).all()
    held, shifts = trained(0.1)
    assert divergence(held) == pytest.approx(shifts[-1], abs=0.05)
    assert shifts[-1] == pytest.approx(0.1, abs=0.05)


def test_rows_of_weight_zero_teach_nothing():
    learner, batch = make(SMALL)
    weight = jnp.ones((5, 4)).at[:, 1].set(0.0)
    batch = eqx.tree_at(lambda b: b.weight, batch, weight, is_leaf=lambda x: x is None)
    wild = eqx.tree_at(
        lambda b: (b.reward, b.cost),
        batch,
        (batch.reward.at[:, 1].set(1e3), batch.cost.at[:, 1].set(-1e3)),
    )
    a, b = (update(SMALL, learner, x, jnp.ones(1), jax.random.key(0))[0] for x in (batch, wild))
    assert_same(a, b, atol=1e-6)
    a_scales, b_scales = (prepare(SMALL, learner, x)[1] for x in (batch, wild))
    assert_same(a_scales, b_scales, rtol=1e-5)
    kept = jnp.array([0, 2, 3])
    few = jax.tree.map(lambda x: x[:, kept], eqx.tree_at(lambda b: b.weight, batch, None))
    c, _ = update(SMALL, learner, few, jnp.ones(1), jax.random.key(0))
    assert_same((a.actor, a.critics), (c.actor, c.critics), atol=1e-4)


def test_deviation_never_falls_below_its_floor():
    config = dataclasses.replace(
        SMALL, epochs=50, actor_learning_rate=0.1, initial_log_std=-0.5, minimum_log_std=-0.6
    )
    learner, batch = make(config)
    # Only the mean action pays, so the policy wants to be certain.
    reward = -jnp.sum(batch.action**2, -1)
    batch = eqx.tree_at(lambda b: b.reward, batch, reward)
    rows, _ = prepare(SMALL, learner, batch)
    after = lambda learner, *floor: improve(
        config, learner, rows, jnp.zeros(1), jax.random.key(0), 1.0, *floor
    )[0]
    certain = after(learner)
    np.testing.assert_allclose(certain.actor.log_std, -0.6, atol=1e-6)
    # With another floor; a policy that is below it already stays where it is.
    floor = jnp.float32(-0.55)
    np.testing.assert_allclose(after(learner, floor).actor.log_std, -0.55, atol=1e-6)
    np.testing.assert_allclose(after(certain, floor).actor.log_std, -0.6, atol=1e-6)


def test_another_scale_of_observations_changes_no_action_and_no_value():
    config = dataclasses.replace(SMALL, normalise_observations=True)
    learner, batch = make(config, k=2)
    seen = lambda s: (s.mode(batch.obs), s.critics(s.scaled(batch.obs)))
    scale = lambda s, m, v: actor_critic.rescaled(s, jnp.asarray(m), jnp.asarray(v))
    first = scale(learner, [0.5, -1.0, 2.0], [4.0, 0.25, 1.0])
    # The first scale belongs to networks that have not learned yet.
    assert_same((first.actor, first.critics), (learner.actor, learner.critics))
    second = scale(first, [0.1, 0.3, 2.5], [1.0, 2.0, 9.0])
    np.testing.assert_allclose(second.normalizer.var, [1.0, 2.0, 9.0])
    assert_same(seen(first), seen(second), atol=1e-5)
    assert np.abs(first.critics.network.weights[0] - second.critics.network.weights[0]).max() > 0.1


def test_critics_in_units_of_their_targets_have_the_same_values():
    config = dataclasses.replace(SMALL, normalise_values=True)
    learner, batch = make(config, k=2)
    rescale = actor_critic.rescale_values
    rows, _ = prepare(config, learner, eqx.tree_at(lambda b: b.reward, batch, 50 + batch.reward))
    first = rescale(learner, rows)
    np.testing.assert_allclose(first.value_scale.mean, rows.targets.mean(0), rtol=1e-5)
    np.testing.assert_allclose(first.value_scale.std, rows.targets.std(0), rtol=1e-4)
    # New critics begin near the mean of their targets; later units change no value.
    error = jnp.abs(first.values(rows.obs) - rows.targets)[:, 0].mean()
    assert float(error) < 2 * float(first.value_scale.std[0])
    other = eqx.tree_at(lambda r: r.targets, rows, 100 - 3 * rows.targets)
    second = rescale(first, other)
    np.testing.assert_allclose(second.value_scale.mean, other.targets.mean(0), rtol=1e-5)
    assert_same(first.values(rows.obs), second.values(rows.obs), rtol=1e-4)


def test_entropy_bonus_raises_the_deviation():
    config = dataclasses.replace(SMALL, epochs=20, entropy_coefficient=100.0)
    learner, batch = make(config)
    rows, _ = prepare(SMALL, learner, batch)
    new, metrics = improve(config, learner, rows, jnp.zeros(1), jax.random.key(0))
    assert np.all(np.asarray(new.actor.log_std) > -0.5 + 19 * 3e-4)
    assert float(metrics["entropy"]) > float(learner.actor(batch.obs[0, 0]).entropy())


def test_gradient_norm_is_cut():
    config = dataclasses.replace(SMALL, critic_epochs=1, max_grad_norm=1e-3)
    learner, batch = make(config)
    new, _ = fit(config, learner, prepare(SMALL, learner, batch)[0], jax.random.key(0))
    moment = jax.tree.leaves(new.critic_moments[1][0].mu)
    norm = np.sqrt(sum(float(jnp.sum(m**2)) for m in moment))
    assert norm == pytest.approx(0.1 * 1e-3, rel=1e-3)  # Adam keeps (1 - 0.9) of the first gradient


def test_over_seeds_as_alone():
    config = dataclasses.replace(SMALL, epochs=30, minibatches=2, kl_stop=0.01)
    config = dataclasses.replace(config, actor_learning_rate=5e-3)
    pairs = [make(config, seed=s) for s in (0, 1)]
    keys, lam = jax.random.split(jax.random.key(5)), jnp.ones((2, 1))
    learners, batches = jax.tree.map(lambda *x: jnp.stack(x), *pairs)
    many, metrics = jax.vmap(partial(update, config))(learners, batches, lam, keys)
    for i, (learner, batch) in enumerate(pairs):
        alone, alone_metrics = update(config, learner, batch, lam[i], keys[i])
        assert_same(jax.tree.map(lambda x, i=i: x[i], many), alone, atol=1e-4)
        assert int(metrics["actor_steps"][i]) == int(alone_metrics["actor_steps"])


@pytest.mark.parametrize(
    ("count", "parts", "size"),
    [(24, 4, 6), (27, 4, 6), (8, 8, 1), (153_000, 8, 18 * 1024), (1360, 10, 136)],
)
def test_minibatches_share_out_each_pass(count, parts, size):
    key = jax.random.key(0)
    passes = np.asarray(minibatch_rows(key, count, parts, 2)).reshape(2, parts, -1)
    for one in passes:
        assert all(len(rows) == size for rows in one)
        rows = np.concatenate(one)
        assert len(set(rows)) == len(rows) and rows.min() >= 0 and rows.max() < count
    if count > 8:
        assert any((a != b).any() for a, b in zip(*passes, strict=True))


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("gamma", 1.5),
        ("gae_lambda", -0.1),
        ("clip", 0.0),
        ("epochs", 0),
        ("minibatches", 0),
        ("actor_learning_rate", 0.0),
        ("kl_stop", -1.0),
        ("entropy_coefficient", -1.0),
        ("hidden", (0,)),
        ("minimum_log_std", 0.0),
        ("value_targets", "td"),
    ],
)
def test_bad_values_are_named(field, bad):
    with pytest.raises(ValueError, match=f"^{field}="):
        PPOConfig(**{field: bad})


def test_bad_batches_are_named():
    learner, batch = make(SMALL)
    wrong = eqx.tree_at(lambda b: b.next_obs, batch, batch.obs[:2])
    with pytest.raises(ValueError, match="next_obs has 2 rows"):
        update(SMALL, learner, wrong, jnp.ones(1), jax.random.key(0))
    config = dataclasses.replace(SMALL, minibatches=21)
    with pytest.raises(ValueError, match="minibatches=21"):
        update(config, learner, batch, jnp.ones(1), jax.random.key(0))
