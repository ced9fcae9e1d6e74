"""The Safety-Velocity task: run along x as fast as possible, but not faster than a limit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from mujoco import MjModel  # pyright: ignore[reportAttributeAccessIssue]

from surefoot.core.config import Count, check, check_choice
from surefoot.envs.base import EXCEPTION_REWARD, StepResult, TaskEnv
from surefoot.envs.render.scene import Scene
from surefoot.envs.streams import Generators
from surefoot.envs.velocity.robots import ROBOTS, Version, load_model
from surefoot.envs.velocity.simulation import Simulation


@dataclass(frozen=True)
class VelocityConfig:
    """Options of the Safety-Velocity tasks."""

    robot: str = "half-cheetah"
    """Which robot: half-cheetah, hopper, walker2d, swimmer, ant or humanoid."""
    version: Version = "v1"
    """Version of the reference's task, which decides the speed limit."""
    max_episode_steps: Count = 1000
    """Steps after which an episode is truncated."""

    def __post_init__(self) -> None:
        check(self)
        check_choice("robot", self.robot, ROBOTS)


class VelocityState(NamedTuple):
    """Everything that reward, cost and observations of N robots depend on."""

    qpos: np.ndarray
    """[N, nq]."""
    qvel: np.ndarray
    """[N, nv]."""
    place: np.ndarray
    """Horizontal position before the next step, whose change is the speed, [N, axes]."""
    extras: np.ndarray
    """Further observations, [N, E]."""


class VelocityEnv(TaskEnv):
    """The Safety-Velocity task for N robots on `threads` threads (0: one per core).

    As in the reference, MuJoCo clips the control, and the reward charges for the action as given.
    """

    cost_names = ("velocity",)
    make_streams = Generators

    def __init__(
        self,
        config: VelocityConfig,
        num_envs: int = 1,
        seed: int | None = None,
        threads: int = 0,
        render_mode: str | None = None,
    ):
        self.config, self.robot = config, ROBOTS[config.robot]
        self.speed_limit = self.robot.limits[config.version]
        model = load_model(config.robot)
        sizes = {"cinert": 10 * model.nbody, "cvel": 6 * model.nbody}
        sizes |= {"qfrc_actuator": model.nv, "cfrc_ext": 6 * model.nbody}
        extras = sum(sizes[name] for name in self.robot.extras)
        low, high = model.actuator_ctrlrange.T
        super().__init__(
            num_envs,
            model.nq - self.robot.axes + model.nv + extras,
            low,
            high,
            config.max_episode_steps,
            seed=seed,
            render_mode=render_mode,
        )
        self._low, self._high = -np.inf, np.inf
        self.simulation = Simulation(config.robot, num_envs, threads)
        self.place = np.zeros((num_envs, self.robot.axes))
        self.extras = np.zeros((num_envs, extras))
        self.speed = np.zeros(num_envs)

    def set_state(
        self, qpos: np.ndarray, qvel: np.ndarray, warmstart: np.ndarray, place: np.ndarray
    ) -> None:
        """Set the states of all environments; `place` [N, axes] is the position before a step."""
        self.simulation.set_state(qpos, qvel, warmstart)
        self.place[:] = place

    def _begin(self, ids: np.ndarray) -> None:
        robot, simulation = self.robot, self.simulation
        model, noise = simulation.model, robot.noise
        simulation.reset(ids)
        for i in ids:
            rng = self.streams[i]
            simulation.qpos[i] += rng.uniform(-noise, noise, model.nq)
            if robot.normal:
                simulation.qvel[i] = noise * rng.standard_normal(model.nv)
            else:
                simulation.qvel[i] = rng.uniform(-noise, noise, model.nv)
        simulation.forward(ids)
        self.place[ids], self.speed[ids] = simulation.places()[ids], 0.0
        self.extras[ids] = simulation.extras()[ids]
        if "cfrc_ext" in robot.extras:  # the last extra; the reference resets it to zero
            self.extras[ids, -6 * model.nbody :] = 0.0

    def advance(self, actions: np.ndarray) -> StepResult:
        robot, simulation = self.robot, self.simulation
        failed = simulation.step(actions)
        self.failures += int(failed.sum())
        before, self.place = self.place, simulation.places()
        self.extras = simulation.extras()
        velocity = (self.place - before) / simulation.seconds
        along = self.speed = velocity[:, 0]
        if self.config.version in robot.planar:
            self.speed = np.sqrt(velocity[:, 0] ** 2 + velocity[:, 1] ** 2)
        effort = np.square(actions).sum(1)
        reward = robot.alive + robot.forward * along - robot.control * effort
        cost = (self.speed > self.speed_limit).astype(np.float64)
        fallen = np.zeros(self.num_envs, dtype=bool)
        if robot.healthy is not None:
            fallen = ~robot.healthy(simulation.qpos, simulation.qvel) & ~failed
        if failed.any():
            reward[failed], cost[failed] = EXCEPTION_REWARD, 1.0
        return StepResult(reward, cost[:, None], fallen, failed)

    def observe(self, ids: np.ndarray) -> np.ndarray:
        qpos, qvel = self.simulation.qpos[ids, self.robot.axes :], self.simulation.qvel[ids]
        if np.isfinite(self.robot.velocity_clip):
            qvel = np.clip(qvel, -self.robot.velocity_clip, self.robot.velocity_clip)
        return np.concatenate([qpos, qvel, self.extras[ids]], 1)

    def state(self) -> VelocityState:
        qpos, qvel = self.simulation.qpos.copy(), self.simulation.qvel.copy()
        return VelocityState(qpos, qvel, self.place.copy(), self.extras.copy())

    def _save(self) -> dict[str, np.ndarray]:
        parts = {"physics": self.simulation.batch.state, "place": self.place}
        parts |= {"extras": self.extras, "speed": self.speed}
        return {name: part.copy() for name, part in parts.items()}

    def _load(self, state: dict[str, np.ndarray]) -> None:
        self.simulation.batch.state[:] = state["physics"]
        self.place, self.extras = state["place"].copy(), state["extras"].copy()
        self.speed = state["speed"].copy()

    def physics(self) -> Callable[[np.ndarray], None]:
        rows = self.simulation.batch.state.copy()

        def run(actions: np.ndarray) -> None:
            # From the same states every time: robots that lie on the floor take longer.
            self.simulation.batch.state[:] = rows
            self.simulation.run(actions)

        return run

    def pose(self, i: int) -> tuple[MjModel, np.ndarray]:
        return self.simulation.model, self.simulation.qpos[i]

    def _scene(self, i: int) -> Scene:
        from surefoot.envs.velocity.picture import scene

        over = bool(self.speed[i] > self.speed_limit)
        title = f"{self.robot.title}: {self.speed[i]:.2f} of {self.speed_limit:.2f} m/s"
        return scene(*self.pose(i), over, title)
