"""Kill training at random moments, many times, and compare with runs that were never interrupted.

python benchmarks/faults.py --kills 100        # across all algorithms; exit code 1 at a difference
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # where the same numbers are promised
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "surefoot-faults-jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import harness


def kills(folder: Path, count: int, epochs: int, rng: random.Random) -> bool:
    """Kill runs of every algorithm in turn until there were `count` kills."""
    whole = {}
    done, number, good = 0, 0, True
    while done < count:
        algorithm = list(harness.TINY)[number % len(harness.TINY)]
        if algorithm not in whole:
            out = folder / algorithm
            assert not harness.kill_until_done(algorithm, out, epochs, 0, rng, 0.0)
            whole[algorithm] = harness.came_to(out)
        out = folder / f"{algorithm}-{number}"
        killed = harness.kill_until_done(algorithm, out, epochs, min(5, count - done), rng, 1.0)
        different = harness.differences(whole[algorithm], harness.came_to(out))
        print(
            f"{algorithm}: killed {len(killed)} times, at epochs {', '.join(map(str, killed))}; "
            f"different: {different or 'nothing'}",
            flush=True,
        )
        good &= not different
        done, number = done + len(killed), number + 1
        shutil.rmtree(out)
    print(f"{done} kills over {number} runs")
    return good


def full_disk(folder: Path, epochs: int) -> bool:
    """Train on a disk too small for it; make room, go on, and compare. Needs to be root."""
    mount, out = folder / "small", folder / "small" / "run"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)])
    if made.returncode:
        print("full disk: FAILED, a small disk cannot be mounted here (or say --no-full-disk)")
        return False
    try:
        command = [sys.executable, harness.__file__, "ppo-lagrangian", str(out), str(epochs)]
        full = subprocess.run(command, capture_output=True, text=True)
        said = full.stderr.strip().splitlines()[-1]
        print(f"full disk: exit code {full.returncode}; {said.replace(str(out), 'RUN')}")
        subprocess.run(["mount", "-o", "remount,size=64m", str(mount)], check=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # it counts its epochs
        whole = folder / "ppo-lagrangian"
        if not whole.exists():
            harness.start("ppo-lagrangian", whole, epochs)
        different = harness.differences(harness.came_to(whole), harness.came_to(out))
        print(f"full disk: after room was made, different: {different or 'nothing'}")
        return full.returncode != 0 and "cannot be written" in said and not different
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-full-disk", dest="full_disk", action="store_false")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        good = kills(Path(folder), options.kills, options.epochs, random.Random(options.seed))
        if options.full_disk:
            good &= full_disk(Path(folder), options.epochs)
        else:
            print("full disk: not tried")
    sys.exit(not good)


if __name__ == "__main__":
    main()
