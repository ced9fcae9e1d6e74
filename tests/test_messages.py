"""What people read on their way from an environment of their own to its policy."""

import importlib
import sys

import numpy as np
import pytest
from gymnasium.spaces import flatten

import surefoot
from surefoot.algorithms.algorithm import ALGORITHMS
from surefoot.envs.gym.adapted import EnvironmentFault
from surefoot.envs.gym.adapters import adapt

FILE = """
import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict


class House(gym.Env):
    observation_space = Dict({"rooms": Box(0.0, 9.0, (2,)), "clock": Box(0.0, 9.0, (1,))})
    action_space = Box(-1.0, 1.0, (1,), np.float64)
    max_episode_steps = 5

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.seen(), {}

    def seen(self):
        return {"rooms": np.ones(2, np.float32), "clock": np.full(1, self.t / 9, np.float32)}

    def step(self, action):
        self.t += 1
        info = {"cost": 1.0, "heat": 2.0, "noise": 0.5}
        return self.seen(), 1.0, False, self.t == 5, info


class Typo(House):
    def step(self, action):
        self.check()
        return super().step(action)

    def check(self):
        return self.wieght  # line 32


class Library(House):
    def step(self, action):
        import json

        return json.loads("{")


class NoClock(House):
    def seen(self):
        return {"rooms": np.ones(2, np.float32)}


class Words(House):
    def step(self, action):
        *values, info = super().step(action)
        return *values, info | {"cost": "high"}


class OldReset(House):
    def reset(self, **kwargs):
        return super().reset(**kwargs)[0]


def broken(obs, action, next_obs):
    return next_obs[:, 7]
"""
TINY = [
    "--algorithm=ppo-lagrangian", "--steps=10", "--steps-per-epoch=10", "--ppo.hidden", "4",
    "--ppo.epochs=1", "--ppo.critic-epochs=1", "--ppo.minibatches=1",
]  # fmt: skip


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("mine", None)
    yield importlib.import_module("mine")
    sys.modules.pop("mine", None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Typo", r"AttributeError: .*'wieght' \(mine.py, line 32, in check\)$"),
        ("Library", r"JSONDecodeError: .* \(mine.py, line 39, in step\)$"),
        ("NoClock", "ValueError: the observation has no 'clock'$"),
        ("Words", r"info\['cost'\]='high' must be numbers$"),
        ("OldReset", r"ValueError: reset returned \{'clock': .*; must be two: obs, info$"),
    ],
)
def test_faults_of_an_environment_say_where_and_what(mine, name, message):
    with pytest.raises(EnvironmentFault, match=message):
        env = adapt(getattr(mine, name), num_envs=1)
        env.reset(seed=0)
        env.step(np.zeros((1, 1)))


def test_faults_of_a_cost_function_say_where(mine):
    env = adapt(mine.House, num_envs=1, cost=mine.broken)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"broken: IndexError: .* \(mine.py, line 59, in broken\)"):
        env.step(np.zeros((1, 1)))


def test_check_lists_the_parts_of_an_observation_and_what_is_missing(call):
    _, out, _ = call("check", "mine.py:House", "--steps=20", "--no-learning")
    assert "flattened: clock 0, rooms 1 to 2\n" in out
    assert out.endswith("ready to train with --cost-limit, which cost needs\n")
    words = ("--cost-limit=9", "--steps=20", "--no-learning")
    assert call("check", "mine.py:House", *words)[1].endswith("\nready to train\n")


def test_from_the_shell_to_a_policy_with_two_costs(call, mine, tmp_path):
    """An episode costs 10 of heat and 2.5 of noise. Their limits are 40 and 2."""
    limits = ("--cost=info:heat,noise", "--cost-limit", "heat=40", "noise=2")
    code, out, err = call("train", "mine.py:House", *TINY, *limits, "--out=run")
    assert code == 0, err
    assert "fresh episodes: reward" in out and "; sampled actions\n" in out
    assert "mean costs: heat 10.0 (limit 40), noise 2.5 (limit 2)" in out
    assert "cost 2.5 (limit 2)" in call("show", "run")[1]
    assert "it was finished already" in call("resume", "run")[1]
    assert "it was finished already" not in call("resume", "run", "--steps=20")[1]
    _, out, _ = call("evaluate", "run", "--episodes=2", "--deterministic")
    assert "2 fresh episodes; 95 % interval" in out and "; most likely actions\n" in out
    assert "mean costs: heat 10.0 (limit 40), noise 2.5 (limit 2)" in out
    _, out, _ = call("export", "run", "policy.npz")
    assert "surefoot.load('policy.npz').act(observation)" in out
    policy, env = surefoot.load("policy.npz"), mine.House()
    seen, _ = env.reset()
    with pytest.raises(
        ValueError, match=r"is no array; the policy takes 3 numbers.*spaces.flatten"
    ):
        policy.act(seen)
    action = policy.act(flatten(env.observation_space, seen))
    np.testing.assert_array_equal(action, surefoot.load("run").act(np.array([0.0, 1.0, 1.0])))
    np.testing.assert_array_equal(policy.act((0.0, 1.0, 1.0)), action)
    with pytest.raises(ValueError, match="is no array"):
        policy.act((np.zeros(1), np.ones(2)))
    with pytest.raises(ValueError, match=r"has shape \(2,\); the policy takes 3 numbers"):
        policy.act(np.zeros(2))


def test_a_class_that_a_run_cannot_record_is_noted_at_the_start(mine, tmp_path):
    class Inner(mine.House):
        pass

    settings = {"algorithm": "ppo-lagrangian", "steps": 10, "steps_per_epoch": 10, "cost_limit": 9}
    out = surefoot.train(Inner, out=tmp_path / "run", quiet=True, **settings)
    assert "the run cannot record how to make Inner" in (out / "log.txt").read_text()


def test_a_warning_shows_the_digits_that_differ():
    row = {"reward_mismatch": 1, "reward": 0.1234, "imagined_reward_before": 0.0712}
    row |= {"promised_reward": float("nan")}
    row |= {
        "cost_mismatch": 1,
        "cost": 1234.56,
        "imagined_cost_before": 99.99,
        "promised_cost": 7.0,
    }
    assert ALGORITHMS["mbppo-lagrangian"].warning(row) == (
        "real reward 0.123, imagined 0.0712, real cost 1234.6, imagined 100.0 (7 before it was "
        "tried) for the same policy: the model misjudges the reward and the cost"
    )
