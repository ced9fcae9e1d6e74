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
    last_line,
)
from surefoot.runs.device import cores

RETRIES = 10
"""How often Ray restarts a task whose worker is lost."""


class OnRay:
    """Trains each block as a task of Ray. A context manager that disconnects from Ray."""

    def __init__(
        self, device: str, address: str | None, jobs: int | None, environment: Mapping[str, str]
    ):
        """Connect to `address`, or start Ray on this machine with room for `jobs` tasks.

        `device` is cpu or gpu; `environment` holds variables for the workers.
        """
        try:
            import ray
        except ImportError:
            raise ValueError("on='ray' needs the extra: pip install 'surefoot[ray]'") from None
        self.ray: Any = ray
        gpu, self.device = device == "gpu", device
        self.cpus, self.gpus = (CORES_PER_GPU_JOB, 1 / JOBS_PER_GPU) if gpu else (CORES_PER_JOB, 0)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        local = {}
        if address is None:
            count = max(cores(), CORES_PER_JOB) if jobs is None else jobs * self.cpus
            local = {"num_cpus": count, "include_dashboard": False}
        elif jobs is not None:
            raise ValueError(f"jobs={jobs} needs a local Ray; a cluster has its own resources")
        try:
            self.ray.init(
                address=address or "local", runtime_env={"env_vars": {**SHARING, **environment}},
                log_to_driver=False, logging_level="error", **local,
            )  # fmt: skip
        except (ConnectionError, RuntimeError) as error:
            raise ValueError(f"ray_address={address!r}: cannot connect to Ray: {error}") from None
        if not self.slots():
            self.ray.shutdown()
            raise ValueError(
                f"the Ray cluster has no room for a job, which needs {self.cpus} CPUs and "
                f"{self.gpus:g} GPU"
            )
        self.task = self.ray.remote(
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

    def __call__(self, block: Block) -> "Task":
        block = replace(block, folder=block.folder.absolute())
        return Task(self.ray, self.task.remote(block, self.device))


class Task:
    """A training as a task of Ray."""

    def __init__(self, ray: Any, reference: object):
        self.ray, self.reference = ray, reference

    def poll(self) -> str | None:
        if not self.ray.wait([self.reference], timeout=0)[0]:
            return None
        try:
            return self.ray.get(self.reference)
        except self.ray.exceptions.RayError as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"

    def stop(self) -> None:
        self.ray.cancel(self.reference)

    def kill(self) -> None:
        self.ray.cancel(self.reference, force=True)


def train_block(block: Block, device: str) -> str:
    """Train a block in a worker, by the command of the package; returns the error, if any."""
    block.folder.parent.mkdir(parents=True, exist_ok=True)
    sys.argv = ["surefoot", *block.command(device)]  # recorded by the run as its command
    output = io.StringIO()
    with redirect_stderr(output):
        try:
            # In this process: a process of its own would outlive a worker that is killed.
            runpy.run_module("surefoot", run_name="__main__")
        except SystemExit as end:
            if end.code:
                return last_line(output.getvalue()) or f"exit code {end.code}"
        except Exception as error:  # fails this block only
            return f"{type(error).__name__}: {error}"
    return ""
