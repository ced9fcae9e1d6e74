"""Evaluation: fresh episodes under an actor, and what they earned and cost."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import stdtrit

from surefoot.algorithms.collect import Actor, Collector, Generators
from surefoot.algorithms.experience import Experience, worst_constraint
from surefoot.core.spaces import action_spec
from surefoot.envs.base import TaskEnv
from surefoot.world.model import TaskModel

WORST = 0.1
"""Share of the episodes whose mean cost is `cost_cvar`."""


@dataclass(frozen=True)
class SeedEvaluation:
    """Fresh episodes of one seed."""

    seed: int
    episodes: int
    reward: float
    cost: float
    within_limit: float
    """Share of the episodes within all limits."""
    cost_cvar: float
    """Mean cost of the worst tenth of the episodes."""
    costs: dict[str, float]
    """Mean cost of each constraint, if there are several."""


@dataclass(frozen=True)
class Evaluation:
    """Means over seeds; with several constraints, costs are those of the one worst kept."""

    reward: float
    cost: float
    within_limit: float
    cost_cvar: float
    cost_limit: float
    episodes: int
    """Of each seed."""
    deterministic: bool
    seeds: list[SeedEvaluation]
    reward_std: float | None = None
    """Over seeds, if there are several."""
    cost_std: float | None = None
    reward_interval: tuple[float, float] | None = None
    """95 % interval of the mean: over seeds if there are several, else over episodes."""
    cost_interval: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain values; what is None or empty is left out."""
        values = asdict(self)
        values["seeds"] = [
            {name: x for name, x in row.items() if name != "costs" or x} for row in values["seeds"]
        ]
        return {
            name: list(x) if isinstance(x, tuple) else x
            for name, x in values.items()
            if x is not None
        }


def evaluate(
    env: TaskEnv,
    make_actor: Callable[[Generators, int], Actor],
    seeds: Sequence[int],
    episodes: int,
    seed: int,
    cost_limits: Sequence[float],
    deterministic: bool = False,
    model: TaskModel | None = None,
) -> Evaluation:
    """Run `episodes` fresh episodes of each seed side by side, all in one batch.

    Args:
        env: `len(seeds) * episodes` environments.
        make_actor: Given a generator per seed and the number of steps, what acts.
        seeds: The seeds that were trained; they decide, with `seed`, which episodes are met.
        episodes: Episodes of each seed.
        seed: Added to each seed.
        cost_limits: The limit of each constraint.
        deterministic: Only recorded.
        model: Needed if the actor plans with true states.
    """
    if not env.max_episode_steps:
        raise ValueError("max_episode_steps=None: an evaluation needs a time limit")
    collector = Collector(env, [seed + s for s in seeds], episodes, model)
    actor = make_actor(collector.rngs, env.max_episode_steps)
    actions = action_spec(env.single_action_space)
    experience = collector.collect(actor, actions, env.max_episode_steps)
    reward, cost = _first_episodes(experience)
    return _summarise(reward, cost, seeds, cost_limits, env.cost_names, deterministic)


def _summarise(
    reward: np.ndarray,
    cost: np.ndarray,
    seeds: Sequence[int],
    cost_limits: Sequence[float],
    names: Sequence[str],
    deterministic: bool,
) -> Evaluation:
    """From rewards [S, n] and costs [S, n, k]."""
    limits = np.asarray(cost_limits)
    # One constraint for all seeds: the one worst kept over all episodes.
    worst, episodes = worst_constraint(cost.mean((0, 1)), limits), reward.shape[1]
    rows = []
    for s, number in enumerate(seeds):
        one = cost[s, :, worst]
        tail = np.sort(one)[-max(1, round(WORST * len(one))) :]
        rows.append(
            SeedEvaluation(
                number,
                episodes,
                float(reward[s].mean()),
                float(one.mean()),
                float((cost[s] <= limits).all(1).mean()),
                float(tail.mean()),
                dict(zip(names, cost[s].mean(0).tolist(), strict=True)) if len(limits) > 1 else {},
            )
        )
    mean = lambda name: float(np.mean([getattr(row, name) for row in rows]))
    spread = lambda name: (
        float(np.std([getattr(row, name) for row in rows], ddof=1)) if len(rows) > 1 else None
    )
    return Evaluation(
        mean("reward"),
        mean("cost"),
        mean("within_limit"),
        mean("cost_cvar"),
        float(limits[worst]),
        episodes,
        deterministic,
        rows,
        spread("reward"),
        spread("cost"),
        _interval(reward),
        _interval(cost[..., worst]),
    )


def _interval(values: np.ndarray) -> tuple[float, float] | None:
    """Student's 95 % interval of the mean of values [S, n]; None if there is one value only."""
    units = values.mean(1) if len(values) > 1 else values[0]
    if len(units) < 2:
        return None
    half = stdtrit(len(units) - 1, 0.975) * units.std(ddof=1) / np.sqrt(len(units))
    return float(units.mean() - half), float(units.mean() + half)


def _first_episodes(experience: Experience) -> tuple[np.ndarray, np.ndarray]:
    """Reward [S, n] and costs [S, n, k] of each environment's first episode.

    Counting more of them in the time that early ends leave would give short ones too much weight.
    """
    first = np.cumsum(experience.ended, 1) - experience.ended == 0
    reward = experience.reward.sum(1, np.float64, where=first)
    return reward, experience.cost.sum(1, np.float64, where=first[..., None])
