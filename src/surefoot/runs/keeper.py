"""Keeps the latest state of a run in memory and writes checkpoints."""

import threading
import time
from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np

from surefoot.algorithms.loop import Epoch
from surefoot.core.files import Damaged
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved, to_arrays
from surefoot.runs.checkpoint import Checkpoint, Score, prune, write_checkpoint
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import RunInfo
from surefoot.runs.loggers.csv import CsvLogger

SHARE = 0.01
"""Largest share of the time that checkpoints may take if no interval is given."""


class Keeper:
    """The state at the end of the last epoch: always in memory, on disk at intervals.

    Two threads may write: the one that trains and the one that waits for signals.
    """

    def __init__(
        self, folder: RunFolder, info: RunInfo, metrics: CsvLogger, scores: dict[int, Score]
    ):
        self.seconds = 0.0
        """Spent on copying and writing, policy.npz included."""
        self.written: int | None = None
        """The epoch written last."""
        self._folder, self._info, self._metrics, self._scores = folder, info, metrics, scores
        self._latest: Checkpoint | None = None
        self._next = 0.0
        self._mutex = threading.Lock()

    @property
    def saved(self) -> str:
        """What is on disk, for messages."""
        return f"epoch {self.written} is saved" if self.written else "no epoch was saved yet"

    def take(self, epoch: Epoch, seconds: float) -> None:
        """Copy the state after an epoch; training has taken `seconds` in all."""
        start = time.perf_counter()
        meta = {
            "epoch": epoch.number,
            "version": self._info.version,
            "device": self._info.device,
            "seconds": seconds,
            "save_seconds": self.seconds,
            "info": self._info.to_dict(),
        }
        arrays = to_arrays(epoch.snapshot)
        arrays |= {f"policy/{name}": array for name, array in epoch.policy.arrays().items()}
        arrays["metrics"] = np.frombuffer(self._metrics.content, np.uint8)
        # A policy's score is what the next epoch collects with it.
        score = score_of(epoch.metrics)
        with self._mutex:
            if score is not None:
                self._scores[epoch.number - 1] = score
            self._latest = Checkpoint(meta, arrays)
        self.seconds += time.perf_counter() - start

    def write_policy(self, policy: Policy) -> None:
        """Write policy.npz."""
        start = time.perf_counter()
        self._folder.write_policy(policy)
        self.seconds += time.perf_counter() - start

    def write(self, only_if_due: bool = False) -> None:
        """Write the latest state unless it is on disk, or not yet due if that matters."""
        with self._mutex:
            latest, start = self._latest, time.perf_counter()
            due = time.monotonic() >= self._next or not only_if_due
            if latest is None or latest.meta["epoch"] == self.written or not due:
                return
            write_checkpoint(self._folder.checkpoints, latest)
            prune(self._folder.checkpoints, self._info.keep, self._scores)
            self.written = latest.meta["epoch"]
            spent = time.perf_counter() - start
            self.seconds += spent
            every = self._info.checkpoint_every
            self._next = time.monotonic() + (spent / SHARE if every is None else every)


def score_of(rows: Sequence[Mapping[str, float]]) -> Score | None:
    """How good an epoch's policy was, over all seeds: within the limits first, then by reward."""
    mean = lambda name: float(np.mean([row[name] for row in rows]))
    excess, reward = mean("cost") - mean("cost_limit"), mean("reward")
    return None if np.isnan(reward + excess) else (excess <= 0, reward)


def scores_of(rows: Sequence[Mapping[str, float]]) -> dict[int, Score]:
    """The score of each epoch's policy, from all rows of metrics.csv."""
    epochs = groupby(rows, lambda row: int(row["epoch"]))
    scores = {number - 1: score_of(list(epoch)) for number, epoch in epochs}
    return {number: score for number, score in scores.items() if score is not None}


def policy_in(checkpoint: Checkpoint) -> Policy:
    """The policy of a checkpoint; `Damaged` if it holds none."""
    try:
        return Policy.of(Saved(checkpoint.arrays).part("policy"))
    except ValueError as error:
        name = f"the checkpoint of epoch {checkpoint.meta['epoch']}"
        raise Damaged(f"{name} is damaged: {error}") from None
