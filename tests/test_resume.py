"""Resumed runs have the same numbers, bit for bit, as runs that were never interrupted."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import harness
import surefoot
from harness import PPO, TINY, came_to, differences, start
from surefoot import cli
from surefoot.algorithms.actors import draw_from
from surefoot.algorithms.collect import Collector, environment_seeds
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.core.policy import Policy
from surefoot.core.spaces import action_spec
from surefoot.envs.gym.adapters import adapt
from surefoot.envs.gym.snapshot import from_generator, to_generator
from surefoot.envs.task import make
from surefoot.runs.checkpoint import (
    Checkpoint,
    epoch_of,
    list_checkpoints,
    newest_sound,
    prune,
    write_checkpoint,
)
from surefoot.runs.folder import RunFolder
from surefoot.runs.interrupt import Interrupt
from surefoot.runs.keeper import Keeper, scores_of
from surefoot.runs.listing import list_runs, show_run
from surefoot.runs.resume import resume
from surefoot.world.black_box import BlackBox
from toys import Drift


class Crash(Exception):
    """Ends training as a crash would."""


@pytest.fixture
def crash_after(monkeypatch):
    """Make training fail when a given epoch is in metrics.csv but not in a checkpoint."""

    def crash_after(number: int) -> None:
        take = Keeper.take

        def breaking(self, epoch, seconds):
            if epoch.number == number:
                raise Crash
            take(self, epoch, seconds)

        monkeypatch.setattr(Keeper, "take", breaking)

    yield crash_after
    monkeypatch.undo()


QUICK = ("ppo-lagrangian", "cpo", "mbppo-lagrangian")


@pytest.mark.parametrize(
    "algorithm", [pytest.param(a, marks=() if a in QUICK else pytest.mark.slow) for a in TINY]
)
def test_a_resumed_run_is_the_run_that_was_never_interrupted(
    algorithm, tmp_path, monkeypatch, crash_after
):
    whole = came_to(start(algorithm, tmp_path / "whole", 4))
    with monkeypatch.context():
        crash_after(3)
        with pytest.raises(Crash):
            start(algorithm, tmp_path / "cut", 4)
    rows = RunFolder(tmp_path / "cut").read_metrics()
    assert [row["epoch"] for row in rows] == [1, 1, 2, 2, 3, 3]  # the third was never saved
    monkeypatch.undo()
    assert differences(whole, came_to(resume(tmp_path / "cut", quiet=True))) == []
    rows = RunFolder(tmp_path / "cut").read_metrics()
    assert [row["epoch"] for row in rows] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert rows[-1]["seconds"] >= rows[3]["seconds"]


def test_a_run_killed_in_its_first_epoch_starts_again(tmp_path, monkeypatch, crash_after):
    whole = came_to(start("ppo", tmp_path / "whole", 1))
    crash_after(1)
    with pytest.raises(Crash):
        start("ppo", tmp_path / "cut", 1)
    monkeypatch.undo()
    assert differences(whole, came_to(resume(tmp_path / "cut", quiet=True))) == []


def test_a_finished_run_can_be_made_longer(tmp_path):
    whole = came_to(start("ppo-lagrangian", tmp_path / "whole", 3))
    run = start("ppo-lagrangian", tmp_path / "run", 2)
    first = RunFolder(run).read_json("result.json")
    assert resume(run, quiet=True) == run  # finished: nothing to do
    assert RunFolder(run).read_json("result.json") == first
    with pytest.raises(ValueError, match="steps=40 must be at least 80"):
        resume(run, steps=40)
    assert differences(whole, came_to(resume(run, steps=120, quiet=True))) == []
    assert RunFolder(run).read_json("config.json")["config"]["steps"] == 120
    assert RunFolder(run).read_json("result-80.json") == first


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("PointGoal", {"observation": "reference"}),
        ("CarGoal", {"observation": "reference"}),
        ("DoggoGoal", {"observation": "ego"}),
        ("RCCar", {}),
    ],
)
def test_environments_continue_exactly(task, options):
    """Also in mid-episode, and over ends of episodes, goals and blocks of random numbers."""
    rng = np.random.default_rng(0)
    env = make(task, num_envs=3, seed=5, max_episode_steps=150, **options)
    actions = rng.uniform(-1, 1, (400, 3, *env.single_action_space.shape))
    env.reset()
    for action in actions[:100]:
        env.step(action)
    state = env.snapshot()
    play = lambda env: [env.step(action)[:4] for action in actions[100:]]
    expected = play(env)
    other = make(task, num_envs=3, seed=77, max_episode_steps=150, **options)
    other.reset()
    other.step(actions[0])
    other.restore(state)
    for a, b in zip(expected, play(other), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(env.episode_reward, other.episode_reward)


def test_a_snapshot_does_not_change_with_the_environment():
    env = make("PointGoal", num_envs=2, seed=5)
    env.reset()
    state = env.snapshot()
    before = state["task"]["physics"].copy(), state["streams"]["used"].copy()
    for _ in range(5):
        env.step(np.ones((2, 2)))
    np.testing.assert_array_equal(state["task"]["physics"], before[0])
    np.testing.assert_array_equal(state["streams"]["used"], before[1])


def still(width: int, actions: int) -> Policy:
    zeros = lambda *shape: np.zeros(shape, np.float32)
    bounds = np.full(actions, -1.0), np.full(actions, 1.0)
    return Policy(
        (zeros(2, width, actions),),
        (zeros(2, actions),),
        zeros(2, actions),
        *bounds,
        kind="gaussian",
    )


def test_a_collector_continues_in_the_middle_of_episodes():
    def build():
        env = make("RCCar", num_envs=4, max_episode_steps=8)
        return Collector(env, [1, 2], 2, BlackBox(4, env.cost_names))

    def act(collector):
        return collector.collect(draw_from(policy, collector.rngs, 2, 13), spec, 13)

    first = build()
    spec, policy = action_spec(first.env.single_action_space), still(4, 2)
    act(first)
    state = first.snapshot()
    expected = act(first)
    second = build()
    second.restore(state, 1)
    continued = act(second)
    np.testing.assert_array_equal(continued.obs, expected.obs)
    np.testing.assert_array_equal(continued.action, expected.action)
    assert len(continued.episodes[0].reward) == 4  # two in each environment, of which one had begun
    np.testing.assert_array_equal(continued.episodes[0].reward, expected.episodes[0].reward)
    np.testing.assert_array_equal(continued.starts, expected.starts)


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_generators_continue(kind):
    rng, other = np.random.Generator(kind(1)), np.random.Generator(kind(2))
    rng.standard_normal(7, np.float32)
    state = from_generator(rng)
    expected = rng.integers(1 << 40, size=9)
    to_generator(other, state)
    np.testing.assert_array_equal(other.integers(1 << 40, size=9), expected)


class Saves(Drift):
    """Drift with a snapshot."""

    def snapshot(self):
        return {"now": np.array([self.t, self.s])}

    def restore(self, state):
        self.t, self.s = int(state["now"][0]), float(state["now"][1])


OWN = PPOLagrangianConfig(steps=160, cost_limit=(1.0,), steps_per_epoch=40, ppo=PPO)


@pytest.mark.parametrize("kind", [Saves, Drift])
def test_environments_of_ones_own(kind, tmp_path, monkeypatch, crash_after):
    """Two environments of one seed; those with a snapshot continue exactly."""
    make_env = lambda n: adapt(kind, num_envs=n)
    options = {"config": OWN, "quiet": True, "checkpoint_every": 0}
    surefoot.train(make_env, out=tmp_path / "whole", **options)
    crash_after(3)
    with pytest.raises(Crash):
        surefoot.train(make_env, out=tmp_path / "cut", **options)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="make_env"):
        resume(tmp_path / "cut")
    assert show_run(tmp_path / "cut").resume == (
        f"surefoot.resume({str(tmp_path / 'cut')!r}, make_env)"
    )
    surefoot.resume(tmp_path / "cut", make_env, quiet=True)
    for name in ("whole", "cut"):
        assert {"result.json", "curve.png"} <= {p.name for p in (tmp_path / name).iterdir()}
        result = RunFolder(tmp_path / name).read_json("result.json")
        assert result["evaluation"]["episodes"] == 50 and result["real_steps"] == 160
    a, b = (newest_sound(tmp_path / name / "checkpoints")[0].arrays for name in ("whole", "cut"))
    same = all(a[k].tobytes() == b[k].tobytes() for k in a if k.startswith("trainer/state/"))
    log = (tmp_path / "cut" / "log.txt").read_text()
    info = RunFolder(tmp_path / "cut").read_json("config.json")
    if kind is Saves:
        assert same and info["restarts"] == [] and "begin new episodes" not in log
    else:
        assert not same and "begin new episodes" in log
        assert info["restarts"] == [{"epoch": 2, "environment_seeds": environment_seeds([0], 2, 2)}]
        assert environment_seeds([0], 2, 2) != environment_seeds([0], 2)


def test_the_last_and_the_best_checkpoints_are_kept(tmp_path):
    """By hand: within the limit first, then reward; a policy is judged by the epoch after it."""
    reward = {1: 0.0, 2: 5.0, 3: 2.0, 4: 3.0, 5: 1.0, 6: 0.0}
    cost = {1: 0.0, 2: 9.0, 3: 1.0, 4: 2.0, 5: 0.0, 6: 0.0}
    rows = [
        {"epoch": e, "reward": reward[e], "cost": cost[e], "cost_limit": 2.0} for e in range(1, 7)
    ]
    scores = scores_of(rows)
    assert scores[1] == (False, 5.0) and scores[3] == (True, 3.0) and 6 not in scores
    for epoch in range(1, 7):
        write_checkpoint(tmp_path, Checkpoint({"epoch": epoch}, {}))
    prune(tmp_path, 2, scores)
    assert [epoch_of(p) for p in list_checkpoints(tmp_path)] == [6, 5, 3]


def test_only_one_process_writes_a_run(tmp_path):
    folder = RunFolder(tmp_path)
    assert not folder.is_running()
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from surefoot.runs.folder import RunFolder\n"
        f"with RunFolder(Path({str(tmp_path)!r})).locked():\n"
        "    print('ready', flush=True)\n    time.sleep(60)\n"
    )
    with harness.child("-c", script) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "ready\n"
        assert folder.is_running()
        with pytest.raises(ValueError, match=f"written by process {holder.pid}"):
            resume(tmp_path)
        holder.kill()
    assert not folder.is_running()  # though the lock file exists
    assert str(holder.pid) in (tmp_path / ".lock").read_text()
    with folder.locked():
        assert folder.is_running()


STUBBORN = """
import hashlib, sys
from surefoot.runs import interrupt
interrupt.GRACE, interrupt.DEBOUNCE = float(sys.argv[1]), 0.1
say = lambda text: print(text, flush=True)
with interrupt.Interrupt(lambda: say("first"), lambda: say("saved")):
    say("ready")
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # a long step in native code
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_long_step_is_ended_after_the_grace_period(number):
    with harness.child("-c", STUBBORN, "0.5") as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        sent = time.monotonic()
        child.send_signal(number)
        assert child.stdout.read() == "first\nsaved\n"
        assert child.wait() == 128 + number
        assert 0.5 < time.monotonic() - sent < 5


def test_a_second_signal_stops_at_once():
    with harness.child("-c", STUBBORN, "60") as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "first\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGTERM)
        assert child.stdout.read() == "" and child.wait() == 143


def test_handlers_are_restored():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupt(lambda: None, lambda: None) as interrupt:
        assert interrupt.number is None
        os.kill(os.getpid(), signal.SIGTERM)
        end = time.monotonic() + 2
        while interrupt.number is None and time.monotonic() < end:
            time.sleep(0.01)
        assert interrupt.number == signal.SIGTERM
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_stopped_run_reports_how_to_resume_and_is_listed(tmp_path, monkeypatch, capsys):
    whole = came_to(start("ppo", tmp_path / "whole", 3))
    take = Keeper.take

    def stopping(self, epoch, seconds):
        take(self, epoch, seconds)
        if epoch.number == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.3)

    monkeypatch.setattr(Keeper, "take", stopping)
    out = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt, match=f"epoch 2 is saved.*surefoot resume {out}") as e:
        start("ppo", out, 3)
    assert e.value.code == 143
    monkeypatch.undo()
    states = [(Path(row.run).name, row.state) for row in list_runs(tmp_path)]
    assert states == [("cut", "stopped"), ("whole", "finished")]  # newest first
    with pytest.raises(SystemExit) as end:
        cli.main(["resume", str(out), "--quiet"])
    assert end.value.code == 0 and "fresh episodes: reward" in capsys.readouterr().out
    assert differences(whole, came_to(out)) == []
    with pytest.raises(SystemExit) as end:
        cli.main(["show", str(out), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert end.value.code == 0 and shown["state"] == "finished" and shown["problems"] == []
    assert shown["real_steps"] == 120 and shown["checkpoints"][0]["epoch"] == 3
    with pytest.raises(SystemExit):
        cli.main(["runs", str(tmp_path)])
    assert capsys.readouterr().out.count("finished") == 2
