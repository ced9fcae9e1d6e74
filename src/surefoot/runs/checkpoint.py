"""Checkpoints: a run's whole state in one file each, written whole or not at all.

A file is a plain .npz, arrays by name, and its own name ends in its checksum, so that nothing
damaged is ever taken for sound. No pickle is written or read: a stranger's run cannot run code.
"""

import hashlib
import json
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

FORMAT = 2
NAME = re.compile(r"epoch-(\d{6,})\.([0-9a-f]{32})\.npz")


class Damaged(ValueError):
    """A file is not what was written."""


@dataclass(frozen=True)
class Checkpoint:
    """The state at the end of an epoch."""

    meta: dict[str, Any]
    """Plain values: epoch, version, the run's config.json …"""
    arrays: dict[str, np.ndarray]
    """Everything else, by name."""


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    found = [p for p in folder.glob("epoch-*.npz") if NAME.fullmatch(p.name)]
    return sorted(found, key=epoch_of, reverse=True)


def epoch_of(path: Path) -> int:
    """Which epoch a checkpoint was written after."""
    named = NAME.fullmatch(path.name)
    if named is None:
        raise Damaged(f"{path} is not named as checkpoints are")
    return int(named[1])


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint; it exists under its name only once all of it is safe on disk."""
    folder.mkdir(exist_ok=True)
    partial = folder / ".partial"
    meta = np.array(json.dumps({"format": FORMAT, **checkpoint.meta}, default=plain_number))
    try:
        with partial.open("w+b") as file:
            # numpy says that any of the arrays might be the option `allow_pickle`.
            np.savez(file, **{"meta": meta, **checkpoint.arrays})  # pyright: ignore[reportArgumentType]
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            digest = _digest(file)
        path = folder / f"epoch-{checkpoint.meta['epoch']:06d}.{digest}.npz"
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(folder)
    return path


def is_sound(path: Path) -> bool:
    """Whether a checkpoint's bytes are those that were written."""
    named = NAME.fullmatch(path.name)
    with path.open("rb") as file:
        return named is not None and _digest(file) == named[2]


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; `Damaged` if it is not as it was written."""
    if not is_sound(path):
        raise Damaged(f"{path} is damaged: its checksum is not the one in its name")
    with path.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as data:
                arrays = {name: data[name] for name in data.files}
            meta = dict(json.loads(str(arrays.pop("meta"))))
            written = meta["format"]
        # NotImplementedError: what zip files can hold and Python cannot read.
        except (ValueError, KeyError, TypeError, EOFError, NotImplementedError,
                BadZipFile, zlib.error) as error:  # fmt: skip
            raise Damaged(f"{path} is not a checkpoint: {error}") from None
    if written != FORMAT:
        raise ValueError(
            f"{path} has format {written}, written by Surefoot {meta.get('version')}; "
            f"this version reads format {FORMAT}"
        )
    if meta.get("epoch") != epoch_of(path):
        raise Damaged(f"{path} is not a checkpoint: its epoch is said to be {meta.get('epoch')}")
    return Checkpoint(meta, arrays)


def newest_sound(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that can be read, and what was wrong with those after it."""
    problems = []
    for path in list_checkpoints(folder):
        try:
            return read_checkpoint(path), problems
        except Damaged as damage:
            problems.append(str(damage))
    return None, problems


def prune(folder: Path, keep: int, scores: dict[int, tuple[bool, float]]) -> None:
    """Delete all but the last `keep` checkpoints and the best of those that have a score."""
    paths = list_checkpoints(folder)
    best = best_of(paths, scores)
    for path in paths[keep:]:
        if path != best:
            path.unlink(missing_ok=True)


def best_of(paths: list[Path], scores: dict[int, tuple[bool, float]]) -> Path | None:
    """The checkpoint with the best score, of those that have one."""
    scored = [path for path in paths if epoch_of(path) in scores]
    return max(scored, key=lambda path: scores[epoch_of(path)], default=None)


def plain_number(x: Any) -> Any:
    """A number of numpy's as JSON takes it."""
    if not isinstance(x, np.generic):
        raise TypeError(f"{x!r} is not a plain value")
    return x.item()


def sync_folder(folder: Path) -> None:
    """Make names written into a folder safe against a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(file: Any) -> str:
    return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
