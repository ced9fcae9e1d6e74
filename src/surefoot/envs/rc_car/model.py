"""The model of the RC-car task for imagination: the known parts as pure JAX functions of one state.

`surefoot.world.model.TaskModel` documents the methods. Batch them with vmap.
"""

from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from surefoot.envs import geometry
from surefoot.envs.rc_car import dynamics
from surefoot.envs.rc_car.dynamics import DRAWS, OBSERVATION_SIZE, RCCarConfig
from surefoot.envs.rc_car.env import RCCarEnv

Bounds = tuple[Float[Array, " F"], Float[Array, " F"]]


@dataclass(frozen=True)
class RCCarModel:
    """Only the car's motion is learned: change of velocities, ego displacement, change of yaw.

    A record and an imagined state are both the six numbers of the real state.
    """

    config: RCCarConfig
    """The task."""

    known = ("initial states", "observation", "reward", "cost", "termination")
    takes_observations = False
    cost_names = RCCarEnv.cost_names
    binary_size = 0
    observation_size = OBSERVATION_SIZE
    feature_size = 3
    target_size = 6
    record_size = dynamics.STATE
    feature_names = ("velocity x", "velocity y", "yaw rate")
    output_names = (*feature_names, "forward", "left", "turn")

    def for_horizon(self, horizon: int) -> Self:
        """The same model: it needs no preparation for long imagined episodes."""
        return self

    def record(self, state: np.ndarray) -> np.ndarray:
        """Real states [N, 6] as records."""
        return state.astype(np.float32)

    def initial_records(self, key: Key[Array, ""], n: int) -> Float[Array, "N R"]:
        """n initial states, as resets draw them."""
        return dynamics.initial_state(jnp, self.config, jax.random.uniform(key, (n, DRAWS)))

    def restore(self, key: Key[Array, ""], records: Float[Array, "N R"]) -> Float[Array, "N R"]:
        """Imagined states that start from records."""
        return records

    def features(self, state: Float[Array, " R"]) -> Float[Array, " F"]:
        return state[3:]

    record_features = features

    def target(
        self, before: Float[Array, " R"], after: Float[Array, " R"], *signals: Array
    ) -> Float[Array, " D"]:
        """What the network should predict for a real step."""
        turn = after[2] - before[2]
        cos, sin = jnp.cos(before[2]), jnp.sin(before[2])
        move = geometry.to_ego(jnp, after[None, :2], before[:2], cos, sin)[0]
        return jnp.concatenate([after[3:] - before[3:], move, turn[None]])

    def advance(
        self, state: Array, action: Array, prediction: Array, binary: Array, bounds: Bounds
    ) -> tuple[Array, Array, Array, Array]:
        """Next state, reward, costs [1] and termination, given the network's prediction."""
        velocity = jnp.clip(state[3:] + prediction[:3], *bounds)
        cos, sin = jnp.cos(state[2]), jnp.sin(state[2])
        dx, dy, turn = prediction[3:]
        pose = state[:3] + jnp.stack([*geometry.to_world(dx, dy, cos, sin), turn])
        state = jnp.concatenate([pose, velocity])
        reward, cost = dynamics.judge(jnp, self.config, state)
        return state, reward, cost[None], jnp.zeros((), bool)

    def observe(self, state: Float[Array, " R"]) -> Float[Array, " O"]:
        """What the policy observes."""
        return dynamics.observe(jnp, state, self.config.radius)

    def follow_real(
        self,
        states: Float[Array, "B R"],
        records: Float[np.ndarray, "T n R"],
        ended: Bool[np.ndarray, "T n"],
        start: Int[np.ndarray, " B"],
        place: Int[np.ndarray, " B"],
        within: Bool[np.ndarray, "H B"],
    ) -> tuple[Float[Array, "B R"], Bool[np.ndarray, "H B"]]:
        """The same states: nothing is drawn during an episode, and features always compare."""
        return states, within

    def events(self, state: Float[Array, " R"]) -> Int[Array, ""]:
        """0: no event changes the meaning of the features."""
        return jnp.zeros((), jnp.int32)
