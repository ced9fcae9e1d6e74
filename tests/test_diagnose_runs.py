"""`surefoot diagnose` on runs: what it prints and draws, and what it refuses."""

import json

import numpy as np
import pytest

import surefoot
from harness import TASK, TINY
from surefoot.envs.gym.adapters import adapt
from surefoot.envs.task import TASKS
from surefoot.runs.checkpoint import list_checkpoints
from surefoot.world.black_box import BlackBox
from toys import Drift, TwoState
from untrained import untrained_run


@pytest.mark.parametrize(
    ("task", "model_name"),
    [
        ("PointGoal", "paper"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("PointGoal", "ego"), ("PointGoal", "black-box"), ("RCCar", "ego"))
        ),
    ],
)
def test_diagnose_as_a_user_types_it(task, model_name, tmp_path, call):
    options = TASK if task == "RCCar" else {**TASK, "observation": model_name, "hazards": 3}
    if model_name == "black-box":
        options["observation"] = "reference"
    env = surefoot.make(task, **options)
    run = untrained_run(tmp_path / "run", task, model_name, options=options)
    code, out, err = call("diagnose", str(run), "--episodes=2", "--horizon=6", "--json")
    assert code == 0 and not err
    result = json.loads(out)
    if model_name == "black-box":
        model = BlackBox(env.single_observation_space.shape[0], env.cost_names)
    else:
        model = TASKS[task].models[model_name](env)
    assert [row["seed"] for row in result["seeds"]] == [3, 4]
    assert result["horizon"] == 6 and result["steps"] == [1, 2, 5, 6]
    assert len(result["outputs"]) == model.target_size == len(result["one_step"]["rmse"])
    assert len(result["binary_outputs"]) == model.binary_size == len(result["binary"]["loss"])
    for one in [result, *result["seeds"]]:
        assert np.shape(one["rollouts"]["feature_errors"]) == (4, model.feature_size)
        shares = np.array(one["one_step"]["coverage_90"], float)
        # Only the amount of a cost may have nothing to compare with.
        compared = shares[:-1] if model_name == "black-box" else shares
        assert ((compared >= 0) & (compared <= 1)).all()
    for part, name in (("one_step", "rmse"), ("rollouts", "error"), ("costs", "imagined")):
        by_seed = np.array([row[part][name] for row in result["seeds"]], float)
        mean = np.ma.masked_invalid(by_seed).mean(0).filled(np.nan)
        np.testing.assert_allclose(np.array(result[part][name], float), mean, rtol=1e-6)
    assert (run / "diagnosis.png").stat().st_size > 10_000


def test_diagnose_prints_every_output_and_seed(tmp_path, call):
    run = untrained_run(tmp_path / "run", "RCCar", "ego")
    code, out, _ = call("diagnose", str(run), "--episodes=1")
    assert code == 0
    lines = out.splitlines()
    for name in ("velocity x", "velocity y", "yaw rate", "forward", "left", "turn"):
        (line,) = [line for line in lines if line.startswith(name + " ")]
        assert line.count("%") == 4
    (steps,) = [line for line in lines if line.startswith("after steps")]
    assert steps.split()[2:] == ["1", "2", "5"]  # the run's horizon is 5
    for seed in ("seed 3", "seed 4", "seed mean"):
        assert sum(line.startswith(seed) for line in lines) == 2
    assert f"figure: {run / 'diagnosis.png'}" in out
    assert call("diagnose", str(run), "--episodes=1")[1] == out  # the same episodes every time


@pytest.mark.slow
def test_diagnose_a_run_that_was_trained(tmp_path):
    run = surefoot.train(
        "PointGoal", config=TINY["mbppo-lagrangian"], out=tmp_path / "run", seeds=2, quiet=True,
        steps=80, task_options=TASK,
    )  # fmt: skip
    result = surefoot.diagnose(run, episodes=2)
    assert result["epoch"] == 2 and result["real_steps"] == 80 and len(result["seeds"]) == 2
    assert result["known"][0] == "initial states"


def test_a_users_environment(tmp_path, call):
    make_env = lambda n: adapt(Drift, cost="cost", num_envs=n)
    run = untrained_run(tmp_path / "run", make_env)
    result = surefoot.diagnose(run, episodes=2, make_env=make_env)
    assert result["outputs"] == ["observation 0", "reward", "reward at the end", "cost"]
    assert result["binary_outputs"] == ["any cost", "end"]
    chance, end = result["binary"]["real_rate"]
    assert chance > 0.9 and end == 0.0
    code, _, err = call("diagnose", str(run))
    assert code == 2 and "Python function" in err and "make_env" in err
    known = lambda env: BlackBox(1, cost_fn=lambda s, a, t: a)
    with pytest.raises(ValueError, match=r"knows \[\], not \['cost'\]"):
        surefoot.diagnose(run, make_env=make_env, known=known)


def test_a_cost_that_does_not_occur(tmp_path, call):
    """Its amount cannot be compared; its probability can."""
    options = {**TASK, "observation": "ego", "hazards": 1}
    run = untrained_run(tmp_path / "run", "PointGoal", "black-box", options=options)
    code, out, _ = call("diagnose", str(run), "--episodes=1")
    assert code == 0
    (amount,) = [line for line in out.splitlines() if line.startswith("hazards ")]
    assert amount.split()[1:] == ["-"] * 7
    (chance,) = [line for line in out.splitlines() if line.startswith("any hazards ")]
    assert "real 0.00%" in chance


@pytest.mark.slow
def test_a_users_environment_with_discrete_actions(tmp_path):
    choices = lambda n: adapt(TwoState, cost="cost", num_envs=n)
    run = untrained_run(tmp_path / "choices", choices)
    assert surefoot.diagnose(run, episodes=2, make_env=choices)["steps"] == [1, 2, 5]


def test_what_cannot_be_diagnosed_is_explained(tmp_path, call):
    code, _, err = call("diagnose", str(tmp_path / "nowhere"))
    assert code == 2 and "there is no such folder" in err
    (tmp_path / "empty").mkdir()
    code, _, err = call("diagnose", str(tmp_path / "empty"))
    assert code == 2 and "no checkpoint that can be read: there is none" in err
    env = surefoot.make("RCCar", **TASK)
    free = untrained_run(tmp_path / "free", "RCCar", algorithm="cpo")
    code, _, err = call("diagnose", str(free))
    assert code == 2 and "has no model to diagnose" in err and "CPO" in err
    run = untrained_run(tmp_path / "run", "RCCar", "ego")
    with pytest.raises(ValueError, match="trained on the task RCCar"):
        surefoot.diagnose(run, make_env=lambda n: env)
    for words in (("--episodes=0",), ("--horizon=0",), ("--horizon=21",), ("--seed=-1",)):
        code, _, err = call("diagnose", str(run), *words)
        assert code == 2 and words[0][2:] in err
    (path,) = list_checkpoints(run / "checkpoints")
    path.write_bytes(path.read_bytes()[:-1])
    code, _, err = call("diagnose", str(run))
    assert code == 2 and "is damaged" in err
    odd = untrained_run(tmp_path / "odd", "RCCar", "ego", seeds="three")
    code, _, err = call("diagnose", str(odd))
    assert code == 2 and "seeds='three' must be a list of whole numbers" in err
