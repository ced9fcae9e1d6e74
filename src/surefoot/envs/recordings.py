"""Recordings of the reference environments, and what their comparisons share."""

from dataclasses import asdict, dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

Recording = dict[str, np.ndarray]


def load(path: Path) -> Recording:
    """All arrays of a recording (.npz)."""
    try:
        with np.load(path, allow_pickle=False) as data:
            return {name: np.asarray(data[name]) for name in data}
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except (OSError, EOFError, ValueError, TypeError, BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as .npz: {error}") from None


def require(path: Path, rec: Recording, arrays: tuple[str, ...]) -> None:
    """Raise a ValueError unless a recording has the arrays."""
    missing = [name for name in arrays if name not in rec]
    if missing:
        raise ValueError(f"{path} is not a recording: it lacks {', '.join(missing)}")


@dataclass(frozen=True)
class Report:
    """The differences between a task and one recording; a subclass defines them."""

    file: str

    def limits(self) -> dict[str, float]:
        """Tolerances of the numbers that have one."""
        raise NotImplementedError

    def failures(self) -> list[str]:
        """Differences outside the tolerance, in words."""
        out = []
        for name, limit in self.limits().items():
            value = getattr(self, name)
            if value is not None and not value <= limit:
                name = name.replace("_position", "").replace("_", " ")
                out.append(f"{name} {value:.3g} > {limit:g}")
        return out

    def line(self) -> str:
        """The differences in one line."""
        raise NotImplementedError

    def differences(self, *names: str) -> str:
        """Numbers by name, without those that are None."""
        numbers = {name: getattr(self, name) for name in names}
        return ", ".join(f"{name} {x:.1e}" for name, x in numbers.items() if x is not None)

    def as_dict(self) -> dict[str, object]:
        """Plain values, for --json."""
        failures = self.failures()
        return {**asdict(self), "ok": not failures, "failures": failures}
