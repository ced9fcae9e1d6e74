"""Shared by all tests: paths of recordings, and a cache of compiled programs."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
# Tests compile much and compute little: without optimisations they take less than half the time.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

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
