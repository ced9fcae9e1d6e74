"""Shared by all tests: paths of recordings, and a cache of compiled programs."""

import mmap
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
# Tests compile much and compute little: without optimisations they take less than half the time.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


def compiler_has(option: str) -> bool:
    """Whether jaxlib's compiler knows an option; an unknown one would abort the process."""
    for library in Path(find_spec("jaxlib").origin).parent.glob("libjax_common.*"):
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code,
        ):
            return code.find(option.encode()) >= 0
    return False


# Without the emitters of fused loops, compiling takes nearly half the time. `make test-all` keeps
# them, as users do.
if "XLA_FLAGS" not in os.environ and compiler_has("xla_cpu_use_fusion_emitters"):
    os.environ["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false"

DATA = Path(__file__).parent / "data"


@pytest.fixture
def optimised():
    """Compile as users do: for tests that compute much, or that depend on rounding."""
    import jax

    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def call(capsys):
    """Exit code, stdout and stderr of a command, in this process."""
    from surefoot import cli  # after the settings above

    def call(*words: str) -> tuple[int, str, str]:
        code: object = 0
        try:
            cli.main(list(words))
        except SystemExit as end:
            code = end.code
        seen = capsys.readouterr()
        assert "Traceback" not in seen.out + seen.err
        # As Python does: None is success, and a message is failure.
        return (code if isinstance(code, int) else int(code is not None)), seen.out, seen.err

    return call
