"""`RunFolder`: a run on disk, with its config, metrics, checkpoints and result."""

import csv
import fcntl
import hashlib
import io
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from surefoot.core.policy import Policy
from surefoot.runs.checkpoint import PARTIAL, Damaged, Values, plain_number, write_atomically

METRICS = "metrics.csv"
COUNTS = ("seed", "epoch", "steps", "violations")
COLUMNS = (*COUNTS, "reward", "cost", "cost_limit", "seconds")
"""Columns of metrics.csv that every algorithm writes."""
LOCK_TIMEOUT = 0.5
"""Seconds to wait for a lock: `is_running` holds it for a moment."""


class RunFolder:
    """Reads and writes the files of one run. Files are replaced as a whole."""

    def __init__(self, path: Path):
        self.path = path

    @staticmethod
    def new(name: str, out: str | Path | None) -> "RunFolder":
        """Create a folder: `out` itself, or runs/NAME-DATE, numbered if that exists."""
        if out is not None:
            path = Path(out)
            if path.exists() and not _is_unused(path):
                raise ValueError(f"out={str(path)!r} exists and is not empty; choose a new folder")
            path.mkdir(parents=True, exist_ok=True)
            return RunFolder(path)
        stem = f"runs/{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        for path in map(Path, (stem, *(f"{stem}-{number}" for number in range(2, 10_000)))):
            with suppress(FileExistsError):
                path.mkdir(parents=True)
                return RunFolder(path)
        raise ValueError(f"{stem} and all its numbered variants exist; pass out")

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run's lock, so that only one process writes.

        The operating system releases the lock of a process that dies.
        """
        with (self.path / ".lock").open("a+") as file:
            if not _flock(file, fcntl.LOCK_EX, LOCK_TIMEOUT):
                file.seek(0)
                owner = file.read() or "another process"
                raise ValueError(f"{self.path} is being written by {owner}")
            file.truncate(0)
            file.write(f"process {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S')}")
            file.flush()
            yield

    def is_running(self) -> bool:
        """Whether a live process holds the lock."""
        try:
            with (self.path / ".lock").open() as file:
                return not _flock(file, fcntl.LOCK_SH, 0.0)
        except OSError:
            return False

    def write_json(self, name: str, values: Values) -> None:
        """Write plain values with their checksum."""
        text = json.dumps({**values, "checksum": _checksum(values)}, indent=1, default=plain_number)
        self.write(name, text.encode())

    def read_json(self, name: str) -> Values:
        """The values that `write_json` wrote; `Damaged` if their checksum does not match."""
        path = self.path / name
        try:
            values = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise ValueError(f"{self.path} is not a finished run: {name} is missing") from None
        except ValueError as error:
            raise Damaged(f"{path} is damaged: {error}") from None
        # The first versions wrote no checksum.
        if not isinstance(values, dict) or values.get("checksum") not in (None, _checksum(values)):
            raise Damaged(f"{path} is damaged: its values do not match its checksum")
        values.pop("checksum", None)
        return values

    def metrics_bytes(self) -> bytes:
        """The content of metrics.csv; empty if the file does not exist."""
        try:
            return (self.path / METRICS).read_bytes()
        except FileNotFoundError:
            return b""

    def read_metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv as numbers."""
        path = self.path / METRICS
        if not path.exists():
            raise ValueError(f"{self.path} has no {METRICS}")
        return rows_of(path.read_bytes(), path)

    def write_policy(self, policy: Policy) -> None:
        """Write policy.npz."""
        policy.save(self.path / "policy.npz")

    def read_policy(self) -> Policy:
        """The policies of all seeds, from policy.npz."""
        path = self.path / "policy.npz"
        if not path.exists():
            raise ValueError(f"{self.path} has no policy yet: policy.npz is missing")
        return Policy.load(path)

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically: on failure the previous file stays."""

        def write(file: IO[bytes]) -> str:
            file.write(data)
            return name

        write_atomically(self.path, write)


def rows_of(metrics: bytes, path: Path) -> list[dict[str, float]]:
    """The rows of a metrics.csv as numbers; `path` is for error messages."""
    rows: list[dict[str, float]] = []
    try:
        for row in csv.DictReader(io.StringIO(metrics.decode(), newline=""), strict=True):
            numbers = {name: float(value) for name, value in row.items()}
            if not all(math.isfinite(numbers.get(name, 0.0)) for name in COUNTS):
                raise ValueError
            rows.append(numbers)
    except (ValueError, TypeError, csv.Error):
        raise Damaged(f"{path} is damaged in row {len(rows) + 1}") from None
    missing = [name for name in COLUMNS if rows and name not in rows[0]]
    if missing:
        raise Damaged(f"{path} is damaged: it has no column {', '.join(missing)}")
    return rows


def _is_unused(path: Path) -> bool:
    """Whether a folder holds at most what a run killed at its start leaves behind."""
    return path.is_dir() and {p.name for p in path.iterdir()} <= {".lock", PARTIAL}


def _flock(file: IO[str], kind: int, timeout: float) -> bool:
    """Lock a file; False if another process still holds the lock after `timeout` seconds."""
    end = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.05)


def _checksum(values: Values) -> str:
    """The checksum of all values except `checksum` itself."""
    rest = {name: value for name, value in values.items() if name != "checksum"}
    text = json.dumps(rest, sort_keys=True, default=plain_number)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
