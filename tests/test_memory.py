"""The program keeps freed memory between calls."""

import os
import platform
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries are left alone"
)

FAULTS = """
import os, resource, sys
import numpy as np
from surefoot.core.memory import keep_memory
print("started", *sys.argv[1:])
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


def run(keep: bool, **env: str) -> list[str]:
    """What a program of its own prints that fills 20 arrays of 32 MiB."""
    script = FAULTS.replace("KEEP", str(keep))
    kept = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-u", "-c", script, "two words"],
        capture_output=True, text=True, env=kept | env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_large_arrays_reuse_memory():
    """20 arrays of 32 MiB have 163,840 pages of 4 KiB, fewer if the system gives out huge ones."""
    started, faults = run(keep=False)
    assert started == "started two words" and int(faults) > 300
    *started, faults = run(keep=True)
    assert started == ["started two words"] * 2 and int(faults) < 100


def test_settings_of_the_user_stay():
    started, faults = run(keep=True, GLIBC_TUNABLES="glibc.malloc.check=0")
    assert started == "started two words" and int(faults) > 300


WAITING = """
import os, signal
from surefoot.core.memory import keep_memory
from surefoot.runs.interrupt import end_at_signals
keep_memory()
os.kill(os.getpid(), signal.SIGINT)
print("started")
end_at_signals()
print("not reached")
"""


def test_a_signal_while_the_program_starts_again_counts_once_it_can():
    env = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    with subprocess.Popen(
        [sys.executable, "-u", "-c", WAITING], stdout=subprocess.PIPE, text=True, env=env
    ) as child:
        assert child.communicate(timeout=60)[0] == "started\n"
    assert child.returncode == -signal.SIGINT
