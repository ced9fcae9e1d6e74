"""PPO-Lagrangian, as in safety-starter-agents; without a constraint it is PPO.

One epoch: collect real steps; move the multiplier by the cost of the episodes that ended; improve
the policy on the Lagrangian; fit the critics.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from surefoot.algorithms.collect import Collector, Experience, numpy_policy
from surefoot.algorithms.common import (
    Epoch,
    Phases,
    TrainingFault,
    all_finite,
    over_seeds,
    real_metrics,
    seed_keys,
)
from surefoot.learn import multiplier, ppo
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.spaces import action_spec


@dataclass(frozen=True)
class PPOLagrangianConfig:
    """PPO-Lagrangian with safety-starter-agents' settings."""

    steps: int = 2_000_000
    """Real steps in all."""
    cost_limit: float = 18.0
    """Limit on the undiscounted cost of an episode; the same for each constraint."""
    constrained: bool = True
    """Whether the limit is kept; without, this is PPO."""
    steps_per_epoch: int = 30_000
    """Real steps per update."""
    observation: str = "paper"
    """Which observation of the Goal tasks the policy sees."""
    ppo: PPOConfig = field(
        default_factory=lambda: PPOConfig(clip=0.2, gae_lambda=0.97, value_targets="return")
    )
    """The learner."""
    multiplier: MultiplierConfig = field(default_factory=lambda: MultiplierConfig(kind="softplus"))
    """The multiplier's rule."""

    def __post_init__(self) -> None:
        for name in ("steps", "steps_per_epoch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if not self.cost_limit >= 0:
            raise ValueError(f"cost_limit={self.cost_limit} must not be negative")


class State(eqx.Module):
    """Everything that learns."""

    learner: ppo.Learner
    key: Key[Array, ""]


def update(
    config: PPOLagrangianConfig, state: State, batch: ppo.Batch, cost: Float[Array, " k"]
) -> tuple[State, dict[str, Array]]:
    """One update from real steps; `cost` is the mean cost of the episodes that ended."""
    key, sub = jax.random.split(state.key)
    learner, lam = state.learner, jnp.zeros_like(cost)
    if config.constrained:
        moved = multiplier.update(
            config.multiplier, learner.multiplier, cost, jnp.full_like(cost, config.cost_limit)
        )
        learner = eqx.tree_at(lambda s: s.multiplier, learner, moved)
        lam = multiplier.value(config.multiplier, moved)
    learner, metrics = ppo.update(config.ppo, learner, batch, lam, sub)
    learner = ppo.observe(learner, batch.obs)
    return State(learner, key), {**metrics, "lambda": lam}


def to_batch(experience: Experience) -> ppo.Batch:
    """Real steps as the learner takes them, with a leading axis of seeds."""
    real: Any = experience  # numpy arrays; the compiled update takes them as they are
    aligned = not real.ended[:, :-1].any()  # episodes end only with the last row
    follow = real.next_obs[:, -1:] if aligned else real.next_obs
    last = np.zeros_like(real.ended)
    last[:, -1] = True
    return ppo.Batch(
        obs=real.obs,
        action=real.action,
        reward=real.reward,
        cost=real.cost,
        next_obs=follow,
        terminated=real.terminated,
        ended=real.ended | last,
    )


def epochs(
    config: PPOLagrangianConfig, make_env: Callable[[int, str], Any], seeds: list[int]
) -> Iterator[Epoch]:
    """Train, one epoch at a time. `make_env(n, observation)` makes n environments."""
    probe = make_env(1, config.observation)
    length = probe.max_episode_steps or 1000
    per_seed = max(1, config.steps_per_epoch // length)
    env = make_env(len(seeds) * per_seed, config.observation)
    actions = action_spec(env.single_action_space)
    k, width = len(env.cost_names), env.single_observation_space.shape[0]
    collector = Collector(env, seeds, per_seed)
    start = config.multiplier if config.constrained else MultiplierConfig(initial=0.0)

    def begin(key: Key[Array, ""]) -> State:
        learner_key, key = jax.random.split(key)
        learner = ppo.init(config.ppo, start, width, actions.size, actions.discrete, k, learner_key)
        return State(learner, key)

    state = over_seeds(begin, len(seeds))(seed_keys(seeds))
    updating = over_seeds(lambda s, b, c: update(config, s, b, c), len(seeds))
    phases, totals = Phases(), {"violations": np.zeros(len(seeds)), "steps": 0}
    total = -(-config.steps // (per_seed * length))
    cost = np.zeros((len(seeds), k), np.float32)
    for number in range(total):
        with phases("collect"):
            policy = numpy_policy(state.learner, actions)
            experience = collector.collect(policy, actions, length)
        with phases("update"):
            for s, episodes in enumerate(experience.episodes):
                if len(episodes.cost):  # else the last known stands
                    cost[s] = episodes.mean_cost()
            state, metrics = jax.block_until_ready(updating(state, to_batch(experience), cost))
        rows = real_metrics(experience, totals, config.cost_limit)
        metrics = jax.device_get(metrics)
        finite = all_finite(state.learner)
        for s, row in enumerate(rows):
            row |= {
                "lambda": float(metrics["lambda"][s].sum()),
                "kl": float(metrics["kl"][s]),
                "entropy": float(metrics["entropy"][s]),
                "actor_steps": int(metrics["actor_steps"][s]),
            }
            # Its last step may have broken a policy whose metrics still looked well.
            if not (finite[s] and np.isfinite([row["lambda"], row["kl"], row["entropy"]]).all()):
                raise TrainingFault(
                    f"seed {seeds[s]}: the update of epoch {row['epoch']} became NaN or infinite. "
                    f"Try a smaller ppo.actor_learning_rate or ppo.normalise_observations"
                )
        policy = numpy_policy(state.learner, actions)
        yield Epoch(number + 1, total, rows, state, policy, phases.seconds())
