"""The command line as a user types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import surefoot
from surefoot import cli
from surefoot.benchmark import timing

TINY = [
    "--steps=40", "--episodes=2", "--horizon=5", "--rollouts=6", "--passes=1", "--cost-limit=1",
    "--ensemble.members=3", "--ensemble.elites=3", "--ensemble.hidden", "8",
    "--ensemble.max-steps=10", "--ppo.hidden", "8", "--ppo.epochs=1", "--ppo.minibatches=1",
    "--env", "max_episode_steps=20",
]  # fmt: skip


def typed(*words: str) -> subprocess.CompletedProcess:
    """The installed program in a separate process."""
    program = Path(sys.executable).with_name("surefoot")
    return subprocess.run([program, *words], capture_output=True, text=True)


def test_help_names_every_command():
    done = typed("--help")
    assert done.returncode == 0 and not done.stderr
    for command in cli.COMMANDS:
        assert command in done.stdout


def test_a_typing_error_ends_with_code_2_and_no_traceback():
    done = typed("trian", "PointGoal")
    assert done.returncode == 2
    assert "unknown command 'trian'" in done.stderr and "did you mean train" in done.stderr
    assert "Traceback" not in done.stderr and not done.stdout


def test_nothing_typed_shows_the_help(call):
    code, out, _ = call()
    assert code == 2 and "evaluate" in out


def test_version(call):
    assert call("--version") == (0, f"{surefoot.__version__}\n", "")


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_each_command_has_help(call, command):
    code, out, _ = call(*command.split(), "--help")
    assert code == 0 and "usage" in out.lower()


def test_half_a_command_suggests_the_whole(call):
    code, _, err = call("benchmark", "--json")
    assert code == 2 and "benchmark env" in err


def test_an_unknown_task_suggests_the_nearest(call, tmp_path):
    for words in (
        ("watch", "pointgaol", "--out", str(tmp_path / "x.gif")),
        ("train", "PointGaol", "--out", str(tmp_path / "run")),
    ):
        code, _, err = call(*words)
        assert code == 2 and "did you mean PointGoal?" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ("envs", "--jsno"),
        ("watch", "PointGoal", "--stepz", "4"),
        ("watch", "PointGoal", "--steps", "many"),
        ("train", "PointGoal", "--lerning-rate", "1"),
        ("train",),
        ("evaluate",),
    ],
)
def test_unknown_or_missing_options_end_with_code_2(call, words):
    code, out, err = call(*words)
    assert code == 2 and out + err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "PointGoal", "--preset", "papre"), "did you mean paper"),
        (("train", "PointGoal", "--algorithm", "ppo-lagrange"), "did you mean ppo-lagrangian"),
        (("train", "PointGoal", "--env", "hazards"), "NAME=VALUE"),
        (("train", "PointGoal", "--env", "hazrds=3"), "did you mean hazards"),
        (("train", "PointGoal", "--algorithm", "ppo", "--preset", "paper"), "preset='paper'"),
        (("train", "PointGoal", "--loggers", "wandbb"), "did you mean wandb"),
        (("train", "PointGoal", "--cost", "info:cost"), "cost='info:cost'"),
        (("train", "--steps", "9", "CartPole-v1"), "task='CartPole-v1' must be the first word"),
        (("evaluate", "nowhere"), "nowhere is not a run"),
        (("export", "nowhere"), "nowhere is not a run"),
        (("parity",), "surefoot parity FILE.npz"),
        (("benchmark", "env", "--tasks", "PointGoals"), "did you mean PointGoal"),
    ],
)
def test_a_wrong_value_is_named(call, words, message):
    code, _, err = call(*words)
    assert code == 2
    assert message in " ".join(err.split())


def test_brackets_in_a_message_are_shown(call, monkeypatch):
    from surefoot.envs.render import clip

    monkeypatch.setattr(clip, "_has_video", lambda: False)
    code, _, err = call("watch", "PointGoal", "--steps", "2", "--out", "x.mp4")
    assert code == 2 and "pip install 'surefoot[video]'" in err


def test_envs_as_json(call):
    code, out, err = call("envs", "--json")
    rows = json.loads(out)
    assert code == 0 and not err
    names = [row["name"] for row in rows]
    assert names[:5] == ["PointGoal", "CarGoal", "DoggoGoal", "DoggoGoalOpenAI", "RCCar"]
    assert names[5:11] == [
        f"{robot}Velocity"
        for robot in ("HalfCheetah", "Hopper", "Walker2d", "Swimmer", "Ant", "Humanoid")
    ]
    assert names[11:] == ["Goal", "Button", "Push", "Circle", "Run"]
    assert rows[11]["observations"]["AntGoal2"] == 88
    point = rows[0]
    options = {option["name"]: option for option in point["options"]}
    assert options["hazards"]["default"] == 15 and options["hazards"]["help"]
    assert options["max_episode_steps"]["default"] == 750
    assert point["actions"] == 2 and point["action_low"] == [-1.0, -1.0]


def test_envs_as_text(call):
    code, out, _ = call("envs")
    assert code == 0 and "PointGoal" in out and "hazards" in out


def test_watch_writes_a_clip(call, tmp_path):
    path = tmp_path / "x.gif"
    words = ("watch", "PointGoal", "--policy", "random", "--steps", "6", "--out", str(path))
    code, out, _ = call(*words, "--size", "120")
    assert code == 0 and str(path) in out.replace("\n", "")
    with Image.open(path) as clip:
        assert clip.n_frames == 3  # every second of 6 steps
        assert clip.width == 120


def test_watch_refuses_other_suffixes(call, tmp_path):
    code, _, err = call("watch", "PointGoal", "--steps", "2", "--out", str(tmp_path / "x.avi"))
    assert code == 2 and ".gif, .mp4" in err
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What `train` printed, and its run."""
    out = tmp_path_factory.mktemp("cli") / "run [1]"  # brackets that a printer may swallow
    done = typed("train", "PointGoal", "--out", str(out), *TINY)
    assert done.returncode == 0, done.stderr
    return done.stdout, out


def test_train_ends_with_the_run_and_its_files(trained):
    output, run = trained
    *_, last = output.strip().splitlines()
    assert last == f"run:    {run}"
    assert "fresh episodes: reward" in output and "40 real steps" in output
    names = {path.name for path in run.iterdir()}
    assert names >= {
        "config.json", "metrics.csv", "result.json", "policy.npz", "curve.png", "log.txt",
    }  # fmt: skip
    config = json.loads((run / "config.json").read_text())
    assert config["config"]["ensemble"]["hidden"] == [8] and config["task"] == "PointGoal"
    with Image.open(run / "curve.png") as figure:
        assert figure.width > 600
    assert "epoch 1/1" in (run / "log.txt").read_text()


def test_train_refuses_a_folder_in_use(call, trained):
    code, _, err = call("train", "PointGoal", "--out", str(trained[1]), *TINY)
    assert code == 2 and "not empty" in err


def test_evaluate_as_json(call, trained):
    code, out, _ = call("evaluate", str(trained[1]), "--episodes", "2", "--json")
    values = json.loads(out)
    assert code == 0
    assert {"reward", "cost", "within_limit", "cost_cvar", "seeds"} <= set(values)
    assert values["episodes"] == 2 and values["cost_limit"] == 1.0
    assert [row["episodes"] for row in values["seeds"]] == [2]


def test_evaluate_as_text(call, trained):
    code, out, _ = call("evaluate", str(trained[1]), "--episodes", "2")
    assert code == 0 and out.startswith("seed 0: reward") and out.count("\n") == 2
    assert "\n2 fresh episodes; 95 % interval: reward " in out


def test_export_and_watch_a_run(call, trained, tmp_path):
    code, _, _ = call("export", str(trained[1]), str(tmp_path / "robot.npz"))
    assert code == 0 and (tmp_path / "robot.npz").exists()
    code, _, err = call("export", str(trained[1]), str(tmp_path / "robot.pt"))
    assert code == 2 and ".npz" in err
    clip = str(tmp_path / "run.gif")
    code, _, _ = call("watch", str(trained[1]), "--steps", "4", "--size", "96", "--out", clip)
    assert code == 0
    with Image.open(clip) as film:
        assert film.n_frames == 2


def test_benchmark_as_json(call, monkeypatch):
    monkeypatch.setattr(timing, "SECONDS", 0.05)
    options = ("--tasks", "RCCar", "--num-envs", "1", "--threads", "1", "--json")
    code, out, _ = call("benchmark", "env", *options)
    (row,) = json.loads(out)
    assert code == 0
    assert (row["task"], row["num_envs"], row["threads"]) == ("RCCar", 1, 1)
    assert row["steps_per_second"] > 10 and "overhead_beyond_physics" in row


@pytest.mark.parametrize("words", [("runs",), ("runs", "--json")])
def test_a_reader_that_has_gone_is_no_error(words, tmp_path):
    """As in `surefoot runs | head -1`."""
    (tmp_path / "runs").mkdir()
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "surefoot", *words], cwd=tmp_path, stdout=writer,
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert done.stderr == ""
