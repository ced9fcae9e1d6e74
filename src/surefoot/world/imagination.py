"""Imagined rollouts: a policy or a plan acts, the ensemble answers, thousands at once."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from surefoot.core.spaces import ActionSpec
from surefoot.world.ensemble import Ensemble, predict_elites_shared, predict_member_index
from surefoot.world.model import State, TaskModel

Policy = Callable[[Float[Array, "B O"], Key[Array, ""]], Shaped[Array, "B ..."]]
# Imagined features stay within this many deviations of the data.
REACH = 6.0


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

    def returns(self) -> Float[Array, " B"]:
        """Undiscounted reward of each rollout."""
        return jnp.sum(self.reward * self.alive, 0)

    def cost_returns(self) -> Float[Array, "B k"]:
        """Undiscounted costs of each rollout."""
        return jnp.sum(self.cost * self.alive[..., None], 0)


def imagine(
    knowledge: TaskModel,
    actions: ActionSpec,
    ensemble: Ensemble,
    policy: Policy,
    states: State,
    horizon: int,
    key: Key[Array, ""],
    member: Int[Array, ""] | None = None,
) -> tuple[Rollout, State]:
    """Roll `states` (leading axis B) forward under `policy`; also the states reached.

    Every step of every rollout is predicted by one elite chosen at random; or all of them by one
    `member`. What the policy and the model draw depends on `key` alone, so two policies given the
    same key and states meet the same luck.
    """
    size = jax.tree.leaves(states)[0].shape[0]
    answer = _answer(knowledge, ensemble, member)

    def step(carry: tuple[State, Array], key: Key[Array, ""]) -> tuple[tuple[State, Array], Any]:
        states, alive = carry
        act_key, *luck = jax.random.split(key, 4)
        obs = jax.vmap(knowledge.observe)(states)
        action = policy(obs, act_key)
        after, reward, cost, terminated = answer(states, actions.encode(action), luck)
        row = (obs, action, reward, cost, terminated & (alive > 0), alive)
        return (after, alive * ~terminated), row

    keys = jax.random.split(key, horizon)
    (states, _), rows = jax.lax.scan(step, (states, jnp.ones(size)), keys)
    return Rollout(*rows, last_obs=jax.vmap(knowledge.observe)(states)), states


class Followed(eqx.Module):
    """What came of B rollouts under given actions."""

    reward: Float[Array, " B"]
    """Undiscounted, up to the end of each."""
    cost: Float[Array, "B k"]
    alive: Float[Array, " B"]
    """1 where a rollout goes on after the last action, 0 where it has ended."""
    states: State


def follow(
    knowledge: TaskModel,
    actions: ActionSpec,
    ensemble: Ensemble,
    taken: Shaped[Array, "T B ..."],
    states: State,
    key: Key[Array, ""],
    member: Int[Array, ""] | None = None,
) -> Followed:
    """As `imagine`, but for actions that are given instead of a policy; sums alone are kept."""
    answer = _answer(knowledge, ensemble, member)

    def step(now: Followed, given: tuple[Array, Key[Array, ""]]) -> tuple[Followed, None]:
        action, key = given
        _, *luck = jax.random.split(key, 4)
        after, reward, cost, ended = answer(now.states, actions.encode(action), luck)
        total = now.reward + reward * now.alive, now.cost + cost * now.alive[:, None]
        return Followed(*total, now.alive * ~ended, after), None

    horizon, size = taken.shape[:2]
    start = Followed(
        jnp.zeros(size), jnp.zeros((size, len(knowledge.cost_names))), jnp.ones(size), states
    )
    return jax.lax.scan(step, start, (taken, jax.random.split(key, horizon)))[0]


def _answer(
    knowledge: TaskModel, ensemble: Ensemble, member: Int[Array, ""] | None
) -> Callable[..., tuple[State, Array, Array, Array]]:
    """How the learned world answers encoded actions: next states, reward, costs and termination."""
    features = knowledge.feature_size
    mean, std = ensemble.input_mean[:features], ensemble.input_std[:features]
    bounds = (mean - REACH * std, mean + REACH * std)

    def predict(x: Float[Array, "B F"], key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        if member is None:
            return predict_elites_shared(ensemble, x, key)
        return predict_member_index(ensemble, member, x)

    def answer(states: State, encoded: Float[Array, "B A"], luck: list[Key[Array, ""]]) -> Any:
        member_key, noise_key, binary_key = luck
        x = jnp.concatenate([jax.vmap(knowledge.features)(states), encoded], -1)
        mean, std, logits = predict(x, member_key)
        drawn = mean + std * jax.random.normal(noise_key, mean.shape)
        binary = jnp.stack(
            [jax.nn.sigmoid(logits), jax.random.uniform(binary_key, logits.shape)], 1
        )
        return jax.vmap(knowledge.advance, (0, 0, 0, 0, None))(
            states, encoded, drawn, binary, bounds
        )

    return answer
