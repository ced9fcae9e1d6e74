"""Loggers and callbacks: what they receive, and failures that name them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness import PPO, start
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.envs.gym.adapters import adapt
from surefoot.runs.drive import WriteFault
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import read_info
from surefoot.runs.listing import describe_run, show_run
from surefoot.runs.loggers import LOGGERS
from surefoot.runs.loggers.console import ConsoleLogger
from surefoot.runs.loggers.csv import CsvLogger
from surefoot.runs.resume import resume
from surefoot.runs.train import train
from toys import Drift

CONFIG = PPOLagrangianConfig(steps=60, cost_limit=(1.0,), steps_per_epoch=20, ppo=PPO)
"""Three epochs of one episode each."""


def make_env(n):
    return adapt(Drift, num_envs=n)


def tiny(out: Path, **options) -> Path:
    options = {"config": CONFIG, "quiet": True, "checkpoint_every": 0, **options}
    return train(make_env, out=out, **options)


def test_on_epoch_receives_every_epoch(tmp_path):
    epochs = []
    run = tiny(tmp_path / "run", on_epoch=epochs.append, seeds=2)
    assert [(e.number, e.total) for e in epochs] == [(1, 3), (2, 3), (3, 3)]
    rows = RunFolder(run).read_metrics()
    assert [dict(row) for e in epochs for row in e.metrics] == rows
    assert epochs[-1].seconds["save"] > 0
    epochs.clear()
    resume(run, make_env, steps=80, on_epoch=epochs.append, quiet=True)
    assert [(e.number, e.total) for e in epochs] == [(4, 4)]


def test_an_epoch_in_which_no_episode_ends_has_no_reward(tmp_path):
    epochs = []
    run = tiny(tmp_path / "run", on_epoch=epochs.append)
    last = epochs[-1]
    row = dict(last.metrics[0]) | {"reward": float("nan"), "cost": float("nan")}
    logger = ConsoleLogger(run, read_info(RunFolder(run)), quiet=True)
    logger.epoch(replace(last, metrics=[row]))
    logger.close()
    *_, line = (run / "log.txt").read_text().splitlines()
    assert line.startswith("epoch 3/3  real steps 60  reward -  cost -  ")


@pytest.mark.parametrize("error", [ValueError("too slow"), OSError(5, "too slow")])
def test_a_failing_callback_stops_the_run_which_can_be_resumed(error, tmp_path):
    def fail(epoch):
        if epoch.number == 2:
            raise error

    with pytest.raises(type(error), match="too slow") as raised:
        tiny(tmp_path / "run", on_epoch=fail, checkpoint_every=1e6)
    assert not isinstance(raised.value, WriteFault)
    row = describe_run(tmp_path / "run")
    assert row.state == "failed" and "too slow" in row.problem and row.epoch == 2
    resume(tmp_path / "run", make_env, quiet=True)
    assert describe_run(tmp_path / "run").state == "finished"


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("harm", ["delete", "truncate", "edit"])
def test_metrics_survive_being_changed_while_training(harm, number, tmp_path):
    path, rows = tmp_path / "run" / "metrics.csv", []

    def change(epoch):
        rows.extend(epoch.metrics)
        if epoch.number != number:
            return
        if harm == "delete":
            path.unlink()
        elif harm == "truncate":
            os.truncate(path, path.stat().st_size - 5)
        else:
            path.write_bytes(path.read_bytes() + b"1,2,3\r\n")

    run = tiny(tmp_path / "run", on_epoch=change)
    assert RunFolder(run).read_metrics() == rows
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert show_run(run).problems == []


def test_metrics_that_cannot_be_written_are_an_error(tmp_path):
    folder = RunFolder(tmp_path)
    metrics = CsvLogger(folder)
    metrics.append([{"a": 1}])
    (tmp_path / "metrics.csv").unlink()
    (tmp_path / "metrics.csv").mkdir()
    with pytest.raises(OSError, match=r"metrics\.csv"):
        metrics.append([{"a": 2}])
    assert metrics.content == b"a\r\n1\r\n"  # without the row that was not written


LOGGER = '''
from pathlib import Path

class Lines:
    """Writes a line per epoch."""

    def __init__(self, folder, info):
        self._path = folder / "lines.txt"
        self._write(f"start {info.task_name}")

    def _write(self, line):
        with self._path.open("a") as file:
            print(line, file=file)

    def epoch(self, epoch):
        self._write(f"epoch {epoch.number}")

    def message(self, text):
        self._write(f"message {text[:8]}")

    def close(self):
        self._write("close")

class Unusable(Lines):
    @staticmethod
    def check():
        raise ValueError("logger='Unusable' needs a key")

class Mute:
    def __init__(self, folder, info): ...

class Refuses(Lines):
    def __init__(self, folder, info):
        raise KeyError("token")

class Breaks(Lines):
    def epoch(self, epoch):
        if epoch.number == 2:
            raise KeyError("token")

class Offline(Lines):
    def epoch(self, epoch):
        if epoch.number == 2:
            raise ConnectionError("no route")

class Clings(Lines):
    def close(self):
        raise KeyError("still busy")

def function(folder, info):
    return Lines(folder, info)
'''


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file with loggers, named relative to the working directory."""
    (tmp_path / "mine.py").write_text(LOGGER)
    monkeypatch.chdir(tmp_path)
    return "mine.py"


def test_a_logger_from_a_file_also_serves_a_resumed_run(file, tmp_path, monkeypatch):
    run = tiny(tmp_path / "run", loggers=[f"{file}:Lines"])
    lines = (run / "lines.txt").read_text().splitlines()
    assert lines == ["start make_env", "epoch 1", "epoch 2", "epoch 3", "close"]
    monkeypatch.chdir("/")  # the record holds from everywhere
    resume(run, make_env, steps=80, quiet=True)
    lines = (run / "lines.txt").read_text().splitlines()[5:]
    assert lines == ["start make_env", "message resuming", "message the envi", "epoch 4", "close"]


def test_a_registered_logger_has_a_name(tmp_path):
    class Counts:
        epochs = 0

        def __init__(self, folder, info): ...

        def epoch(self, epoch):
            Counts.epochs += 1

        def message(self, text): ...

        def close(self): ...

    LOGGERS.register("counts", Counts)
    tiny(tmp_path / "run", loggers=["counts"])
    assert Counts.epochs == 3
    with pytest.raises(ValueError, match="'counts' exists"):
        LOGGERS.register("counts", Counts)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wandbb", "logger='wandbb'.*did you mean wandb"),
        ("mine.py:Linse", r"mine\.py has no 'Linse'.*did you mean Lines"),
        ("other.py:Lines", r"other\.py cannot be imported: .*other\.py"),
        ("no.such.module:Lines", r"no\.such\.module cannot be imported"),
        ("broken.py:Lines", r"broken\.py cannot be imported: ZeroDivisionError"),
        ("mine.py:Unusable", "logger='Unusable' needs a key"),
        ("mine.py:Mute", "logger='mine.py:Mute' has no method epoch, message, close"),
        ("mine.py:function", "logger='mine.py:function' cannot be called without arguments"),
        ("mine.py:LOGGER", r"mine\.py has no 'LOGGER'"),
    ],
)
def test_an_unusable_logger_is_named_before_a_folder_exists(name, message, file, tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(ValueError, match=message):
        tiny(tmp_path / "run", loggers=[name])
    assert not (tmp_path / "run").exists()


def test_a_logger_that_fails_is_named_and_the_run_can_be_resumed(file, tmp_path):
    with pytest.raises(RuntimeError, match=r"logger='.*mine.py:Refuses': KeyError: 'token'"):
        tiny(tmp_path / "refuses", loggers=[f"{file}:Refuses"])
    with pytest.raises(RuntimeError, match=r"logger='.*mine.py:Breaks': KeyError: 'token'"):
        tiny(tmp_path / "breaks", loggers=[f"{file}:Breaks"])
    row = describe_run(tmp_path / "breaks")
    assert row.state == "failed" and "mine.py:Breaks" in row.problem and row.epoch == 2
    with pytest.raises(WriteFault, match=r"logger='.*mine.py:Offline': no route.*epoch 2 is saved"):
        tiny(tmp_path / "offline", loggers=[f"{file}:Offline"])
    assert describe_run(tmp_path / "offline").state == "stopped"
    resume(tmp_path / "breaks", make_env, quiet=True)  # epoch 2 is over
    assert describe_run(tmp_path / "breaks").state == "finished"


def test_a_logger_that_cannot_be_closed_does_not_fail_the_run(file, tmp_path):
    run = tiny(tmp_path / "run", loggers=[f"{file}:Clings"])
    assert describe_run(run).state == "finished"
    assert "mine.py:Clings' cannot be closed" in (run / "log.txt").read_text()


@pytest.mark.slow
def test_wandb_offline_writes_into_the_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = start("ppo", tmp_path / "run", 2, loggers=["wandb"])
    assert describe_run(run).state == "finished"
    (first,) = (run / "wandb").glob("offline-run-*/*.wandb")
    assert first.stat().st_size > 0
    resume(run, steps=120, quiet=True)
    files = list((run / "wandb").glob("offline-run-*/*.wandb"))
    assert {path.name for path in files} == {first.name}  # one W&B run, by its id
    assert describe_run(run).epoch == 3 and show_run(run).problems == []


def test_wandb_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(ValueError, match=r"logger='wandb'.*surefoot\[wandb\]"):
        tiny(tmp_path / "run", loggers=["wandb"])
    assert not (tmp_path / "run").exists()
