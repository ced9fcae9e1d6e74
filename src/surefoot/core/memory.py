"""Memory that the C library keeps for the next call instead of giving it back to the system."""

import ctypes
import sys

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt(3)."""


def keep_memory() -> None:
    """Let glibc keep up to 2 GiB of freed memory: large arrays come from the heap.

    A pass of practice needs tens of megabytes for a moment. glibc would return them to the system
    each time, and every page that is new again costs a fault. In return the process stays as large
    as it once was. Call this when a program of our own starts; other C libraries are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(MMAP_MAX, 0)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
