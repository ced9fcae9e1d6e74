"""Bad input of every kind: an error that names it, and never a traceback."""

import json
import shutil
import zipfile

import numpy as np
import pytest

from harness import TINY, nothing_more, start
from surefoot import cli
from surefoot.algorithms.collect import Collector
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.api import learning_curve
from surefoot.core.policy import Policy
from surefoot.core.spaces import action_spec
from surefoot.envs.gym.adapters import EnvironmentFault
from surefoot.envs.task import make
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.runs import checkpoint as checkpoints
from surefoot.runs.checkpoint import Checkpoint, newest_sound, read_checkpoint, write_checkpoint
from surefoot.runs.folder import RunFolder
from surefoot.runs.listing import describe_run, show_run
from surefoot.runs.loggers.csv import CsvLogger
from surefoot.runs.resume import backend_of, resume
from surefoot.runs.train import train
from surefoot.use.evaluate import evaluate


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two epochs, which must not be changed."""
    return start("ppo-lagrangian", tmp_path_factory.mktemp("input") / "run", 2)


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "run")


@pytest.mark.parametrize("value", ["0", "-1", str(10**12), str(10**30), "nan", "x", ""])
def test_no_option_of_a_run_takes_any_value(value, run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "surefoot.envs.render.film.save_clip", lambda frames, *_, **__: next(frames)
    )
    for words in (
        "watch run --steps 1 --size", "watch RCCar --steps 1 --every", "watch run --which",
        "evaluate run --episodes 1 --seed", "export run p.npz --which", "export run",
        "benchmark env --tasks PointGoal --threads", "diagnose run --horizon",
    ):  # fmt: skip
        monkeypatch.setattr("surefoot.benchmark.env.fastest", nothing_more)
        with pytest.raises(SystemExit) as end:
            cli.main([*words.split(), value])
        assert end.value.code in (0, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"algorithm": "ppo", "constrained": True},
            "constrained=True contradicts algorithm='ppo'.* ppo-lagrangian",
        ),
        (
            {"algorithm": "cpo", "config": PPOLagrangianConfig()},
            "algorithm='cpo' contradicts config=PPOLagrangianConfig, .* ppo-lagrangian",
        ),
        (
            {"algorithm": "ppo", "multiplier": MultiplierConfig(kind="pid")},
            "multiplier.kind='pid' contradicts algorithm='ppo', .*did you mean ppo-lagrangian",
        ),
        (
            {"algorithm": "cpo", "observation": "refrence"},
            "observation='refrence' .*did you mean reference.* reference, paper, ego",
        ),
        (
            {"algorithm": "cpo", "task_options": {"observation": "ego"}},
            "option observation='ego' contradicts observation='paper'",
        ),
        (
            {"model": "ego", "task_options": {"observation": "paper"}},
            "option observation='paper' contradicts model='ego'",
        ),
        (
            {"task_options": {"action_repeat": 5}},
            "action_repeat=5 contradicts model='ego'.* model='black-box'",
        ),
        (
            {"algorithm": "safe-loop", "task_options": {"action_repeat": 5}},
            "action_repeat=5 contradicts .* model='black-box' or planner.hold",
        ),
        ({"task_options": {"num_envs": 2}}, "num_envs=2 is not an option of a task"),
        ({"algorithm": "cpo", "preset": "paper"}, "preset='paper'"),
        ({"cost": "info:cost"}, "cost='info:cost'.* PointGoal"),
        ({"task_options": {"hazards": -1}}, "hazards=-1"),
    ],
)
def test_contradictions_are_explained_before_a_folder_exists(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train("PointGoal", out=tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


def test_options_that_agree_are_accepted(tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "new", staticmethod(nothing_more))
    for arguments in (
        {"algorithm": "cpo", "task_options": {"observation": "paper"}},
        {"model": "black-box", "task_options": {"observation": "reference"}},
        {"config": TINY["ppo"]},
        {"algorithm": "cpo", "observation": "reference"},
    ):
        with pytest.raises(ValueError, match="far enough"):
            train("PointGoal", **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "version.* is missing"),
        ({"version": None}, "version=None"),
        ({"seeds": []}, r"seeds=\[\]"),
        ({"seeds": ["a"]}, r"seeds=\['a'\]"),
        ({"config": {}}, "config.steps=None"),
        ({"config": 3}, "config=3"),
        ({"task_options": []}, r"task_options=\[\]"),
        ({"task": 7}, "task=7"),
        ({"keep": 0}, "keep=0"),
        ({"loggers": "tensorboard"}, "loggers='tensorboard'"),
        ({"format": 99}, "format=99"),
        ({"format": "two"}, "format='two'"),
    ],
)
def test_an_edited_config_is_detected_by_every_command(change, message, run, tmp_path, capsys):
    """Without a checksum, as in the first versions."""
    info = RunFolder(run).read_json("config.json")
    (run / "config.json").write_text(json.dumps({"a": 1} if change is None else {**info, **change}))
    shutil.rmtree(run / "checkpoints")
    for words in (
        ("show", run), ("resume", run), ("evaluate", run), ("watch", run), ("export", run),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as end:
            cli.main([str(word) for word in words])
        output = " ".join("".join(capsys.readouterr()).split())
        assert end.value.code == (1 if words[0] == "show" else 2)
        assert "config.json is damaged" in output
    with pytest.raises(ValueError, match=message):
        resume(run)
    assert describe_run(run).state == "damaged"


def test_an_edited_config_is_restored_from_the_checkpoint(run):
    expected = RunFolder(run).read_json("config.json")
    (run / "config.json").write_text('{"a": 1}')
    resume(run, quiet=True)
    assert RunFolder(run).read_json("config.json") == expected


def test_runs_of_the_first_versions_can_be_shown(run):
    info = RunFolder(run).read_json("config.json")
    for name in (
        "format", "task_name", "cost_limits", "restarts", "loggers", "known", "checkpoint_every",
        "keep", "started_at", "backend",
    ):  # fmt: skip
        del info[name]
    info["config"]["cost_limit"] = 1.0
    (run / "config.json").write_text(json.dumps(info))
    shown = show_run(run)
    assert shown.problems == [] and shown.config["keep"] == 2
    assert shown.cost_limit == 1.0 and shown.task == "PointGoal"
    assert backend_of(run) == "auto"


def test_an_incomplete_result_is_detected(run):
    (run / "result.json").write_text('{"evaluation": {"reward": 1.0}, "real_steps": 80}')
    assert "result.json is damaged: episodes is missing" in show_run(run).problems[0]
    resume(run, quiet=True)
    assert show_run(run).state == "finished"


@pytest.mark.parametrize("header", ["3", "[]", "{}", '{"format": 1}', "null"])
def test_a_policy_with_an_odd_header_is_refused(header, tmp_path):
    path = tmp_path / "policy.npz"
    np.savez(path, header=np.array(header), low=np.zeros(1))
    with pytest.raises(ValueError, match=r"damaged|not a policy: it has no high"):
        Policy.load(path)


def test_a_policy_of_other_seeds_is_refused(run):
    RunFolder(run).read_policy().seed(0).save(run / "policy.npz")
    with pytest.raises(ValueError, match=r"policy\.npz is not of this run, which has 2 seeds"):
        evaluate(run, 1)


def named(path):
    """A checkpoint under the name with its checksum."""
    with path.open("rb") as file:
        return path.rename(path.with_name(f"epoch-000001.{checkpoints._digest(file)}.npz"))


@pytest.mark.parametrize("meta", ["3", "[]", "{}", '{"format": 2}', '{"format": 2, "epoch": 7}'])
def test_a_checkpoint_with_odd_values_is_refused(meta, tmp_path):
    path = tmp_path / "made.npz"
    np.savez(path, meta=np.array(meta))
    with pytest.raises(checkpoints.Damaged, match="is not a checkpoint"):
        read_checkpoint(named(path))


def test_a_checkpoint_that_cannot_be_unpacked_is_refused(tmp_path):
    """Its checksum is right, but its content is not a compressed stream."""
    path = tmp_path / "made.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("meta.npy", b"\0" * 999)
    data = bytearray(path.read_bytes())
    data[38:44] = b"\xff" * 6  # the stream begins after a header of 30 bytes and the name
    path.write_bytes(data)
    with pytest.raises(checkpoints.Damaged, match="is not a checkpoint"):
        read_checkpoint(named(path))


@pytest.mark.parametrize("lost", ["metrics", "totals/steps", "version", "collector/rngs/0"])
def test_a_checkpoint_that_lacks_something_is_refused(lost, run):
    last, _ = newest_sound(run / "checkpoints")
    shutil.rmtree(run / "checkpoints")
    (run / "result.json").unlink()
    without = lambda values: {k: v for k, v in values.items() if k != lost}
    write_checkpoint(
        run / "checkpoints", Checkpoint(without(last.meta | {"epoch": 1}), without(last.arrays))
    )
    with pytest.raises(ValueError, match=f"{lost} is missing|does not fit .*: KeyError: '0'"):
        resume(run, steps=200, quiet=True)


def test_metrics_keep_the_order_of_their_columns(tmp_path):
    folder = RunFolder(tmp_path)
    CsvLogger(folder).append([{"a": 1, "b": 2}])
    metrics = CsvLogger(folder)  # as a resumed run does
    metrics.append([{"b": 4, "a": 3}])
    content = b"a,b\r\n1,2\r\n3,4\r\n"
    assert folder.metrics_bytes() == metrics.content == content
    with pytest.raises(ValueError, match=r"metrics\.csv has other columns .*added: c; removed: b"):
        metrics.append([{"a": 5, "c": 6}])
    assert folder.metrics_bytes() == metrics.content == content


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (b",cost,", b",price,", "it has no column cost"),
        (b"epoch", b"lap", "it has no column epoch"),
        (b"0,1,40", b"0,inf,40", "damaged in row 1"),
    ],
)
def test_incomplete_metrics_are_detected(before, after, message, run):
    path = run / "metrics.csv"
    path.write_bytes(path.read_bytes().replace(before, after, 1))
    with pytest.raises(ValueError, match=message):
        learning_curve(run)
    assert show_run(run).state == "damaged"


def test_a_resume_refuses_other_columns_before_it_trains(run):
    """Columns that every run has; the others are compared when the first row is written."""
    last, _ = newest_sound(run / "checkpoints")
    text = last.arrays["metrics"].tobytes().replace(b",cost,", b",price,", 1)
    arrays = {**last.arrays, "metrics": np.frombuffer(text, np.uint8)}
    write_checkpoint(run / "checkpoints", Checkpoint({**last.meta, "epoch": 3}, arrays))
    with pytest.raises(ValueError, match="it has no column cost"):
        resume(run, steps=200, quiet=True)


def test_a_folder_that_is_not_a_run_is_left_unchanged(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match=r"is not a run: it has no config\.json"):
        resume(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


def test_a_run_resumes_on_the_device_it_was_trained_on(run, monkeypatch):
    assert RunFolder(run).read_json("config.json")["backend"] == "cpu"
    devices = []
    monkeypatch.setattr("surefoot.runs.device.use_device", devices.append)
    for words in ([], ["--device", "gpu"]):
        with pytest.raises(SystemExit):
            cli.main(["resume", str(run), "--quiet", *words])
    folder = RunFolder(run)
    folder.write_json("config.json", folder.read_json("config.json") | {"backend": "gpu"})
    assert devices == ["cpu", "gpu"] and backend_of(run) == "gpu"


def faulty(harm):
    """Environments without the adapter, whose steps are changed."""
    env = make("RCCar", num_envs=2, max_episode_steps=5)
    collector, step = Collector(env, [0], 2), env.step
    for _ in range(4):
        env.step(np.zeros((2, 2)))
    env.step = lambda actions: harm(*step(actions))
    return collector


def without(o, r, e, t, info):
    return o, r, e, t, {"cost": info["cost"]}


def wrong_end(o, r, e, t, info):
    return o, r, e, t, {**info, "final_obs": info["final_obs"] + [[0.0], [np.inf]]}


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda o, r, *rest: (o, r * np.nan, *rest), "environment 0, step 4 .*: reward is nan"),
        (lambda o, r, *rest: (o[:1], r, *rest), r"observation has shape \(1, 4\), not \(2, 4\)"),
        (lambda o, r, *rest: (o.astype(str), r, *rest), "observation is <U.*, not numbers"),
        (lambda o, r, *rest: (o, np.array([None, 1]), *rest), "reward is object, not numbers"),
        (lambda o, r, e, *rest: (o, r, e[:1], *rest), r"terminated has shape \(1,\), not \(2,\)"),
        (lambda *all_: 1 / 0, "ZeroDivisionError"),
        (without, "environment 0, step 4 .*: the episode ended, but info has no final_obs"),
        (wrong_end, "environment 1, step 4 .*: final_obs is .*inf"),
    ],
)
def test_an_environment_without_the_adapter_is_checked_too(harm, words):
    collector = faulty(harm)
    actions = action_spec(collector.env.single_action_space)
    with pytest.raises(EnvironmentFault, match=words):
        collector.collect(lambda now: np.zeros((1, 2, 2)), actions, 1, t=4)


@pytest.mark.parametrize(
    ("harm", "words"),
    [(lambda o: o * np.nan, "reset: observation is"), (lambda o: o[:, :2], r"shape \(2, 2\)")],
)
def test_first_observations_are_checked(harm, words):
    env = make("RCCar", num_envs=2)
    reset = env.reset
    env.reset = lambda **options: (harm(reset(**options)[0]), {})
    with pytest.raises(EnvironmentFault, match=words):
        Collector(env, [0], 2)
