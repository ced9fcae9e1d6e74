"""MBPPO-Lagrangian: Algorithm 1 of Jayant & Bhatnagar (NeurIPS 2022), and what goes beyond it.

One epoch: collect real episodes; fit the ensemble to all real steps so far; practise in imagination
(roll out, move the multiplier, improve the policy) for as long as it pays; go back to the world.
All functions are for one seed; `epochs` runs several side by side. Lines are those of Algorithm 1.
"""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from surefoot.algorithms import mbppo_host as host
from surefoot.algorithms import mbppo_memory as memories
from surefoot.algorithms.collect import Collector, numpy_policy
from surefoot.algorithms.common import (
    Epoch,
    Phases,
    new_totals,
    over_seeds,
    real_metrics,
    seed_keys,
)
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.mbppo_memory import Memory, Past, World
from surefoot.core.snapshot import Saved
from surefoot.core.spaces import action_spec
from surefoot.learn import multiplier, ppo
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.world import ensemble as ensembles
from surefoot.world import fitting, trust
from surefoot.world.ensemble import Ensemble
from surefoot.world.imagination import Rollout, imagine
from surefoot.world.model import TaskModel


class Dreams(eqx.Module):
    """Imagined episodes that go on from pass to pass."""

    states: Any
    age: Int[Array, " B"]
    """Steps imagined so far; -1 where none has begun."""


class State(eqx.Module):
    """Everything that learns, and the episodes being imagined."""

    learner: ppo.Learner
    ensemble: Ensemble
    dreams: Dreams
    gap: trust.CostBias
    key: Key[Array, ""]


def init(
    config: MBPPOConfig, world: World, capacity: int, key: Key[Array, ""]
) -> tuple[State, Memory]:
    """Line 1: a new policy, critics, ensemble and multiplier; and an empty memory."""
    know, k = world.knowledge, len(world.knowledge.cost_names)
    learner_key, ensemble_key, key = jax.random.split(key, 3)
    start = config.multiplier if config.constrained else MultiplierConfig(initial=0.0)
    learner = ppo.init(
        config.ppo, start, know.observation_size, world.actions.size, world.actions.discrete, k,
        learner_key,
    )  # fmt: skip
    width = know.feature_size + world.actions.size
    ensemble = ensembles.init(
        config.ensemble, width, know.target_size, know.binary_size, ensemble_key
    )
    nowhere = know.restore(key, jnp.zeros((config.rollouts, know.record_size)))
    dreams = Dreams(nowhere, jnp.full(config.rollouts, -1, jnp.int32))
    memory = memories.empty(world, capacity, config.replay_share > 0)
    return State(learner, ensemble, dreams, trust.CostBias.none(k), key), memory


def fit_world(
    config: MBPPOConfig, state: State, memory: Memory, count: Array
) -> tuple[State, fitting.FitMetrics]:
    """Line 4: train the ensemble on all real steps."""
    key, sub = jax.random.split(state.key)
    ensemble, metrics = fitting.fit(
        config.ensemble, state.ensemble, memory.inputs, memory.targets, count, sub
    )
    return State(state.learner, ensemble, state.dreams, state.gap, key), metrics


def starting_states(
    config: MBPPOConfig, world: World, past: Past, count: Array, n: int, key: Key[Array, ""]
) -> Any:
    """Line 6: s0 ~ mu, and a share of past real states."""
    fresh_key, old_key, restore_key = jax.random.split(key, 3)
    old = round(config.replay_share * n)
    fresh = world.knowledge.initial_records(fresh_key, n - old)
    if fresh is None:
        index = jax.random.randint(fresh_key, (n - old,), 0, past.starts.shape[0])
        fresh = past.starts[index]
    if old:
        index = jax.random.randint(old_key, (old,), 0, count)
        fresh = jnp.concatenate([fresh, past.records[index]])
    return world.knowledge.restore(restore_key, fresh)


def next_dreams(
    config: MBPPOConfig, world: World, dreams: Dreams, fresh: Any, key: Key[Array, ""]
) -> Dreams:
    """The rollouts of the next pass: the carried ones go on, fresh ones take all other places.

    The very first carried ones get ages all over the episode, so that every pass sees all parts of
    an episode alike and the mean cost of their steps is that of an episode.
    """
    carried = jnp.arange(config.rollouts) < config.carried
    over = ~carried | (dreams.age < 0) | (dreams.age >= world.episode_steps)
    spread = jax.random.randint(key, dreams.age.shape, 0, world.episode_steps)
    age = jnp.where(dreams.age < 0, spread, jnp.where(over, 0, dreams.age))
    pick = lambda new, old: jnp.where(over.reshape(-1, *[1] * (new.ndim - 1)), new, old)
    return Dreams(jax.tree.map(pick, fresh, dreams.states), age)


def practise(
    config: MBPPOConfig,
    world: World,
    state: State,
    past: Past,
    count: Array,
    real: dict[str, Array],
    first: Bool[Array, ""],
    rate: Float[Array, ""],
) -> tuple[State, Bool[Array, ""], dict[str, Array]]:
    """Lines 6 to 16: one pass. Returns the state, whether another pass is worth it, and metrics."""
    key, start_key, age_key, roll_key, update_key, trust_key = jax.random.split(state.key, 6)
    old = state.learner
    fresh = starting_states(config, world, past, count, config.rollouts, start_key)
    dreams = next_dreams(config, world, state.dreams, fresh, age_key)
    rollout, end = imagine(
        world.knowledge, world.actions, state.ensemble, old.sample, dreams.states, config.horizon,
        roll_key,
    )  # fmt: skip
    # An episode that came to its end within the pass is over.
    age = jnp.where(rollout.terminated.any(0), world.episode_steps, dreams.age + config.horizon)
    dreams = Dreams(end, age)
    # Lines 8 and 10: the multiplier moves by the cost of the policy as it is now.
    per_episode = world.episode_steps / config.horizon
    judged = slice(None, config.carried or None)
    imagined = rollout.cost_returns()[judged].mean(0)
    gap = state.gap
    if config.anchor:
        imagined = imagined * per_episode
        seen = gap.seen(real["cost"], real["cost_error"], imagined, config.gap_memory)
        gap = jax.tree.map(lambda new, old: jnp.where(first, new, old), seen, gap)
        estimate = trust.cost_estimate(imagined, gap)
    else:
        estimate = imagined
    learner, lam = old, jnp.zeros_like(estimate)
    if config.constrained:
        goal = jnp.full_like(estimate, config.beta * config.cost_limit)
        moved = multiplier.update(config.multiplier, old.multiplier, estimate, goal)
        learner = eqx.tree_at(lambda s: s.multiplier, old, moved)
        lam = multiplier.value(config.multiplier, moved)
    # Lines 9 and 11 to 15: K steps on the policy and the critics.
    batch = to_batch(rollout, real, first)
    learner, metrics = ppo.update(config.ppo, learner, batch, lam, update_key, rate)
    learner = ppo.observe(learner, batch.obs)
    # Lines 16 and 5: is it better in enough of the elites? If not, nothing of the pass is kept.
    keep, pr = jnp.array(True), jnp.array(jnp.nan)
    if config.gate != "none":
        pr = improvement(config, world, state, past, count, learner, lam, trust_key)
        keep = pr >= config.pr_threshold - 1e-6
        learner = jax.tree.map(lambda new, kept: jnp.where(keep, new, kept), learner, old)
    state = State(learner, state.ensemble, dreams, gap, key)
    metrics |= {
        "imagined_reward": rollout.returns()[judged].mean() * per_episode,
        "imagined_cost": imagined if config.anchor else imagined * per_episode,
        "cost_estimate": estimate,
        "lambda": lam,
        "performance_ratio": pr,
    }
    return state, keep, metrics


def practise_if_active(
    active: Bool[Array, ""], state: State, one_pass: Callable[[], tuple]
) -> tuple[State, Bool[Array, ""], dict[str, Array]]:
    """`one_pass()`; a seed that has stopped stays as it is, and costs nothing."""
    *_, metrics = jax.eval_shape(one_pass)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), metrics)
    return jax.lax.cond(active, one_pass, lambda: (state, jnp.array(False), nothing))


def to_batch(rollout: Rollout, real: dict[str, Array], first: Bool[Array, ""]) -> ppo.Batch:
    """Imagined rollouts as the learner takes them; real ones beside them count in a first pass."""
    horizon = rollout.reward.shape[0]
    last = jnp.zeros(rollout.reward.shape, bool).at[-1].set(True)
    batch = ppo.Batch(
        obs=rollout.obs,
        action=rollout.action,
        reward=rollout.reward,
        cost=rollout.cost,
        next_obs=rollout.last_obs[None],
        terminated=rollout.terminated,
        ended=last | rollout.terminated,
        weight=rollout.alive,
    )
    if "segment_reward" not in real:
        return batch
    width = real["segment_reward"].shape[1]
    segments = ppo.Batch(
        obs=real["segment_obs"],
        action=real["segment_action"],
        reward=real["segment_reward"],
        cost=real["segment_cost"],
        next_obs=real["segment_last"][None],
        terminated=real["segment_terminated"],
        ended=jnp.zeros((horizon, width), bool).at[-1].set(True),
        weight=jnp.full((horizon, width), first * real["segment_weight"]),
    )
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), batch, segments)


def improvement(
    config: MBPPOConfig,
    world: World,
    state: State,
    past: Past,
    count: Array,
    new: ppo.Learner,
    lam: Float[Array, " k"],
    key: Key[Array, ""],
) -> Float[Array, ""]:
    """The performance ratio of `new` over the present policy (eq. pr), with common luck."""
    state_key, luck = jax.random.split(key)
    states = starting_states(config, world, past, count, config.pr_rollouts, state_key)
    discount = config.ppo.gamma ** jnp.arange(config.pr_horizon)[:, None]

    def score(learner: ppo.Learner, member: Array) -> Array:
        seen, _ = imagine(
            world.knowledge, world.actions, state.ensemble, learner.sample, states,
            config.pr_horizon, luck, member,
        )  # fmt: skip
        value = seen.reward
        if config.gate == "lagrangian":
            value = value - seen.cost @ lam
        return jnp.sum(value * seen.alive * discount, 0).mean()

    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), new, state.learner)
    over_elites = jax.vmap(score, (None, 0))
    scores = jax.vmap(over_elites, (0, None))(both, state.ensemble.elites)
    return trust.performance_ratio(scores[0], scores[1])


def epochs(
    config: MBPPOConfig,
    make_env: Callable[[int, str], Any],
    make_knowledge: Callable[[Any], TaskModel],
    seeds: list[int],
    saved: Saved | None = None,
) -> Iterator[Epoch]:
    """Train, one epoch at a time. `make_env(n, model)` makes n environments.

    With `saved`, a snapshot of an epoch read back, training goes on from there.
    """
    env = make_env(len(seeds) * config.episodes, config.model)
    length = env.max_episode_steps or 1000
    world = World(make_knowledge(env), action_spec(env.single_action_space), length)
    collector = Collector(env, seeds, config.episodes, world.knowledge)
    batch = config.episodes * length
    total = -(-config.steps // batch)
    many = len(seeds)
    begin = over_seeds(lambda key: init(config, world, total * batch, key), many)
    add = over_seeds(
        lambda *args: memories.remember(world, *args, records=config.replay_share > 0),
        many, (2,), (0,),
    )  # fmt: skip
    fit = over_seeds(
        lambda state, memory, count: fit_world(config, state, memory, count), many, (2,)
    )
    # Where the performance ratio ends practice, seeds need very different numbers of passes: taking
    # them in turn, the device works for those that go on only.
    one_pass = over_seeds(
        lambda active, state, *args: practise_if_active(
            active, state, lambda: practise(config, world, state, *args)
        ),
        many, (3, 5, 6), in_turn=config.gate != "none",
    )  # fmt: skip
    state, memory = begin(seed_keys(seeds))
    phases, compiling = Phases(), None
    totals, steps = new_totals(many), []
    if saved is not None:
        state, totals = saved.like("state", state), saved.like("totals", totals)
        past, phases = saved.part("memory"), Phases(saved.part("phases"))
        steps = [memories.kept(past["steps"][str(i)]) for i in range(len(past["steps"]))]
        memory = memories.refill(memory, steps, past["starts"])
        collector.restore(saved.part("collector"), totals["epoch"])
    for number in range(totals["epoch"], total):
        with phases("collect"):
            policy = numpy_policy(state.learner, world.actions)
            experience = collector.collect(policy, world.actions, length)
        with phases("fit"):
            rows = host.rows(experience, collector)
            memory, added = add(memory, rows, jnp.int32(number * batch))
            steps.append(memories.kept(added))
            count = jnp.int32((number + 1) * batch)
            real = host.real_batch(config, experience, length)
            rate = jnp.float32(1 - (1 - config.final_rate) * number / max(1, total - 1))
            if compiling is None:  # a pass is compiled while the model fits
                compiling = host.compile_aside(
                    one_pass, jnp.ones(many, bool), state, memory.past, count, real,
                    jnp.array(True), rate,
                )  # fmt: skip
            state, fitted = jax.block_until_ready(fit(state, memory, count))
        with phases("practise"):
            state, practice = practise_until_done(
                config, compiling.result(), state, memory.past, count, real, rate
            )
        metrics = real_metrics(experience, totals, config.cost_limit)
        host.add_metrics(metrics, config, practice, fitted, real, state.gap)
        host.check(state.learner, metrics, fitted)
        policy = numpy_policy(state.learner, world.actions)
        with phases("save"):
            where = collector.snapshot()
        seconds = phases.seconds()
        snapshot = {
            "state": state,
            "memory": {"steps": list(steps), "starts": rows["starts"]},
            "totals": totals,
            "phases": seconds,
            "collector": where,
        }
        yield Epoch(number + 1, total, metrics, state, policy, seconds, snapshot)


def practise_until_done(
    config: MBPPOConfig,
    one_pass: Callable[..., Any],
    state: State,
    past: Past,
    count: Array,
    real: dict[str, Any],
    rate: Float[Array, ""],
) -> tuple[State, host.Practice]:
    """Line 5: passes until the performance ratio stops every seed, or there are enough of them."""
    many = len(real["cost"])
    active, passes = jnp.ones(many, bool), np.zeros(many, int)
    first = last = None
    for i in range(config.passes):
        before = active
        state, active, now = one_pass(active, state, past, count, real, jnp.array(i == 0), rate)
        # Of seeds that have stopped, the last pass they took part in is reported.
        last = now if last is None else host.choose(before, now, last)
        first = last if first is None else first
        if config.gate == "none":
            passes += 1  # and the device is not waited for
            continue
        passes += np.asarray(active)
        if not np.asarray(active).any():
            break
    return jax.block_until_ready(state), host.Practice(
        jax.device_get(first), jax.device_get(last), passes
    )
