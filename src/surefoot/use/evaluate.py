"""How good a policy is: fresh episodes in the real environment."""

from collections.abc import Callable
from typing import Any

import numpy as np

from surefoot.algorithms.collect import Act, Collector, Experience
from surefoot.core.policy import Policy
from surefoot.core.spaces import action_spec

TAIL = 0.1


def evaluate_policy(
    env: Any,
    policy: Policy,
    seeds: list[int],
    episodes: int,
    seed: int,
    cost_limit: float,
    deterministic: bool = False,
    knowledge: Any = None,
    take_over: Callable[[Collector, int], Act] | None = None,
) -> dict[str, Any]:
    """Run `episodes` episodes of each seed's policy; `env` must hold that many times the seeds.

    Returns means over episodes (and seeds): `reward`, `cost`, `within_limit` (share of episodes),
    `cost_cvar` (mean cost of the worst tenth), their spread over seeds, and the same per seed.
    Of several constraints `cost` is the one with the largest mean, and an episode is within the
    limit if it is in all. Environments are seeded from `seed` on, not from the seeds of training.

    Instead of the policy, what `take_over(collector, steps)` returns may act; the collector's
    records are then those of `knowledge`.
    """
    collector, steps = Collector(env, [seed + s for s in seeds], episodes, knowledge), _length(env)
    act = None if take_over is None else take_over(collector, steps)
    actions = action_spec(env.single_action_space)
    rewards, costs = _first_episodes(
        collector.collect(policy, actions, steps, greedy=deterministic, act=act)
    )
    rows = []
    for number, reward, every in zip(seeds, rewards, costs, strict=True):
        cost = every[:, np.argmax(every.mean(0))]
        worst = np.sort(cost)[-max(1, round(TAIL * len(cost))) :]
        rows.append(
            {
                "seed": number,
                "episodes": len(cost),
                "reward": float(reward.mean()),
                "cost": float(cost.mean()),
                "within_limit": float((every <= cost_limit).all(1).mean()),
                "cost_cvar": float(worst.mean()),
            }
        )
    names = ("reward", "cost", "within_limit", "cost_cvar")
    result: dict[str, Any] = {name: float(np.mean([r[name] for r in rows])) for name in names}
    if len(rows) > 1:
        for name in ("reward", "cost"):
            result[f"{name}_std"] = float(np.std([r[name] for r in rows], ddof=1))
    return {
        **result,
        "cost_limit": cost_limit,
        "episodes": episodes,
        "deterministic": deterministic,
        "seeds": rows,
    }


def _first_episodes(seen: Experience) -> tuple[np.ndarray, np.ndarray]:
    """Reward [S, n] and costs [S, n, k] of each environment's first episode.

    More of them in the time that early ends leave would give short episodes too much weight.
    """
    first = np.cumsum(seen.ended, 1) - seen.ended == 0
    reward = seen.reward.sum(1, np.float64, where=first)
    return reward, seen.cost.sum(1, np.float64, where=first[..., None])


def _length(env: Any) -> int:
    if not env.max_episode_steps:
        raise ValueError("the environment has no time limit, so an evaluation would have no end")
    return env.max_episode_steps
