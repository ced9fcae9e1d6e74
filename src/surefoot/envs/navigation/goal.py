"""The Goal task: drive to one goal after another and keep out of the hazards.

Only the robot is simulated. Hazards and goal never touch it, so layouts, lidar, reward and cost are
array code over all environments at once.
"""

from collections.abc import Callable

import numpy as np
from mujoco import MjModel  # pyright: ignore[reportAttributeAccessIssue]

from surefoot.envs import geometry
from surefoot.envs.base import EXCEPTION_REWARD, StepResult, TaskEnv
from surefoot.envs.navigation import goal_rules, layout
from surefoot.envs.navigation.goal_rules import OBSERVATIONS, GoalConfig, GoalState
from surefoot.envs.navigation.robots import ROBOTS, load_model
from surefoot.envs.navigation.simulation import Simulation
from surefoot.envs.render.scene import GREEN, VERMILION, Circle, DashedSquare, LidarRing, Scene


class GoalEnv(TaskEnv):
    """The Goal task for N robots on `threads` threads (0: one per core)."""

    cost_names = ("hazards",)
    observations = OBSERVATIONS

    def __init__(
        self,
        config: GoalConfig,
        num_envs: int = 1,
        seed: int | None = None,
        threads: int = 0,
        render_mode: str | None = None,
    ):
        self.config = config
        self.robot = ROBOTS[config.robot]
        low, high = load_model(config.robot).actuator_ctrlrange.T
        super().__init__(
            num_envs,
            goal_rules.observation_size(config),
            low,
            high,
            config.max_episode_steps,
            config.action_repeat,
            seed,
            render_mode,
        )
        use_sensors = config.observation == "reference"
        self.simulation = Simulation(self.robot, num_envs, threads, config.frame_skip, use_sensors)
        self.goal = np.zeros((num_envs, 2))
        self.hazards = np.zeros((num_envs, config.hazards, 2))

    def set_state(
        self,
        qpos: np.ndarray,
        qvel: np.ndarray,
        warmstart: np.ndarray,
        goal: np.ndarray,
        hazards: np.ndarray,
    ) -> None:
        """Set all environments to given states, of the simulation and of the layout."""
        self.simulation.set_state(qpos, qvel, warmstart)
        self.goal, self.hazards = goal, hazards
        self._read()
        self.distance = geometry.distance(np, self.place, self.goal)

    def draw_goal(self, i: int, robot_xy: layout.Point) -> layout.Point | None:
        """The next goal of environment i for a robot at `robot_xy`; None if none fits."""
        c = self.config
        taken = [(*robot_xy, c.robot_keepout)]
        taken += [(x, y, c.hazard_keepout) for x, y in self.hazards[i].tolist()]
        return layout.sample_point(self.streams.drawer(i), c.extent, c.goal_keepout, taken)

    def _begin(self, ids: np.ndarray) -> None:
        c = self.config
        # Earlier states share these arrays, so new episodes go into copies.
        self.goal, self.hazards = self.goal.copy(), self.hazards.copy()
        self.simulation.reset(ids)
        for i in ids:
            draw = self.streams.drawer(i)
            points = layout.sample_layout(draw, c.extent, c.keepouts)
            yaw = draw(0.0, 2 * np.pi)
            for _ in range(1 + c.hazards):  # the reference draws unused yaws here
                draw(0.0, 2 * np.pi)
            self.hazards[i] = np.reshape(points[2:], (-1, 2))
            self.robot.place(self.simulation.qpos[i], *points[0], yaw)
            goal = self.draw_goal(i, points[0])
            if goal is None:
                raise layout.ImpossibleLayout(
                    f"no goal fits between {c.hazards} hazards within extent={c.extent}; "
                    f"use fewer hazards or a larger extent"
                )
            self.goal[i] = goal
        self.simulation.forward(ids)
        self._read()
        self.distance = geometry.distance(np, self.place, self.goal)

    def _read(self) -> None:
        """Read poses and proprioception from the simulation."""
        self.position, self.heading, self.rotation, self.body = self.robot.read(
            self.simulation.qpos, self.simulation.qvel
        )
        self.place = self.position[:, :2]

    def advance(self, actions: np.ndarray) -> StepResult:
        failed = self.simulation.step(actions)
        self.failures += int(failed.sum())
        self.streams.skip_one()  # the reference draws its frame skip here, always the same one
        self._read()
        distance, met, reward, cost = goal_rules.arrive(
            np, self.config, self.distance, self.place, self.goal, self.hazards
        )
        self.distance = distance
        self._after_physics = self.state()
        terminated = np.zeros(self.num_envs, dtype=bool)
        if met.any():
            terminated = self._renew_goals(np.flatnonzero(met & ~failed))
        if failed.any():
            reward[failed], cost[failed] = EXCEPTION_REWARD, 1.0
        return StepResult(reward, cost[:, None], terminated, failed)

    def _renew_goals(self, ids: np.ndarray) -> np.ndarray:
        """Draw new goals for `ids`; episodes without room for one terminate, [N]."""
        self.goal = self.goal.copy()
        self.distance = self.distance.copy()
        terminated = np.zeros(self.num_envs, dtype=bool)
        for i in ids:
            goal = self.draw_goal(i, (float(self.place[i, 0]), float(self.place[i, 1])))
            if goal is None:
                terminated[i] = True
            else:
                self.goal[i] = goal
        self.distance[ids] = geometry.distance(np, self.place[ids], self.goal[ids])
        return terminated

    def _outcome(self) -> GoalState:
        return self._after_physics

    def _save(self) -> dict[str, np.ndarray]:
        parts = {
            "physics": self.simulation.batch.state,
            "goal": self.goal,
            "hazards": self.hazards,
            "distance": self.distance,
        }
        return {name: part.copy() for name, part in parts.items()}

    def _load(self, state: dict[str, np.ndarray]) -> None:
        self.simulation.batch.state[:] = state["physics"]
        self.goal, self.hazards = state["goal"].copy(), state["hazards"].copy()
        self.distance = state["distance"].copy()
        self._read()

    def state(self) -> GoalState:
        return GoalState(
            self.position, self.heading, self.rotation, self.body,
            self.goal, self.hazards, self.distance,
        )  # fmt: skip

    def observe(self, ids: np.ndarray) -> np.ndarray:
        state = self.state()
        if len(ids) < self.num_envs:
            state = state.select(ids)
        sensors = None
        if self.config.observation == "reference":
            sensors = self.simulation.sensors(ids, state.body, state.rotation)
        return goal_rules.observe(self.config, state, sensors)

    def physics(self) -> Callable[[np.ndarray], None]:
        return self.simulation.run

    def pose(self, i: int) -> tuple[MjModel, np.ndarray]:
        return self.simulation.model, self.simulation.qpos[i]

    def _scene(self, i: int) -> Scene:
        c = self.config
        one = self.state().select(slice(i, i + 1))
        points = np.concatenate([one.goal[:, None], one.hazards], 1)
        ego = np.stack(goal_rules.in_body(one, points), -1)
        see = lambda points: geometry.lidar(np, points, c.lidar_range)[0]
        lidar = [LidarRing(see(ego[:, 1:]), VERMILION, 0.28, 0.34)] if c.hazards else []
        near = geometry.distance(np, self.hazards[i], self.place[i]) <= c.hazard_size
        hazards = [
            Circle(xy, c.hazard_size, VERMILION, fill=0.48 if touched else 0.24)
            for xy, touched in zip(self.hazards[i], near, strict=True)
        ]
        goal = self.goal[i]
        return Scene(
            robot_xy=self.place[i],
            heading=float(self.heading[i]),
            glyph=self.robot.glyph,
            extent=c.extent,
            shapes=(
                DashedSquare(c.extent),
                *hazards,
                Circle(goal, c.goal_size, GREEN, fill=0.26),
                Circle(goal, c.goal_size / 8, GREEN, fill=1.0, outline=False),
            ),
            lidar=(*lidar, LidarRing(see(ego[:, :1]), GREEN, 0.36, 0.42)),
            alert=bool(near.any()),
            title=f"{c.robot.capitalize()} goal",
        )
