"""The expensive parts of MBPPO-Lagrangian as compiled programs that can be timed, in any size."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from surefoot.algorithms import mbppo_lagrangian as mbppo
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.seeds import over_seeds, seed_keys
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Metrics, RandomKey, Tree
from surefoot.learn import ppo
from surefoot.learn.actor_critic import Batch, Learner, prepare
from surefoot.world import fitting
from surefoot.world.ensemble import Ensemble
from surefoot.world.imagination import Rollout, imagine
from surefoot.world.model import State


@dataclass(frozen=True)
class Part:
    """Something that training does."""

    call: Callable[[], object]
    count: int
    """What one call does, in `unit`."""
    unit: str
    memory: Callable[[], int]
    """Bytes that one call needs, at its peak."""


def compiled(program: jax.stages.Wrapped, args: tuple[Tree, ...], count: int, unit: str) -> Part:
    """A jitted program as a part; its memory is that of arguments, results and temporaries."""
    return timed(program.lower(*args).compile(), args, count, unit)


def timed(ready: jax.stages.Compiled, args: tuple[Tree, ...], count: int, unit: str) -> Part:
    """A compiled program as a part."""

    def memory() -> int:
        sizes = ready.memory_analysis()
        parts = (f"{kind}_size_in_bytes" for kind in ("argument", "output", "temp"))
        return sum(int(getattr(sizes, part)) for part in parts)

    return Part(lambda: jax.block_until_ready(ready(*args)), count, unit, memory)


def new_state(config: MBPPOConfig, problem: Problem) -> mbppo.State:
    """What an untrained policy and model of all seeds are; they cost the same as trained ones."""
    begin = over_seeds(lambda key: mbppo.init(config, problem, key), len(problem.seeds))
    return begin(seed_keys(problem.seeds))


def fit(config: MBPPOConfig, problem: Problem, state: mbppo.State, rows: int) -> Part:
    """Gradient steps of the ensembles, with `rows` real steps for each seed."""
    model, many = problem.task_model, len(problem.seeds)
    rng = np.random.default_rng(0)
    width = problem.actions.size + model.feature_size
    x, y = (rng.standard_normal((many, rows, n), np.float32) for n in (width, model.target_size))
    labels = rng.integers(2, size=(many, rows, model.binary_size)).astype(np.float32)
    y = np.concatenate([y, labels], -1)
    one = lambda *args: fitting.fit(config.ensemble, *args)
    program = over_seeds(one, many, shared=(3,), whole_loops=True)
    args = (state.ensemble, x, y, jnp.int32(rows), seed_keys(problem.seeds))
    steps = many * config.ensemble.max_steps
    return compiled(program, jax.device_put(args), steps, "gradient steps")


def imagination(config: MBPPOConfig, problem: Problem, states: mbppo.State) -> tuple[Part, Part]:
    """Rollouts alone, and updates on them alone, both of the first seed."""
    length, model = mbppo.horizon(config, problem), problem.task_model

    def roll(
        learner: Learner, ensemble: Ensemble, states: State, key: RandomKey
    ) -> tuple[Rollout, State]:
        return imagine(problem.world(ensemble), learner.sample, states, length, key)

    def update(learner: Learner, batch: Batch, key: RandomKey) -> tuple[Learner, Metrics]:
        rows, _ = prepare(config.ppo, learner, batch)
        return ppo.update(config.ppo, learner, rows, jnp.zeros(problem.constraints), key)

    state, key = jax.tree.map(lambda x: x[0], states), jax.random.key(1)
    starts = model.initial_records(key, config.rollouts)
    if starts is None:  # a model that learns them too
        starts = jnp.zeros((config.rollouts, model.record_size))
    args = (state.learner, state.ensemble, model.restore(key, starts), key)
    ready = jax.jit(roll).lower(*args).compile()
    rollout, _ = ready(*args)
    batch = mbppo.to_batch(rollout, rollout.alive, None, jnp.array(True))
    count = config.rollouts * length
    return (
        timed(ready, args, count, "imagined steps"),
        compiled(jax.jit(update), (state.learner, batch, key), count, "imagined steps"),
    )
