"""A complete logger in one file: the mean reward of every epoch, as JSON lines.

surefoot train PointGoal --loggers toy_logger.py:ToyLogger
"""

import json
from pathlib import Path

from surefoot.algorithms.loop import Epoch
from surefoot.runs.info import RunInfo


class ToyLogger:
    def __init__(self, folder: Path, info: RunInfo):
        self._file = (folder / "rewards.jsonl").open("a")

    def epoch(self, epoch: Epoch) -> None:
        mean = sum(row["reward"] for row in epoch.metrics) / len(epoch.metrics)
        self._file.write(json.dumps({"epoch": epoch.number, "reward": mean}) + "\n")

    def message(self, text: str) -> None:
        pass

    def close(self) -> None:
        self._file.close()
