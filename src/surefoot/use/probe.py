"""Trial steps of one environment, with random or given actions, and their statistics."""

import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Space

from surefoot.envs.base import TaskEnv
from surefoot.runs.folder import Values


class Seen(NamedTuple):
    """T steps of one environment."""

    obs: np.ndarray
    """After each step, [T, D]; the final observation where an episode ended."""
    action: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    """[T, k]."""
    terminated: np.ndarray
    truncated: np.ndarray
    seconds: float
    fault: Exception | None
    """What the environment raised, if it did."""
    first: np.ndarray | None = None
    """The observation of the reset, if these steps began with one, [D]."""

    @property
    def cause(self) -> BaseException | None:
        """The fault itself, not the one that names environment and step."""
        return self.fault and (self.fault.__cause__ or self.fault)

    def finite(self) -> "Seen":
        """The steps whose numbers are all finite."""
        numbers = np.concatenate([self.obs, self.reward[:, None], self.cost], 1)
        rows = np.isfinite(numbers).all(1)
        return self._replace(**{name: getattr(self, name)[rows] for name in self._fields[:6]})

    def episodes(self) -> list[tuple[int, int]]:
        """First step of each finished episode, and the step after its last."""
        ends = (np.flatnonzero(self.terminated | self.truncated) + 1).tolist()
        return list(zip([0, *ends], ends, strict=False))

    def signal(self, values: np.ndarray, length: int) -> Values:
        """Statistics per step and per episode.

        Without a finished episode, an episode's mean is estimated from its `length`.
        """
        totals = np.array([values[start:end].sum() for start, end in self.episodes()])
        guess = {"mean": float(values.mean() * length), "estimated": True}
        return {"step": statistics(values), "episode": statistics(totals) or guess}

    def same_until(self, other: "Seen") -> int:
        """The number of steps after which the two differ, or the length of the shorter."""
        n = min(len(self.reward), len(other.reward))
        same = np.ones(n, bool)
        for a, b in zip(self[:6], other[:6], strict=True):
            rows = (x[:n].reshape(n, -1).astype(float) for x in (a, b))
            same &= np.isclose(*rows, rtol=0, atol=0, equal_nan=True).all(1)
        return n if same.all() else int(np.argmin(same))


def random_steps(env: TaskEnv, seed: int, steps: int, seconds: float) -> Seen:
    """Steps with random actions from a reset on."""
    space = env.single_action_space
    space.seed(seed)
    return advance(env, (np.asarray(space.sample()) for _ in range(steps)), seconds, seed)


def advance(
    env: TaskEnv, actions: Iterable[np.ndarray], seconds: float, seed: int | None = None
) -> Seen:
    """Steps with the given actions, after a reset if there is a seed.

    They end when the time is over, a number is not finite, or the environment raises.
    """
    rows, fault, first, start = [], None, None, time.perf_counter()
    try:
        if seed is not None:
            first = np.array(env.reset(seed=seed)[0][0])
        for action in actions:
            obs, reward, terminated, truncated, info = env.step(action[None])
            ends = bool(terminated[0]), bool(truncated[0])
            after, cost = np.array((info["final_obs"] if any(ends) else obs)[0]), info["cost"][0]
            rows.append((after, action, reward[0], np.array(cost), *ends))
            finite = np.isfinite(after).all() and np.isfinite([reward[0], *cost]).all()
            if not finite or time.perf_counter() - start > seconds:
                break
    except Exception as error:
        fault = error
    taken = time.perf_counter() - start
    size, k = env.single_observation_space.shape[0], len(env.cost_names)
    columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.zeros(0)] * 6
    columns[0], columns[3] = columns[0].reshape(-1, size), columns[3].reshape(-1, k)
    return Seen(*columns, seconds=taken, fault=fault, first=first)


def statistics(values: np.ndarray) -> Values | None:
    """Mean, standard deviation, minimum and maximum; None without values."""
    if not len(values):
        return None
    # Adding 0 turns -0 into 0.
    return {name: float(getattr(values, name)()) + 0.0 for name in ("mean", "std", "min", "max")}


def indices(rows: np.ndarray) -> str:
    """The numbers of the rows, not too many of them."""
    numbers = np.flatnonzero(rows)
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return ", ".join(map(str, numbers[:5])) + more


def finite_or_none(values: np.ndarray) -> list[float | None]:
    """Numbers as JSON has them, which has no infinite ones."""
    return [float(x) if np.isfinite(x) else None for x in values]


def short(space: Space) -> str:
    """A space in a few words."""
    text = " ".join(str(space).split())
    if len(text) < 80:
        return text
    shape = f"{space.shape}, {space.dtype}" if isinstance(space, Box) else "…"
    return f"{type(space).__name__}({shape})"
