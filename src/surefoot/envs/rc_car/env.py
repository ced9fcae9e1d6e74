"""The RC-car task: drive along a circle without leaving it on the outside."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from surefoot.core.config import Count, Positive, check
from surefoot.envs.base import StepResult, TaskEnv
from surefoot.envs.geometry import A, Namespace
from surefoot.envs.rc_car import dynamics
from surefoot.envs.rc_car.dynamics import CAR, SPREAD, InitialSpread, RCCarParameters
from surefoot.envs.rc_car.solver import integrate
from surefoot.envs.render.scene import COST_ZONE, GREEN, PAPER, VERMILION, Circle, Scene

Reward = Literal["circle", "fast"]
OBSERVATION_SIZE = 4
DRAWS = 5  # random numbers of one initial state


@dataclass(frozen=True)
class RCCarConfig:
    """Options of the RC-car task.

    The car, the circle reward, its weights and the spread of initial states are those of
    r-pad/aa_simulation. The MBPPO-Lagrangian paper names that simulator, a cost limit of 5 and
    150,000 steps, but none of the following; ours are the simulator's settings:

    - `radius`, `target_speed`: 1 m and 1 m/s, its circle task.
    - `dt`: 0.1 s, as in its training scripts (the class default there is 0.035 s).
    - `epsilon`: 0.05 m, its safety margin, which counts outside the circle only.
    - `reward`: "circle". "fast" rewards speed alone, so that reward and cost conflict.
    - `max_episode_steps`: 100, its horizon. At 0.1 s the target speed makes 1.6 rounds.
    """

    radius: Positive = 1.0
    """Radius of the circle, around the origin, in m."""
    target_speed: Positive = 1.0
    """Target of the circle reward, in m/s; episodes start at up to twice this speed."""
    dt: Positive = 0.1
    """Seconds per environment step."""
    epsilon: Positive = 0.05
    """A step costs 1 when it ends this far, in m, or farther outside the circle."""
    reward: Reward = "circle"
    """circle: stay on it at the target speed; fast: speed squared."""
    speed_weight: Positive = 0.25
    """Weight of the squared speed error in the circle reward."""
    heading_weight: Positive = 0.25
    """Weight, in the circle reward, of heading against the direction of travel."""
    max_episode_steps: Count = 100
    """Steps after which an episode is truncated."""
    rtol: Positive = 1e-3
    """Relative tolerance of the integration."""
    atol: Positive = 1e-5
    """Absolute tolerance of the integration."""
    spread: InitialSpread = SPREAD
    """Spread of initial states around driving on the circle."""
    car: RCCarParameters = CAR
    """The parameters of the car."""

    def __post_init__(self) -> None:
        check(self)


def judge(xp: Namespace, config: RCCarConfig, state: A) -> tuple[A, A]:
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

    Actions (throttle, steering) in [-1, 1] set wheel speeds from 0 to the car's largest, and
    steering angles from right to left. Episodes end by time only.
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
        # Earlier states share the array, so new episodes go into a copy.
        self.cars = self.cars.copy()
        self.cars[ids] = dynamics.initial_state(np, uniform, c.radius, c.target_speed, c.spread)

    def advance(self, actions: np.ndarray) -> StepResult:
        c = self.config
        command = dynamics.to_command(np, actions, c.car)
        self.cars = integrate(self.cars, command, c.dt, c.car, c.rtol, c.atol)
        reward, cost = judge(np, c, self.cars)
        never = np.zeros(self.num_envs, dtype=bool)
        return StepResult(reward, cost[:, None], never, never)

    def observe(self, ids: np.ndarray) -> np.ndarray:
        return dynamics.observe(np, self.cars[ids], self.config.radius)

    def _save(self) -> dict[str, np.ndarray]:
        return {"cars": self.cars.copy()}

    def _load(self, state: dict[str, np.ndarray]) -> None:
        self.cars = state["cars"].copy()

    def state(self) -> np.ndarray:
        """All cars, [N, 6]: x, y, psi, vx, vy, r."""
        return self.cars

    def _scene(self, i: int) -> Scene:
        c, centre = self.config, np.zeros(2)
        limit = c.radius + c.epsilon
        return Scene(
            robot_xy=self.cars[i, :2],
            heading=float(self.cars[i, 2]),
            glyph="rc_car",
            extent=1.5 * c.radius,
            background=COST_ZONE,
            ground=(Circle(centre, limit, PAPER, fill=1.0, outline=False),),
            shapes=(Circle(centre, limit, VERMILION), Circle(centre, c.radius, GREEN)),
            alert=bool(dynamics.cost(np, self.cars[i], c.radius, c.epsilon)),
            title="RC car",
        )
