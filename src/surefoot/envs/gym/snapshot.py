"""Environments stopped and continued: what any of them must offer for a run to go on exactly.

An environment can be continued if it has `snapshot()`, which gives nested dicts of numpy arrays
(names without "/"), and `restore(state)`, which takes them back. Surefoot's own tasks do. Of
environments that were adapted, each single one must; their `np_random` is taken care of. A
Gymnasium wrapper hides both methods, and holds state of its own (`TimeLimit` counts steps): to go
on exactly, a wrapped environment needs an outermost layer that has both and speaks for all within.
"""

import json
from typing import Any

import numpy as np


def snapshot(env: Any) -> dict[str, Any] | None:
    """All that the environment needs to go on exactly, or None if it cannot tell."""
    if not all(callable(getattr(env, name, None)) for name in ("snapshot", "restore")):
        return None
    return env.snapshot()


def from_generator(rng: np.random.Generator) -> np.ndarray:
    """The state of a numpy generator of any kind, as bytes in an array."""
    listed = lambda x: x.tolist()
    return np.frombuffer(json.dumps(rng.bit_generator.state, default=listed).encode(), np.uint8)


def to_generator(rng: np.random.Generator, state: np.ndarray) -> None:
    """The inverse of `from_generator`, for a generator of the same kind."""
    rng.bit_generator.state = json.loads(state.tobytes())
