"""Experiments on Ray: killing a worker does not change the results."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from harness import came_to, differences
from surefoot.runs.checkpoint import newest_sound
from surefoot.runs.folder import RunFolder
from surefoot.runs.train import train
from test_experiments import JOB, TASK, experiment, register

EPOCHS = 200
LONG = replace(JOB, steps=40 * EPOCHS)


def test_without_ray_the_error_names_the_extra(call, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = call("reproduce", "smoke", "--on", "ray", "--out", str(tmp_path))
    assert code == 2 and "on='ray' needs the extra: pip install 'surefoot[ray]'" in err


def kill_in_the_middle(folder: Path, killed: list[int]) -> None:
    """Kill the process that trains a run with -9, when some of its epochs can be seen from here."""
    end = time.monotonic() + 120
    metrics = folder / "metrics.csv"
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < 5:
        if time.monotonic() > end:
            return
        time.sleep(0.01)
    process = writer_of(folder.name)
    os.kill(process, signal.SIGKILL)
    killed.append(process)


def writer_of(name: str) -> int:
    """The process that holds the lock of a run of this name, wherever its folder is."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link).endswith(f"/{name}/.lock"):
                return int(link.parts[2])
    raise AssertionError(f"nobody writes {name}")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="processes are found in /proc")
def test_a_killed_worker_changes_nothing(call, tmp_path):
    """Two workers train a seed each; the worker of the first is killed."""
    register(experiment(LONG))
    out = tmp_path / "out"
    runs = [out / "trained" / f"{LONG.name('cpu')}-seeds-{seed}-{seed}" for seed in (0, 1)]
    killed: list[int] = []
    killer = threading.Thread(target=kill_in_the_middle, args=(runs[0], killed))
    killer.start()
    code, text, err = call(
        "reproduce", "try", "--on", "ray", "--jobs", "2", "--block", "1", "--device", "cpu",
        "--out", str(out),
    )  # fmt: skip
    killer.join()
    assert code == 0 and killed, text + err
    assert "2 done, 0 running, 0 waiting" in text
    for seed, run in enumerate(runs):
        alone = train(
            "PointGoal", "ppo", config=LONG.config("cpu"), seed=seed, quiet=True,
            out=tmp_path / f"alone-{seed}", task_options=TASK,
        )  # fmt: skip
        assert not differences(came_to(run), came_to(alone))
        assert newest_sound(run / "checkpoints")[0].meta["epoch"] == EPOCHS
        command = RunFolder(run).read_json("config.json")["command"]
        assert command.startswith("surefoot train PointGoal --algorithm ppo")
    resumed = ["from epoch" in (run / "log.txt").read_text() for run in runs]
    assert resumed == [True, False]
