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

from surefoot.algorithms.collect import Collector, Episodes, Experience
from surefoot.algorithms.common import new_totals, real_metrics
from surefoot.algorithms.mbppo_lagrangian import MBPPOConfig
from surefoot.algorithms.mbppo_memory import kept
from surefoot.algorithms.model_free import Measured, guess, measure
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.algorithms.presets import ALGORITHMS, PRESETS, preset
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved, to_arrays
from surefoot.envs.gym.adapters import adapt
from surefoot.learn import ppo
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.runs import train as runs
from surefoot.runs.checkpoint import (
    Checkpoint,
    epoch_of,
    list_checkpoints,
    newest_sound,
    read_checkpoint,
    write_checkpoint,
)
from surefoot.runs.folder import RunFolder, config_dict, config_from
from surefoot.runs.keeper import scores_of
from surefoot.runs.listing import describe_run
from surefoot.use.evaluate import evaluate_policy
from toys import Script, TwoState

PPO = PPOConfig(hidden=(8,), epochs=2, critic_epochs=2, minibatches=2, normalise_observations=True)
TINY = PPOLagrangianConfig(steps=80, cost_limit=1.0, steps_per_epoch=40, ppo=PPO)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two seeds and two epochs on PointGoal."""
    out = tmp_path_factory.mktemp("runs") / "run"
    options = {"max_episode_steps": 20}
    return runs.train(
        "PointGoal", "ppo-lagrangian", seeds=2, seed=4, out=out, config=TINY, task_options=options,
        quiet=True, tensorboard=True,
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
        Path(file).write_bytes(b"PK half a file")
        raise OSError("no space left on device")

    monkeypatch.setattr("numpy.savez", half)
    with pytest.raises(OSError, match="no space"):
        policy([2.0]).save(path)
    np.testing.assert_array_equal(Policy.load(path).biases[0], [[1.0]])
    assert [p.name for p in tmp_path.iterdir()] == ["policy.npz"]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("task", [None, "PointGoal", "DoggoGoal", "RCCar"])
@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_configs_survive_json(algorithm, name, task, device):
    config = preset(algorithm, name, task, device)
    text = json.dumps(config_dict(config))
    assert config_from(type(config), json.loads(text)) == config


def test_an_unknown_field_is_named():
    values = config_dict(MBPPOConfig())
    values["ppo"]["clipp"] = 0.1
    with pytest.raises(ValueError, match="PPOConfig has no field clipp"):
        config_from(MBPPOConfig, values)


def test_states_survive_the_disk(tmp_path):
    config = MultiplierConfig(kind="pid")
    state = {
        "learner": ppo.init(PPO, config, 3, 2, False, 1, jax.random.key(1)),
        "keys": jax.random.split(jax.random.key(7), 3),
        "count": jnp.array(5, jnp.int32),
        "flag": jnp.array([True, False]),
    }
    path = write_checkpoint(tmp_path, Checkpoint({"epoch": 12}, to_arrays({"all": state})))
    template = {
        "learner": ppo.init(PPO, config, 3, 2, False, 1, jax.random.key(2)),
        "keys": jax.random.split(jax.random.key(0), 3),
        "count": jnp.array(0, jnp.int32),
        "flag": jnp.array([False, False]),
    }
    read = read_checkpoint(path)
    found = Saved(read.arrays).like("all", template)
    assert read.meta["epoch"] == 12 and "all/learner/actor/network/weights/0" in read.arrays
    assert jax.tree.structure(found) == jax.tree.structure(state)
    draw = lambda keys: np.asarray(jax.vmap(jax.random.normal)(keys))
    np.testing.assert_array_equal(draw(found.pop("keys")), draw(state.pop("keys")))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(state), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_a_run_holds_what_it_should(run):
    names = {p.name for p in run.iterdir()}
    assert names >= {"config.json", "metrics.csv", "result.json", "policy.npz", "log.txt"}
    assert any(name.startswith("events.out.tfevents") for name in names)
    info = json.loads((run / "config.json").read_text())
    assert info["seeds"] == [4, 5] and info["task_options"] == {"max_episode_steps": 20}
    assert config_from(PPOLagrangianConfig, info["config"]) == TINY
    rows = RunFolder(run).read_metrics()
    assert [(r["seed"], r["epoch"], r["steps"]) for r in rows] == [
        (4, 1, 40), (5, 1, 40), (4, 2, 80), (5, 2, 80),
    ]  # fmt: skip
    result = json.loads((run / "result.json").read_text())
    assert result["real_steps"] == 80 and result["evaluation"]["episodes"] == 50
    assert [row["seed"] for row in result["evaluation"]["seeds"]] == [4, 5]


def test_a_run_is_evaluated_on_the_same_episodes_each_time(run):
    once, again, elsewhere = (
        runs.evaluate(run, 3, seed, deterministic=True) for seed in (100, 100, 999)
    )
    assert once == again
    assert once["reward"] != elsewhere["reward"]
    assert once["deterministic"] and len(once["seeds"]) == 2


def test_an_exported_policy_acts_alike_without_jax(run, tmp_path):
    exported = runs.policy_of(run, 1).save(tmp_path / "robot.npz")
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
    start = lambda key: ppo.init(PPO, TINY.multiplier, obs.shape[1], 2, False, 1, key)
    learner = jax.vmap(start)(jax.random.split(jax.random.key(0), 2))
    checkpoint, _ = newest_sound(run / "checkpoints")
    learner = Saved(checkpoint.arrays).like("state/learner", learner)
    assert checkpoint.meta["epoch"] == 2
    mode = jax.tree.map(lambda x: x[1], learner).mode(jnp.asarray(obs))
    np.testing.assert_allclose(acted, np.clip(mode, -1, 1), atol=1e-5)
    assert np.ptp(acted, axis=0).min() > 1e-4  # and it is no constant


def test_what_cannot_be_loaded_is_said(run, tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        runs.evaluate(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        runs.evaluate(tmp_path)
    (tmp_path / "config.json").write_text('{"task": "Poi')
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        runs.evaluate(tmp_path)
    (tmp_path / "config.json").write_text((run / "config.json").read_text())
    with pytest.raises(ValueError, match=r"policy\.npz is missing"):
        runs.evaluate(tmp_path)
    for rubbish in (b"", b"rubbish", (run / "policy.npz").read_bytes()[:200]):
        (tmp_path / "policy.npz").write_bytes(rubbish)
        with pytest.raises(ValueError, match="damaged, or not a policy"):
            runs.evaluate(tmp_path)
    with pytest.raises(ValueError, match="which=2"):
        runs.policy_of(run, 2)
    with pytest.raises(ValueError, match="episodes=0"):
        runs.evaluate(run, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "PointGaol"}, "did you mean PointGoal"),
        ({"task": "PointGoal", "algorithm": "mppo"}, "algorithm='mppo' is unknown"),
        ({"task": "PointGoal", "task_options": {"hazard": 3}}, "did you mean hazards"),
        ({"task": "PointGoal", "cost_limits": 3.0}, "did you mean cost_limit"),
        ({"task": "PointGoal", "seeds": 0}, "seeds=0"),
        ({"task": "PointGoal", "seed": -1}, "seed=-1"),
    ],
)
def test_a_wrong_argument_is_said_before_a_folder_exists(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        runs.train(**arguments, out=tmp_path / "run")
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


def test_evaluation_by_hand():
    """20 environments of 6 steps cost 6 c with c = 0 ... 19; the action, so the reward, is 0.25."""
    found = evaluate_policy(
        scripted(range(20)), policy([0.25]), [0], 20, 1, cost_limit=30.0, deterministic=True
    )
    assert found["reward"] == pytest.approx(6 * 0.25)
    assert found["cost"] == pytest.approx(6 * 9.5)
    assert found["within_limit"] == pytest.approx(6 / 20)  # 0, 6, ... 30
    assert found["cost_cvar"] == pytest.approx(6 * 18.5)  # the worst two
    assert found["cost_limit"] == 30.0 and found["episodes"] == 20
    assert "reward_std" not in found


def test_evaluation_keeps_seeds_apart():
    """The first two environments are seed 3's, the others seed 8's, each with its own policy."""
    found = evaluate_policy(
        scripted((1, 3, 10, 30)), policy([0.5, -0.5]), [3, 8], 2, 1, 18.0, deterministic=True
    )
    assert [row["seed"] for row in found["seeds"]] == [3, 8]
    np.testing.assert_allclose([row["reward"] for row in found["seeds"]], [3.0, -3.0])
    np.testing.assert_allclose([row["cost"] for row in found["seeds"]], [12.0, 120.0])
    np.testing.assert_allclose([row["within_limit"] for row in found["seeds"]], [1.0, 0.0])
    assert found["reward"] == pytest.approx(0.0) and found["cost"] == pytest.approx(66.0)
    assert found["cost_std"] == pytest.approx(108 / 2**0.5)


def test_short_episodes_do_not_count_more_often():
    """One environment ends after 2 steps, again and again; the other after 6: an episode each."""
    makers = iter([Script(costs=(1.0,), ends=(2,)), Script(costs=(1.0,))])
    env = adapt(lambda: next(makers), num_envs=2)
    found = evaluate_policy(env, policy([0.5]), [0], 2, 1, 3.0, deterministic=True)
    assert found["seeds"][0]["episodes"] == 2
    assert found["cost"] == pytest.approx((2 + 6) / 2)
    assert found["reward"] == pytest.approx((1 + 3) / 2)
    assert found["within_limit"] == 0.5


def test_a_discrete_policy_is_deterministic_when_asked():
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
    found = evaluate_policy(env, policy([0.0]), [0], 3, 1, 15.0, deterministic=True)
    assert found["within_limit"] == pytest.approx(1 / 3)
    assert found["cost"] == pytest.approx(18.0)  # of the second, the larger


def test_a_run_with_two_constraints_is_judged_by_the_worse_kept(tmp_path):
    """6 steps cost (6, 12) or (18, 12) an episode, so (12, 12) and (6, 30) in the mean of two."""
    pairs = {1: [(1.0, 2.0), (3.0, 2.0)], 2: [(1.0, 5.0), (1.0, 5.0)]}
    for number, limit, feasible in ((1, 12.0, True), (1, 11.0, False), (2, 12.0, False)):
        rows = iter([pairs[number][0], *pairs[number]])  # the first is asked for its length only
        make_env = lambda n, rows=rows: adapt(
            lambda: Two(next(rows)), cost_names=("a", "b"), num_envs=n
        )
        config = PPOLagrangianConfig(steps=12, cost_limit=limit, steps_per_epoch=12, ppo=PPO)
        out = runs.train(make_env, config=config, out=tmp_path / f"{number}-{limit}", quiet=True)
        (row,) = RunFolder(out).read_metrics()
        means = np.mean([np.multiply(6.0, pair) for pair in pairs[number]], 0)
        assert (row["cost_0"], row["cost_1"]) == tuple(means)
        assert row["cost"] == describe_run(out)["cost"] == max(means)
        assert scores_of([row]) == {0: (feasible, row["reward"])}


def test_the_cost_is_guessed_from_the_steps_until_an_episode_has_ended():
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
    np.testing.assert_array_equal(guess(seen, measured).cost, [[0.25 * 20], [7.0]])
    (none, one) = real_metrics(seen, new_totals(2), 5.0)
    assert np.isnan(none["cost"]) and one["cost"] == 7.0 and "cost_0" not in one


def test_all_that_saving_takes_is_counted(tmp_path, monkeypatch):
    """The environments' snapshot and policy.npz take 0.1 s each, in each of two epochs."""
    for kind, name in ((Collector, "snapshot"), (RunFolder, "write_policy")):
        real = getattr(kind, name)

        def slow(*args, real=real):
            time.sleep(0.1)
            return real(*args)

        monkeypatch.setattr(kind, name, slow)
    make_env = lambda n: adapt(Script, num_envs=n)
    config = PPOLagrangianConfig(steps=24, cost_limit=1.0, steps_per_epoch=12, ppo=PPO)
    out = runs.train(make_env, config=config, out=tmp_path / "run", quiet=True)
    phases = RunFolder(out).read_json("result.json")["phases"]
    assert 0.4 <= phases["save"] < 1.5


def test_past_steps_that_were_read_back_are_not_copied_every_epoch(tmp_path):
    path = write_checkpoint(tmp_path, Checkpoint({"epoch": 1}, {"x": np.ones(3)}))
    read = kept(read_checkpoint(path).arrays)
    assert to_arrays(read)["x"] is read["x"] and not read["x"].flags.writeable
