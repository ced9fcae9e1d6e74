"""Exploration of MBPPO-Lagrangian: lasting noise until returns differ, and falling noise."""

from dataclasses import replace
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box

import in_memory
from surefoot.algorithms import mbppo_trainer
from surefoot.algorithms.actors import draw_from
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.core.policy import Policy
from surefoot.learn.ppo import PPOConfig
from surefoot.world.ensemble import EnsembleConfig
from toys import Drift

STEPS = 20
CONFIG = MBPPOConfig(
    steps=4 * STEPS,
    cost_limit=(60.0,),
    episodes=2,
    model="black-box",
    horizon=5,
    rollouts=6,
    passes=1,
    real_share=0.0,
    gate="none",
    ppo=PPOConfig(hidden=(8,), epochs=2, critic_epochs=2, minibatches=2),
    ensemble=EnsembleConfig(members=3, elites=3, hidden=(8,), max_steps=10, batch_size=16),
)


def policy(kind, seeds, actions):
    """A policy whose mean or logits are 0, and whose deviation is 1."""
    bounds = () if kind == "categorical" else (-9.0,) * actions
    return Policy(
        (np.zeros((seeds, 1, actions), np.float32),),
        (np.zeros((seeds, actions), np.float32),),
        np.zeros((seeds, actions), np.float32) if kind == "gaussian" else None,
        np.array(bounds),
        -np.array(bounds),
        kind=kind,
    )


def actions_of(kind, correlation, steps=20_000, per_seed=2):
    """Actions [steps, S, n, …] for observations of 0, of a seed for each correlation."""
    seeds = len(correlation)
    rngs = [np.random.default_rng(s) for s in range(seeds)]
    size = 1 if kind == "gaussian" else 3
    actor = draw_from(
        policy(kind, seeds, size), rngs, per_seed, steps, correlation=np.array(correlation)
    )
    obs = np.zeros((seeds, per_seed, 1))
    return np.stack([actor(SimpleNamespace(t=t, obs=obs)) for t in range(steps)])


def test_noise_lasts_longest_in_the_last_environment():
    """Standard normal at every step; a first-order process has correlation rho."""
    noise = actions_of("gaussian", (0.0, 0.9))[..., 0]
    np.testing.assert_allclose(noise.mean(0), 0.0, atol=0.1)
    np.testing.assert_allclose(noise.std(0), 1.0, atol=0.05)
    for lag in (1, 3):
        measured = (noise[lag:] * noise[:-lag]).mean(0)
        np.testing.assert_allclose(measured, [[0, 0], [0.45**lag, 0.9**lag]], atol=0.06)


def test_choices_last_too_and_stay_equally_likely():
    choices = actions_of("categorical", (0.0, 0.9))
    for each in choices.reshape(len(choices), -1).T:
        np.testing.assert_allclose(np.bincount(each) / len(each), 1 / 3, atol=0.03)
    repeated = (choices[1:] == choices[:-1]).mean(0)
    assert repeated[0] == pytest.approx([1 / 3, 1 / 3], abs=0.02)
    assert 0.4 < repeated[1, 0] < repeated[1, 1] and repeated[1, 1] > 0.65


class Treasure(gym.Env):
    """A reward only beyond 5, which pushes of at most 1 reach only if they last."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float64)
    max_episode_steps = STEPS

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, 0.0
        return np.array([self.x]), {}

    def step(self, action):
        self.x, self.t = self.x + float(action[0]), self.t + 1
        found = float(self.x > 5)
        return np.array([self.x]), found, False, self.t == STEPS, {"cost": 0.0}


class Steady(Drift):
    """Every step pays the same, but episodes end early, so returns differ."""

    def step(self, action):
        obs, _, _, truncated, info = super().step(action)
        return obs, 1.0, bool(action[0] > 0.5), truncated, info


def noise_of(monkeypatch, config, source, seeds=(0,)):
    """The correlation of each seed's noise in each epoch, as the collector draws it."""
    drawn = []

    def draw(*args, correlation=None, **kwargs):
        drawn.append(None if correlation is None else correlation.tolist())
        return draw_from(*args, correlation=correlation, **kwargs)

    monkeypatch.setattr(mbppo_trainer, "draw_from", draw)
    list(in_memory.epochs(config, source, seeds))
    return drawn


@pytest.mark.slow
@pytest.mark.parametrize("source", [Drift, Steady])
def test_noise_lasts_for_one_epoch_where_returns_differ(monkeypatch, source):
    config = replace(CONFIG, noise_correlation=0.95, steps=6 * STEPS)
    assert noise_of(monkeypatch, config, source) == [[0.95], [0.0], [0.0]]


@pytest.mark.slow
def test_noise_lasts_until_a_return_differs_from_the_others(monkeypatch):
    config = replace(CONFIG, noise_correlation=0.95, steps=20 * STEPS)
    epochs = np.array(noise_of(monkeypatch, config, Treasure, (0, 1, 2)))
    assert (epochs[0] == 0.95).all() and (epochs[-1] == 0).all()
    assert len(set(epochs.sum(0).tolist())) > 1  # every seed stops exploring at its own time


def test_without_correlation_noise_is_drawn_as_ever(monkeypatch):
    assert noise_of(monkeypatch, replace(CONFIG, steps=4 * STEPS), Drift) == [None, None]


def test_real_rollouts_exclude_lasting_noise():
    with pytest.raises(ValueError, match="real_share=0\\.5 must be 0 with noise_correlation=0\\.9"):
        replace(CONFIG, noise_correlation=0.9, real_share=0.5)


@pytest.mark.parametrize("limit", [1e6, 1.0])
def test_noise_may_fall_below_its_floor_where_it_breaks_the_limit(limit):
    """`Drift` is best without noise. The floor falls from -1 to -3 by schedule: in the first epoch
    it is -1, where this policy begins, unless a limit is broken."""
    noise = {"initial_log_std": -1.0, "minimum_log_std": -3.0}
    floor = replace(CONFIG.ppo, **noise, actor_learning_rate=0.05, kl_stop=None)
    model = replace(CONFIG.ensemble, max_steps=300)
    config = replace(CONFIG, cost_limit=(limit,), beta=0.7, anchor=True, ppo=floor, ensemble=model)
    config = replace(config, passes=20, rollouts=30, early_log_std=-1.0)
    log_std = next(in_memory.epochs(config, Drift)).policy.log_std[0, 0] - np.log(3.0)  # bounds ±3
    assert log_std == pytest.approx(-1.0) if limit == 1e6 else -3.0 <= log_std < -1.01
