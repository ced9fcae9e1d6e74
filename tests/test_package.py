"""The package: what it imports, how fast it starts, and what it contains."""

import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import surefoot

ROOT = Path(__file__).parents[1]


def python(*words: str) -> tuple[str, float]:
    """Output and processor seconds of a Python process; warnings are errors."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-W", "error", *words], capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert not done.stderr
    return done.stdout, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.parametrize(
    ("words", "seconds"),
    [(("-c", "import surefoot"), 0.3), (("-m", "surefoot", "--help"), 0.5)],
)
def test_it_starts_quickly(words, seconds):
    """Best of three; the bound has room for a slow machine."""
    assert min(python(*words)[1] for _ in range(3)) < 2 * seconds


def test_environments_and_policies_do_not_import_jax():
    code = """
import sys
import gymnasium
import surefoot
for task in ("PointGoal", "PointGoal2", "AntCircle1", "HopperVelocity"):
    env = surefoot.make(task, num_envs=2, seed=0)
    env.reset(seed=0)
    env.step(env.action_space.sample())
gymnasium.make_vec("surefoot/CarGoal-v0", num_envs=2).reset(seed=0)
surefoot.adapt("Pendulum-v1", cost=lambda obs, action, after: 0 * obs[:, 0]).reset()
import surefoot.safety_gymnasium as safety_gymnasium
safety_gymnasium.make("SafetyPointGoal1-v0").reset(seed=0)
surefoot.Policy
print("jax" in sys.modules)
"""
    assert python("-c", code)[0] == "False\n"


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert project["version"] == surefoot.__version__
    assert changes.split("\n## ")[1].startswith(f"{surefoot.__version__} ")
    assert f"version: {surefoot.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_package_is_small():
    """A wheel holds what lies in src/surefoot."""
    files = [path for path in (ROOT / "src" / "surefoot").rglob("*") if path.is_file()]
    sizes = sum(path.stat().st_size for path in files if "__pycache__" not in path.parts)
    assert sizes < 5_000_000
