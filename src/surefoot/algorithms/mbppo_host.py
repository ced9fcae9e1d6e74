"""MBPPO-Lagrangian's work on the host: real experience into what the compiled steps take."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from surefoot.algorithms.collect import Collector, Experience
from surefoot.algorithms.common import TrainingFault, all_finite
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.learn.ppo import Learner
from surefoot.world import fitting, trust
from surefoot.world.trust import CostBias


def rows(experience: Experience, collector: Collector) -> dict[str, np.ndarray]:
    """Real steps flattened to [S, N, …] for the memory, and the latest initial states."""
    found = flattened(experience)
    starts = collector.starts().astype(np.float32)
    if experience.before is not None:  # the task knows its initial states
        starts = np.zeros((len(starts), 1, found["before"].shape[-1]), np.float32)
    return {**found, "starts": starts}


def flattened(experience: Experience) -> dict[str, np.ndarray]:
    """Real steps flattened to [S, N, …]."""
    flat = lambda x: x.reshape(x.shape[0], -1, *x.shape[3:])
    before = experience.obs if experience.before is None else experience.before
    after = experience.next_obs if experience.after is None else experience.after
    return {
        "before": flat(before),
        "after": flat(after),
        "action": flat(experience.action),
        "reward": flat(experience.reward),
        "cost": flat(experience.cost),
        "terminated": flat(experience.terminated),
    }


def real_batch(
    config: MBPPOConfig, experience: Experience, episode_steps: int
) -> dict[str, np.ndarray]:
    """What practice needs of the real batch: its cost, and segments of H steps to mix in."""
    costs, errors = [], []
    for s, episodes in enumerate(experience.episodes):
        # Where no episode ended, the steps must tell: a guess as uncertain as it is large.
        guess = experience.cost[s].mean((0, 1)) * episode_steps
        costs.append(episodes.mean_cost() if len(episodes.cost) else guess)
        errors.append(episodes.cost_error() if len(episodes.cost) else guess)
    out: dict[str, Any] = {
        "cost": np.stack(costs).astype(np.float32),
        "cost_error": np.stack(errors).astype(np.float32),
    }
    wanted, horizon = round(config.real_share * config.rollouts), config.horizon
    steps = experience.reward.shape[1]
    if not wanted or steps < horizon:
        return out
    parts: list[tuple] = []
    for s, seed in enumerate(experience.seeds):
        rng = np.random.default_rng([seed, 2, int(experience.reward[s].sum() * 1e3) & 0xFFFF])
        # Segments must not run over the end of an episode.
        ends = np.cumsum(np.pad(experience.ended[s], ((1, 0), (0, 0))), 0)
        clear = ends[horizon - 1 : -1] - ends[: steps - horizon + 1] == 0
        t0, column = np.nonzero(clear)
        weight = float(len(t0) > 0)  # if there are none, any will do: they count nothing
        if not weight:
            t0, column = np.zeros(1, int), np.zeros(1, int)
        pick = rng.integers(0, len(t0), wanted)
        t = t0[pick][None] + np.arange(horizon)[:, None]
        c = np.broadcast_to(column[pick][None], t.shape)
        take = lambda x, t=t, c=c, s=s: x[s][t, c]
        parts.append(
            (take(experience.obs), take(experience.action), take(experience.reward),
             take(experience.cost), take(experience.next_obs)[-1], take(experience.terminated),
             np.float32(weight))
        )  # fmt: skip
    names = ("obs", "action", "reward", "cost", "last", "terminated", "weight")
    for i, name in enumerate(names):
        out[f"segment_{name}"] = np.stack([p[i] for p in parts])
    return out


def compile_aside(jitted: Any, *args: Any) -> Future:
    """Compile a function for such arguments in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(lambda: jitted.lower(*args).compile())
    pool.shutdown(wait=False)
    return future


class Practice(NamedTuple):
    """What the passes of one epoch reported: arrays of [S, …]."""

    first: dict[str, np.ndarray]
    last: dict[str, np.ndarray]
    passes: np.ndarray


def choose(condition: Bool[Array, " S"], new: Any, old: Any) -> Any:
    """Seed by seed, one tree or the other."""
    pick = lambda a, b: jnp.where(condition.reshape(-1, *[1] * (a.ndim - 1)), a, b)
    return jax.tree.map(pick, new, old)


def add_metrics(
    metrics: list[dict[str, Any]],
    config: MBPPOConfig,
    practice: Practice,
    fitted: fitting.FitMetrics,
    real: dict[str, np.ndarray],
    gap: trust.CostBias,
) -> None:
    """Add to each seed's row what was imagined, and whether it parts from what was real.

    Of several constraints the largest imagined cost, as of the real ones.
    """
    first, last = practice.first, practice.last
    model, gaps = np.asarray(fitted.holdout_mse).mean(-1), np.asarray(jax.vmap(CostBias.value)(gap))
    parted = trust.mismatched(
        real["cost"], real["cost_error"], first["imagined_cost"], config.cost_limit
    )
    for s, row in enumerate(metrics):
        row |= {
            "imagined_cost_before": float(first["imagined_cost"][s].max()),
            "imagined_reward": float(last["imagined_reward"][s]),
            "imagined_cost": float(last["imagined_cost"][s].max()),
            "lambda": float(last["lambda"][s].sum()),
            "model_error": float(model[s]),
            "model_epochs": int(fitted.epochs[s]),
            "passes": int(practice.passes[s]),
            "performance_ratio": float(last["performance_ratio"][s]),
            "kl": float(last["kl"][s]),
            "entropy": float(last["entropy"][s]),
            "cost_bias": float(gaps[s].sum()),
            "cost_mismatch": int(np.any(parted[s])),
        }


def check(learner: Learner, metrics: list[dict[str, Any]], fitted: fitting.FitMetrics) -> None:
    """Stop before anything broken is written down."""
    sound, fit = all_finite(learner), np.asarray(fitted.finite)
    numbers = ("imagined_reward", "imagined_cost", "lambda", "kl")
    for s, row in enumerate(metrics):
        bad = [name for name in numbers if not np.isfinite(row[name])]
        bad += ["model fit"] * (not fit[s]) + ["policy or critics"] * (not sound[s])
        if bad:
            raise TrainingFault(
                f"seed {row['seed']}: {', '.join(bad)} became NaN or infinite in epoch "
                f"{row['epoch']}. Try a smaller ensemble.learning_rate or ppo.actor_learning_rate, "
                f"a shorter horizon, or more real episodes per epoch"
            )
