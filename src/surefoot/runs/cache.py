"""Compiled programs on disk, so that a later run need not compile them again."""

import hashlib
import os
import platform
from contextlib import suppress
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

NO_CACHE = "SUREFOOT_NO_CACHE"
"""Environment variable; compiled programs are not kept if it is set to anything but 0."""
SHORTEST = 0.2
"""Seconds of compiling that make a program worth keeping."""
LARGEST = 4 * 2**30
"""Bytes of all programs beyond which the least recently used ones are removed."""
DIRECTORY = "jax_compilation_cache_dir"


def use_cache() -> Path | None:
    """Keep compiled programs in the user's cache directory; returns where, or None if not.

    A directory that the user chose (JAX_COMPILATION_CACHE_DIR) is left alone. Call it before JAX
    compiles. A cached program is the same machine code, so it computes the same numbers.
    """
    if getattr(jax.config, DIRECTORY) or os.environ.get(NO_CACHE, "0") not in ("", "0"):
        return None
    try:
        folder = _folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        # Cached programs are executed, so nobody else may be able to write them.
        private = status.st_uid == os.getuid() and not status.st_mode & 0o022
        if not (private and os.access(folder, os.W_OK | os.X_OK)):
            return None
        prune(folder)
    except (OSError, RuntimeError):  # no home, or not writable: compile as without a cache
        return None
    jax.config.update(DIRECTORY, str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST)
    # GPUs: which kernel is fastest is measured once, so the next process takes the same.
    jax.config.update(
        "jax_persistent_cache_enable_xla_caches", "xla_gpu_per_fusion_autotune_cache_dir"
    )
    compilation_cache.reset_cache()  # JAX decides at its first compilation whether it has one
    return folder


def _folder() -> Path:
    """One folder for each kind of processor: several machines may share a home directory."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = base if base.is_absolute() else Path.home() / ".cache"
    kind = platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        kind += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return base / "surefoot" / "jax" / hashlib.blake2b(kind.encode(), digest_size=4).hexdigest()


def prune(folder: Path, largest: int = LARGEST) -> None:
    """Remove the least recently used programs if all of them exceed `largest` bytes."""
    files = [(path, path.stat()) for path in folder.iterdir() if path.is_file()]
    size = sum(status.st_size for _, status in files)
    if size <= largest:
        return
    for path, status in sorted(files, key=lambda file: max(file[1].st_atime, file[1].st_mtime)):
        if size <= largest // 2:
            return
        path.unlink(missing_ok=True)  # another process may do the same
        size -= status.st_size
