"""Trains blocks as tasks of Ray, on this machine or on a cluster that shares the output folder.

A task runs the same command as a local process. If its worker is lost, Ray starts the task again,
and the task resumes the run from its last checkpoint.
"""

import io
import os
import runpy
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import replace
from typing import Any

from surefoot.experiments.job import Block
from surefoot.experiments.scheduler import (
    CORES_PER_GPU_JOB,
    CORES_PER_JOB,
    JOBS_PER_GPU,
    SHARING,
    Handle,
    Outcome,
    last_line,
)
from surefoot.runs.device import cores

RETRIES = 10
"""How often Ray restarts a task whose worker is lost."""


def import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ValueError("on='ray' needs the extra: pip install 'surefoot[ray]'") from None
    return ray


class OnRay:
    """Trains each block as a task of Ray. A context manager that disconnects from Ray."""

    def __init__(
        self, device: str, address: str | None, jobs: int | None, environment: Mapping[str, str]
    ):
        """Connect to `address`, or start Ray on this machine with room for `jobs` tasks.

        `device` is cpu or gpu; `environment` holds variables for the workers.
        """
        self.ray = ray = import_ray()
        gpu = device == "gpu"
        self.device = device
        self.cpus, self.gpus = (CORES_PER_GPU_JOB, 1 / JOBS_PER_GPU) if gpu else (CORES_PER_JOB, 0)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        local: dict[str, Any] = {}
        if address is None:
            count = max(cores(), CORES_PER_JOB) if jobs is None else jobs * self.cpus
            local = {"num_cpus": count, "include_dashboard": False}
        elif jobs is not None:
            raise ValueError(f"jobs={jobs} needs a local Ray; a cluster has its own resources")
        try:
            ray.init(
                address=address or "local", runtime_env={"env_vars": {**SHARING, **environment}},
                log_to_driver=False, logging_level="error", **local,
            )  # fmt: skip
        except (ConnectionError, RuntimeError) as error:
            raise ValueError(f"ray_address={address!r}: cannot connect to Ray: {error}") from None
        if not self.slots():
            resources = ray.cluster_resources()
            ray.shutdown()
            raise ValueError(
                f"Each job needs {self.cpus} CPUs and {self.gpus:g} GPU; the Ray cluster has "
                f"{resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs."
            )
        self.task = ray.remote(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES,
            max_calls=1,  # one process per task: JAX holds its device until the process ends
        )(train_block)  # fmt: skip

    def __enter__(self) -> "OnRay":
        return self

    def __exit__(self, *error: object) -> None:
        self.ray.shutdown()

    def slots(self) -> int:
        """How many tasks the cluster runs at once, at present."""
        resources = self.ray.cluster_resources()
        slots = int(resources.get("CPU", 0) // self.cpus)
        return min(slots, int(resources.get("GPU", 0) / self.gpus)) if self.gpus else slots

    def __call__(self, block: Block) -> Handle:
        block = replace(block, folder=block.folder.absolute())
        return Task(self.ray, self.task.remote(block, self.device))


class Task:
    """A training as a task of Ray."""

    def __init__(self, ray: Any, reference: Any):
        self.ray, self.reference = ray, reference
        self.outcome: Outcome | None = None

    def poll(self) -> Outcome | None:
        if self.outcome is None and self.ray.wait([self.reference], timeout=0)[0]:
            try:
                self.outcome = self.ray.get(self.reference)
            except self.ray.exceptions.RayError as error:
                message = f"{type(error).__name__}: {str(error).splitlines()[0]}"
                self.outcome = Outcome(False, message)
        return self.outcome

    def stop(self) -> None:
        self.ray.cancel(self.reference)

    def kill(self) -> None:
        self.ray.cancel(self.reference, force=True)


def train_block(block: Block, device: str) -> Outcome:
    """Train a block in a worker, by the command of the package."""
    block.folder.parent.mkdir(parents=True, exist_ok=True)
    sys.argv = ["surefoot", *block.command(device)]  # recorded by the run as its command
    output = io.StringIO()
    with redirect_stderr(output):
        try:
            # In this process: a process of its own would outlive a worker that is killed.
            runpy.run_module("surefoot", run_name="__main__")
        except SystemExit as end:
            if end.code:
                return Outcome(False, last_line(output.getvalue()) or f"exit code {end.code}")
        except Exception as error:  # fails this block only
            return Outcome(False, f"{type(error).__name__}: {error}")
    return Outcome(True)
