"""Runs stopped by signals and failures at any moment: what was learned is on disk."""

import errno
import os
import signal
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import harness
from harness import PPO, came_to, differences, start
from surefoot import cli
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.envs.gym.adapters import EnvironmentFault, adapt
from surefoot.runs.acting import Acting
from surefoot.runs.checkpoint import newest_sound
from surefoot.runs.drive import WriteFault
from surefoot.runs.folder import RunFolder
from surefoot.runs.interrupt import Interrupt
from surefoot.runs.keeper import Keeper
from surefoot.runs.listing import describe_run
from surefoot.runs.loggers.console import ConsoleLogger
from surefoot.runs.resume import resume
from surefoot.runs.train import train
from toys import Drift

TRAIN = """
import sys
sys.path.insert(0, sys.argv[1])
import harness
from surefoot.runs.train import train

steps = harness.PER_EPOCH * int(sys.argv[3])
print("ready", flush=True)
train("PointGoal", config=harness.TINY["ppo"], seeds=2, out=sys.argv[2], steps=steps,
      task_options=harness.TASK, checkpoint_every=1e6)
"""


def training(out: Path, epochs: int) -> AbstractContextManager[subprocess.Popen]:
    """A process that trains, and writes checkpoints of the first and the last epoch only."""
    words = ("-c", TRAIN, str(Path(__file__).parent), str(out), str(epochs))
    return harness.child(*words, stderr=subprocess.PIPE)


def test_sigterm_in_training_writes_the_epoch_that_was_only_in_memory(tmp_path):
    out = tmp_path / "run"
    with training(out, 100_000) as child:
        assert child.stdout is not None
        while not child.stdout.readline().startswith("epoch 4/"):
            assert child.poll() is None
        assert newest_sound(out / "checkpoints")[0].meta["epoch"] == 1
        sent = time.monotonic()
        child.send_signal(signal.SIGTERM)
        _, errors = child.communicate()
        assert time.monotonic() - sent < 10
    epoch = newest_sound(out / "checkpoints")[0].meta["epoch"]
    assert epoch >= 4
    assert f"epoch {epoch} is saved; resume with: surefoot resume {out}" in errors
    assert describe_run(out).state == "stopped"


def test_a_reader_who_leaves_does_not_stop_a_run(tmp_path):
    """As in `surefoot train … | head -3`."""
    out = tmp_path / "run"
    with training(out, 20) as child:
        assert child.stdout is not None and child.stderr is not None
        for _ in range(3):
            child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == ""
        assert child.wait() == 0
    assert describe_run(out).state == "finished" and describe_run(out).epoch == 20
    assert (out / "log.txt").read_text().count("\nepoch ") == 20


@pytest.fixture
def at_epoch(monkeypatch):
    """Do something before a given epoch is saved."""

    def at_epoch(number: int, act) -> None:
        take = Keeper.take

        def taking(self, epoch, seconds):
            if epoch.number == number:
                act()
            take(self, epoch, seconds)

        monkeypatch.setattr(Keeper, "take", taking)

    return at_epoch


@pytest.mark.parametrize("harm", [SystemExit(1), OSError(errno.EIO, "Input/output error")])
def test_whatever_ends_training_the_last_epoch_in_memory_is_written(harm, at_epoch, tmp_path):
    """The first epoch is written at once, the second and third are in memory when it happens."""

    def act():
        raise harm

    at_epoch(4, act)
    config = PPOLagrangianConfig(steps=100, cost_limit=(1.0,), steps_per_epoch=20, ppo=PPO)
    make_env = lambda n: adapt(Drift, num_envs=n)
    words = "epoch 3 is saved" if isinstance(harm, OSError) else ""
    with pytest.raises(WriteFault if words else SystemExit, match=words or None):
        train(make_env, config=config, out=tmp_path / "run", quiet=True, checkpoint_every=1e6)
    assert newest_sound(tmp_path / "run" / "checkpoints")[0].meta["epoch"] == 3
    assert describe_run(tmp_path / "run").state == "stopped"


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.3)


def test_a_stop_while_an_epoch_is_shown_writes_that_epoch(monkeypatch, tmp_path):
    """By then this epoch was found not to be due on disk yet."""
    show, out = ConsoleLogger.epoch, tmp_path / "run"

    def showing(self, epoch):
        show(self, epoch)
        if epoch.number == 3:
            stop()

    monkeypatch.setattr(ConsoleLogger, "epoch", showing)
    with pytest.raises(KeyboardInterrupt, match="epoch 3 is saved") as end:
        start("ppo", out, 5, checkpoint_every=1e6)
    assert end.value.code == 143
    assert newest_sound(out / "checkpoints")[0].meta["epoch"] == 3


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All that a run of two epochs computes when nothing stops it."""
    return came_to(start("ppo", tmp_path_factory.mktemp("stopping") / "whole", 2))


def test_a_stop_between_training_and_evaluation_is_noticed(whole, monkeypatch, tmp_path):
    leave, out = Interrupt.__exit__, tmp_path / "run"

    def leaving(self, *error):
        stop()
        leave(self, *error)

    with monkeypatch.context() as patch:
        patch.setattr(Interrupt, "__exit__", leaving)
        with pytest.raises(KeyboardInterrupt, match="epoch 2 is saved") as end:
            start("ppo", out, 2)
    assert end.value.code == 143
    assert differences(whole, came_to(resume(out, quiet=True))) == []


def test_a_fault_after_a_signal_is_a_stop(at_epoch, tmp_path):
    def act():
        stop()
        raise EnvironmentFault("the worker has gone")  # since Ctrl-C reached it too

    at_epoch(3, act)
    with pytest.raises(KeyboardInterrupt, match="epoch 2 is saved") as end:
        start("ppo", tmp_path / "run", 4)
    assert end.value.code == 143
    assert describe_run(tmp_path / "run").state == "stopped"


def test_a_failure_does_not_outlive_a_resume(at_epoch, monkeypatch, tmp_path):
    whole = came_to(start("ppo", tmp_path / "whole", 3))
    run = tmp_path / "run"

    def act():
        raise EnvironmentFault("a wheel came off")

    with monkeypatch.context():
        at_epoch(2, act)
        with pytest.raises(EnvironmentFault):
            start("ppo", run, 3)
    assert describe_run(run).state == "failed"
    monkeypatch.undo()
    at_epoch(3, stop)
    with pytest.raises(KeyboardInterrupt):
        resume(run, quiet=True)
    assert describe_run(run).state == "stopped"
    assert differences(whole, came_to(resume(run, quiet=True))) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_during_the_last_evaluation(whole, number, monkeypatch, tmp_path, capsys):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Acting, "evaluate", lambda _: os.kill(os.getpid(), number))
        with pytest.raises(KeyboardInterrupt, match="training is finished and saved") as end:
            start("ppo", out, 2)
        assert end.value.code == 128 + number
        with pytest.raises(SystemExit) as end:
            cli.main(["resume", str(out), "--quiet"])
        assert end.value.code == 128 + number
        assert f"to evaluate it: surefoot resume {out}" in capsys.readouterr().err
    assert differences(whole, came_to(resume(out, quiet=True))) == []


def test_a_disk_that_fills_at_the_end(monkeypatch, tmp_path, capsys):
    write, out = RunFolder.write, tmp_path / "run"

    def full(self, name, data):
        if name == "result.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, name, data)

    def no_figure(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RunFolder, "write", full)
    with pytest.raises(WriteFault, match=r"result\.json cannot be .* No space.*is finished and s"):
        start("ppo", out, 1)
    monkeypatch.setattr(RunFolder, "write", write)
    monkeypatch.setattr("surefoot.api.draw_curve", no_figure)
    with pytest.raises(SystemExit) as end:
        cli.main(["resume", str(out), "--quiet"])
    output = capsys.readouterr().out
    assert end.value.code == 0 and "curve.png cannot be written: No space" in output
    assert describe_run(out).state == "finished"


DEAF = """
import hashlib
from surefoot.runs import interrupt

def first():
    print("first", flush=True)
    raise OSError("No space left on device")

interrupt.GRACE = 0.5
with interrupt.Interrupt(first, lambda: print("saved", flush=True)):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # a long step in native code
"""


def test_signals_are_handled_though_nothing_can_be_printed():
    with harness.child("-c", DEAF) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.stdout.read() == "first\nsaved\n"
        assert child.wait() == 143
