"""The family's environments: N robots among objects, stepped together."""

from collections.abc import Callable

import numpy as np
from mujoco import MjModel  # pyright: ignore[reportAttributeAccessIssue]

from surefoot.envs.base import EXCEPTION_REWARD, StepResult, TaskEnv
from surefoot.envs.family import ego, layout, rules
from surefoot.envs.family.config import FamilyConfig
from surefoot.envs.family.rules import FamilyState
from surefoot.envs.family.simulation import Simulation
from surefoot.envs.navigation.layout import ImpossibleLayout
from surefoot.envs.render.scene import Scene
from surefoot.envs.streams import WordStreams


class FamilyEnv(TaskEnv):
    """A task of the family for N robots on `threads` threads (0: one per core)."""

    make_streams = WordStreams

    def __init__(
        self,
        config: FamilyConfig,
        num_envs: int = 1,
        seed: int | None = None,
        threads: int = 0,
        render_mode: str | None = None,
    ):
        self.config, self.cost_names = config, config.cost_names
        self.slots = tuple(config.slots())
        self.simulation = Simulation(config, num_envs, threads)
        low, high = self.simulation.model.actuator_ctrlrange.T
        super().__init__(
            num_envs,
            self._observation_size(),
            low,
            high,
            config.max_episode_steps,
            seed=seed,
            render_mode=render_mode,
        )
        kinds = [slot.kind for slot in self.slots]
        self._at = {kind: np.flatnonzero([k == kind for k in kinds]) for kind in set(kinds)}
        none = np.zeros(0, dtype=np.intp)
        self.free_slots, self.fixed_slots = (self._at.get(k, none) for k in self.simulation.kinds)
        self.goal = np.zeros((num_envs, 2))
        self.hazards = np.zeros((num_envs, config.hazards, 2))
        self.button, self.timer = np.zeros((2, num_envs), dtype=np.int64)
        self.previous = np.zeros((num_envs, 2))
        self.costs = np.zeros((num_envs, len(config.cost_kinds)))
        """Each kind of cost in the last step, [N, k] in the order of `config.cost_kinds`."""
        self.met = np.zeros(num_envs, dtype=bool)
        """Where the last step reached the goal or pressed its button, [N]."""

    def _observation_size(self) -> int:
        sensors = self.simulation.sensors.shape[1]
        if self.config.observation == "ego":
            return ego.ego_size(self.config)
        return rules.observation_size(self.config, sensors)

    def _begin(self, ids: np.ndarray) -> None:
        c, simulation = self.config, self.simulation
        # Earlier states share these arrays, so new episodes go into copies.
        self.goal, self.hazards = self.goal.copy(), self.hazards.copy()
        self.button, self.timer = self.button.copy(), self.timer.copy()
        self.previous = self.previous.copy()
        for i in ids.tolist():
            if c.layout_seed is not None:
                self.streams.seed([i], [c.layout_seed])
            places = np.array(layout.sample_layout(self.streams, i, self.slots))
            yaws = [self.streams.draw(i, 0.0, 2 * np.pi) for _ in self.slots]
            poses = np.column_stack([places, yaws])
            simulation.begin(i, poses[0], poses[self.free_slots], places[self.fixed_slots])
            self.hazards[i] = places[self._at.get("hazards", [])]
            self.timer[i] = c.button_delay if c.button_timer == "1.2.0" else 0
            if not self.renew(i):
                raise ImpossibleLayout(
                    f"no goal fits within extent={c.extent}; use fewer objects or a larger extent"
                )
            bent = simulation.robot.bent
            noise = [self.streams.draw(i, -0.1, 0.1) for _ in bent]
            simulation.robot.bend(simulation.qpos[i], noise)
        simulation.started(ids)
        self.refresh()
        self.previous[ids] = rules.distances(c, self._state())[ids]

    def renew(self, i: int) -> bool:
        """Draw the next goal of environment i; False if none fits."""
        c, simulation = self.config, self.simulation
        if c.task == "button":
            self.button[i] = self.streams.choose(i, c.buttons)
            self.goal[i] = simulation.statics[i, self.button[i]]
        if "goal" not in self._at or c.task == "button":
            return True
        keepout = c.keepout
        taken = [(*simulation.place(i), keepout("agent"))]
        for xy, kind in (
            (self.hazards[i], "hazards"),
            (simulation.bodies[i, :, :2], simulation.kinds[0]),
            (simulation.statics[i], simulation.kinds[1]),
        ):
            taken += [(x, y, keepout(kind)) for x, y in xy.tolist()]
        _, radius, rectangle = self.slots[int(self._at["goal"][0])]
        goal = layout.sample_point(self.streams, i, rectangle, radius, taken)
        if goal is not None:
            self.goal[i] = goal
        return goal is not None

    def refresh(self) -> None:
        """Read poses and velocities of the robots from the simulation."""
        self.reading, self.velocity = self.simulation.read(), self.simulation.qvel[:, :2].copy()
        self.place = self.reading.position[:, :2]

    def advance(self, actions: np.ndarray) -> StepResult:
        c = self.config
        failed = self.simulation.step(actions)
        self.failures += int(failed.sum())
        self.streams.skip_one()  # the reference draws its frame skip here, always the same one
        self.refresh()
        self._after_physics = state = self.state()
        reward, self.met, self.previous = rules.arrive(c, state)
        self.costs = rules.costs(c, state)
        if c.task == "button":
            self.timer = np.maximum(self.timer - 1, 0)
        terminated = np.zeros(self.num_envs, dtype=bool)
        if self.met.any():
            self.met &= ~failed
            self._renew_goals(np.flatnonzero(self.met), terminated)
        fall = self.simulation.robot.fall
        if fall is not None:
            terminated |= (self.reading.position[:, 2] <= fall) & ~failed
        if failed.any():
            reward[failed], self.costs[failed] = EXCEPTION_REWARD, 1.0
        cost = self.costs
        if self.cost_names == ("sum",):
            cost = self.costs.max(1, keepdims=True, initial=0.0)
        return StepResult(reward, cost, terminated, failed)

    def _renew_goals(self, ids: np.ndarray, terminated: np.ndarray) -> None:
        self.goal, self.button, self.timer = self.goal.copy(), self.button.copy(), self.timer.copy()
        for i in ids.tolist():
            terminated[i] = not self.renew(i)
        if self.config.task == "button":
            self.timer[ids] = self.config.button_delay
        self.previous[ids] = rules.distances(self.config, self._state())[ids]

    def _outcome(self) -> FamilyState:
        return self._after_physics

    def _state(self) -> FamilyState:
        """The present state, whose arrays the simulation will change."""
        s, r = self.simulation, self.reading
        return FamilyState(
            r.position, r.heading, r.rotation, r.body, self.velocity, s.sensors, self.goal,
            self.hazards, s.bodies, s.speeds, s.home[..., :2], s.statics, s.touch, self.button,
            self.timer, s.steps * s.dt, self.previous,
        )  # fmt: skip

    def state(self) -> FamilyState:
        return FamilyState(*(part.copy() for part in self._state()))

    def observe(self, ids: np.ndarray) -> np.ndarray:
        state = self._state()
        state = state if len(ids) == self.num_envs else state.select(ids)
        if self.config.observation == "ego":
            return ego.ego_observation(np, self.config, ego.view(self.config, state))
        return rules.observe(self.config, state)

    SAVED = ("goal", "hazards", "button", "timer", "previous", "costs", "met")

    def _save(self) -> dict[str, np.ndarray]:
        own = {name: getattr(self, name).copy() for name in self.SAVED}
        return {**own, **{f"physics_{k}": v for k, v in self.simulation.save().items()}}

    def _load(self, state: dict[str, np.ndarray]) -> None:
        for name in self.SAVED:
            setattr(self, name, state[name].copy())
        self.simulation.load({k: state[f"physics_{k}"] for k in self.simulation.ARRAYS})
        self.refresh()

    def physics(self) -> Callable[[np.ndarray], None]:
        start = self.simulation.save()

        def run(actions: np.ndarray) -> None:
            # From the same states every time: nobody restarts episodes here.
            self.simulation.load(start)
            self.simulation.step(actions)

        return run

    def pose(self, i: int) -> tuple[MjModel, np.ndarray]:
        return self.simulation.model, self.simulation.qpos[i]

    def _scene(self, i: int) -> Scene:
        from surefoot.envs.family.picture import scene

        return scene(self, i)
