"""From the name of an experiment to its page: train what is missing, then report all runs."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from surefoot.experiments.experiment import EXPERIMENTS, Experiment
from surefoot.experiments.job import Block, Job
from surefoot.experiments.library import Plan, StoredRun, make_plan, stored_runs
from surefoot.experiments.on_ray import OnRay
from surefoot.experiments.options import Options
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
from surefoot.experiments.sections import every_task, missing
from surefoot.report.page import write_page
from surefoot.report.table import plural
from surefoot.runs.interrupt import stop_at_once


def overview(options: Options) -> list[dict[str, Any]]:
    """All experiments as plain values, with the number of complete seeds of each job."""
    device, _ = _device(options)
    runs, _ = _stored(options)
    rows = []
    for name in EXPERIMENTS:
        experiment = EXPERIMENTS[name]
        plans = _plans(_largest(_jobs(experiment, options, device), device), runs, options, device)
        jobs = [
            {name: getattr(plan.job, name) for name in ("task", "algorithm", "preset", "note")}
            | {"steps": plan.steps, "seeds": plan.job.seeds, "done": plan.done}
            for plan in plans
        ]
        rows.append(
            {"name": name, "title": experiment.title, "summary": experiment.summary, "jobs": jobs}
        )
    return rows


def reproduce(name: str, options: Options, report: Callable[[str], None]) -> tuple[Path, list[str]]:
    """Train what is missing of an experiment and write its page.

    Args:
        name: The experiment's name, or a reference to an `Experiment` (my_jobs.py:EXPERIMENT).
        options: How to run it.
        report: Receives a line for every run that is used or left out.

    Returns:
        The page, and a message for each training that failed.
    """
    experiment = EXPERIMENTS[name]
    device, gpus = _device(options)
    jobs = _jobs(experiment, options, device)
    runs, problems = _stored(options)
    plans = _plans(_largest(jobs, device), runs, options, device)
    for line in [*_used(plans, runs), *problems]:
        report(line)
    blocks = list({block.folder: block for plan in plans for block in plan.blocks}.values())
    outcomes: dict[Block, Outcome] = {}
    if blocks and not options.report_only:
        done = len({run.path for plan in plans for run in plan.complete})
        outcomes = _train(blocks, done, options, device, gpus, experiment.environment)
    runs, _ = _stored(options)
    scale = "" if options.scale == 1 else f"-scale-{options.scale:g}"
    folder = options.out / f"{experiment.name}{scale}"
    results = Results(experiment.jobs, _plans(jobs, runs, options, device), folder)
    failed = [f"{block}: {end.message}" for block, end in outcomes.items() if not end.finished]
    return _write_page(experiment, name, results, failed, options), failed


def _used(plans: Sequence[Plan], runs: Sequence[StoredRun]) -> list[str]:
    """A line for every run that is used, and the number of those that match no job."""
    lines: dict[Path, str] = {}
    for plan in plans:
        for run in (*plan.complete, *plan.partial):
            about = f"{run.path} ({run.info.task_name}, {run.info.algorithm}, "
            about += f"{plural(len(run.info.seeds), 'seed')})"
            if run in plan.partial:
                lines[run.path] = f"partial: {about}, {run.steps:,} of {plan.steps:,} real steps"
            elif run.config.steps > plan.steps:
                lines[run.path] = f"used up to {plan.steps:,} real steps: {about}"
            else:
                lines[run.path] = f"used: {about}"
    unused = len({run.path for run in runs} - set(lines))
    return [*lines.values(), *[f"{plural(unused, 'run')} not used"] * bool(unused)]


def _write_page(
    experiment: Experiment, name: str, results: Results, failed: list[str], options: Options
) -> Path:
    groups = results.groups(experiment.jobs)
    if not groups:
        raise ValueError(f"experiment={name!r} has no run to report yet")
    results.folder.mkdir(parents=True, exist_ok=True)
    parts = [part(results) for part in experiment.parts] or every_task(results)
    left = missing(results)
    sections = [part for part in (*parts, left) if part is not None]
    lead = experiment.summary
    if left is not None:
        lead += f" Not complete: see “{left.title}”."
    if failed:
        lead += f" Failed: {'; '.join(failed)}."
    title = experiment.title + ("" if options.scale == 1 else f", scale {options.scale:g}")
    command = ["surefoot", "reproduce", name]
    for field, default in (("seeds", None), ("scale", 1.0), ("device", "auto")):
        if (value := getattr(options, field)) != default:
            command += [f"--{field}", f"{value}"]
    page = results.folder / "index.html"
    return write_page(page, title, lead, groups, sections, shlex.join(command))


def _train(
    blocks: list[Block],
    done: int,
    options: Options,
    device: str,
    gpus: int,
    environment: Mapping[str, str],
) -> dict[Block, Outcome]:
    with ExitStack() as stack:
        start: Callable[[Block], Handle]
        if options.on == "ray":
            ray = stack.enter_context(OnRay(device, options.ray_address, options.jobs, environment))
            start, slots = ray, ray.slots
        else:
            if device == "gpu" and not gpus:
                raise ValueError(
                    "device='gpu', but JAX has no GPU: check the driver and pip install "
                    "'surefoot[cuda]', or use --report-only"
                )
            start = Local(device, gpus, options.out / "logs", environment)
            slots = lambda: options.jobs or default_slots(gpus)
        again = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        stack.enter_context(stop_at_once(f"stopped and saved; to resume: {again}"))
        progress = stack.enter_context(Progress(blocks, done, device, options.quiet))
        return run_blocks(blocks, start, slots, progress)


def _device(options: Options) -> tuple[str, int]:
    """cpu or gpu, and the number of GPUs of this machine."""
    if options.device == "cpu":
        return "cpu", 0
    for name, value in SHARING.items():  # otherwise this process would occupy the GPU's memory
        os.environ.setdefault(name, value)
    gpus = jax.local_device_count() if jax.default_backend() == "gpu" else 0
    return ("gpu" if gpus or options.device == "gpu" else "cpu"), gpus


def _jobs(experiment: Experiment, options: Options, device: str) -> list[Job]:
    """The experiment's jobs, with the options applied to each."""
    seeds = {} if options.seeds is None else {"seeds": options.seeds}
    return [replace(job, **seeds).scaled(options.scale, device) for job in experiment.jobs]


def _largest(jobs: Sequence[Job], device: str) -> list[Job]:
    """Of jobs that differ only in their number of seeds, those with most."""
    largest: dict[tuple[str, bool], Job] = {}
    for job in jobs:
        key = (job.name(device), job.alone)
        if key not in largest or largest[key].seeds < job.seeds:
            largest[key] = job
    return list(largest.values())


def _stored(options: Options) -> tuple[list[StoredRun], list[str]]:
    trained = [options.trained] if options.trained.is_dir() else []
    ours, problems = stored_runs(trained, resumable=True)
    others, more = stored_runs(options.runs, resumable=False)
    return [*ours, *others], [*problems, *more]


def _plans(
    jobs: Sequence[Job], runs: Sequence[StoredRun], options: Options, device: str
) -> list[Plan]:
    return [
        make_plan(job, runs, options.trained, device, options.block or job.seeds) for job in jobs
    ]
