"""A learned model on trial: real steps, and what the model says of the same actions."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from surefoot.algorithms.collect import Experience
from surefoot.core.spaces import ActionSpec
from surefoot.envs.navigation.goal_model import EgoGoalModel, PaperGoalModel
from surefoot.world.diagnostics import OneStep, Replay, one_step, replay, rollout_rmse
from surefoot.world.ensemble import Ensemble
from surefoot.world.model import State, TaskModel, targets_of

ROLLOUTS = 600
# No robot meets goals faster than this, so that many are enough to hand over.
STEPS_PER_GOAL = 5


class Trial(NamedTuple):
    """What one seed's model said, and what was real, in H steps of B rollouts."""

    one: OneStep
    rmse: np.ndarray
    """Error of each feature in units of its spread, [H, F]."""
    error: np.ndarray
    """The same over all features, for each rollout, [H, B]."""
    counted: np.ndarray
    """Whether imagined and real features can be compared, [H, B]."""
    imagined_reward: np.ndarray
    """So far, [H, B]; and so on."""
    real_reward: np.ndarray
    imagined_cost: np.ndarray
    """So far, [H, B, k]."""
    real_cost: np.ndarray


class Segments(NamedTuple):
    """B stretches of real steps, each within one episode."""

    start: np.ndarray
    """The first step of each, [B]."""
    place: np.ndarray
    """Its environment, [B]."""
    within: np.ndarray
    """Whether a step is part of it, [H, B]: a stretch ends where its episode terminates."""

    def take(self, x: np.ndarray) -> np.ndarray:
        """Of numbers [T, n, …], those of the stretches, [H, B, …]; after an end the last ones."""
        last = self.start + self.within.sum(0) - 1
        t = np.minimum(self.start + np.arange(len(self.within))[:, None], last)
        return x[t, self.place]


def segments(ended: np.ndarray, terminated: np.ndarray, horizon: int, count: int) -> Segments:
    """`count` stretches of `horizon` steps, spread evenly over all those in real steps [T, n].

    None crosses the end of an episode. Those that termination cuts short belong to them, or the
    model would never be tried on the way to an end; those that the clock cuts short do not.
    """
    left, to_the_end = np.zeros(ended.shape, int), np.zeros(ended.shape, bool)
    steps, how = np.zeros(ended.shape[1], int), np.zeros(ended.shape[1], bool)
    for t in reversed(range(len(ended))):
        steps = np.where(ended[t], 1, steps + 1)
        how = np.where(ended[t], terminated[t], how)
        left[t], to_the_end[t] = steps, how
    place, start = np.nonzero(((left >= horizon) | to_the_end).T)
    if not len(start):
        raise ValueError(
            f"horizon={horizon} is longer than any episode was; at most {left.max()} would do"
        )
    pick = np.linspace(0, len(start) - 1, count).round().astype(int)
    start, place = start[pick], place[pick]
    return Segments(start, place, np.arange(horizon)[:, None] < left[start, place])


def goals_to_come(
    goals: np.ndarray, ended: np.ndarray, cut: Segments, spare: np.ndarray
) -> np.ndarray:
    """The goals [B, M, 2] that really came after the first one of each stretch.

    From the goals [T, n, 2] of real steps. Where an episode has no more, `spare` ones follow.
    """
    out = spare.copy()
    for b, (start, place) in enumerate(zip(cut.start, cut.place, strict=True)):
        over = np.flatnonzero(ended[start:, place])
        own = goals[start : start + over[0] + 1 if len(over) else None, place]
        new = own[1:][(own[1:] != own[:-1]).any(1)][: out.shape[1]]
        out[b, : len(new)] = new
    return out


class Judge:
    """Tries models of one task, each on real steps of its own."""

    def __init__(self, knowledge: TaskModel, actions: ActionSpec, horizon: int):
        self._has_goals = isinstance(knowledge, EgoGoalModel | PaperGoalModel)
        if isinstance(knowledge, EgoGoalModel | PaperGoalModel):
            spare = max(knowledge.spare, horizon // STEPS_PER_GOAL)
            knowledge = replace(knowledge, spare=spare)
        self.knowledge: Any = knowledge
        self.actions, self.horizon = actions, horizon
        # The paper's features hold the goal, so they jump when it is met.
        self._jumps = isinstance(knowledge, PaperGoalModel)
        self._one_step, self._replay = jax.jit(self._judge_steps), jax.jit(self._judge_rollouts)
        self._restore_states = jax.jit(self.knowledge.restore)

    def __call__(
        self, model: Ensemble, seen: Experience, real: dict[str, np.ndarray], s: int, key: Any
    ) -> Trial:
        """The model of seed number s on its real steps: `seen`, and `real`, the same as rows.

        Features are compared for as long as they mean the same. Those of the paper hold the goal:
        they do until it is met, in reality or in imagination; all others always do. Reward depends
        on the goal under any model, so imagination is told which goals came next.
        """
        elites = model.elites.shape[0]
        cut = segments(
            seen.ended[s], seen.terminated[s], self.horizon, -(-ROLLOUTS // elites) * elites
        )
        records = {
            name: real[name][s].reshape(*seen.ended[s].shape, -1) for name in ("before", "after")
        }
        start_key, roll_key = jax.random.split(key)
        states = self._restore_states(start_key, records["before"][cut.start, cut.place])
        comparable = cut.within
        if self._has_goals:
            states, same = self._tell_goals(states, records["before"], seen.ended[s], cut)
            comparable = cut.within & same if self._jumps else cut.within
        said, error = self._replay(
            model, states, cut.take(seen.action[s]), cut.take(records["after"]), roll_key
        )
        said, error = jax.device_get((said, error))
        alive = said.alive > 0
        counted = comparable & alive & (said.seen[..., error.shape[-1] :] == 0).all(-1)
        zero = np.zeros_like(error)
        rewards = said.reward, cut.take(seen.reward[s])
        costs = said.cost, cut.take(seen.cost[s])
        lasting = cut.within & alive, cut.within
        return Trial(
            jax.device_get(self._one_step(model, {name: x[s] for name, x in real.items()})),
            np.asarray(rollout_rmse(error, zero, counted.astype(np.float32))),
            np.sqrt(np.square(error).mean(-1)),
            counted,
            *(np.cumsum(x * w, 0) for x, w in zip(rewards, lasting, strict=True)),
            *(np.cumsum(x * w[..., None], 0) for x, w in zip(costs, lasting, strict=True)),
        )

    def _tell_goals(
        self, states: Any, records: np.ndarray, ended: np.ndarray, cut: Segments
    ) -> tuple[State, np.ndarray]:
        """States told the goals that came next; and whether the real goal is the first, [H, B]."""
        numbers = 2 * self.knowledge.config.hazards
        goals = records[..., -3 - numbers : -1 - numbers]
        spare = goals_to_come(goals, ended, cut, np.asarray(states.course.spare))
        same = (cut.take(goals) == goals[cut.start, cut.place]).all(-1)
        return states._replace(course=states.course._replace(spare=jnp.asarray(spare))), same

    def _judge_steps(self, model: Ensemble, real: dict[str, Array]) -> OneStep:
        know = self.knowledge
        x = jax.vmap(know.record_features)(real["before"])
        inputs = jnp.concatenate([x, self.actions.encode(real["action"])], -1)
        signals = (real[name] for name in ("reward", "cost", "terminated"))
        return one_step(model, inputs, targets_of(know, real["before"], real["after"], *signals))

    def _judge_rollouts(
        self, model: Ensemble, states: State, taken: Array, after: Array, key: Key[Array, ""]
    ) -> tuple[Replay, Float[Array, "H B F"]]:
        """What the model says, and its errors of the features in units of their spread."""
        know = self.knowledge

        def look(state: Any) -> Float[Array, " W"]:
            seen = know.features(state)
            return jnp.append(seen, state.course.used) if self._jumps else seen

        said = replay(know, self.actions, model, states, taken, key, look)
        size = know.feature_size
        truth = jax.vmap(jax.vmap(know.record_features))(after)
        return said, (said.seen[..., :size] - truth) / model.input_std[:size]
