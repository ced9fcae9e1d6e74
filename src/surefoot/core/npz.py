"""Arrays in .npz files, read one at a time: nothing is read before its size is known."""

import os
from collections.abc import Iterator, Mapping
from errno import EINVAL
from math import prod
from typing import IO, NamedTuple
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy

HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
MOST_AXES = 32


class Entry(NamedTuple):
    """What the header of an array promises."""

    shape: tuple[int, ...]
    columns_first: bool
    dtype: np.dtype

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


class Arrays(Mapping[str, np.ndarray]):
    """The arrays of a file that `numpy.savez` wrote; each is read when it is used.

    Such files are not compressed, so all arrays together are no larger than the file. Headers that
    contradict that are refused, as are Python objects, which would have to be unpickled.
    """

    def __init__(self, file: IO[bytes]):
        """Takes over the file; a ValueError says why it is not sound."""
        self._entries: dict[str, Entry] = {}
        with file:
            self._handle = os.dup(file.fileno())
        try:
            self._archive = ZipFile(os.fdopen(self._handle, "rb", closefd=False))
            self._members = {info.filename: info for info in self._archive.infolist()}
            if len(self._members) < len(self._archive.infolist()):
                raise ValueError("an array occurs twice")
            size = sum(info.file_size for info in self._members.values())
            if size > os.fstat(self._handle).st_size:
                raise ValueError("its arrays are larger than the file")
            for name, info in self._members.items():
                self._entries[name.removesuffix(".npy")] = self._entry(info)
        except Exception as error:  # zip and numpy raise many kinds for damaged bytes
            if isinstance(error, OSError) and error.errno != EINVAL:  # of the disk
                raise
            raise ValueError(f"not sound: {error}") from None

    def _entry(self, info: ZipInfo) -> Entry:
        if info.compress_type != ZIP_STORED or not info.filename.endswith(".npy"):
            raise ValueError(f"{info.filename} is compressed, or not an array")
        with self._archive.open(info) as member:
            entry = _header(member)
            if member.tell() + entry.bytes != info.file_size:
                raise ValueError(f"{info.filename} has another size than its header says")
        return entry

    def entry(self, name: str) -> Entry:
        """Shape and type of an array, without reading it."""
        return self._entries[name]

    def take(self, name: str) -> np.ndarray:
        """Read an array, and forget it."""
        array = self[name]
        del self._entries[name]
        return array

    def __getitem__(self, name: str) -> np.ndarray:
        shape, columns_first, dtype = entry = self._entries[name]
        try:
            with self._archive.open(self._members[name + ".npy"]) as member:
                _header(member)
                array = np.frombuffer(bytearray(member.read(entry.bytes)), dtype)
            return array.reshape(shape, order="F" if columns_first else "C")
        except Exception as error:
            raise ValueError(f"{name} cannot be read: {error}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # the mapping's own would read the array

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __del__(self) -> None:
        os.close(self._handle)


def entry_of(arrays: Mapping[str, np.ndarray], name: str) -> Entry:
    """Shape and type of an array, without reading it from a file."""
    if isinstance(arrays, Arrays):
        return arrays.entry(name)
    return Entry(arrays[name].shape, False, arrays[name].dtype)


def _header(member: IO[bytes]) -> Entry:
    version = npy.read_magic(member)
    if version not in HEADERS:
        raise ValueError(f"it has an array of format {version}")
    entry = Entry(*HEADERS[version](member))
    if entry.dtype.hasobject or not entry.dtype.itemsize:
        raise ValueError(f"it has an array of {entry.dtype}")
    if len(entry.shape) > MOST_AXES or not all(0 <= n < 2**48 for n in entry.shape):
        raise ValueError(f"it has an array of shape {entry.shape}")
    return entry
