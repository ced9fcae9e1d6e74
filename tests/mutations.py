"""Mutated run folders: what a stranger, a bad disk or a bad moment may leave behind.

`Fuzzer` mutates copies of a run and has commands read them, in this process. After each one it
checks that nothing outside the folder has changed, and what was printed.
"""

import io
import json
import os
import random
import shutil
import signal
import socket
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from surefoot import cli
from surefoot.algorithms import loop
from surefoot.core import policy as policies
from surefoot.core.files import Folder, parse_json
from surefoot.runs import checkpoint as checkpoints
from surefoot.runs.checkpoint import list_checkpoints, newest_sound
from surefoot.runs.folder import RunFolder, _checksum

LIMIT = 10.0
"""Seconds after which a command hangs."""
ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\nforged: finished"
EVIL = "Path(__file__).parent.parent.joinpath('victim', 'owned').write_text('')"


def nested(levels: int) -> list:
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 1.5, 1e-300, 1e308, 10**12, 10**400, float("nan"), float("inf"),
    "", "x", ESCAPE, "../../../victim/file", "/etc/passwd", "$\\frac{", "\ud800", "a" * 100_000,
    "evil.py:main", "run/evil.py:main", "no.such.module:thing", "CartPole-v1", "cpo", "PointGoal",
    [], {}, [0], ["x"], {"x": 1}, [[]], {"cost": 10**400}, {"": None}, [1, 2, 3], nested(20),
    nested(60), {"ppo": 3}, {"hidden": [10**9]}, list(range(1000)),
]  # fmt: skip


def resign(values: dict) -> str:
    """A JSON file with a checksum that is right, as a forger would write it."""
    values = {k: v for k, v in values.items() if k != "checksum"}
    return json.dumps({**values, "checksum": _checksum(values)})


def change_value(values: Any, rng: random.Random) -> None:
    """Replace, remove or add a value somewhere in nested dicts and lists."""
    place = values
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.7:
            place = place[key]
            continue
        how = rng.random()
        if how < 0.15:
            del place[key]
        elif how < 0.25 and isinstance(place, dict):
            place[rng.choice(["x", ESCAPE, "../x"])] = place.pop(key)
        else:
            place[key] = rng.choice(VALUES)
        return


def array_like(x: np.ndarray, rng: random.Random) -> np.ndarray:
    """Another array in the place of x."""
    return rng.choice([
        lambda: x[..., None], lambda: x.ravel(), lambda: x[:0] if x.ndim else x[None],
        lambda: np.zeros_like(x), lambda: np.array("text"), lambda: np.array(["a", "b"]),
        lambda: np.zeros(x.shape, [("a", "f4")]), lambda: np.float64(3.0), lambda: x.astype("c8"),
        lambda: np.full(x.shape, np.nan), lambda: np.full(x.shape, np.inf), lambda: x.astype(">f8"),
        lambda: np.zeros((0, 3)), lambda: x.astype(bool), lambda: np.zeros(1000, np.uint8),
        lambda: np.concatenate([x, x]) if x.ndim else x, lambda: np.asfortranarray(x[None]),
        lambda: np.zeros(x.shape, "M8[s]"), lambda: np.full(x.shape, -1).astype(x.dtype),
    ])()  # fmt: skip


def change_arrays(arrays: dict[str, np.ndarray], rng: random.Random) -> None:
    """Change, rename, remove or add an array."""
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(list(arrays))
        how = rng.random()
        if how < 0.5:
            # Not every array can become every other.
            with np.errstate(all="ignore"), suppress(ValueError, TypeError):
                arrays[name] = np.asarray(array_like(arrays[name], rng))
        elif how < 0.65 and len(arrays) > 1:
            del arrays[name]
        elif how < 0.8:
            arrays[name + rng.choice(["/x", "/0/y", "x", "/", ESCAPE])] = arrays[name]
        elif how < 0.9:
            arrays[
                rng.choice(["x", "policy/weight_0/x", "phases/x", "collector/env/x", "a/" * 300])
            ] = arrays.pop(name)
        else:
            other = rng.choice(list(arrays))
            arrays[name], arrays[other] = arrays[other], arrays[name]


def header(shape: tuple[int, ...], descr: str = "<f4") -> bytes:
    """The header of an array, without its content."""
    file = io.BytesIO()
    fields = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder that another mutation made of it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def craft(folder: Path, members: dict[str, bytes], epoch: int = 99, method: int = 0) -> Path:
    """A checkpoint made of raw members, under a name with the right checksum."""
    path = folder / "made"
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with path.open("rb") as file:
        name = f"epoch-{epoch:06d}.{checkpoints._digest(file)}.npz"
    return path.rename(folder / name)


class Mutations:
    """Ways to change the run in `run`; `victim` lies outside."""

    def __init__(self, run: Path, victim: Path, rng: random.Random):
        self.run, self.victim, self.rng = run, victim, rng

    def apply(self) -> str:
        """Change the run in one to three ways; returns their names."""
        ways = [n for n in vars(Mutations) if not n.startswith("_") and n != "apply"]
        ways += 2 * ["json", "metrics", "policy", "checkpoint", "checkpoint", "archive"]
        done = []
        for _ in range(self.rng.choice([1, 1, 1, 2, 3])):
            done.append(self.rng.choice(ways))
            getattr(self, done[-1])()
        return "+".join(done)

    def _file(self) -> Path:
        files = [p for p in self.run.rglob("*") if not p.is_dir() or p.is_symlink()]
        names = [".lock", ".partial", "log.txt", "curve.png", "result-80.json", "checkpoints"]
        names += ["checkpoints/.partial", "checkpoints/epoch-000007." + "0" * 32 + ".npz"]
        return self.rng.choice([*files, *files, *(self.run / name for name in names)])

    def _regular(self) -> Path | None:
        files = [p for p in self.run.rglob("*") if p.is_file() and not p.is_symlink()]
        return self.rng.choice(files) if files else None

    def _gone(self) -> Path:
        """A place in the folder where nothing is any more."""
        path = self._file()
        if not path.parent.is_dir():
            remove(path.parent)
        remove(path)
        path.parent.mkdir(exist_ok=True)
        return path

    def bytes(self) -> None:
        if path := self._regular():
            data = bytearray(path.read_bytes() or b"\0")
            for _ in range(self.rng.choice([1, 1, 5, 50])):
                data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            self._write(path, bytes(data))

    def cut(self) -> None:
        if path := self._regular():
            data = path.read_bytes()
            cut = data[: self.rng.randrange(len(data) + 1)]
            more = self.rng.choice([b"", b"\0" * 500, data, self.rng.randbytes(99)])
            self._write(path, self.rng.choice([cut, cut + more, data + more]))

    def delete(self) -> None:
        self._gone()

    def link(self) -> None:
        outside = [
            self.victim,
            self.victim / "file",
            self.victim / "config.json",
            self.victim / "new",
        ]
        self._gone().symlink_to(self.rng.choice([*outside, Path("/dev/zero"), Path("."), self.run]))

    def hard_link(self) -> None:
        os.link(self.victim / "file", self._gone())

    def pipe(self) -> None:
        os.mkfifo(self._gone())

    def folder(self) -> None:
        self._gone().mkdir()

    def socket(self) -> None:
        path = self._gone()
        with socket.socket(socket.AF_UNIX) as end:
            back = os.getcwd()
            os.chdir(path.parent)  # as such paths must be short
            end.bind(path.name[:90])
            os.chdir(back)

    def swap(self) -> None:
        a, b = self._regular(), self._regular()
        if a and b:
            first, second = a.read_bytes(), b.read_bytes()
            self._write(a, second), self._write(b, first)

    def json(self) -> None:
        path = self.run / self.rng.choice(["config.json", "config.json", "result.json"])
        values = self._values(path)
        if values is None:
            return
        for _ in range(self.rng.randint(1, 3)):
            change_value(values, self.rng)
        self._write(
            path, (resign(values) if self.rng.random() < 0.9 else json.dumps(values)).encode()
        )

    def deep_json(self) -> None:
        path = self.run / self.rng.choice(["config.json", "result.json"])
        self._write(
            path, self.rng.choice([b"[" * 10**5, b'{"a":' * 10**5, b'{"x": 1}', b"3", b"\xff"])
        )

    def metrics(self) -> None:
        path = self.run / "metrics.csv"
        try:
            text = Folder(self.run).read("metrics.csv", 10**7).decode()
            rows = [line.split(",") for line in text.splitlines()]
            row = self.rng.randrange(len(rows))
            column = self.rng.randrange(len(rows[row]))
        except (OSError, ValueError):
            return
        how = self.rng.randrange(6)
        if how == 0:
            rows.insert(row, list(rows[row]))
        elif how == 1:
            del rows[row]
        elif how == 2:
            rows = [r[:column] + r[column + 1 :] for r in rows]
        elif how == 3:
            rows.append([str(self.rng.randrange(10**6)) for _ in rows[0]])
        else:
            values = ["", "x", "nan", "inf", "-1", "1e400", "1e18", "0.5", ESCAPE, '"', "9" * 400]
            rows[row][column] = self.rng.choice(values)
        self._write(
            path, "\r\n".join(map(",".join, rows)).encode("utf-8", "surrogatepass") + b"\r\n"
        )

    def policy(self) -> None:
        try:
            policy = RunFolder(self.run).read_policy()
        except (OSError, ValueError):
            return
        arrays = dict(policy.arrays())
        change_arrays(arrays, self.rng)
        head = {"format": 1, "kind": policy.kind, "checksum": policies._checksum(arrays)}
        if self.rng.random() < 0.2:
            change_value(head, self.rng)
        data = io.BytesIO()
        np.savez(data, header=np.array(json.dumps(head)), **arrays)
        self._write(self.run / "policy.npz", data.getvalue())

    def checkpoint(self) -> None:
        """A forged checkpoint, in the place of the newest one or after it."""
        try:
            last, _ = newest_sound(self.run / "checkpoints")
        except (OSError, ValueError):
            last = None
        if last is None:
            return
        meta, arrays = json.loads(json.dumps(last.meta)), dict(last.arrays)
        epoch = meta["epoch"] + self.rng.choice([0, 0, 1, 96])
        if self.rng.random() < 0.4:
            change_value(meta, self.rng)
        else:
            change_arrays(arrays, self.rng)
        meta = {"epoch": epoch, **meta} if self.rng.random() < 0.1 else {**meta, "epoch": epoch}
        members = {"meta": np.array(json.dumps(meta)), **arrays}
        if epoch == last.meta["epoch"]:
            for path in list_checkpoints(self.run / "checkpoints")[: self.rng.choice([1, 9])]:
                remove(path)
        craft(self.run / "checkpoints", {f"{k}.npy": npy(x) for k, x in members.items()}, epoch)

    def archive(self) -> None:
        """A checkpoint that is an odd archive."""
        folder = self.run / "checkpoints"
        if not folder.is_dir() or folder.is_symlink():
            return
        meta = lambda text: {"meta.npy": npy(np.array(text))}
        plain = json.dumps({"format": 2, "epoch": 99})
        members: dict[str, bytes] = self.rng.choice([
            {**meta(plain), "a.npy": header((10**12,))},
            {**meta(plain), "a.npy": header((0, 10**30))},
            {**meta(plain), "a.npy": header((-1, -4)) + b"0" * 16},
            {**meta(plain), "a.npy": header((10**9,), "<U0")},
            {**meta(plain), "a.npy": header((1,), "|O") + b"0" * 8},
            {**meta(plain), "a.npy": b"\x93NUMPY\x09\x00"},
            {**meta(plain), "a.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"},
            {**meta(plain), "a": b"x"},
            meta('{"a":' * 10**5), meta("[" * 10**5), meta(ESCAPE), meta(""), {},
            {"meta.npy": npy(np.zeros(3))}, {"meta.npy": b""},
            {"meta.npy": header((), "<U900000000")},
            {**meta(plain), "a.npy": npy(np.zeros(10**6))},
        ])  # fmt: skip
        craft(folder, members, method=self.rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))

    def code(self) -> None:
        """Code beside the run, and a record that refers to it."""
        script = f"from pathlib import Path\n{EVIL}\ndef main(*_, **__): {EVIL}\n"
        self._write(self.run / "evil.py", script.encode())
        path = self.run / "config.json"
        if values := self._values(path):
            name = self.rng.choice(["run/evil.py:main", f"{self.run / 'evil.py'}:main"])
            key = self.rng.choice(["task", "algorithm", "loggers", "task_options", "known_from"])
            other = {"loggers": [name], "task_options": {"cost": name}}
            values[key] = {**other, "known_from": [f"cost={name}"]}.get(key, name)
            self._write(path, resign(values).encode())

    def _values(self, path: Path) -> dict | None:
        try:
            return parse_json(Folder(path.parent).read(path.name, 10**7))
        except (OSError, ValueError):
            return None

    def _write(self, path: Path, data: bytes) -> None:
        """Write a file of the run, but never through a link that another mutation made."""
        if path.is_symlink() or not path.is_file() or path.stat().st_nlink > 1:
            if path.is_dir() and not path.is_symlink():
                return
            path.unlink(missing_ok=True)
        path.write_bytes(data)


COMMANDS = (*4 * ("resume", "longer", "evaluate", "runs", "export"), "compare")
"""What may follow `show`; `longer` resumes with more steps. The figures of compare take long."""


class Hang(BaseException):
    """A command took too long."""


class Fuzzer:
    """Mutates copies of a run below `home`, and counts what commands make of them."""

    def __init__(self, run: Path, home: Path, seed: int, commands: Sequence[str] = COMMANDS):
        self.source, self.home, self.commands = run, home, commands
        self.rng = random.Random(seed)
        self.run, self.victim = home / "run", home / "victim"
        self.victim.mkdir()
        (self.victim / "file").write_bytes(b"precious")
        shutil.copy(run / "config.json", self.victim)
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.slowest = 0.0
        self._evaluation = RunFolder(run).read_json("result.json")["evaluation"]

    def one(self) -> None:
        """Mutate a copy, have commands read it, and check what happened."""
        for path in self.home.iterdir():
            if path != self.victim:
                shutil.rmtree(path)
        shutil.copytree(self.source, self.run)
        kinds = Mutations(self.run, self.victim, self.rng).apply()
        for kind in kinds.split("+"):
            self.counts[f"mutation {kind}"] += 1
        before = self._outside()
        for command in ("show", self.rng.choice(self.commands)):
            code = self._command(command, kinds)
            if self._outside() != before:
                return self._failed("touched", command, kinds, str(self._outside()))
        if command == "resume" and code == 0 and self._command("show", kinds) != 0:
            self._failed("unsound", command, kinds, "")

    def _command(self, command: str, kinds: str) -> object:
        """The exit code of a command; None if it failed."""
        words = {
            "longer": ["resume", str(self.run), "--steps", "400", "--quiet"],
            "resume": ["resume", str(self.run), "--quiet"],
            "evaluate": ["evaluate", str(self.run), "--episodes", "1"],
            "runs": ["runs", str(self.home)],
            "compare": ["compare", str(self.run), "--out", str(self.home / "out")],
            "export": ["export", str(self.run), str(self.home / "out.npz")],
        }.get(command, [command, str(self.run)])
        text, start, code = io.StringIO(), time.monotonic(), 0
        try:
            with redirect_stdout(text), redirect_stderr(text), time_limit():
                cli.main(words)
        except SystemExit as end:
            code = end.code
        except Hang:
            return self._failed("hang", command, kinds, "")
        except BaseException as error:
            return self._failed("traceback", command, kinds, repr(error), error)
        finally:
            self.slowest = max(self.slowest, time.monotonic() - start)
        shutil.rmtree(self.home / "out", ignore_errors=True)
        (self.home / "out.npz").unlink(missing_ok=True)
        self.counts[f"{command} exit {code}"] += 1
        if any(not c.isprintable() and c != "\n" for c in text.getvalue()):
            self._failed("control character", command, kinds, repr(text.getvalue()))
        if code not in (0, 1, 2) or "\nforged: finished" in text.getvalue():
            self._failed("misled", command, kinds, text.getvalue())
        return code

    def _failed(
        self, what: str, command: str, kinds: str, detail: str, error: BaseException | None = None
    ) -> None:
        self.counts[f"failed: {what}"] += 1
        place = ""
        trace = None if error is None else error.__traceback__
        while trace is not None:
            place = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
            trace = trace.tb_next
        self.failures.append(f"{what}: {command} after {kinds}: {detail[:300]} {place}")

    def _outside(self) -> list[tuple]:
        """Everything that must not change: the victims, and what lies beside the run."""
        seen: list[tuple] = [("beside", *sorted(p.name for p in self.home.iterdir()))]
        for path in sorted(self.victim.rglob("*")):
            status = path.lstat()
            data = path.read_bytes() if path.is_file() else b""
            # Hard links and reads change the other times and counts.
            seen.append((path.name, data, status.st_mode, status.st_mtime_ns, status.st_size))
        return seen

    @contextmanager
    def quick(self) -> Iterator[None]:
        """Leave out what takes long and reads no file: training, evaluation, compilation."""

        def epochs(training: loop.Training) -> Iterator:
            if training.totals.steps < training.steps:
                raise ValueError("far enough")
            return iter(())

        @cache
        def trainer(algorithm: str, config: Any, problem: Any) -> Any:
            return made[algorithm].trainer(config, problem)

        made, begin = {}, loop.begin

        def begin_once(algorithm: Any, config: Any, *rest: Any) -> loop.Training:
            made[algorithm.name] = algorithm
            cached = lambda config, problem: trainer(algorithm.name, config, problem)
            return begin(replace(algorithm, trainer=cached), config, *rest)

        def curve(rows: Any, limit: float, title: str, path: Path, *more: Any) -> Path:
            return Folder(path.parent).write_bytes(path.name, b"picture")

        def evaluate() -> dict:
            return {k: x for k, x in self._evaluation.items() if k != "plan"}

        with ExitStack() as stack:
            patch: Callable[..., Any] = lambda *args: stack.enter_context(mock.patch(*args))
            patch("surefoot.algorithms.loop.epochs", epochs)
            patch("surefoot.algorithms.loop.begin", begin_once)
            patch("surefoot.api.draw_curve", curve)
            patch("surefoot.runs.train.Acting", lambda *_, **__: mock.Mock(evaluate=evaluate))
            yield


@contextmanager
def time_limit() -> Iterator[None]:
    """Raise `Hang` in whatever takes too long."""

    def ring(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
