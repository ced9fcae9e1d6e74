"""Snapshots of environments, which let a run resume exactly.

An environment supports this if it has `snapshot()`, which returns nested dicts of numpy arrays
(names without "/"), and `restore(state)`. The built-in tasks do. Among adapted environments each
single one must; the adapter saves their `np_random`. A Gymnasium wrapper hides both methods and has
state of its own (`TimeLimit` counts steps), so its outermost layer must implement both.
"""

import json
from collections.abc import Callable

import numpy as np

from surefoot.envs.base import Info


def snapshot(env: object) -> Info | None:
    """All that the environment needs to continue exactly; None if it has no snapshots."""
    save: Callable[[], Info] | None = getattr(env, "snapshot", None)
    return save() if callable(save) and callable(getattr(env, "restore", None)) else None


def from_generator(rng: np.random.Generator) -> np.ndarray:
    """The state of a numpy generator of any kind, as bytes in an array."""
    listed = lambda x: x.tolist()
    return np.frombuffer(json.dumps(rng.bit_generator.state, default=listed).encode(), np.uint8)


def to_generator(rng: np.random.Generator, state: np.ndarray) -> None:
    """The inverse of `from_generator`, for a generator of the same kind."""
    rng.bit_generator.state = json.loads(state.tobytes())
