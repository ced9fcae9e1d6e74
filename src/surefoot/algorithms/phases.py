"""Wall-clock time by phase of training."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Phases:
    """Adds up the seconds spent in each phase."""

    def __init__(self, before: Mapping[str, float] | None = None) -> None:
        """`before` holds the seconds of an earlier part of the run."""
        self._seconds = {name: float(seconds) for name, seconds in (before or {}).items()}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start

    def seconds(self) -> dict[str, float]:
        return dict(self._seconds)
