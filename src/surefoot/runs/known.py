"""Known parts of an environment: what a run's model is given and need not learn.

A part is a function in JAX. Reward, cost and termination are functions of batches (obs, action,
next_obs), as `surefoot.adapt` takes a cost: observations are flattened, and the action is the one
that the environment takes. So one cost function serves the environment and its model.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from surefoot.core.config import check_choice
from surefoot.core.registry import absolute_reference, is_reference, load_reference, reference_to
from surefoot.core.spaces import action_spec
from surefoot.envs.base import TaskEnv
from surefoot.envs.gym.adapted import choices, flat_choices
from surefoot.world.black_box import BlackBox, SignalFn
from surefoot.world.model import TaskModel

Function = Callable[..., Any]
Parts = Mapping[str, Function | str]
"""Functions, or references to them, by the name of the part."""
Known = Function | str | Sequence[str] | Parts | None
"""What users pass as `known`; see `read_known`."""
MODEL = "model"
FIELDS = {
    "reward": "reward_fn",
    "cost": "cost_fn",
    "termination": "termination_fn",
    "initial states": "initial_fn",
}
"""The argument of `BlackBox` that takes each part."""
OWN = "own"
"""Stands for the cost function that the environments are adapted with."""
IN_PYTHON = ""
"""Stands for a function that only Python can give again."""
PROBE_STEPS = 32
RANDOM_ROWS = 128
LARGEST_RANDOM = 1e3
"""Random observations are clipped to it: some bounds are as wide as floats go."""


def read_known(known: Known) -> dict[str, Function | str]:
    """What is known, by part: a function, a reference to one, or `OWN`.

    Args:
        known: A function that makes a `TaskModel` for an environment; a dict from parts to
            functions or references; or words as the command line takes them: `cost` (the
            environment's own cost function), `reward=file.py:function`, `model=file.py:function`.
    """
    if known is None:
        return {}
    if callable(known):
        return {MODEL: known}
    if not isinstance(known, Mapping):
        words = [known] if isinstance(known, str) else known
        if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"known={known!r} must be a function, a dict of functions, or words")
        known = dict(map(_from_word, words))
    parts = {}
    for name, function in known.items():
        name = str(name).replace("_", " ")
        check_choice("known", name, (*FIELDS, MODEL))
        if isinstance(function, str) and is_reference(function):
            function = absolute_reference(function)
        elif not callable(function) and function not in (OWN, IN_PYTHON):
            raise ValueError(
                f"known[{name!r}]={function!r} must be a function, or a reference such as "
                f"file.py:function"
            )
        if function == OWN and name != "cost":
            raise ValueError(
                f"known={name!r} must name its function, as in {name.replace(' ', '_')}="
                f"file.py:function; only an environment's cost may have one already"
            )
        parts[name] = function
    if MODEL in parts and len(parts) > 1:
        raise ValueError(f"known={list(parts)}: a whole model leaves nothing else to be known")
    return parts


def _from_word(word: str) -> tuple[str, str]:
    name, sign, reference = word.partition("=")
    return name, reference if sign else OWN


def to_words(parts: Parts) -> list[str]:
    """The parts as a run records them, and as `read_known` takes them."""
    in_python = lambda function: reference_to(function) or IN_PYTHON
    written = lambda function: in_python(function) if callable(function) else function
    return [
        name.replace(" ", "_")
        if function == OWN
        else f"{name.replace(' ', '_')}={written(function)}"
        for name, function in parts.items()
    ]


def load_parts(parts: Parts, env: TaskEnv) -> dict[str, Function]:
    """The functions themselves; a ValueError names one that cannot be had."""
    return {name: _loaded(name, function, env) for name, function in parts.items()}


def _loaded(name: str, function: Function | str, env: TaskEnv) -> Function:
    if callable(function):
        return function
    if function == IN_PYTHON:
        raise ValueError(
            f"known: the run's {name} is a Python function; pass known as it was given to train"
        )
    if function == OWN:
        own = getattr(env, "cost_function", None)
        if own is None:
            raise ValueError(
                "known='cost': the environment's cost is not a function of (obs, action, "
                "next_obs); pass one as cost, or name one as cost=file.py:function"
            )
        return own
    loaded = load_reference(function)
    if not callable(loaded):
        raise ValueError(f"known: {function} is a {type(loaded).__name__}, not a function")
    return loaded


def known_model(parts: Parts, env: TaskEnv, terminates: bool) -> TaskModel:
    """The model that learns everything but these parts."""
    functions = load_parts(parts, env)
    if MODEL in functions:
        return functions[MODEL](env)
    given: dict[str, Function] = {
        FIELDS[name]: function if name == "initial states" else of_one(function, env)
        for name, function in functions.items()
    }
    size = env.single_observation_space.shape[0]
    return BlackBox(size, tuple(env.cost_names), terminates, **given)


def of_one(function: Function, env: TaskEnv) -> SignalFn:
    """A function of batches as the model calls it: for one state, and the action as encoded."""
    table = _choices(env)

    def call(obs: Array, action: Array, after: Array) -> Array:
        if table is not None:  # one-hot
            action = jnp.asarray(flat_choices(table))[jnp.argmax(action)]
        return jnp.asarray(function(obs[None], action[None], after[None]))[0]

    return call


def check_parts(parts: Parts, env: TaskEnv) -> list[str]:
    """Try known functions on random and on real steps of one environment, which is reset.

    A ValueError names a function that JAX cannot trace, that returns another shape, or that
    computes something else in JAX. Returns notes on functions that differ from the environment.
    """
    functions = load_parts(parts, env)
    if not functions or MODEL in functions:
        return []
    if "initial states" in functions:
        _check_initial(functions["initial states"], env.single_observation_space.shape[0])
    real, obs, action, after = _sample_steps(env)
    encoded = action_spec(env.single_action_space).encode(jnp.asarray(action))
    table = _choices(env)
    taken = (obs, action if table is None else flat_choices(table)[action], after)
    notes = []
    for name, true in real.items():
        if name not in functions:
            continue
        traced = _traced(name, functions[name], env, (obs, encoded, after))
        # The environment's own function takes numpy arrays; others need not.
        arrays = taken if parts[name] == OWN else map(jnp.asarray, taken)
        with np.errstate(all="ignore"):
            plain = np.asarray(functions[name](*arrays), np.float64)
        right = (len(obs), *true.shape[1:])
        one = (len(obs),) if true.shape[1:] == (1,) else right
        if plain.shape not in (right, one) or traced.shape != plain.shape:
            raise ValueError(
                f"known {name}: the function returns shape {plain.shape} for {len(obs)} steps, "
                f"not {one}"
            )
        traced, plain = traced.reshape(right), plain.reshape(right)
        same = np.isclose(traced, plain, rtol=1e-5, atol=1e-6, equal_nan=True)
        if not same.all():
            i = tuple(np.argwhere(~same)[0])
            raise ValueError(
                f"known {name}: the function gives {traced[i]:g} under JAX and {plain[i]:g} "
                f"without it, for the observation {obs[i[0]]}; it must depend on its arguments "
                f"alone, row by row"
            )
        difference = np.abs(traced[: len(true)] - true).reshape(len(true), -1).max(1)
        apart = int((difference > 1e-3 * max(1.0, np.abs(true).max())).sum())
        if apart:
            i = int(np.argmax(difference))
            notes.append(
                f"warning: the known {name} differs from the environment's in {apart} of "
                f"{len(true)} random steps: it is {traced[i].tolist()} where the environment's is "
                f"{true[i].tolist()}. Practice follows the known one"
            )
    return notes


def _choices(env: TaskEnv) -> np.ndarray | None:
    """The actions of environments with finitely many."""
    return getattr(env, "choices", choices(env.single_action_space))


def _traced(
    name: str, function: Function, env: TaskEnv, arrays: tuple[np.ndarray | Array, ...]
) -> np.ndarray:
    """The function's values for rows of arrays, as the model calls it."""
    try:
        return np.asarray(jax.jit(jax.vmap(of_one(function, env)))(*arrays), np.float64)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"known {name}: {getattr(function, '__name__', function)} cannot be traced by JAX "
            f"({type(error).__name__}: {reason}); write it with jax.numpy, or with operators and "
            f"methods of arrays only, for batches (obs, action, next_obs)"
        ) from error


def _sample_steps(env: TaskEnv) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """What the environment gave in real steps, and real, then random (obs, action, next_obs)."""
    observed, space = env.single_observation_space, env.single_action_space
    observed.seed(0)
    space.seed(0)
    now, _ = env.reset(seed=0)
    rows = []
    for _ in range(PROBE_STEPS):
        action = np.asarray(space.sample())
        obs, reward, terminated, _, info = env.step(action[None])
        after = info["final_obs"][0] if "final_obs" in info else obs[0]
        rows.append((now[0], action, after, reward[0], info["cost"][0], terminated[0]))
        now = obs
    before, action, after, reward, cost, terminated = map(np.array, zip(*rows, strict=True))
    real = {"reward": reward, "cost": cost, "termination": terminated}
    drawn = [[observed.sample() for _ in range(RANDOM_ROWS)] for _ in range(2)]
    random = np.clip(np.array(drawn, np.float32), -LARGEST_RANDOM, LARGEST_RANDOM)
    float32 = lambda real, more: np.concatenate([np.asarray(real, np.float32), more])
    actions = np.concatenate([action, [np.asarray(space.sample()) for _ in range(RANDOM_ROWS)]])
    if actions.dtype.kind == "f":
        actions = actions.astype(np.float32)
    return real, float32(before, random[0]), actions, float32(after, random[1])


def _check_initial(function: Function, size: int) -> None:
    try:
        starts = jax.eval_shape(lambda key: function(key, 3), jax.random.key(0))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"known initial states: the function cannot be traced by JAX ({type(error).__name__}: "
            f"{reason}); it must take (key, n) and return n observations"
        ) from error
    if getattr(starts, "shape", None) != (3, size):
        raise ValueError(
            f"known initial states: the function returns {starts} for n=3, not {(3, size)}"
        )
