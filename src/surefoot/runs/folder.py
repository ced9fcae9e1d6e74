"""`RunFolder`: a run on disk, with its config, metrics, checkpoints and result."""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from surefoot.core.files import (
    MOST_JSON,
    MOST_METRICS,
    PARTIAL,
    Damaged,
    Folder,
    parse_json,
    printable,
)
from surefoot.core.policy import Policy
from surefoot.runs.checkpoint import Values, plain_number
from surefoot.runs.metrics import rows_of

METRICS = "metrics.csv"
"""Columns of metrics.csv that every algorithm writes."""
LOCK_TIMEOUT = 0.5
"""Seconds to wait for a lock: `is_running` holds it for a moment."""


class RunFolder:
    """Reads and writes the files of one run, which may come from someone else."""

    def __init__(self, path: Path):
        self.path, self.files = path, Folder(path)

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
        if ".lock" not in self.files.kinds():
            self.files.open(".lock", "ab").close()
        with self.files.open(".lock", "r+b") as file:  # NFS locks only what may be written
            if not _flock(file, fcntl.LOCK_EX, LOCK_TIMEOUT):
                owner = printable(file.read(99).decode(errors="replace")) or "another process"
                raise ValueError(f"{self.path} is being written by {owner}")
            if os.fstat(file.fileno()).st_nlink == 1:  # otherwise it is somebody's file too
                now = time.strftime("%Y-%m-%d %H:%M:%S")
                file.truncate(0)
                file.write(f"process {os.getpid()} since {now}".encode())
                file.flush()
            yield

    def is_running(self) -> bool:
        """Whether a live process holds the lock."""
        try:
            with self.files.open(".lock") as file:
                return not _flock(file, fcntl.LOCK_SH, 0.0)
        except (OSError, Damaged):
            return False

    def foreign(self) -> list[str]:
        """A message for each link, pipe or device in the folder: a run has none."""
        problems = self.files.foreign()
        with suppress(Damaged):  # reported by the line above
            problems += Folder(self.checkpoints, inside=True).foreign()
        return problems

    def clean(self) -> None:
        """Remove what processes that were killed have left unfinished."""
        for folder in (self.files, Folder(self.checkpoints, inside=True)):
            folder.clean()

    def write_json(self, name: str, values: Values) -> None:
        """Write plain values with their checksum."""
        text = json.dumps({**values, "checksum": _checksum(values)}, indent=1, default=plain_number)
        self.write(name, text.encode())

    def read_json(self, name: str) -> Values:
        """The values that `write_json` wrote; `Damaged` if their checksum does not match."""
        path = self.path / name
        try:
            values = parse_json(self.files.read(name, MOST_JSON))
            # The first versions wrote no checksum.
            if values.get("checksum") not in (None, _checksum(values)):
                raise ValueError("its values do not match its checksum")
        except FileNotFoundError:
            raise ValueError(f"{self.path} is not a finished run: {name} is missing") from None
        except Damaged:
            raise
        except ValueError as error:
            raise Damaged(f"{path} is damaged: {error}") from None
        values.pop("checksum", None)
        return values

    def metrics_bytes(self) -> bytes:
        """The content of metrics.csv; empty if the file does not exist."""
        try:
            return self.files.read(METRICS, MOST_METRICS)
        except FileNotFoundError:
            return b""

    def read_metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv as numbers."""
        path = self.path / METRICS
        if not path.exists():
            raise ValueError(f"{self.path} has no {METRICS}")
        return rows_of(self.metrics_bytes(), path)

    def write_policy(self, policy: Policy) -> None:
        """Write policy.npz."""
        policy.save(self.path / "policy.npz")

    def read_policy(self) -> Policy:
        """The policies of all seeds, from policy.npz."""
        path = self.path / "policy.npz"
        if not path.exists():
            raise ValueError(f"{self.path} has no policy yet: policy.npz is missing")
        return Policy.read(self.files.open("policy.npz"), path)

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically: on failure the previous file stays."""
        self.files.write_bytes(name, data)


def _is_unused(path: Path) -> bool:
    """Whether a folder holds at most what a run killed at its start leaves behind."""
    expected = (".lock", PARTIAL)
    return path.is_dir() and all(p.name.startswith(expected) for p in path.iterdir())


def _flock(file: IO[bytes], kind: int, timeout: float) -> bool:
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
