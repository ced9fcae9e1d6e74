"""A task, an algorithm and a logger, each in one file, used from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

import surefoot
from surefoot.envs.task import TASKS, Task, find_task

FOLDER = Path(__file__).parent / "extensions"
TASK, ALGORITHM, LOGGER = (
    f"{FOLDER / name}"
    for name in ("toy_task.py:TASK", "toy_algorithm.py:ALGORITHM", "toy_logger.py:ToyLogger")
)
TINY = {
    "steps": 240, "rollouts": 12, "passes": 2, "ensemble.members": 3, "ensemble.elites": 3,
    "ensemble.hidden": 8, "ensemble.max-steps": 20, "ppo.hidden": 8, "ppo.minibatches": 2,
}  # fmt: skip
SMALL = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]


@pytest.fixture
def run(call, tmp_path):
    """A run of the toy task by MBPPO-Lagrangian, with the toy logger."""
    folder = tmp_path / "mbppo"
    words = ["train", TASK, "--out", str(folder), "--loggers", LOGGER, *SMALL]
    code, _, err = call(*words, "--cost-limit", "wall=3", "edge=1")
    assert code == 0, err
    return folder


def test_a_task_in_one_file_goes_through_all_commands(call, run, tmp_path):
    info = json.loads((run / "config.json").read_text())
    assert info["task"] == TASK and info["task_name"] == "Line"
    assert info["cost_limits"] == {"wall": 3.0, "edge": 1.0}
    assert "reward" in info["known"] and info["config"]["model"] == "ego"
    code, out, _ = call("resume", str(run), "--steps", "360", "--quiet")
    assert code == 0 and "360 real steps" in out
    code, out, _ = call("evaluate", str(run), "--episodes", "3", "--json")
    assert code == 0 and set(json.loads(out)) >= {"reward", "cost", "within_limit", "cost_cvar"}
    clip = tmp_path / "clip.gif"
    assert call("watch", str(run), "--out", str(clip), "--size", "64", "--steps", "4")[0] == 0
    assert clip.stat().st_size > 0
    assert call("watch", TASK, "--out", str(clip), "--size", "64", "--steps", "4")[0] == 0
    page = tmp_path / "page"
    code, out, err = call("compare", str(run), "--out", str(page))
    assert code == 0 and "Line" in out, err
    code, out, err = call("diagnose", str(run), "--episodes", "2", "--horizon", "5")
    assert code == 0 and "displacement" in out, err


def test_metrics_of_every_constraint_have_its_name(run):
    rows = (run / "metrics.csv").read_text().splitlines()
    columns = rows[0].split(",")
    for name in ("wall", "edge"):
        for kind in ("cost", "cost_limit", "lambda", "imagined_cost"):
            assert f"{kind}_{name}" in columns
    first = dict(zip(columns, map(float, rows[1].split(",")), strict=True))
    assert (first["cost_limit_wall"], first["cost_limit_edge"]) == (3.0, 1.0)


def test_an_algorithm_in_one_file_goes_through_all_commands(call, tmp_path):
    folder = tmp_path / "reinforce"
    words = ["train", TASK, "--algorithm", ALGORITHM, "--out", str(folder), "--quiet"]
    code, out, err = call(*words, "--steps", "120", "--steps-per-epoch", "60")
    assert code == 0, err
    assert json.loads((folder / "config.json").read_text())["algorithm"] == ALGORITHM
    assert call("resume", str(folder), "--steps", "180", "--quiet")[0] == 0
    assert call("evaluate", str(folder), "--episodes", "3")[0] == 0
    clip = tmp_path / "clip.gif"
    assert call("watch", str(folder), "--out", str(clip), "--size", "64", "--steps", "4")[0] == 0
    code, out, _ = call("compare", str(folder), "--out", str(tmp_path / "page"))
    assert code == 0 and "REINFORCE-Lagrangian" in out


def test_a_logger_in_one_file_receives_every_epoch(call, run):
    epochs = [
        json.loads(line)["epoch"] for line in (run / "rewards.jsonl").read_text().splitlines()
    ]
    assert epochs == [1, 2]
    assert call("resume", str(run), "--steps", "360", "--quiet")[0] == 0
    lines = (run / "rewards.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3]


def test_a_registered_task_is_found_by_its_name():
    line = find_task(TASK)
    surefoot.register_task(Task("Registered", "", line.make_envs, line.options))
    try:
        assert surefoot.make("Registered", num_envs=2, wall=0.5).config.wall == 0.5
        with pytest.raises(ValueError, match="Registered"):
            surefoot.register_task(Task("Registered", "", line.make_envs))
    finally:
        del TASKS._values["Registered"]


def test_the_toy_model_equals_the_toy_environment():
    """The known parts, held against real steps."""
    env = surefoot.make(TASK, num_envs=3, seed=0)
    model = find_task(TASK).models["ego"](env)
    env.reset()
    rng = np.random.default_rng(0)
    for _ in range(20):
        before = model.record(env.state())
        _, reward, _, _, info = env.step(rng.uniform(-1, 1, (3, 1)))
        after = model.record(env.outcome)
        for i in range(3):
            _, r, c, _ = model.advance(before[i], None, after[i] - before[i], None, None)
            np.testing.assert_allclose(r, reward[i], atol=1e-6)
            np.testing.assert_array_equal(c, info["cost"][i])
