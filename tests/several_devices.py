"""Runs in a process of its own, which has four devices: `python tests/several_devices.py [FOLDER]`.

Prints one JSON object: what `over_seeds` computes there, and where; or, with FOLDER, the evaluation
of a run that trains two seeds, each on a device.
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from harness import start
from surefoot.algorithms.seeds import over_seeds, pick_seeds, seed_keys
from surefoot.use.evaluate import evaluate

CASES = ((8, False), (6, True), (7, False))
"""Seeds, and whether a device runs its own one after the other."""


def one_seed(key, state, factor):
    """Draws, a loop that ends at another time for each seed, and an empty array."""
    x = state["x"] + factor * jax.random.normal(key, state["x"].shape)
    count = jax.lax.while_loop(lambda n: n * 3 < x.sum() + 9, lambda n: n + 1, 0)
    return {"x": x, "none": state["none"]}, count


def functions() -> dict:
    found = {}
    for seeds, in_turn in CASES:
        state = {"x": jnp.ones((seeds, 5)), "none": jnp.zeros((seeds, 0))}
        step = over_seeds(one_seed, seeds, shared=(2,), donate=(1,), in_turn=in_turn)
        state, _ = step(seed_keys(range(seeds)), state, 2.0)
        compiled = step.lower(seed_keys(range(seeds)), state, 2.0).compile()
        state, count = compiled(seed_keys(range(seeds)), state, 2.0)
        alone = pick_seeds(state, [3])["x"]
        found[f"{seeds} {in_turn}"] = {
            "devices": [len(x.sharding.device_set) for x in (*state.values(), count, alone)],
            "x": np.asarray(state["x"]).tolist(),
            "count": np.asarray(count).tolist(),
            "alone": alone.tolist(),
        }
    return found


def run(folder: str) -> dict:
    return evaluate(start("mbppo-lagrangian", Path(folder), 1), 1, plan="look-ahead")


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1]) if sys.argv[1:] else functions()))
