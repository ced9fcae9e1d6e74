"""MBPPO-Lagrangian: Algorithm 1 of Jayant & Bhatnagar (NeurIPS 2022), and what goes beyond it.

One epoch: collect real episodes; fit the ensemble to all real steps so far; practise in imagination
(roll out, update the multiplier, improve the policy) while it pays; return to the environment.
Functions are for one seed; `mbppo_trainer` runs all seeds. Line numbers are those of Algorithm 1.
"""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.mbppo_rollouts import (
    ImaginedEpisodes,
    Past,
    episode_means,
    from_past,
    horizon,
    near_data,
    next_rollouts,
    starting_states,
    trusted,
)
from surefoot.algorithms.model_data import new_ensemble
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Flag, Index, Metrics, RandomKey, Scalar, Tree, choose
from surefoot.learn import multiplier, ppo
from surefoot.learn.actor_critic import Batch, Learner, observe, prepare, rescaled
from surefoot.learn.multiplier import NO_MULTIPLIER
from surefoot.learn.networks import Actor
from surefoot.world import trust
from surefoot.world.ensemble import Ensemble
from surefoot.world.imagination import Rollout, imagine, last_steps


class State(eqx.Module):
    """Everything that learns, and the episodes being imagined."""

    learner: Learner
    ensemble: Ensemble
    imagined: ImaginedEpisodes
    ratio: trust.CostRatio
    progress: trust.Progress
    aim: Float[Array, " k"] | None
    """Cost that practice aims at: that of the policy while lambda waits, then less and less of it
    until it is the limit. Infinite before the first pass; None without `limit_fall`."""
    key: RandomKey


class RealBatch(eqx.Module):
    """What practice needs of the last real batch."""

    cost: Float[Array, " k"]
    """Mean cost of an episode."""
    cost_error: Float[Array, " k"]
    """Its standard error."""
    rising: Flag
    """Whether the mean reward is well above that of all earlier batches."""
    actor: Actor
    """The policy that took it."""
    segments: Batch | None
    """Segments as long as rollouts, for the first pass of an epoch; of weight 0 if none fits."""


class Pace(NamedTuple):
    """What changes from epoch to epoch by schedule."""

    rate: Scalar
    """Factor on the learning rates."""
    floor: Scalar | None
    """Lower bound of the policy's log standard deviation, if it has one."""


def pace(config: MBPPOConfig, share: float) -> Pace:
    """The pace after this share of the epochs, 0 in the first and 1 in the last."""
    rate = jnp.float32(1 - (1 - config.final_rate) * share)
    last, early = config.ppo.minimum_log_std, config.early_log_std
    if last is None or early is None:
        return Pace(rate, None)
    return Pace(rate, jnp.float32(early + share * (last - early)))


def init(config: MBPPOConfig, problem: Problem, key: RandomKey) -> State:
    """Line 1: a new policy, critics, ensemble and multiplier."""
    model, k = problem.task_model, problem.constraints
    learner_key, ensemble_key, key = jax.random.split(key, 3)
    start = config.multiplier if config.constrained else NO_MULTIPLIER
    size = problem.observation_size
    learner = ppo.init(config.ppo, start, size, problem.actions, k, learner_key)
    ensemble = new_ensemble(config.ensemble, problem, ensemble_key)
    # Of the form of states; the first pass draws them.
    form = jax.eval_shape(model.restore, key, jnp.zeros((config.rollouts, model.record_size)))
    states = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), form)
    costs = None
    if config.within is not None:
        if not config.carried and horizon(config, problem) < problem.episode_steps:
            raise ValueError(
                f"within={config.within} must go with carry above 0, or with "
                f"horizon={config.horizon} at least {problem.episode_steps}: it measures whole "
                f"episodes"
            )
        costs = trust.EpisodeCosts.none(config.rollouts, k)
    imagined = ImaginedEpisodes(states, jnp.full(config.rollouts, -1, jnp.int32), costs)
    aim = None if config.limit_fall is None else jnp.full(k, jnp.inf)
    ratio, progress = trust.CostRatio.none(k), trust.Progress.none()
    return State(learner, ensemble, imagined, ratio, progress, aim, key)


def scale_observations(problem: Problem, state: State) -> State:
    """Scale the policy's observations as the model scales them: by all real steps so far.

    Imagined observations would let the scale drift with the policy.
    """
    if state.learner.normalizer is None or not problem.task_model.takes_observations:
        return state
    size, ensemble = problem.observation_size, state.ensemble
    mean, std = ensemble.input_mean[:size], ensemble.input_std[:size]
    return replace(state, learner=rescaled(state.learner, mean, jnp.square(std)))


def practise(
    config: MBPPOConfig,
    problem: Problem,
    state: State,
    past: Past,
    real: RealBatch,
    first: Flag,
    pace: Pace,
    reach: Index,
) -> tuple[State, Flag, Metrics]:
    """Lines 6 to 16: one pass. Returns the state, whether to continue, and metrics."""
    key, start_key, roll_key, update_key, trust_key = jax.random.split(state.key, 5)
    old, length = state.learner, horizon(config, problem)
    fresh = starting_states(config, problem, past, config.rollouts, start_key)
    imagined = next_rollouts(config, problem, state.imagined, fresh)
    states, restarts, near = imagined.states, None, jnp.zeros(config.rollouts, bool)
    if config.adapt_practice:
        restarts = near_data(config, problem, past, reach, trust_key)
        near, pool = restarts.rollouts, restarts.states
        at = jnp.arange(config.rollouts) % config.short
        states = choose(near, jax.tree.map(lambda x: x[at], pool), states)
    world = problem.world(state.ensemble)
    # Only the last window of an episode can reach the time limit, and only if it is shorter.
    left = problem.episode_steps - imagined.age if problem.episode_steps % length else None
    rollout, end = imagine(
        world, old.sample, states, length, roll_key, left=left, restarts=restarts
    )
    # An episode that terminated within the pass is over.
    age = jnp.where(rollout.terminated.any(0), problem.episode_steps, imagined.age + length)
    # Lines 8 and 10: the multiplier follows the cost of the present policy.
    reward, cost = episode_means(config, problem, rollout, imagined.age, near)
    limit = jnp.asarray(config.cost_limit, cost.dtype)
    ratio, costs = state.ratio, imagined.costs
    if config.anchor:
        if not config.careful:  # the filter's cost says nothing about the policy's
            seen = ratio.seen(
                real.cost, real.cost_error, cost, config.episodes, config.ratio_memory
            )
            ratio = jax.tree.map(lambda new, old: jnp.where(first, new, old), seen, ratio)
        estimate = cost
        if costs is not None and config.within is not None:
            began = (imagined.age == 0) & ~from_past(config) & ~near
            costs = costs.seen(rollout.cost_returns(), began, age >= problem.episode_steps)
            estimate = costs.quantile(config.within, cost)
        estimate = estimate * ratio.value(limit)
    else:
        estimate = rollout.cost_returns().mean(0)
    weight = rollout.alive
    if restarts is not None:
        weight = weight * trusted(config, problem, imagined.age, restarts)
    batch = to_batch(rollout, weight, real.segments, first)
    rows, scales = prepare(config.ppo, old, batch)
    progress = state.progress.seen(reward)
    waiting = waits(config, progress, real.rising)
    learner, lam, aim = old, jnp.zeros_like(estimate), state.aim
    if config.constrained:
        target, before = config.beta * limit, old.multiplier
        if aim is not None:
            aim = target = next_aim(config, aim, estimate, target, waiting)
        moved = multiplier.update(config.multiplier, before, estimate, target, scales, pace.rate)
        moved = jax.tree.map(lambda new, old: jnp.where(waiting, old, new), moved, before)
        old = eqx.tree_at(lambda s: s.multiplier, old, moved)
        lam = jnp.where(waiting, 0.0, multiplier.value(config.multiplier, moved))
    floor, least = pace.floor, config.ppo.minimum_log_std
    if floor is not None and least is not None and config.constrained:
        # Noise that breaks a limit may fall at once.
        floor = jnp.where(jnp.any(estimate > limit) & ~waiting, least, floor)
    region = None
    if config.trust_radius is not None:
        region = ppo.TrustRegion(real.actor, config.trust_radius)
    # Lines 9 and 11 to 15: K steps on the policy and the critics.
    learner, metrics = ppo.update(config.ppo, old, rows, lam, update_key, pace.rate, floor, region)
    if not problem.task_model.takes_observations:
        learner = observe(learner, batch)
    # Lines 16 and 5: is the policy better in enough of the elites? If not, undo its update.
    keep, pr = jnp.array(True), jnp.array(jnp.nan)
    if config.gate != "none":
        pr = improvement(config, problem, state, past, learner, lam, trust_key)
        keep = pr >= config.pr_threshold - 1e-6
        learner = jax.tree.map(lambda new, kept: jnp.where(keep, new, kept), learner, old)
    metrics |= {
        "imagined_reward": reward,
        "imagined_cost": cost,
        "lambda": lam,
        "waiting": waiting.astype(jnp.float32),
        "performance_ratio": pr,
        "shift": metrics.get("shift", jnp.array(jnp.nan)),
    }
    if costs is not None:
        metrics["imagined_within"] = costs.within(limit)
    imagined = ImaginedEpisodes(end, age, costs)
    state = State(learner, state.ensemble, imagined, ratio, progress, aim, key)
    return state, keep, metrics


def waits(config: MBPPOConfig, progress: trust.Progress, real_rises: Flag) -> Flag:
    """Whether costs have no price yet, because the policy is still learning the task.

    Avoiding costs is easiest by doing nothing. A policy that does nothing learns no task. In the
    first epoch it can do nothing yet, so neither its gains nor its scales say anything.
    """
    rising = real_rises | (progress.stale < max(1, config.passes // 10))
    rising |= progress.updates <= config.passes
    return rising & (progress.updates <= config.learn_first * config.passes)


def next_aim(
    config: MBPPOConfig,
    aim: Float[Array, " k"],
    cost: Float[Array, " k"],
    final: Float[Array, " k"],
    waiting: Flag,
) -> Float[Array, " k"]:
    """The cost to aim at in this pass: the present one at first, then less and less of it.

    A policy that must lose most of its cost at once loses its reward with it. A limit of 0, which
    no factor reaches, holds from a cost of 1 on.
    """
    assert config.limit_fall is not None
    factor = 0.1 ** (1 / (config.limit_fall * config.passes))
    now = jnp.where(waiting | jnp.isinf(aim), cost, factor * aim)
    return jnp.where(now < jnp.where(final > 0, final, 1.0), final, now)


def practise_if_active(
    config: MBPPOConfig, problem: Problem, active: Flag, state: State, *args: Tree
) -> tuple[State, Flag, Metrics]:
    """`practise`, or nothing for a seed that has stopped."""
    one_pass = lambda: practise(config, problem, state, *args)
    *_, metrics = jax.eval_shape(one_pass)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), metrics)
    return jax.lax.cond(active, one_pass, lambda: (state, jnp.array(False), nothing))


def to_batch(
    rollout: Rollout, weight: Float[Array, "T B"], real: Batch | None, first: Flag
) -> Batch:
    """Imagined rollouts as the learner takes them; in a first pass with real ones beside them."""
    batch = Batch(
        obs=rollout.obs,
        action=rollout.action,
        reward=rollout.reward,
        cost=rollout.cost,
        next_obs=rollout.last_obs[None],
        terminated=rollout.terminated,
        ended=last_steps(weight) | rollout.terminated,
        weight=weight,
    )
    if real is None:
        return batch
    real = replace(real, weight=jax.tree.map(lambda w: first * w, real.weight))
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), batch, real)


def improvement(
    config: MBPPOConfig,
    problem: Problem,
    state: State,
    past: Past,
    new: Learner,
    lam: Float[Array, " k"],
    key: RandomKey,
) -> Scalar:
    """The performance ratio of `new` over the present policy (eq. pr), by paired rollouts."""
    state_key, roll_key = jax.random.split(key)
    states = starting_states(config, problem, past, config.pr_rollouts, state_key)
    world = problem.world(state.ensemble)
    length = min(config.pr_horizon, problem.episode_steps)
    discount = config.ppo.gamma ** jnp.arange(length)[:, None]

    def score(learner: Learner, member: Array) -> Array:
        rollout, _ = imagine(world, learner.sample, states, length, roll_key, member)
        value = rollout.reward
        if config.gate == "lagrangian":
            value = value - rollout.cost @ lam
        return jnp.sum(value * rollout.alive * discount, 0).mean()

    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), new, state.learner)
    over_elites = jax.vmap(score, (None, 0))
    scores = jax.vmap(over_elites, (0, None))(both, state.ensemble.elites)
    return trust.performance_ratio(scores[0], scores[1])
