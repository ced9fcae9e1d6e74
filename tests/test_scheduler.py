"""Several trainings at once: which run side by side, how they are stopped, and what is reported."""

import subprocess
import sys
from dataclasses import replace

import pytest

from surefoot.experiments import scheduler
from surefoot.experiments.job import Block
from surefoot.experiments.scheduler import run_blocks
from test_experiments import JOB, write_run


class Fake:
    """A training that ends after so many looks."""

    def __init__(self, looks, finished=True):
        self.looks, self.error = looks, "" if finished else "no luck"
        self.stopped = self.killed = False

    def poll(self):
        self.looks -= 1
        return self.error if self.looks < 0 else None

    def stop(self):
        self.stopped, self.looks = True, 0

    def kill(self):
        self.killed = True


def blocks_of(tmp_path, count, alone=()):
    return [
        Block(replace(JOB, alone=i in alone), i, 1, tmp_path / f"run-{i}") for i in range(count)
    ]


def test_slots_are_respected_and_a_failure_affects_no_other(tmp_path):
    blocks = blocks_of(tmp_path, 5, alone=[0])
    running, seen, order = set(), [], []

    def start(block):
        handle = Fake(3, finished=block.first != 2)
        poll = handle.poll

        def polling():
            outcome = poll()
            if outcome is not None:
                running.discard(block.first)
            return outcome

        handle.poll = polling
        running.add(block.first)
        order.append(block.first)
        seen.append(set(running))
        return handle

    lines = []
    errors = run_blocks(blocks, start, lambda: 2, lines.append, pause=0.0)
    assert max(map(len, seen)) == 2
    assert order[-1] == 0 and seen[-1] == {0}  # its time is measured: last, and alone
    assert errors == {blocks[2]: "no luck"}
    assert lines[-1] == "4 done, 0 running, 0 waiting, 1 failed"


def test_ctrl_c_stops_gently_and_waits(tmp_path):
    blocks, handles = blocks_of(tmp_path, 3), []

    def start(block):
        if handles:
            raise KeyboardInterrupt("asked")
        handles.append(Fake(10**9))
        return handles[0]

    with pytest.raises(KeyboardInterrupt, match="asked"):
        run_blocks(blocks, start, lambda: 2, lambda line: None, pause=0.0)
    assert handles[0].stopped and not handles[0].killed


def test_a_line_is_reported_when_a_training_starts_or_ends(tmp_path):
    (block,) = blocks_of(tmp_path, 1)
    lines = []
    run_blocks([block], lambda block: Fake(1, finished=False), lambda: 1, lines.append, 1, 0.0)
    write_run(block.folder, JOB, [0], finished=False, epochs=1)
    run_blocks([block], lambda block: Fake(1), lambda: 1, lines.append, 1, 0.0)
    assert lines == [
        "training: PointGoal, ppo (default), seed 0",
        "failed: PointGoal, ppo (default), seed 0: no luck",
        "1 done, 0 running, 0 waiting, 1 failed",
        "resuming: PointGoal, ppo (default), seed 0",
        "finished: PointGoal, ppo (default), seed 0",
        "2 done, 0 running, 0 waiting",
    ]


@pytest.mark.parametrize(
    ("cores", "gpus", "slots"),
    [(1, 0, 1), (2, 0, 1), (64, 0, 32), (16, 1, 4), (4, 1, 1), (64, 2, 8)],
)
def test_a_machine_takes_as_many_as_its_cores_and_gpus_allow(monkeypatch, cores, gpus, slots):
    monkeypatch.setattr(scheduler, "cores", lambda: cores)
    assert scheduler.default_slots(gpus) == slots


def test_jobs_go_to_the_gpu_with_fewest(monkeypatch, tmp_path):
    seen, ended = [], []

    class Process:
        def __init__(self, command, env, **_):
            seen.append((env["CUDA_VISIBLE_DEVICES"], env["XLA_PYTHON_CLIENT_PREALLOCATE"]))

        def poll(self):
            return 0 if self in ended else None

    monkeypatch.setattr(scheduler.subprocess, "Popen", Process)
    local = scheduler.Local("gpu", 2, tmp_path / "logs", {})
    blocks = blocks_of(tmp_path, 4)
    first = local(blocks[0])
    local(blocks[1])
    assert first.poll() is None
    ended.append(first.process)
    assert first.poll() == ""
    local(blocks[2])
    local(blocks[3])
    assert seen == [(gpu, "false") for gpu in ("0", "1", "0", "0")]


def test_a_process_that_was_killed_is_reported(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("a line\n\nValueError: the last line\n")
    ends = []
    for code in ("import os; os.kill(os.getpid(), 9)", "raise SystemExit(3)"):
        process = subprocess.Popen([sys.executable, "-c", code])
        process.wait()
        ends.append(scheduler.Child(process, log).poll())
    assert ends[0] == "the process was ended by SIGKILL"
    assert ends[1] == "ValueError: the last line"
