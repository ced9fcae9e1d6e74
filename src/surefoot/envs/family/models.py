"""Models of the family's tasks for imagination: known geometry, learned motion and contacts.

Given to the learner: how layouts and new goals are drawn, where everything is, the gremlins'
circles, timers, and the formulas of reward, cost and observation. Learned by the ensemble: the
robot's motion in its own frame; where solid objects matter, contacts with them, and how box and
vases move. For that, the features hold the nearest object of each solid kind, if it is within
reach. Approximations, in imagination only:

- Vases that cost nothing stay where they are; of those that cost, the nearest to the robot moves.
- Gremlins keep to their circles, though a robot can push them aside for a moment.
- The box stays upright, and meets robots but no pillars. A robot on its back is taken for upright.
- A contact is with the nearest object of its kind; what is out of reach is not touched.

`surefoot.world.model.TaskModel` documents the methods. Batch them with vmap.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from surefoot.envs import geometry
from surefoot.envs.family import ego
from surefoot.envs.family.config import FamilyConfig
from surefoot.envs.family.ego import View, places, turned
from surefoot.envs.family.robots import FamilyRobot, robot_of
from surefoot.envs.family.rules import FamilyState
from surefoot.envs.family.starts import draw_starts, vary_starts
from surefoot.envs.family.world import solid_of
from surefoot.envs.navigation.goal_course import KNOWN, STEPS_PER_GOAL, Columns
from surefoot.envs.navigation.sampler import clear_points

Bounds = tuple[Float[Array, " F"], Float[Array, " F"]]
CANDIDATES = 8
"""Spare goals considered when one is reached."""
MARGIN = 0.1
"""Metres of free space within which an object may be touched in a step."""


class State(NamedTuple):
    """One imagined state: what is known, and the goals to come."""

    view: View
    spare: Array
    """Future goals, [M, 2]; in Button indices of buttons, [M, 1]."""
    used: Array


@dataclass(frozen=True)
class FamilyModel:
    """What all tasks share: the learned motion of the robot, records, and new goals."""

    config: FamilyConfig
    starts: Float[np.ndarray, "M R"] | None = field(default=None, compare=False)
    """Records of the initial states; None: they are drawn as resets draw them."""
    spare: int = 16
    """Goals drawn in advance for each imagined episode."""

    takes_observations = False
    draws_goals: ClassVar[bool] = False
    """Whether a goal that is met is replaced by another."""

    @property
    def robot(self) -> FamilyRobot:
        return robot_of(self.config)

    @property
    def known(self) -> tuple[str, ...]:
        contacts = "reward and cost of contacts"
        return tuple(x for x in KNOWN if x != "cost") + (contacts,) if self.signals else KNOWN

    @property
    def signals(self) -> tuple[str, ...]:
        return ego.signals(self.config)

    @property
    def solids(self) -> tuple[str, ...]:
        """Kinds of objects that the features hold."""
        touched = ("vases", "gremlins") if self.signals else ()
        wanted = (*touched, "buttons", "pillars", "push_box")
        return tuple(kind for kind in self.config.kinds if kind in wanted)

    @property
    def cost_names(self) -> tuple[str, ...]:
        return self.config.cost_names

    @property
    def feature_names(self) -> tuple[str, ...]:
        near = [f"{kind} {axis}" for kind in self.solids for axis in ("ahead", "left")]
        return (*self.robot.robot.body_names, *near, *self._more_features())

    @property
    def output_names(self) -> tuple[str, ...]:
        motion = (*self.robot.robot.body_names, "forward", "left", "turn")
        return (*motion, *self._more_outputs(), *self.signals)

    @property
    def feature_size(self) -> int:
        return len(self.feature_names)

    @property
    def binary_size(self) -> int:
        return len(self.signals)

    @property
    def target_size(self) -> int:
        return len(self.output_names) - self.binary_size

    @property
    def observation_size(self) -> int:
        return ego.ego_size(self.config)

    @property
    def record_size(self) -> int:
        return self._columns.size

    @cached_property
    def _columns(self) -> Columns:
        c, kinds = self.config, self.config.kinds
        movable = sum(c.number(k) for k in kinds if k in ("vases", "gremlins", "push_box"))
        statics = sum(c.number(k) for k in kinds if k in ("buttons", "pillars"))
        return Columns(
            position=2, heading=1, body=self.robot.robot.proprioception, goal=2,
            hazards=2 * c.hazards, movable=2 * movable, box=4 * (c.task == "push"),
            statics=2 * statics, button=1, timer=1, time=1, signals=len(self.signals),
        )  # fmt: skip

    def _view(self, record: Float[Array | np.ndarray, "... R"]) -> View:
        lists = ("hazards", "movable", "statics")
        part = lambda name: record[..., self._columns[name]]
        pairs = lambda x: x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2)
        return View(*(pairs(part(k)) if k in lists else part(k) for k in View._fields))

    def record(self, state: FamilyState) -> np.ndarray:
        """Real states as records [N, R]."""
        return self._join(ego.view(self.config, state))

    @cached_property
    def _starts(self) -> Float[np.ndarray, "M R"]:
        return self.starts if self.starts is not None else self._join(draw_starts(self.config))

    def _join(self, v: View) -> Float[np.ndarray, "N R"]:
        return np.concatenate([x.reshape(len(x), -1) for x in v], 1).astype(np.float32)

    def initial_records(self, key: Key[Array, ""], n: int) -> Float[Array, "n R"]:
        """n initial states as resets draw them, from a limited number of layouts."""
        pick, change = jax.random.split(key)
        rows = jnp.asarray(self._starts)
        rows = rows[jax.random.randint(pick, (n,), 0, len(rows))]
        if self.starts is not None:
            return rows
        v = vary_starts(self.config, change, self._view(rows))
        return jnp.concatenate([x.reshape(n, -1) for x in v], 1)

    def restore(self, key: Key[Array, ""], records: Float[Array, "N R"]) -> State:
        """Imagined states that start from records."""
        view, n = self._view(records), len(records)
        return State(view, self._spares(key, view), jnp.zeros(n, jnp.int32))

    def _spares(self, key: Key[Array, ""], view: View) -> Float[Array, "N M _"]:
        """Future goals of N views."""
        if not self.draws_goals:
            return jnp.zeros((len(view.goal), 0, 2))
        c = self.config
        rectangle = next(slot.rectangle for slot in c.slots() if slot.kind == "goal")
        around = jnp.concatenate([view.hazards, view.statics], 1)
        apart = [c.keepout("hazards")] * c.hazards + [c.keepout("pillars")] * c.pillars
        return clear_points(key, rectangle, around, c.goal_keepout + np.array(apart), self.spare)

    def for_horizon(self, horizon: int) -> Self:
        """The same model with enough spare goals for imagined episodes of `horizon` steps."""
        return replace(self, spare=max(self.spare, horizon // STEPS_PER_GOAL))

    def _nearest(self, v: View, kind: str) -> tuple[Array, Array, Array]:
        """The nearest object of a kind: index, direction times closeness [2], within reach.

        Closeness is 0 out of reach and grows by a metre per metre.
        """
        gap = turned(jnp, v, places(jnp, self.config, v, kind) - v.position[None])
        away = jnp.sqrt((gap * gap).sum(-1) + 1e-12)
        index = jnp.argmin(away)
        reach = self.robot.radius + solid_of(self.config, kind).radius + MARGIN
        close = jnp.maximum(0.0, reach - away[index])
        return index, gap[index] / away[index] * close, close > 0

    def features(self, state: State) -> Float[Array, " F"]:
        """Proprioception, then the solid objects within reach."""
        return self._features(state.view)

    def record_features(self, record: Float[Array, " R"]) -> Float[Array, " F"]:
        return self._features(self._view(record))

    def _features(self, v: View) -> Float[Array, " F"]:
        near = [self._nearest(v, kind)[1] for kind in self.solids]
        return jnp.concatenate([v.body, *near, *self._more(v)])

    def target(
        self, before: Float[Array, " R"], after: Float[Array, " R"], *given: Array
    ) -> Float[Array, " D+b"]:
        """What the networks should predict for a real step."""
        old, new = self._view(before), self._view(after)
        turn = new.heading - old.heading
        turn = jnp.arctan2(jnp.sin(turn), jnp.cos(turn))
        move = turned(jnp, old, (new.position - old.position)[None])[0]
        parts = [new.body - old.body, move, turn, *self._more_targets(old, new), new.signals]
        return jnp.concatenate(parts)

    def advance(
        self, state: State, action: Array, prediction: Array, binary: Array, bounds: Bounds
    ) -> tuple[State, Array, Array, Array]:
        """Next state, reward, costs [k] and termination, given the networks' prediction."""
        v, size = state.view, self.robot.robot.proprioception
        body = jnp.clip(v.body + prediction[:size], bounds[0][:size], bounds[1][:size])
        move, turn = prediction[size : size + 2], prediction[size + 2 : size + 3]
        new = v._replace(
            position=v.position + ego.to_world(jnp, v, move),
            heading=v.heading + turn,
            body=body,
            time=v.time + 1,
            timer=jnp.maximum(v.timer - 1, 0),
            signals=(binary[1] < binary[0]) * self._possible(v),
        )
        new = self._move_objects(v, new, prediction[size + 3 :])
        reward, met = self._arrive(v, new)
        costs = jnp.stack([self._cost(name, v, new) for name in self.config.cost_kinds] or [0.0])
        if self.cost_names == ("sum",):
            costs = costs.max(keepdims=True)
        fallen = jnp.zeros((), bool)
        if self.robot.fall is not None:
            fallen = body[self.robot.robot.body_names.index("height")] <= self.robot.fall
        return self._renew(state, new, met), reward, costs.astype(body.dtype), fallen

    def _possible(self, v: View) -> Float[Array, " b"]:
        """1 where a signal can be, because an object is within reach."""
        kinds = {"vases_contact": "vases", "vases_velocity": "vases"}
        out = []
        for name, before in zip(self.signals, v.signals, strict=True):
            near = self._nearest(v, kinds.get(name, name))[2]
            out.append(near | (before > 0) if name == "vases_velocity" else near)
        return jnp.stack(out).astype(v.body.dtype) if out else v.signals

    def _signal(self, v: View, name: str) -> Array:
        return v.signals[self.signals.index(name)] > 0

    def _cost(self, name: str, old: View, new: View) -> Array:
        """Whether a constraint is violated after a step."""
        if name == "hazards":
            away = geometry.distance(jnp, new.hazards, new.position[None])
            return (away < self.config.hazard_size).any()
        if name == "out_of_boundary":
            return (jnp.abs(new.position[: self.config.walls // 2]) > self.config.boundary).any()
        return self._signal(new, name)

    def _renew(self, state: State, v: View, met: Array) -> State:
        """The state with another goal where it was met: clear of the robot and what it pushes."""
        if not self.draws_goals:
            return State(v, *state[1:])
        c, index = self.config, (state.used + jnp.arange(CANDIDATES)) % self.spare
        spots = state.spare[index]
        away = geometry.distance(jnp, spots, v.position)
        clear = away >= c.goal_keepout + c.keepout("agent")
        if v.movable.shape[-2]:
            kind = "push_box" if c.task == "push" else "vases"
            gap = geometry.distance(jnp, spots[:, None], v.movable[None])
            clear &= (gap >= c.goal_keepout + c.keepout(kind)).all(1)
        # The first clear spot; if none is clear (rare), the farthest.
        pick = jnp.where(clear.any(), jnp.argmax(clear), jnp.argmax(away))
        v = v._replace(goal=jnp.where(met, spots[pick], v.goal))
        return State(v, state.spare, jnp.where(met, state.used + pick + 1, state.used))

    def observe(self, state: State) -> Float[Array, " O"]:
        """What the policy observes."""
        return ego.ego_observation(jnp, self.config, state.view)

    def follow_real(
        self, states: State, records: Float[np.ndarray, "T n R"], ended: Bool[np.ndarray, "T n"],
        start: Int[np.ndarray, " B"], place: Int[np.ndarray, " B"], within: Bool[np.ndarray, "H B"],
    ) -> tuple[State, Bool[np.ndarray, "H B"]]:  # fmt: skip
        """States with the goals that were really drawn; features compare at all times."""
        spare = np.array(states.spare)
        for b, (first, i) in enumerate(zip(start, place, strict=True)):
            ends = np.flatnonzero(ended[first:, i])
            episode = records[first : first + ends[0] + 1 if len(ends) else None, i]
            later = self._drawn(self._view(episode))[: spare.shape[1]]
            spare[b, : len(later)] = later
        return states._replace(spare=jnp.asarray(spare)), within

    def _drawn(self, v: View) -> np.ndarray:
        """The goals that were drawn in the course of an episode, [G, 2]."""
        return v.goal[1:][(v.goal[1:] != v.goal[:-1]).any(1)]

    def events(self, state: State) -> Int[Array, ""]:
        return jnp.zeros((), jnp.int32)

    # Hooks of the tasks: names and numbers of objects that move, and what they do.

    def _more_features(self) -> tuple[str, ...]:
        return ()

    def _more_outputs(self) -> tuple[str, ...]:
        return ()

    def _more(self, v: View) -> list[Array]:
        return []

    def _more_targets(self, old: View, new: View) -> list[Array]:
        return []

    def _move_objects(self, old: View, new: View, prediction: Array) -> View:
        return new

    def _arrive(self, old: View, new: View) -> tuple[Array, Array]:
        """Reward of a step, and whether the goal is met."""
        raise NotImplementedError
