"""How far practice is trusted: the performance ratio in models set by hand, and the cost gap."""

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


def test_the_gap_over_three_batches_by_hand():
    """Memory 0.5; gaps 6, 2, -2 with errors 2, 1, 0.5, and a second constraint alike but negated.

    totals 6, 5, 0.5; variances 4, 2, 0.75; weights 1, 1.5, 1.75; so means 6, 10/3, 2/7 and
    errors 2, sqrt(2) / 1.5, sqrt(0.75) / 1.75.
    """
    gap = trust.CostBias.none(2)
    np.testing.assert_array_equal(gap.value(), [0.0, 0.0])
    batches = [(10.0, 2.0, 4.0), (8.0, 1.0, 6.0), (3.0, 0.5, 5.0)]
    expected = [4.0, 10 / 3 - 2**0.5 / 1.5, 0.0]
    for (real, error, imagined), value in zip(batches, expected, strict=True):
        pair = jnp.array([real, imagined]), jnp.array([error, error]), jnp.array([imagined, real])
        gap = gap.seen(*pair, 0.5)
        np.testing.assert_allclose(gap.value(), [value, -value], atol=1e-6)
    assert float(gap.weight) == 1.75
    np.testing.assert_allclose(gap.total, [0.5, -0.5])
    np.testing.assert_allclose(gap.variance, [0.75, 0.75])


def test_without_memory_only_the_last_batch_counts():
    gap = trust.CostBias.none(1).seen(jnp.array([50.0]), jnp.array([1.0]), jnp.array([0.0]), 0.0)
    gap = gap.seen(jnp.array([7.0]), jnp.array([1.0]), jnp.array([4.0]), 0.0)
    np.testing.assert_allclose(gap.value(), [2.0])


def test_costs_are_put_right_by_the_gap_and_never_negative():
    gap = trust.CostBias.none(2).seen(
        jnp.array([12.0, 1.0]), jnp.array([1.0, 1.0]), jnp.array([8.0, 9.0]), 0.0
    )
    np.testing.assert_allclose(trust.cost_estimate(jnp.array([10.0, 5.0]), gap), [13.0, 0.0])


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
