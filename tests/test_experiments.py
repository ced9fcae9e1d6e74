"""Experiments: what is trained, how it is run, and what the page shows."""

import json
import signal
import subprocess
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import harness
from harness import came_to, differences
from surefoot.algorithms.algorithm import BUILTIN as ALGORITHMS
from surefoot.core.config import changed, to_dict
from surefoot.envs.task import find_task
from surefoot.experiments import sections
from surefoot.experiments.experiment import BUILTIN, EXPERIMENTS, Experiment
from surefoot.experiments.job import Block, Job
from surefoot.paper.claims import Claim
from surefoot.paper.sections import Claims
from surefoot.paper.smoke import TINY, tiny
from surefoot.runs.checkpoint import newest_sound
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import RunInfo
from surefoot.runs.listing import describe_run
from surefoot.runs.loggers.csv import CsvLogger
from surefoot.runs.train import train

TASK = {"max_episode_steps": 20}
SMALL = {
    "cost_limit": (1.0,), "steps_per_epoch": 40, "ppo.hidden": (8,), "ppo.epochs": 2,
    "ppo.critic_epochs": 2, "ppo.minibatches": 2, "ppo.normalise_observations": True,
}  # fmt: skip
JOB = Job("PointGoal", "ppo", seeds=2, steps=80, changes=SMALL, task_options=TASK)


def write_run(
    path, job, seeds, finished=True, reward=1.0, cost=2.0, seconds=10.0, epochs=2, violations=1.0,
    **changes,
):  # fmt: skip
    """A run as training leaves it, of two epochs, with the same numbers for every seed."""
    config = changed(job.config("cpu"), changes)
    limits = find_task(job.task).cost_limits
    limit = config.cost_limit[0] if config.cost_limit else next(iter(limits.values()))
    folder = RunFolder(path)
    path.mkdir(parents=True)
    info = RunInfo(
        version="0.1.0", task=job.task, task_name=job.task, task_options=dict(job.task_options),
        algorithm=job.algorithm, preset=job.preset, seeds=list(seeds), device="cpu",
        backend="cpu", started="2026-01-01 00:00:00", started_at=1.0, config=to_dict(config),
        cost_limits={"cost": limit}, command="surefoot train",
    )  # fmt: skip
    folder.write_json("config.json", info.to_dict())
    for epoch in range(1, epochs + 1):
        CsvLogger(folder).append([
            {"seed": s, "epoch": epoch, "steps": epoch * config.steps // 2, "reward": reward,
             "cost": cost, "cost_limit": limit, "violations": 10 * epoch * violations + s,
             "seconds": seconds * epoch / 2}
            for s in seeds
        ])  # fmt: skip
    if finished:
        rows = [
            {"seed": s, "reward": reward + s, "cost": cost, "within_limit": 1.0, "cost_cvar": cost}
            for s in seeds
        ]
        means = {"reward": reward, "cost": cost, "within_limit": 1.0}
        evaluation = {"episodes": 50, **means, "seeds": rows}
        result = {"seconds": seconds, "real_steps": config.steps, "evaluation": evaluation}
        folder.write_json("result.json", result)
    return path


# Jobs


def test_a_job_changes_inner_fields_all_at_once():
    # Members below the preset's elites would be refused, one change at a time.
    job = Job("PointGoal", "mbppo-lagrangian", "paper",
              changes={"ensemble.members": 3, "ensemble.elites": 3, "rollouts": 12})  # fmt: skip
    config = job.config("cpu")
    assert (config.ensemble.members, config.ensemble.elites, config.rollouts) == (3, 3, 12)
    assert config.steps == 450_000
    assert replace(job, steps=7).config("cpu").steps == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ppo.hiden": (8,)}, r"PPOConfig has no field 'hiden' .*hidden"),
        ({"pp.hidden": (8,)}, "has no field 'pp'"),
    ],
)
def test_an_unknown_change_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        Job("PointGoal", "ppo", changes=changes).config("cpu")


def test_a_name_depends_on_settings_and_not_on_seeds():
    names = {
        JOB.name("cpu"), replace(JOB, seeds=5).name("cpu"), replace(JOB, note="x").name("cpu"),
    }  # fmt: skip
    assert len(names) == 1
    others = [replace(JOB, steps=120), replace(JOB, changes={}), replace(JOB, task_options={})]
    assert len({job.name("cpu") for job in others} | names) == 4
    recipe = Job("PointGoal", "mbppo-lagrangian")
    assert recipe.name("cpu") != recipe.name("gpu")  # other settings, so another run


def test_the_paper_sets_beta_to_the_job_of_its_own_sweep():
    base = Job("PointGoal", "mbppo-lagrangian", "paper")
    swept = Job("PointGoal", "mbppo-lagrangian", "paper", steps=450_000, changes={"beta": 0.02})
    assert base.name("gpu") == swept.name("gpu")


def test_a_block_is_a_command():
    block = Block(replace(JOB, changes={"ppo.scale_costs": True}), 3, 2, Path("out"))
    assert " ".join(block.command("cpu")) == (
        "train PointGoal --algorithm ppo --preset default --seeds 2 --seed 3 --device cpu "
        "--steps 80 --ppo.scale-costs --env max_episode_steps=20 --out out --quiet"
    )
    assert str(block) == "PointGoal, ppo (default), seeds 3 to 4"


def test_every_experiment_can_be_planned_on_any_device():
    for name in BUILTIN:
        experiment = EXPERIMENTS[name]
        assert experiment.name == name
        for device in ("cpu", "gpu"):
            for job in experiment.jobs:
                assert job.config(device).steps > 0
    smoke = EXPERIMENTS["smoke"].jobs
    assert {job.algorithm for job in smoke} == set(ALGORITHMS)
    assert {job.task for job in smoke} == {"PointGoal", "RCCar"} and len(smoke) % 2 == 0
    changes = tiny(Job("PointGoal", "mbppo-lagrangian").config("cpu"))
    assert changes["ensemble.hidden"] == TINY["hidden"] and changes["ppo.hidden"] == (8,)


def test_lengths_are_the_papers():
    steps = {
        (job.task, job.algorithm): job.config("gpu").steps
        for job in EXPERIMENTS["paper"].jobs
        if not job.alone and (job.preset == "paper" or "ppo-l" in job.algorithm[:5])
    }
    assert steps == {
        ("PointGoal", "ppo-lagrangian"): 2_000_000, ("CarGoal", "ppo-lagrangian"): 2_000_000,
        ("PointGoal", "mbppo-lagrangian"): 450_000, ("CarGoal", "mbppo-lagrangian"): 450_000,
        ("PointGoal", "safe-loop"): 450_000, ("CarGoal", "safe-loop"): 450_000,
        ("RCCar", "mbppo-lagrangian"): 150_000, ("RCCar", "safe-loop"): 150_000,
        ("DoggoGoalOpenAI", "mbppo-lagrangian"): 450_000, ("DoggoGoalOpenAI", "safe-loop"): 450_000,
        ("DoggoGoalOpenAI", "ppo-lagrangian"): 10_000_000,
    }  # fmt: skip


# From the command line


def experiment(*jobs, claims=()):
    parts = (partial(sections.curves, title="Curves", jobs=jobs, text="Few steps."),)
    return Experiment("try", "A try", "Nothing is learned.", jobs, (*claims, *parts))


def register(value):
    """Register an experiment under the name try."""
    EXPERIMENTS.register("try", value, replace=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("pointgaol",), "experiment='pointgaol' is unknown (did you mean pointgoal?)"),
        (("smoke", "--seeds", "0"), "seeds=0 must be at least 1"),
        (("smoke", "--jobs", "0"), "jobs=0 must be at least 1"),
        (("nowhere.py:EXPERIMENT",), "nowhere.py cannot be imported"),
        (("surefoot.core.config:LARGEST_INT",), "experiment='surefoot.core.config:LARGEST_INT'"),
        (("smoke", "--ray-address", "auto"), "ray_address='auto' needs on='ray'"),
        (("smoke", "--runs", "nowhere"), "runs=nowhere is neither a run nor a folder with runs"),
        (("smoke", "--report-only"), "experiment='smoke' has no run to report yet"),
    ],
)
def test_a_mistake_is_named(call, tmp_path, words, message):
    code, _, err = call("reproduce", *words, "--out", str(tmp_path / "out"))
    assert code == 2 and message in err


def test_list_shows_experiments_and_how_much_is_done(call, tmp_path):
    register(experiment(JOB))
    write_run(tmp_path / "out" / "trained" / "run", JOB, [0])
    words = ("--out", str(tmp_path / "out"), "--device", "cpu")
    code, text, _ = call("reproduce", "LIST", *words)
    assert code == 0 and "try  A try (1 of 2 seeds done)" in text
    assert "1 of 2  PointGoal, ppo (default), 80 real steps" in text
    code, text, _ = call("reproduce", "list", "--json", *words)
    row = next(row for row in json.loads(text) if row["name"] == "try")
    assert row["jobs"][0] | {"note": ""} == {
        "task": "PointGoal", "algorithm": "ppo", "preset": "default", "note": "", "steps": 80,
        "seeds": 2, "done": 1,
    }  # fmt: skip


def test_a_report_of_runs_from_elsewhere_trains_nothing(call, tmp_path):
    other = replace(JOB, algorithm="ppo-lagrangian")
    claims = Claims((Claim("one earns more", "reward", "above", (JOB, other)),))
    register(experiment(JOB, other, claims=(claims,)))
    write_run(tmp_path / "runs" / "a", JOB, [0, 1], reward=4.0)  # 4 and 5 on fresh episodes
    write_run(tmp_path / "runs" / "b", other, [0], reward=3.0)
    write_run(tmp_path / "runs" / "c", other, [1], **{"ppo.clip": 0.3})
    write_run(tmp_path / "runs" / "d", JOB, [2], steps=120)
    out = tmp_path / "out"
    code, text, _ = call(
        "reproduce", "try", "--runs", str(tmp_path / "runs"), "--report-only", "--out", str(out),
        "--device", "cpu",
    )  # fmt: skip
    assert code == 0
    assert f"used: {tmp_path / 'runs' / 'a'} (PointGoal, ppo, 2 seeds)" in text
    assert "2 runs not used" in text
    assert not (out / "trained").exists()
    page = (out / "try" / "index.html").read_text()
    assert "Not complete: see “Missing runs”." in page
    row = ("PointGoal ppo-lagrangian (default)", "1 of 2", "-")
    assert all(f">{cell}</td>" in page for cell in row)
    assert "<code>surefoot reproduce try --device cpu</code>" in page
    assert ">undecided<" in page and "4.5 against 3 (" in page
    assert "Of 1: 1 undecided." in page
    assert {p.name for p in (out / "try").glob("*.png")} == {
        "curves-reward.png", "curves-cost.png",
    }  # fmt: skip


def test_an_unfinished_run_is_shown_as_such(call, tmp_path):
    other = replace(JOB, algorithm="ppo-lagrangian")
    register(experiment(JOB, other, replace(JOB, note="again")))
    write_run(tmp_path / "runs" / "a", JOB, [0], reward=4.0)
    write_run(tmp_path / "runs" / "b", JOB, [1], finished=False)  # there is a finished one
    path = write_run(tmp_path / "runs" / "c", other, [0, 1], finished=False)
    folder = RunFolder(path)
    rows = folder.read_metrics()
    (path / "metrics.csv").unlink()
    CsvLogger(folder).append(rows[:2])
    words = ("--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--device", "cpu")
    code, text, _ = call("reproduce", "try", "--report-only", *words)
    assert code == 0
    assert f"partial: {path} (PointGoal, ppo-lagrangian, 2 seeds), 40 of 80 real steps" in text
    page = (tmp_path / "out" / "try" / "index.html").read_text()
    assert ">PPO-Lagrangian (unfinished)</td>" in page and page.count(">40 of 80</td>") == 2
    assert page.count(">PPO</td>") == 1
    assert ">PPO (again)</td>" not in page, "the same runs under another name"
    # It counts as missing: the list says so, and the same job counts once.
    code, text, _ = call("reproduce", "list", *words)
    assert "try  A try (1 of 4 seeds done)" in text
    (path / "metrics.csv").unlink()  # before the first epoch
    code, text, _ = call("reproduce", "try", "--report-only", *words)
    assert code == 0
    page = (tmp_path / "out" / "try" / "index.html").read_text()
    assert "PPO-Lagrangian (unfinished)" not in page


def test_missing_runs_are_trained_once_and_a_failure_is_reported(call, tmp_path):
    bad = replace(JOB, task_options={"hazards": -1}, note="bad")
    register(experiment(JOB, bad))
    out = tmp_path / "out"
    words = ("reproduce", "try", "--out", str(out), "--device", "cpu", "--jobs", "2")
    code, text, _ = call(*words)
    assert code == 1
    assert "finished: PointGoal, ppo (default), seeds 0 to 1" in text
    assert "failed: PointGoal, ppo (default, bad), seeds 0 to 1: surefoot train: hazards=-1" in text
    assert "1 done, 0 running, 0 waiting, 1 failed" in text
    page = (out / "try" / "index.html").read_text()
    assert "Failed: PointGoal, ppo (default, bad)" in page
    (run,) = (p for p in (out / "trained").iterdir() if describe_run(p).state == "finished")
    command = RunFolder(run).read_json("config.json")["command"]
    assert command.startswith("surefoot train PointGoal --algorithm ppo")
    # The same as `train` would give, and not trained again by another experiment.
    same = train(
        "PointGoal", "ppo", config=JOB.config("cpu"), seeds=2, out=tmp_path / "same",
        task_options=TASK, quiet=True,
    )  # fmt: skip
    assert not differences(came_to(run), came_to(same))
    before = (run / "result.json").stat().st_mtime_ns
    register(experiment(JOB))
    code, text, _ = call(*words)
    assert code == 0 and f"used: {run}" in text and "training" not in text
    assert (run / "result.json").stat().st_mtime_ns == before


EXPERIMENT_FILE = """
from surefoot.experiments.experiment import Experiment
from surefoot.experiments.job import Job

JOBS = {jobs}
EXPERIMENT = Experiment("mine", "My jobs", "As a user writes it.", JOBS)
"""


def write_experiment(path, *jobs):
    """A file of a user with an experiment of these jobs; its reference."""
    path.write_text(EXPERIMENT_FILE.format(jobs=f"({', '.join(map(repr, jobs))},)"))
    return f"{path}:EXPERIMENT"


def test_a_users_jobs_are_trained_and_reported(call, tmp_path):
    """The file defines no sections: the page shows figures for each task."""
    other = replace(JOB, algorithm="ppo-lagrangian", note="other")
    reference = write_experiment(tmp_path / "my_jobs.py", JOB, other)
    write_run(tmp_path / "runs" / "a", JOB, [0, 1])
    write_run(tmp_path / "runs" / "b", other, [0, 1])
    code, text, err = call(
        "reproduce", reference, "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"),
        "--device", "cpu",
    )  # fmt: skip
    assert code == 0, err
    page = tmp_path / "out" / "mine" / "index.html"
    assert f"page: {page}" in text and "PPO-Lagrangian (other)" in page.read_text()
    names = {path.stem for path in page.parent.glob("*.png")}
    assert {"pointgoal-max-episode-steps-20-reward", "normalised-reward"} <= names


LONG = replace(JOB, steps=40 * 200)


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_resumes(tmp_path):
    out = tmp_path / "out"
    reference = write_experiment(tmp_path / "my_jobs.py", LONG)
    words = ("-m", "surefoot", "reproduce", reference, "--device", "cpu", "--out", str(out))
    begun = lambda: [
        path for path in out.glob("trained/*/metrics.csv") if path.stat().st_size > 999
    ]
    with harness.child(*words, stderr=subprocess.PIPE) as child:
        while not begun():
            assert child.poll() is None, child.communicate()
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=60)
    assert child.returncode == 130 and "stopped and saved" in errors
    assert "every training saves a checkpoint" in output
    (run,) = (out / "trained").iterdir()
    assert describe_run(run).state == "stopped"
    epoch = newest_sound(run / "checkpoints")[0].meta["epoch"]
    with harness.child(*words, stderr=subprocess.PIPE) as child:
        output, errors = child.communicate(timeout=120)
    assert child.returncode == 0 and "resuming: PointGoal, ppo" in output, errors
    assert f"from epoch {epoch}" in (run / "log.txt").read_text()
    never = train(
        "PointGoal", "ppo", config=LONG.config("cpu"), seeds=2, out=tmp_path / "never",
        task_options=TASK, quiet=True,
    )  # fmt: skip
    assert not differences(came_to(run), came_to(never))
