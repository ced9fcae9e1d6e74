"""Damage and failures: a run recovers, or an error names what is wrong."""

import errno
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness import PPO, came_to, differences, flip, kill_until_done, start
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.core.policy import Policy
from surefoot.envs.gym.adapters import EnvironmentFault, adapt
from surefoot.runs import checkpoint as checkpoints
from surefoot.runs.checkpoint import (
    Checkpoint,
    epoch_of,
    list_checkpoints,
    newest_sound,
    write_checkpoint,
)
from surefoot.runs.drive import WriteFault
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import read_info
from surefoot.runs.keeper import Keeper
from surefoot.runs.listing import describe_run, show_run
from surefoot.runs.loggers.csv import CsvLogger
from surefoot.runs.resume import resume
from surefoot.runs.train import train
from toys import Drift


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of three epochs, which must not be changed."""
    return start("ppo-lagrangian", tmp_path_factory.mktemp("faults") / "run", 3)


def files_of(run: Path) -> list[str]:
    return sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file())


@pytest.mark.parametrize("harm", ["truncate", "flip", "delete"])
def test_any_damaged_file_of_a_finished_run_is_detected_and_restored(finished, tmp_path, harm):
    """`show` reports it, unless nothing was lost; after `resume` the run is as before."""
    expected, rng = came_to(finished), np.random.default_rng(3)
    for number, name in enumerate(files_of(finished)):
        run = tmp_path / str(number)
        shutil.copytree(finished, run)
        path = run / name
        if harm == "delete":
            path.unlink()
        elif harm == "flip":
            flip(path, rng)
        else:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        if not show_run(run).problems:
            if name == "result.json" and harm == "delete":
                assert describe_run(run).state == "stopped"
            elif path.exists():  # a bit without meaning, or a file that only people read
                assert differences(expected, came_to(run)) == [], name
            else:
                assert name in (".lock", "log.txt") or "checkpoints" in name
        resume(run, quiet=True)
        assert differences(expected, came_to(run)) == [], name
        assert show_run(run).problems == [], name


def test_a_stopped_run_resumes_from_the_checkpoint_before_a_damaged_one(finished, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "result.json").unlink()
    newest = list_checkpoints(run / "checkpoints")[0]
    newest.write_bytes(newest.read_bytes()[:-100])
    resume(run)
    output = capsys.readouterr().out
    assert f"{newest} is damaged" in output and "resuming from epoch 2" in output
    assert differences(came_to(finished), came_to(run)) == []
    assert newest.with_suffix(".damaged").exists()


def test_what_cannot_be_restored_is_named(finished, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    rows = (run / "metrics.csv").read_bytes()
    for path in list_checkpoints(run / "checkpoints"):
        path.write_bytes(b"rubbish")
    with pytest.raises(ValueError, match=r"no checkpoint of .* can be read"):
        resume(run)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(ValueError, match=f"no checkpoints found in {run}"):
        resume(run)
    assert (run / "metrics.csv").read_bytes() == rows  # and nothing was lost on the way
    (run / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        resume(run)
    assert describe_run(run).state == "damaged"
    with pytest.raises(ValueError, match="no such folder"):
        resume(tmp_path / "nowhere")


def test_a_checkpoint_of_another_format_is_refused_not_skipped(finished, tmp_path, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    monkeypatch.setattr(checkpoints, "FORMAT", 99)
    with pytest.raises(ValueError, match=r"format=2, written by Surefoot .* reads format 99"):
        resume(run)


def test_a_leaf_that_does_not_fit_is_named(finished, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "result.json").unlink()
    last, _ = newest_sound(run / "checkpoints")
    name = next(k for k in last.arrays if k.startswith("trainer/state/learner/critics"))
    arrays = {**last.arrays, name: np.zeros((1, 2), np.float32)}
    write_checkpoint(run / "checkpoints", Checkpoint({**last.meta, "epoch": 4}, arrays))
    short = name.removeprefix("trainer/")
    with pytest.raises(ValueError, match=rf"{short} is float32\[1, 2\] in the checkpoint"):
        resume(run, quiet=True)


def test_no_damaged_policy_acts(finished, tmp_path):
    """Every flipped bit is detected, or leaves the policy as it was."""
    rng, path = np.random.default_rng(0), tmp_path / "policy.npz"
    sound, detected = RunFolder(finished).read_policy().arrays(), 0
    for _ in range(200):
        shutil.copy(finished / "policy.npz", path)
        flip(path, rng)
        try:
            arrays = Policy.load(path).arrays()
        except ValueError as error:
            assert "damaged" in str(error)
            detected += 1
            continue
        assert arrays.keys() == sound.keys()
        assert all(arrays[k].tobytes() == sound[k].tobytes() for k in sound)
    assert detected > 100


def test_no_checkpoint_can_execute_code(tmp_path):
    evil = np.array([object()], dtype=object)
    path = tmp_path / "epoch-000001.npz"
    np.savez(path, meta=np.array("{}"), evil=evil)
    with path.open("rb") as file:
        named = path.with_name(f"epoch-000001.{checkpoints._digest(file)}.npz")
    path.rename(named)
    last, problems = newest_sound(tmp_path)
    assert last is None and "is not a checkpoint" in problems[0]


def test_a_full_disk_costs_nothing(finished, tmp_path, monkeypatch):
    """The second checkpoint meets a full disk, in the middle of the file."""
    real, calls = np.savez, []

    def full(file, **arrays):
        calls.append(1)
        if len(calls) >= 3:  # of the policy and of the checkpoint, each epoch
            file.write(b"half") if hasattr(file, "write") else None
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file, **arrays)

    monkeypatch.setattr("numpy.savez", full)
    out = tmp_path / "run"
    with pytest.raises(WriteFault, match=r"No space left on device\. epoch 1 is saved; .*resume"):
        start("ppo-lagrangian", out, 3)
    monkeypatch.undo()
    assert [p.name for p in (out / "checkpoints").iterdir()] == [
        p.name for p in list_checkpoints(out / "checkpoints")
    ]
    assert differences(came_to(finished), came_to(resume(out, quiet=True))) == []


class Breaks(Drift):
    """Fails in the second step of its third episode."""

    episodes = 0

    def __init__(self, how):
        self.how = how

    def reset(self, **options):
        self.episodes += 1
        return super().reset(**options)

    def step(self, action):
        obs, reward, *rest = super().step(action)
        if self.episodes == 3 and self.t == 2:
            if self.how == "raises":
                raise ZeroDivisionError("a wheel came off")
            if self.how == "shape":
                return np.zeros(3), reward, *rest
            if self.how == "dtype":
                return np.array(["wet"]), reward, *rest
            return obs, float("nan"), *rest
        return obs, reward, *rest


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raises", "ZeroDivisionError: a wheel came off"),
        ("nan", "reward is nan"),
        ("shape", r"observation has shape \(3,\), not \(1,\)"),
        ("dtype", "observation=.*wet.* must be numbers"),
    ],
)
def test_a_broken_environment_is_named_and_earlier_epochs_are_saved(how, words, tmp_path):
    config = PPOLagrangianConfig(steps=100, cost_limit=(1.0,), steps_per_epoch=20, ppo=PPO)
    out = tmp_path / "run"
    with pytest.raises(EnvironmentFault, match=f"environment 0, step .*: {words}"):
        train(lambda n: adapt(lambda: Breaks(how), num_envs=n), config=config, out=out, quiet=True,
              checkpoint_every=1e6)  # fmt: skip
    assert newest_sound(out / "checkpoints")[0].meta["epoch"] == 2
    row = describe_run(out)
    assert row.state == "failed" and "environment 0, step" in row.problem


@pytest.mark.slow
def test_killed_runs_resume_bit_for_bit(tmp_path):
    """The short form of benchmarks/faults.py."""
    epochs, out = 60, tmp_path / "run"
    whole = came_to(start("ppo-lagrangian", tmp_path / "whole", epochs))
    killed = kill_until_done("ppo-lagrangian", out, epochs, 3, random.Random(5), 0.3)
    assert len(killed) >= 2 and any(0 < epoch < epochs for epoch in killed), killed
    assert differences(whole, came_to(out)) == []


LIMITED = """
import resource, sys
sys.path.insert(0, sys.argv[1])
import harness
from pathlib import Path
from surefoot.runs.keeper import Keeper

take = Keeper.take

def taking(self, epoch, seconds):
    take(self, epoch, seconds)
    if epoch.number == 2:  # from here on no file may become longer than a small part of it
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))

Keeper.take = taking
harness.start("ppo-lagrangian", Path(sys.argv[2]), 3)
"""


def test_a_file_that_really_cannot_grow_costs_nothing(finished, tmp_path):
    """As on a full disk, without being root: the system refuses to write in mid-file."""
    out = tmp_path / "run"
    script = [sys.executable, "-c", LIMITED, str(Path(__file__).parent), str(out)]
    done = subprocess.run(script, capture_output=True, text=True)
    error = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and "WriteFault" in error and "epoch 1 is saved" in error, error
    assert [epoch_of(p) for p in list_checkpoints(out / "checkpoints")] == [1]
    assert not list(out.rglob("*partial*"))
    assert differences(came_to(finished), came_to(resume(out, quiet=True))) == []


def test_an_unwritable_folder_is_named_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        start("ppo", tmp_path / "file" / "run", 1)


def test_checkpoints_wait_for_their_turn(finished, tmp_path, monkeypatch):
    """By default, the next one waits until checkpoints have taken 1 % of the time."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    spent = iter(np.arange(0.0, 100.0, 2.0))  # every reading of the clock is 2 s later
    monkeypatch.setattr("time.perf_counter", lambda: float(next(spent)))
    info = replace(read_info(RunFolder(finished)), checkpoint_every=None, keep=9)
    keeper = Keeper(RunFolder(tmp_path), info, CsvLogger(RunFolder(tmp_path)), {})

    class Fake:
        number, snapshot, metrics = (
            1,
            {"x": np.zeros(2)},
            [{"cost": 0.0, "reward": 0.0, "cost_limit": 1}],
        )
        policy = RunFolder(finished).read_policy()

    written = []
    for number, at in ((1, 100.0), (2, 299.0), (3, 301.0)):
        now[0], Fake.number = at, number
        keeper.take(Fake, 0.0)
        keeper.write(only_if_due=True)
        written.append(keeper.written)
    assert written == [1, 1, 3]  # a write took 2 s, so the next one waits for 200
