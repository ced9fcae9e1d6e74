"""SAC: soft actor-critic on real steps. It knows no costs, and is safe-LOOP's learner.

Training goes block by block: a few real steps, then as many updates on the replay. An epoch is a
number of blocks, after which the run is written down.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from surefoot.algorithms.collect import Collector
from surefoot.algorithms.common import (
    Epoch,
    Phases,
    new_totals,
    over_seeds,
    real_metrics,
    seed_keys,
)
from surefoot.algorithms.model_free import check_finite
from surefoot.algorithms.off_policy import (
    ReplayMemory,
    box_actions,
    check_blocks,
    joined,
    schedule,
    squashed_policy,
    tell,
    uniform,
)
from surefoot.core.snapshot import Saved
from surefoot.learn import replay as replays
from surefoot.learn import sac
from surefoot.learn.replay import Replay
from surefoot.learn.sac import SACLearnerConfig

METRICS = ("critic_loss", "q", "entropy", "temperature")
"""What `learn.sac.update` tells."""
REMEDY = "a smaller sac.learning_rate"


@dataclass(frozen=True)
class SACConfig:
    """SAC with automatic temperature."""

    steps: int = 450_000
    """Real steps in all."""
    cost_limit: float = 18.0
    """Limit on the undiscounted cost of an episode, to report by: SAC does not keep it."""
    steps_per_epoch: int = 7_500
    """Real steps after which the run is written down."""
    environments: int = 10
    """Environments side by side."""
    random_steps: int = 10_000
    """Real steps of random actions first, without updates."""
    update_every: int = 50
    """Real steps of a block; a multiple of the environments."""
    updates: int = 50
    """Updates after each block."""
    replay: int = 1_000_000
    """How many of the latest real steps are remembered."""
    observation: str = "paper"
    """Which observation of the Goal tasks the policy sees."""
    sac: SACLearnerConfig = field(default_factory=SACLearnerConfig)
    """The learner."""

    def __post_init__(self) -> None:
        check_blocks(self)


class State(eqx.Module):
    """Everything that learns."""

    learner: sac.Learner
    key: Key[Array, ""]


def init(config: SACLearnerConfig, obs_size: int, action_size: int, key: Key[Array, ""]) -> State:
    """A new policy and new critics."""
    learner_key, key = jax.random.split(key)
    return State(sac.init(config, obs_size, action_size, learner_key), key)


def improve(
    config: SACLearnerConfig, updates: int, state: State, replay: Replay
) -> tuple[State, dict[str, Array]]:
    """So many updates on batches of the replay; metrics are means over them."""
    key, sub = jax.random.split(state.key)

    def step(learner: sac.Learner, key: Key[Array, ""]) -> tuple[sac.Learner, dict[str, Array]]:
        draw_key, update_key = jax.random.split(key)
        batch = replays.draw(replay, config.batch_size, draw_key)
        return sac.update(config, learner, batch, update_key)

    learner, metrics = jax.lax.scan(step, state.learner, jax.random.split(sub, updates))
    return State(learner, key), jax.tree.map(jnp.mean, metrics)


def epochs(
    config: SACConfig,
    make_env: Callable[[int, str], Any],
    seeds: list[int],
    saved: Saved | None = None,
) -> Iterator[Epoch]:
    """Train, one epoch at a time. `make_env(n, observation)` makes n environments.

    With `saved`, a snapshot of an epoch read back, training goes on from there.
    """
    many = len(seeds)
    env = make_env(many * config.environments, config.observation)
    actions, obs_size = box_actions(env), env.single_observation_space.shape[0]
    collector = Collector(env, seeds, config.environments)
    begin = over_seeds(lambda key: init(config.sac, obs_size, actions.size, key), many)
    learning = over_seeds(lambda *args: improve(config.sac, config.updates, *args), many)
    memory = ReplayMemory(config, obs_size, actions, many)
    state, phases, totals = begin(seed_keys(seeds)), Phases(), new_totals(many)
    if saved is not None:
        state, totals = saved.like("state", state), saved.like("totals", totals)
        phases = Phases(saved.part("phases"))
        memory.restore(saved.part("replay"), totals["steps"])
        collector.restore(saved.part("collector"), totals["epoch"])
    policy = squashed_policy(state.learner, actions)
    for number, blocks, total in schedule(config, totals):
        seen, told = [], []
        for _ in range(blocks):
            done = totals["steps"] + len(seen) * config.update_every
            with phases("collect"):
                act = uniform(collector, actions) if done < config.random_steps else None
                ahead = config.update_every // config.environments
                seen.append(collector.collect(policy, actions, ahead, act=act))
            with phases("update"):
                memory.add(seen[-1])
                if done + config.update_every >= config.random_steps:
                    state, metrics = learning(state, memory.replay)
                    told.append(metrics)
                    policy = squashed_policy(state.learner, actions)
        memory.keep(seen)
        rows = real_metrics(joined(seen), totals, config.cost_limit)
        tell(rows, told, METRICS)
        learner: Any = state.learner
        check_finite(rows, {"blocks": told}, learner, REMEDY)
        with phases("save"):
            where = collector.snapshot()
        seconds = phases.seconds()
        snapshot = {
            "state": state,
            "replay": memory.snapshot(),
            "totals": totals,
            "phases": seconds,
            "collector": where,
        }
        yield Epoch(number, total, rows, state, policy, seconds, snapshot)
