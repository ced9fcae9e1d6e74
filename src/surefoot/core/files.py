"""Files in a folder that a stranger may have filled. SECURITY.md says what is promised.

No link is followed below the folder, nothing but a regular file is opened, no open waits, and
reads are bounded. Files are replaced as a whole, by way of a name that nobody can predict.
"""

import errno
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

PARTIAL = ".partial"
"""What the names of unfinished files begin with."""
MOST_JSON = 2**24
"""Bytes of a JSON file."""
MOST_METRICS = 2**28
"""Bytes of metrics.csv."""
MOST_NESTED = 50
"""Levels of lists and dicts in a JSON file."""
FLAGS = {"rb": os.O_RDONLY, "ab": os.O_WRONLY | os.O_APPEND | os.O_CREAT, "r+b": os.O_RDWR}
REFUSED = (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR)
"""How systems refuse to open links, pipes, sockets and folders."""


class Damaged(ValueError):
    """A file is not what was written."""


class Folder:
    """Opens and replaces the files of one folder."""

    def __init__(self, path: Path, inside: bool = False):
        """A folder `inside` another one must not be a link."""
        self.path, self._inside = path, inside

    @contextmanager
    def _handle(self) -> Iterator[int]:
        """A descriptor of the folder, from which its files are opened."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | self._inside * os.O_NOFOLLOW)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, *REFUSED):  # systems differ in what a link is
                raise
            raise Damaged(f"{self.path} is damaged: it is not a folder") from None
        try:
            yield handle
        finally:
            os.close(handle)

    def open(self, name: str, mode: Literal["rb", "ab", "r+b"] = "rb") -> IO[bytes]:
        """Open a regular file; `Damaged` for anything else. Mode "ab" creates it.

        A file that has other names, perhaps outside the folder, is copied before it is appended to.
        """
        flags = FLAGS[mode] | os.O_NOFOLLOW | os.O_NONBLOCK
        with self._handle() as folder:
            try:
                handle = os.open(checked(name), flags, 0o666, dir_fd=folder)
            except OSError as error:
                if error.errno in REFUSED:
                    raise Damaged(f"{self.path / name} is damaged: it is not a file") from None
                raise OSError(error.errno, error.strerror, str(self.path / name)) from None
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            os.close(handle)
            raise Damaged(f"{self.path / name} is damaged: it is not a file")
        if mode == "ab" and status.st_nlink > 1:
            os.close(handle)
            with self.open(name) as file:
                self.write_bytes(name, file.read())
            return self.open(name, mode)
        return os.fdopen(handle, mode)

    def read(self, name: str, most: int) -> bytes:
        """The content of a file; `Damaged` if it has more than `most` bytes."""
        with self.open(name) as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise Damaged(f"{self.path / name} is damaged: it has more than {most:,} bytes")
        return data

    def write(self, write: Callable[[IO[bytes]], str], sync: bool = True) -> Path:
        """Write a file as a whole: on failure the previous one stays; returns its path.

        `write` writes the content and returns the file's name. With `sync` the file survives a
        power failure.
        """
        partial = f"{PARTIAL}-{secrets.token_hex(8)}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with self._handle() as folder:
            try:
                with os.fdopen(os.open(partial, flags, 0o666, dir_fd=folder), "w+b") as file:
                    name = checked(write(file))
                    file.flush()
                    if sync:
                        os.fsync(file.fileno())
                os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(partial, dir_fd=folder)
            if sync:
                os.fsync(folder)  # so that the new name survives too
        return self.path / name

    def write_bytes(self, name: str, data: bytes, sync: bool = True) -> Path:
        """Write a file as a whole."""

        def write(file: IO[bytes]) -> str:
            file.write(data)
            return name

        return self.write(write, sync)

    def rename(self, name: str, new: str) -> None:
        """Rename a file; one of the new name is replaced."""
        with self._handle() as folder:
            os.replace(checked(name), checked(new), src_dir_fd=folder, dst_dir_fd=folder)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        with self._handle() as folder, suppress(FileNotFoundError):
            os.unlink(checked(name), dir_fd=folder)

    def kinds(self) -> dict[str, int]:
        """The type of every entry, as `stat` has it, by name; empty if there is no folder."""
        kinds = {}
        with suppress(FileNotFoundError), self._handle() as folder:
            for name in sorted(os.listdir(folder)):
                with suppress(FileNotFoundError):  # another process may remove files
                    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                    kinds[name] = stat.S_IFMT(mode)
        return kinds

    def foreign(self) -> list[str]:
        """A message for each entry that is neither a file nor a folder: links, pipes, devices."""
        return [
            f"{self.path / name} is neither a file nor a folder"
            for name, kind in self.kinds().items()
            if kind not in (stat.S_IFREG, stat.S_IFDIR)
        ]

    def clean(self) -> None:
        """Remove the unfinished files of processes that were killed."""
        for name, kind in self.kinds().items():
            if name.startswith(PARTIAL) and kind != stat.S_IFDIR:
                self.remove(name)


def checked(name: str) -> str:
    """A name of a file within a folder; a ValueError if it could lead elsewhere."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"name={name!r} must be that of a file in the folder")
    return name


def parse_json(data: bytes | str) -> dict[str, Any]:
    """The values of a JSON object; a ValueError if it is something else, or nested too deeply."""
    try:
        values = json.loads(data)
    except RecursionError:
        raise ValueError(f"it has more than {MOST_NESTED} levels") from None
    if not isinstance(values, dict):
        raise ValueError("it is not a JSON object")
    level: list[dict[str, object] | list[object]] = [values]
    for _ in range(MOST_NESTED):
        inner = [x.values() if isinstance(x, dict) else x for x in level]
        level = [x for values in inner for x in values if isinstance(x, dict | list)]
        if not level:
            return values
    raise ValueError(f"it has more than {MOST_NESTED} levels")


def printable(text: object) -> str:
    """A text without control characters: what a terminal or a page would act on is escaped."""
    plain = lambda c: c.isprintable() or c == "\N{NO-BREAK SPACE}"
    return "".join(c if plain(c) else ascii(c)[1:-1] for c in str(text))


def printable_lines(text: object) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(printable, str(text).split("\n")))
