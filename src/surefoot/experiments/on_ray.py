"""The same blocks as tasks of Ray, on this machine or on many.

A task runs the very command that would be typed for its block. When its worker is lost, Ray starts
the task again, and that goes on from the last checkpoint.
"""

import io
import os
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.experiments.job import Block
from surefoot.experiments.scheduler import (
    CORES_PER_GPU_JOB,
    CORES_PER_JOB,
    JOBS_PER_GPU,
    SHARING,
    Handle,
    Outcome,
)
from surefoot.runs.device import cores

RETRIES = 10
"""How many times a task is started again that has lost its worker."""
SEND = 3.0
"""Seconds between looks for a new checkpoint to send, where the folder is not shared."""


def import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ValueError("--on ray needs the extra: pip install 'surefoot[ray]'") from None
    return ray


class OnRay:
    """Trains each block as a task of Ray. A context manager: leaving it lets go of Ray."""

    def __init__(
        self,
        device: str,
        address: str | None,
        jobs: int | None,
        shared: bool,
        environment: Mapping[str, str],
    ):
        """Connect to `address`, or start a Ray of `jobs` tasks at once on this machine.

        `device` is cpu or gpu. Unless the runs' folder is `shared` by all machines, files are sent.
        `environment` holds variables for the workers.
        """
        ray = import_ray()
        self.ray, self.device = ray, device
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent unasked
        own: dict[str, Any] = {}
        if address is None:
            count = max(cores(), CORES_PER_JOB) if jobs is None else jobs * self._cpus
            own = {"num_cpus": count, "include_dashboard": False}
        elif jobs is not None:
            raise ValueError("--jobs is for this machine; a Ray elsewhere knows its own resources")
        try:
            ray.init(
                address=address or "local", runtime_env={"env_vars": {**SHARING, **environment}},
                log_to_driver=False, logging_level="error", **own,
            )  # fmt: skip
        except (ConnectionError, RuntimeError) as error:
            raise ValueError(f"--ray-address {address}: no Ray answers there: {error}") from None
        if not self.slots():
            self.ray.shutdown()
            need = f"{self._cpus} CPUs" + (
                f" and a {JOBS_PER_GPU}th of a GPU" if self._gpus else ""
            )
            raise ValueError(f"--on ray: a task needs {need}, which this Ray has not")
        self.post = None if shared else ray.remote(num_cpus=0)(Post).remote()
        self.task = ray.remote(
            num_cpus=self._cpus, num_gpus=self._gpus, max_retries=RETRIES,
            max_calls=1,  # a process per task: JAX keeps its device and its memory to the end
        )(train_block)  # fmt: skip

    def __enter__(self) -> "OnRay":
        return self

    def __exit__(self, *error: object) -> None:
        self.ray.shutdown()

    @property
    def _cpus(self) -> int:
        return CORES_PER_GPU_JOB if self.device == "gpu" else CORES_PER_JOB

    @property
    def _gpus(self) -> float:
        return 1 / JOBS_PER_GPU if self.device == "gpu" else 0.0

    def slots(self) -> int:
        """How many tasks Ray takes at once, at present."""
        there = self.ray.cluster_resources()
        slots = int(there.get("CPU", 0) // self._cpus)
        return min(slots, int(there.get("GPU", 0) / self._gpus)) if self._gpus else slots

    def __call__(self, block: Block) -> Handle:
        block = replace(block, folder=block.folder.absolute())
        if self.post is not None and block.folder.is_dir():
            self.ray.get(self.post.leave.remote(block.folder.name, pack(block.folder)))
        return Task(self.ray, self.task.remote(block, self.device, self.post), block, self.post)


class Task:
    """A training as a task of Ray."""

    def __init__(self, ray: Any, reference: Any, block: Block, post: Any):
        self.ray, self.reference, self.block, self.post = ray, reference, block, post
        self.outcome: Outcome | None = None
        self.seen, self.looked = 0, time.monotonic()

    def poll(self) -> Outcome | None:
        if self.outcome is not None:
            return self.outcome
        if not self.ray.wait([self.reference], timeout=0)[0]:
            if time.monotonic() - self.looked > SEND:
                self._fetch()
            return None
        try:
            self.outcome = self.ray.get(self.reference)
        except self.ray.exceptions.RayError as error:
            self.outcome = Outcome(False, f"{type(error).__name__}: {str(error).splitlines()[0]}")
        self._fetch()
        return self.outcome

    def _fetch(self) -> None:
        """Bring what was sent into the folder where it is read."""
        self.looked = time.monotonic()
        if self.post is not None:
            call = self.post.last.remote(self.block.folder.name, self.seen)
            self.seen, parcel = self.ray.get(call)
            if parcel is not None:
                unpack(parcel, self.block.folder)

    def stop(self) -> None:
        self.ray.cancel(self.reference)

    def kill(self) -> None:
        self.ray.cancel(self.reference, force=True)


class Post:
    """Keeps the newest files of each run, for whoever goes on with it and for the report."""

    def __init__(self) -> None:
        self.parcels: dict[str, tuple[int, bytes]] = {}

    def leave(self, name: str, parcel: bytes) -> None:
        self.parcels[name] = (self.parcels.get(name, (0, b""))[0] + 1, parcel)

    def last(self, name: str, seen: int) -> tuple[int, bytes | None]:
        """The newest parcel and its number; no parcel if that is the one that was seen."""
        number, parcel = self.parcels.get(name, (seen, None))
        return number, None if number == seen else parcel


def train_block(block: Block, device: str, post: Any) -> Outcome:
    """What a worker does."""
    from surefoot import cli

    with tempfile.TemporaryDirectory() as away:
        if post is not None:
            name = block.folder.name
            block = replace(block, folder=Path(away) / name)
            parcel = import_ray().get(post.last.remote(name, 0))[1]
            if parcel is not None:
                unpack(parcel, block.folder)
        block.folder.parent.mkdir(parents=True, exist_ok=True)
        words = block.words(device)
        sys.argv = ["surefoot", *words]  # which the run writes down as its command
        said = io.StringIO()
        with _sending(block.folder, post), redirect_stderr(said):
            try:
                cli.main(words)
            except SystemExit as end:
                lines = said.getvalue().split("\n")
                why = [line.strip() for line in lines if line.strip()]
                if end.code:
                    return Outcome(False, why[-1] if why else f"ended with {end.code}")
            except Exception as error:  # of one run; the others go on
                return Outcome(False, f"{type(error).__name__}: {error}")
        return Outcome(True)


@contextmanager
def _sending(folder: Path, post: Any) -> Iterator[None]:
    """Send a run's files to `post` at every new checkpoint, and at the end."""
    if post is None:
        yield
        return
    ray, end = import_ray(), threading.Event()

    def send() -> None:
        before: list[str] = []
        while not end.wait(SEND):
            there = sorted(p.name for p in (folder / "checkpoints").glob("*"))
            if there != before:
                before = there
                ray.get(post.leave.remote(folder.name, pack(folder)))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        if folder.is_dir():
            ray.get(post.leave.remote(folder.name, pack(folder)))


def pack(folder: Path) -> bytes:
    """A run's files in one piece; those that go while it is read are left out."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                with suppress(FileNotFoundError):
                    archive.writestr(str(path.relative_to(folder)), path.read_bytes())
    return data.getvalue()


def unpack(parcel: bytes, folder: Path) -> None:
    """Bring a run's folder to the state of `pack`; checkpoints that are not in it go last."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(parcel)) as archive:
        archive.extractall(folder)
        names = set(archive.namelist())
    for path in (folder / "checkpoints").glob("*"):
        if f"checkpoints/{path.name}" not in names:
            path.unlink()
