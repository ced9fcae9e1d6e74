"""How time and memory of training grow with seeds, rollouts, data and environments."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import jax
import numpy as np

from surefoot.algorithms.algorithm import ALGORITHMS
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.benchmark.parts import SMALL, TASK, Parts
from surefoot.benchmark.timing import Row, alternate, work_clock
from surefoot.envs.task import find_task
from surefoot.runs.device import device_name
from surefoot.use.programs import Part

SIZES = {
    "seeds": (1, 8, 64),
    "rollouts": (96, 768, 6_144),
    "rows": (10_000, 100_000, 1_000_000),
    "environments": (8, 64, 512),
}
"""By what the work grows: a pass of practice, a pass, a fit, and collecting."""
STEEPEST = 1.25
"""Exponents above this are worse than linear. Large arrays leave the caches, which costs up to a
third per eightfold size; a quadratic step would have an exponent near 2."""


def benchmark(
    preset: str | None, quantities: Sequence[str], sizes: Sequence[int] = ()
) -> Iterator[Row]:
    """A row for each size: seconds of work per call, peak bytes, and how both grew.

    With a `preset`, its settings are measured instead of small ones. The exponent of the time is 1
    if it is proportional to the size.
    """
    base = SMALL
    if preset is not None:
        algorithm = ALGORITHMS["mbppo-lagrangian"]
        base = algorithm.preset(preset, find_task(TASK), jax.default_backend())
    for quantity in quantities:
        if quantity not in SIZES:
            raise ValueError(f"quantity={quantity!r} must be one of {', '.join(SIZES)}")
        before: tuple[int, float, int] | None = None
        for n in sorted(sizes or SIZES[quantity]):
            part = _part(base, quantity, n)
            seconds, memory = alternate(part.call, clock=work_clock())[0], part.memory()
            row: Row = {
                "quantity": quantity, "size": n, "seconds": seconds, "bytes": memory,
                "per_second": part.count / seconds, "unit": part.unit, "device": device_name(),
            }  # fmt: skip
            if before is not None:
                times = np.log(n / before[0])
                row["exponent"] = float(np.log(seconds / before[1]) / times)
                row["bytes_exponent"] = float(np.log(memory / before[2]) / times)
            before = n, seconds, memory
            yield row


def worse_than_linear(rows: Sequence[Row]) -> list[Row]:
    """The rows whose time or memory grew faster than their size."""
    steepest = lambda row: max(row.get("exponent", 0), row.get("bytes_exponent", 0))
    return [row for row in rows if steepest(row) > STEEPEST]


def _part(base: MBPPOConfig, quantity: str, n: int) -> Part:
    if quantity == "seeds":
        return Parts(base, seeds=n).practise()
    if quantity == "rollouts":
        elites = base.ensemble.elites
        return Parts(replace(base, rollouts=-(-n // elites) * elites)).practise()
    return Parts(base).fit(n) if quantity == "rows" else Parts(base).collect(n)
