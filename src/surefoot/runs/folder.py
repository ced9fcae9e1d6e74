"""A run on disk: one folder with its config, metrics, checkpoints and result."""

import csv
import dataclasses
import fcntl
import hashlib
import io
import json
import math
import os
import time
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from surefoot.core.policy import Policy
from surefoot.runs.checkpoint import Damaged, plain_number, sync_folder

COUNTS = ("seed", "epoch", "steps", "violations")
MEASURES = ("reward", "cost", "cost_limit", "seconds")
"""With the counts, the columns of metrics.csv that every algorithm writes."""
PATIENCE = 0.5  # seconds; one who only looks whether a run is locked holds it for an instant


class RunFolder:
    """Writes into one run's folder; nothing is ever half-written."""

    def __init__(self, path: Path):
        self.path = path

    @staticmethod
    def new(name: str, out: str | Path | None) -> "RunFolder":
        """A fresh folder: `out` itself, or runs/NAME-DATE with a number if that is taken."""
        if out is not None:
            path = Path(out)
            if path.exists() and not _is_empty(path):
                raise ValueError(f"--out {path} exists and is not empty; name a new folder")
            path.mkdir(parents=True, exist_ok=True)
            return RunFolder(path)
        stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        for number in range(1, 10_000):
            path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir(parents=True)
                return RunFolder(path)
            except FileExistsError:
                continue
        raise ValueError(f"runs/{stem} exists ten thousand times over")

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who writes; the system lets go of the lock of a process that dies."""
        with (self.path / ".lock").open("a+") as file:
            if not _flock(file, fcntl.LOCK_EX, PATIENCE):
                file.seek(0)
                raise ValueError(f"{self.path} is being written by {file.read() or 'another'}")
            file.truncate(0)
            file.write(f"process {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S')}")
            file.flush()
            yield

    def is_running(self) -> bool:
        """Whether a living process writes this run."""
        try:
            with (self.path / ".lock").open() as file:
                return not _flock(file, fcntl.LOCK_SH, 0.0)
        except OSError:
            return False

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """Write plain values, with a checksum of them."""
        text = json.dumps({**value, "checksum": _checksum(value)}, indent=1, default=plain_number)
        self.write(name, text.encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """The values of `write_json`; `Damaged` if they are not what was written."""
        path = self.path / name
        try:
            value = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise ValueError(f"{self.path} is not a finished run: {name} is missing") from None
        except ValueError as error:
            raise Damaged(f"{path} is damaged: {error}") from None
        # Runs of the first versions had none.
        if not isinstance(value, dict) or value.get("checksum") not in (None, _checksum(value)):
            raise Damaged(f"{path} is damaged: its values do not fit its checksum")
        value.pop("checksum", None)
        return value

    def append_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Add a row per seed to metrics.csv, in the order of the columns it has."""
        path = self.path / "metrics.csv"
        text = io.StringIO(newline="")
        there = next(csv.reader([self._first_line(path)]), [])
        if there and set(there) != set(rows[0]):
            more, less = (sorted(set(a) - set(b)) for a, b in ((rows[0], there), (there, rows[0])))
            raise ValueError(
                f"{path} has other columns than this version writes (new: {', '.join(more) or '-'};"
                f" gone: {', '.join(less) or '-'}): go on with the version that began the run"
            )
        writer = csv.DictWriter(text, there or list(rows[0]))
        if not there:
            writer.writeheader()
        writer.writerows(rows)
        with path.open("ab") as file:
            file.write(text.getvalue().encode())

    @staticmethod
    def _first_line(path: Path) -> str:
        if not path.exists():
            return ""
        with path.open("rb") as file:
            return file.readline().decode()

    def metrics_bytes(self) -> bytes:
        """metrics.csv as it is; empty if there is none."""
        path = self.path / "metrics.csv"
        return path.read_bytes() if path.exists() else b""

    def read_metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv as numbers."""
        path = self.path / "metrics.csv"
        if not path.exists():
            raise ValueError(f"{self.path} has no metrics.csv")
        return rows_of(path.read_bytes(), path)

    def write_policy(self, policy: Policy) -> None:
        policy.save(self.path / "policy.npz")

    def read_policy(self) -> Policy:
        path = self.path / "policy.npz"
        if not path.exists():
            raise ValueError(f"{self.path} holds no policy yet (policy.npz is missing)")
        return Policy.load(path)

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole or not at all."""
        partial = self.path / f".{name}.partial"
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.path / name)
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(self.path)


def _is_empty(path: Path) -> bool:
    """Whether nothing is in a folder but what a run leaves that was killed before it began."""
    return path.is_dir() and {p.name for p in path.iterdir()} <= {".lock", ".config.json.partial"}


def rows_of(metrics: bytes, path: Path) -> list[dict[str, float]]:
    """The rows of a metrics.csv as numbers."""
    rows: list[dict[str, float]] = []
    try:
        for row in csv.DictReader(io.StringIO(metrics.decode(), newline=""), strict=True):
            numbers = {k: float(v) for k, v in row.items()}
            if not all(math.isfinite(numbers[name]) for name in COUNTS):
                raise ValueError
            rows.append(numbers)
    except (ValueError, TypeError, csv.Error):
        raise Damaged(f"{path} is damaged in row {len(rows) + 1}") from None
    except KeyError as column:
        raise Damaged(f"{path} is damaged: it has no column {column}") from None
    missing = [name for name in MEASURES if rows and name not in rows[0]]
    if missing:
        raise Damaged(f"{path} is damaged: it has no column {', '.join(missing)}")
    return rows


def _flock(file: typing.IO, kind: int, patience: float) -> bool:
    """Take a lock, or tell after a while that someone else has it."""
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.05)


def _checksum(value: dict[str, Any]) -> str:
    """Of all values but the checksum itself."""
    rest = {k: v for k, v in value.items() if k != "checksum"}
    text = json.dumps(rest, sort_keys=True, default=plain_number)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def config_dict(config: Any) -> dict[str, Any]:
    """A config dataclass as plain values."""
    return dataclasses.asdict(config)


def config_from(kind: type, values: dict[str, Any]) -> Any:
    """The inverse of `config_dict`: a config with nested configs and tuples put back."""
    hints = typing.get_type_hints(kind)
    known = {f.name for f in dataclasses.fields(kind)}
    unknown = set(values) - known
    if unknown:
        raise ValueError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    return kind(**{name: _typed(hints[name], value) for name, value in values.items()})


def _typed(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return config_from(hint, value)
    if isinstance(value, list):
        return tuple(value)
    if typing.get_origin(hint) in (typing.Union, types.UnionType) and isinstance(value, dict):
        inner = [h for h in typing.get_args(hint) if dataclasses.is_dataclass(h)]
        return config_from(inner[0], value) if inner else value  # type: ignore[arg-type]
    return value
