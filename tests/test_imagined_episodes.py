"""Imagined episodes that continue from pass to pass, and how cost advantages are scaled."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.mbppo_lagrangian import ImaginedEpisodes, next_rollouts
from surefoot.algorithms.trainer import Problem
from surefoot.core.spaces import ActionSpec
from surefoot.learn import ppo
from surefoot.learn.actor_critic import Batch, prepare
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.world.black_box import BlackBox
from surefoot.world.ensemble import EnsembleConfig

CONFIG = MBPPOConfig(
    rollouts=8, carry=0.5, horizon=10, ensemble=EnsembleConfig(members=2, elites=2)
)
PROBLEM = Problem((0,), 1, 100, 1, ActionSpec(1, low=(-1.0,), high=(1.0,)), ("cost",), BlackBox(1))


def test_carried_episodes_continue_until_they_end():
    age = jnp.array([20, 100, 130, -1, 20, 100, -1, 50])
    old, fresh = jnp.arange(8.0)[:, None], 100 + jnp.arange(8.0)[:, None]
    rollouts = next_rollouts(CONFIG, PROBLEM, ImaginedEpisodes(old, age), fresh, jax.random.key(0))
    # The first four are carried: 0 continues, 1 and 2 are over, 3 begins at a random age.
    assert rollouts.states[:, 0].tolist() == [0, 101, 102, 103, 104, 105, 106, 107]
    assert rollouts.age[:3].tolist() == [20, 0, 0]
    assert 0 <= rollouts.age[3] < 100


def test_first_ages_spread_over_the_episode():
    config = replace(CONFIG, rollouts=4000, carry=0.9)
    start = ImaginedEpisodes(jnp.zeros((4000, 1)), jnp.full(4000, -1))
    rollouts = next_rollouts(config, PROBLEM, start, jnp.zeros((4000, 1)), jax.random.key(1))
    counts = np.histogram(rollouts.age[:3600], bins=10, range=(0, 100))[0]
    assert (np.abs(counts - 360) < 5 * np.sqrt(360)).all()


def test_without_carrying_every_pass_starts_anew():
    config = replace(CONFIG, carry=0.0)
    rollouts = next_rollouts(
        config, PROBLEM, ImaginedEpisodes(jnp.zeros((8, 1)), jnp.full(8, 20)), jnp.ones((8, 1)),
        jax.random.key(0),
    )  # fmt: skip
    assert (rollouts.states == 1).all() and (rollouts.age == 0).all()


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
    rows = prepare(config, learner, batch)
    deviation = np.sqrt(5.0)  # of 1, 3, 5, 7
    expected = np.array([-2.0, -1.0, -1.0, 4.0]) / (deviation if scaled else 1.0)
    np.testing.assert_allclose(rows.cost_advantage[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(
        rows.reward_advantage, np.array([-3.0, -1.0, 1.0, 3.0]) / deviation, rtol=1e-5
    )
