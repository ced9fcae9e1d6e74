"""`surefoot diagnose` on runs: what it prints and draws, and what it refuses."""

import json

import numpy as np
import pytest

import surefoot
from harness import TASK, TINY
from surefoot.envs.gym.adapters import adapt
from surefoot.runs.checkpoint import list_checkpoints
from surefoot.runs.train import task_model
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
    run = untrained_run(tmp_path / "run", env, task, model_name, task_options=options)
    code, out, err = call("diagnose", str(run), "--episodes=2", "--horizon=6", "--json")
    assert code == 0 and not err
    found = json.loads(out)
    know = task_model(env, model_name)
    assert [row["seed"] for row in found["seeds"]] == [3, 4]
    assert found["horizon"] == 6 and found["steps"] == [1, 2, 5, 6]
    assert len(found["outputs"]) == know.target_size == len(found["one_step"]["rmse"])
    assert len(found["binary_outputs"]) == know.binary_size == len(found["binary"]["loss"])
    for one in [found, *found["seeds"]]:
        assert np.shape(one["rollouts"]["feature_errors"]) == (4, know.feature_size)
        assert all(0 <= share <= 1 for share in one["one_step"]["coverage_90"])
    for part, name in (("one_step", "rmse"), ("rollouts", "error"), ("costs", "imagined")):
        by_seed = [row[part][name] for row in found["seeds"]]
        np.testing.assert_allclose(found[part][name], np.mean(by_seed, 0), rtol=1e-6)
    assert (run / "diagnosis.png").stat().st_size > 10_000


def test_diagnose_prints_every_output_and_seed(tmp_path, call):
    run = untrained_run(tmp_path / "run", surefoot.make("RCCar", **TASK), "RCCar", "ego")
    code, out, _ = call("diagnose", str(run), "--episodes=1")
    assert code == 0
    lines = out.splitlines()
    for name in ("velocity x", "velocity y", "yaw rate", "forward", "left", "turn"):
        (line,) = [line for line in lines if line.startswith(name + " ")]
        assert line.count("%") == 4
    (steps,) = [line for line in lines if line.startswith("after steps")]
    assert steps.split()[2:] == ["1", "2", "5"]  # the run's own horizon is 5
    for seed in ("seed 3", "seed 4", "seed all"):
        assert sum(line.startswith(seed) for line in lines) == 2
    assert f"figure: {run / 'diagnosis.png'}" in out
    assert call("diagnose", str(run), "--episodes=1")[1] == out  # the same episodes every time


@pytest.mark.slow
def test_diagnose_a_run_that_was_trained(tmp_path):
    run = surefoot.train(
        "PointGoal", config=TINY["mbppo-lagrangian"], out=tmp_path / "run", seeds=2, quiet=True,
        steps=80, task_options=TASK,
    )  # fmt: skip
    found = surefoot.diagnose(run, episodes=2)
    assert found["epoch"] == 2 and found["real_steps"] == 80 and len(found["seeds"]) == 2
    assert found["known"][0] == "initial states"


def test_environments_of_your_own(tmp_path, call):
    make_env = lambda n: adapt(Drift, cost="cost", num_envs=n)
    run = untrained_run(tmp_path / "run", make_env(1), None)
    found = surefoot.diagnose(run, episodes=2, make_env=make_env)
    assert found["outputs"] == ["observation 0", "reward", "cost"]
    assert found["binary_outputs"] == ["end"] and found["binary"]["real_rate"] == [0.0]
    code, _, err = call("diagnose", str(run))
    assert code == 2 and "from Python" in err and "make_env=..." in err
    told = lambda env: BlackBox(1, cost_fn=lambda s, a, t: a)
    with pytest.raises(ValueError, match=r"was told \[\], not \['cost'\]"):
        surefoot.diagnose(run, make_env=make_env, knowledge=told)


@pytest.mark.slow
def test_environments_of_your_own_with_choices(tmp_path):
    choices = lambda n: adapt(TwoState, cost="cost", num_envs=n)
    run = untrained_run(tmp_path / "choices", choices(1), None)
    assert surefoot.diagnose(run, episodes=2, make_env=choices)["steps"] == [1, 2, 5]


def test_what_cannot_be_diagnosed_says_why(tmp_path, call):
    code, _, err = call("diagnose", str(tmp_path / "nowhere"))
    assert code == 2 and "there is no such folder" in err
    (tmp_path / "empty").mkdir()
    code, _, err = call("diagnose", str(tmp_path / "empty"))
    assert code == 2 and "no checkpoint that can be read: there is none" in err
    env = surefoot.make("RCCar", **TASK)
    free = untrained_run(tmp_path / "free", env, "RCCar", "ego", algorithm="cpo")
    code, _, err = call("diagnose", str(free))
    assert code == 2 and "has no model to diagnose" in err and "cpo" in err
    run = untrained_run(tmp_path / "run", env, "RCCar", "ego")
    with pytest.raises(ValueError, match="trained on the task RCCar"):
        surefoot.diagnose(run, make_env=lambda n: env)
    for words in (("--episodes=0",), ("--horizon=0",), ("--horizon=21",), ("--seed=-1",)):
        code, _, err = call("diagnose", str(run), *words)
        assert code == 2 and words[0][2:] in err
    (path,) = list_checkpoints(run / "checkpoints")
    path.write_bytes(path.read_bytes()[:-1])
    code, _, err = call("diagnose", str(run))
    assert code == 2 and "is damaged" in err
    odd = untrained_run(tmp_path / "odd", env, "RCCar", "ego", seeds="three")
    code, _, err = call("diagnose", str(odd))
    assert code == 2 and "seeds='three' must be a list of whole numbers" in err
