"""How an experiment is run. This module imports neither JAX nor Matplotlib."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from surefoot.core.config import Count, check


@dataclass(frozen=True)
class Options:
    """How an experiment is run."""

    seeds: Count | None = None
    """Seeds of every job; None: as the experiment defines."""
    out: Path = Path("runs/reproduced")
    """Folder of runs and pages. Experiments share their runs."""
    runs: tuple[Path, ...] = ()
    """Runs, or folders with runs, to use where their settings match."""
    report_only: bool = False
    """Train nothing; report the runs that exist."""
    jobs: Count | None = None
    """Trainings at once; None: as many as cores or GPUs allow."""
    block: Count | None = None
    """Most seeds trained side by side in one run; None: all."""
    on: Literal["here", "ray"] = "here"
    """Where to train: here, or on ray, as tasks of a Ray cluster that shares the folder --out."""
    ray_address: str | None = None
    """Address of a Ray cluster; None: start Ray on this machine."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Device that trains, and whose presets apply; auto uses a GPU if there is one."""
    quiet: bool = False
    """Show no progress."""

    def __post_init__(self) -> None:
        check(self)
        if self.ray_address is not None and self.on != "ray":
            raise ValueError(f"ray_address={self.ray_address!r} needs on='ray'")

    @property
    def trained(self) -> Path:
        """The folder of all new runs."""
        return self.out / "trained"
