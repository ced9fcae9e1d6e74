"""`Experiment`: what to train and how to show it; and the registry of experiments."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from surefoot.core.registry import Registry
from surefoot.experiments.job import Job
from surefoot.experiments.library import Results
from surefoot.report.page import Section

BUILTIN = {
    "pointgoal": "surefoot.paper.catalogue:POINT_GOAL",
    "cargoal": "surefoot.paper.catalogue:CAR_GOAL",
    "rccar": "surefoot.paper.catalogue:RC_CAR",
    "beta-pointgoal": "surefoot.paper.catalogue:BETA_POINT_GOAL",
    "beta-cargoal": "surefoot.paper.catalogue:BETA_CAR_GOAL",
    "beta-rccar": "surefoot.paper.catalogue:BETA_RC_CAR",
    "aggregates": "surefoot.paper.catalogue:AGGREGATES",
    "running-time": "surefoot.paper.catalogue:RUNNING_TIME",
    "validation-loss": "surefoot.paper.catalogue:VALIDATION_LOSS",
    "doggogoal": "surefoot.paper.catalogue:DOGGO_GOAL",
    "paper": "surefoot.paper.catalogue:PAPER",
    "smoke": "surefoot.paper.smoke:SMOKE",
}
"""Built-in experiments: the attribute that holds each, loaded on first use."""
Part = Callable[[Results], Section | None]
"""Makes a section of the page; None if its runs are missing."""


@dataclass(frozen=True)
class Experiment:
    """What to train and how to show it: `surefoot reproduce my_jobs.py:EXPERIMENT`."""

    name: str
    """Name of the experiment and of its page's folder."""
    title: str
    """Title of the page."""
    summary: str
    """First paragraph of the page."""
    jobs: tuple[Job, ...]
    parts: tuple[Part, ...] = ()
    """Sections of the page; by default figures for every task."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the trainings; variables that are set already win."""


EXPERIMENTS: Registry[Experiment] = Registry(Experiment, "experiment", BUILTIN)
