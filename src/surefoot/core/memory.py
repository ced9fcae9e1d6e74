"""Memory that the C library keeps for the next call instead of giving it back to the system."""

import os
import signal
import sys

TUNABLES = "GLIBC_TUNABLES"
SETTINGS = {"hugetlb": 1, "mmap_max": 0, "trim_threshold": 2**31 - 1}
"""Huge pages where the system has them; large arrays come from the heap; nothing is given back."""


def keep_memory() -> None:
    """Start this program again with glibc told to keep freed memory, unless it is told already.

    A pass of practice needs tens of megabytes for a moment. glibc asks the system for them each
    time, and every new page costs a fault: on a CPU a sixth of the time of practice. glibc reads
    these settings only when a program starts. Other C libraries are left alone.

    Signals wait until `runs.interrupt.end_at_signals`: they would make Python's start fail.
    """
    if TUNABLES in os.environ or not sys.executable or not _glibc():
        return
    settings = ":".join(f"glibc.malloc.{name}={value}" for name, value in SETTINGS.items())
    os.environ[TUNABLES] = settings
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, OSError, ValueError):  # not POSIX, or another C library
        return False
