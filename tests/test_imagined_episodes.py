"""Imagined episodes that continue from pass to pass, their totals, and the scales of advantages."""

from dataclasses import replace
from functools import partial
from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from surefoot.algorithms import mbppo_lagrangian as mbppo
from surefoot.algorithms import mbppo_rollouts
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.mbppo_lagrangian import ImaginedEpisodes, Past, RealBatch, next_rollouts
from surefoot.algorithms.trainer import Problem
from surefoot.core.spaces import ActionSpec
from surefoot.learn import ppo
from surefoot.learn.actor_critic import Batch, prepare
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.world.black_box import BlackBox
from surefoot.world.ensemble import EnsembleConfig
from surefoot.world.imagination import imagine
from toys import linear_ensemble

CONFIG = MBPPOConfig(
    rollouts=8,
    carry=0.5,
    horizon=10,
    cost_limit=(1.0,),
    real_share=0.0,
    anchor=True,
    gate="none",
    ppo=PPOConfig(hidden=(2,), epochs=1, critic_epochs=1),
    ensemble=EnsembleConfig(members=2, elites=2),
)
ACTIONS = ActionSpec(1, low=(-1.0,), high=(1.0,))
PROBLEM = Problem((0,), 1, 100, 1, ACTIONS, ("cost",), BlackBox(1))


def test_carried_episodes_continue_until_they_end():
    age = jnp.array([20, 100, 130, -1, 20, 100, -1, 50])
    old, fresh = jnp.arange(8.0)[:, None], 100 + jnp.arange(8.0)[:, None]
    rollouts = next_rollouts(CONFIG, PROBLEM, ImaginedEpisodes(old, age), fresh)
    # The first four are carried: 0 continues, 1 and 2 are over, 3 is the first in its place.
    assert rollouts.states[:, 0].tolist() == [0, 101, 102, 103, 104, 105, 106, 107]
    assert rollouts.age.tolist() == [20, 0, 0, 30, 0, 0, 0, 0]


def test_without_carrying_every_pass_starts_anew():
    config = replace(CONFIG, carry=0.0)
    before = ImaginedEpisodes(jnp.zeros((8, 1)), jnp.full(8, 20))
    rollouts = next_rollouts(config, PROBLEM, before, jnp.ones((8, 1)))
    assert (rollouts.states == 1).all() and (rollouts.age == 0).all()


@pytest.mark.parametrize(
    ("steps", "requested", "carry", "horizon", "windows"),
    [
        (750, 80, 0.5, 75, 10),
        (1000, 80, 0.5, 77, 13),  # twelve windows of 77 steps and one of 76
        (100, 80, 0.5, 50, 2),
        (50, 80, 0.5, 50, 1),
        (50, 80, 0.0, 50, 1),
        (100, 80, 0.0, 80, 2),  # without carrying, nothing follows the first window
        (7, 3, 0.5, 3, 3),
        (5, 1, 0.5, 1, 5),
    ],
)
def test_windows_divide_an_episode(steps, requested, carry, horizon, windows):
    config = replace(CONFIG, horizon=requested, carry=carry)
    problem = replace(PROBLEM, episode_steps=steps)
    assert mbppo.horizon(config, problem) == horizon
    assert mbppo_rollouts.windows(config, problem) == windows


def clock(steps, chance=0.0, cost_of=lambda age: age**2, reward_of=lambda age: 1.0 + age):
    """An environment that tells its age, and ends at each step with the same chance.

    Returns the problem, an ensemble that is right about it, and the expected reward and cost of an
    episode, summed up step by step.
    """
    model = BlackBox(
        1,
        terminates=chance > 0,
        reward_fn=lambda obs, action, after: reward_of(obs[0]),
        cost_fn=lambda obs, action, after: cost_of(obs[0]),
    )
    logit = [np.log(chance / (1 - chance))] if chance else []
    ensemble = linear_ensemble(np.zeros((2, 2, 1 + len(logit))), np.array([[1.0, *logit]] * 2), 1)
    # Ages far from 0 are within reach of the data.
    ensemble = eqx.tree_at(lambda e: e.input_std, ensemble, jnp.full(2, 1e6))
    ages = np.arange(steps)
    reached = (1 - chance) ** ages
    totals = (
        reached @ (reward_of(ages) * np.ones(steps)),
        reached @ (cost_of(ages) * np.ones(steps)),
    )
    return replace(PROBLEM, episode_steps=steps, model=model), ensemble, totals


def passes(config, problem, ensemble, count, past_states=((0.0,),), reach=10**6):
    """`count` passes from the beginning: for each, the state after it, and its metrics.

    Nothing is learned, which saves most of the time.
    """
    key = jax.random.key(0)
    state = eqx.tree_at(lambda s: s.ensemble, mbppo.init(config, problem, key), ensemble)
    past = Past(jnp.zeros((1, 1)), jnp.array(past_states), jnp.int32(len(past_states)))
    actor = state.learner.actor
    real = RealBatch(jnp.ones(1), jnp.zeros(1), jnp.array(False), actor, None)
    step = jax.jit(partial(mbppo.practise, config, problem))
    with patch.object(ppo, "update", lambda config, learner, *_: (learner, {})):
        for i in range(count):
            state, _, metrics = step(
                state, past, real, jnp.array(i == 0), mbppo.pace(config, 0.0), jnp.int32(reach)
            )
            yield state, metrics


@pytest.mark.parametrize(("steps", "windows"), [(100, 2), (50, 1), (1000, 13)])
def test_imagined_episodes_are_whole(steps, windows):
    """Cost and reward grow with age, so only episodes of the right length have the right totals.

    After as many passes as an episode has windows, every carried episode began at age 0.
    """
    config = replace(CONFIG, horizon=80, rollouts=2 * 28, carry=0.5)
    problem, ensemble, (reward, cost) = clock(steps)
    assert config.carried >= 2 * windows
    for i, (state, metrics) in enumerate(passes(config, problem, ensemble, 2 * windows + 5)):
        ages, states = np.asarray(state.imagined.age), np.asarray(state.imagined.states)[:, 0]
        if i < windows:
            continue
        assert float(metrics["imagined_cost"][0]) == pytest.approx(cost, rel=1e-4)
        assert float(metrics["imagined_reward"]) == pytest.approx(reward, rel=1e-4)
        carried = slice(0, config.carried)
        np.testing.assert_array_equal(states[carried], np.minimum(ages, steps)[carried])
        assert states.max() == steps
        # All windows at once: no two passes see different parts of an episode.
        before = np.where(ages >= steps, 0, ages)[carried] // mbppo.horizon(config, problem)
        counts = np.bincount(before, minlength=windows)
        assert counts.max() - counts.min() <= 1


def test_without_carrying_the_first_window_stands_for_all():
    """True for signals that do not change with age: 100 steps from windows of 80."""
    config = replace(CONFIG, horizon=80, carry=0.0)
    problem, ensemble, (reward, cost) = clock(100, 0.0, lambda age: 0.5, lambda age: 2.0)
    ((_, metrics),) = passes(config, problem, ensemble, 1)
    assert float(metrics["imagined_reward"]) == pytest.approx(reward) == 200.0
    assert float(metrics["imagined_cost"][0]) == pytest.approx(cost) == 50.0


@pytest.mark.parametrize("carry", [0.0, 0.5])
def test_episodes_that_terminate_early_cost_less(carry):
    """A chance of 1 % to end at each of 1,000 steps: episodes of 100 steps on average.

    80 steps have a total of 55; times 1,000 / 80 it is 690, seven times too much.
    """
    config = replace(CONFIG, horizon=80, rollouts=800, carry=carry)
    age_matters = carry > 0  # otherwise only the beginning of an episode is seen
    cost_of = (lambda age: 1.0 + age / 50) if age_matters else (lambda age: 1.0)
    problem, ensemble, (reward, cost) = clock(1000, 0.01, cost_of, lambda age: 1.0)
    assert reward == pytest.approx(100.0, abs=0.01)
    seen = [
        (float(metrics["imagined_reward"]), float(metrics["imagined_cost"][0]))
        for _, metrics in passes(config, problem, ensemble, 40)
    ][15:]
    rewards, costs = np.transpose(seen)
    assert rewards.mean() == pytest.approx(reward, rel=0.04)
    assert costs.mean() == pytest.approx(cost, rel=0.08)
    assert np.std(rewards) < 0.15 * reward  # a single pass is of use


def test_past_states_do_not_count_as_a_beginning():
    """Half of the rollouts start from past states of age 60, whose costs differ."""
    config = replace(CONFIG, horizon=50, rollouts=56, carry=0.25, replay_share=0.5)
    problem, ensemble, (_, cost) = clock(100)
    *_, (_, metrics) = passes(config, problem, ensemble, 4, ((60.0,),) * 4)
    assert float(metrics["imagined_cost"][0]) == pytest.approx(cost, rel=1e-4)


def test_lambda_waits_for_a_policy_that_still_improves():
    """The imagined reward never rises, so lambda waits for the first epoch of four passes only.

    It is then what it was, and it is reported as 0 while it waits.
    """
    config = replace(
        CONFIG, passes=4, learn_first=3, multiplier=MultiplierConfig(learning_rate=1e-6, initial=2)
    )
    seen = list(passes(config, *clock(100, reward_of=lambda age: 1.0)[:2], 6))
    assert [float(metrics["waiting"]) for _, metrics in seen] == [1, 1, 1, 1, 0, 0]
    lam = [float(state.learner.multiplier.raw[0]) for state, _ in seen]
    assert lam[:4] == [2.0] * 4 and 2.0 < lam[4] < lam[5]  # the cost is far above its limit
    assert [float(metrics["lambda"][0]) for _, metrics in seen] == [0.0] * 4 + lam[4:]


def test_lambda_follows_a_limit_that_falls():
    """It stands still in the first pass, whose cost is the aim, and then rises ever faster."""
    config = replace(CONFIG, passes=3, limit_fall=1.0)
    seen = list(passes(config, *clock(100, reward_of=lambda age: 1.0)[:2], 5))
    lam = np.array([float(state.learner.multiplier.raw[0]) for state, _ in seen])
    assert lam[0] == 1.0 and (np.diff(np.diff(lam)) > 0).all()
    aims = np.array([float(state.aim[0]) for state, _ in seen])
    np.testing.assert_allclose(aims[1:] / aims[:-1], 0.1 ** (1 / 3), rtol=1e-5)


def test_shares_of_rollouts_fit_together():
    with pytest.raises(ValueError, match=r"^carry=0.6 and replay_share=0.5 must add up"):
        replace(CONFIG, carry=0.6, replay_share=0.5)


def test_values_at_the_time_limit_are_those_of_the_final_observation():
    """Advantages by a loop over each rollout alone; both ends of an episode, and none."""
    problem, ensemble, _ = clock(100, 0.05)
    config = PPOConfig(hidden=(4,), gamma=0.9, gae_lambda=0.8, value_targets="gae")
    learner = ppo.init(config, MultiplierConfig(), 1, ACTIONS, 1, jax.random.key(0))
    horizon, many = 12, 30
    left = jnp.where(jnp.arange(many) < 15, 5, 100)
    states = jnp.linspace(-2.0, 2.0, many)[:, None]  # where tanh is not flat

    @jax.jit
    def targets():
        world = problem.world(ensemble)
        rollout, _ = imagine(world, learner.sample, states, horizon, jax.random.key(1), left=left)
        batch = mbppo.to_batch(rollout, rollout.alive, None, jnp.array(True))
        values = lambda obs: learner.critics(jnp.asarray(obs))
        rows, _ = prepare(config, learner, batch)
        return rollout, rows.targets, values(rollout.obs), values(rollout.last_obs)

    rollout, got, values, last = jax.tree.map(np.asarray, targets())
    signals = np.concatenate([rollout.reward[..., None], rollout.cost], -1)
    got, kinds = got.reshape(horizon, many, 2), set()
    for b in range(many):
        length = int(rollout.alive[:, b].sum())
        terminated = bool(rollout.terminated[:, b].any())
        kinds.add((length < horizon, terminated))
        after, advantage = last[b] * (not terminated), np.zeros(2)
        for t in reversed(range(length)):
            delta = signals[t, b] + 0.9 * after - values[t, b]
            advantage = delta + 0.9 * 0.8 * advantage
            after = values[t, b]
            np.testing.assert_allclose(got[t, b], advantage + values[t, b], rtol=1e-4, atol=1e-4)
    assert kinds >= {(True, False), (True, True), (False, False)}


@pytest.mark.parametrize("scaled", [False, True])
def test_cost_advantages_in_units_of_the_rewards(scaled):
    """One-step episodes: advantages are reward or cost minus the critic's value at one state."""
    config = PPOConfig(scale_costs=scaled, gamma=1.0)
    learner = ppo.init(config, MultiplierConfig(), 1, ActionSpec(1), 1, jax.random.key(0))
    reward, cost = np.array([[1.0, 3.0, 5.0, 7.0]]), np.array([[0.0, 1.0, 1.0, 6.0]])
    end = jnp.ones((1, 4), bool)
    batch = Batch(
        jnp.zeros((1, 4, 1)), jnp.zeros((1, 4, 1)), jnp.asarray(reward, jnp.float32),
        jnp.asarray(cost[..., None], jnp.float32), jnp.zeros((1, 4, 1)), end, end,
    )  # fmt: skip
    rows, scales = prepare(config, learner, batch)
    deviation = np.sqrt(5.0)  # of 1, 3, 5, 7
    expected = np.array([-2.0, -1.0, -1.0, 4.0]) / (deviation if scaled else 1.0)
    np.testing.assert_allclose(rows.cost_advantage[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(
        rows.reward_advantage, np.array([-3.0, -1.0, 1.0, 3.0]) / deviation, rtol=1e-5
    )
    unit = deviation if scaled else 1.0
    assert float(scales.reward) == pytest.approx(unit, rel=1e-5)
    np.testing.assert_allclose(scales.costs, [np.sqrt(22 / 4) / unit], rtol=1e-5)


def test_recent_states_are_drawn_more_often():
    rows = jnp.arange(1000.0)[:, None]  # 600 of them are filled
    past = Past(rows[:1], rows, jnp.array(600))
    for recency, last_quarter in ((1.0, 0.25), (4.0, 1 - 0.75**4)):
        drawn = mbppo_rollouts.past_records(past, 20_000, recency, jax.random.key(0))[:, 0]
        assert drawn.min() >= 0 and drawn.max() == 599
        # Three standard deviations of a share of 20,000 draws are 0.01.
        assert float((drawn >= 450).mean()) == pytest.approx(last_quarter, abs=0.01)
