"""Many trainings at once: what runs beside what, how it is stopped, and the time it will take."""

import io
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from surefoot.experiments import scheduler
from surefoot.experiments.job import Block
from surefoot.experiments.library import known_runs
from surefoot.experiments.progress import Progress, time_left, words_of
from surefoot.experiments.scheduler import Outcome, run_blocks
from surefoot.runs.folder import RunFolder
from test_experiments import JOB, write_run


class Fake:
    """A training that ends after so many looks."""

    def __init__(self, looks, finished=True):
        self.looks, self.outcome = looks, Outcome(finished, "" if finished else "no luck")
        self.stopped = self.killed = False

    def poll(self):
        self.looks -= 1
        return self.outcome if self.looks < 0 else None

    def stop(self):
        self.stopped, self.looks = True, 0

    def kill(self):
        self.killed = True


def blocks_of(tmp_path, count, alone=()):
    return [
        Block(replace(JOB, alone=i in alone), i, 1, tmp_path / f"run-{i}") for i in range(count)
    ]


def quiet(blocks, lanes=2):
    return Progress(blocks, [], lanes, "cpu", quiet=True)


def test_so_many_run_at_once_and_a_failure_holds_up_nobody(tmp_path):
    blocks = blocks_of(tmp_path, 5, alone=[0])
    running, seen, order = set(), [], []

    def start(block):
        handle = Fake(3, finished=block.first != 2)
        poll = handle.poll

        def polling():
            found = poll()
            if found is not None:
                running.discard(block.first)
            return found

        handle.poll = polling
        running.add(block.first)
        order.append(block.first)
        seen.append(set(running))
        return handle

    progress = quiet(blocks)
    outcomes = run_blocks(blocks, start, lambda: 2, progress, pause=0.0)
    assert max(map(len, seen)) == 2
    assert order[-1] == 0 and seen[-1] == {0}  # its time is to be told: last, and alone
    assert [block.first for block, found in outcomes.items() if not found.finished] == [2]
    assert (progress.finished, progress.failed) == (4, 1)
    assert progress.line() == "4 done, 0 running, 0 left, 1 failed"


def test_ctrl_c_stops_gently_and_waits(tmp_path):
    blocks, handles = blocks_of(tmp_path, 3), []

    def start(block):
        if handles:
            raise KeyboardInterrupt("asked")
        handles.append(Fake(10**9))
        return handles[0]

    with pytest.raises(KeyboardInterrupt, match="asked"):
        run_blocks(blocks, start, lambda: 2, quiet(blocks), pause=0.0)
    assert handles[0].stopped and not handles[0].killed


def test_the_time_left():
    assert time_left([], 2) == 0
    assert time_left([None, None], 2) is None
    assert time_left([10.0, None, 20.0], 1) == 45  # one of which nothing is known counts 15
    assert time_left([10.0, 10.0, 40.0], 3) == 40  # no shorter than the longest
    assert words_of(None) == "time not known yet"
    assert words_of(80) == "about 80 s to go" and words_of(600) == "about 10 min to go"
    assert words_of(9000) == "about 2.5 h to go"


def test_progress_learns_the_pace_from_finished_runs_and_from_running_ones(tmp_path):
    write_run(tmp_path / "done", JOB, [9], seconds=40.0)  # 80 steps: 0.5 s a step
    done, _ = known_runs([tmp_path / "done"], ours=False)
    blocks = blocks_of(tmp_path, 2)
    console = Console(file=open(os.devnull, "w"))  # noqa: SIM115
    progress = Progress(blocks, done, 1, "cpu", console=console)
    assert progress.line() == "1 done, 0 running, 2 left, about 80 s to go"
    progress.began(blocks[0])
    write_run(blocks[0].folder, replace(JOB, steps=40), [0], finished=False)  # half of it is there
    progress.looked -= 10
    progress.running[blocks[0]].since -= 80  # 2 s a step from now on
    progress.refresh()
    assert progress.running[blocks[0]].share == 0.5
    assert progress.left() == pytest.approx(2 * 40 + 2 * 80, rel=0.01)
    progress.ended(blocks[0], False, "no luck")
    assert progress.line().startswith("1 done, 0 running, 1 left, 1 failed, about 3 min")
    console.file.close()


def test_a_terminal_shows_what_runs(tmp_path):
    blocks = blocks_of(tmp_path, 2)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    with Progress(blocks, [], 1, "cpu", console=console) as progress:
        progress.began(blocks[0])
        write_run(blocks[0].folder, replace(JOB, steps=40), [0], finished=False)
        progress.looked -= 10
        progress.refresh()
    shown = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", screen.getvalue())
    assert "PointGoal, ppo (default), seed 0  50%  reward 1.00, cost 2.0  0.0 min" in shown
    assert "0 done, 1 running, 1 left, about 1 s to go" in shown


@pytest.mark.parametrize(
    ("cores", "gpus", "slots"),
    [(1, 0, 1), (2, 0, 1), (64, 0, 32), (16, 1, 4), (4, 1, 1), (64, 2, 8)],
)
def test_a_machine_takes_as_many_as_its_cores_and_gpus_allow(monkeypatch, cores, gpus, slots):
    monkeypatch.setattr(scheduler, "cores", lambda: cores)
    assert scheduler.default_slots(gpus) == slots


def test_jobs_go_to_the_gpu_with_fewest(monkeypatch, tmp_path):
    seen = []

    class Process:
        def __init__(self, command, env, **_):
            seen.append((env["CUDA_VISIBLE_DEVICES"], env["XLA_PYTHON_CLIENT_PREALLOCATE"]))

        def poll(self):
            return 0

    monkeypatch.setattr(scheduler.subprocess, "Popen", Process)
    local = scheduler.Local("gpu", 2, tmp_path / "logs", {})
    blocks = blocks_of(tmp_path, 4)
    first = local(blocks[0])
    local(blocks[1])
    assert first.poll() == first.poll() == Outcome(True)  # leaves its GPU, and only once
    local(blocks[2])
    local(blocks[3])
    assert seen == [(gpu, "false") for gpu in ("0", "1", "0", "0")]


def test_a_run_that_another_command_trains_is_waited_for(tmp_path):
    path = write_run(tmp_path / "run", JOB, [0], finished=False)
    local = scheduler.Local("cpu", 0, tmp_path / "logs", {})
    with RunFolder(path).locked():
        handle = local(Block(JOB, 0, 1, path))
        assert handle.poll() is None
    assert handle.poll() == Outcome(False, "the command that trained it has stopped")


def test_a_process_that_is_killed_is_told(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("a line\n\nValueError: the last line\n")
    ends = []
    for code in ("import os; os.kill(os.getpid(), 9)", "raise SystemExit(3)"):
        process = subprocess.Popen([sys.executable, "-c", code])
        process.wait()
        ends.append(scheduler.Child(process, log, lambda: None).poll())
    assert ends[0] == Outcome(False, "its process was ended by SIGKILL")
    assert ends[1] == Outcome(False, "ValueError: the last line")
