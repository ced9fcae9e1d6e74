"""MBPPO-Lagrangian in the training loop: repeatable, independent of other seeds, fault-proof."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import in_memory
import surefoot
from surefoot.algorithms import loop, mbppo_lagrangian
from surefoot.algorithms.experience import Episodes, Experience
from surefoot.algorithms.loop import TrainingFault
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.mbppo_lagrangian import Past
from surefoot.algorithms.mbppo_trainer import ALGORITHM
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.algorithms.real_batch import episode_statistics, real_batch
from surefoot.algorithms.trainer import Problem
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved
from surefoot.core.spaces import ActionSpec
from surefoot.envs.gym.adapted import EnvironmentFault
from surefoot.envs.task import TASKS
from surefoot.learn import ppo
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.runs.checkpoint import newest_sound
from surefoot.runs.folder import RunFolder
from surefoot.world.black_box import BlackBox
from surefoot.world.ensemble import EnsembleConfig
from surefoot.world.imagination import Restarts
from surefoot.world.trust import Progress
from toys import Drift, linear_ensemble, two_costs

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


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_bit_for_bit():
    first, second = (list(epochs(PAPER, [3])) for _ in range(2))
    assert len(first) == 2
    for one, two in zip(first, second, strict=True):
        np.testing.assert_equal(one.metrics, two.metrics)
        for a, b in zip(plain(learned(one)), plain(learned(two)), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
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
    seen = episode_statistics(problem, experience)
    rising = np.zeros(1, bool)
    real = real_batch(config, problem, experience, seen, rising, 0, actor=None)
    np.testing.assert_allclose(real.cost, [[3.0]])
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


def episodes(rewards, costs):
    return Episodes(np.array(rewards), np.array(costs), np.full(len(rewards), 3))


def test_statistics_of_real_episodes():
    """Four episodes with two costs; one, whose error is a guess; none, only ten steps of 20."""
    reward = np.arange(10.0).reshape(5, 2)
    cost = np.stack([reward, 0 * reward], -1)
    experience = Experience(
        [0, 1, 2], *[None] * 2, np.stack([reward] * 3), np.stack([cost] * 3), *[None] * 5,
        [
            episodes([1.0, 3.0, 5.0, 7.0], [[1.0, 2.0], [2.0, 2.0], [3.0, 2.0], [6.0, 2.0]]),
            episodes([-4.0], [[3.0, 0.0]]),
            episodes([], np.zeros((0, 2))),
        ],
    )  # fmt: skip
    problem = Problem((0, 1, 2), 2, 20, 2, ActionSpec(2), ("a", "b"))
    seen = episode_statistics(problem, experience)
    np.testing.assert_allclose(seen.reward, [4.0, -4.0, 4.5 * 20])
    np.testing.assert_allclose(seen.cost, [[3.0, 2.0], [3.0, 0.0], [4.5 * 20, 0.0]])
    spread = np.std([1, 3, 5, 7], ddof=1) / 2, np.std([1, 2, 3, 6], ddof=1) / 2
    np.testing.assert_allclose(seen.reward_error, [spread[0], 2.0, 90.0], rtol=1e-6)
    np.testing.assert_allclose(
        seen.cost_error, [[spread[1], 0.0], [3.0, 0.0], [90.0, 0.0]], rtol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [8, 80])
def test_real_segments_are_as_long_as_rollouts(horizon):
    """Carried rollouts of 20 steps take 7 steps each, or all 20."""
    config = replace(OWN, steps=2 * STEPS, horizon=horizon, carry=0.5, real_share=0.34)
    (epoch,) = in_memory.epochs(config, Drift)
    assert np.isfinite(epoch.metrics[0]["imagined_cost"])


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_practice_that_does_not_help_is_undone(monkeypatch, ratio):
    """Policy, critics and both Adams: all as before, or all moved on. Lambda moves anyway: it
    follows the cost of the policy that was imagined, which was not undone."""
    monkeypatch.setattr(mbppo_lagrangian, "improvement", lambda *_: jnp.asarray(ratio))
    config = replace(OWN, gate="reward", passes=2)
    (before,) = in_memory.epochs(replace(config, steps=2 * STEPS), Drift)
    _, after = in_memory.epochs(config, Drift)
    assert [row["passes"] for row in (before.metrics[0], after.metrics[0])] == [2 * ratio] * 2
    learners = [learned(epoch).learner for epoch in (before, after)]
    networks = [(x.actor, x.critics, x.actor_moments, x.critic_moments) for x in learners]
    pairs = zip(*map(plain, networks), strict=True)
    same = [bool((a == b).all()) for a, b in pairs]
    assert all(same) if ratio == 0 else not any(same)
    if ratio == 0:
        assert not any(np.any(m) for m in plain(networks[1][2:]))
    prices = [config.multiplier.initial, *(float(x.multiplier.raw[0, 0]) for x in learners)]
    assert prices[0] < prices[1] < prices[2]  # the cost is far above its limit
    # Reported as it is after the epoch, also where the last pass was undone.
    assert [e.metrics[0]["lambda"] for e in (before, after)] == pytest.approx(prices[1:])


def test_performance_ratios_end_with_the_episode():
    """What pays up to the time limit and costs more after it is an improvement.

    The state counts steps; the action earns itself in the first five and loses it tenfold later.
    """
    config = replace(OWN, pr_horizon=30, pr_rollouts=3)
    model = BlackBox(
        1,
        terminates=False,
        reward_fn=lambda s, a, t: jnp.where(s[0] < 4.5, a[0], -10 * a[0]),
        cost_fn=lambda s, a, t: a,
    )
    problem = Problem((0,), 1, 5, 1, ActionSpec(1, low=(-9.0,), high=(9.0,)), ("cost",), model)
    state = mbppo_lagrangian.init(config, problem, jax.random.key(0))
    counting = linear_ensemble(np.zeros((3, 2, 1)), np.ones((3, 1)), 1)
    counting = eqx.tree_at(lambda e: e.input_std, counting, jnp.full(2, 1e6))
    state = eqx.tree_at(lambda s: s.ensemble, state, counting)
    last = lambda learner: learner.actor.network.biases[-1]
    bolder = eqx.tree_at(last, state.learner, last(state.learner) + 1.0)
    past = Past(jnp.zeros((1, 1)), jnp.zeros((1, 1)), jnp.int32(0))
    args = state, past, bolder, jnp.zeros(1), jax.random.key(1)
    assert float(mbppo_lagrangian.improvement(config, problem, *args)) == 1.0
    longer = replace(problem, episode_steps=30)
    assert float(mbppo_lagrangian.improvement(config, longer, *args)) == 0.0


def misjudging(**known):
    """A model of `Drift` that has some signals wrong."""
    return lambda env: BlackBox(1, env.cost_names, **known)


def test_what_the_model_misjudges_is_named():
    """Real episodes of 20 steps have a reward of about -40 and a cost of about 60."""
    config = replace(OWN, steps=2 * STEPS, cost_limit=(60.0,))
    wrong = misjudging(
        reward_fn=lambda s, a, t: jnp.float32(100.0), cost_fn=lambda s, a, t: jnp.float32(50.0)
    )
    (epoch,) = in_memory.epochs(config, Drift, known=wrong)
    (row,) = epoch.metrics
    assert row["imagined_reward_before"] == pytest.approx(2000.0)
    assert row["imagined_cost_before"] == pytest.approx(1000.0)
    assert row["reward_mismatch"] == row["cost_mismatch"] == 1
    row |= {"reward": -41.26, "cost": 58.0}
    assert np.isnan(row["promised_reward"]) and np.isnan(row["promised_cost"])
    reward, cost = "real reward -41.3, imagined 2000.0", "real cost 58.0, imagined 1000.0"
    same = "for the same policy: the model misjudges the"
    for seen, text in (
        ((1, 1), f"{reward}, {cost} {same} reward and the cost"),
        ((1, 0), f"{reward} {same} reward"),
        ((0, 1), f"{cost} {same} cost"),
        ((0, 0), None),
    ):
        mismatch = dict(zip(("reward_mismatch", "cost_mismatch"), seen, strict=True))
        assert ALGORITHM.warning({**row, **mismatch}) == text


def test_rollouts_are_short_while_the_reward_is_misjudged():
    config = replace(OWN, cost_limit=(60.0,), horizon=20, adapt_practice=True, steps=6 * STEPS)
    wrong = misjudging(reward_fn=lambda s, a, t: jnp.float32(100.0))
    rows = [epoch.metrics[0] for epoch in in_memory.epochs(config, Drift, known=wrong)]
    assert [row["reach"] for row in rows] == [20, 14, 10]
    assert all(row["reward_mismatch"] and not row["cost_mismatch"] for row in rows)


def test_promises_that_were_not_kept_are_mismatches():
    """A refitted model agrees with the steps it has just seen. What it had imagined for the same
    policy before they were taken shows that practice exploits it."""
    config = replace(OWN, cost_limit=(60.0,), steps=4 * STEPS)
    right = misjudging(
        reward_fn=lambda s, a, t: -((a[0] - s[0]) ** 2), cost_fn=lambda s, a, t: a[0] + 3.0
    )
    training = in_memory.new_training(config, Drift, known=right)
    epochs = loop.epochs(training)
    (first,) = next(epochs).metrics
    assert np.isnan(first["promised_reward"]) and not first["reward_mismatch"]
    promised = training.trainer.snapshot()
    assert promised["promised_reward"] == pytest.approx(first["imagined_reward"])
    ratio = first["cost_ratio"]
    assert promised["promised_cost"] == pytest.approx(ratio * first["imagined_cost"])
    training.trainer._promised_reward = np.float32([500.0])
    (second,) = next(epochs).metrics
    assert second["reward_mismatch"] and not second["cost_mismatch"]
    assert second["imagined_reward_before"] == pytest.approx(second["reward"], rel=0.5)
    text = ALGORITHM.warning(second)
    assert f"imagined {second['imagined_reward_before']:.1f} (500.0 before it was tried)" in text


def test_only_steps_near_real_states_teach_at_short_reach():
    """Carried, fresh and replayed rollouts, in this order; the last half starts again."""
    two = replace(OWN.ensemble, elites=2)
    config = replace(OWN, rollouts=8, carry=0.25, replay_share=0.25, horizon=10, ensemble=two)
    config, problem = replace(config, adapt_practice=True), SimpleNamespace(episode_steps=4 * 10)
    age = jnp.array([0, 20, 0, 0, 0, 0, 0, 0])
    half = jnp.arange(8) >= 4
    near = lambda reach: Restarts(half & (reach < 10), None, jnp.int32(reach))
    assert mbppo_lagrangian.trusted(config, problem, age, near(10)).all()
    weight = np.asarray(mbppo_lagrangian.trusted(config, problem, age, near(4)))
    assert weight.sum(0).tolist() == [4, 0, 4, 4, 10, 10, 10, 10]
    assert weight[:4, 0].all()


def test_exploration_falls_from_epoch_to_epoch():
    learner = replace(OWN.ppo, initial_log_std=-0.5, minimum_log_std=-2.0)
    config = replace(OWN, final_rate=0.2, ppo=learner, early_log_std=-1.0)
    paces = [mbppo_lagrangian.pace(config, share) for share in (0.0, 0.5, 1.0)]
    np.testing.assert_allclose([p.rate for p in paces], [1.0, 0.6, 0.2], rtol=1e-6)
    np.testing.assert_allclose([p.floor for p in paces], [-1.0, -1.5, -2.0], rtol=1e-6)
    assert mbppo_lagrangian.pace(replace(config, early_log_std=None), 0.5).floor is None
    for early in (-0.4, -2.1):
        with pytest.raises(ValueError, match=f"early_log_std={early} must be between"):
            replace(config, early_log_std=early)


def test_lambda_waits_while_the_reward_rises():
    """In the first epoch, and in the next ones as long as the last gain is recent."""
    config = replace(OWN, learn_first=2, passes=30)
    at = lambda updates, stale: mbppo_lagrangian.waits(
        config,
        Progress(jnp.zeros(()), jnp.zeros(()), jnp.int32(updates), jnp.int32(stale)),
        jnp.array(real_rises),
    )
    real_rises = False
    assert at(1, 0) and at(30, 29) and at(60, 2)
    assert not at(61, 0) and not at(31, 3)
    real_rises = True
    assert at(31, 3) and not at(61, 0)
    config = replace(config, learn_first=0)
    assert not at(1, 0)


def test_the_cost_to_aim_at_falls_to_the_limit():
    """To a tenth in two epochs of five passes, from the cost when lambda no longer waits."""
    config = replace(OWN, limit_fall=2.0, passes=5)
    at = lambda aim, cost, waiting=False, final=18.0: float(
        mbppo_lagrangian.next_aim(
            config, *(jnp.array([x]) for x in (aim, cost, final)), jnp.array(waiting)
        )[0]
    )
    assert at(np.inf, 200.0) == 200.0 and at(90.0, 150.0, waiting=True) == 150.0
    aim = 1000.0
    for _ in range(10):
        aim = at(aim, 500.0)
    assert aim == pytest.approx(100.0, rel=1e-4)
    assert at(18.1, 500.0) == 18.0 and at(np.inf, 3.0) == 18.0
    assert at(1.1, 500.0, final=0.0) == 0.0 and at(0.0, 500.0, final=0.0) == 0.0
    assert at(2.0, 500.0, final=0.0) == pytest.approx(2 * 0.1**0.1)


def test_observations_are_scaled_as_the_model_scales_them():
    """By real steps: what is imagined later does not change the policy's scale."""
    scaled = replace(OWN, ppo=replace(OWN.ppo, normalise_observations=True), passes=2)
    (epoch,) = in_memory.epochs(replace(scaled, steps=2 * STEPS), Drift)
    state = learned(epoch)
    normalizer, ensemble = state.learner.normalizer, state.ensemble
    np.testing.assert_array_equal(normalizer.mean, ensemble.input_mean[:, :1])
    np.testing.assert_allclose(normalizer.var, np.square(ensemble.input_std[:, :1]))
    assert 0.5 < float(normalizer.mean[0, 0]) < 1.5  # the environment's is 1


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_imagined_and_real_cost_of_the_rc_car_agree():
    """The default preset with less practice: costs within the interval of 100 fresh episodes."""
    config = ALGORITHM.preset("default", TASKS["RCCar"], "cpu")
    config = replace(config, steps=5 * 300, cost_limit=(5.0,), rollouts=240, passes=15)
    imagined, real = [], []
    for seed in (1, 2):
        for before, epoch in pairwise(list(in_memory.epochs(config, "RCCar", [seed]))[-3:]):
            env = TASKS["RCCar"].make(100)
            result = in_memory.evaluate_policy(env, before.policy, [seed], 100, 77, 5.0)
            row = epoch.metrics[0]
            imagined.append((row["imagined_cost_before"], row["imagined_reward_before"]))
            real.append((*result.cost_interval, result.reward))
    (cost, reward), (low, high, real_reward) = (np.mean(x, 0) for x in (imagined, real))
    assert low < cost < high
    assert reward == pytest.approx(real_reward, rel=0.15)
    assert high < 10.0  # it has learned to keep to its circle: at first the cost is 95


class Huge(Drift):
    """Rewards that square to infinity in single precision."""

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, 1e30 * reward, *rest


def test_numbers_out_of_range_stop_training_and_name_the_environment():
    with pytest.raises(EnvironmentFault, match=r"environment 0, step 0 .*: reward is .*e\+"):
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


@pytest.mark.slow
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
        return obs, 1e30 if self.episode > 1 else reward, *rest


def test_what_was_written_before_a_fault_is_intact(tmp_path):
    good = []
    out = tmp_path / "run"
    with pytest.raises(EnvironmentFault, match=r"environment 0, .*: reward is .*e\+"):
        surefoot.train(
            LaterHuge, out=out, config=OWN, quiet=True, on_epoch=lambda epoch: good.append(epoch)
        )
    (first,) = good
    assert RunFolder(out).read_json("result.json")["failed"].startswith("environment 0, ")
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
