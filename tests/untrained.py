"""Runs that have learned nothing, for tests of what reads a run."""

from dataclasses import replace

import numpy as np

from harness import TASK, TINY
from in_memory import new_training, setup_of
from surefoot.core.config import to_dict
from surefoot.core.snapshot import to_arrays
from surefoot.envs.task import find_task
from surefoot.runs.checkpoint import Checkpoint, write_checkpoint
from surefoot.runs.info import RunInfo
from surefoot.runs.known import IN_PYTHON, to_words

SEEDS = (3, 4)


def untrained_run(
    path, source, model="black-box", algorithm="mbppo-lagrangian", options=None, known=None,
    cost=None, **changes,
):  # fmt: skip
    """The checkpoint of a run of two seeds that has learned nothing, as training leaves it.

    `changes` replace values of the run's record, sound ones or not.
    """
    config = TINY[algorithm]
    if hasattr(config, "model"):
        config = replace(config, model=model)
    if options is None:
        options = TASK if isinstance(source, str) else {}
    source = find_task(source, cost)
    setup = setup_of(config, source, SEEDS, options, known)
    training = new_training(config, source, SEEDS, options, known)
    trainer = training.trainer
    arrays = to_arrays({"trainer": trainer.snapshot(), "totals": {"steps": np.array(40)}})
    arrays |= {f"policy/{name}": x for name, x in trainer.policy().arrays().items()}
    arrays |= {"metrics": np.zeros(0, np.uint8), "collector/obs": np.zeros((4, 1))}
    parts = training.problem.model.known if training.problem.model else ()
    options = {**options, "cost": IN_PYTHON} if callable(cost) else options
    origin = {"version": "0", "device": "none"}
    info = RunInfo(
        task=setup.task.reference, task_name=setup.task.name, task_options=options,
        algorithm=algorithm, preset="default", seeds=list(SEEDS), started="",
        config=to_dict(setup.config), known=list(parts), known_from=to_words(setup.known),
        **origin,
    )  # fmt: skip
    values = {**info.to_dict(), **changes}
    meta = {"epoch": 1, "seconds": 1.0, "save_seconds": 0.0, "info": values, **origin}
    path.mkdir()
    write_checkpoint(path / "checkpoints", Checkpoint(meta, arrays))
    return path
