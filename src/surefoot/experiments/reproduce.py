"""From the name of an experiment to its page: train what is missing, then report all runs."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import jax

from surefoot.experiments.experiment import EXPERIMENTS, Experiment
from surefoot.experiments.job import Block, Job
from surefoot.experiments.library import Plan, Results, find_runs, make_plan
from surefoot.experiments.on_ray import OnRay
from surefoot.experiments.options import Options
from surefoot.experiments.scheduler import SHARING, Local, default_slots, run_blocks
from surefoot.experiments.sections import missing
from surefoot.report.compare import every_task
from surefoot.report.data import RunData
from surefoot.report.page import write_page
from surefoot.report.table import plural
from surefoot.runs.interrupt import stop_at_once

Report = Callable[[str], None]
"""Receives a line of text."""


def overview(options: Options) -> list[dict[str, object]]:
    """All experiments as plain values, with the number of complete seeds of each job."""
    device, _ = _device(options)
    runs, _ = _runs(options)
    rows = []
    for name in EXPERIMENTS:
        experiment = EXPERIMENTS[name]
        jobs = [
            {name: getattr(plan.job, name) for name in ("task", "algorithm", "preset", "note")}
            | {"steps": plan.steps, "seeds": plan.job.seeds, "done": plan.done}
            for plan in _plans(_distinct(experiment.jobs, device), runs, options, device)
        ]
        about = {"name": name, "title": experiment.title, "summary": experiment.summary}
        rows.append({**about, "jobs": jobs})
    return rows


def reproduce(name: str, options: Options, report: Report) -> tuple[Path, list[str]]:
    """Train what is missing of an experiment and write its page.

    Args:
        name: The experiment's name, or a reference to an `Experiment` (my_jobs.py:EXPERIMENT).
        options: How to run it.
        report: Receives a line for every run that is used or left out, and for every training.

    Returns:
        The page, and a message for each training that failed.
    """
    experiment = EXPERIMENTS[name]
    device, gpus = _device(options)
    runs, problems = _runs(options)
    plans = _plans(_distinct(experiment.jobs, device), runs, options, device)
    for line in [*_used(plans, len(runs)), *(f"left out: {problem}" for problem in problems)]:
        report(line)
    failed = []
    if not options.report_only and any(plan.blocks for plan in plans):
        errors = _train(experiment, plans, options, device, gpus, report)
        failed = [f"{block}: {error}" for block, error in errors.items()]
        runs, _ = _runs(options)
    plans = _plans(experiment.jobs, runs, options, device)
    results = Results(experiment.jobs, plans, options.out / experiment.name)
    return _write_page(experiment, name, results, failed, options), failed


def _used(plans: Sequence[Plan], total: int) -> list[str]:
    """A line for every run that is used, and the number of those that match no job."""
    lines: dict[Path, str] = {}
    for plan in plans:
        for run in (*plan.complete, *plan.partial):
            kind, end = "used", ""
            if run in plan.partial:
                kind = "longer" if run.info.steps > plan.steps else "partial"
                end = f", {run.real_steps:,} of {plan.steps:,} real steps"
            about = f"{run.info.task_name}, {run.info.algorithm}"
            seeds = plural(len(run.info.seeds), "seed")
            lines[run.path] = f"{kind}: {run.path} ({about}, {seeds}){end}"
    unused = total - len(lines)
    return [*lines.values(), *[f"{plural(unused, 'run')} not used"] * bool(unused)]


def _write_page(
    experiment: Experiment, name: str, results: Results, failed: list[str], options: Options
) -> Path:
    groups = results.groups(experiment.jobs)
    if not groups:
        raise ValueError(f"experiment={name!r} has no run to report yet")
    parts = [part(results) for part in experiment.parts] or every_task(groups, results.folder)
    left = missing(results)
    lead = experiment.summary
    if left is not None:
        lead += f" Not complete: see “{left.title}”."
    if failed:
        lead += f" Failed: {'; '.join(failed)}."
    command = ["surefoot", "reproduce", name]
    for field, default in (("seeds", None), ("device", "auto")):
        if (value := getattr(options, field)) != default:
            command += [f"--{field}", f"{value}"]
    sections = [part for part in (*parts, left) if part is not None]
    page = results.folder / "index.html"
    return write_page(page, experiment.title, lead, groups, sections, shlex.join(command))


def _train(
    experiment: Experiment,
    plans: Sequence[Plan],
    options: Options,
    device: str,
    gpus: int,
    report: Report,
) -> dict[Block, str]:
    """Train all that is left of the plans, here or on Ray."""
    blocks = list({block.folder: block for plan in plans for block in plan.blocks}.values())
    done = len({run.path for plan in plans for run in plan.complete})
    environment = experiment.environment
    with ExitStack() as stack:
        if options.on == "ray":
            start = OnRay(device, options.ray_address, options.jobs, environment)
            slots = stack.enter_context(start).slots
        elif device == "gpu" and not gpus:
            raise ValueError(
                "device='gpu', but JAX has no GPU: check the driver and pip install "
                "'surefoot[cuda]', or use --report-only"
            )
        else:
            start = Local(device, gpus, options.out / "logs", environment)
            slots = lambda: options.jobs or default_slots(gpus)
        again = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        stack.enter_context(stop_at_once(f"stopped and saved; to resume: {again}"))
        progress = (lambda line: None) if options.quiet else report
        return run_blocks(blocks, start, slots, progress, done)


def _device(options: Options) -> tuple[str, int]:
    """cpu or gpu, and the number of GPUs of this machine."""
    if options.device == "cpu":
        return "cpu", 0
    for name, value in SHARING.items():  # otherwise this process would occupy the GPU's memory
        os.environ.setdefault(name, value)
    gpus = jax.local_device_count() if jax.default_backend() == "gpu" else 0
    return ("gpu" if gpus or options.device == "gpu" else "cpu"), gpus


def _distinct(jobs: Sequence[Job], device: str) -> list[Job]:
    """Of jobs that differ only in their number of seeds, those with most."""
    ascending = sorted(jobs, key=lambda job: job.seeds)
    return list({(job.name(device), job.alone): job for job in ascending}.values())


def _runs(options: Options) -> tuple[list[RunData], list[str]]:
    """All runs that may be used, and a message for each that is unreadable."""
    trained = [options.trained] if options.trained.is_dir() else []
    return find_runs([*trained, *options.runs])


def _plans(
    jobs: Sequence[Job], runs: Sequence[RunData], options: Options, device: str
) -> list[Plan]:
    jobs = [replace(job, seeds=options.seeds or job.seeds) for job in jobs]
    return [
        make_plan(job, runs, options.trained, device, options.block or job.seeds) for job in jobs
    ]
