"""The program keeps freed memory between calls."""

import platform
import subprocess
import sys

import pytest

from surefoot import __main__ as entry

FAULTS = """
import resource
import numpy as np
from surefoot.core.memory import keep_memory
if KEEP:
    keep_memory()
def fill():
    for _ in range(20):
        np.empty(2**25, np.uint8)[::4096] = 1
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: bool) -> int:
    """Page faults of a program of its own that fills 20 arrays of 32 MiB a second time."""
    script = FAULTS.replace("KEEP", str(keep))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left alone")
def test_large_arrays_reuse_memory():
    """20 arrays of 32 MiB have 163,840 pages of 4 KiB, fewer if the system gives out huge ones."""
    assert faults(keep=False) > 300
    assert faults(keep=True) < 100


def test_the_program_keeps_memory_before_anything_else(monkeypatch):
    calls = []
    monkeypatch.setattr(entry, "keep_memory", lambda: calls.append("memory"))
    monkeypatch.setattr(entry, "main", lambda: calls.append("main"))
    monkeypatch.setattr(sys, "argv", ["x"])
    entry.program()
    assert calls == ["memory", "main"]
