"""A user's environment in a file outside the package, from the command line and from Python."""

import json
import shutil

import numpy as np
import pytest

from surefoot import make
from surefoot.core.policy import Policy
from surefoot.runs.folder import RunFolder
from surefoot.runs.listing import show_run
from surefoot.runs.resume import resume
from surefoot.runs.train import train

FILE = """
import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit

import helper  # beside this file

from surefoot import adapt


class Slope(gym.Env):
    observation_space = Box(-9.0, 9.0, (1,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1)
        return np.array([self.x]), {}

    def step(self, action):
        self.x = float(np.clip(self.x + helper.SPEED * action[0], -9, 9))
        info = {"cost": 1.0, "left": float(self.x < 0), "right": 2.0}
        return np.array([self.x]), -abs(self.x), False, False, info


def make_env(limit=5):
    return TimeLimit(Slope(), limit)


def endless():
    return Slope()


def two(n):
    return adapt(make_env, cost=("left", "right"), num_envs=n)


def far(obs, action, next_obs):
    return np.full(len(obs), 3.0)


NUMBER = 7
"""
TINY = [
    "--algorithm=ppo-lagrangian", "--steps=40", "--steps-per-epoch=20", "--ppo.hidden", "4",
    "--ppo.epochs=1", "--ppo.critic-epochs=1", "--ppo.minibatches=1", "--quiet",
]  # fmt: skip


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The file's name, relative to the working directory."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "mine.py").write_text(FILE)
    (folder / "helper.py").write_text("SPEED = 0.5")
    monkeypatch.chdir(folder)
    return "mine.py"


def run_of(out, **options):
    """config.json, the last row of metrics.csv, and the evaluation."""
    folder = RunFolder(out)
    evaluation = folder.read_json("result.json")["evaluation"]
    return folder.read_json("config.json"), folder.read_metrics()[-1], evaluation


@pytest.mark.parametrize(("cost", "episode_cost"), [("info:cost", 5.0), ("mine.py:far", 15.0)])
def test_every_command_takes_a_users_environment(
    call, file, cost, episode_cost, tmp_path, monkeypatch
):
    out = tmp_path / "runs" / "run"
    words = (f"{file}:make_env", "--out", str(out), "--cost", cost, "--cost-limit", "4", *TINY)
    code, _, err = call("train", *words)
    assert code == 0, err
    info, row, evaluation = run_of(out)
    assert info["task"] == f"{tmp_path / 'elsewhere' / 'mine.py'}:make_env"
    assert info["task_name"] == "make_env" and info["config"]["cost_limit"] == [4.0]
    assert row["cost"] == evaluation["cost"] == episode_cost and row["steps"] == 40
    assert (out / "curve.png").exists()

    monkeypatch.chdir(tmp_path)  # the record holds from everywhere
    code, text, err = call("resume", str(out), "--steps", "60", "--quiet")
    assert code == 0 and "above the limit of 4" in text, err
    assert run_of(out)[1]["steps"] == 60
    code, text, _ = call("evaluate", str(out), "--episodes", "2", "--json")
    assert code == 0 and json.loads(text)["cost"] == episode_cost
    code, text, _ = call("show", str(out))
    assert code == 0 and "make_env, ppo-lagrangian" in text and "limit 4" in text
    code, text, _ = call("runs", str(out.parent))
    assert code == 0 and "finished  60 of 60 real steps" in text
    code, text, _ = call("compare", str(out), "--out", str(tmp_path / "page"))
    assert code == 0 and "make_env" in text and list((tmp_path / "page").glob("*.html"))
    code, _, _ = call("export", str(out), str(tmp_path / "robot.npz"))
    assert code == 0 and np.abs(Policy.load(tmp_path / "robot.npz").act(np.ones(1))).max() <= 1


def test_a_moved_file_is_named(call, file, tmp_path):
    out = tmp_path / "run"
    assert call("train", f"{file}:make_env", "--out", str(out), "--cost-limit", "4", *TINY)[0] == 0
    shutil.move(file, "other.py")
    for command in ("resume", "evaluate"):
        code, _, err = call(command, str(out))
        assert code == 2 and "mine.py cannot be imported" in err
    assert call("show", str(out))[0] == 0  # the run itself is sound


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("nothere.py:make_env", r"nothere.py cannot be imported"),
        ("mine.py:make_evn", "mine.py has no 'make_evn' (did you mean make_env?)"),
        ("no.module:make_env", "no.module cannot be imported"),
        ("mine.py:NUMBER", "mine.py:NUMBER"),
        ("broken.py:make_env", "broken.py cannot be imported: NameError"),
        ("mine.py:endless", "max_episode_steps=None"),
        ("Nothing-v3", "task='Nothing-v3'"),
    ],
)
def test_a_broken_task_is_named_before_a_folder_exists(call, file, task, message, tmp_path):
    (tmp_path / "elsewhere" / "broken.py").write_text("undefined")
    code, _, err = call("train", task, "--out", str(tmp_path / "run"), "--cost-limit", "4", *TINY)
    assert code == 2 and message in " ".join(err.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ("mine.py:fra", "mine.py has no 'fra' (did you mean far?)"),
        ("nothere.py:far", "nothere.py cannot be imported"),
    ],
)
def test_a_broken_cost_is_named_before_a_folder_exists(call, file, cost, message, tmp_path):
    words = (f"{file}:make_env", "--out", str(tmp_path / "run"), "--cost", cost, "--cost-limit=4")
    code, _, err = call("train", *words, *TINY)
    assert code == 2 and message in " ".join(err.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "limits",
    [("--cost-limit", "5", "60"), ("--cost-limit", "right=60", "left=5")],
    ids=["in order", "by name"],
)
def test_two_constraints_have_two_limits(call, file, limits, tmp_path):
    out = tmp_path / "run"
    code, text, err = call("train", f"{file}:two", *limits, "--out", str(out), *TINY)
    assert (code == 0 and "limit of 60" in text) or "limit of 5" in text, err
    info, row, evaluation = run_of(out)
    assert info["cost_limits"] == {"left": 5.0, "right": 60.0}
    assert (row["cost_limit_left"], row["cost_limit_right"]) == (5.0, 60.0)
    assert row["cost_right"] == 10.0 and row["cost_left"] <= 5.0
    assert {"lambda_left", "lambda_right"} <= set(row)
    worse = "left" if row["cost_left"] / 5 > 10 / 60 else "right"
    assert row["cost"] == row[f"cost_{worse}"] and row["lambda"] == row[f"lambda_{worse}"]
    assert evaluation["seeds"][0]["costs"]["right"] == 10.0 and evaluation["within_limit"] == 1.0
    shown = show_run(out)
    assert (shown.cost, shown.cost_limit) == (row["cost"], row["cost_limit"])
    assert shown.cost_limit == {"left": 5.0, "right": 60.0}[worse]
    resume(out, steps=60, quiet=True)
    assert run_of(out)[1]["steps"] == 60


@pytest.mark.parametrize(
    ("task", "limits", "message"),
    [
        ("PointGoal", ["nothere=3"], "'nothere' is not a constraint of PointGoal.*hazards"),
        ("PointGoal", ["hazard=3"], "did you mean hazards"),
        ("PointGoal", ["5", "60"], r"cost_limit=\(5.0, 60.0\) must have 1 values.* hazards"),
        ("PointGoal", ["hazards=many"], "hazards=many must be .*NAME=NUMBER"),
        ("PointGoal", ["-1"], "cost_limit"),
        ("mine.py:two", ["left=3"], "no limit for right"),
        ("mine.py:two", ["1", "2", "3"], r"must have 2 values, for left, right"),
        ("mine.py:two", [], "no limit for left, right"),
    ],
)
def test_wrong_limits_name_the_constraints(call, file, task, limits, message, tmp_path):
    words = ["--cost-limit", *limits] if limits else []
    code, _, err = call("train", task, *words, "--out", str(tmp_path / "run"), *TINY)
    assert code == 2
    with pytest.raises(ValueError, match=message):
        raise ValueError(" ".join(err.split()))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "limit",
    [
        "--cost-limit 18",
        "--cost-limit hazards=18",
        "--cost-limit=18",
        "--cost-limit=hazards=18",
        "",
    ],
)
def test_a_limit_is_given_as_a_number_or_by_name(call, limit, tmp_path):
    out, options = tmp_path / "run", ["--env", "max_episode_steps=20"]
    code, _, err = call("train", "PointGoal", *limit.split(), "--out", str(out), *TINY, *options)
    assert code == 0, err
    info = RunFolder(out).read_json("config.json")
    assert info["cost_limits"] == {"hazards": 18.0} and info["config"]["cost_limit"] == [18.0]


def test_limits_in_python(tmp_path, file):
    options = {"algorithm": "ppo-lagrangian", "steps": 20, "steps_per_epoch": 20, "quiet": True}
    for number, limit in enumerate((5, [5, 5], {"right": 5, "left": 5})):
        out = train(f"{file}:two", cost_limit=limit, out=tmp_path / str(number), **options)
        assert run_of(out)[0]["cost_limits"] == {"left": 5.0, "right": 5.0}


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("18", "cost_limit='18' must be numbers"),
        ([5, None], r"cost_limit=\[5, None\] must be numbers"),
        ({"left": "5", "right": 2}, "cost_limit=.* must be numbers"),
        (float("nan"), "cost_limit=.*nan"),
        (-1, r"cost_limit=\(-1.0, -1.0\)"),
        ([], "cost_limit=.* must have 2 values"),
    ],
)
def test_wrong_limits_in_python(limit, message, file, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(f"{file}:two", "ppo-lagrangian", cost_limit=limit, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_make_takes_a_file_and_its_options(file):
    env = make(f"{file}:make_env", num_envs=3, kwargs={"limit": 9})
    assert env.num_envs == 3 and env.max_episode_steps == 9 and env.cost_names == ("cost",)
