"""Runs that have learned nothing, for tests of what reads a run."""

from dataclasses import asdict, replace

import jax
import numpy as np

from harness import TASK, TINY
from surefoot.algorithms import mbppo_lagrangian
from surefoot.algorithms.collect import numpy_policy
from surefoot.algorithms.mbppo_lagrangian import World
from surefoot.core.snapshot import to_arrays
from surefoot.core.spaces import action_spec
from surefoot.runs.checkpoint import Checkpoint, write_checkpoint
from surefoot.runs.train import task_model


def untrained_run(path, env, task, model_name="black-box", algorithm="mbppo-lagrangian", **info):
    """The checkpoint of a run of two seeds that has learned nothing, as training leaves it."""
    config = replace(TINY["mbppo-lagrangian"], model=model_name)
    know = task_model(env, model_name)
    world = World(know, action_spec(env.single_action_space), 20)
    begin = jax.jit(jax.vmap(lambda key: mbppo_lagrangian.init(config, world, 1, key)[0]))
    state = begin(jax.random.split(jax.random.key(0), 2))
    arrays = to_arrays({"state": state, "totals": {"steps": np.array(40)}})
    policy = numpy_policy(state.learner, world.actions)
    arrays |= {f"policy/{name}": x for name, x in policy.arrays().items()}
    arrays |= {"metrics": np.zeros(0, np.uint8), "collector/obs": np.zeros((4, 1))}
    said = {"version": "0", "device": "none"}
    info = {
        "algorithm": algorithm, "task": task, "task_options": TASK if task else {}, "seeds": [3, 4],
        "known": list(know.known), "config": asdict(config), "preset": "default", "started": "",
        **said, **info,
    }  # fmt: skip
    meta = {"epoch": 1, "seconds": 1.0, "save_seconds": 0.0, "info": info, **said}
    path.mkdir()
    write_checkpoint(path / "checkpoints", Checkpoint(meta, arrays))
    return path
