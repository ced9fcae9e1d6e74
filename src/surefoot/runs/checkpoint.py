"""Checkpoints: the whole state of a run in one .npz file each.

A checkpoint's file name ends in the checksum of its content, so damage is always detected. Arrays
are stored by name and never pickled, so reading a checkpoint cannot execute code.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from surefoot.core.config import NonNegative, check_values
from surefoot.core.files import MOST_JSON, MOST_METRICS, Damaged, Folder, parse_json
from surefoot.core.npz import Arrays, entry_of

FORMAT = 2
NAME = re.compile(r"epoch-(\d{6,15})\.([0-9a-f]{32})\.npz")
Values = dict[str, Any]
"""Plain values by name, as JSON has them."""
META = {
    "version": str,
    "device": str,
    "seconds": NonNegative,
    "save_seconds": NonNegative,
    "info": dict,
}
ARRAYS = {"metrics": (1, "u"), "totals/steps": (0, "i"), "collector/obs": (2, "iufb")}
"""What every checkpoint of a run holds: arrays with their number of axes and kinds of numbers."""
Score = tuple[bool, float]
"""Whether a policy was within its cost limits, and its reward."""


@dataclass(frozen=True)
class Checkpoint:
    """The state at the end of an epoch."""

    meta: Values
    """Plain values: epoch, version, the run's config.json, …"""
    arrays: Mapping[str, np.ndarray]
    """The state, by name; read from the file when it is used."""
    name: str = ""
    """Of its file, which ends in the checksum of its content."""


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first; `Damaged` if the folder is a link."""
    paths = [folder / name for name in Folder(folder, inside=True).kinds() if NAME.fullmatch(name)]
    return sorted(paths, key=epoch_of, reverse=True)


def epoch_of(path: Path) -> int:
    """The epoch after which a checkpoint was written, from its file name."""
    return int(path.name.removeprefix("epoch-").partition(".")[0])


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint atomically; returns its path."""
    meta = np.array(json.dumps({"format": FORMAT, **checkpoint.meta}, default=plain_number))

    def write(file: IO[bytes]) -> str:
        # numpy's type stub takes any keyword for `allow_pickle`.
        np.savez(file, **{"meta": meta, **checkpoint.arrays})  # pyright: ignore[reportArgumentType]
        file.seek(0)
        return f"epoch-{checkpoint.meta['epoch']:06d}.{_digest(file)}.npz"

    folder.mkdir(exist_ok=True)
    return Folder(folder, inside=True).write(write)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; `Damaged` if it is not what was written."""
    file = Folder(path.parent, inside=True).open(path.name)
    match = NAME.fullmatch(path.name)
    if match is None or _digest(file) != match[2]:
        file.close()
        raise Damaged(f"{path} is damaged: its content does not match the checksum in its name")
    try:
        arrays = Arrays(file)
        if arrays.entry("meta").bytes > 4 * MOST_JSON:  # numpy stores a letter in four bytes
            raise ValueError("its values are too long")
        meta = parse_json(str(arrays.take("meta")))
        number = meta["format"]
    except (ValueError, KeyError) as error:
        raise Damaged(f"{path} is not a checkpoint: {error}") from None
    if number != FORMAT:
        raise ValueError(
            f"{path} has format={number}, written by Surefoot {meta.get('version')}; this version "
            f"reads format {FORMAT}"
        )
    if meta.get("epoch") != epoch_of(path):
        raise Damaged(f"{path} is not a checkpoint: epoch={meta.get('epoch')} contradicts its name")
    return Checkpoint(meta, arrays, path.name)


def read_complete(path: Path) -> Checkpoint:
    """Read a checkpoint; `Damaged` if it lacks something that every checkpoint of a run holds."""
    checkpoint = read_checkpoint(path)
    try:
        check_values(checkpoint.meta, META)
        for name, (axes, kinds) in ARRAYS.items():
            if name not in checkpoint.arrays:
                raise ValueError(f"{name} is missing")
            shape, _, dtype = entry = entry_of(checkpoint.arrays, name)
            if len(shape) != axes or dtype.kind not in kinds:
                raise ValueError(f"{name} is {dtype}{list(shape)}")
            if name == "metrics" and entry.bytes > MOST_METRICS:
                raise ValueError(f"{name} has more than {MOST_METRICS:,} bytes")
    except ValueError as error:
        raise Damaged(f"{path} is damaged: {error}") from None
    return checkpoint


def newest_sound(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that can be read, and the problems of newer ones."""
    problems = []
    for path in list_checkpoints(folder):
        try:
            return read_complete(path), problems
        except Damaged as damage:
            problems.append(str(damage))
        except FileNotFoundError:  # removed by the process that trains
            continue
    return None, problems


def prune(folder: Path, keep: int, scores: Mapping[int, Score]) -> None:
    """Delete all checkpoints except the latest `keep` and the one with the best score."""
    paths = list_checkpoints(folder)
    best = best_of(paths, scores)
    for path in paths[keep:]:
        if path != best:
            Folder(folder, inside=True).remove(path.name)


def best_of(paths: Sequence[Path], scores: Mapping[int, Score]) -> Path | None:
    """The checkpoint with the best score; None if none has a score."""
    scored = [path for path in paths if epoch_of(path) in scores]
    return max(scored, key=lambda path: scores[epoch_of(path)], default=None)


def plain_number(x: object) -> bool | int | float | complex | str | bytes:
    """A numpy scalar as a Python one, for `json.dumps`."""
    if not isinstance(x, np.generic):
        raise TypeError(f"{x!r} is not a plain value")
    return x.item()


def _digest(file: IO[bytes]) -> str:
    return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()  # type: ignore[arg-type]
