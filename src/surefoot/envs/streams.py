"""One stream of random numbers per environment.

Each environment has a Mersenne twister, as in the reference. So an episode depends on its seed
alone, not on the number of environments or threads. Numbers are drawn in blocks ahead of use, which
makes "every environment consumes one number" a single vector addition.
"""

from collections.abc import Callable, Sequence

import numpy as np

BLOCK = 256


class Streams:
    """N independent streams of uniform doubles in [0, 1)."""

    def __init__(self, seeds: Sequence[int]):
        self.count = len(seeds)
        self._twisters = [np.random.RandomState() for _ in seeds]
        self._block = np.empty((self.count, BLOCK))
        self._used = np.empty(self.count, dtype=np.int64)
        self.seed(range(self.count), seeds)

    def seed(self, ids: Sequence[int], seeds: Sequence[int]) -> None:
        """Restart the streams `ids` from the given seeds."""
        for i, seed in zip(ids, seeds, strict=True):
            self._twisters[i].seed(int(seed))
            self._used[i] = BLOCK

    def skip_one(self) -> None:
        """Every stream consumes one number."""
        for i in np.flatnonzero(self._used >= BLOCK).tolist():
            self._refill(i)
        self._used += 1

    def drawer(self, i: int) -> Callable[[float, float], float]:
        """A function `draw(low, high)` that takes the next number of stream i."""

        def draw(low: float, high: float) -> float:
            used = self._used[i]
            if used >= BLOCK:
                self._refill(i)
                used = 0
            self._used[i] = used + 1
            return low + (high - low) * float(self._block[i, used])

        return draw

    def _refill(self, i: int) -> None:
        self._block[i] = self._twisters[i].random_sample(BLOCK)
        self._used[i] = 0

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to continue the streams."""
        states = [t.get_state(legacy=False)["state"] for t in self._twisters]
        return {
            "keys": np.stack([s["key"] for s in states]),
            "positions": np.array([s["pos"] for s in states]),
            "block": self._block.copy(),
            "used": self._used.copy(),
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from what `state` returned."""
        for twister, key, position in zip(
            self._twisters, state["keys"], state["positions"], strict=True
        ):
            twister.set_state(("MT19937", key, int(position), 0, 0.0))
        self._block[:] = state["block"]
        self._used[:] = state["used"]
