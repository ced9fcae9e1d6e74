"""One stream of random numbers per environment.

An episode depends on its seed alone, not on the number of environments or threads. Most tasks have
Mersenne twisters, as their reference has. Their numbers are drawn in blocks ahead of use, which
makes "every environment consumes one number" a single vector addition.
"""

from collections.abc import Callable, Sequence

import numpy as np

BLOCK = 256
WORDS = 1024


def _saved(twisters: Sequence[np.random.RandomState]) -> dict[str, np.ndarray]:
    """Where the twisters are, as arrays."""
    states = [twister.get_state(legacy=False)["state"] for twister in twisters]
    return {
        "keys": np.stack([state["key"] for state in states]),
        "positions": np.array([state["pos"] for state in states]),
    }


def _restore(twisters: Sequence[np.random.RandomState], state: dict[str, np.ndarray]) -> None:
    """Continue the twisters from what `_saved` returned."""
    for twister, key, position in zip(twisters, state["keys"], state["positions"], strict=True):
        twister.set_state(("MT19937", key, int(position), 0, 0.0))


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
        own = {"block": self._block.copy(), "used": self._used.copy()}
        return {**_saved(self._twisters), **own}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from what `state` returned."""
        _restore(self._twisters, state)
        self._block[:] = state["block"]
        self._used[:] = state["used"]


class WordStreams:
    """N Mersenne twisters, drawn as 32-bit words, for tasks that also choose among buttons.

    A double takes two words and a choice takes one, as in numpy's `RandomState`.
    """

    def __init__(self, seeds: Sequence[int]):
        self._twisters = [np.random.RandomState() for _ in seeds]
        self._words = np.zeros((len(seeds), WORDS), np.uint32)
        self._used = np.full(len(seeds), WORDS, dtype=np.int64)
        self.seed(range(len(seeds)), seeds)

    def seed(self, ids: Sequence[int], seeds: Sequence[int]) -> None:
        """Restart the streams `ids` from the given seeds."""
        for i, seed in zip(ids, seeds, strict=True):
            self._twisters[i].seed(int(seed))
            self._used[i] = WORDS

    def skip_one(self) -> None:
        """Every stream consumes one double."""
        for i in np.flatnonzero(self._used > WORDS - 2).tolist():
            self._refill(i)
        self._used += 2

    def peek(self, i: int, count: int) -> np.ndarray:
        """The next doubles of stream i, in [0, 1), which remain to be drawn."""
        if self._used[i] + 2 * count > WORDS:
            self._refill(i)
        used = self._used[i]
        pairs = self._words[i, used : used + 2 * count].reshape(count, 2)
        return ((pairs[:, 0] >> 5) * 67108864.0 + (pairs[:, 1] >> 6)) / 9007199254740992.0

    def skip(self, i: int, count: int) -> None:
        """Stream i consumes doubles that were peeked at."""
        self._used[i] += 2 * count

    def draw(self, i: int, low: float, high: float) -> float:
        """The next double of stream i, between the bounds."""
        if self._used[i] > WORDS - 2:
            self._refill(i)
        a, b = self._words[i, self._used[i] : self._used[i] + 2].tolist()
        self._used[i] += 2
        return low + (high - low) * (((a >> 5) * 67108864.0 + (b >> 6)) / 9007199254740992.0)

    def choose(self, i: int, count: int) -> int:
        """A whole number below `count`, from stream i."""
        mask = (1 << (count - 1).bit_length()) - 1
        while True:
            if count > 1 and self._used[i] >= WORDS:
                self._refill(i)
            word = int(self._words[i, self._used[i]]) & mask if count > 1 else 0
            self._used[i] += count > 1
            if word < count:
                return word

    def _refill(self, i: int) -> None:
        left = WORDS - self._used[i]
        self._words[i, :left] = self._words[i, self._used[i] :]
        fresh = self._twisters[i].randint(0, 2**32, size=WORDS - left, dtype=np.uint32)
        self._words[i, left:] = fresh
        self._used[i] = 0

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to continue the streams."""
        own = {"words": self._words.copy(), "used": self._used.copy()}
        return {**_saved(self._twisters), **own}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from what `state` returned."""
        _restore(self._twisters, state)
        self._words[:] = state["words"]
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
