"""Weights & Biases: one W&B run per Surefoot run; metrics by seed over real steps."""

import hashlib
from functools import partial
from pathlib import Path

from surefoot.algorithms.loop import Epoch
from surefoot.runs.info import RunInfo
from surefoot.runs.loggers import check_extra, scalars


class WandbLogger:
    """Logs to the project `surefoot`; W&B's environment variables change that.

    `WANDB_MODE=offline` writes into the run's folder; `wandb sync` uploads it later. A resumed run
    continues the same W&B run.
    """

    check = staticmethod(partial(check_extra, "wandb"))

    def __init__(self, folder: Path, info: RunInfo):
        import wandb

        name = f"{folder.resolve()} {info.started_at}"
        self._run = wandb.init(
            project="surefoot",
            name=folder.name,
            id=hashlib.blake2b(name.encode(), digest_size=8).hexdigest(),
            resume="allow",
            dir=str(folder),
            config=info.to_dict(),
            settings=wandb.Settings(silent=True, console="off"),
        )

    def epoch(self, epoch: Epoch) -> None:
        values = {tag: x for row in epoch.metrics for tag, x in scalars(row).items()}
        self._run.log(values, step=int(epoch.metrics[0]["steps"]))

    def message(self, text: str) -> None:
        pass

    def close(self) -> None:
        self._run.finish()
