"""Seeds shared by several devices: the numbers of one, and checkpoints that move between them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from harness import PER_EPOCH, came_to, start
from several_devices import CASES, one_seed
from surefoot.algorithms.seeds import over_seeds, seed_keys
from surefoot.runs.checkpoint import newest_sound
from surefoot.runs.resume import resume

SCRIPT = Path(__file__).parent / "several_devices.py"
USED = {8: 4, 6: 3, 7: 1}
"""Of four devices, as many as divide the seeds."""


def on_four_devices(*words):
    """What `several_devices.py` prints in a process with four devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def functions():
    return on_four_devices()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """What a run on four devices comes to, and its folder."""
    run = tmp_path_factory.mktemp("devices") / "run"
    return on_four_devices(str(run)), run


@pytest.mark.parametrize(("seeds", "in_turn"), CASES)
def test_devices_share_the_seeds_evenly(functions, seeds, in_turn):
    there = functions[f"{seeds} {in_turn}"]
    state = {"x": jnp.ones((seeds, 5)), "none": jnp.zeros((seeds, 0))}
    step = over_seeds(one_seed, seeds, shared=(2,))
    for _ in range(2):
        state, count = step(seed_keys(range(seeds)), state, 2.0)
    assert there["devices"] == [USED[seeds]] * 3 + [1]
    assert there["count"] == count.tolist() and len(set(there["count"])) > 1
    np.testing.assert_array_equal(np.float32(there["x"]), state["x"])
    np.testing.assert_array_equal(np.float32(there["alone"]), state["x"][3:4])


@pytest.mark.slow
def test_a_run_on_several_devices_has_the_numbers_of_one(elsewhere, tmp_path):
    """Up to rounding: programs for several devices are compiled differently."""
    found, run = elsewhere
    alone = start("mbppo-lagrangian", tmp_path / "alone", 1, seeds=1, seed=1)
    one, several = (newest_sound(path / "checkpoints")[0] for path in (alone, run))
    assert several.meta["device"] == f"4 x {one.meta['device']}"
    for name, array in one.arrays.items():
        if name.startswith("trainer/dataset"):  # collected before anything was learned
            np.testing.assert_array_equal(several.arrays[name][1:], array)
        elif name.startswith(("trainer/", "policy/weight", "policy/bias")):
            np.testing.assert_allclose(several.arrays[name][1:], array, 1e-4, 1e-5)
    assert len(found["seeds"]) == 2


@pytest.mark.slow
def test_one_device_resumes_what_several_began(elsewhere):
    run = elsewhere[1]
    assert resume(run, steps=2 * PER_EPOCH, quiet=True) == run
    assert len(came_to(run)["metrics.csv"]) == 1 + 2 * 2
