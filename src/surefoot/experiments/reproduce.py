"""From an experiment's name to its page: what is missing is trained, and all of it reported."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

import jax

from surefoot.experiments.experiment import Experiment
from surefoot.experiments.job import Block, Job
from surefoot.experiments.library import Known, Plan, known_runs, make_plan, near_misses
from surefoot.experiments.on_ray import OnRay
from surefoot.experiments.progress import Progress
from surefoot.experiments.results import Results
from surefoot.experiments.scheduler import (
    SHARING,
    Handle,
    Local,
    Outcome,
    default_slots,
    run_blocks,
)
from surefoot.experiments.sections import claims, missing
from surefoot.paper.catalogue import EXPERIMENTS
from surefoot.report.page import write_page
from surefoot.runs.interrupt import stop_at_once

HOME = Path("runs/reproduced")


@dataclass(frozen=True)
class Asked:
    """How an experiment is to be run."""

    seeds: int | None = None
    """Seeds of every job; what the experiment says if not given."""
    scale: float = 1.0
    """Share of the real steps."""
    out: Path = HOME
    """Where runs and pages go."""
    runs: tuple[Path, ...] = ()
    """Other runs, or folders with runs, that may be taken."""
    report_only: bool = False
    """Train nothing."""
    jobs: int | None = None
    """Trainings at once; what the machine takes if not given."""
    block: int | None = None
    """Most seeds of one run; all if not given."""
    on: str = "here"
    """here or ray."""
    ray_address: str | None = None
    """Where a Ray is; one is started on this machine if not given."""
    shared: bool = True
    """Whether the workers of Ray see the same folders as this machine."""
    device: str = "auto"
    """What learns, and whose presets count: auto, cpu or gpu."""
    quiet: bool = False
    """Show no progress."""

    def __post_init__(self) -> None:
        for name in ("seeds", "jobs", "block"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if not (isfinite(self.scale) and 0 < self.scale <= 1):
            raise ValueError(f"scale={self.scale} must be above 0 and at most 1")
        for name, choices in (("on", ("here", "ray")), ("device", ("auto", "cpu", "gpu"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r} must be one of {choices}")
        if self.ray_address is not None and self.on != "ray":
            raise ValueError(f"ray_address={self.ray_address!r} needs on='ray'")

    @property
    def trained(self) -> Path:
        """The folder of all runs, which experiments share."""
        return self.out / "trained"


def find_experiment(name: str) -> Experiment:
    """An experiment by name."""
    if name not in EXPERIMENTS:
        near = get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        known = ", ".join(EXPERIMENTS)
        raise ValueError(f"experiment={name!r} is unknown{hint} Known: {known}")
    return EXPERIMENTS[name]


def overview(asked: Asked) -> list[dict[str, Any]]:
    """All experiments: what they contain, and how many of their seeds are done."""
    device = _device(asked)[0]
    known, _ = _known(asked)
    rows = []
    for experiment in EXPERIMENTS.values():
        wanted = _largest(_jobs(experiment, asked, device), device)
        plans = [_plan(job, known, asked, device) for job in wanted]
        jobs = [
            {
                "task": plan.job.task,
                "algorithm": plan.job.algorithm,
                "preset": plan.job.preset,
                "note": plan.job.note,
                "steps": plan.steps,
                "seeds": plan.job.seeds,
                "done": plan.done,
            }
            for plan in plans
        ]
        row = {"name": experiment.name, "title": experiment.title, "about": experiment.about}
        rows.append(row | {"jobs": jobs})
    return rows


def reproduce(name: str, asked: Asked, say: Callable[[str], None]) -> tuple[Path, list[str]]:
    """Train what is missing of an experiment and write its page.

    Returns the page and, in words, the trainings that failed. `say` is told which runs are taken.
    """
    experiment = find_experiment(name)
    device, gpus = _device(asked)
    jobs = _jobs(experiment, asked, device)
    known, problems = _known(asked)
    plans = [_plan(job, known, asked, device) for job in _largest(jobs, device)]
    taken = {(run.path, plan.steps): run for plan in plans for run in plan.taken}
    begun = {run.path: run for plan in plans for run in plan.begun}
    for (_, steps), run in taken.items():
        longer = run.config.steps > steps
        say(_told(f"taken up to {steps:,} real steps" if longer else "taken", run))
    for run in begun.values():
        say(_told("not finished", run))
    for line in [*problems, *near_misses(plans, known, device)]:
        say(line)
    blocks = list({block.folder: block for plan in plans for block in plan.blocks}.values())
    outcomes: dict[Block, Outcome] = {}
    if blocks and not asked.report_only:
        done = list({run.path: run for run in taken.values() if run.finished}.values())
        outcomes = _train(blocks, done, asked, device, gpus, experiment.environment)
    known, _ = _known(asked)
    after = [_plan(job, known, asked, device) for job in jobs]
    title = experiment.title + ("" if asked.scale == 1 else f", scale {asked.scale:g}")
    folder = asked.out / (name if asked.scale == 1 else f"{name}-scale-{asked.scale:g}")
    results = Results(experiment.jobs, after, folder)
    failed = [
        f"{block}: {found.message}" for block, found in outcomes.items() if not found.finished
    ]
    return _report(experiment, title, results, failed, _again(name, asked)), failed


def _told(kind: str, run: Known) -> str:
    count = f"{len(run.seeds)} seed{'s' * (len(run.seeds) > 1)}"
    return f"{kind}: {run.path} ({run.info['task']}, {run.info['algorithm']}, {count})"


def _report(
    experiment: Experiment, title: str, results: Results, failed: list[str], again: str
) -> Path:
    groups = results.groups(experiment.jobs)
    if not groups:
        raise ValueError(f"experiment={experiment.name!r} has no run to report of yet")
    results.folder.mkdir(parents=True, exist_ok=True)
    found = [claim for judge in experiment.judges for claim in judge(results)]
    left = missing(results)
    parts = [*(part(results) for part in experiment.parts), left]
    sections = [claims(found)] * bool(found) + [part for part in parts if part is not None]
    lead = experiment.about
    if left is not None:
        lead += f" Not complete: see “{left.title}”."
    if failed:
        lead += f" Failed: {'; '.join(failed)}."
    return write_page(results.folder / "index.html", title, lead, groups, sections, again)


def _again(name: str, asked: Asked) -> str:
    """What to type for the same page; where its runs lie is for whoever types it to say."""
    words = ["surefoot", "reproduce", name]
    for field, usual in (("seeds", None), ("scale", 1.0), ("device", "auto")):
        if (value := getattr(asked, field)) != usual:
            words += [f"--{field}", f"{value}"]
    return shlex.join(words)


def _train(
    blocks: list[Block],
    done: list[Known],
    asked: Asked,
    device: str,
    gpus: int,
    environment: Mapping[str, str],
) -> dict[Block, Outcome]:
    with ExitStack() as stack:
        start: Callable[[Block], Handle]
        if asked.on == "ray":
            ray = stack.enter_context(
                OnRay(device, asked.ray_address, asked.jobs, asked.shared, environment)
            )
            start, slots = ray, ray.slots
        else:
            if device == "gpu" and not gpus:
                raise ValueError(
                    "device='gpu', but JAX finds none: check the driver and pip install "
                    "'surefoot[cuda]', or say --report-only"
                )
            start = Local(device, gpus, asked.out / "logs", environment)
            slots = lambda: asked.jobs or default_slots(gpus)
        again = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        stack.enter_context(stop_at_once(f"stopped and saved; to go on, the same again: {again}"))
        progress = stack.enter_context(Progress(blocks, done, slots(), device, asked.quiet))
        return run_blocks(blocks, start, slots, progress)


def _device(asked: Asked) -> tuple[str, int]:
    """cpu or gpu, and how many GPUs this machine has."""
    if asked.device == "cpu":
        return "cpu", 0
    for name, value in SHARING.items():  # or this process would keep the GPU from its trainings
        os.environ.setdefault(name, value)
    gpus = jax.local_device_count() if jax.default_backend() == "gpu" else 0
    return ("gpu" if gpus or asked.device == "gpu" else "cpu"), gpus


def _jobs(experiment: Experiment, asked: Asked, device: str) -> list[Job]:
    """The experiment's jobs, one for one, as they are asked for."""
    seeds = {} if asked.seeds is None else {"seeds": asked.seeds}
    return [replace(job, **seeds).scaled(asked.scale, device) for job in experiment.jobs]


def _largest(jobs: Sequence[Job], device: str) -> list[Job]:
    """Of jobs that differ only in their number of seeds, those with most."""
    found: dict[tuple[str, bool], Job] = {}
    for job in jobs:
        key = (job.name(device), job.alone)
        if key not in found or found[key].seeds < job.seeds:
            found[key] = job
    return list(found.values())


def _known(asked: Asked) -> tuple[list[Known], list[str]]:
    ours, problems = known_runs([asked.trained], True) if asked.trained.is_dir() else ([], [])
    others, more = known_runs(asked.runs, False)
    return [*ours, *others], [*problems, *more]


def _plan(job: Job, known: list[Known], asked: Asked, device: str) -> Plan:
    return make_plan(job, known, asked.trained, device, asked.block or job.seeds)
