"""The rows of a metrics.csv, read as numbers and checked."""

import csv
import io
from itertools import pairwise
from pathlib import Path

from surefoot.core.files import Damaged

MOST_COUNT = 10**15
COUNTS = ("seed", "epoch", "steps", "violations")
COLUMNS = (*COUNTS, "reward", "cost", "cost_limit", "seconds")


def rows_of(metrics: bytes, path: Path) -> list[dict[str, float]]:
    """The rows of a metrics.csv as numbers; `path` is for error messages."""
    rows: list[dict[str, float]] = []
    try:
        for row in csv.DictReader(io.StringIO(metrics.decode(), newline=""), strict=True):
            numbers = {name: float(value) for name, value in row.items()}
            counts = [numbers.get(name, 0.0) for name in COUNTS]
            if not all(x.is_integer() and 0 <= x <= MOST_COUNT for x in counts):
                raise ValueError
            rows.append(numbers)
    except (ValueError, TypeError, csv.Error):
        raise Damaged(f"{path} is damaged in row {len(rows) + 1}") from None
    missing = [name for name in COLUMNS if rows and name not in rows[0]]
    if missing:
        raise Damaged(f"{path} is damaged: it has no column {', '.join(missing)}")
    epochs = [0, *(row["epoch"] for row in rows)]
    for i, (before, epoch) in enumerate(pairwise(epochs), start=1):
        if epoch - before not in (0, 1) or not epoch:
            raise Damaged(f"{path} is damaged in row {i}: epoch {epoch:g} follows {before:g}")
    return rows
