"""How fast imagination is as training runs it, and how much faster than one state at a time."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from surefoot.algorithms import mbppo_lagrangian
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.safe_loop import SafeLoopConfig
from surefoot.algorithms.trainer import Problem
from surefoot.benchmark.timing import Row, fastest
from surefoot.core.arrays import RandomKey
from surefoot.learn.actor_critic import Learner
from surefoot.runs.device import device_name
from surefoot.runs.setup import new_setup
from surefoot.world.ensemble import Ensemble, predict_all
from surefoot.world.imagination import REACH, Rollout, imagine
from surefoot.world.model import State

STEPS = 50
"""Steps that are timed together, one state at a time."""


def benchmark(task: str) -> dict[str, Any]:
    """Imagined steps per second of a task's default preset on this machine, and the ratio.

    Both sides imagine with the same networks, policy and task, untrained, which costs the same.
    Compiling is not timed, and the fastest of several windows counts.

    Together: one compiled call rolls all rollouts of a pass over the whole horizon; policy, one
    elite per state, noise, reward, cost and goals are part of it.

    One at a time, as the paper's released code goes about it: a Python loop takes one step of one
    state per call. Policy, all networks, one elite chosen among their answers, noise, reward, cost
    and goals are part of it, and after each call reward and cost are fetched. Each call is one
    compiled program here, which flatters this side: op by op it would be slower.
    """
    setup = new_setup(task, "mbppo-lagrangian", "default", jax.default_backend(), [0], None, {}, {})
    config, problem = setup.config, setup.problem(setup.make_envs(1), 1)

    @jax.jit
    def begin(key: RandomKey) -> tuple[Learner, Ensemble, State]:
        keys = jax.random.split(key, 3)
        state = mbppo_lagrangian.init(config, problem, keys[0])
        starts = problem.task_model.initial_records(keys[1], config.rollouts)
        assert starts is not None  # the default preset knows its tasks' initial states
        return state.learner, state.ensemble, problem.task_model.restore(keys[2], starts)

    @jax.jit
    def roll(
        learner: Learner, ensemble: Ensemble, states: State, key: RandomKey
    ) -> tuple[Rollout, State]:
        return imagine(problem.world(ensemble), learner.sample, states, config.horizon, key)

    step = jax.jit(lambda *args: one_step(problem, *args))

    def walk() -> None:
        now, key = first, jax.random.key(0)
        for _ in range(STEPS):
            now, reward, cost, key = step(learner, ensemble, now, key)
            jax.device_get((reward, cost))

    learner, ensemble, states = begin(jax.random.key(0))
    first = jax.tree.map(lambda x: x[0], states)
    key = jax.random.key(3)
    seconds = fastest(lambda: jax.block_until_ready(roll(learner, ensemble, states, key)))
    together, alone = config.rollouts * config.horizon / seconds, STEPS / fastest(walk)
    return {
        **describe_model(task, config),
        "together": f"{config.rollouts} rollouts of {config.horizon} steps in one compiled call, "
        f"one elite per state",
        "steps_per_second": together,
        "one_at_a_time": f"one state, one compiled step per call from Python, all "
        f"{config.ensemble.members} networks evaluated, reward and cost fetched",
        "one_at_a_time_steps_per_second": alone,
        "ratio": together / alone,
    }


def one_step(
    problem: Problem, learner: Learner, ensemble: Ensemble, state: State, key: RandomKey
) -> tuple[State, Array, Array, RandomKey]:
    """One state, one step, all networks: the next state, reward, costs [k] and key."""
    model, actions = problem.task_model, problem.actions
    key, act_key, member_key, noise_key, binary_key = jax.random.split(key, 5)
    action = actions.encode(learner.sample(model.observe(state)[None], act_key))
    x = jnp.concatenate([model.features(state)[None], action], -1)
    answers = predict_all(ensemble, x)
    elite = jax.random.choice(member_key, ensemble.elites)
    mean, std, logits = (answer[elite, 0] for answer in answers)
    drawn = mean + std * jax.random.normal(noise_key, mean.shape)
    binary = jnp.stack([jax.nn.sigmoid(logits), jax.random.uniform(binary_key, logits.shape)])
    size = model.feature_size
    center, reach = ensemble.input_mean[:size], REACH * ensemble.input_std[:size]
    bounds = (center - reach, center + reach)
    state, reward, cost, _ = model.advance(state, action[0], drawn, binary, bounds)
    return state, reward, cost, key


def describe_model(task: str, config: MBPPOConfig | SafeLoopConfig) -> Row:
    """The task, the size of the learned model, and the device."""
    sizes = config.ensemble
    return {
        "task": task, "model": config.model, "members": sizes.members, "elites": sizes.elites,
        "hidden": list(sizes.hidden), "device": device_name(),
    }  # fmt: skip
