"""Imagined rollouts: the policy acts, the ensemble answers, thousands at once."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from surefoot.spaces import ActionSpec
from surefoot.world.ensemble import Ensemble, predict_elites_shared, predict_member_index
from surefoot.world.knowledge import Knowledge, State

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
    knowledge: Knowledge,
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
    features = knowledge.feature_size
    mean, std = ensemble.input_mean[:features], ensemble.input_std[:features]
    bounds = (mean - REACH * std, mean + REACH * std)

    def predict(x: Float[Array, "B F"], key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        if member is None:
            return predict_elites_shared(ensemble, x, key)
        return predict_member_index(ensemble, member, x)

    def step(carry: tuple[State, Array], key: Key[Array, ""]) -> tuple[tuple[State, Array], Any]:
        states, alive = carry
        act_key, member_key, noise_key, binary_key = jax.random.split(key, 4)
        obs = jax.vmap(knowledge.observe)(states)
        action = policy(obs, act_key)
        encoded = actions.encode(action)
        x = jnp.concatenate([jax.vmap(knowledge.features)(states), encoded], -1)
        mean, std, logits = predict(x, member_key)
        drawn = mean + std * jax.random.normal(noise_key, mean.shape)
        binary = jnp.stack(
            [jax.nn.sigmoid(logits), jax.random.uniform(binary_key, logits.shape)], 1
        )
        after, reward, cost, terminated = jax.vmap(knowledge.advance, (0, 0, 0, 0, None))(
            states, encoded, drawn, binary, bounds
        )
        row = (obs, action, reward, cost, terminated & (alive > 0), alive)
        return (after, alive * ~terminated), row

    keys = jax.random.split(key, horizon)
    (states, _), rows = jax.lax.scan(step, (states, jnp.ones(size)), keys)
    return Rollout(*rows, last_obs=jax.vmap(knowledge.observe)(states)), states
