"""Where the time of training goes: an epoch of MBPPO-Lagrangian, a pass of practice, its parts."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from surefoot.algorithms import mbppo_lagrangian as mbppo
from surefoot.algorithms.algorithm import ALGORITHMS
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.seeds import over_seeds, seed_keys
from surefoot.algorithms.trainer import Problem
from surefoot.benchmark.parts import STEPS, TASK, Parts
from surefoot.benchmark.timing import Row, fastest
from surefoot.core.arrays import RandomKey, Tree
from surefoot.envs.task import find_task
from surefoot.learn import ppo
from surefoot.learn.actor_critic import Learner, Rows, fit_critics, prepare
from surefoot.runs.device import device_name
from surefoot.runs.setup import preset_config
from surefoot.use.programs import Part
from surefoot.world.ensemble import Ensemble, only_elites, predict_elites_shared, rounded
from surefoot.world.imagination import REACH, Rollout, imagine
from surefoot.world.model import State

ROUNDS = 5
"""Epochs whose real steps the model is fitted to."""
TINY = 1e-30
"""Ties each step of a loop to the one before, so that no compiler leaves one out."""


class Timed(NamedTuple):
    """How long a call of a part takes, how long its program took to compile, and its result."""

    seconds: float
    compiling: float
    result: Tree


def benchmark(task: str = TASK, preset: str = "default", seeds: int = 1) -> Iterator[Row]:
    """A row per part: seconds of a call, calls per epoch, share of the epoch, compile time.

    Parts are compiled one by one, so those of a pass do not add up to it exactly. Networks are
    untrained. Fits and updates take all their steps, so epochs of a training can be shorter.
    """
    known, backend = find_task(task), jax.default_backend()
    config = preset_config(ALGORITHMS["mbppo-lagrangian"], preset, known, backend, {})
    assert isinstance(config, MBPPOConfig)
    if not known.cost_limits:  # no time depends on it
        config = replace(config, cost_limit=(1.0,))
    ensemble = replace(config.ensemble, patience=config.ensemble.max_steps)
    config = replace(config, ppo=replace(config.ppo, kl_stop=None), ensemble=ensemble)
    parts = Parts(config, seeds, task)
    config, steps = parts.config, config.episodes * parts.problem.episode_steps
    calls = {"real episodes": parts.problem.episode_steps / STEPS, "fit of the model": 1.0}
    timed = {
        "real episodes": _timed_part(lambda: parts.collect(config.episodes)),
        "fit of the model": _timed_part(lambda: parts.fit(ROUNDS * steps)),
        "pass of practice": _timed_part(parts.practise),
    }
    total = sum(calls.get(name, config.passes) * part.seconds for name, part in timed.items())
    inner = pass_parts(config, parts.problem, parts.state())
    timed |= {f"  {name}": part for name, part in inner.items()}
    for name, part in timed.items():
        count = calls.get(name, config.passes)
        yield {
            "part": name, "seconds": part.seconds, "calls": count, "task": task, "seeds": seeds,
            "share": count * part.seconds / total, "compile_seconds": part.compiling,
            "device": device_name(),
        }  # fmt: skip


def pass_parts(config: MBPPOConfig, problem: Problem, state: mbppo.State) -> dict[str, Timed]:
    """The parts of a pass, in the sizes of the preset, for all seeds."""
    many, model = len(problem.seeds), problem.task_model
    length, size = mbppo.horizon(config, problem), config.rollouts
    keys, k = seed_keys(problem.seeds), problem.constraints
    learner, ensemble = state.learner, state.ensemble

    def begin(key: RandomKey) -> State:
        known: Array | None = model.initial_records(key, size)  # None: they are learned too
        starts = jnp.zeros((size, model.record_size)) if known is None else known
        return model.restore(key, starts)

    def roll(
        learner: Learner, ensemble: Ensemble, states: State, key: RandomKey
    ) -> tuple[Rollout, State]:
        return imagine(problem.world(ensemble), learner.sample, states, length, key)

    def policy(learner: Learner, states: State, key: RandomKey) -> Array:
        def step(obs: Array, key: RandomKey) -> tuple[Array, None]:
            action = problem.actions.encode(learner.sample(obs, key))
            return obs + TINY * action.sum(-1, keepdims=True), None

        return jax.lax.scan(step, jax.vmap(model.observe)(states), jax.random.split(key, length))[0]

    def networks(ensemble: Ensemble, states: State) -> Array:
        order = jnp.arange(ensemble.elites.shape[0])
        if jax.default_backend() != "cpu":  # as `imagine` does
            ensemble = rounded(ensemble)
        ensemble = only_elites(ensemble)

        def step(x: Array, _: None) -> tuple[Array, None]:
            mean, std = predict_elites_shared(ensemble, x, order)[:2]
            return x + TINY * (mean + std).sum(-1, keepdims=True), None

        features = jax.vmap(model.features)(states)
        x: Array = jnp.concatenate([features, jnp.zeros((size, problem.actions.size))], -1)
        return jax.lax.scan(step, x, None, length=length)[0]

    def task(ensemble: Ensemble, states: State) -> tuple[Tree, ...]:
        width = model.feature_size
        mean, reach = ensemble.input_mean[:width], REACH * ensemble.input_std[:width]
        bounds = (mean - reach, mean + reach)
        action = jnp.zeros((size, problem.actions.size))
        predicted = jnp.zeros((size, model.target_size))
        binary = jnp.full((size, 2, model.binary_size), 0.5)

        def step(states: State, _: None) -> tuple[State, tuple[Tree, ...]]:
            seen = jax.vmap(model.observe)(states), jax.vmap(model.features)(states)
            advance = jax.vmap(model.advance, (0, 0, 0, 0, None))
            after, *outcome = advance(states, action, predicted, binary, bounds)
            return after, (*seen, *outcome)

        return jax.lax.scan(step, states, None, length=length)[1]

    def advantages(learner: Learner, rollout: Rollout) -> Rows:
        batch = mbppo.to_batch(rollout, rollout.alive, None, jnp.array(True))
        return prepare(config.ppo, learner, batch)[0]

    def improve(learner: Learner, rows: Rows, key: RandomKey) -> Learner:
        return ppo.improve_policy(config.ppo, learner, rows, jnp.zeros(k), key)[0]

    def critics(learner: Learner, rows: Rows, key: RandomKey) -> Learner:
        return fit_critics(config.ppo, learner, rows, key)[0]

    timed = lambda call, *args: _timed(over_seeds(call, many, whole_loops=True), *args)
    states = over_seeds(begin, many)(keys)
    rollouts = timed(roll, learner, ensemble, states, keys)
    prepared = timed(advantages, learner, rollouts.result[0])
    return {
        "rollouts": rollouts,
        "  networks of the model": timed(networks, ensemble, states),
        "  policy": timed(policy, learner, states, keys),
        "  task: observation, reward, cost": timed(task, ensemble, states),
        "advantages": prepared,
        "update of the policy": timed(improve, learner, prepared.result, keys),
        "update of the critics": timed(critics, learner, prepared.result, keys),
    }


def _timed(program: jax.stages.Wrapped, *args: Tree) -> Timed:
    start = time.perf_counter()
    ready = program.lower(*args).compile()
    compiling = time.perf_counter() - start
    call = lambda: jax.block_until_ready(ready(*args))
    return Timed(fastest(call), compiling, call())


def _timed_part(make: Callable[[], Part]) -> Timed:
    start = time.perf_counter()
    part = make()  # compiles it
    compiling = time.perf_counter() - start
    return Timed(fastest(part.call), compiling, None)
