"""Imagined rollouts: a policy or given actions in the learned model, thousands at once."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from surefoot.core.arrays import Index, RandomKey, Tree, choose
from surefoot.core.spaces import ActionSpec
from surefoot.world.ensemble import (
    Ensemble,
    only_elites,
    predict_elites_shared,
    predict_member,
    rounded,
)
from surefoot.world.model import Outcome, State, TaskModel

Policy = Callable[[Float[Array, "B O"], RandomKey], Shaped[Array, "B ..."]]
REACH = 6.0
"""Bound of imagined features, in standard deviations of the data."""


@dataclass(frozen=True)
class LearnedWorld:
    """A task to imagine: its known parts, its actions, and the ensemble that learned the rest."""

    model: TaskModel
    actions: ActionSpec
    ensemble: Ensemble


class Rollout(eqx.Module):
    """T imagined steps of B rollouts."""

    obs: Float[Array, "T B O"]
    action: Shaped[Array, "T B ..."]
    reward: Float[Array, "T B"]
    cost: Float[Array, "T B k"]
    terminated: Bool[Array, "T B"]
    alive: Float[Array, "T B"]
    """1 up to and including the step that ends a rollout, 0 after it."""
    last_obs: Float[Array, "B O"]
    """Of the final states; with a time limit, after the last step that a rollout took."""

    def returns(self) -> Float[Array, " B"]:
        """Undiscounted reward of each rollout."""
        return jnp.sum(self.reward * self.alive, 0)

    def cost_returns(self) -> Float[Array, "B k"]:
        """Undiscounted costs of each rollout."""
        return jnp.sum(self.cost * self.alive[..., None], 0)


def last_steps(weight: Float[Array, "T B"]) -> Bool[Array, "T B"]:
    """Which steps have a weight while those after them have none."""
    return weight > jnp.concatenate([weight[1:], jnp.zeros_like(weight[:1])])


class Restarts(NamedTuple):
    """Rollouts that stay near real states, because they start again from others."""

    rollouts: Bool[Array, " B"]
    """Which rollouts do."""
    states: State
    """Where they start again, drawn at random; leading axis M."""
    every: Index
    """Steps between restarts. One more step, of weight 0, shows where a rollout had come to."""


def imagine(
    world: LearnedWorld,
    policy: Policy,
    states: State,
    horizon: int,
    key: RandomKey,
    member: Index | None = None,
    left: Int[Array, " B"] | None = None,
    observe: Callable[[State], Float[Array, " O"]] | None = None,
    restarts: Restarts | None = None,
) -> tuple[Rollout, State]:
    """Roll `states` (leading axis B) forward under `policy`; also returns the final states.

    `observe` is what the policy sees of a state; the model's own observation if not given.
    `left` is the number of steps before each episode's time limit. A rollout that reaches it stays
    in its final state, which critics can bootstrap from.
    A randomly chosen elite predicts every step of every rollout, or `member` predicts all of them.
    All random numbers depend on `key` alone, so two policies with the same key and states meet the
    same random numbers.
    """
    observe = observe or world.model.observe
    act = lambda obs, _, key: policy(obs, key)
    keys = jax.random.split(key, horizon)
    rows, states = _rollout(world, act, observe, states, (keys, None), member, left, restarts)
    return Rollout(*rows, last_obs=jax.vmap(observe)(states)), states


class Replay(eqx.Module):
    """Imagined outcomes of H given actions in B rollouts."""

    features: Float[Array, "H B F"]
    """After each step."""
    events: Int[Array, "H B"]
    """Events so far, after each step; see `TaskModel.events`."""
    reward: Float[Array, "H B"]
    cost: Float[Array, "H B k"]
    alive: Float[Array, "H B"]
    """1 up to and including the step that ends a rollout, 0 after it."""


def replay(
    world: LearnedWorld, taken: Shaped[Array, "H B ..."], states: State, key: RandomKey
) -> Replay:
    """Roll `states` (leading axis B) forward under the actions `taken`, as `imagine` would.

    Random elites and noise apply, so even a perfect model of a noisy task errs by sqrt(2) times the
    standard deviation of the next state. Given actions do not react to imagined states as a policy
    would, so long horizons show the worst case.
    """
    look = lambda state: (world.model.features(state), world.model.events(state))
    act = lambda _, action, key: action
    keys = jax.random.split(key, len(taken))
    (seen, _, reward, cost, _, alive), states = _rollout(world, act, look, states, (keys, taken))
    after = lambda x, end: jnp.concatenate([x[1:], end[None]])
    features, events = map(after, seen, jax.vmap(look)(states))
    return Replay(features, events, reward, cost, alive)


def _rollout(
    world: LearnedWorld,
    act: Callable[[Tree, Tree, RandomKey], Shaped[Array, "B ..."]],
    look: Callable[[State], Tree],
    states: State,
    inputs: tuple[Key[Array, " T"], Shaped[Array, "T B ..."] | None],
    member: Index | None = None,
    left: Int[Array, " B"] | None = None,
    restarts: Restarts | None = None,
) -> tuple[tuple[Tree, ...], State]:
    """Roll `states` forward under `act(look(states), given, key)` for `inputs` (keys, given).

    Returns the rows of `look`, action, reward, costs, termination and alive, and the final states.
    """
    keys, given = inputs
    size = _length(states)
    # Random numbers of all steps at once: step by step, an accelerator would start many small
    # kernels for them.
    act_keys, draw_keys = jax.vmap(_split)(keys)
    draws = jax.vmap(lambda key: _draw(world.ensemble, size, key))(draw_keys)

    def step(
        transition: Callable[[State, Array, Draws], Outcome],
        carry: tuple[State, Array, Array],
        inputs: tuple,
    ) -> tuple:
        (states, alive, t), (key, draws, given) = carry, inputs
        seen = jax.vmap(look)(states)
        action = act(seen, given, key)
        after, reward, cost, terminated = transition(states, action, draws)
        ended = terminated & (alive > 0)
        # One array, because an accelerator would write each of them by a kernel of its own.
        signals = jnp.concatenate(
            [reward[:, None], cost, ended[:, None].astype(reward.dtype), alive[:, None]], -1
        )
        row = (seen, action, signals)
        goes_on = alive * ~terminated
        if left is not None:
            after = choose(alive > 0, after, states)
            goes_on = goes_on * (t + 1 < left)
        if restarts is not None:
            phase = t % (restarts.every + 1)
            begins = restarts.rollouts & (phase == restarts.every)
            drawn = jax.random.randint(
                jax.random.fold_in(key, 1), alive.shape, 0, _length(restarts.states)
            )
            fresh = jax.tree.map(lambda x: x[drawn], restarts.states)
            after = choose(begins, fresh, after)
            over = restarts.rollouts & (phase == restarts.every - 1)
            goes_on = jnp.where(begins, 1.0, jnp.where(over, 0.0, goes_on))
        return (after, goes_on, t + 1), row

    def roll(ensemble: Ensemble) -> tuple:
        transition = _transition(replace(world, ensemble=ensemble), member)
        start = (states, jnp.ones(size), jnp.zeros((), jnp.int32))
        return jax.lax.scan(partial(step, transition), start, (act_keys, draws, given))

    # An accelerator multiplies rounded numbers twice as fast. The model's own errors are larger.
    (states, *_), (seen, action, signals) = jax.lax.platform_dependent(
        world.ensemble, cpu=roll, default=lambda ensemble: roll(rounded(ensemble))
    )
    reward, cost, ended, alive = (
        signals[..., 0], signals[..., 1:-2], signals[..., -2] > 0, signals[..., -1]
    )  # fmt: skip
    return (seen, action, reward, cost, ended, alive), states


def _length(states: State) -> int:
    return jax.tree.leaves(states)[0].shape[0]


class Followed(eqx.Module):
    """Totals of B rollouts under given actions."""

    reward: Float[Array, " B"]
    """Undiscounted, up to the end of each rollout."""
    cost: Float[Array, "B k"]
    alive: Float[Array, " B"]
    """1 where a rollout continues after the last action, 0 where it has ended."""
    states: State


def follow(
    world: LearnedWorld,
    taken: Shaped[Array, "T B ..."],
    states: State,
    key: RandomKey,
    member: Index | None = None,
) -> Followed:
    """As `imagine`, but under given actions, and with totals instead of steps to save memory."""
    transition = _transition(world, member)

    def step(now: Followed, row: tuple[Array, RandomKey]) -> tuple[Followed, None]:
        action, key = row
        draws = _draw(world.ensemble, size, _split(key)[1])
        after, reward, cost, ended = transition(now.states, action, draws)
        total = now.reward + reward * now.alive, now.cost + cost * now.alive[:, None]
        return Followed(*total, now.alive * ~ended, after), None

    horizon, size = taken.shape[:2]
    costs = jnp.zeros((size, len(world.model.cost_names)))
    start = Followed(jnp.zeros(size), costs, jnp.ones(size), states)
    return jax.lax.scan(step, start, (taken, jax.random.split(key, horizon)))[0]


class Draws(NamedTuple):
    """The random numbers of one step of B rollouts."""

    order: Int[Array, " elites"]
    """Which group of rollouts each elite predicts."""
    back: Int[Array, " elites"]
    """Its inverse: which elite predicts each group."""
    normal: Float[Array, "B D"]
    uniform: Float[Array, "B b"]


def _split(key: RandomKey) -> tuple[RandomKey, Key[Array, " 3"]]:
    """The keys of a step: for the action, and for `_draw`."""
    keys = jax.random.split(key, 4)
    return keys[0], keys[1:]


def _draw(ensemble: Ensemble, size: int, keys: Key[Array, " 3"]) -> Draws:
    order = jax.random.permutation(keys[0], ensemble.elites.shape[0])
    return Draws(
        order,
        jnp.argsort(order),
        jax.random.normal(keys[1], (size, *ensemble.target_mean.shape)),
        jax.random.uniform(keys[2], (size, *ensemble.base_logits.shape)),
    )


def _transition(
    world: LearnedWorld, member: Index | None
) -> Callable[[State, Array, Draws], Outcome]:
    """The transition function of B rollouts in the learned model."""
    model, ensemble = world.model, world.ensemble
    if member is None:
        ensemble, one = only_elites(ensemble), None
    else:
        one = jax.tree.map(lambda leaf: leaf[member], ensemble.members)
    features = model.feature_size
    mean, std = ensemble.input_mean[:features], ensemble.input_std[:features]
    bounds = (mean - REACH * std, mean + REACH * std)

    def transition(states: State, action: Shaped[Array, "B ..."], draws: Draws) -> Outcome:
        encoded = world.actions.encode(action)
        x = jnp.concatenate([jax.vmap(model.features)(states), encoded], -1)
        if one is None:
            mean, std, logits = predict_elites_shared(ensemble, x, draws.order, draws.back)
        else:
            mean, std, logits = predict_member(ensemble, one, x)
        drawn = mean + ensemble.noise * std * draws.normal
        binary = jnp.stack([jax.nn.sigmoid(logits), draws.uniform], 1)
        return jax.vmap(model.advance, (0, 0, 0, 0, None))(states, encoded, drawn, binary, bounds)

    return transition
