"""A dataset of real steps: on the device for learning, on the host for checkpoints."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from surefoot.algorithms.seeds import by_seed, over_seeds
from surefoot.core.arrays import Tree

Rows = Mapping[str, np.ndarray | Array]
"""Arrays [S, N, …] by name, numpy or jax."""


class Dataset:
    """The latest `capacity` steps of every seed, as named arrays [S, capacity, …] on the device.

    The host holds a copy of what each epoch added, so a checkpoint need not fetch the dataset from
    the device.
    """

    def __init__(
        self, capacity: int, seeds: int, row: Mapping[str, np.ndarray] | None = None,
        most: float = math.inf,
    ):  # fmt: skip
        """`row` is an example of a row; `most` bounds the capacity with inherited rows."""
        self._capacity, self._seeds, self._most = capacity, seeds, most
        self.row = row or {}
        self.inherited = 0
        """Steps from another run that the dataset began with."""
        self._put = over_seeds(_put, seeds, shared=(2,), donate=(0,))
        self._pending: list[Rows] = []
        self._epochs: list[dict[str, np.ndarray]] = []
        self.rows: dict[str, Array] = {}
        self.count = 0
        """Steps added so far, of each seed, inherited and overwritten ones included."""

    @property
    def size(self) -> int:
        """Steps that the dataset holds, of each seed."""
        return min(self.count, self._capacity)

    def add(self, rows: Rows) -> None:
        """Append rows; the oldest are overwritten once the dataset is full."""
        self._append(rows)
        self._pending.append(rows)

    def end_epoch(self) -> None:
        """Copy what was added since the last call to the host; drop what was overwritten."""
        chunks, self._pending = jax.device_get(self._pending), []
        joined = {name: np.concatenate([c[name] for c in chunks], 1) for name in chunks[0]}
        self._epochs.append(_read_only(joined))
        while sum(map(_length, self._epochs[1:])) >= self._capacity:
            self._epochs.pop(0)

    def inherit(self, rows: Rows) -> None:
        """Begin with another run's rows, the latest ones that fit, beside room for one's own."""
        length = int(min(_length(rows), self._most))
        rows = {name: np.asarray(x)[:, x.shape[1] - length :] for name, x in rows.items()}
        self._make_room(length)
        self._append(rows)
        self._epochs.append(_read_only(rows))

    def _make_room(self, inherited: int) -> None:
        self.inherited = inherited
        self._capacity = int(min(self._capacity + inherited, self._most))

    def snapshot(self) -> Tree:
        """What each epoch added, as arrays that never change, and the number of inherited rows."""
        if not self.inherited:
            return list(self._epochs)
        epochs = {str(i): rows for i, rows in enumerate(self._epochs)}
        return {"inherited": self.inherited, **epochs}

    def restore(self, parts: Mapping[str, Tree], steps: int) -> None:
        """Fill the dataset from a snapshot of a run that has taken `steps` steps."""
        count = len(parts) - ("inherited" in parts)
        self._epochs = [_read_only(dict(parts[str(i)])) for i in range(count)]
        self._make_room(int(parts.get("inherited", 0)))
        self.rows, self.count = {}, self.inherited + steps - sum(map(_length, self._epochs))
        for rows in self._epochs:
            self._append(rows)

    def _append(self, rows: Rows) -> None:
        length = _length(rows)
        if length > self._capacity:
            raise ValueError(f"{length} steps at once exceed the capacity of {self._capacity}")
        if not self.rows:
            self.rows = {name: self._zeros(x) for name, x in rows.items()}
        self.rows = self._put(self.rows, dict(rows), jnp.int32(self.count % self._capacity))
        self.count += length

    def _zeros(self, x: np.ndarray | Array) -> Array:
        shape = (self._seeds, self._capacity, *x.shape[2:])
        return jnp.zeros(shape, x.dtype, device=by_seed(self._seeds))


def _put(
    rows: dict[str, Shaped[Array, "C ..."]], new: dict[str, Shaped[Array, "N ..."]], start: Array
) -> dict[str, Shaped[Array, "C ..."]]:
    """Rows of one seed with `new` ones from row `start` on, wrapping around."""

    def put(ring: Array, x: Array) -> Array:
        index = (start + jnp.arange(x.shape[0])) % ring.shape[0]
        return ring.at[index].set(x)

    return {name: put(ring, new[name]) for name, ring in rows.items()}


def _length(rows: Rows) -> int:
    return next(iter(rows.values())).shape[1]


def _read_only(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays, protected from writes: snapshots share them without a copy."""
    arrays = {name: np.asarray(x) for name, x in rows.items()}
    for x in arrays.values():
        x.flags.writeable = False
    return arrays
