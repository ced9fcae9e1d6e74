"""The RC-car task: drive along a circle, and do not leave it on the outside."""

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from surefoot.core.config import check_types
from surefoot.envs import geometry
from surefoot.envs.base import TaskEnv
from surefoot.envs.rc_car import dynamics
from surefoot.envs.rc_car.dynamics import CAR, SPREAD, InitialSpread, RCCarParameters
from surefoot.envs.rc_car.solver import integrate
from surefoot.envs.render.draw import Scene

Reward = Literal["circle", "fast"]
OBSERVATION_SIZE = 4
DRAWS = 5  # random numbers of one initial state


@dataclass(frozen=True)
class RCCarConfig:
    """Every number of the RC-car task.

    The car, the circle reward, its weights and the spread of initial states are those of
    r-pad/aa_simulation. The MBPPO-Lagrangian paper names that simulator, a cost limit of 5 and
    150,000 steps, but none of the following; ours are that simulator's own settings:

    - `radius`, `target_speed`: 1 m and 1 m/s, its circle task.
    - `dt`: 0.1 s, as in its training scripts (the class default there is 0.035 s).
    - `epsilon`: 0.05 m, its safety margin, which counts outside the circle only.
    - `reward`: "circle". "fast" rewards speed alone, so that reward and cost conflict.
    - `max_episode_steps`: 100, its horizon. At 0.1 s the target speed makes 1.6 rounds.
    """

    radius: float = 1.0
    """Radius of the circle, around the origin, in m."""
    target_speed: float = 1.0
    """Speed that the circle reward asks for, in m/s; episodes start at up to twice as much."""
    dt: float = 0.1
    """Seconds per environment step."""
    epsilon: float = 0.05
    """A step costs 1 when it ends this far, in m, or farther outside the circle."""
    reward: Reward = "circle"
    """circle: stay on it at the target speed; fast: speed squared."""
    speed_weight: float = 0.25
    """Weight of the squared speed error in the circle reward."""
    heading_weight: float = 0.25
    """Weight, in the circle reward, of heading against the direction of travel."""
    max_episode_steps: int = 100
    """Steps after which an episode is truncated."""
    rtol: float = 1e-3
    """Relative tolerance of the integration."""
    atol: float = 1e-5
    """Absolute tolerance of the integration."""
    spread: InitialSpread = SPREAD
    """How far initial states lie from driving on the circle."""
    car: RCCarParameters = CAR
    """The car itself."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.reward not in get_args(Reward):
            raise ValueError(f"reward={self.reward!r} is not one of {', '.join(get_args(Reward))}")
        steps = self.max_episode_steps
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ValueError(f"max_episode_steps={steps!r} must be a whole number of at least 1")
        for f in fields(self):
            value = getattr(self, f.name)
            if f.type is float and not value > 0:
                raise ValueError(f"{f.name}={value!r} must be a positive number")


def judge(xp: Any, config: RCCarConfig, state: Any) -> tuple[Any, Any]:
    """Reward [...] and cost [...] of a step that ends in states [..., 6]."""
    c = config
    if c.reward == "fast":
        reward = dynamics.fast_reward(xp, state)
    else:
        weights = c.speed_weight, c.heading_weight
        reward = dynamics.reward(xp, state, c.radius, c.target_speed, *weights)
    return reward, dynamics.cost(xp, state, c.radius, c.epsilon)


class RCCarEnv(TaskEnv):
    """The RC-car task for N cars.

    Actions (throttle, steering) in [-1, 1] stand for wheel speeds from 0 to the car's largest and
    for steering angles from right to left. Episodes end by time only.
    """

    cost_names = ("outside",)

    def __init__(
        self,
        config: RCCarConfig | None = None,
        num_envs: int = 1,
        seed: int | None = None,
        render_mode: str | None = None,
    ):
        self.config = config = config or RCCarConfig()
        high = np.ones(2)
        super().__init__(
            num_envs, OBSERVATION_SIZE, -high, high, config.max_episode_steps,
            seed=seed, render_mode=render_mode,
        )  # fmt: skip
        self.cars = np.zeros((num_envs, dynamics.STATE))

    def _begin(self, ids: np.ndarray) -> None:
        c = self.config
        uniform = np.empty((len(ids), DRAWS))
        for row, i in zip(uniform, ids, strict=True):
            draw = self.streams.drawer(i)
            row[:] = [draw(0.0, 1.0) for _ in range(DRAWS)]
        # Snapshots share the array, so new episodes go into a fresh one.
        self.cars = self.cars.copy()
        self.cars[ids] = dynamics.initial_state(np, uniform, c.radius, c.target_speed, c.spread)

    def _advance(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        c = self.config
        command = dynamics.to_command(np, actions, c.car)
        self.cars = integrate(self.cars, command, c.dt, c.car, c.rtol, c.atol)
        reward, cost = judge(np, c, self.cars)
        never = np.zeros(self.num_envs, dtype=bool)
        return reward, cost, never, never

    def _observe(self, ids: np.ndarray) -> np.ndarray:
        return dynamics.observe(np, self.cars[ids], self.config.radius)

    def _freeze(self) -> dict[str, np.ndarray]:
        return {"cars": self.cars.copy()}

    def _thaw(self, state: dict[str, np.ndarray]) -> None:
        self.cars = state["cars"].copy()

    def state(self) -> np.ndarray:
        """All cars, [N, 6]: x, y, psi, vx, vy, r."""
        return self.cars

    def scene(self, i: int) -> Scene:
        c = self.config
        cost = dynamics.cost(np, self.cars[i], c.radius, c.epsilon)
        return Scene(
            robot_xy=self.cars[i, :2],
            heading=float(self.cars[i, 2]),
            robot="rc_car",
            extent=1.5 * c.radius,
            circle=(c.radius, c.epsilon),
            step=int(self.elapsed[i]),
            max_steps=c.max_episode_steps,
            reward=float(self.episode_reward[i]),
            cost=float(self.episode_cost[i]),
            in_hazard=bool(cost),
            title="RC car",
        )


@dataclass(frozen=True)
class RCCarModel:
    """What is known of the task, as pure JAX functions of one state (batch them with vmap).

    Only the car's motion is learned: the change of its velocities, its displacement in its own
    frame, and its turn. A record and an imagined state are both the six numbers of the real state.
    """

    config: RCCarConfig
    """The task."""

    name = "ego"
    takes_observations = False
    known = ("initial states", "observation", "reward", "cost", "termination")
    cost_names = RCCarEnv.cost_names
    binary_size = 0
    observation_size = OBSERVATION_SIZE
    feature_size = 3
    target_size = 6
    record_size = dynamics.STATE

    def record(self, state: np.ndarray) -> np.ndarray:
        """Real states [N, 6] as they are kept in memory."""
        return state.astype(np.float32)

    def initial_records(self, key: Key[Array, ""], n: int) -> Float[Array, "N R"]:
        """n initial states, as resets draw them."""
        c = self.config
        uniform = jax.random.uniform(key, (n, DRAWS))
        return dynamics.initial_state(jnp, uniform, c.radius, c.target_speed, c.spread)

    def restore(self, key: Key[Array, ""], records: Float[Array, "N R"]) -> Float[Array, "N R"]:
        """Imagined states that start from records."""
        return records

    def features(self, state: Float[Array, " R"]) -> Float[Array, " F"]:
        return state[3:]

    def record_features(self, record: Float[Array, " R"]) -> Float[Array, " F"]:
        return record[3:]

    def target(
        self, before: Float[Array, " R"], after: Float[Array, " R"], reward, cost, terminated
    ) -> Float[Array, " D"]:
        """What the network should say of a real step."""
        turn = after[2] - before[2]
        cos, sin = jnp.cos(before[2]), jnp.sin(before[2])
        move = geometry.to_ego(jnp, after[None, :2], before[:2], cos, sin)[0]
        return jnp.concatenate([after[3:] - before[3:], move, turn[None]])

    def advance(
        self, state: Float[Array, " R"], action, prediction: Float[Array, " D"], binary, bounds
    ) -> tuple[Array, Array, Array, Array]:
        """The next state, reward, costs [1] and termination, given what the network said."""
        velocity = jnp.clip(state[3:] + prediction[:3], *bounds)
        cos, sin = jnp.cos(state[2]), jnp.sin(state[2])
        dx, dy, turn = prediction[3:]
        pose = state[:3] + jnp.stack([cos * dx - sin * dy, sin * dx + cos * dy, turn])
        state = jnp.concatenate([pose, velocity])
        reward, cost = judge(jnp, self.config, state)
        return state, reward, cost[None], jnp.zeros((), bool)

    def observe(self, state: Float[Array, " R"]) -> Float[Array, " O"]:
        return dynamics.observe(jnp, state, self.config.radius)
