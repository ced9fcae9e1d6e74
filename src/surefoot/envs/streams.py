"""One stream of random numbers per environment.

An episode depends on its seed alone, not on the number of environments or threads. Most tasks have
Mersenne twisters, as their reference has. Their numbers are drawn in blocks ahead of use, which
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
        if self._used.max() >= BLOCK:
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


class Generators:
    """N independent generators as Gymnasium's environments have them: PCG64."""

    def __init__(self, seeds: Sequence[int]):
        self._generators = [np.random.Generator(np.random.PCG64(seed)) for seed in seeds]

    def __getitem__(self, i: int) -> np.random.Generator:
        return self._generators[i]

    def seed(self, ids: Sequence[int], seeds: Sequence[int]) -> None:
        """Restart the generators `ids` from the given seeds."""
        for i, seed in zip(ids, seeds, strict=True):
            self._generators[i] = np.random.Generator(np.random.PCG64(int(seed)))

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to continue, if only doubles were drawn."""
        states = [g.bit_generator.state["state"] for g in self._generators]
        words = [(*divmod(s["state"], 2**64), *divmod(s["inc"], 2**64)) for s in states]
        return {"pcg64": np.array(words, np.uint64)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from what `state` returned."""
        for generator, (a, b, c, d) in zip(self._generators, state["pcg64"].tolist(), strict=True):
            words = {"state": a << 64 | b, "inc": c << 64 | d}
            rest = {"bit_generator": "PCG64", "has_uint32": 0, "uinteger": 0}
            generator.bit_generator.state = {"state": words, **rest}
