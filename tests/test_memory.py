"""Memory that is kept between calls."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, threading
import numpy as np
from surefoot.core.memory import keep_memory
if KEEP:
    keep_memory()
def fill():
    for _ in range(20):
        np.empty(2**26, np.uint8)[::4096] = 1
def faults():
    fill()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    fill()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
faults()
thread = threading.Thread(target=faults)
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left alone")
def test_large_arrays_reuse_memory_in_all_threads():
    def measured(keep: bool) -> list[int]:
        script = FAULTS.replace("KEEP", str(keep))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [int(line) for line in done.stdout.split()]

    # 20 arrays of 64 MiB have 327,680 pages of 4 KiB, fewer if the system gives out huge ones.
    before, after = measured(False), measured(True)
    assert min(before) > 500 and max(after) < 100
