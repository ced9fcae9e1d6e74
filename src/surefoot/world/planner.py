"""Planning with the learned model: the cross-entropy method over sequences of H actions.

A policy proposes some of the plans, a terminal value extends the horizon, and the cost of a plan is
the worst case over all elites (safe-LOOP: Sikchi et al., 2021). Everything here is for the N
environments of one seed; callers `vmap` over seeds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from surefoot.core.arrays import Index, RandomKey
from surefoot.core.config import (
    Count,
    Fraction,
    NonNegative,
    Positive,
    PositiveShare,
    Range,
    Share,
    check,
)
from surefoot.core.spaces import ActionSpec
from surefoot.world.ensemble import Ensemble, rounded
from surefoot.world.imagination import LearnedWorld, Policy, follow, imagine
from surefoot.world.model import State

Value = Callable[[Float[Array, "B O"], RandomKey], Float[Array, " B"]]
"""Terminal value of observations."""
Result = TypeVar("Result")
NARROWEST = 1e-6
"""Lower bound of the standard deviation of plans, in units of the action range."""


@dataclass(frozen=True)
class PlannerConfig:
    """How to plan; the defaults are those of safe-LOOP."""

    kind: Literal["soft", "cem", "steer"] = "soft"
    """How plans are weighted: by the exponential of their score, or the best ones equally. With
    steer there are no sequences of actions: a plan is the policy, shown a goal elsewhere."""
    horizon: Count = 8
    """Actions in a plan, H."""
    hold: Count = 1
    """Steps for which each action of a plan is held. Independent actions cancel out on a robot with
    momentum. Only the first step of a plan is executed."""
    samples: Annotated[int, Range(least=2)] = 100
    """Plans per iteration, including the current mean."""
    actor_share: Fraction = 0.05
    """Number of plans proposed by the policy, as a fraction of the samples."""
    particles: Count = 4
    """Rollouts of each plan through each elite."""
    iterations: Count = 8
    """Iterations of sampling plans and updating their mean and variance."""
    kappa: Positive = 1.0
    """Inverse temperature of the weights of a soft planner."""
    elite_share: PositiveShare = 0.1
    """Fraction of the plans that a cem planner selects."""
    smoothing: Share = 0.1
    """Weight of the old variance in each iteration."""
    cost_threshold: NonNegative = 0.0
    """A plan is safe if its worst-case cost is at most this. Learned costs are never exactly 0, so
    they need a positive threshold."""
    value_weight: NonNegative = 1.0
    """Weight of the terminal value at the end of a plan; 0 disables it."""
    directions: Count = 16
    """Steer: number of directions in which the policy is shown a goal."""
    fewest_safe: Count = 10
    """With at least this many safe plans, only these count, by value; otherwise all plans count, by
    cost."""

    @property
    def steps(self) -> int:
        """Environment steps in a plan."""
        return self.horizon * self.hold

    @property
    def proposals(self) -> int:
        """Number of plans that the policy proposes."""
        return round(self.actor_share * self.samples)

    def __post_init__(self) -> None:
        check(self)
        if self.fewest_safe > self.samples:
            raise ValueError(
                f"fewest_safe={self.fewest_safe} must be at most samples={self.samples}"
            )


class Plan(eqx.Module):
    """The result of planning in N environments."""

    action: Float[Array, "N A"]
    """Action to execute now."""
    mean: Float[Array, "N H A"]
    """Initial mean for planning at the next step: this plan, one step later."""
    value: Float[Array, " N"]
    """Reward and terminal value of the plan, mean over elites and particles."""
    worst_cost: Float[Array, " N"]
    """Maximum cost over elites, particles and constraints."""
    safe: Bool[Array, " N"]
    """Whether the worst cost is within the threshold."""


def initial_mean(config: PlannerConfig, actions: ActionSpec, n: int) -> Float[Array, "N H A"]:
    """Initial mean of plans in n environments at the start of an episode."""
    low, high = _bounds(actions)
    return jnp.tile((low + high) / 2, (n, config.horizon, 1))


def plan(
    config: PlannerConfig,
    world: LearnedWorld,
    states: State,
    mean: Float[Array, "N H A"],
    propose: Policy | None,
    value: Value | None,
    key: RandomKey,
) -> Plan:
    """Plan from `states` (leading axis N), with an initial `mean`.

    `propose(obs, key)` is a policy that proposes plans; `value(obs, key)` is the terminal value.
    Both are optional. The result is the final mean if it is safe, else the best plan evaluated.
    The mean of two safe plans around a hazard can be unsafe.
    """
    low, high = _bounds(world.actions)
    start_key, propose_key, last_key = jax.random.split(key, 3)
    evaluate_plans = lambda plans, key: evaluate(config, world, states, plans, value, key)
    start = jnp.moveaxis(mean, 0, 1)
    proposals = jnp.zeros((0, *start.shape))
    if propose is not None and config.proposals:
        proposals = _proposals(config, world, states, propose, propose_key)

    def improve(carry: tuple[Array, ...], key: RandomKey) -> tuple[tuple[Array, ...], None]:
        mean, var, *best = carry
        draw_key, evaluation_key = jax.random.split(key)
        std = jnp.maximum(jnp.sqrt(var), NARROWEST * (high - low))
        noise = jax.random.truncated_normal(
            draw_key, (low - mean) / std, (high - mean) / std, (config.samples - 1, *mean.shape)
        )
        drawn = jnp.clip(mean + std * noise, low, high)
        plans = jnp.concatenate([mean[None], drawn, proposals])
        values, costs = evaluate_plans(plans, evaluation_key)
        weight = jax.vmap(lambda v, c: weights(config, v, c), 1, 1)(values, costs)
        weight = weight[:, None, :, None]
        mean = (weight * plans).sum(0)  # a matrix product would be rounded on a GPU
        spread = (weight * jnp.square(plans - mean)).sum(0)
        var = (1 - config.smoothing) * spread + config.smoothing * var
        seen = (plans, values, costs)
        seen = [jnp.concatenate([x, b[None]]) for x, b in zip(seen, best, strict=True)]
        return (mean, var, *_pick(seen, best_of(config, *seen[1:]))), None

    infinite = jnp.full(mean.shape[0], jnp.inf)
    var = jnp.broadcast_to(jnp.square(high - low) / 16, start.shape)
    (final, _, best, *_), _ = jax.lax.scan(
        improve,
        (start, var, start, -infinite, infinite),
        jax.random.split(start_key, config.iterations),
    )
    # Evaluated again with the same random numbers, because the best plan may have been a lucky one.
    plans = jnp.stack([final, best])
    values, costs = evaluate_plans(plans, last_key)
    index = jnp.where(costs[0] <= config.cost_threshold, 0, best_of(config, values, costs))
    chosen, chosen_value, worst = _pick([plans, values, costs], index)
    chosen = jnp.moveaxis(jnp.clip(chosen, low, high), 1, 0)
    last = initial_mean(config, world.actions, chosen.shape[0])[:, :1]
    later = jnp.concatenate([chosen[:, 1:], last], 1)
    return Plan(
        action=chosen[:, 0],
        mean=chosen + (later - chosen) / config.hold,
        value=chosen_value,
        worst_cost=worst,
        safe=worst <= config.cost_threshold,
    )


def evaluate(
    config: PlannerConfig,
    world: LearnedWorld,
    states: State,
    plans: Float[Array, "C H N A"],
    value: Value | None,
    key: RandomKey,
) -> tuple[Float[Array, "C N"], Float[Array, "C N"]]:
    """Value and worst-case cost of C plans for each of N states.

    Several particles imagine every plan in every elite. All plans meet the same random numbers, so
    they differ by their actions only.
    """

    def one(world: LearnedWorld, member: Index, key: RandomKey) -> tuple[Array, Array]:
        roll_key, value_key = jax.random.split(key)

        def outcome(plan: Float[Array, "H N A"]) -> tuple[Array, Array]:
            taken = jnp.repeat(plan, config.hold, 0)
            end = follow(world, taken, states, roll_key, member)
            total = end.reward
            if value is not None and config.value_weight:
                obs = jax.vmap(world.model.observe)(end.states)
                terminal = config.value_weight * value(obs, value_key)
                total = total + jnp.where(end.alive > 0, terminal, 0.0)
            return total, end.cost.max(-1)

        return jax.vmap(outcome)(plans)

    total, cost = _over_particles(config, world, one, key)
    return total.mean((0, 1)), cost.max((0, 1))


def weights(
    config: PlannerConfig, values: Float[Array, " C"], costs: Float[Array, " C"]
) -> Float[Array, " C"]:
    """Weight of each of C plans; they sum to 1."""
    safe = costs <= config.cost_threshold
    enough = safe.sum() >= config.fewest_safe
    score = jnp.where(enough, jnp.where(safe, values, -jnp.inf), -costs)
    if config.kind == "soft":
        return jax.nn.softmax(config.kappa * score)
    count = max(1, round(config.elite_share * len(score)))
    least = jax.lax.top_k(score, count)[0][-1]
    chosen = (score >= least) & (score > -jnp.inf)
    return chosen / chosen.sum()


def worst_cost(
    config: PlannerConfig,
    world: LearnedWorld,
    states: State,
    action: Float[Array, "N A"],
    policy: Policy,
    key: RandomKey,
) -> Float[Array, " N"]:
    """Worst-case cost of `action` now, followed by `policy` for the rest of the horizon.

    As for a plan, the worst case is over elites, particles and constraints.
    """

    return outcome(config, world, states, action, policy, None, key)[1]


def outcome(
    config: PlannerConfig,
    world: LearnedWorld,
    states: State,
    action: Float[Array, "N A"],
    policy: Policy,
    value: Value | None,
    key: RandomKey,
    observe: Callable[[State], Float[Array, " O"]] | None = None,
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Value and worst-case cost of `action` now, followed by `policy`, which may see otherwise."""

    def one(world: LearnedWorld, member: Index, key: RandomKey) -> tuple[Array, Array]:
        first_key, rest_key = jax.random.split(key)
        now = follow(world, action[None], states, first_key, member)
        rest, end = imagine(
            world, policy, now.states, config.steps - 1, rest_key, member, observe=observe
        )
        total = now.reward + now.alive * rest.returns()
        if value is not None and config.value_weight:
            terminal = config.value_weight * value(jax.vmap(world.model.observe)(end), rest_key)
            total = total + jnp.where(rest.terminated.any(0), 0.0, now.alive * terminal)
        return total, (now.cost + now.alive[:, None] * rest.cost_returns()).max(-1)

    total, cost = _over_particles(config, world, one, key)
    return total.mean((0, 1)), cost.max((0, 1))


def _over_particles(
    config: PlannerConfig,
    world: LearnedWorld,
    one: Callable[[LearnedWorld, Index, RandomKey], Result],
    key: RandomKey,
) -> Result:
    """Results of `one(world, member, key)` for all elites and particles, as two leading axes.

    The ensemble's weights are rounded on an accelerator.
    """
    keys = jax.random.split(key, (world.ensemble.elites.shape[0], config.particles))

    def every(ensemble: Ensemble) -> Result:
        now = replace(world, ensemble=ensemble)
        over_particles = jax.vmap(lambda member, key: one(now, member, key), (None, 0))
        return jax.vmap(over_particles)(ensemble.elites, keys)

    return jax.lax.platform_dependent(
        world.ensemble, cpu=every, default=lambda ensemble: every(rounded(ensemble))
    )


def _bounds(actions: ActionSpec) -> tuple[Float[Array, " A"], Float[Array, " A"]]:
    if actions.discrete:
        raise ValueError(
            f"actions must be a Box to plan in, not a choice among {actions.size} (Discrete)"
        )
    if not np.isfinite([*actions.low, *actions.high]).all():
        raise ValueError(
            f"low={actions.low}, high={actions.high}: bounds of actions must be finite to plan"
        )
    return jnp.asarray(actions.low, jnp.float32), jnp.asarray(actions.high, jnp.float32)


def _proposals(
    config: PlannerConfig,
    world: LearnedWorld,
    states: State,
    propose: Policy,
    key: RandomKey,
) -> Float[Array, "M H N A"]:
    """Plans of a policy, each imagined in another elite."""
    count = config.proposals
    elites = world.ensemble.elites
    members = elites[jnp.arange(count) % elites.shape[0]]

    def one(member: Array, key: RandomKey) -> Float[Array, "H N A"]:
        rollout, _ = imagine(world, propose, states, config.steps, key, member)
        return world.actions.encode(rollout.action[:: config.hold])

    return jax.vmap(one)(members, jax.random.split(key, count))


def best_of(
    config: PlannerConfig, values: Float[Array, "C N"], costs: Float[Array, "C N"]
) -> Int[Array, " N"]:
    """For each state the safe plan of highest value; if none is safe, the one of lowest cost."""
    safe = costs <= config.cost_threshold
    good = jnp.where(safe.any(0), safe, costs <= costs.min(0))
    return jnp.argmax(jnp.where(good, values, -jnp.inf), 0)


def _pick(seen: list[Array], index: Int[Array, " N"]) -> tuple[Array, Array, Array]:
    """For each state the plan with this index, its value and its cost."""
    plans, values, costs = seen
    n = jnp.arange(len(index))
    return jnp.moveaxis(plans[index, :, n], 0, 1), values[index, n], costs[index, n]
