"""Compiled programs are kept where the user's other caches are, and never get in the way."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from surefoot.runs import cache

OPTIONS = (
    cache.DIRECTORY,
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_enable_xla_caches",
)


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A process whose user has chosen no directory."""
    before = {name: getattr(jax.config, name) for name in OPTIONS}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(cache.NO_CACHE, raising=False)
    monkeypatch.setattr(cache, "SHORTEST", 0.0)
    jax.config.update(cache.DIRECTORY, None)
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def compute() -> bytes:
    """What a program computes that is not in memory."""
    jax.clear_caches()
    x = jnp.linspace(0, 3, 1000)
    return np.asarray(jax.jit(lambda x: jnp.tanh(x @ jnp.outer(x, x)) + jnp.sin(x))(x)).tobytes()


def test_programs_are_kept_and_compute_the_same_numbers(home):
    compiled = compute()
    folder = cache.use_cache()
    assert folder is not None and folder.is_relative_to(home / "surefoot" / "jax")
    assert folder.stat().st_mode & 0o077 == 0
    assert compute() == compiled
    kept = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert kept and compute() == compiled
    assert {path: path.read_bytes() for path in kept} == kept
    for path in kept:
        path.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="persistent compilation cache"):
        assert compute() == compiled


def test_a_choice_of_the_user_is_left_alone(home, monkeypatch, call):
    for value in ("1", "yes"):
        monkeypatch.setenv(cache.NO_CACHE, value)
        assert cache.use_cache() is None
    monkeypatch.setenv(cache.NO_CACHE, "0")
    jax.config.update(cache.DIRECTORY, "/chosen")
    assert cache.use_cache() is None and jax.config.jax_compilation_cache_dir == "/chosen"
    jax.config.update(cache.DIRECTORY, None)
    code, _, _ = call("envs", "--no-cache")
    assert code == 0 and os.environ[cache.NO_CACHE] == "1" and cache.use_cache() is None
    assert not list(home.iterdir())


def test_without_a_directory_to_trust_nothing_is_kept(home, monkeypatch):
    """Programs of the cache are executed: a folder that others may write to is not used."""
    folder = cache.use_cache()
    jax.config.update(cache.DIRECTORY, None)
    folder.chmod(0o777)
    assert cache.use_cache() is None
    (home / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    assert cache.use_cache() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(home / "file"))
    assert cache.use_cache() is None and jax.config.jax_compilation_cache_dir is None


def test_old_programs_make_room(tmp_path):
    for age, name in enumerate("dcba"):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    left = lambda: "".join(sorted(path.name for path in tmp_path.iterdir()))
    cache.prune(tmp_path, 40)
    assert left() == "abcd"
    cache.prune(tmp_path, 39)
    assert left() == "d"
