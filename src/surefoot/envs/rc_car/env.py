"""The RC-car task: drive along a circle without leaving it on the outside."""

import numpy as np

from surefoot.envs.base import StepResult, TaskEnv
from surefoot.envs.rc_car import dynamics
from surefoot.envs.rc_car.dynamics import RCCarConfig
from surefoot.envs.rc_car.solver import integrate
from surefoot.envs.render.scene import COST_ZONE, GREEN, PAPER, VERMILION, Circle, Scene


class RCCarEnv(TaskEnv):
    """The RC-car task for N cars.

    Actions (throttle, steering) in [-1, 1] set wheel speeds from 0 to the car's largest, and
    steering angles from right to left. Episodes end by time only. All run on one thread.
    """

    cost_names = ("outside",)

    def __init__(
        self,
        config: RCCarConfig | None = None,
        num_envs: int = 1,
        seed: int | None = None,
        threads: int = 0,
        render_mode: str | None = None,
    ):
        self.config = config = config or RCCarConfig()
        high = np.ones(2)
        super().__init__(
            num_envs, dynamics.OBSERVATION_SIZE, -high, high, config.max_episode_steps,
            seed=seed, render_mode=render_mode,
        )  # fmt: skip
        self.cars = np.zeros((num_envs, dynamics.STATE))

    def _begin(self, ids: np.ndarray) -> None:
        draws = [self.streams.drawer(i) for i in ids]
        uniform = np.array([[draw(0.0, 1.0) for _ in range(dynamics.DRAWS)] for draw in draws])
        # Earlier states share the array, so new episodes go into a copy.
        self.cars = self.cars.copy()
        self.cars[ids] = dynamics.initial_state(np, self.config, uniform)

    def advance(self, actions: np.ndarray) -> StepResult:
        c = self.config
        wheel = 0.5 * c.car.max_wheel_speed * (actions[:, 0] + 1.0)
        command = np.stack([wheel, c.car.max_steering * actions[:, 1]], axis=-1)
        self.cars = integrate(self.cars, command, c.dt, c.car, c.rtol, c.atol)
        reward, cost = dynamics.judge(np, c, self.cars)
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
            alert=bool(dynamics.judge(np, c, self.cars[i])[1]),
            title="RC car",
        )
