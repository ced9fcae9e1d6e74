"""`surefoot benchmark train`, and the short form of --multiplier, as a user types them."""

import dataclasses
import json
import sys

import pytest

from surefoot.algorithms.algorithm import ALGORITHMS
from surefoot.benchmark import train as benchmark
from surefoot.envs.task import TASKS
from surefoot.learn.ppo import PPOConfig
from surefoot.runs import train as runs
from surefoot.runs.folder import RunFolder


@pytest.fixture
def small(monkeypatch):
    """The schedules on short episodes, with little to learn."""
    tiny = []
    for schedule in benchmark.SCHEDULES:
        ppo = PPOConfig(hidden=(8,), epochs=1, critic_epochs=1)
        config = dataclasses.replace(schedule.config, steps_per_epoch=40, ppo=ppo)
        options = {"max_episode_steps": 20, "hazards": 3}
        tiny.append(dataclasses.replace(schedule, config=config, options=options))
    monkeypatch.setattr(benchmark, "SCHEDULES", tuple(tiny))


def python_that(tmp_path, body: str) -> str:
    """A program in the place of the reference's Python, that logs its last argument."""
    path = tmp_path / "python"
    log = tmp_path / "requests.jsonl"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nopen({str(log)!r}, 'a').write(sys.argv[-1] + '\\n')\n"
        + body
    )
    path.chmod(0o755)
    return str(path)


def test_the_schedules():
    full, omnisafe = benchmark.SCHEDULES
    assert full.config.steps_per_epoch == 30_000 and full.options == {}
    assert (full.config.ppo.epochs, full.config.ppo.critic_epochs) == (80, 80)
    assert full.config.ppo.minibatches == 1 and full.config.ppo.kl_stop is None
    ours, theirs = omnisafe.config, omnisafe.reference
    assert ours.steps_per_epoch == theirs["steps_per_epoch"] == 20_000
    assert ours.steps_per_epoch // ours.ppo.minibatches == theirs["batch_size"] == 64
    assert ours.ppo.epochs == ours.ppo.critic_epochs == theirs["update_iters"] == 1
    assert ours.ppo.hidden == (64, 64) and omnisafe.options == {"level": 1}


@pytest.mark.slow
def test_both_are_timed_and_compared(call, small, tmp_path):
    """The reference reports that its fastest epoch took 10 s for 20,000 steps: 2,000 a second."""
    report = {
        "version": "0.5.0",
        "epochs": [
            {"Epoch": 12.5, "Rollout": 12.0, "Update": 0.5},
            {"Epoch": 10.0, "Rollout": 9.0, "Update": 1.0},
        ],
    }
    python = python_that(tmp_path, f"print('many words')\nprint({json.dumps(report)!r})\n")
    options = ("--epochs", "2", "--reference-python", python)
    code, out, _ = call("benchmark", "train", *options, "--json")
    assert code == 0
    full, omnisafe = json.loads(out)
    assert full["schedule"] == "full-batch" and "ratio" not in full
    assert full["steps_per_update"] == omnisafe["steps_per_update"] == 40
    for row in (full, omnisafe):
        seconds = 40 / row["steps_per_second"]
        parts = row["collect_seconds"] + row["update_seconds"]
        assert 0.5 * seconds < parts <= seconds
    assert omnisafe["reference_steps_per_second"] == pytest.approx(2000.0)
    assert omnisafe["ratio"] == pytest.approx(omnisafe["steps_per_second"] / 2000.0)
    request = (tmp_path / "requests.jsonl").read_text().splitlines()[-1]
    schedule, epochs, threads = json.loads(request)
    assert schedule == benchmark.SCHEDULES[1].reference and epochs == 2 and threads >= 1
    code, out, _ = call("benchmark", "train", *options)
    assert code == 0 and "OmniSafe 0.5.0: 2,000 steps/s" in out and "ratio" in out


@pytest.mark.parametrize("words", [("nowhere/python",), ("no-such-program",), (".",)])
def test_a_missing_python_is_reported_at_once(call, words):
    code, out, err = call("benchmark", "train", "--reference-python", *words)
    assert code == 2 and not out
    assert f"--reference-python '{words[0]}' cannot be run" in " ".join(err.split())


def test_a_python_without_omnisafe_is_reported_at_once(call, tmp_path):
    python = python_that(tmp_path, "sys.exit(\"No module named 'omnisafe'\")\n")
    code, out, err = call("benchmark", "train", "--reference-python", python)
    assert code == 2 and not out
    assert "could not run OmniSafe: No module named 'omnisafe'" in " ".join(err.split())


def test_no_epochs_are_refused(call):
    code, _, err = call("benchmark", "train", "--epochs", "0")
    assert code == 2 and "epochs=0 must be at least 1" in err


@pytest.fixture
def config_of(call, monkeypatch):
    """The config that `surefoot train PointGoal …` would train with."""

    def config_of(*words):
        requests = []

        def train(task, algorithm, *_, **settings):
            kind = ALGORITHMS[algorithm].config
            names = [f.name for f in dataclasses.fields(kind)]
            requests.append((algorithm, kind(**{name: settings[name] for name in names})))
            raise ValueError("far enough")

        monkeypatch.setattr(runs, "train", train)
        code, out, err = call("train", "PointGoal", *words)
        assert code == 2 and "far enough" in err, out + err
        return requests[0]

    return config_of


@pytest.mark.parametrize("algorithm", ["mbppo-lagrangian", "ppo-lagrangian", "trpo-lagrangian"])
@pytest.mark.parametrize("kind", ["projected", "softplus", "pid"])
def test_the_multiplier_is_a_choice(config_of, algorithm, kind):
    chosen, config = config_of("--algorithm", algorithm, "--multiplier", kind)
    assert chosen == algorithm and config.multiplier.kind == kind
    preset = ALGORITHMS[algorithm].preset("default", TASKS["PointGoal"], "cpu").multiplier
    assert config.multiplier == dataclasses.replace(preset, kind=kind)


def test_the_multiplier_in_other_forms(config_of):
    _, config = config_of("--multiplier=pid", "--multiplier.initial", "0.2")
    assert config.multiplier.kind == "pid" and config.multiplier.initial == 0.2
    _, config = config_of("--multiplier.kind", "projected")
    assert config.multiplier.kind == "projected"


def test_an_unknown_multiplier_is_refused(call):
    code, out, err = call("train", "PointGoal", "--multiplier", "pdi")
    assert code == 2 and "projected" in out + err


@pytest.mark.parametrize("algorithm", ["trpo-lagrangian", "cpo"])
def test_train_by_name(algorithm, tmp_path):
    out = tmp_path / "run"
    field = algorithm.removesuffix("-lagrangian")
    learner = {"hidden": (8,), "critic_epochs": 1}
    changes = {field: learner, "steps": 80, "steps_per_epoch": 40}
    options = {"max_episode_steps": 20}
    runs.train("PointGoal", algorithm, out=out, task_options=options, quiet=True, **changes)
    info = json.loads((out / "config.json").read_text())
    assert info["algorithm"] == algorithm and info["config"][field]["delta"] == 0.01
    rows = RunFolder(out).read_metrics()
    assert [row["steps"] for row in rows] == [40, 80]
    assert all(0 <= row["kl"] <= 0.01 and 0 <= row["step_share"] <= 1 for row in rows)
