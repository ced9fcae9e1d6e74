"""A run on disk: one folder with its config, metrics, checkpoints and result."""

import csv
import dataclasses
import json
import os
import time
import types
import typing
from pathlib import Path
from typing import Any

import jax
import numpy as np

from surefoot.policy import Policy


class RunFolder:
    """Writes into one run's folder; nothing is ever half-written."""

    def __init__(self, path: Path):
        self.path = path

    @staticmethod
    def new(name: str, out: str | Path | None) -> "RunFolder":
        """A fresh folder: `out` itself, or runs/NAME-DATE with a number if that is taken."""
        if out is not None:
            path = Path(out)
            if path.exists() and any(path.iterdir() if path.is_dir() else [path]):
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

    def write_json(self, name: str, value: Any) -> None:
        self._write(name, json.dumps(value, indent=1).encode())

    def read_json(self, name: str) -> Any:
        path = self.path / name
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            raise ValueError(f"{self.path} is not a finished run: {name} is missing") from None
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is damaged: {error}") from None

    def append_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Add a row per seed to metrics.csv."""
        path = self.path / "metrics.csv"
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            if new:
                writer.writeheader()
            writer.writerows(rows)
            file.flush()

    def read_metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv as numbers."""
        with (self.path / "metrics.csv").open(newline="") as file:
            return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]

    def write_policy(self, policy: Policy) -> None:
        policy.save(self.path / "policy.npz")

    def read_policy(self) -> Policy:
        path = self.path / "policy.npz"
        if not path.exists():
            raise ValueError(f"{self.path} holds no policy yet (policy.npz is missing)")
        return Policy.load(path)

    def write_state(self, state: Any, epoch: int) -> None:
        """The whole learning state, beside the last good one until it is safe on disk."""
        arrays = {f"leaf_{i:04d}": _array(x) for i, x in enumerate(jax.tree.leaves(state))}
        folder = self.path / "checkpoints"
        folder.mkdir(exist_ok=True)
        temporary = folder / ".partial.npz"
        with temporary.open("wb") as file:
            # numpy says that any of the arrays might be the option `allow_pickle`.
            np.savez(file, epoch=np.array(epoch), **arrays)  # pyright: ignore[reportArgumentType]
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / "last.npz")

    def read_state(self, template: Any) -> tuple[Any, int]:
        """The state last written, in the shape of `template`, and its epoch."""
        leaves, tree = jax.tree.flatten(template)
        with np.load(self.path / "checkpoints" / "last.npz", allow_pickle=False) as data:
            read = [_like(data[f"leaf_{i:04d}"], leaf) for i, leaf in enumerate(leaves)]
            return jax.tree.unflatten(tree, read), int(data["epoch"])

    def _write(self, name: str, data: bytes) -> None:
        temporary = self.path / f".{name}.partial"
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)


def _array(x: Any) -> np.ndarray:
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    return np.asarray(x)


def _like(x: np.ndarray, leaf: Any) -> Any:
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jax.numpy.asarray(x))
    return jax.numpy.asarray(x)


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
