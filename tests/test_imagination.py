"""Imagined rollouts under models set by hand, against plain loops."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from surefoot.core.spaces import ActionSpec
from surefoot.envs.navigation.goal import GoalConfig
from surefoot.envs.navigation.goal_model import EgoGoalModel
from surefoot.world import ensemble as ensembles
from surefoot.world.black_box import BlackBox
from surefoot.world.ensemble import EnsembleConfig
from surefoot.world.imagination import LearnedWorld, Restarts, imagine, last_steps
from toys import linear_ensemble

ACTIONS = ActionSpec(1, low=(-0.5,), high=(0.5,))
# A turning, slowly growing system pushed by the action; the action is cut at 0.5.
TURN = 1.05 * np.array([[np.cos(0.4), np.sin(0.4)], [-np.sin(0.4), np.cos(0.4)]])
PUSH = np.array([0.3, -0.2])
REWARD, COST = np.array([0.7, -0.4, 0.5]), np.array([[0.1, 0.2], [0.0, 1.0], [-0.5, 0.3]])
END = 1.5  # an episode ends with the step that starts beyond it
FINAL = -20.0  # factor on the reward of that step
GAIN = np.array([0.8, -0.6])
STARTS = np.array([[1.0, 0.2], [-0.5, 0.4], [0.1, -0.9], [1.2, 1.0], [0.0, 0.0], [-1.1, -0.3]])
HORIZON = 12


def perfect_model(rewards=(1.0,), std=0.0, elites=None):
    """One member per entry of `rewards`, the true system but for this factor on the reward."""
    # State and action to: change of state, reward, reward at the end, two costs, whether there are
    # any, end.
    matrix = np.zeros((3, 9))
    matrix[:2, :2] = TURN - np.eye(2)
    matrix[2, :2] = PUSH
    matrix[:, 4:6] = COST
    matrix[0, 8] = 1e5  # a logit so steep that the end is certain, or certain not to be
    matrices = np.stack([matrix] * len(rewards))
    matrices[:, :, 2] = np.asarray(rewards)[:, None] * REWARD
    matrices[:, :, 3] = FINAL * matrices[:, :, 2]
    offsets = np.zeros((len(rewards), 9))
    offsets[:, 6:8] = 1e5  # every step costs; a negative amount is none
    offsets[:, 8] = -1e5 * END
    return linear_ensemble(matrices, offsets, gaussian=6, std=std, elites=elites)


TASK_MODEL = BlackBox(2, cost_names=("a", "b"))


@jax.jit
def roll(ensemble, key, member=None, states=STARTS, noise=0.0, shift=0.0, left=None, restarts=None):
    states = jnp.asarray(states, jnp.float32)

    def policy(obs, key):
        means = obs @ jnp.asarray(GAIN)[:, None] + shift
        return means + noise * jax.random.normal(key, means.shape)

    world = LearnedWorld(TASK_MODEL, ACTIONS, ensemble)
    return imagine(world, policy, states, HORIZON, key, member, left, restarts=restarts)


def truth(left=(HORIZON,) * 6):
    """Reward [B], costs [B, 2], length [B] and last state [B, 2] of each episode, by a loop."""
    reward, cost, length, last = np.zeros(6), np.zeros((6, 2)), np.zeros(6, int), np.zeros((6, 2))
    for i, s in enumerate(STARTS):
        for _ in range(min(left[i], HORIZON)):
            x = np.append(s, np.clip(s @ GAIN, -0.5, 0.5))
            over = s[0] > END
            reward[i] += x @ REWARD * (FINAL if over else 1.0)
            cost[i] += np.maximum(x @ COST, 0.0)
            length[i] += 1
            s = last[i] = s @ TURN + x[2] * PUSH
            if over:
                break
    return reward, cost, length, last


def test_a_perfect_model_imagines_the_true_returns():
    rollout, states = roll(perfect_model(), jax.random.key(0))
    reward, cost, length, _ = truth()
    assert length.min() < HORIZON == length.max()  # some end, some do not
    np.testing.assert_allclose(rollout.returns(), reward, atol=1e-4)
    np.testing.assert_allclose(rollout.cost_returns(), cost, atol=1e-4)
    np.testing.assert_array_equal(rollout.alive.sum(0), length)
    np.testing.assert_allclose(rollout.last_obs, states)


def test_what_follows_an_end_does_not_count():
    rollout, _ = roll(perfect_model(), jax.random.key(0))
    for i, n in enumerate(truth()[2]):
        np.testing.assert_array_equal(rollout.alive[:, i], np.arange(HORIZON) < n)
        ends = np.flatnonzero(rollout.terminated[:, i])
        assert list(ends) == ([n - 1] if n < HORIZON else [])
    assert np.abs(np.asarray(rollout.reward)[np.asarray(rollout.alive) == 0]).max() > 0.1


def test_rollouts_stay_where_their_time_limit_ends_them():
    """Episodes terminate after 10, 4 and 7 steps or do not: before, with and after their limit."""
    left = (3, HORIZON + 9, 4, HORIZON, 1, 2)
    free, _ = roll(perfect_model(), jax.random.key(0))
    rollout, states = roll(perfect_model(), jax.random.key(0), left=jnp.array(left))
    reward, cost, length, last = truth(left)
    unlimited = truth()[2]
    assert length.tolist() == [3, 10, 4, HORIZON, 1, 2] and unlimited[5] == 7
    np.testing.assert_allclose(rollout.returns(), reward, atol=1e-4)
    np.testing.assert_allclose(rollout.cost_returns(), cost, atol=1e-4)
    np.testing.assert_allclose(rollout.last_obs, last, atol=1e-4)
    np.testing.assert_array_equal(states, rollout.last_obs)
    for i, n in enumerate(length):
        np.testing.assert_array_equal(rollout.alive[:, i], np.arange(HORIZON) < n)
        np.testing.assert_array_equal(last_steps(rollout.alive)[:, i], np.arange(HORIZON) == n - 1)
        ends = np.flatnonzero(rollout.terminated[:, i])
        assert list(ends) == ([n - 1] if n == unlimited[i] < HORIZON else [])
        # Rows after the end show the final observation, which critics bootstrap from.
        np.testing.assert_array_equal(rollout.obs[:n, i], free.obs[:n, i])
        np.testing.assert_array_equal(rollout.obs[n:, i], np.tile(states[i], (HORIZON - n, 1)))


def test_rollouts_that_restart_begin_again_at_other_states():
    """Every 3 steps; the row in between shows the final state of a segment, with weight 0."""
    some, pool = np.array([False, True] * 3), np.array([[0.3, 0.1], [-0.2, 0.4], [0.1, -0.3]])
    restarts = Restarts(jnp.asarray(some), jnp.asarray(pool, jnp.float32), jnp.int32(3))
    free, _ = roll(perfect_model(), jax.random.key(0))
    rollout, _ = roll(perfect_model(), jax.random.key(0), restarts=restarts)
    np.testing.assert_array_equal(rollout.obs[:, ~some], free.obs[:, ~some])
    np.testing.assert_array_equal(rollout.alive[:, ~some], free.alive[:, ~some])
    starts = set()
    for i in np.flatnonzero(some):
        ends = truth()[2][i]  # the first segment may terminate
        alive = np.tile([1.0, 1.0, 1.0, 0.0], 3)
        alive[ends:3] = 0
        np.testing.assert_array_equal(rollout.alive[:, i], alive)
        for t in range(HORIZON - 1):
            s, after = np.asarray(rollout.obs[t : t + 2, i], float)
            if t % 4 == 3:
                starts.add(int(np.abs(pool - after).sum(1).argmin()))
                assert np.abs(pool - after).sum(1).min() < 1e-6
            else:
                action = np.clip(s @ GAIN, -0.5, 0.5)
                np.testing.assert_allclose(after, s @ TURN + action * PUSH, atol=1e-5)
    assert len(starts) > 1


def test_noise_scales_what_is_drawn():
    """The first step of the same draws: half the noise is half the distance from the mean."""
    key = jax.random.key(4)
    after = {}
    for noise in (0.0, 0.5, 1.0):
        ensemble = dataclasses.replace(perfect_model(std=0.3), noise=noise)
        after[noise] = np.asarray(roll(ensemble, key)[0].obs[1])
    np.testing.assert_allclose(after[0.0], roll(perfect_model(), key)[0].obs[1], atol=1e-6)
    drawn = after[1.0] - after[0.0]
    assert np.abs(drawn).max() > 0.2
    np.testing.assert_allclose(after[0.5] - after[0.0], 0.5 * drawn, atol=1e-6)


def test_the_same_key_brings_the_same_luck():
    noisy = perfect_model(std=0.1)
    one, _ = roll(noisy, jax.random.key(1), noise=0.3)
    again, _ = roll(noisy, jax.random.key(1), noise=0.3)
    other, _ = roll(noisy, jax.random.key(2), noise=0.3)
    jax.tree.map(np.testing.assert_array_equal, one, again)
    assert np.abs(one.reward - other.reward).min(1).max() > 1e-3


def test_two_policies_given_one_key_differ_only_by_what_they_do():
    """Near rest, where no action is cut, the noise of a linear system cancels in a difference."""
    model, key = perfect_model(std=0.02), jax.random.key(3)
    states = jnp.zeros((5, 2))
    one, _ = roll(model, key, states=states, noise=0.02)
    two, _ = roll(model, key, states=states, noise=0.02, shift=0.05)
    apart, expected = np.zeros(2), []
    for _ in range(HORIZON):
        expected.append(apart)
        apart = apart @ TURN + (apart @ GAIN + 0.05) * PUSH
    gaps = np.asarray(two.obs - one.obs)
    assert np.asarray(one.obs).std(1)[-1].min() > 0.02  # there was noise to cancel
    np.testing.assert_allclose(gaps, np.repeat(np.array(expected)[:, None], 5, 1), atol=1e-5)


def test_one_member_alone_and_elites_in_turn():
    """Members 0 to 3 promise 1, 10, 100 and 1000 times the reward; 1 and 3 are elite."""
    model = perfect_model((1.0, 10.0, 100.0, 1000.0), elites=(3, 1))
    reward = truth()[0]
    for i, factor in enumerate((1.0, 10.0, 100.0, 1000.0)):
        rollout, _ = roll(model, jax.random.key(0), jnp.asarray(i))
        np.testing.assert_allclose(rollout.returns(), factor * reward, rtol=1e-4, atol=1e-4)
    base, _ = roll(model, jax.random.key(0), jnp.asarray(0))
    mixed, _ = roll(model, jax.random.key(0))
    factor = np.asarray(mixed.reward / base.reward)
    factor = np.where(np.abs(base.reward) > 1e-3, factor, np.nan)  # the member of each step
    by_group = np.nanmean(factor.reshape(HORIZON, 2, 3), -1)
    np.testing.assert_allclose(np.sort(by_group, 1), [[10.0, 1000.0]] * HORIZON, rtol=1e-3)
    assert 0 < (by_group[:, 0] < 100).sum() < HORIZON  # not always the same one


def test_known_signals_see_the_action_as_the_world_does():
    """A policy that asks for 3 gets 0.5, the bound; what it drew is kept for learning."""
    task_model = BlackBox(
        2, terminates=False, reward_fn=lambda s, a, t: 2 * a[0], cost_fn=lambda s, a, t: a
    )
    still = linear_ensemble(np.zeros((1, 3, 2)), np.zeros((1, 2)), gaussian=2)
    policy = lambda obs, key: jnp.full((6, 1), 3.0)
    states = jnp.asarray(STARTS, jnp.float32)
    rollout, _ = imagine(
        LearnedWorld(task_model, ACTIONS, still), policy, states, 4, jax.random.key(0)
    )
    np.testing.assert_allclose(rollout.returns(), np.full(6, 4 * 1.0))
    np.testing.assert_allclose(rollout.cost_returns(), np.full((6, 1), 4 * 0.5))
    assert (rollout.action == 3.0).all()


def test_imagined_features_stay_within_reach_of_the_data():
    model = eqx.tree_at(lambda e: e.input_std, perfect_model(), jnp.array([0.2, 1e3, 1.0]))
    states = jnp.asarray([[1.0, 8.0]])
    weights = model.members.weights  # the scale divides the inputs: make up for it
    model = eqx.tree_at(
        lambda e: e.members.weights[0],
        model,
        weights[0] * jnp.array([0.2, 1e3, 1.0])[None, :, None],
    )
    rollout, _ = roll(model, jax.random.key(0), states=states)
    seen = np.asarray(rollout.obs[1:, 0])
    assert np.abs(seen[:, 0]).max() == np.float32(6 * 0.2)
    assert np.abs(seen[:, 1]).max() > 6


def test_goals_are_drawn_anew_where_they_are_met():
    """Robots that stand still: half of them on their goal, the others away from it."""
    config, n, horizon = GoalConfig(observation="ego"), 64, 5
    task_model = EgoGoalModel(config)
    records = np.array(jax.jit(task_model.initial_records, static_argnums=1)(jax.random.key(0), n))
    size = task_model.robot.proprioception
    place = records[:, :2].copy()
    records[: n // 2, 3 + size : 5 + size] = place[: n // 2] + [0.1, 0.0]
    records[: n // 2, -1] = 0.75  # the distance before the step
    states = jax.jit(task_model.restore)(jax.random.key(1), jnp.asarray(records))
    one = EnsembleConfig(members=1, elites=1, hidden=(2,))
    still = ensembles.init(one, size + 2, size + 3, 0, jax.random.key(2))
    quiet = jax.tree.map(jnp.zeros_like, still.members)
    quiet = eqx.tree_at(
        lambda m: (m.min_logvar, m.max_logvar), quiet, (still.members.min_logvar * 5,) * 2
    )
    still = eqx.tree_at(lambda e: (e.members, e.input_std), still, (quiet, jnp.full(size + 2, 1e6)))
    policy = lambda obs, key: jnp.zeros((n, 2))
    actions = ActionSpec(2, low=(-1.0, -1.0), high=(1.0, 1.0))
    rollout, end = jax.jit(
        lambda key: imagine(LearnedWorld(task_model, actions, still), policy, states, horizon, key)
    )(jax.random.key(3))

    expected = np.zeros((horizon, n))
    expected[0, : n // 2] = 0.75 - 0.1 + 1.0
    np.testing.assert_allclose(rollout.reward, expected, atol=1e-4)
    goals = records[:, 3 + size : 5 + size].copy()
    for i in range(n // 2):
        spare = np.asarray(states.course.spare[i])
        away = np.linalg.norm(spare - place[i], axis=1)
        goals[i] = spare[np.argmax(away >= 0.305 + 0.4)]  # the first that is clear of the robot
    np.testing.assert_allclose(end.course.goal, goals, atol=1e-6)
    assert (np.asarray(end.course.used)[: n // 2] >= 1).all()
    assert (np.asarray(end.course.used)[n // 2 :] == 0).all()
    # The policy sees the new goal from the step after on, in the robot's own frame.
    heading, offset = records[:, 2], goals - place
    cos, sin = np.cos(heading), np.sin(heading)
    x, y = offset.T
    ego = np.stack([cos * x + sin * y, cos * y - sin * x], 1)
    np.testing.assert_allclose(rollout.obs[1, :, size : size + 2], ego, atol=1e-4)
