"""TensorBoard: scalars in the run's folder, without torch or tensorflow."""

import time
from functools import partial
from pathlib import Path

from surefoot.algorithms.loop import Epoch
from surefoot.runs.info import RunInfo
from surefoot.runs.loggers import check_extra, scalars


class TensorBoardLogger:
    """Writes an event file: one tag per metric and seed, over real steps."""

    check = staticmethod(partial(check_extra, "tensorboard"))

    def __init__(self, folder: Path, info: RunInfo):
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(folder))

    def epoch(self, epoch: Epoch) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        for row in epoch.metrics:
            values = [Summary.Value(tag=tag, simple_value=x) for tag, x in scalars(row).items()]
            self._writer.add_event(
                Event(wall_time=time.time(), step=int(row["steps"]), summary=Summary(value=values))
            )

    def message(self, text: str) -> None:
        pass

    def close(self) -> None:
        self._writer.close()
