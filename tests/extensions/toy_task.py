"""A complete task in one file: drive along a line towards a wall, and do not touch it.

The cart moves by 0.1 * throttle per step. Reward is progress; a step beyond the wall at x = 1 costs
1, and so does one left of x = -1. Only the cart's motion is learned; the rest is known.

    surefoot train toy_task.py:TASK --cost-limit wall=2 edge=0
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from surefoot.core.config import Count, Positive, check
from surefoot.envs.base import StepResult, TaskEnv
from surefoot.envs.render.scene import GREEN, VERMILION, Circle, Scene
from surefoot.envs.task import Task


@dataclass(frozen=True)
class LineConfig:
    """Options of the task; every field is one."""

    wall: Positive = 1.0
    """Where the wall stands."""
    max_episode_steps: Count = 30
    """Steps of an episode."""

    def __post_init__(self) -> None:
        check(self)


def judge(xp: Any, config: LineConfig, before: Any, after: Any) -> tuple[Any, Any]:
    """Reward [...] and costs [..., 2] of a move; for numpy and JAX."""
    return after - before, xp.stack([after > config.wall, after < -1.0], -1) * 1.0


class LineEnv(TaskEnv):
    cost_names = ("wall", "edge")

    def __init__(self, config: LineConfig, threads: int = 0, **kwargs: Any):
        self.config = config
        one = np.ones(1)
        super().__init__(kwargs.pop("num_envs"), 1, -one, one, config.max_episode_steps, **kwargs)
        self.x = np.zeros(self.num_envs)

    def _begin(self, ids: np.ndarray) -> None:
        self.x = self.x.copy()
        for i in ids:
            self.x[i] = self.streams.drawer(i)(-0.5, 0.5)

    def advance(self, actions: np.ndarray) -> StepResult:
        before, self.x = self.x, self.x + 0.1 * actions[:, 0]
        reward, cost = judge(np, self.config, before, self.x)
        never = np.zeros(self.num_envs, dtype=bool)
        return StepResult(reward, cost, never, never)

    def observe(self, ids: np.ndarray) -> np.ndarray:
        return self.x[ids, None]

    def state(self) -> np.ndarray:
        return self.x[:, None]

    def _scene(self, i: int) -> Scene:
        wall = Circle(np.array([self.config.wall, 0.0]), 0.05, VERMILION, fill=1.0)
        start = Circle(np.zeros(2), 0.05, GREEN)
        return Scene(np.array([self.x[i], 0.0]), 0.0, "point", 2.0, (wall, start), title="Line")

    def _save(self) -> dict[str, np.ndarray]:
        return {"x": self.x.copy()}

    def _load(self, state: dict[str, np.ndarray]) -> None:
        self.x = state["x"].copy()


@dataclass(frozen=True)
class LineModel:
    """The networks predict the displacement; records, states and features are the position."""

    config: LineConfig
    known = ("initial states", "observation", "reward", "cost", "termination")
    takes_observations = False
    cost_names = LineEnv.cost_names
    observation_size = record_size = feature_size = target_size = 1
    binary_size = 0
    feature_names = ("position",)
    output_names = ("displacement",)

    def record(self, state: np.ndarray) -> np.ndarray:
        return state.astype(np.float32)

    def initial_records(self, key: Key[Array, ""], n: int) -> Float[Array, "n 1"]:
        return jax.random.uniform(key, (n, 1), minval=-0.5, maxval=0.5)

    def restore(self, key: Key[Array, ""], records: Float[Array, "n 1"]) -> Float[Array, "n 1"]:
        return records

    def features(self, state: Float[Array, " 1"]) -> Float[Array, " 1"]:
        return state

    record_features = observe = features

    def target(self, before: Array, after: Array, *signals: Array) -> Float[Array, " 1"]:
        return after - before

    def advance(
        self, state: Array, action: Array, prediction: Array, binary: Array, bounds: Any
    ) -> tuple[Array, Array, Array, Array]:
        after = state + prediction
        reward, cost = judge(jnp, self.config, state[0], after[0])
        return after, reward, cost, jnp.zeros((), bool)

    def follow_real(
        self, states: Any, records: Any, ended: Any, start: Any, place: Any, within: Any
    ) -> tuple[Any, Any]:
        return states, within

    def for_horizon(self, horizon: int) -> "LineModel":
        return self

    def events(self, state: Array) -> Array:
        return jnp.zeros((), jnp.int32)


TASK = Task(
    name="Line",
    summary="A cart drives along a line towards a wall.",
    make_envs=LineEnv,
    options=LineConfig(),
    cost_limits={"wall": 2.0, "edge": 0.0},
    models={"ego": lambda env: LineModel(env.config)},
    presets={"mbppo-lagrangian": {"steps": 600, "episodes": 4, "horizon": 30}},
)
