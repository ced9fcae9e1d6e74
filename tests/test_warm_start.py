"""Warm starts: what a run takes over from another one, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness import PER_EPOCH, TASK, TINY, came_to, differences, start
from surefoot.runs.checkpoint import newest_sound
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import read_info
from surefoot.runs.keeper import Keeper
from surefoot.runs.resume import resume
from surefoot.runs.setup import new_setup
from surefoot.runs.train import begin, train
from surefoot.runs.warm_start import choose_seeds, open_source, warm_start


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A finished run of MBPPO-Lagrangian with two seeds."""
    return start("mbppo-lagrangian", tmp_path_factory.mktemp("source") / "run", 2)


def begun(algorithm: str, seeds=(7, 8), task="PointGoal", **changes):
    """A new run's trainer."""
    config = replace(TINY[algorithm], **changes)
    setup = new_setup(task, algorithm, "default", "cpu", seeds, config, {"steps": 80}, TASK)
    return begin(setup).trainer


def arrays_of(run: Path) -> dict[str, np.ndarray]:
    return newest_sound(run / "checkpoints")[0].arrays


def test_equal_algorithms_take_everything(source):
    trainer, seen = begun("mbppo-lagrangian", seeds=(7, 8, 9)), open_source(source)
    seeds = choose_seeds(seen, 3, 1)
    record = warm_start(trainer, seen, seeds)
    assert record.taken == ["policy", "critics", "model", "multipliers", "data"]
    assert (record.seeds, record.left_out, record.data_steps) == ([1, 1, 1], {}, 2 * PER_EPOCH)
    old, learner = arrays_of(source), trainer.state.learner
    compared = {
        "learner/actor/network/weights/0": learner.actor.network.weights[0],
        "learner/actor/log_std": learner.actor.log_std,
        "learner/normalizer/mean": learner.normalizer.mean,
        "learner/critics/network/biases/0": learner.critics.network.biases[0],
        "learner/actor_moments/0/count": learner.actor_moments[0].count,
        "learner/multiplier/raw": learner.multiplier.raw,
        "ensemble/members/weights/0": trainer.state.ensemble.members.weights[0],
        "ensemble/elites": trainer.state.ensemble.elites,
        "ratio/real": trainer.state.ratio.real,
        "progress/updates": trainer.state.progress.updates,
    }
    for name, new in compared.items():
        expected = old[f"trainer/state/{name}"][1]
        assert all(np.array_equal(seed, expected) for seed in np.asarray(new)), name
    dataset = trainer.datasets["dataset"]
    rows = np.concatenate([old[f"trainer/dataset/{i}/inputs"] for i in range(2)], 1)
    assert dataset.count == 2 * PER_EPOCH
    np.testing.assert_array_equal(dataset.rows["inputs"][2, : dataset.count], rows[1])
    # Random numbers are the new run's own.
    fresh = begun("mbppo-lagrangian", seeds=(7, 8, 9))
    assert (trainer.state.key == fresh.state.key).all()


def test_policy_and_critics_go_from_one_algorithm_to_another(source):
    trainer = begun("ppo-lagrangian", observation="ego")
    record = warm_start(trainer, open_source(source), [0, 1])
    assert record.taken == ["policy", "critics"]
    missing = "state/learner/multiplier/memory/0/count is missing in that run and int32[] here"
    assert record.left_out == {"multipliers": missing}
    np.testing.assert_array_equal(
        trainer.policy().weights[0],
        RunFolder(source).read_policy().weights[0],
    )
    # CPO has no Adam for its policy and scales no observations.
    with pytest.raises(ValueError, match=r"normalizer/mean is float32\[21\] in that run and missi"):
        warm_start(begun("cpo", observation="ego"), open_source(source), [0, 1])


def test_other_seeds_limits_and_constraints(source):
    seen = open_source(source)
    assert choose_seeds(seen, 2, None) == [0, 1] and choose_seeds(seen, 3, 0) == [0, 0, 0]
    with pytest.raises(ValueError, match=r"seeds=3 must be 2, as many as .*run has, or pass from_"):
        choose_seeds(seen, 3, None)
    with pytest.raises(ValueError, match=r"from_seed=7 must be a seed of .*run: 0, 1"):
        choose_seeds(seen, 1, 7)
    free = replace(seen, info=replace(seen.info, config={**seen.info.config, "constrained": False}))
    record = warm_start(
        begun("mbppo-lagrangian", cost_limit=(5.0,), replay_share=0.0), free, [0, 1]
    )
    assert record.left_out == {"multipliers": "that run kept no limit"}


@pytest.mark.parametrize(
    ("algorithm", "changes", "parts", "problem"),
    [
        ("mbppo-lagrangian", {"ppo": replace(TINY["ppo"].ppo, hidden=(9,))}, None,
         "the policy cannot be taken: state/learner/actor/network/weights/0 is float32[21, 8] in "
         "that run and float32[21, 9] here"),
        ("mbppo-lagrangian", {"model": "paper"}, ["data"],
         "the data cannot be taken: dataset/0/inputs is float32[5] in that run and float32[44] "
         "here"),
        ("ppo-lagrangian", {"observation": "ego"}, ["policy", "model"],
         "the model cannot be taken: this algorithm has no model"),
        ("sac", {}, None, "the policy cannot be taken: state/learner/networks/actor/network/"
         "weights/0 is missing in that run and float32[26, 8] here"),
        ("ppo-lagrangian", {}, ["police"], "from_parts='police' is unknown (did you mean policy?)"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_array_that_does_not_fit(source, algorithm, changes, parts, problem):
    with pytest.raises(ValueError) as refusal:
        warm_start(begun(algorithm, **changes), open_source(source), [0, 1], parts)
    assert problem in str(refusal.value)


def test_the_off_policy_algorithms_take_their_replay_buffer(tmp_path):
    """The latest rows that fit. Random actions at the start are not repeated."""
    source = open_source(start("sac", tmp_path / "run", 2))
    trainer = begun("sac")
    assert warm_start(trainer, source, [0, 1]).data_steps == 2 * PER_EPOCH
    assert trainer.datasets["replay"].size == 80
    assert not trainer._updates.begins(0) and begun("sac")._updates.begins(0)
    small = begun("sac", replay=50)
    assert warm_start(small, source, [0, 1], ["data"]).data_steps == 50
    old = np.asarray(trainer.datasets["replay"].rows["obs"][:, 30:80])
    np.testing.assert_array_equal(small.datasets["replay"].rows["obs"], old)


class Crash(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "epoch"),
    [("ppo-lagrangian", 1), pytest.param("mbppo-lagrangian", 2, marks=pytest.mark.slow)],
)
def test_a_warm_started_run_resumes_exactly(source, algorithm, epoch, tmp_path, monkeypatch):
    """Also one that ended before its first checkpoint, if the other run still has its own."""
    options = {"from_run": source, "from_seed": 1}
    if algorithm == "ppo-lagrangian":
        options["observation"] = "ego"
    whole = came_to(start(algorithm, tmp_path / "whole", 2, **options))
    take = Keeper.take

    def crash(self, now, seconds):
        if now.number == epoch:
            raise Crash
        take(self, now, seconds)

    monkeypatch.setattr(Keeper, "take", crash)
    with pytest.raises(Crash):
        start(algorithm, tmp_path / "cut", 2, **options)
    monkeypatch.undo()
    record = read_info(RunFolder(tmp_path / "cut")).warm_start
    assert record.seeds == [1, 1] and record.run == str(source.resolve())
    if epoch == 1:
        gone = json.loads((tmp_path / "cut" / "config.json").read_text())
        changed = record.checkpoint[:-5] + "0.npz"
        gone = {**gone, "warm_start": {**gone["warm_start"], "checkpoint": changed}}
        del gone["checksum"]
        (tmp_path / "gone").mkdir()
        (tmp_path / "gone" / "config.json").write_text(json.dumps(gone))
        with pytest.raises(ValueError, match=r"no longer has epoch-000002.*, which the run was"):
            resume(tmp_path / "gone", quiet=True)
    assert differences(whole, came_to(resume(tmp_path / "cut", quiet=True))) == []


def test_from_the_command_line(source, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = (
        "train", "PointGoal", "--algorithm", "ppo-lagrangian", "--env", "max_episode_steps=20",
        "--steps", "40", "--steps-per-epoch", "40", "--observation", "ego", "--ppo.hidden", "8",
        "--seeds", "2", "--out", "new",
    )  # fmt: skip
    code, _, error = call(*words, "--from", str(source))
    assert code == 2 and "state/learner/normalizer/mean is float32[21] in that run" in error
    assert not Path("new").exists()
    code, _, error = call(*words, "--from-seed", "1")
    assert code == 2 and "from_parts and from_seed go with from_run" in error
    more = ("--ppo.normalise-observations", "--from", str(source))
    code, out, _ = call(*words, *more, "--from-parts", "policy")
    assert code == 0
    assert "PointGoal, mbppo-lagrangian, epoch 2, seed 0, 1): policy\n" in out.replace("\n  ", " ")
    assert "warm start from" in call("show", "new")[1]
    record = read_info(RunFolder(Path("new"))).warm_start
    assert record.taken == ["policy"] and record.left_out == {}


def test_a_stranger_s_run_executes_no_code(source, tmp_path):
    """The source's task and algorithm are never loaded."""
    code = tmp_path / "stranger.py"
    code.write_text("raise SystemExit('executed')")
    seen = open_source(source)
    info = replace(seen.info, algorithm=f"{code}:ALGORITHM", task=f"{code}:TASK")
    record = warm_start(begun("mbppo-lagrangian"), replace(seen, info=info), [0, 1])
    assert record.algorithm == f"{code}:ALGORITHM"
    with pytest.raises(ValueError, match="is not a checkpoint's name"):
        open_source(source, "../../config.json")
    with pytest.raises(ValueError, match="is not a run: there is no such folder"):
        train("PointGoal", from_run=tmp_path / "nowhere")


def test_data_of_a_model_that_knows_other_parts_are_not_taken(source):
    """Widths may be equal by chance, and then costs would be learned as rewards."""
    seen = open_source(source)
    trainer = begun("mbppo-lagrangian")
    record = warm_start(trainer, seen, [0, 1], known=["reward"])
    assert {"model", "data"} <= record.left_out.keys() and "policy" in record.taken
    assert "['reward']" in record.left_out["data"]
    with pytest.raises(ValueError, match="the data cannot be taken: its model knows"):
        warm_start(begun("mbppo-lagrangian"), seen, [0, 1], ["data"], ["reward"])
    same = warm_start(begun("mbppo-lagrangian"), seen, [0, 1], known=seen.info.known)
    assert {"model", "data"} <= set(same.taken)


@pytest.mark.parametrize("parts", [None, ["policy", "data"]])
def test_inherited_rows_count_once_in_the_scales(tmp_path, parts):
    """Scales that come with the data have counted it; those of a new learner have not."""
    run = start("sac-lagrangian", tmp_path / "run", 2)
    trainer, old = begun("sac-lagrangian", seeds=(7,)), arrays_of(run)
    record = warm_start(trainer, open_source(run), [0], parts)
    counted = 0 if parts else record.data_steps
    assert record.data_steps > 0 and trainer.state.counted.tolist() == [counted]
    assert int(old["trainer/state/counted"][0]) == record.data_steps
    rows = float(old["trainer/state/learner/rewards/count"][0])
    assert float(trainer.state.learner.rewards.count[0]) == (0 if parts else rows)


def test_a_careful_run_with_data_but_no_model_fits_one_at_once(source):
    """Its filter must not take inherited steps for steps that a model has been fitted to."""
    trainer = begun("mbppo-lagrangian", careful=True, real_share=0.0)
    record = warm_start(trainer, open_source(source), [0, 1], ["policy", "data"])
    assert record.data_steps > 0
    assert trainer._filter.fit_is_due(record.data_steps + 50)
