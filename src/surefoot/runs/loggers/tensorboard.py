"""TensorBoard: scalars in the run's folder, without torch or tensorflow."""

import time
from pathlib import Path

import numpy as np

from surefoot.algorithms.loop import Epoch
from surefoot.runs.info import RunInfo


class TensorBoardLogger:
    """Writes an event file: one tag per metric and seed, over real steps."""

    def __init__(self, folder: Path, info: RunInfo):
        self.check()
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(folder))

    @staticmethod
    def check() -> None:
        """Raise a ValueError if TensorBoard is not installed."""
        try:
            import tensorboard.summary.writer.event_file_writer  # noqa: F401
        except ImportError:
            raise ValueError(
                "logger='tensorboard' needs an extra: pip install 'surefoot[tensorboard]'"
            ) from None

    def epoch(self, epoch: Epoch) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        for row in epoch.metrics:
            values = [
                Summary.Value(tag=f"{name}/seed_{row['seed']}", simple_value=float(value))
                for name, value in row.items()
                if name not in ("seed", "steps") and np.isfinite(value)
            ]
            self._writer.add_event(
                Event(wall_time=time.time(), step=int(row["steps"]), summary=Summary(value=values))
            )

    def message(self, text: str) -> None:
        pass

    def close(self) -> None:
        self._writer.close()
