"""SAC-Lagrangian: its arithmetic against numbers worked out by hand, its multiplier, learning."""

import csv
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import in_memory
from harness import OFF, SAC_LAGRANGIAN
from sac_toys import KEY, SMALL, transitions
from surefoot.algorithms.algorithm import ALGORITHMS, Shape
from surefoot.algorithms.sac_lagrangian import SACLagrangianConfig, pace
from surefoot.core.snapshot import to_arrays
from surefoot.core.spaces import ActionSpec
from surefoot.envs.gym.adapters import adapt
from surefoot.envs.task import TASKS
from surefoot.learn import replay
from surefoot.learn import sac_lagrangian as learning
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.sac_lagrangian import SACLagrangianLearnerConfig, pessimistic
from surefoot.runs.setup import new_setup
from surefoot.runs.train import begin, train
from surefoot.runs.warm_start import choose_seeds, open_source, warm_start
from toys import Drift, drift_offset, two_costs

PRICES = MultiplierConfig(kind="log-pi", initial=0.25)


def new(config: SACLagrangianLearnerConfig = SMALL, k: int = 1) -> learning.Learner:
    return learning.init(config, PRICES, 3, ActionSpec(2, (-1.0,) * 2, (1.0,) * 2), k, KEY)


def saying(learner: learning.Learner, values: list[list[float]]) -> learning.Learner:
    """The same learner with target critics that say [n][signals] everywhere."""
    zero = jax.tree.map(jnp.zeros_like, learner.targets)
    bias = jnp.asarray(values, jnp.float32).reshape(-1, 1)
    targets = eqx.tree_at(lambda t: t.network.biases[-1], zero, bias)
    return eqx.tree_at(lambda s: s.targets, learner, targets)


def test_of_two_critics_the_more_pessimistic_counts():
    values = jnp.asarray([[[5.0], [1.0], [7.0]], [[3.0], [2.0], [6.0]]])
    np.testing.assert_array_equal(pessimistic(values, KEY)[:, 0], [3.0, 2.0, 7.0])


def test_of_many_critics_two_random_ones_count():
    values = jnp.arange(5.0)[:, None, None] + jnp.zeros((5, 2, 1))
    drawn = [pessimistic(values, key)[:, 0] for key in jax.random.split(KEY, 200)]
    least, most = np.transpose(drawn)
    assert (least < most).all() and set(least) == {0, 1, 2, 3} and set(most) == {1, 2, 3, 4}


def test_the_targets_by_hand():
    """Reward in its unit 2: r / 2 + 0.9 (3 - 0.5 log pi). Costs: c + 0.8 * 7; nothing at an end."""
    config = replace(SMALL, gamma=0.9, cost_gamma=0.8)
    learner = saying(new(config), [[5.0, 7.0], [3.0, 6.0]])
    learner = eqx.tree_at(lambda s: s.rewards.var, learner, jnp.array([4.0]))
    batch = transitions(20)
    found = learning.soft_targets(config, learner, batch, KEY)
    obs = learner.normalizer(batch.next_obs)
    _, log_prob = learner.networks.actor(obs).draw(jax.random.split(KEY)[0])
    goes_on = ~np.asarray(batch.terminated)
    reward = np.asarray(batch.reward) / 2 + goes_on * 0.9 * (3.0 - 0.5 * np.asarray(log_prob))
    cost = np.asarray(batch.cost[:, 0]) + goes_on * 0.8 * 7.0
    np.testing.assert_allclose(found, [reward, cost], rtol=1e-5)
    assert goes_on.any() and not goes_on.all()


def test_scales_are_those_of_the_rows_that_are_there():
    """Rows after the first 2 of the buffer are not data. Rewards 1 and 3: root mean square 5^0.5"""
    rows = transitions(5)
    rows = eqx.tree_at(lambda r: r.reward, rows, jnp.array([1.0, 3.0, 100.0, 0.0, 0.0]))
    first = learning.observe(new(), rows, jnp.int32(0), jnp.int32(1))
    assert float(first.reward_scale) == pytest.approx(1.0, rel=1e-4)
    learner = learning.observe(first, rows, jnp.int32(1), jnp.int32(2))
    np.testing.assert_allclose(learner.normalizer.mean, rows.obs[:2].mean(0), rtol=1e-5)
    assert float(learner.reward_scale) == pytest.approx(5**0.5, rel=1e-4)


def test_scales_count_every_row_once_in_blocks_of_any_number():
    """600 rows are three blocks, of which the last is not full."""
    rows = transitions(600)
    first = learning.observe(new(), rows, jnp.int32(0), jnp.int32(300))
    for found in (first, learning.observe(first, rows, jnp.int32(300), jnp.int32(300))):
        assert float(found.normalizer.count) == 300.0
    learner = learning.observe(first, rows, jnp.int32(300), jnp.int32(600))
    assert float(learner.normalizer.count) == 600.0
    np.testing.assert_allclose(learner.normalizer.mean, rows.obs.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(learner.normalizer.var, rows.obs.var(0), rtol=1e-4)


def test_scales_follow_what_overwrites_a_full_buffer():
    """8 of 10 rows in place, then 4 more: numbers 8 to 11 stand in places 8, 9, 0 and 1. What was
    overwritten before it was counted is left out."""
    rows = transitions(10)
    rows = eqx.tree_at(lambda r: r.reward, rows, jnp.arange(10.0))
    observe = lambda since, added: (
        learning.observe(new(), rows, jnp.int32(since), jnp.int32(added)).rewards
    )
    assert float(observe(8, 12).count) == 4.0
    assert float(observe(8, 12).mean[0]) == pytest.approx((8 + 9 + 0 + 1) / 4)
    assert float(observe(0, 25).count) == 10.0
    assert float(observe(0, 25).mean[0]) == pytest.approx(4.5)


def test_batches_are_drawn_from_what_the_buffer_holds():
    rows = eqx.tree_at(lambda r: r.reward, transitions(10), jnp.arange(10.0))
    for added, values in ((3, range(3)), (10, range(10)), (25, range(10))):
        batch = replay.draw(rows, jnp.int32(added), 500, KEY)
        assert {*np.asarray(batch.reward, int).tolist()} == {*values}


def test_costs_whose_squares_vanish_have_the_unit_1():
    """The square of 1e-30 is 0 in single precision."""
    rows = eqx.tree_at(lambda r: r.cost, transitions(3), jnp.full((3, 1), 1e-30))
    learner = learning.observe(new(), rows, jnp.int32(0), jnp.int32(3))
    np.testing.assert_array_equal(learner.cost_scale, [1.0])


def test_the_unit_of_a_cost_leaves_out_the_steps_without():
    """Costs 0, 30 and 40: the root mean square of the last two is 1250^0.5; of 0 and 1 it is 1."""
    rows, none = transitions(3, 2), jnp.int32(0)
    rows = eqx.tree_at(lambda r: r.cost, rows, jnp.array([[0.0, 0.0], [30.0, 1.0], [40.0, 0.0]]))
    learner = learning.observe(new(k=2), rows, none, none)
    np.testing.assert_array_equal(learner.cost_scale, [1.0, 1.0])
    learner = learning.observe(learner, rows, none, jnp.int32(3))
    np.testing.assert_allclose(learner.cost_scale, [1250**0.5, 1.0], rtol=1e-6)
    learner = eqx.tree_at(lambda s: s.spread, learner, jnp.array([2.0, 3.0, 5.0]))
    np.testing.assert_allclose(learner.scales().costs, [1250**0.5 * 1.5, 2.5], rtol=1e-4)


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_learning_does_not_depend_on_the_unit_of_the_cost(unit):
    """With costs in another unit and lambda in its inverse, the same policy is learned."""
    moved, batch = [], transitions(32)
    for scale in (1.0, unit):
        rows = eqx.tree_at(lambda r: r.cost, batch, scale * batch.cost)
        learner = learning.observe(new(), rows, jnp.int32(0), jnp.int32(32))
        step = jax.jit(
            lambda learner, key, rows=rows, scale=scale: learning.update(
                SMALL, learner, rows, jnp.array([2.0 / scale]), jnp.int32(0), key, 1.0, -2.0
            )[0]
        )
        for key in jax.random.split(KEY, 5):
            learner = step(learner, key)
        moved.append(learner.networks)
    for one, other in zip(*map(jax.tree.leaves, moved), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_the_policy_follows_reward_less_price_times_cost():
    """Critics that say q = a_0 and c = a_1: the first action rises, and the second falls if it has
    a price."""
    config = replace(SMALL, learning_rate=1e-2, initial_temperature=1e-6)
    learner = new(config)

    def linear(critics: learning.SignalCritics) -> learning.SignalCritics:
        # One hidden layer of pairs (x, -x): relu(x) - relu(-x) = x, up to its normalisation.
        weights = np.zeros((4, 5, 8), np.float32)
        for signal, action in ((0, 3), (1, 4), (2, 3), (3, 4)):
            weights[signal, action, :2] = 1.0, -1.0
        last = np.zeros((4, 8, 1), np.float32)
        last[:, 0], last[:, 1] = 1.0, -1.0
        where = lambda c: (c.network.weights, c.network.biases)
        zeros = [jnp.zeros_like(b) for b in critics.network.biases]
        return eqx.tree_at(where, critics, ([jnp.asarray(weights), jnp.asarray(last)], zeros))

    learner = eqx.tree_at(lambda s: s.networks.critics, learner, linear(learner.networks.critics))
    batch = transitions(64)
    improve = jax.jit(
        lambda learner, lam, key: learning.improve_policy(
            config, learner, batch, lam, key, 1.0, -100.0
        )[0]
    )
    mean = lambda learner: learner.networks.actor(batch.obs).gaussian.mean.mean(0)
    moved = {}
    for lam in (0.0, 1.0):
        now = learner
        for key in jax.random.split(KEY, 60):
            now = improve(now, jnp.array([lam]), key)
        moved[lam] = np.asarray(mean(now) - mean(learner))
    assert moved[0.0][0] > 0.1 and moved[1.0][0] > 0.05
    assert moved[1.0][1] < -0.05 and abs(moved[0.0][1]) < 0.5 * abs(moved[1.0][1])


def test_the_policy_moves_in_every_nth_update_only():
    config, batch = replace(SMALL, policy_every=3), transitions(16)
    step = jax.jit(
        lambda learner, i: learning.update(config, learner, batch, jnp.zeros(1), i, KEY, 1.0, -2.0)[
            0
        ]
    )
    learner = new(config)
    for i in range(3):
        moved = step(learner, jnp.int32(i))
        same = lambda part, moved=moved: all(
            (a == b).all() for a, b in zip(
                jax.tree.leaves(part(learner)), jax.tree.leaves(part(moved)), strict=True
            )
        )  # fmt: skip
        assert not same(lambda s: s.networks.critics) and not same(lambda s: s.targets)
        assert same(lambda s: s.networks.actor) == (i < 2)


def test_the_pace():
    config = SACLagrangianConfig(final_rate=0.2)
    for share, rate, entropy in ((0.0, 1.0, -3.0), (0.5, 0.6, -3.0), (1.0, 0.2, -6.0)):
        found = pace(config, 3, jnp.float32(share))
        np.testing.assert_allclose(found, (rate, entropy), rtol=1e-6)


def test_training_returns_the_average_of_the_policy():
    """After one update 0.9 of the old policy and 0.1 of the new one; the new one acts."""
    config = replace(SMALL, averaging=0.9)
    learner, batch = new(config), transitions(16)
    improve = lambda learner: learning.improve_policy(
        config, learner, batch, jnp.zeros(1), KEY, 1.0, -1.0
    )[0]
    first = improve(learner)
    weight = lambda actor: actor.network.weights[0]
    old, changed = weight(learner.networks.actor), weight(first.networks.actor)
    assert float(jnp.abs(changed - old).max()) > 0
    np.testing.assert_allclose(weight(first.average), 0.9 * old + 0.1 * changed, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"critics": 1}, "critics=1 must be at least 2"),
        ({"policy_every": 0}, "policy_every=0 must be"),
        ({"cost_gamma": 1.5}, "cost_gamma=1.5 must be"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        SACLagrangianLearnerConfig(**change)


def test_every_round_has_as_many_updates_of_the_policy():
    with pytest.raises(ValueError, match=r"updates=6 .* multiple of sac.policy_every=4, such as 8"):
        SACLagrangianConfig(updates=6)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A run of two seeds and two constraints, both far above their limits."""
    out = tmp_path_factory.mktemp("learned") / "run"
    return train(two_costs, config=CONFIG, out=out, seeds=2, quiet=True, checkpoint_every=0)


CONFIG = SACLagrangianConfig(
    sac=SAC_LAGRANGIAN,
    **{**OFF, "steps": 160, "steps_per_epoch": 40, "replay": 200, "cost_limit": (30.0, 60.0)},
)  # fmt: skip


def test_every_epoch_has_the_same_columns(learned):
    """The first has no updates, so that nothing is known of the multipliers."""
    with (learned / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert OFF["random_steps"] > 40 and len(rows) == 8
    prices = np.array(
        [[float(row[f"lambda_{c}"] or "nan") for c in ("first", "second")] for row in rows]
    )
    assert np.isnan(prices[:2]).all() and (prices[-2:] > 0).all()


def test_a_warm_start_takes_what_the_price_is_made_of(learned):
    """Policy, critics with the units and spreads of values, multipliers and data."""
    source = open_source(learned)
    setup = new_setup(two_costs, "sac-lagrangian", "default", "cpu", (7, 8), CONFIG, {}, {})
    trainer = begin(setup).trainer
    fresh = to_arrays(trainer.snapshot())
    record = warm_start(trainer, source, choose_seeds(source, 2, None))
    assert record.taken == ["policy", "critics", "multipliers", "data"]
    assert record.left_out == {}
    found = to_arrays(trainer.snapshot())
    for name in (
        "learner/policy_moments/0/count", "learner/average/network/biases/0",
        "learner/critic_moments/0/count", "learner/rewards/var",
        "learner/cost_squares/mean", "learner/normalizer/mean", "learner/spread",
        "learner/multiplier/raw", "cost", "priced",
    ):  # fmt: skip
        name = f"state/{name}"
        np.testing.assert_array_equal(found[name], source.arrays[f"trainer/{name}"], err_msg=name)
        assert not np.array_equal(found[name], fresh[name], equal_nan=True), name


def test_a_warm_start_without_data_keeps_the_scale_that_the_policy_saw(learned):
    """What the new run sees counts beside it."""
    source = open_source(learned)
    setup = new_setup(two_costs, "sac-lagrangian", "default", "cpu", (7,), CONFIG, {}, {})
    trainer = begin(setup).trainer
    warm_start(trainer, source, choose_seeds(source, 1, 0), ["policy"])
    before = trainer.state.learner.normalizer
    assert float(before.count[0]) == 160.0
    rows = jax.tree.map(lambda x: x[None], transitions(30, 2))
    rows = eqx.tree_at(lambda r: (r.obs, r.next_obs), rows, (100 * rows.obs[..., :1],) * 2)
    one = jax.tree.map(lambda x: x[0], (trainer.state.learner, rows))
    after = learning.observe(*one, jnp.int32(0), jnp.int32(30)).normalizer
    assert float(after.count) == 190.0
    expected = (160 * before.mean[0] + 30 * one[1].obs.mean(0)) / 190
    np.testing.assert_allclose(after.mean, expected, rtol=1e-4)


def test_the_policy_that_acts_is_not_the_average():
    setup = new_setup(two_costs, "sac-lagrangian", "default", "cpu", (7,), CONFIG, {}, {})
    trainer = begin(setup).trainer
    trainer.state = eqx.tree_at(
        lambda s: s.learner.average.network.biases[-1], trainer.state, replace_fn=lambda x: x + 1.0
    )
    returned, acting = trainer.policy(), trainer._policy
    np.testing.assert_allclose(returned.biases[-1], acting.biases[-1] + 1.0, rtol=1e-6)


def test_the_preset():
    ours = ALGORITHMS["sac-lagrangian"]
    own = lambda shape: ours.preset("default", TASKS["RCCar"], "cpu", shape)
    assert own(Shape(8, 2, 200)).steps == 20_000 and own(Shape(40, 6, 1000)).steps == 100_000
    assert ours.preset("default", TASKS["PointGoal"], "gpu").observation == "reference"
    assert ours.keeps_limit(own(None))


def test_a_wrong_level_is_soon_mended():
    """Critics say 0 where every cost is 50 and nothing follows: they come near within 60 updates,
    long before the network has learned anything."""
    learner, batch = new(), transitions(64)
    costly = eqx.tree_at(
        lambda b: (b.cost, b.terminated), batch, (jnp.full((64, 1), 50.0), jnp.ones(64, bool))
    )
    fit = jax.jit(lambda learner: learning.fit_critics(SMALL, learner, costly, KEY, 1.0)[0])
    for _ in range(60):
        learner = fit(learner)
    found = learner.networks.critics(learner.normalizer(costly.obs), costly.action)[:, 1]
    np.testing.assert_allclose(found.mean(-1), 50.0, atol=1.0)


@pytest.mark.slow
def test_the_constrained_optimum_of_drift():
    """Known by calculus: a*(s) = s + an offset that the limit fixes, which is 0 without one.

    Every step costs about 3, and the choice of an action moves that by a tenth: the level of the
    values is large beside what matters.
    """
    limit = 60.0
    config = SACLagrangianConfig(
        steps=12_000, cost_limit=(limit,), beta=1.0, random_steps=500, steps_per_epoch=1_000,
        updates=100, sac=SACLagrangianLearnerConfig(hidden=(32, 32), batch_size=64),
        cost_memory=0.01, multiplier=MultiplierConfig(kind="log-pi", integral_gain=2.0),
    )  # fmt: skip
    *_, last = in_memory.epochs(config, lambda n: adapt(Drift, num_envs=n))
    states = np.linspace(0.3, 1.7, 15)[:, None]
    found = last.policy.seed(0).act(states)[:, 0] - states[:, 0]
    print(f"offset {found.mean():.2f} (exact {drift_offset(limit):.2f})")
    assert found.mean() == pytest.approx(drift_offset(limit), abs=0.15)
    assert found.std() < 0.15
