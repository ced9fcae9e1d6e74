"""Runs on disk: folders, round trips, evaluation, and policies that act without JAX."""

import json
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from surefoot.algorithms import evaluation, loop
from surefoot.algorithms.actors import draw_from
from surefoot.algorithms.algorithm import ALGORITHMS
from surefoot.algorithms.collect import Collector
from surefoot.algorithms.dataset import Dataset
from surefoot.algorithms.experience import Episodes, Experience
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.on_policy import Measured, estimate, measure
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.algorithms.trainer import Problem
from surefoot.core.config import from_dict, to_dict
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved, to_arrays
from surefoot.core.spaces import ActionSpec, action_spec
from surefoot.envs.gym.adapters import adapt
from surefoot.envs.task import TASKS, Task
from surefoot.learn import ppo
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.runs.checkpoint import (
    Checkpoint,
    epoch_of,
    list_checkpoints,
    newest_sound,
    read_checkpoint,
    write_checkpoint,
)
from surefoot.runs.folder import RunFolder
from surefoot.runs.keeper import scores_of
from surefoot.runs.listing import describe_run
from surefoot.runs.train import train
from surefoot.use.evaluate import evaluate
from surefoot.use.run import load
from toys import Script, TwoState

PPO = PPOConfig(hidden=(8,), epochs=2, critic_epochs=2, minibatches=2, normalise_observations=True)
TINY = PPOLagrangianConfig(steps=80, cost_limit=(1.0,), steps_per_epoch=40, ppo=PPO)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two seeds and two epochs on PointGoal."""
    out = tmp_path_factory.mktemp("runs") / "run"
    options = {"max_episode_steps": 20}
    return train(
        "PointGoal", "ppo-lagrangian", seeds=2, seed=4, out=out, config=TINY, task_options=options,
        quiet=True, loggers=["tensorboard"],
    )  # fmt: skip


def test_new_folders_never_collide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda _: "20260101-000000")
    paths = [RunFolder.new("a", None).path for _ in range(3)]
    stem = "a-20260101-000000"
    assert [p.name for p in paths] == [stem, f"{stem}-2", f"{stem}-3"]
    assert all(p.is_dir() and p.parent == Path("runs") for p in paths)


def test_out_must_be_new_or_empty(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert RunFolder.new("a", empty).path == empty
    (empty / "file").write_text("precious")
    for taken in (empty, empty / "file"):
        with pytest.raises(ValueError, match="not empty"):
            RunFolder.new("a", taken)
    assert (empty / "file").read_text() == "precious"


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    folder.write_json("result.json", {"a": 1})
    write_checkpoint(tmp_path, Checkpoint({"epoch": 1}, {"x": np.ones(3)}))
    with pytest.raises(TypeError):
        folder.write_json("result.json", {"a": object()})

    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        folder.write_json("result.json", {"a": 2})
    with pytest.raises(OSError, match="no space"):
        write_checkpoint(tmp_path, Checkpoint({"epoch": 2}, {"x": np.zeros(3)}))
    assert folder.read_json("result.json") == {"a": 1}
    (path,) = list_checkpoints(tmp_path)
    assert epoch_of(path) == 1
    np.testing.assert_array_equal(read_checkpoint(path).arrays["x"], np.ones(3))
    assert {p.name for p in tmp_path.iterdir()} == {"result.json", path.name}


def test_a_policy_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = policy([1.0]).save(tmp_path / "policy.npz")

    def half(file, **_):
        file.write(b"PK half a file")
        raise OSError("no space left on device")

    monkeypatch.setattr("numpy.savez", half)
    with pytest.raises(OSError, match="no space"):
        policy([2.0]).save(path)
    np.testing.assert_array_equal(Policy.load(path).biases[0], [[1.0]])
    assert [p.name for p in tmp_path.iterdir()] == ["policy.npz"]


UNKNOWN_TASK = Task("own", "", lambda *_, **__: None)
PRESETS = [(name, preset) for name in ALGORITHMS for preset in ALGORITHMS[name].presets]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("task", [None, "PointGoal", "DoggoGoal", "RCCar"])
@pytest.mark.parametrize(("algorithm", "preset"), PRESETS)
def test_configs_survive_json(algorithm, preset, task, device):
    chosen = TASKS[task] if task else UNKNOWN_TASK
    config = ALGORITHMS[algorithm].preset(preset, chosen, device)
    assert config.cost_limit == ()  # the task's
    text = json.dumps(to_dict(config))
    assert from_dict(type(config), json.loads(text)) == config


def test_an_unknown_field_is_named():
    values = to_dict(MBPPOConfig())
    values["ppo"]["clipp"] = 0.1
    with pytest.raises(ValueError, match=r"PPOConfig has no field 'clipp'.*did you mean clip"):
        from_dict(MBPPOConfig, values)


def test_states_survive_the_disk(tmp_path):
    config = MultiplierConfig(kind="pid")
    state = {
        "learner": ppo.init(PPO, config, 3, ActionSpec(2), 1, jax.random.key(1)),
        "keys": jax.random.split(jax.random.key(7), 3),
        "count": jnp.array(5, jnp.int32),
        "flag": jnp.array([True, False]),
    }
    path = write_checkpoint(tmp_path, Checkpoint({"epoch": 12}, to_arrays({"all": state})))
    template = {
        "learner": ppo.init(PPO, config, 3, ActionSpec(2), 1, jax.random.key(2)),
        "keys": jax.random.split(jax.random.key(0), 3),
        "count": jnp.array(0, jnp.int32),
        "flag": jnp.array([False, False]),
    }
    read = read_checkpoint(path)
    restored = Saved(read.arrays).like("all", template)
    assert read.meta["epoch"] == 12 and "all/learner/actor/network/weights/0" in read.arrays
    assert jax.tree.structure(restored) == jax.tree.structure(state)
    draw = lambda keys: np.asarray(jax.vmap(jax.random.normal)(keys))
    np.testing.assert_array_equal(draw(restored.pop("keys")), draw(state.pop("keys")))
    for a, b in zip(jax.tree.leaves(restored), jax.tree.leaves(state), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_a_run_holds_what_it_should(run):
    names = {p.name for p in run.iterdir()}
    assert names >= {"config.json", "metrics.csv", "result.json", "policy.npz", "log.txt"}
    assert any(name.startswith("events.out.tfevents") for name in names)
    info = json.loads((run / "config.json").read_text())
    assert info["seeds"] == [4, 5] and info["task_options"] == {"max_episode_steps": 20}
    assert from_dict(PPOLagrangianConfig, info["config"]) == TINY
    assert info["format"] == 4 and info["cost_limits"] == {"hazards": 1.0}
    assert info["loggers"] == ["tensorboard"] and info["preset"] == "custom"
    rows = RunFolder(run).read_metrics()
    assert [(r["seed"], r["epoch"], r["steps"]) for r in rows] == [
        (4, 1, 40), (5, 1, 40), (4, 2, 80), (5, 2, 80),
    ]  # fmt: skip
    result = json.loads((run / "result.json").read_text())
    assert result["real_steps"] == 80 and result["evaluation"]["episodes"] == 50
    assert [row["seed"] for row in result["evaluation"]["seeds"]] == [4, 5]


def test_a_run_is_evaluated_on_the_same_episodes_each_time(run):
    once, again, elsewhere = (
        evaluate(run, 3, seed, deterministic=True) for seed in (100, 100, 999)
    )
    assert once == again
    assert once["reward"] != elsewhere["reward"]
    assert once["deterministic"] and len(once["seeds"]) == 2


def test_an_exported_policy_acts_alike_without_jax(run, tmp_path):
    exported = load(run, 1).save(tmp_path / "robot.npz")
    obs = np.random.default_rng(0).normal(size=(7, 30)).astype(np.float32)
    policy = Policy.load(exported)
    obs = obs[:, : policy.weights[0].shape[0]]
    np.save(tmp_path / "obs.npy", obs)
    script = f"""
import sys
for name in ("jax", "equinox", "optax", "mujoco", "gymnasium"):
    sys.modules[name] = None
import numpy as np
from surefoot.core.policy import Policy
policy = Policy.load({str(exported)!r})
obs = np.load({str(tmp_path / "obs.npy")!r})
np.save({str(tmp_path / "act.npy")!r}, policy.act(obs))
np.save({str(tmp_path / "one.npy")!r}, policy.act(obs[0]))
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    acted = np.load(tmp_path / "act.npy")
    np.testing.assert_allclose(np.load(tmp_path / "one.npy"), acted[0], atol=1e-6)

    # The learner itself, read from the checkpoint.
    start = lambda key: ppo.init(PPO, TINY.multiplier, obs.shape[1], ActionSpec(2), 1, key)
    learner = jax.vmap(start)(jax.random.split(jax.random.key(0), 2))
    checkpoint, _ = newest_sound(run / "checkpoints")
    learner = Saved(checkpoint.arrays).like("trainer/state/learner", learner)
    assert checkpoint.meta["epoch"] == 2
    mode = jax.tree.map(lambda x: x[1], learner).mode(jnp.asarray(obs))
    np.testing.assert_allclose(acted, np.clip(mode, -1, 1), atol=1e-5)
    assert np.ptp(acted, axis=0).min() > 1e-4  # it depends on the observation


def test_what_cannot_be_loaded_is_named(run, tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        evaluate(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        evaluate(tmp_path)
    (tmp_path / "config.json").write_text('{"task": "Poi')
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        evaluate(tmp_path)
    (tmp_path / "config.json").write_text((run / "config.json").read_text())
    with pytest.raises(ValueError, match=r"policy\.npz is missing"):
        evaluate(tmp_path)
    for rubbish in (b"", b"rubbish", (run / "policy.npz").read_bytes()[:200]):
        (tmp_path / "policy.npz").write_bytes(rubbish)
        with pytest.raises(ValueError, match="damaged, or not a policy"):
            evaluate(tmp_path)
    with pytest.raises(ValueError, match="which=2"):
        load(run, 2)
    with pytest.raises(ValueError, match="episodes=0"):
        evaluate(run, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "PointGaol"}, "did you mean PointGoal"),
        ({"task": "PointGoal", "algorithm": "mppo"}, "algorithm='mppo' is unknown"),
        ({"task": "PointGoal", "task_options": {"hazard": 3}}, "did you mean hazards"),
        ({"task": "PointGoal", "cost_limits": 3.0}, "did you mean cost_limit"),
        ({"task": "PointGoal", "seeds": 0}, "seeds=0"),
        ({"task": "PointGoal", "seed": -1}, "seed=-1"),
        ({"task": "PointGoal", "keep": 0}, "keep=0"),
        ({"task": "PointGoal", "checkpoint_every": -1.0}, "checkpoint_every=-1"),
        ({"task": "PointGoal", "preset": "papre"}, "preset='papre' .*did you mean paper"),
        ({"task": "PointGoal", "algorithm": "ppo", "preset": "paper"}, "preset='paper'"),
        ({"task": "PointGoal", "loggers": ["tensorbord"]}, "did you mean tensorboard"),
    ],
)
def test_a_wrong_argument_is_named_before_a_folder_exists(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(**arguments, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def policy(bias):
    """For each seed a policy that always means the same action."""
    bias = np.asarray(bias, np.float32).reshape(-1, 1)
    weights, log_std = np.zeros((len(bias), 1, 1), np.float32), np.full_like(bias, -1.0)
    return Policy((weights,), (bias,), log_std, np.full(1, -1.0), np.full(1, 1.0), kind="gaussian")


def scripted(costs):
    """An environment for each entry; its first episode has this cost per step and lasts 6."""
    makers = iter([Script(costs=(c, 99.0)) for c in costs])
    return adapt(lambda: next(makers), num_envs=len(costs))


def evaluate_policy(env, policy, seeds, episodes, seed, cost_limit, deterministic=False):
    """Fresh episodes under a policy; one limit for all constraints."""
    return evaluation.evaluate(
        env, lambda rngs, steps: draw_from(policy, rngs, episodes, steps, deterministic), seeds,
        episodes, seed, [cost_limit] * len(env.cost_names), deterministic,
    ).to_dict()  # fmt: skip


def test_evaluation_by_hand():
    """20 environments of 6 steps cost 6 c with c = 0 ... 19; the action, so the reward, is 0.25."""
    values = evaluate_policy(scripted(range(20)), policy([0.25]), [0], 20, 1, 30.0, True)
    assert values["reward"] == pytest.approx(6 * 0.25)
    assert values["cost"] == pytest.approx(6 * 9.5)
    assert values["within_limit"] == pytest.approx(6 / 20)  # 0, 6, ... 30
    assert values["cost_cvar"] == pytest.approx(6 * 18.5)  # the worst two
    assert values["cost_limit"] == 30.0 and values["episodes"] == 20
    assert "reward_std" not in values


def test_evaluation_keeps_seeds_apart():
    """The first two environments are seed 3's, the others seed 8's, each with its own policy."""
    values = evaluate_policy(
        scripted((1, 3, 10, 30)), policy([0.5, -0.5]), [3, 8], 2, 1, 18.0, deterministic=True
    )
    assert [row["seed"] for row in values["seeds"]] == [3, 8]
    np.testing.assert_allclose([row["reward"] for row in values["seeds"]], [3.0, -3.0])
    np.testing.assert_allclose([row["cost"] for row in values["seeds"]], [12.0, 120.0])
    np.testing.assert_allclose([row["within_limit"] for row in values["seeds"]], [1.0, 0.0])
    assert values["reward"] == pytest.approx(0.0) and values["cost"] == pytest.approx(66.0)
    assert values["cost_std"] == pytest.approx(108 / 2**0.5)


def test_short_episodes_do_not_count_more_often():
    """One environment ends after 2 steps, again and again; the other after 6: an episode each."""
    makers = iter([Script(costs=(1.0,), ends=(2,)), Script(costs=(1.0,))])
    env = adapt(lambda: next(makers), num_envs=2)
    values = evaluate_policy(env, policy([0.5]), [0], 2, 1, 3.0, deterministic=True)
    assert values["seeds"][0]["episodes"] == 2
    assert values["cost"] == pytest.approx((2 + 6) / 2)
    assert values["reward"] == pytest.approx((1 + 3) / 2)
    assert values["within_limit"] == 0.5


def test_a_discrete_policy_is_deterministic_on_request():
    make = lambda: adapt(TwoState, num_envs=50)
    bias = np.array([[0.0, 0.3]], np.float32)  # the second choice somewhat more often
    none = np.zeros(0)
    bold = Policy((np.zeros((1, 2, 2), np.float32),), (bias,), None, none, none, kind="categorical")
    certain = evaluate_policy(make(), bold, [0], 50, 1, 100.0, deterministic=True)
    drawn = evaluate_policy(make(), bold, [0], 50, 1, 100.0)
    assert certain["reward"] == pytest.approx(TwoState.optimum(1e3), abs=0.5)  # always action 1
    assert drawn["reward"] < 0.8 * certain["reward"]


class Two(Script):
    """Two costs at every step."""

    def __init__(self, pair):
        super().__init__()
        self.pair = pair

    def step(self, action):
        *rest, _ = super().step(action)
        return *rest, {"cost": np.array(self.pair)}


def test_several_constraints_are_each_held_to_the_limit():
    """Costs per episode: (6, 12), (18, 12), (6, 30)."""
    rows = iter([(1.0, 2.0), (3.0, 2.0), (1.0, 5.0)])
    env = adapt(lambda: Two(next(rows)), cost_names=("a", "b"), num_envs=3)
    values = evaluate_policy(env, policy([0.0]), [0], 3, 1, 15.0, deterministic=True)
    assert values["within_limit"] == pytest.approx(1 / 3)
    assert values["cost"] == pytest.approx(18.0)  # of the second, the larger
    assert values["seeds"][0]["costs"] == {"a": 10.0, "b": 18.0}


def test_a_run_with_two_constraints_is_judged_by_the_worse_kept(tmp_path):
    """6 steps cost (6, 12) or (18, 12) an episode, so (12, 12) and (6, 30) in the mean of two."""
    pairs = {1: [(1.0, 2.0), (3.0, 2.0)], 2: [(1.0, 5.0), (1.0, 5.0)]}
    for number, limit, feasible in ((1, 12.0, True), (1, 11.0, False), (2, 12.0, False)):

        def make_env(n, pairs=pairs[number]):
            rows = iter(pairs * n)  # a single environment is only asked for its sizes
            return adapt(lambda: Two(next(rows)), cost_names=("a", "b"), num_envs=n)

        config = PPOLagrangianConfig(steps=12, cost_limit=(limit,), steps_per_epoch=12, ppo=PPO)
        out = train(make_env, config=config, out=tmp_path / f"{number}-{limit}", quiet=True)
        (row,) = RunFolder(out).read_metrics()
        means = np.mean([np.multiply(6.0, pair) for pair in pairs[number]], 0)
        assert (row["cost_a"], row["cost_b"]) == tuple(means)
        assert row["cost_limit_a"] == row["cost_limit_b"] == row["cost_limit"] == limit
        assert row["cost"] == describe_run(out).cost == max(means)
        assert row["lambda"] == row["lambda_a" if means[0] >= means[1] else "lambda_b"]
        assert scores_of([row]) == {0: (feasible, row["reward"])}
        result = RunFolder(out).read_json("result.json")["evaluation"]
        assert result["cost"] == max(means) and result["episodes"] == 50


def test_the_cost_is_estimated_from_the_steps_until_an_episode_has_ended():
    """Of two seeds only the second had an episode, of cost 7; steps of the first cost 0.25."""
    episodes = [Episodes(np.zeros(0), np.zeros((0, 1)), np.zeros(0, int))]
    episodes.append(Episodes(np.ones(1), np.full((1, 1), 7.0), np.array([4])))
    cost = np.stack([np.full((5, 2, 1), 0.25), np.full((5, 2, 1), 3.0)])
    empty = np.zeros(0)
    seen = Experience(
        [0, 1], empty, empty, np.zeros((2, 5, 2)), cost, empty, empty, empty, None, None, episodes
    )
    before = Measured(np.full((2, 1), np.nan, np.float32), np.full(2, 20.0, np.float32))
    measured = measure(seen, before)
    np.testing.assert_array_equal(measured.cost, [[np.nan], [7.0]])
    np.testing.assert_array_equal(estimate(seen, measured).cost, [[0.25 * 20], [7.0]])


class Idle:
    """A trainer that takes action 0 for three steps per epoch and learns nothing."""

    rounds, round_steps, remedy = 1, 3, ""

    def actor(self, done, rngs):
        return lambda now: np.zeros((*now.obs.shape[:2], 1), np.float32)

    def learn(self, experience, done, phases):
        pass

    def end_epoch(self):
        return {"constant": np.arange(2.0)}

    def finite_parts(self):
        return {}

    def policy(self):
        return policy([0.0, 0.0])

    def snapshot(self):
        return {}


def test_epochs_without_an_ended_episode_have_no_cost():
    """Episodes take 6 steps, so they end in every second epoch; seed 7's steps have a cost."""
    env = scripted((0.0, 2.0))
    problem = Problem((3, 7), 1, 6, 1, action_spec(env.single_action_space), ("cost",))
    totals = loop.Totals(0, 0, np.zeros(2))
    training = loop.Training(problem, (5.0,), 6, Collector(env, (3, 7), 1), Idle(), totals)
    first, second = (epoch.metrics for epoch in loop.epochs(training))
    assert [(r["seed"], r["steps"], r["constant"]) for r in first] == [(3, 3, 0.0), (7, 3, 1.0)]
    assert all(np.isnan([r["cost"], r["reward"]]).all() and not r["episodes"] for r in first)
    assert [r["cost"] for r in second] == [0.0, 12.0] and second[1]["cost_limit"] == 5.0
    assert [r["violations"] for r in second] == [0, 6]
    assert "cost_cost" not in second[0]  # only with several constraints


def test_all_that_saving_takes_is_counted(tmp_path, monkeypatch):
    """The environments' snapshot and policy.npz take 0.1 s each, in each of two epochs."""
    for kind, name in ((Collector, "snapshot"), (RunFolder, "write_policy")):
        real = getattr(kind, name)

        def slow(*args, real=real):
            time.sleep(0.1)
            return real(*args)

        monkeypatch.setattr(kind, name, slow)
    make_env = lambda n: adapt(Script, num_envs=n)
    config = PPOLagrangianConfig(steps=24, cost_limit=(1.0,), steps_per_epoch=12, ppo=PPO)
    out = train(make_env, config=config, out=tmp_path / "run", quiet=True)
    phases = RunFolder(out).read_json("result.json")["phases"]
    assert 0.4 <= phases["save"] < 1.5


def test_a_restored_dataset_is_not_copied_every_epoch(tmp_path):
    arrays = {"dataset/0/x": np.ones((1, 3), np.float32)}
    path = write_checkpoint(tmp_path, Checkpoint({"epoch": 1}, arrays))
    dataset = Dataset(capacity=5, seeds=1)
    dataset.restore(Saved(read_checkpoint(path).arrays).part("dataset"), steps=3)
    (rows,) = dataset.snapshot()
    assert to_arrays({"dataset": dataset.snapshot()})["dataset/0/x"] is rows["x"]
    assert not rows["x"].flags.writeable and dataset.size == 3
