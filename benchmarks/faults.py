"""Kill training at random moments, fill its disk, and have commands read mutated run folders.

    python benchmarks/faults.py --kills 1000 --mutations 10000 > docs/results/faults.json

Kills go over all algorithms, and every run is compared with one that was never interrupted. Counts
are printed as JSON, progress to stderr; the exit code is 1 if anything differs or fails.
"""

import argparse
import json
import os
import platform
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # where the same numbers are promised
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "surefoot-faults-jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import harness
from surefoot import __version__

say = lambda text: print(text, file=sys.stderr, flush=True)


class Forked:
    """The harness in a process that need not import anything; used like a `Popen`.

    This process must not use JAX before: a fork would copy its locks, but not its threads.
    """

    def __init__(self, *words: str):
        read, write = os.pipe()
        self._errors = os.fdopen(os.memfd_create("errors"), "w+")
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            os.dup2(write, 1)
            os.dup2(self._errors.fileno(), 2)
            try:
                harness.main(*words)
                sys.stdout.flush()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(1)
        os.close(write)
        self.stdout = os.fdopen(read)

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def communicate(self) -> tuple[str, str]:
        with self.stdout, self._errors:
            output = self.stdout.read()
            self._wait(0)
            self._errors.seek(0)
            return output, self._errors.read()

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def kills(folder: Path, count: int, epochs: int, rng: random.Random, minutes: float) -> dict:
    """Kill runs of every algorithm in turn until there were `count` kills."""
    whole: dict[str, Any] = {}
    by_algorithm, moments, different = Counter(), Counter(), dict[str, list[str]]()
    runs, end = 0, time.monotonic() + 60 * minutes
    while by_algorithm.total() < count and time.monotonic() < end:
        algorithm = list(harness.TINY)[runs % len(harness.TINY)]
        if algorithm not in whole:
            out = folder / algorithm
            assert not harness.kill_until_done(algorithm, out, epochs, 0, rng, 0.0, Forked)
            whole[algorithm] = harness.came_to(out)
        out = folder / f"{algorithm}-{runs}"
        most = min(10, count - by_algorithm.total())
        killed = harness.kill_until_done(algorithm, out, epochs, most, rng, 0.5, Forked)
        if names := harness.differences(whole[algorithm], harness.came_to(out)):
            different[out.name] = names
        say(f"{algorithm}: killed after epochs {killed}; different: {names or 'nothing'}")
        by_algorithm[algorithm] += len(killed)
        moments.update("before the first epoch" if not e else "later" for e in killed)
        runs += 1
        shutil.rmtree(out)
    return {
        "kills": by_algorithm.total(), "runs": runs, "by_algorithm": dict(by_algorithm),
        "moments": dict(moments), "different": different,
    }  # fmt: skip


def mutations(folder: Path, count: int, seed: int) -> dict:
    """Mutate finished runs of every algorithm, and have commands read them in this process."""
    from mutations import COMMANDS, Fuzzer

    counts, failures, slowest = Counter[str](), list[str](), 0.0
    for i, algorithm in enumerate(harness.TINY):
        source, home = folder / f"{algorithm}-source", folder / f"{algorithm}-mutated"
        harness.start(algorithm, source, 2)
        home.mkdir()
        # A planner compiles anew for every evaluation, which takes seconds.
        commands = [c for c in COMMANDS if algorithm != "safe-loop" or c != "evaluate"]
        fuzzer = Fuzzer(source, home, seed + i, commands)
        with fuzzer.quick():
            for _ in range(count * (i + 1) // len(harness.TINY) - count * i // len(harness.TINY)):
                fuzzer.one()
                counts["folders"] += 1
        counts, slowest = counts + fuzzer.counts, max(slowest, fuzzer.slowest)
        failures += fuzzer.failures
        say(f"{algorithm}: {counts['folders']} folders so far, {len(failures)} failures")
    part = lambda start: {
        k.removeprefix(start): n for k, n in sorted(counts.items()) if k.startswith(start)
    }
    commands = {k: n for k, n in sorted(counts.items()) if " exit " in k}
    failed = dict.fromkeys(
        ("traceback", "hang", "touched", "control character", "misled", "unsound"), 0
    )
    return {
        "folders": counts["folders"], "by_mutation": part("mutation "), "commands": commands,
        "failed": failed | part("failed: "), "failures": failures[:50],
        "slowest_command_seconds": round(slowest, 2),
    }  # fmt: skip


def full_disk(folder: Path, epochs: int) -> dict:
    """Train on a disk too small for it; make room, resume, and compare. Needs to be root."""
    mount, out = folder / "small", folder / "small" / "run"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)])
    if made.returncode:
        return {"error": "a small disk cannot be mounted here; pass --no-full-disk"}
    try:
        command = [sys.executable, harness.__file__, "ppo-lagrangian", str(out), str(epochs)]
        full = subprocess.run(command, capture_output=True, text=True)
        message = full.stderr.strip().splitlines()[-1].replace(str(out), "RUN")
        subprocess.run(["mount", "-o", "remount,size=64m", str(mount)], check=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # it counts its epochs
        whole = folder / "ppo-lagrangian"
        if not whole.exists():
            harness.start("ppo-lagrangian", whole, epochs)
        different = harness.differences(harness.came_to(whole), harness.came_to(out))
        sound = full.returncode != 0 and "cannot be written" in message and not different
        result = {"exit_code": full.returncode, "message": message, "different": different}
        return result if sound else {**result, "error": "the run did not survive a full disk"}
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop killing after this long")
    parser.add_argument("--mutations", type=int, default=0, help="folders to mutate")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-full-disk", dest="full_disk", action="store_false")
    options = parser.parse_args()
    start = time.monotonic()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    result: dict[str, Any] = {
        "command": shlex.join(["python", *sys.argv]),
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine,
        "version": __version__,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.kills:
            rng = random.Random(options.seed)
            result["kills"] = kills(folder, options.kills, options.epochs, rng, options.minutes)
        if options.full_disk:
            result["full_disk"] = full_disk(folder, options.epochs)
        if options.mutations:
            result["mutations"] = mutations(folder, options.mutations, options.seed)
    result["seconds"] = round(time.monotonic() - start)
    print(json.dumps(result, indent=1))
    bad = result.get("kills", {}).get("different") or result.get("mutations", {}).get("failures")
    sys.exit(1 if bad or "error" in result.get("full_disk", {}) else 0)


if __name__ == "__main__":
    main()
