"""The models of Goal, Button, Push, Circle and Run: rewards, goals, and how objects move."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from surefoot.envs import geometry
from surefoot.envs.family.ego import View, box_in_ego, to_world, turned
from surefoot.envs.family.models import FamilyModel, State
from surefoot.envs.family.rules import REWARD_BOUND, RUN_TARGET
from surefoot.envs.family.world import compile_world, solid_of
from surefoot.envs.navigation.robots import PlanarRobot

if TYPE_CHECKING:
    from surefoot.envs.family.env import FamilyEnv


@dataclass(frozen=True)
class GoalModel(FamilyModel):
    """Goal: hazards are known; contacts with vases are learned where they cost."""

    draws_goals = True

    def _more_features(self) -> tuple[str, ...]:
        return ("vases move",) if self.signals else ()

    def _more_outputs(self) -> tuple[str, ...]:
        return ("vase forward", "vase left") if self.signals else ()

    def _more(self, v: View) -> list[Array]:
        return [self._moving(v)[None]] if self.signals else []

    def _moving(self, v: View) -> Array:
        return self._signal(v, "vases_velocity").astype(v.body.dtype)

    def _more_targets(self, old: View, new: View) -> list[Array]:
        if not self.signals:
            return []
        index, _, near = self._nearest(old, "vases")
        move = turned(jnp, old, (new.movable[index] - old.movable[index])[None])[0]
        return [jnp.where(near, move, jnp.nan)]

    def _move_objects(self, old: View, new: View, prediction: Array) -> View:
        if not self.signals:
            return new
        index, _, near = self._nearest(old, "vases")
        # A vase at rest that nothing touches stays there exactly.
        moves = near & (self._signal(new, "vases_velocity") | self._signal(new, "vases_contact"))
        move = jnp.where(moves, to_world(jnp, old, prediction), 0.0)
        return new._replace(movable=new.movable.at[index].add(move))

    def _arrive(self, old: View, new: View) -> tuple[Array, Array]:
        before, now = (geometry.distance(jnp, v.position, old.goal) for v in (old, new))
        met = now <= self.config.goal_size
        return _bounded(before - now + met), met


@dataclass(frozen=True)
class ButtonModel(FamilyModel):
    """Button: circles and timers are known; contacts with buttons and gremlins are learned."""

    def _spares(self, key: Key[Array, ""], view: View) -> Float[Array, "N M 1"]:
        shape = (len(view.goal), self.spare, 1)
        drawn = jax.random.randint(key, shape, 0, self.config.buttons)
        return drawn.astype(view.goal.dtype)

    def _drawn(self, v: View) -> np.ndarray:
        if not self.config.button_delay:
            return v.button[1:][v.button[1:] != v.button[:-1]][:, None]
        return v.button[1:][v.timer[1:, 0] == self.config.button_delay]

    def _arrive(self, old: View, new: View) -> tuple[Array, Array]:
        before, now = (geometry.distance(jnp, v.position, old.goal) for v in (old, new))
        met = self._signal(new, "buttons") & self._at_goal(old)
        return _bounded(before - now + met), met

    def _at_goal(self, v: View) -> Array:
        """Whether the nearest button is the goal."""
        return self._nearest(v, "buttons")[0] == v.button[0].astype(int)

    def _cost(self, name: str, old: View, new: View) -> Array:
        if name != "buttons":
            return super()._cost(name, old, new)
        return self._signal(new, name) & ~self._at_goal(old) & (old.timer[0] == 0)

    def _renew(self, state: State, v: View, met: Array) -> State:
        choice = jnp.where(met, state.spare[state.used % self.spare], v.button)
        delay = jnp.asarray(self.config.button_delay, v.timer.dtype)
        v = v._replace(
            button=choice,
            goal=v.statics[choice[0].astype(int)],
            timer=jnp.where(met, delay, v.timer),
        )
        return State(v, state.spare, state.used + met)


@dataclass(frozen=True)
class PushModel(FamilyModel):
    """Push: how the box moves is learned, and the robot's motion against box and pillars."""

    draws_goals = True

    def _more_features(self) -> tuple[str, ...]:
        names = ("cos angle", "sin angle", "velocity x", "velocity y", "spin")
        return tuple(f"box {name}" for name in names)

    def _more_outputs(self) -> tuple[str, ...]:
        names = ("forward", "left", "turn", "velocity x", "velocity y", "spin")
        return tuple(f"box {name}" for name in names)

    def _more(self, v: View) -> list[Array]:
        return [box_in_ego(jnp, v) * self._nearest(v, "push_box")[2]]

    def _more_targets(self, old: View, new: View) -> list[Array]:
        near = self._nearest(old, "push_box")[2]
        change = new.box - old.box
        move, pace = turned(jnp, old, jnp.stack([new.movable[0] - old.movable[0], change[1:3]]))
        turn = jnp.arctan2(jnp.sin(change[:1]), jnp.cos(change[:1]))
        return [jnp.where(near, jnp.concatenate([move, turn, pace, change[3:]]), jnp.nan)]

    def _move_objects(self, old: View, new: View, prediction: Array) -> View:
        near = self._nearest(old, "push_box")[2]
        move, pace = to_world(jnp, old, prediction[:2]), to_world(jnp, old, prediction[3:5])
        change = jnp.concatenate([prediction[2:3], pace, prediction[5:6]])
        at_rest = old.box * jnp.array([1.0, 0.0, 0.0, 0.0])
        return new._replace(
            movable=new.movable + jnp.where(near, move, 0.0),
            box=jnp.where(near, old.box + change, at_rest),
        )

    @cached_property
    def _heights(self) -> tuple[float, float, float]:
        """Of the robot's, the box's and the goal's centres."""
        robot = self.robot.robot
        rise = robot.height if isinstance(robot, PlanarRobot) else None
        rise = float(compile_world(self.robot).qpos0[2]) if rise is None else rise
        return rise, solid_of(self.config, "push_box").height, self.config.goal_size / 2 + 0.01

    def _distances(self, v: View, goal: Array) -> tuple[Array, Array]:
        robot, box, disc = self._heights
        names = self.robot.robot.body_names
        if "height" in names:
            robot = v.body[names.index("height")]
        flat = jnp.stack([v.movable[0] - v.position, v.movable[0] - goal])
        rise = jnp.stack([jnp.asarray(box - robot), jnp.asarray(box - disc)])
        both = jnp.sqrt((flat * flat).sum(1) + rise * rise)
        return both[0], both[1]

    def _arrive(self, old: View, new: View) -> tuple[Array, Array]:
        before, now = self._distances(old, old.goal), self._distances(new, old.goal)
        met = now[1] <= self.config.goal_size
        return _bounded(before[0] - now[0] + before[1] - now[1] + met), met


@dataclass(frozen=True)
class CircleModel(FamilyModel):
    """Circle: everything but the robot's motion is known."""

    def _arrive(self, old: View, new: View) -> tuple[Array, Array]:
        x, y = new.position
        radius = jnp.sqrt(x * x + y * y + 1e-20)
        u, v = to_world(jnp, new, self._velocity(new.body))
        reward = (v * x - u * y) / radius / (1 + jnp.abs(radius - 1.5)) * 0.1
        return _bounded(reward), jnp.zeros((), bool)

    def _velocity(self, body: Float[Array, " P"]) -> Float[Array, " 2"]:
        """The robot's horizontal velocity, along and across its heading."""
        if isinstance(self.robot.robot, PlanarRobot):
            return body[:2]
        # The third row of a rotation, and that it is upright, give pitch and roll.
        x, y, z, a, b = *body[:3], *body[6:8]
        flat = jnp.sqrt(jnp.maximum(1 - a * a, 1e-12))
        up = jnp.sqrt(jnp.maximum(1 - a * a - b * b, 0.0))
        sin, cos = b / flat, up / flat
        return jnp.stack([flat * x - a * (sin * y + cos * z), cos * y - sin * z])


@dataclass(frozen=True)
class RunModel(FamilyModel):
    """Run: everything but the robot's motion is known."""

    def _arrive(self, old: View, new: View) -> tuple[Array, Array]:
        # The difference of two squares: single precision would lose that of the distances.
        a, b = (v.position - jnp.asarray(RUN_TARGET, v.position.dtype) for v in (old, new))
        length = jnp.sqrt((a * a).sum()) + jnp.sqrt((b * b).sum())
        gain = ((old.position - new.position) * (a + b)).sum() / length
        return 60.0 * gain, jnp.zeros((), bool)


def _bounded(reward: Array) -> Array:
    return jnp.clip(reward, -REWARD_BOUND, REWARD_BOUND)


MODELS = {
    "goal": GoalModel, "button": ButtonModel, "push": PushModel, "circle": CircleModel,
    "run": RunModel,
}  # fmt: skip


def ego_model(env: "FamilyEnv") -> FamilyModel:
    """The model of an environment's task."""
    config = env.config
    model = MODELS[config.task](config)
    if config.layout_seed is None:
        return model
    one = type(env)(config, 1, seed=0, threads=1)
    one.reset()
    return MODELS[config.task](config, model.record(one.state()))
