"""Tables of a report, and the texts in their cells."""

import math
import re
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


def spread(mean: float | None, std: float | None, digits: int = 1) -> str:
    """A mean and the standard deviation over seeds; the deviation is None for one seed."""
    if mean is None or math.isnan(mean):
        return "-"
    text = f"{mean:,.{digits}f}"
    return text if std is None or math.isnan(std) else f"{text} ± {std:,.{digits}f}"


def spread_of(values: np.ndarray, digits: int = 1) -> str:
    """The mean and standard deviation of the values [S] of all seeds."""
    mean = float(values.mean())
    return spread(mean, std_of(values), 0 if abs(mean) >= 1000 else digits)


def std_of(values: np.ndarray) -> float:
    """The standard deviation over seeds [S]; NaN for one seed."""
    return float(values.std(ddof=1)) if len(values) > 1 else float("nan")


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours."""
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def plural(number: int, noun: str) -> str:
    """A number and its noun: 1 seed, 2 seeds."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def with_note(label: str, note: str) -> str:
    """A label with a note in its brackets; the label itself if the note is empty."""
    if not note:
        return label
    return f"{label[:-1]}, {note})" if label.endswith(")") else f"{label} ({note})"


def slug(text: str) -> str:
    """A text as the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "task"
