"""SAC: its arithmetic against numbers worked out by hand, its replay buffer, and learning."""

import json
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box
from scipy import integrate, stats

import in_memory
from harness import OFF, SAC, came_to, differences, start
from surefoot.algorithms.algorithm import ALGORITHMS
from surefoot.algorithms.collect import Collector
from surefoot.algorithms.dataset import Dataset
from surefoot.algorithms.off_policy import METRICS, Updates, squashed_policy
from surefoot.algorithms.off_policy import transitions as to_transitions
from surefoot.algorithms.sac import SACConfig
from surefoot.algorithms.trainer import Problem
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved, to_arrays
from surefoot.core.spaces import ActionSpec
from surefoot.envs.gym.adapters import adapt
from surefoot.envs.task import TASKS
from surefoot.learn import replay as replays
from surefoot.learn import sac
from surefoot.learn.networks import Gaussian, Normalizer
from surefoot.learn.replay import Transitions
from surefoot.learn.sac import SACLearnerConfig
from surefoot.runs.folder import RunFolder
from toys import Script, TwoState

KEY = jax.random.key(0)


def transitions(n: int, seed: int = 0, obs: int = 3, actions: int = 2) -> Transitions:
    rng = np.random.default_rng(seed)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    ended = jnp.asarray(rng.random(n) < 0.3)
    return Transitions(
        normal(n, obs), jnp.tanh(normal(n, actions)), normal(n), normal(n, obs), ended
    )


# The squashed Gaussian


@pytest.mark.parametrize(("mean", "std"), [(0.3, 0.8), (-1.5, 0.4), (0.0, 2.0)])
def test_log_probabilities_are_those_of_the_law_of_what_is_drawn(mean, std):
    """The density of tanh(X) by change of variables, in double precision; it integrates to 1."""
    density = lambda a: stats.norm.pdf(np.arctanh(a), mean, std) / (1 - a * a)
    assert integrate.quad(density, -1, 1)[0] == pytest.approx(1.0, abs=1e-6)
    law = sac.Squashed(Gaussian(jnp.full((5000, 1), mean), jnp.full(1, np.log(std))))
    action, log_prob = law.draw(KEY)
    inner = np.abs(action[:, 0]) < 0.999  # beyond, a float32 cannot say where it came from
    exact = np.log([density(a) for a in np.asarray(action, np.float64)[inner, 0]])
    np.testing.assert_allclose(log_prob[inner], exact, atol=2e-3)
    # The mean of -log pi is the entropy, here by numerical integration.
    entropy = integrate.quad(lambda a: -density(a) * np.log(density(a) + 1e-300), -1, 1)[0]
    assert -np.mean(log_prob) == pytest.approx(entropy, abs=0.05)


def test_log_probabilities_far_out_are_finite_and_right():
    """At x = 30, log(1 - tanh^2) = log 4 - 2 x up to 1e-26, where 1 - tanh(x)^2 itself is 0."""
    law = sac.Squashed(Gaussian(jnp.full((4, 2), 30.0), jnp.full(2, -20.0)))
    action, log_prob = law.draw(KEY)
    x = 30.0  # the deviation is below float32's digits here
    own = law.gaussian.log_prob(law.gaussian.sample(KEY))
    assert (np.asarray(action) == 1).all()
    np.testing.assert_allclose(log_prob - own, np.full(4, -2 * (np.log(4) - 2 * x)), rtol=1e-6)


# The update


@partial(jax.jit, static_argnums=0)
def begin(config: SACLearnerConfig, key) -> sac.Learner:
    return sac.init(config, 3, ActionSpec(2), key)


def says(twin: sac.TwinQ, values: tuple[float, float]) -> sac.TwinQ:
    """Critics that say the same everywhere."""
    zero = jax.tree.map(jnp.zeros_like, twin)
    bias = jnp.asarray(values, jnp.float32)[:, None]
    return eqx.tree_at(lambda t: t.network.biases[-1], zero, bias)


def constant(learner: sac.Learner, q: tuple[float, float], targets: tuple[float, float]):
    """The same learner with such critics and targets."""
    now, later = says(learner.targets, q), says(learner.targets, targets)
    return eqx.tree_at(lambda s: (s.networks.critics, s.targets), learner, (now, later))


def test_the_soft_target_by_hand():
    """Critics say 5 and 3, temperature 0.5, gamma 0.9: r + 0.9 (3 - 0.5 log pi), r at the end."""
    config = SACLearnerConfig(gamma=0.9, hidden=(4,), initial_temperature=0.5)
    learner = constant(begin(config, KEY), (9.0, 9.0), (5.0, 3.0))
    batch = transitions(20)
    _, log_prob = learner.networks.actor(batch.next_obs).draw(KEY)
    found = sac.soft_target(config, learner, batch, KEY)
    soft = 0.9 * (3.0 - 0.5 * np.asarray(log_prob))
    wanted = np.asarray(batch.reward) + np.where(batch.terminated, 0.0, soft)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert batch.terminated.any() and not batch.terminated.all()


def test_the_target_critics_follow():
    config = SACLearnerConfig(hidden=(4,))
    learner = begin(config, KEY)
    slow, fast = says(learner.targets, (1.0, 2.0)), says(learner.targets, (3.0, 10.0))
    moved = sac.polyak_average(0.75, slow, fast)
    np.testing.assert_allclose(moved.network.biases[-1][:, 0], [1.5, 4.0])


def test_the_gradient_of_the_temperature():
    """log pi of 1 and 3, target -1: minus the mean of 0 and 2; colder, as there is too much."""
    grad = jax.grad(sac.temperature_loss)
    log_prob = jnp.array([1.0, 3.0])
    assert grad(jnp.array(0.3), log_prob, -1.0) == pytest.approx(-1.0)
    assert grad(jnp.array(0.3), -log_prob, -1.0) == pytest.approx(3.0)


def test_an_update_moves_everything_the_right_way():
    """Adam's first step is its learning rate against the gradient's sign, whatever its size."""
    config = SACLearnerConfig(hidden=(4,), learning_rate=0.01, polyak=0.9, target_entropy=50.0)
    learner = constant(begin(config, KEY), (-9.0, -9.0), (7.0, 7.0))
    narrow = jnp.array([0.0, 0.0, -2.0, -2.0])
    learner = eqx.tree_at(lambda s: s.networks.actor.network.biases[-1], learner, narrow)
    after, metrics = jax.jit(lambda *args: sac.update(config, *args))(learner, transitions(64), KEY)
    # The targets, about 7 times gamma, are above what the critics say: both rise by a step.
    np.testing.assert_allclose(after.networks.critics.network.biases[-1], -9 + 0.01, atol=1e-5)
    # No action has an entropy of 50, so the temperature rises.
    assert after.networks.log_temperature == pytest.approx(0.01, rel=1e-3)
    np.testing.assert_allclose(after.targets.network.biases[-1], 0.9 * 7 + 0.1 * -8.99, rtol=1e-5)
    # With critics that do not care, a narrow actor becomes wider.
    np.testing.assert_allclose(after.networks.actor.network.biases[-1][2:], -2 + 0.01, atol=1e-5)
    assert metrics["temperature"] == pytest.approx(1.0) and set(metrics) == set(METRICS)


def test_bounds_and_the_unit_box():
    actions = ActionSpec(2, low=(-2.0, 1.0), high=(2.0, 5.0))
    unit = np.array([[-1.0, -1.0], [1.0, 1.0], [0.5, 0.0]], np.float32)
    box = sac.to_box(actions, unit)
    np.testing.assert_allclose(box, [[-2.0, 1.0], [2.0, 5.0], [1.0, 3.0]])
    np.testing.assert_allclose(sac.to_unit(actions, box), unit, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": 1.0}, "gamma=1.0 must be .*below 1"),
        ({"polyak": 1.5}, "polyak=1.5"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be "),
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"hidden": (8, 0)}, r"hidden=\(8, 0\)"),
        ({"target_entropy": "low"}, "target_entropy='low' must be"),
    ],
)
def test_bad_settings_of_the_learner(change, message):
    with pytest.raises(ValueError, match=message):
        SACLearnerConfig(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"update_every": 55}, "update_every=55 must be a multiple of environments=10.* 60"),
        ({"steps_per_epoch": 70}, "steps_per_epoch=70 must be a multiple of update_every=50.* 100"),
        ({"replay": 100}, "replay=100 must be at least steps_per_epoch=7500"),
        ({"random_steps": -1}, "random_steps=-1 must be at least 0"),
        ({"updates": 0}, "updates=0 must be at least 1"),
        ({"cost_limit": (-1.0,)}, r"cost_limit=\(-1.0,\) must be at least 0"),
        ({"cost_limit": 1.0}, "cost_limit=1.0 must be a tuple"),
    ],
)
def test_bad_settings_of_a_run(change, message):
    with pytest.raises(ValueError, match=message):
        SACConfig(**change)


# The replay buffer


def rows(i: int, j: int, seeds: int = 1) -> dict[str, np.ndarray]:
    """Steps i to j, alike in all seeds but for their sign."""
    one = np.arange(i, j, dtype=np.float32)
    reward = np.stack([one * (-1) ** s for s in range(seeds)])
    spread = lambda k: reward[..., None] * np.ones(k, np.float32)
    return {
        "obs": spread(3), "action": spread(2), "reward": reward, "next_obs": spread(3) + 1,
        "terminated": np.abs(reward) % 2 == 1,
    }  # fmt: skip


def test_the_ring_wraps():
    """Capacity 5; rows 0 to 2, then 3 to 6: the oldest two are gone."""
    buffer = Dataset(5, 1)
    buffer.add(rows(0, 3))
    assert (buffer.count, buffer.size) == (3, 3)

    def draw(count):
        transitions = jax.tree.map(lambda x: x[0], Transitions(**buffer.rows))
        return replays.draw(transitions, jnp.int32(buffer.size), count, KEY)

    assert set(np.asarray(draw(50).reward)) == {0.0, 1.0, 2.0}
    buffer.add(rows(3, 7))
    assert (buffer.count, buffer.size) == (7, 5)
    np.testing.assert_array_equal(buffer.rows["reward"], [[5, 6, 2, 3, 4]])
    drawn = draw(300)
    assert set(np.asarray(drawn.reward)) == {2.0, 3.0, 4.0, 5.0, 6.0}
    np.testing.assert_array_equal(drawn.obs[:, 1], drawn.reward)  # rows stay together
    np.testing.assert_array_equal(drawn.terminated, np.asarray(drawn.reward) % 2 == 1)
    with pytest.raises(ValueError, match=r"6 steps at once exceed the capacity of 5"):
        buffer.add(rows(0, 6))


def test_a_dataset_is_restored_from_its_snapshot():
    """Also after it has wrapped, when the host has dropped what was overwritten."""
    dataset = Dataset(7, 2)
    for epoch in range(5):
        dataset.add(rows(4 * epoch, 4 * epoch + 1, seeds=2))
        dataset.add(rows(4 * epoch + 1, 4 * epoch + 4, seeds=2))
        dataset.end_epoch()
        saved = Saved(to_arrays({"replay": dataset.snapshot()})).part("replay")
        again = Dataset(7, 2)
        again.restore(saved, 4 * (epoch + 1))
        assert (again.count, again.size) == (dataset.count, dataset.size)
        for name, x in dataset.rows.items():
            np.testing.assert_array_equal(x, again.rows[name])
        # What follows goes to the same rows.
        assert len(again.snapshot()) == len(dataset.snapshot()) == min(epoch + 1, 2)
        again.add(rows(90, 92, seeds=2))
        places = sorted((4 * epoch + i) % 7 for i in (4, 5))
        np.testing.assert_array_equal(np.flatnonzero(again.rows["reward"][0] >= 90), places)
    assert dataset.count == 20 and dataset.size == 7
    np.testing.assert_array_equal(sorted(np.asarray(dataset.rows["reward"][0])), np.arange(13, 20))
    (*_, newest) = dataset.snapshot()
    with pytest.raises(ValueError, match="read-only"):
        newest["reward"][0, 0] = 1.0


def test_a_restored_dataset_may_be_larger():
    """A run that is made longer has room for more steps."""
    short = Dataset(4, 1)
    short.add(rows(0, 4))
    short.end_epoch()
    longer = Dataset(8, 1)
    longer.restore({"0": short.snapshot()[0]}, 4)
    longer.add(rows(4, 7))
    np.testing.assert_array_equal(longer.rows["reward"], [[0, 1, 2, 3, 4, 5, 6, 0]])
    assert longer.size == 7


def unused(*_):
    raise AssertionError("no updates are made here")


def test_the_replay_buffer_holds_real_steps():
    config = SACConfig(
        steps=600, steps_per_epoch=40, replay=70, environments=2, update_every=10, updates=1
    )
    actions = ActionSpec(1, low=(-2.0,), high=(2.0,))
    problem = Problem((0,), 2, 6, 1, actions, ("cost",))
    collector = Collector(scripts(2), [0], 2)
    buffer = Updates(config, problem, unused).replay
    for _ in range(16):
        steps = collector.collect(lambda now: np.full((1, 2, 1), 0.5, np.float32), actions, 5)
        buffer.add(to_transitions(steps, actions))
    assert buffer.count == 160 and buffer.size == 70
    np.testing.assert_array_equal(buffer.rows["action"], 0.25)  # in the unit box
    np.testing.assert_array_equal(buffer.rows["reward"], 0.5)
    np.testing.assert_array_equal(buffer.rows["next_obs"], buffer.rows["obs"] + 1)
    few = replace(config, steps=45)
    few_buffer = Updates(few, problem, unused).replay
    few_buffer.add(to_transitions(steps, actions))
    assert few_buffer.rows["reward"].shape == (1, 50)


# The loop


def scripts(n: int):
    """Episodes that end after 4 steps, or run out of time after 6, in turn."""
    return adapt(lambda: Script(ends=(4, 99) * 50), num_envs=n)


def test_only_true_ends_are_terminal():
    config = SACConfig(
        steps=24, steps_per_epoch=24, environments=1, update_every=12, updates=1, random_steps=99,
        replay=24, cost_limit=(1.0,), sac=SAC,
    )  # fmt: skip
    (epoch,) = in_memory.epochs(config, scripts)
    rows = epoch.snapshot.trainer["replay"][0]
    steps = np.array([1, 2, 3, 4, 1, 2, 3, 4, 5, 6] * 3)[:24]
    np.testing.assert_array_equal(rows["next_obs"][0, :, 0], steps)  # the final one at an end
    np.testing.assert_array_equal(rows["obs"][0, :, 0], steps - 1)
    expected = np.zeros(24, bool)
    expected[[3, 13, 23]] = True  # 6 is only a time-out
    np.testing.assert_array_equal(rows["terminated"][0], expected)
    np.testing.assert_allclose(rows["reward"][0], rows["action"][0, :, 0], rtol=1e-6)
    assert np.isnan(epoch.metrics[0]["critic_loss"]) and epoch.metrics[0]["episodes"] == 5


def test_discrete_and_unbounded_actions_are_refused():
    run = lambda source: next(in_memory.epochs(SACConfig(cost_limit=(1.0,), sac=SAC), source))
    with pytest.raises(ValueError, match=r"action_space=Discrete\(2\): SAC.* need a Box"):
        run(TwoState)

    class Unbounded(Script):
        action_space = Box(-np.inf, np.inf, (1,), np.float64)

    with pytest.raises(ValueError, match="need finite bounds"):
        run(Unbounded)


def test_epochs_count_steps_also_after_a_restart():
    """Rounds of 10 steps: 95 requested ones are 40, 40 and 20; the last epoch is shorter."""
    config = replace(SACConfig(sac=SAC, **OFF), steps=95, random_steps=999)
    whole = [(epoch, to_arrays(epoch.snapshot)) for epoch in in_memory.epochs(config, scripts)]
    progress = lambda epoch: (epoch.number, epoch.total, epoch.metrics[0]["steps"])
    assert [progress(epoch) for epoch, _ in whole] == [(1, 3, 40), (2, 3, 80), (3, 3, 100)]
    resume = lambda i: in_memory.epochs(config, scripts, saved=Saved(whole[i][1]))
    assert [progress(epoch) for epoch in resume(1)] == [(3, 3, 100)]
    assert [*resume(2)] == []


def test_the_numpy_policy_acts_as_the_learner(tmp_path):
    """Deviations differ from state to state, and actions fill the bounds."""
    actions = ActionSpec(2, low=(-2.0, 0.0), high=(2.0, 1.0))
    config = SACLearnerConfig(hidden=(8, 8))
    learners = jax.vmap(partial(begin, config))(jax.random.split(KEY, 2))
    # A last layer of ordinary size, so that heads differ.
    scale = lambda x: 100 * x if x.shape[-1] == 4 and x.ndim == 3 else x
    learners = jax.tree.map(scale, learners)
    policy = squashed_policy(learners.networks.actor, actions)
    path = policy.seed(1).save(tmp_path / "policy.npz")
    own = Policy.load(path)
    assert own.kind == "squashed" and own.actions == 2
    with np.load(path) as data:
        header = json.loads(str(data["header"]))
    assert (header["format"], header["kind"]) == (2, "squashed")
    obs = np.random.default_rng(0).normal(size=(2000, 3)).astype(np.float32)
    mine = jax.tree.map(lambda x: x[1], learners)
    law = mine.networks.actor(jnp.asarray(obs)).gaussian
    np.testing.assert_allclose(own.act(obs), sac.to_box(actions, np.tanh(law.mean)), atol=1e-5)
    assert np.ptp(law.log_std) > 0.5
    noise = np.random.default_rng(1).normal(size=(2000, 2)).astype(np.float32)
    drawn = sac.to_box(actions, np.tanh(law.mean + np.exp(law.log_std) * noise))
    np.testing.assert_allclose(own.sample(obs, noise), drawn, atol=1e-4)
    both = policy.sample(np.stack([obs, obs]), np.stack([noise, noise]))
    np.testing.assert_allclose(both[1], drawn, atol=1e-4)
    assert (both >= policy.low).all() and (both <= policy.high).all()
    assert own.act(obs[0]).shape == (2,) and own.act(obs, np.random.default_rng(0)).shape == (
        2000,
        2,
    )
    # Observations may be scaled first, for each seed in its own way.
    scale = jax.vmap(lambda x: Normalizer(3).update(x))(10 + 5 * jnp.stack([-obs, obs]))
    own = squashed_policy(learners.networks.actor, actions, scale).seed(1)
    mean = mine.networks.actor(jax.tree.map(lambda x: x[1], scale)(jnp.asarray(obs))).gaussian.mean
    np.testing.assert_allclose(own.act(obs), sac.to_box(actions, np.tanh(mean)), atol=1e-4)


def test_policies_of_the_first_format_still_load(tmp_path):
    zeros = np.zeros((3, 2), np.float32)
    path = tmp_path / "old.npz"
    header = json.dumps({"format": 1, "layers": 1})  # as it was before there were kinds
    np.savez(path, header=np.array(header), weight_0=zeros, bias_0=np.full(2, 0.5),
             log_std=np.zeros(2), low=-np.ones(2), high=np.ones(2))  # fmt: skip
    assert Policy.load(path).kind == "gaussian"
    np.testing.assert_allclose(Policy.load(path).act(np.zeros(3)), 0.5)
    header = json.dumps({"format": 3})
    np.savez(path, header=np.array(header))
    with pytest.raises(ValueError, match="has format 3; this version reads 1 and 2"):
        Policy.load(path)


def test_a_run_from_train_to_export(tmp_path, call):
    """The command line; the resumed run is the longer run, also over the end of a short epoch."""
    out = tmp_path / "run"
    words = ["--steps", "100", "--environments", "2", "--random-steps", "60", "--replay", "90",
             "--update-every", "10", "--updates", "5", "--steps-per-epoch", "40",
             "--sac.hidden", "8", "--sac.batch-size", "16", "--cost-limit", "1",
             "--env", "max_episode_steps=20", "--seeds", "2", "--quiet"]  # fmt: skip
    code, shown, _ = call("train", "PointGoal", "--algorithm", "sac", "--out", str(out), *words)
    assert code == 0 and "reward" in shown
    rows = RunFolder(out).read_metrics()
    assert [row["steps"] for row in rows] == [40, 40, 80, 80, 100, 100]
    assert np.isnan(rows[0]["temperature"]) and 0.9 < rows[-1]["temperature"] < 1.1
    code, shown, _ = call("evaluate", str(out), "--episodes", "2", "--json")
    assert code == 0 and json.loads(shown)["episodes"] == 2
    code, *_ = call("export", str(out), str(tmp_path / "exported.npz"))
    assert code == 0 and Policy.load(tmp_path / "exported.npz").kind == "squashed"
    code, *_ = call("resume", str(out), "--steps", "160", "--quiet")
    assert code == 0 and RunFolder(out).read_metrics()[-1]["steps"] == 160
    whole = start("sac", tmp_path / "whole", 4)
    trained = lambda run: {
        k: v
        for k, v in came_to(run).items()
        if k.startswith(("trainer/state/", "collector/", "policy"))
    }
    assert differences(trained(out), trained(whole)) == []


def test_presets():
    config = ALGORITHMS["sac"].preset("default", TASKS["RCCar"], "cpu")
    assert config.cost_limit == () and config.random_steps == 10_000
    assert (config.sac.hidden, config.sac.polyak, config.updates) == ((256, 256), 0.995, 50)


def pendulums(n: int):
    """Gymnasium's, at the cost of the torque spent."""
    torque = lambda obs, action, after: np.abs(np.clip(action[:, 0], -2.0, 2.0)) / 2.0
    return adapt("Pendulum-v1", cost=torque, num_envs=n)


@pytest.mark.slow
def test_pendulum_swings_up_within_ten_thousand_steps():
    """Random torques earn about -1200, and good SAC runs reach -150 to -200."""
    config = SACConfig(
        steps=8_000, cost_limit=(1e3,), environments=1, random_steps=1_000, steps_per_epoch=2_000,
        replay=10_000, sac=SACLearnerConfig(hidden=(128, 128), batch_size=128),
    )  # fmt: skip
    *_, last = in_memory.epochs(config, pendulums)
    env = pendulums(50)
    result = in_memory.evaluate_policy(env, last.policy, [0], 50, 77, 1e3, deterministic=True)
    print(f"SAC on Pendulum-v1 after {config.steps} steps: {result.reward:.0f}")
    assert result.reward >= -250.0
