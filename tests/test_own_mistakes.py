"""Mistakes that people make with an environment of their own, and what they are told."""

import importlib
import json
import sys
from pathlib import Path

import pytest

import surefoot
from surefoot.cli import output
from surefoot.cli.runs import advice_for
from surefoot.core.registry import reference_to
from surefoot.envs.render import clip
from surefoot.runs.checkpoint import newest_sound
from surefoot.runs.folder import RunFolder
from surefoot.runs.keeper import policy_in
from surefoot.use import forecast
from toys import Drift, TwoState
from untrained import untrained_run

FILE = """
import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box


class Windy(gym.Env):
    observation_space = Box(-9.0, 9.0, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float64)
    max_episode_steps = length = 5

    def __init__(self, wind):
        self.wind = wind

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(self.observation_space.shape), {}

    def step(self, action):
        self.t += 1
        obs = np.full(self.observation_space.shape, self.t / 9)
        info = {"cost": float(self.wind), "wind": 1.0}
        return obs, 1.0, False, self.t == self.length, info


class Calm(Windy):
    def __init__(self, actions=1):
        super().__init__(0)
        self.action_space = Box(-1.0, 1.0, (actions,), np.float64)


class Wider(Calm):
    observation_space = Box(-9.0, 9.0, (3,), np.float64)


class Seeded(Windy):
    def __init__(self, seed):
        super().__init__(0)


class Old(Calm):
    def step(self, action):
        return super().step(action)[1:]


class Earning(Windy):
    def __init__(self):
        super().__init__(-1)


def single(number):
    return Calm()


def one_row(obs, action, next_obs):
    return 1.0 if next_obs[0] > 0.5 else 0.0


def heavy(obs, action, next_obs):
    return np.full(len(obs), 2.0)
"""
TINY = [
    "--algorithm=ppo-lagrangian", "--steps=15", "--steps-per-epoch=10", "--ppo.hidden", "4",
    "--ppo.epochs=1", "--ppo.critic-epochs=1", "--ppo.minibatches=1",
]  # fmt: skip


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "mine.py"
    sys.modules.pop("mine", None)


def problem_of(call, *words):
    """Exit code, and the problems that `surefoot check` reports."""
    code, out, err = call("check", *words, "--steps=20", "--no-learning", "--json")
    assert not err
    return code, [found["problem"] + "; " + found["do"] for found in json.loads(out)["problems"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mine.py:Windy"], "the argument 'wind' is missing; give it a default, or pass --env "
         "wind=VALUE"),
        (["mine.py:single"], "here 'number', gets the number of environments and must return a "
         "gymnasium.vector.VectorEnv, not a Calm; if it is another argument, give it a default, or "
         "pass --env number=VALUE"),
        (["mine.py:Old"], "step returned 4 values; Gymnasium's API has five: obs, reward, "
         "terminated, truncated, info"),
        (["mine.py:Calm", "--env", "cost=5.0"], "cost=5.0 must be info:KEY or a function"),
        (["mine.py:Calm", "--env", "wind=1"], "Calm has no option 'wind'"),
        (["mine.py:Calm", "--cost", "mine.py:one_row"], "cost function one_row: ValueError: The "
         "truth value of an array"),
        (["mine.py:Calm", "--cost", "mine.py:one_row"], "of shapes (1, 2), (1, 1), (1, 2), so the "
         "first number of every observation is obs[:, 0], and returns one cost for each row"),
        (["mine.py:Calm", "--cost-limit=-5"], "cost_limit=(-5.0,) must be at least 0"),
        (["CartPole-v1", "--env", "speed=3"], "unexpected keyword argument 'speed'"),
    ],
)  # fmt: skip
def test_what_stops_training_is_named_with_what_to_do(call, words, message):
    code, problems = problem_of(
        call, *words, *["--cost-limit=5"] * ("--cost-limit=-5" not in words)
    )
    assert code == 1 and any(message in problem for problem in problems), problems


def test_learning_is_timed_on_what_the_model_observes(call, monkeypatch):
    sizes = []

    def learning_seconds(config, problem):
        sizes.extend([problem.observation_size, problem.task_model.observation_size])
        return 1.0

    monkeypatch.setattr(forecast, "learning_seconds", learning_seconds)
    assert call("check", "PointGoal", "--steps=20")[0] == 0
    assert sizes == [21, 21]  # of the model `ego`, not 44 of the task's own observation


def test_an_argument_that_no_option_can_give(call):
    code, problems = problem_of(call, "mine.py:Seeded", "--cost-limit=5")
    assert problems == ["task='Seeded': the argument 'seed' is missing; give it a default"]
    assert code == 1


def test_problems_that_do_not_stop_training(call):
    code, out, _ = call("check", "mine.py:Earning", "--steps=20", "--cost-limit=5", "--no-learning")
    assert code == 0 and "cost is negative" in out
    assert out.endswith("training is possible, but see the problems above\n")


def test_arguments_of_the_environment_are_options(call, tmp_path):
    out = tmp_path / "run"
    words = ("mine.py:Windy", "--env", "wind=3", "--cost-limit=4", "--out", str(out), "--quiet")
    code, text, err = call("train", *words, *TINY)
    assert code == 0, err
    # Five steps at a cost of 3; whole rounds of 10 steps.
    assert "cost 15.0" in text and "20 real steps in" in text
    assert f"above the limit: train longer (surefoot resume {out} --steps 40)" in text
    assert "--plan filter" not in text  # this algorithm learns no model
    code, text, _ = call("evaluate", str(out), "--episodes=2", "--json")
    assert code == 0 and json.loads(text)["cost"] == 15.0
    assert surefoot.make("mine.py:Windy", kwargs={"wind": 2}).envs[0].wind == 2
    with pytest.raises(ValueError, match=r"kwargs=3 must be a dict"):
        surefoot.make("mine.py:Windy", wind=2, kwargs=3)


def test_more_steps_than_asked_for_are_announced(call, tmp_path):
    out = tmp_path / "run"
    code, text, err = call("train", "mine.py:Calm", "--cost-limit=4", "--out", str(out), *TINY)
    assert code == 0 and "20 real steps instead of 15: 10 are taken at a time" in text + err
    assert "above the limit" not in text


@pytest.mark.parametrize(
    ("name", "message"),
    [("alone.py", "alone.py:NAME"), ("alone:Calm", "for the file here: alone.py:Calm")],
)
def test_a_file_without_a_name_and_a_name_without_the_file(
    call, tmp_path, monkeypatch, name, message
):
    folder = tmp_path / "not on the path"
    folder.mkdir()
    (folder / "alone.py").write_text(FILE)
    monkeypatch.chdir(folder)
    code, _, err = call("train", name, "--cost-limit=4", *TINY)
    assert code == 2 and message in " ".join(err.split())


def test_an_instance_is_no_task():
    mine = importlib.import_module("mine")
    with pytest.raises(ValueError, match=r"is a Calm; pass a name, or .*`lambda: Calm\(\)`"):
        surefoot.train(mine.Calm(), cost_limit=5)


def trained_in_python(path, kind, **options):
    ppo = {"hidden": (4,), "epochs": 1, "critic_epochs": 1, "minibatches": 1}
    options |= {"steps": 10, "steps_per_epoch": 10, "ppo": ppo, "cost_limit": 4, "quiet": True}
    return surefoot.train(kind, algorithm="ppo-lagrangian", out=path, **options)


def test_runs_made_in_python_work_on_the_command_line(call, file):
    mine = importlib.import_module("mine")
    run = trained_in_python(file.parent / "run", mine.Calm, cost=mine.heavy)
    code, text, err = call("evaluate", str(run), "--episodes=2", "--json")
    assert code == 0 and json.loads(text)["cost"] == 10.0, err
    # What makes environments may still be given, and replaces what the run records.
    assert surefoot.evaluate(run, 2, make_env=lambda: mine.Calm())["cost"] == 10.0
    file.rename(file.with_name("moved.py"))
    code, _, err = call("evaluate", str(run))
    assert code == 2 and "mine.py cannot be imported" in err and "make_env" in err
    assert surefoot.evaluate(run, 2, make_env=mine.Calm, cost="info:cost")["cost"] == 0.0


def test_an_observation_that_has_changed(file):
    mine = importlib.import_module("mine")
    run = trained_in_python(file.parent / "run", mine.Calm)
    with pytest.raises(ValueError, match="observations of size 2, but those of Wider have 3"):
        surefoot.evaluate(run, 2, make_env=mine.Wider)
    mine.Calm.observation_space = mine.Wider.observation_space
    before = sorted(path.name for path in run.iterdir())
    with pytest.raises(ValueError, match="observations of size 2, but those of Calm have 3"):
        surefoot.resume(run, steps=30, quiet=True)
    assert sorted(path.name for path in run.iterdir()) == before


def test_an_environment_with_other_constraints_or_actions(file):
    mine = importlib.import_module("mine")
    run = trained_in_python(file.parent / "run", mine.Calm)
    both = ("info:cost", "info:wind")
    with pytest.raises(ValueError, match="costs of size 1, but those of Calm have 2"):
        surefoot.evaluate(run, 2, make_env=mine.Calm, cost=both)
    with pytest.raises(ValueError, match="actions of size 1, but those of <lambda> have 2"):
        surefoot.evaluate(run, 2, make_env=lambda: mine.Calm(actions=2))


def test_resume_does_not_replace_what_the_run_records(file):
    mine = importlib.import_module("mine")
    run = trained_in_python(file.parent / "run", mine.Calm)
    with pytest.raises(ValueError, match=r"records make_env='.*mine.py:Calm', which resume cannot"):
        surefoot.resume(run, lambda: mine.Calm(), steps=20, quiet=True)
    assert surefoot.resume(run, mine.Calm, steps=20, quiet=True) == run


def test_a_function_is_not_loaded_twice_in_one_process(file):
    mine = importlib.import_module("mine")
    mine.Calm.length = 3
    run = trained_in_python(file.parent / "run", mine.Calm, steps=6, steps_per_epoch=6)
    assert surefoot.evaluate(run, 2)["reward"] == 3.0


def test_another_way_to_make_an_environment_with_options(file):
    mine = importlib.import_module("mine")
    run = trained_in_python(file.parent / "run", mine.Windy, task_options={"wind": 3})
    assert surefoot.evaluate(run, 2)["cost"] == 15.0
    assert surefoot.evaluate(run, 2, make_env=lambda: mine.Windy(1))["cost"] == 5.0


def test_references_to_python_functions():
    mine = importlib.import_module("mine")
    assert reference_to(mine.Calm) == f"{mine.__file__}:Calm"
    assert reference_to(importlib.import_module("xml.dom.minidom").parse) == "xml.dom.minidom:parse"
    assert reference_to(lambda: mine.Calm()) is None
    assert reference_to(mine.Calm.step) is None


def test_progress_without_a_terminal(monkeypatch, capsys):
    clock = iter([0.0, 10.0, 31.0, 40.0, 62.0])
    monkeypatch.setattr(output.time, "perf_counter", lambda: next(clock))
    with output.progress("evaluating") as show:
        for done in (10, 31, 40, 62):
            show(done, 124)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "evaluating: 31 of 124 steps, about 93 s left",
        "evaluating: 62 of 124 steps, about 62 s left",
    ]


@pytest.mark.parametrize(("video", "name"), [(True, "clip.mp4"), (False, "clip.gif")])
def test_clips_without_imageio_are_gifs(monkeypatch, video, name):
    monkeypatch.setattr(clip, "_has_video", lambda: video)
    assert str(clip.default_clip()) == name


def finished(run: Path) -> Path:
    """The run with the files that training leaves."""
    folder = RunFolder(run)
    saved, _ = newest_sound(folder.checkpoints)
    folder.write_json("config.json", saved.meta["info"])
    folder.write_policy(policy_in(saved))
    return run


@pytest.mark.parametrize(("env", "advised"), [(Drift, True), (TwoState, False)])
def test_a_run_above_its_limit_is_told_of_algorithms_that_fit(tmp_path, env, advised):
    """SAC-Lagrangian needs a Box of actions."""
    advice = advice_for(finished(untrained_run(tmp_path / "run", env)), 10)
    assert ("try --algorithm sac-lagrangian" in advice) == advised and "--plan filter" in advice


@pytest.mark.parametrize("algorithm", ["mbppo-lagrangian", "sac"])
def test_a_run_without_a_limit_is_not_advised_to_train_longer(tmp_path, algorithm):
    run = untrained_run(tmp_path / "run", Drift, algorithm=algorithm)
    info = newest_sound(RunFolder(run).checkpoints)[0].meta["info"]
    if algorithm == "mbppo-lagrangian":
        info["config"]["constrained"] = False
    RunFolder(run).write_json("config.json", info)
    filtered = f": let plans step in (surefoot evaluate {run} --plan filter)"
    expected = filtered if algorithm == "mbppo-lagrangian" else ""
    assert advice_for(run, 10) == f"trained without the limit{expected}"
