"""An experiment: what to train, and how to show it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from surefoot.experiments.job import Job
from surefoot.experiments.results import Results
from surefoot.paper.claims import Claim
from surefoot.report.page import Section

Part = Callable[[Results], Section | None]
Judge = Callable[[Results], list[Claim]]


@dataclass(frozen=True)
class Experiment:
    """What to train, and how to show it."""

    name: str
    """As it is typed."""
    title: str
    """The page's."""
    about: str
    """What of the paper it shows."""
    jobs: tuple[Job, ...]
    parts: tuple[Part, ...]
    """The sections of the page."""
    judges: tuple[Judge, ...] = ()
    """What holds the paper's claims against the results."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its trainings, where they are not set otherwise."""
