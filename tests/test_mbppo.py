"""MBPPO-Lagrangian in the training loop: repeatable, independent of other seeds, fault-proof."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import in_memory
import surefoot
from surefoot.algorithms import mbppo_lagrangian
from surefoot.algorithms.experience import Episodes, Experience
from surefoot.algorithms.loop import TrainingFault
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.mbppo_trainer import real_batch
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.algorithms.trainer import Problem
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved
from surefoot.core.spaces import ActionSpec
from surefoot.learn import ppo
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.runs.checkpoint import newest_sound
from surefoot.runs.folder import RunFolder
from surefoot.world.ensemble import EnsembleConfig
from toys import Drift, two_costs

STEPS = 20
TINY = MBPPOConfig(
    steps=2 * 2 * STEPS,
    cost_limit=(1.0,),
    episodes=2,
    model="ego",
    horizon=5,
    rollouts=6,
    passes=1,
    real_share=0.0,
    beta=0.7,
    anchor=True,
    gate="none",
    pr_rollouts=4,
    pr_horizon=5,
    ppo=PPOConfig(hidden=(8,), epochs=2, critic_epochs=2, minibatches=2),
    ensemble=EnsembleConfig(members=3, elites=3, hidden=(8,), max_steps=10, batch_size=16),
)
PAPER = replace(
    TINY, model="paper", passes=3, real_share=0.34, anchor=False, gate="reward", pr_threshold=0.3
)
OWN = replace(TINY, model="black-box")


def epochs(config, seeds):
    """On PointGoal with short episodes."""
    options = {"max_episode_steps": STEPS}
    if config.model == "black-box":
        options["observation"] = "ego"
    return in_memory.epochs(config, "PointGoal", seeds, options)


def learned(epoch):
    """The state after an epoch."""
    return epoch.snapshot.trainer["state"]


def plain(tree):
    """The leaves of a state as numpy arrays."""
    is_key = lambda x: jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
    leaves = jax.tree.leaves(tree)
    return [np.asarray(jax.random.key_data(x) if is_key(x) else x) for x in leaves]


def test_the_same_seed_gives_the_same_run_bit_for_bit():
    first, second = (list(epochs(PAPER, [3])) for _ in range(2))
    assert len(first) == 2
    for one, two in zip(first, second, strict=True):
        np.testing.assert_equal(one.metrics, two.metrics)
        for a, b in zip(plain(learned(one)), plain(learned(two)), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("optimised")
def test_a_seed_among_four_is_the_seed_alone():
    config = replace(OWN, steps=2 * STEPS)
    (together,) = in_memory.epochs(config, Drift, [0, 1, 2, 3])
    (alone,) = in_memory.epochs(config, Drift, [3])
    real = ("seed", "epoch", "steps", "episodes", "reward", "cost", "violations")
    ours, theirs = alone.metrics[0], together.metrics[3]
    for name in real:
        assert ours[name] == pytest.approx(theirs[name], rel=1e-6), name
    for name in set(ours) - set(real):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-3, atol=1e-4, err_msg=name)
    others = {row["reward"] for row in together.metrics}
    assert len(others) == 4
    for a, b in zip(plain(learned(alone).learner), plain(learned(together).learner), strict=True):
        np.testing.assert_allclose(a[0], b[3], atol=1e-4)


def test_a_task_of_surefoots_own_can_be_a_black_box():
    (epoch,) = epochs(replace(TINY, model="black-box", steps=2 * STEPS), [0])
    assert np.isfinite(epoch.metrics[0]["imagined_reward"])
    assert epoch.metrics[0]["episodes"] == 2


def test_real_segments_never_run_over_the_end_of_an_episode():
    """Observations spell (time, environment): every segment can be read back."""
    steps, width, horizon = 12, 3, 4
    ended = np.zeros((1, steps, width), bool)
    ended[0, [2, 7], 0] = True  # clear windows of environment 0: 3 to 4, 8
    ended[0, 11, 1] = True  # an end in the last row hurts none: 0 to 8
    ended[0, ::2, 2] = True  # none at all
    time, column = np.meshgrid(np.arange(steps), np.arange(width), indexing="ij")
    obs = np.stack([time, column], -1)[None].astype(np.float32)
    experience = Experience(
        seeds=[0],
        obs=obs,
        action=obs * 10,
        reward=time[None] + 0.5,
        cost=obs[..., :1] + 0.25,
        next_obs=obs + 100,
        terminated=ended,
        ended=ended,
        before=None,
        after=None,
        episodes=[Episodes(np.ones(4), np.array([[1.0], [2.0], [3.0], [6.0]]), np.full(4, 3))],
    )
    config = replace(TINY, horizon=horizon, rollouts=600, real_share=0.5)
    problem = Problem((0,), width, 12, 2, ActionSpec(2), ("cost",))
    real = real_batch(config, problem, experience, 0)
    np.testing.assert_allclose(real.cost, [[3.0]])
    np.testing.assert_allclose(real.cost_error, [[np.std([1, 2, 3, 6], ddof=1) / 2]])
    assert (real.segments.weight == 1).all()
    segments = real.segments.obs[0]
    assert segments.shape == (horizon, 300, 2)
    allowed = {(t, 0) for t in (3, 4, 8)} | {(t, 1) for t in range(9)}
    assert {tuple(map(int, start)) for start in segments[0]} == allowed
    later = np.arange(horizon)[:, None, None] * [1, 0]
    np.testing.assert_array_equal(segments, segments[:1] + later)
    np.testing.assert_array_equal(real.segments.action[0], segments * 10)
    np.testing.assert_array_equal(real.segments.reward[0], segments[..., 0] + 0.5)
    np.testing.assert_array_equal(real.segments.cost[0], segments[..., :1] + 0.25)
    np.testing.assert_array_equal(real.segments.next_obs[0, 0], segments[-1] + 100)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_practice_that_does_not_help_is_undone_whole(monkeypatch, ratio):
    """Policy, critics, both Adams and the multiplier: all as before, or all moved on."""
    monkeypatch.setattr(mbppo_lagrangian, "improvement", lambda *_: jnp.asarray(ratio))
    config = replace(OWN, gate="reward", passes=2)
    both = [(epoch, plain(learned(epoch).learner)) for epoch in in_memory.epochs(config, Drift)]
    assert [epoch.metrics[0]["passes"] for epoch, _ in both] == [2 * ratio] * 2
    (_, before), (after, moved) = both
    same = [bool((a == b).all()) for a, b in zip(before, moved, strict=True)]
    assert all(same) if ratio == 0 else not any(same)
    if ratio == 0:
        learner = learned(after).learner
        np.testing.assert_array_equal(learner.multiplier.raw, [[config.multiplier.initial]])
        moments = plain((learner.actor_moments, learner.critic_moments))
        assert not any(np.any(m) for m in moments)


class Huge(Drift):
    """Rewards that square to infinity in single precision."""

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, 1e30 * reward, *rest


def test_numbers_out_of_range_stop_training_and_name_the_seed():
    with pytest.raises(TrainingFault, match=r"seed 5: .* epoch 1\. Try a smaller"):
        list(in_memory.epochs(OWN, Huge, [5]))


@pytest.fixture
def poisoned(monkeypatch):
    """Updates that break what they learn while their metrics look well."""
    real = ppo.update

    def update(*args):
        learner, metrics = real(*args)
        spoil = lambda x: x * jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else x
        return jax.tree.map(spoil, learner), metrics

    monkeypatch.setattr(ppo, "update", update)


def test_a_poisoned_learner_stops_training_and_names_its_seed(poisoned):
    with pytest.raises(TrainingFault, match=r"seed 5: .* epoch 1\. Try"):
        next(in_memory.epochs(replace(OWN, passes=1), Drift, [5, 6]))


def test_a_poisoned_learner_stops_training_without_a_model_too(poisoned):
    config = PPOLagrangianConfig(steps=40, cost_limit=(1.0,), steps_per_epoch=40, ppo=OWN.ppo)
    with pytest.raises(TrainingFault, match=r"seed 5: .* epoch 1\. Try"):
        next(in_memory.epochs(config, Drift, [5, 6]))


class LaterHuge(Drift):
    """Well-behaved in the first episode only."""

    episode = 0

    def reset(self, **kwargs):
        self.episode += 1
        return super().reset(**kwargs)

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, 1e30 * reward if self.episode > 1 else reward, *rest


def test_what_was_written_before_a_fault_is_intact(tmp_path):
    good = []
    out = tmp_path / "run"
    with pytest.raises(TrainingFault, match=r"seed 0: .* epoch 2"):
        surefoot.train(
            LaterHuge, out=out, config=OWN, quiet=True, on_epoch=lambda epoch: good.append(epoch)
        )
    (first,) = good
    assert RunFolder(out).read_json("result.json")["failed"].startswith("seed 0: ")
    written = Policy.load(out / "policy.npz")
    for a, b in zip(written.weights, first.policy.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    checkpoint, _ = newest_sound(out / "checkpoints")
    state = Saved(checkpoint.arrays).like("trainer/state", learned(first))
    assert checkpoint.meta["epoch"] == 1
    for a, b in zip(plain(state), plain(learned(first)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(RunFolder(out).read_metrics()) == 1


def test_each_multiplier_follows_its_own_limit():
    """Imagined costs of both constraints are alike, their limits are not: only one rises."""
    free, strict = 1e6, 1e-3
    config = replace(
        OWN,
        steps=2 * STEPS,
        cost_limit=(free, strict),
        beta=1.0,
        multiplier=MultiplierConfig(kind="projected", initial=1.0, learning_rate=1e-6),
    )
    (epoch,) = in_memory.epochs(config, two_costs)
    (row,) = epoch.metrics
    raw = np.asarray(learned(epoch).learner.multiplier.raw)
    assert raw.shape == (1, 2) and raw[0, 0] < 1.0 < raw[0, 1]
    assert row["lambda_first"] == pytest.approx(raw[0, 0])
    assert row["lambda_second"] == pytest.approx(raw[0, 1])
    assert (row["cost_limit_first"], row["cost_limit_second"]) == (free, strict)
    # Without a suffix: the constraint worst kept.
    for name in ("cost", "cost_limit", "lambda", "imagined_cost", "imagined_cost_before"):
        assert row[name] == row[f"{name}_second"] != row[f"{name}_first"]
