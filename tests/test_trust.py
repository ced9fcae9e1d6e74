"""How far practice is trusted: performance ratios in models set by hand, and totals of episodes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from surefoot.core.spaces import ActionSpec
from surefoot.world import trust
from surefoot.world.black_box import BlackBox
from surefoot.world.imagination import LearnedWorld, imagine
from toys import linear_ensemble

ACTIONS = ActionSpec(1, low=(-5.0,), high=(5.0,))
DRIFTS = np.array([-0.2, -0.1, 0.1, 0.2])


def model(std: float):
    """Four members that say s' = s + a + their own drift, and noise of the given deviation."""
    matrices = np.tile([[[0.0], [1.0]]], (4, 1, 1))
    return linear_ensemble(matrices, DRIFTS[:, None], gaussian=1, std=std)


@partial(jax.jit, static_argnames=("reward", "rollouts"))
def ratio(key, std_model, new, old, reward, rollouts=8):
    """The performance ratio of always doing `new` over always doing `old`."""
    task_model = BlackBox(1, terminates=False, reward_fn=reward, cost_fn=lambda s, a, t: a)

    def score(action):
        policy = lambda obs, key: jnp.full((rollouts, 1), action)

        def within(member):
            start = jnp.zeros((rollouts, 1))
            seen, _ = imagine(
                LearnedWorld(task_model, ACTIONS, std_model), policy, start, 3, key, member
            )
            return seen.returns().mean()

        return within

    over_elites = lambda action: jax.vmap(score(action))(std_model.elites)
    return trust.performance_ratio(over_elites(new), over_elites(old))


def near_two(s, a, after):
    return -((after[0] - 2.0) ** 2)


def near_zero(s, a, after):
    return -(after[0] ** 2)


def forward(s, a, after):
    return after[0]


def test_a_clear_improvement_scores_one_and_a_clear_worsening_zero():
    key = jax.random.key(0)
    assert ratio(key, model(0.1), 0.7, -0.5, near_two) == 1.0
    assert ratio(key, model(0.1), -0.5, 0.7, near_two) == 0.0
    assert ratio(key, model(0.1), 0.7, 0.7, near_two) == 0.0  # no improvement is not one


def test_members_disagree_where_their_worlds_do():
    """To push by 0.15 or not, where rest at 0 is best and there is no noise.

    After k steps member i is at k (a + drift_i), so a push pays where |0.15 + drift| < |drift|:
    for the drifts -0.2 and -0.1, which leave 0.05 either way, and for no other.
    """
    assert ratio(jax.random.key(0), model(0.0), 0.15, 0.0, near_zero) == 0.5


def test_equal_policies_win_half_of_the_time():
    """+0.3 and -0.3 mirror each other in a world whose noise and drifts are symmetric."""
    keys = jax.random.split(jax.random.key(1), 600)
    result = jax.vmap(lambda k: ratio(k, model(1.0), 0.3, -0.3, near_zero, rollouts=4))(keys)
    assert np.mean(np.asarray(result)) == pytest.approx(0.5, abs=0.07)
    assert 0.0 in result and 1.0 in result


def test_common_luck_lets_a_tiny_improvement_be_seen():
    """A gain of 0.006 under noise of about 4: unpaired scores would call it a coin toss."""
    keys = jax.random.split(jax.random.key(2), 100)
    result = jax.vmap(lambda k: ratio(k, model(1.0), 0.001, 0.0, forward, rollouts=1))(keys)
    assert (np.asarray(result) == 1.0).all()


def test_the_ratio_over_three_batches_by_hand():
    """Memory 0.5, limit 4, and real costs 10, 8, 3 with errors 5, 1, 3 beside imagined 4, 6, 5.

    Sums are 10, 13, 9.5 and 4, 8, 9. With nine episodes per batch an error is at least a third of
    the imagined cost: variances 25, 4, 9 and, in the sums, 25, 10.25, 11.5625.
    """
    limit = jnp.array([4.0])
    ratio = trust.CostRatio.none(1)
    np.testing.assert_array_equal(ratio.value(limit), [1.0])
    batches = [(10.0, 5.0, 4.0), (8.0, 1.0, 6.0), (3.0, 3.0, 5.0)]
    expected = [(14, 8, 25.0), (17, 12, 10.25), (13.5, 13, 11.5625)]
    for batch, (real, imagined, variance) in zip(batches, expected, strict=True):
        cost, error, seen = (jnp.array([x]) for x in batch)
        ratio = ratio.seen(cost, error, seen, 9, 0.5)
        certainty = 1 / (1 + 2 * variance / real**2)
        np.testing.assert_allclose(ratio.value(limit), [(real / imagined) ** certainty], rtol=1e-5)


def test_without_memory_only_the_last_batch_counts():
    one = lambda x: jnp.array([x])
    earlier = trust.CostRatio.none(1).seen(one(50.0), one(1.0), one(0.0), 4, 0.0)
    for ratio in (trust.CostRatio.none(1), earlier):
        ratio = ratio.seen(one(7.0), one(0.0), one(4.0), 4, 0.0)
        np.testing.assert_allclose(ratio.value(one(1.0)), [1.6 ** (1 / (1 + 8 / 64))], rtol=1e-5)


@pytest.mark.parametrize(
    ("real", "error", "imagined", "limit", "least", "most"),
    [
        (0.0, 0.0, 0.0, 5.0, 1.0, 1.0),
        (5.0, 0.0, 0.0, 5.0, 2.0, 2.0),  # a cost that was not imagined at all is no infinity
        (3.0, 0.0, 0.0, 0.0, 4.0, 4.0),  # a limit of 0 is no unit
        (900.0, 9.0, 300.0, 1.0, 2.5, 901 / 301),  # sure, and far from the limit
        (10.0, 1e4, 5.0, 5.0, 1.0, 1.001),  # anything could be true
        (0.0, 0.0, 10.0, 5.0, 0.4, 0.9),  # a few cheap episodes are not sure
    ],
)
def test_the_ratio_of_one_batch(real, error, imagined, limit, least, most):
    one = lambda x: jnp.array([x])
    ratio = trust.CostRatio.none(1).seen(one(real), one(error), one(imagined), 3, 0.8)
    assert least - 1e-6 <= float(ratio.value(one(limit))[0]) <= most + 1e-6


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_progress_is_a_gain_of_five_percent(sign):
    """Rewards of constant value, then better ones, of which a tenth enters at once."""
    progress, stale = trust.Progress.none(), []
    better = 20.0 if sign > 0 else -4.0
    for reward in [sign * 10.0] * 4 + [better] * 10:
        progress = progress.seen(jnp.float32(reward))
        stale.append(int(progress.stale))
    assert stale[:5] == [0, 1, 2, 3, 0]  # 11 after 10, and -9.4 after -10, are gains
    smoothed = sign * 10.0
    for _ in range(10):
        smoothed = 0.9 * smoothed + 0.1 * better
    assert float(progress.smoothed) == pytest.approx(smoothed, rel=1e-5)
    assert int(progress.updates) == 14


def test_worse_rewards_are_no_progress():
    progress = trust.Progress.none()
    for reward in (10.0, 8.0, 6.0, 10.2):
        progress = progress.seen(jnp.float32(reward))
    assert (float(progress.best), int(progress.stale)) == (10.0, 3)


def test_imagination_is_trusted_for_fewer_steps_while_it_is_wrong():
    reach, wrong = np.array([80.0, 80.0, 6.0, 20.0]), np.array([True, False, True, False])
    np.testing.assert_allclose(trust.next_reach(reach, wrong, 80), [56.0, 80.0, 20.0, 26.0])
    assert trust.next_reach(np.array([1.0]), np.array([True]), 3) == [1.0]  # short episodes


def test_a_reward_rises_quickly_if_it_is_a_tenth_above_the_best():
    best = np.array([10.0, 10.0, -10.0, -10.0, np.nan, 0.0])
    reward = np.array([11.1, 10.9, -8.9, -9.1, 5.0, 0.1])
    assert trust.well_above(reward, best).tolist() == [True, False, True, False, False, True]


def test_rollouts_near_the_data_do_not_count_as_episodes():
    """Two windows of totals 1 and 3; a third rollout, of 100, would spoil an unseen window."""
    counted = totals([1.0, 3.0, 100.0], [True] * 3, [0, 1, trust.NO_WINDOW], 2)
    assert counted == pytest.approx(4.0)
    assert totals([1.0, 3.0, 100.0], [True] * 3, [0, 0, trust.NO_WINDOW], 2) == pytest.approx(4.0)


def totals(values, survived, window, windows, last_share=1.0):
    values = jnp.asarray(values, jnp.float32).reshape(len(survived), -1)
    result = trust.episode_totals(
        values, jnp.asarray(survived), jnp.asarray(window), windows, last_share
    )
    return np.asarray(result)


def test_totals_without_termination_are_sums_over_windows():
    """Two totals at once; window 0 has three rollouts, the others one or two."""
    values = [[1, 10], [2, 10], [3, 40], [5, 0], [7, 1], [9, 3]]
    got = totals(values, [True] * 6, [0, 0, 0, 1, 2, 2], 3)
    np.testing.assert_allclose(got, [2 + 5 + 8, 20 + 0 + 2])


def test_totals_with_termination_weigh_windows_by_survival():
    """Window 0: half survive, mean 4. Window 1: a third survive, mean 6. Window 2: mean 12."""
    values = [2, 6, 3, 6, 9, 12]
    survived = [True, False, True, False, False, False]
    got = totals(values, survived, [0, 0, 1, 1, 1, 2], 3)
    np.testing.assert_allclose(got, [4 + 6 / 2 + 12 / 6], rtol=1e-6)


def test_totals_of_a_constant_chance_to_end():
    """Cost 1 a step and a chance of 1 % to end at each, 1,000 steps, seen in windows of 50."""
    stay, length, many = 0.99, 50, 20
    within = (1 - stay**length) / (1 - stay)  # expected steps of a window
    n = 4000
    rng = np.random.default_rng(0)
    lengths = rng.geometric(1 - stay, n)
    values, survived = np.minimum(lengths, length), lengths > length
    assert values.mean() == pytest.approx(within, rel=0.02)
    truth = (1 - stay**1000) / (1 - stay)
    for window in (np.zeros(n, int), rng.integers(0, many, n), np.full(n, -1)):
        assert totals(values, survived, window, many)[0] == pytest.approx(truth, rel=0.05)
    # Without survival, the mean of a window would count for all of them: 8 times as much.
    assert many * values.mean() > 7 * truth


def test_windows_without_rollouts_take_the_mean_of_all():
    """Windows 1 and 3 are empty: the mean of all is 6, and all but one of four survive."""
    got = totals([2, 4, 8, 10], [True, True, True, False], [0, 0, 2, 2], 4)
    np.testing.assert_allclose(got, [3 + 6 + 0.75 * 9 + 0.75 * 0.5 * 6])


def test_a_shorter_last_window():
    """Its own rollouts are as long as it is; others are cut to its share."""
    assert totals([4, 3], [True, True], [0, 1], 2, 0.75) == pytest.approx(4 + 3)
    assert totals([4, 4], [True, True], [0, 0], 3, 0.75) == pytest.approx(4 + 4 + 3)


def test_rollouts_of_unknown_windows_count_only_in_the_mean_of_all():
    got = totals([2, 100, 6], [True, False, True], [0, -1, 1], 2)
    np.testing.assert_allclose(got, [2 + 6])
    got = totals([2, 100], [True, False], [0, -1], 2)
    np.testing.assert_allclose(got, [2 + 51])


@pytest.mark.parametrize(
    ("real", "error", "imagined", "apart"),
    [
        (30.0, 2.0, 10.0, True),  # 20 is beyond two errors and beyond half of 18
        (10.0, 2.0, 30.0, True),
        (30.0, 11.0, 10.0, False),  # 20 may be chance
        (14.0, 0.1, 6.0, False),  # 8 is certain, but less than half the limit
        (15.0, 0.1, 6.0, False),  # exactly half is not more
    ],
)
def test_real_and_imagined_cost_have_parted(real, error, imagined, apart):
    one = lambda x: jnp.array([x])
    result = trust.mismatched(one(real), one(error), one(imagined), one(18.0))
    assert result.tolist() == [apart]
