"""Signals at bad moments, and environments that misbehave."""

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box

import harness
from harness import PPO, start
from surefoot import cli
from surefoot.algorithms.loop import TrainingFault
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.envs.gym.adapters import EnvironmentFault, adapt
from surefoot.runs.acting import Acting
from surefoot.runs.listing import describe_run
from surefoot.runs.resume import resume
from surefoot.runs.train import train
from toys import Drift

# Signals

FIRST_LINE = """
import signal, sys, types
import surefoot.cli

heavy = [name for name in ("jax", "tyro", "rich", "matplotlib", "mujoco") if name in sys.modules]
report = lambda argv: print(heavy, *(signal.getsignal(s).name for s in (2, 15)))
sys.modules["surefoot.cli.app"] = types.SimpleNamespace(run=report)
surefoot.cli.main()
"""


def test_signals_end_the_program_before_anything_heavy_is_imported():
    with harness.child("-c", FIRST_LINE) as child:
        assert child.stdout is not None and child.stdout.read() == "[] SIG_DFL SIG_DFL\n"


@pytest.mark.parametrize("delay", [0.2, 0.7, 1.2])
def test_a_signal_in_the_first_moments_is_never_lost(delay, tmp_path):
    words = ("-m", "surefoot", "train", "PointGoal", "--out", str(tmp_path / "run"))
    with harness.child(*words, stderr=subprocess.PIPE) as child:
        time.sleep(delay)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=10)
        assert child.returncode == -signal.SIGINT
        assert "Traceback" not in errors


def test_a_signal_whose_exception_would_be_dropped_stops_the_evaluation(monkeypatch, tmp_path):
    """As in JAX's callback of the garbage collector, which swallows exceptions."""

    def interrupted(*_):
        gc.callbacks.remove(interrupted)
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):
            pass  # handlers run between instructions: here

    def evaluate(self):
        gc.callbacks.append(interrupted)
        gc.collect()
        return evaluation(self)

    evaluation = Acting.evaluate
    monkeypatch.setattr(Acting, "evaluate", evaluate)
    with pytest.raises(KeyboardInterrupt, match="training is finished and saved") as end:
        start("ppo", tmp_path / "run", 1)
    assert end.value.code == 130
    monkeypatch.undo()
    assert describe_run(tmp_path / "run").state == "stopped"
    resume(tmp_path / "run", quiet=True)
    assert describe_run(tmp_path / "run").state == "finished"


SECOND = """
import os, signal, sys, time
from surefoot import cli
from surefoot.runs.interrupt import Interrupt, Stopped

def run(argv):
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        while not interrupt.number:
            time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)  # as the program is about to report the first one
    interrupt.check(lambda: "resume with: surefoot resume RUN")

import surefoot.cli.runs
surefoot.cli.runs.resume = run
cli.COMMANDS["resume"] = ("runs:resume", "")
import surefoot.cli.app as app
app.PARSES = ("resume",)
sys.argv = ["surefoot", "resume"]
cli.main()
"""


def test_a_second_signal_on_the_way_out_does_not_cut_the_report():
    with harness.child("-c", SECOND, stderr=subprocess.PIPE) as child:
        _, errors = child.communicate(timeout=20)
        assert child.returncode == 130
        assert errors == "surefoot resume: resume with: surefoot resume RUN\n"


FAREWELL = """
import hashlib
from surefoot.runs import interrupt
interrupt.DEBOUNCE = 0.1
say = lambda text: print(text, flush=True)
with interrupt.Interrupt(lambda: say("first"), lambda: say("saved"), lambda: say("farewell")):
    say("ready")
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # a long step in native code
"""


def test_a_second_signal_reports_how_to_resume():
    with harness.child("-c", FAREWELL) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "first\n"
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        assert child.stdout.read() == "farewell\n" and child.wait() == 130


def test_a_library_gets_its_handlers_back(tmp_path, monkeypatch):
    """Only the program itself may end without an exception."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Acting, "evaluate", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(KeyboardInterrupt):
        start("ppo", tmp_path / "run", 1)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


# Environments


class Odd(Drift):
    """`Drift` with a flaw."""

    observation_space = Box(-50.0, 50.0, (1,), np.float64)

    def __init__(self, how: str):
        self.how = how

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.how == "exit" and self.t == 3:
            sys.exit(0)
        if self.how in ("reward", "cost"):
            reward, info = (1e30, info) if self.how == "reward" else (reward, {"cost": 1e30})
        if self.how == "large":
            reward = 9.5e17
        if self.how == "outside":
            obs = obs + 100.0
        if self.how == "negative":
            info = {"cost": -0.25}
        return obs, reward, terminated, truncated and self.how != "endless", info


def train_on(how: str, out: Path, **options) -> Path:
    config = PPOLagrangianConfig(steps=80, cost_limit=(1.0,), steps_per_epoch=40, ppo=PPO)
    make_env = lambda n: adapt(lambda: Odd(how), num_envs=n)
    return train(make_env, config=config, out=out, **options)


@pytest.mark.parametrize("what", ["reward", "cost"])
def test_numbers_beyond_single_precision_are_the_environments_fault(what, tmp_path):
    message = rf"environment 0, step 0 .*: {what} is .*1\.?e\+30.* below 1e\+18, use smaller units"
    with pytest.raises(EnvironmentFault, match=message):
        train_on(what, tmp_path / "run", quiet=True)
    assert describe_run(tmp_path / "run").state == "failed"


def test_large_rewards_are_named_when_training_fails(tmp_path):
    with pytest.raises(TrainingFault, match=r"Try smaller units: .* rewards of 1\.9e\+19 per ep"):
        train_on("large", tmp_path / "run", quiet=True)


def test_an_environment_that_exits_is_a_failure(tmp_path):
    with pytest.raises(EnvironmentFault, match="environment 0, step 3 of episode 1: SystemExit: 0"):
        train_on("exit", tmp_path / "run", quiet=True)
    assert describe_run(tmp_path / "run").state == "failed"


def test_a_file_that_exits_is_a_failure(tmp_path, call):
    (tmp_path / "bad.py").write_text("raise SystemExit(0)")
    code, _, err = call("train", f"{tmp_path / 'bad.py'}:make", "--out", str(tmp_path / "run"))
    assert code == 2 and "bad.py cannot be imported: SystemExit: 0" in err


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            "endless",
            "environment 0 has not ended its episode after 40 steps, though max_episode_st",
        ),
        ("outside", r"observation[0] is 10"),
        ("negative", "the cost is -0.25; a cost below 0 pays for others"),
    ],
)
def test_an_odd_environment_is_reported_once(how, message, tmp_path, capsys):
    run = train_on(how, tmp_path / "run")
    assert capsys.readouterr().out.count(message) == 1
    assert (run / "log.txt").read_text().count("warning: environment 0") == 1


def test_sound_environments_are_not_warned_about(tmp_path, capsys):
    train_on("nothing", tmp_path / "run")
    assert "warning" not in capsys.readouterr().out


def test_the_program_that_is_imported_ends_at_a_signal(monkeypatch):
    """`cli.main` with words is a function, which must leave handlers alone."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert signal.getsignal(signal.SIGINT) == before
