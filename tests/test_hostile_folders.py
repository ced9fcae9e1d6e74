"""Run folders from a stranger: nothing outside is touched, nothing hangs, nothing is unpacked."""

import json
import os
import shutil
import socket
import zipfile
from pathlib import Path

import numpy as np
import pytest

from harness import came_to, differences, start
from mutations import ESCAPE, Fuzzer, craft, header, npy, resign, time_limit
from surefoot.core import policy as policies
from surefoot.core.files import Damaged, Folder, parse_json, printable
from surefoot.core.npz import Arrays
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved
from surefoot.runs.acting import Acting
from surefoot.runs.checkpoint import Checkpoint, list_checkpoints, newest_sound, write_checkpoint
from surefoot.runs.folder import RunFolder
from surefoot.runs.listing import describe_run, show_run
from surefoot.runs.resume import resume
from surefoot.runs.train import train
from test_cli import TINY


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two epochs, which must not be changed."""
    return start("ppo-lagrangian", tmp_path_factory.mktemp("hostile") / "run", 2)


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def stopped(run):
    """A run that `resume` has to evaluate and to write."""
    (run / "result.json").unlink()
    return run


@pytest.fixture
def victim(tmp_path):
    """Files outside the run, which must not change; returns a function that checks them."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "file").write_bytes(b"precious")
    return folder / "file"


def forge(run: Path, name: str, **changes) -> None:
    """Change values of a JSON file, with a checksum that is right."""
    values = json.loads((run / name).read_bytes())
    (run / name).write_text(resign(values | changes))


# Links


NAMES = [
    ".lock", ".partial", ".config.json.partial", ".policy.npz.partial.npz", "config.json",
    "metrics.csv", "policy.npz", "result.json", "log.txt", "curve.png", "checkpoints/.partial",
    "checkpoints/epoch-000009." + "0" * 32 + ".npz",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_link_is_followed(name, stopped, victim, call):
    path = stopped / name
    if path.exists():  # a link to the true content must not be followed either
        victim.write_bytes(path.read_bytes())
        path.unlink()
    before = victim.read_bytes()
    path.symlink_to(victim)
    code, _, err = call("resume", str(stopped), "--steps", "120", "--quiet")
    assert code == 2 and f"{path} is neither a file nor a folder" in err
    assert victim.read_bytes() == before and path.is_symlink()
    assert call("show", str(stopped))[0] == 1
    assert list(victim.parent.iterdir()) == [victim]


def test_linked_checkpoints_are_neither_pruned_nor_written(stopped, tmp_path, call):
    outside = tmp_path / "outside"
    (stopped / "checkpoints").rename(outside)
    (stopped / "checkpoints").symlink_to(outside)
    before = sorted(outside.iterdir())
    code, _, err = call("resume", str(stopped), "--steps", "120", "--quiet")
    assert code == 2 and "neither a file nor a folder" in err
    with pytest.raises(Damaged, match="not a folder"):
        write_checkpoint(stopped / "checkpoints", Checkpoint({"epoch": 9}, {}))
    assert sorted(outside.iterdir()) == before


@pytest.mark.parametrize("name", [".lock", "log.txt", "metrics.csv"])
def test_a_file_with_another_name_outside_is_not_written(name, stopped, victim):
    """Be it a victim, or a backup made by `cp -al`."""
    (stopped / name).replace(victim)
    os.link(victim, stopped / name)
    before = victim.read_bytes()
    resume(stopped, steps=120, quiet=True)
    assert victim.read_bytes() == before
    assert show_run(stopped).problems == []


def test_a_lock_with_another_name_still_locks(run, victim):
    (run / ".lock").unlink()
    os.link(victim, run / ".lock")
    with RunFolder(run).locked():
        assert RunFolder(run).is_running()
        with pytest.raises(ValueError, match="is being written by precious"):
            resume(run)
    assert victim.read_bytes() == b"precious"


def test_a_link_made_while_training_is_replaced(tmp_path, victim):
    """By then the folder was found to be sound."""
    run = tmp_path / "run"

    def plant(epoch):
        for name in ("metrics.csv", "policy.npz", "config.json"):
            (run / name).unlink()
            (run / name).symlink_to(victim)

    start("ppo", run, 3, on_epoch=plant)
    assert victim.read_bytes() == b"precious"
    assert len(RunFolder(run).read_metrics()) == 6
    assert not (run / "metrics.csv").is_symlink()


@pytest.mark.parametrize("steps", ["../../victim/new", True, 10**400])
def test_no_file_is_named_by_a_forged_result(steps, run, victim):
    forge(run, "result.json", real_steps=steps)
    assert "result.json is damaged: real_steps=" in show_run(run).problems[0]
    resume(run, steps=120, quiet=True)
    assert list(victim.parent.iterdir()) == [victim]
    assert not list(run.glob("result-*")) and show_run(run).problems == []


def test_names_must_stay_in_the_folder(tmp_path):
    for name in ("", ".", "..", "../x", "/x", "a/b", "a\0"):
        with pytest.raises(ValueError, match="must be that of a file in the folder"):
            Folder(tmp_path).write_bytes(name, b"")
    assert not list(tmp_path.iterdir())


def test_unfinished_files_have_unpredictable_names_and_are_removed(stopped):
    seen = []
    for _ in range(2):
        Folder(stopped).write(lambda file: (seen.append(os.listdir(stopped)), "new")[1])
    a, b = ({n for n in names if n.startswith(".partial-")} for names in seen)
    assert len(a) == len(b) == 1 and a != b and len(a.pop()) > 20
    for folder in (stopped, stopped / "checkpoints"):
        (folder / ".partial-0123").write_text("of a process that was killed")
    resume(stopped, quiet=True)
    assert not list(stopped.rglob(".partial*"))


def test_code_beside_a_run_is_not_executed(run, victim, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = f"from pathlib import Path\nPath({str(victim)!r}).write_text('owned')\n"
    (run / "evil.py").write_text(code + "def main(*_): ...\n")
    for key in ("task", "algorithm", "loggers", "task_options"):
        for source in ("run/evil.py:main", f"{run}/../run/evil.py:main"):
            value = {"loggers": [source], "task_options": {"cost": source}}.get(key, source)
            forge(run, "config.json", **{key: value})
            for command in ("evaluate", "export", "compare", "watch", "resume"):
                code, _, err = call(command, str(run))
                # The copy in the checkpoint replaces the forged file.
                assert code == 0 if command == "resume" else "is not executed" in err
    assert victim.read_bytes() == b"precious"


def test_reports_do_not_load_the_code_that_a_run_refers_to(run, victim, call, tmp_path):
    """It may lie where the stranger could write: /tmp, or a shared folder."""
    script = tmp_path / "elsewhere.py"
    script.write_text(f"from pathlib import Path\nPath({str(victim)!r}).write_text('owned')\n")
    forge(run, "config.json", task=f"{script}:TASK", algorithm=f"{script}:ALGORITHM")
    page = tmp_path / "page"
    commands = ("show", run), ("runs", tmp_path), ("compare", run, "--out", page), ("report", run)
    for words in commands:
        assert call(*map(str, words))[0] == 0
    assert victim.read_bytes() == b"precious"


# Pipes, sockets and folders in the place of files


def occupy(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(str(path))


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder"])
@pytest.mark.parametrize(
    "name", ["config.json", ".lock", "metrics.csv", "policy.npz", "result.json"]
)
def test_nothing_waits_for_what_is_not_a_file(name, kind, run, call, monkeypatch):
    monkeypatch.chdir(run.parent)
    occupy(Path("run") / name, kind)
    with time_limit():
        code, out, err = call("show", "run")
        assert code == (0 if (name, kind) == (".lock", "folder") else 1), out + err
        assert call("runs", ".")[0] == code or name == "policy.npz"
        code, _, err = call("resume", "run", "--quiet")
        assert code == 2 and name in err


# States and exit codes


@pytest.mark.parametrize("row", ["garbage", "{last}", "{next}", "{skipped}"])
def test_rows_that_no_epoch_wrote_are_damage(row, run, call):
    path = run / "metrics.csv"
    last = path.read_text().splitlines()[-1].split(",")
    later = lambda epochs: ",".join([last[0], str(2 + epochs), str(80 + 40 * epochs), *last[3:]])
    text = row.format(last=",".join(last), next=later(1), skipped=later(2))
    with path.open("a") as file:
        file.write(text + "\r\n")
    code, out, _ = call("show", str(run))
    assert code == 1 and "damaged: " in out and "finished" not in out
    code, out, _ = call("runs", str(run.parent))
    assert (code, "damaged" in out) == ((1, True) if row != "{last}" else (0, False))
    assert call("resume", str(run), "--quiet")[0] == 0
    assert call("show", str(run))[0] == 0


def test_metrics_lost_during_the_last_evaluation_are_restored(tmp_path, monkeypatch):
    evaluate, run = Acting.evaluate, tmp_path / "run"

    def losing(self):
        (run / "metrics.csv").unlink()
        return evaluate(self)

    monkeypatch.setattr(Acting, "evaluate", losing)
    start("ppo", run, 2)
    assert len(RunFolder(run).read_metrics()) == 4 and show_run(run).problems == []


# What is printed


@pytest.mark.filterwarnings("ignore:constrained_layout")  # labels of such a length
def test_no_control_character_of_a_run_reaches_the_terminal(run, call, tmp_path):
    folder = run.rename(tmp_path / ESCAPE.replace("/", ""))
    texts = dict.fromkeys(("task_name", "started", "device", "version", "preset"), ESCAPE)
    forge(folder, "config.json", **texts, algorithm_title=ESCAPE)
    page = tmp_path / "page"
    printed = []
    for words in (
        ("show", folder), ("runs", tmp_path), ("compare", folder, "--out", page),
        ("report", folder, "--out", page / "run.html"), ("resume", folder),
        ("resume", folder, "--steps", "120"),
        ("evaluate", folder, "--seed", "x"),
    ):  # fmt: skip
        code, out, err = call(*map(str, words))
        assert code == (2 if "x" in words else 0), err
        printed += [out, err]
    forge(folder, "result.json", failed=ESCAPE)
    assert call("show", str(folder))[0] == 0
    printed += [*call("show", str(folder))[1:], (folder / "log.txt").read_text()]
    printed += [(page / name).read_text() for name in ("report.html", "run.html")]
    for text in printed:
        assert all(c.isprintable() or c == "\n" for c in text.replace("\N{NO-BREAK SPACE}", ""))
        assert "\nforged" not in text or "<html" in text  # where a new line means nothing


def test_what_is_escaped():
    assert (
        printable("PointGoal ≤ 18 … é\N{NO-BREAK SPACE}±")
        == "PointGoal ≤ 18 … é\N{NO-BREAK SPACE}±"
    )
    assert printable("\x1b[31m\n\r\x9b\u202e\ud800\x7f") == r"\x1b[31m\n\r\x9b\u202e\ud800\x7f"


# Sizes


def odd_archives() -> dict[str, tuple[dict[str, bytes], int]]:
    meta = {"meta.npy": npy(np.array(json.dumps({"format": 2, "epoch": 99})))}
    one = lambda **members: ({**meta, **{f"{k}.npy": x for k, x in members.items()}}, 0)
    return {
        "3.6 TiB": one(a=header((10**12,))),
        "no bytes, many items": one(a=header((10**12,), "<U0")),
        "empty, endless": one(a=header((0, 10**30))),
        "negative": one(a=header((-1, -4)) + b"0" * 16),
        "objects": one(a=header((1,), "|O") + b"0" * 8),
        "bomb": ({**meta, "a.npy": npy(np.zeros(4_000_000))}, zipfile.ZIP_DEFLATED),
        "nested": ({"meta.npy": npy(np.array('{"a":' * 10**5 + "1" + "}" * 10**5))}, 0),
        "nested less": ({"meta.npy": npy(np.array('{"a":' * 60 + "1" + "}" * 60))}, 0),
        "not an array": ({**meta, "a": b"x"}, 0),
    }


@pytest.mark.parametrize("kind", odd_archives())
def test_the_checkpoint_before_an_odd_one_is_used(kind, finished, stopped, capsys):
    members, method = odd_archives()[kind]
    path = craft(stopped / "checkpoints", members, method=method)
    report = show_run(stopped)
    assert len(report.problems) == 1 and f"{path} is not a checkpoint" in report.problems[0]
    resume(stopped)
    assert "resuming from epoch 2" in capsys.readouterr().out
    assert differences(came_to(finished), came_to(stopped)) == []
    assert path.with_suffix(".damaged").exists() and show_run(stopped).problems == []


def test_metrics_are_not_replaced_by_those_of_a_forged_checkpoint(run, call):
    last, _ = newest_sound(run / "checkpoints")
    rows = (run / "metrics.csv").read_bytes()
    shutil.rmtree(run / "checkpoints")
    for forged in (b"", rows[: len(rows) // 2], rows.splitlines(keepends=True)[0]):
        arrays = {**last.arrays, "metrics": np.frombuffer(forged, np.uint8)}
        write_checkpoint(run / "checkpoints", Checkpoint(last.meta, arrays))
        code, _, err = call("resume", str(run), "--quiet")
        assert code == 2 and ".npz is damaged" in err
        assert (run / "metrics.csv").read_bytes() == rows
        shutil.rmtree(run / "checkpoints")


def test_show_reads_no_array_but_the_metrics(run, monkeypatch):
    read, get = [], Arrays.__getitem__
    monkeypatch.setattr(Arrays, "__getitem__", lambda a, name: (read.append(name), get(a, name))[1])
    assert show_run(run).problems == []
    weights = {name for name in read if name.startswith(("weight", "bias"))}  # of policy.npz
    policy = {"log_std", "mean", "std", "low", "high", "header"}
    assert set(read) - weights - policy == {"meta", "metrics"}


def test_an_array_that_the_config_does_not_need_is_not_read(finished, tmp_path, monkeypatch):
    last, _ = newest_sound(finished / "checkpoints")
    arrays = {**last.arrays, "trainer/large": np.zeros(10**6)}
    name = next(k for k in arrays if k.startswith("trainer/state/learner/critics"))
    arrays[name] = np.zeros((10**6, 2), np.float32)
    path = write_checkpoint(tmp_path, Checkpoint(last.meta, arrays))
    large, _ = newest_sound(path.parent)
    monkeypatch.setattr(Arrays, "__getitem__", lambda *_: pytest.fail("read"))
    with pytest.raises(ValueError, match=r"x is float32\[1000000, 2\] in the checkpoint"):
        Saved({"x": arrays[name]}).like("x", np.zeros(2, np.float32))
    short = name.removeprefix("trainer/")
    with pytest.raises(ValueError, match=rf"{short} is float32\[1000000, 2\] in the checkpoint"):
        Saved(large.arrays).under("trainer").like(short, np.zeros(2, np.float32))


def test_reads_are_bounded(run, call, monkeypatch):
    (run / "result.json").write_bytes(b'{"a": "' + b"x" * 2**24 + b'"}')
    assert "result.json is damaged: it has more than" in show_run(run).problems[0]
    monkeypatch.setattr("surefoot.runs.folder.MOST_METRICS", 100)
    assert "metrics.csv is damaged: it has more than 100 bytes" in show_run(run).problems[0]


@pytest.mark.parametrize(
    "text", ["[" * 10**5, '{"a":' * 10**5, "[]", "3", '{"a":' * 60 + "1" + "}" * 60]
)
@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_nested_json_is_damage(name, text, run):
    (run / name).write_text(text)
    assert f"{name} is damaged" in show_run(run).problems[0]
    resume(run, quiet=True)
    assert show_run(run).problems == []


def test_json_may_be_nested_a_little():
    assert parse_json('{"a":' * 40 + "[1]" + "}" * 40)


# Errors instead of tracebacks


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("config.json", {"cost_limits": {"hazards": 10**400}}),
        ("config.json", {"cost_limits": {"hazards": "x"}}),
        ("config.json", {"cost_limits": {}}),
        ("config.json", {"started_at": 10**400}),
        ("result.json", {"phases": []}),
        ("result.json", {"phases": {"save": "x"}}),
        ("result.json", {"seconds": "x"}),
        ("result.json", {"evaluation": []}),
        ("result.json", {"evaluation": {"episodes": 1, "reward": 1, "cost": 1, "within_limit": 1}}),
        ("result.json", {"reward_interval": [1.0]}),
        ("result.json", {"reward_interval": "12"}),
    ],
)
def test_forged_values_are_damage(name, changes, run, call, tmp_path):
    if "reward_interval" in changes:
        changes = {"evaluation": RunFolder(run).read_json(name)["evaluation"] | changes}
    forge(run, name, **changes)
    assert call("show", str(run))[0] == 1
    assert call("runs", str(tmp_path))[0] == 1
    assert call("resume", str(run), "--quiet")[0] == 0
    assert call("show", str(run))[0] == 0


def test_a_huge_cost_limit_is_named(run, call):
    config = RunFolder(run).read_json("config.json")["config"]
    forge(run, "config.json", config=config | {"cost_limit": [10**400]})
    for command in ("resume", "evaluate"):
        code, _, err = call(command, str(run))
        assert code == 2 and "cost_limit=" in err


@pytest.mark.parametrize("name", ["policy/weight_0/x", "policy/weight_0/0/y"])
@pytest.mark.parametrize("beside", [False, True])
def test_arrays_with_wrong_nesting_are_named(name, beside, stopped, call):
    last, _ = newest_sound(stopped / "checkpoints")
    arrays = {**last.arrays, name: last.arrays["policy/weight_0"]}
    if not beside:
        del arrays["policy/weight_0"]
    shutil.rmtree(stopped / "checkpoints")
    write_checkpoint(stopped / "checkpoints", Checkpoint({**last.meta, "epoch": 9}, arrays))
    code, _, err = call("resume", str(stopped), "--quiet")
    assert code == 2 and "checkpoint of epoch 9 is damaged" in err


WEIGHTS = {
    "0-d": lambda w: np.float32(1),
    "text": lambda w: np.array([["a", "b"]]),
    "struct": lambda w: np.zeros(w.shape, [("a", "f4")]),
    "complex": lambda w: w.astype("c8"),
    "whole": lambda w: w.astype(int),
    "nan": lambda w: w * np.nan,
    "narrow": lambda w: w[..., :3],
    "flat": lambda w: w[0, 0],
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_a_policy_whose_arrays_do_not_fit_is_refused(kind, finished, run, call):
    path = run / "policy.npz"
    arrays = dict(Policy.load(path).arrays())
    arrays["weight_0"] = np.asarray(WEIGHTS[kind](arrays["weight_0"]))
    head = {"format": 1, "kind": "gaussian", "checksum": policies._checksum(arrays)}
    np.savez(path, header=np.array(json.dumps(head)), **arrays)
    with pytest.raises(ValueError, match=r"policy\.npz is not a policy: weight_0"):
        Policy.load(path)
    for command in ("show", "evaluate", "export"):
        assert call(command, str(run))[0] == (1 if command == "show" else 2)
    assert call("resume", str(run), "--quiet")[0] == 0
    assert differences(came_to(finished), came_to(run)) == []


def test_memory_that_mujoco_cannot_get_is_an_error(call, monkeypatch, tmp_path):
    import mujoco

    def exhausted(*_, **__):
        raise mujoco.FatalError("Could not allocate memory")

    monkeypatch.setattr("surefoot.runs.setup.Setup.make_envs", exhausted)
    code, _, err = call("train", "PointGoal", *TINY, "--out", str(tmp_path / "run"))
    assert code == 2 and "Could not allocate memory" in err


# All at once


def test_mutated_folders(finished, tmp_path):
    """The short form of benchmarks/faults.py --mutations."""
    fuzzer = Fuzzer(finished, tmp_path, seed=1)
    with fuzzer.quick():
        for _ in range(60):
            fuzzer.one()
    assert fuzzer.failures == []
    assert fuzzer.counts["show exit 1"] > 20 and fuzzer.counts["show exit 0"] > 0


def test_the_fuzzer_notices(finished, tmp_path, monkeypatch):
    """What it must find, planted: a write outside, a raw text, an unknown error."""

    def escape(self):
        forge(self.run, "config.json", task_name=ESCAPE)
        return "escape"

    def plant(folder):
        (tmp_path / "victim" / "new").write_text("")
        raise KeyError

    fuzzer = Fuzzer(finished, tmp_path, seed=1, commands=["runs"])
    monkeypatch.setattr("mutations.Mutations.apply", escape)
    fuzzer.one()
    assert fuzzer.failures == []
    monkeypatch.setattr("surefoot.cli.output.printable", str)
    monkeypatch.setattr("surefoot.cli.output.printable_lines", str)
    fuzzer.one()
    assert fuzzer.counts["failed: control character"] and fuzzer.counts["failed: misled"]
    monkeypatch.setattr("surefoot.runs.listing.list_runs", plant)
    fuzzer.one()
    assert fuzzer.counts["failed: traceback"] and fuzzer.counts["failed: touched"]


def test_a_new_run_takes_no_foreign_lock(tmp_path, victim):
    """An empty folder but for a link that waits for its victim."""
    out = tmp_path / "run"
    out.mkdir()
    (out / ".lock").symlink_to(victim)
    with pytest.raises(Damaged, match="not a file"):
        train("PointGoal", "ppo", steps=40, out=out, quiet=True)
    assert victim.read_bytes() == b"precious"
    assert describe_run(out).state == "damaged"
    assert list_checkpoints(out / "checkpoints") == []
