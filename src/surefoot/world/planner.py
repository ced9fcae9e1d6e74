"""Planning with the learned world: many plans are imagined, and what is done is the best safe one.

The cross-entropy method over sequences of H actions, with plans proposed by a policy, a terminal
value, and a cost that is the worst case over all elites (safe-LOOP: Sikchi et al., 2021). Written
for all N environments of one seed; vmap for several.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from surefoot.core.config import check_types
from surefoot.core.spaces import ActionSpec
from surefoot.world.ensemble import Ensemble, rounded
from surefoot.world.imagination import Policy, follow, imagine
from surefoot.world.model import State, TaskModel

Value = Callable[[Float[Array, "B O"], Key[Array, ""]], Float[Array, " B"]]
# In units of an action's range: proposals never become so narrow that rounding tells them apart.
NARROWEST = 1e-6


@dataclass(frozen=True)
class PlannerConfig:
    """How to plan; the defaults are those of safe-LOOP."""

    kind: Literal["soft", "cem"] = "soft"
    """Whether plans count by the exponential of their score, or the best of them all alike."""
    horizon: int = 8
    """Actions of a plan, H."""
    hold: int = 1
    """Steps that each action of a plan lasts. Single steps that are drawn apart cancel each other
    out; a robot with momentum is moved by what lasts. Only the first step of a plan is taken."""
    samples: int = 100
    """Plans drawn in each iteration, the present mean among them."""
    actor_share: float = 0.05
    """Plans that the policy proposes beside them, as a share of the samples."""
    particles: int = 4
    """Rollouts of each plan through each elite."""
    iterations: int = 8
    """How many times plans are drawn and their mean and variance put right."""
    kappa: float = 1.0
    """Of a soft planner: how sharply it prefers what scores better."""
    elite_share: float = 0.1
    """Of a plain one: share of the plans that the next are drawn around."""
    smoothing: float = 0.1
    """Share of the variance that is kept from iteration to iteration."""
    cost_threshold: float = 0.0
    """A plan is safe if its worst-case cost is not above this. Costs that are learned are never
    quite 0, and need a little more."""
    value_weight: float = 1.0
    """How much what is expected after a plan counts beside what is imagined; 0 looks no further."""
    fewest_safe: int = 10
    """With fewer safe plans than this all count by their cost; with enough of them, the safe ones
    alone count, by their value."""

    @property
    def steps(self) -> int:
        """How far a plan reaches."""
        return self.horizon * self.hold

    @property
    def proposals(self) -> int:
        """How many plans the policy proposes."""
        return round(self.actor_share * self.samples)

    def __post_init__(self) -> None:
        check_types(self)
        if self.kind not in ("soft", "cem"):
            raise ValueError(f"kind={self.kind!r} must be 'soft' or 'cem'")
        for name in ("horizon", "hold", "particles", "iterations", "fewest_safe"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.samples < 2:
            raise ValueError(f"samples={self.samples} must be at least 2")
        if self.fewest_safe > self.samples:
            raise ValueError(
                f"fewest_safe={self.fewest_safe} must be at most samples={self.samples}"
            )
        if not 0 <= self.actor_share <= 1:
            raise ValueError(f"actor_share={self.actor_share} must be from 0 to 1")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing={self.smoothing} must be at least 0 and below 1")
        if not 0 < self.elite_share <= 1:
            raise ValueError(f"elite_share={self.elite_share} must be above 0 and at most 1")
        if not self.kappa > 0:
            raise ValueError(f"kappa={self.kappa} must be positive")
        if not self.value_weight >= 0:
            raise ValueError(f"value_weight={self.value_weight} must not be negative")
        if not self.cost_threshold >= 0:
            raise ValueError(f"cost_threshold={self.cost_threshold} must not be negative")


class Plan(eqx.Module):
    """What to do in N environments."""

    action: Float[Array, "N A"]
    """What to do now."""
    mean: Float[Array, "N H A"]
    """Where to start planning at the next step: this plan, one step on."""
    value: Float[Array, " N"]
    """What the plan promises: rewards and terminal value, mean over elites and particles."""
    worst_cost: Float[Array, " N"]
    """The most that it may cost, over elites and particles; of several constraints the largest."""
    safe: Bool[Array, " N"]
    """Whether that is within the threshold."""
    safe_share: Float[Array, " N"]
    """Share of the plans of the last iteration that were safe."""


def initial_mean(config: PlannerConfig, actions: ActionSpec, n: int) -> Float[Array, "N H A"]:
    """Where to start planning in n environments that have just begun an episode."""
    low, high = _bounds(actions)
    return jnp.tile((low + high) / 2, (n, config.horizon, 1))


def plan(
    config: PlannerConfig,
    knowledge: TaskModel,
    actions: ActionSpec,
    ensemble: Ensemble,
    states: State,
    mean: Float[Array, "N H A"],
    propose: Policy | None,
    value: Value | None,
    key: Key[Array, ""],
) -> Plan:
    """Plan from `states` (leading axis N), starting around `mean`.

    `propose(obs, key)` is a policy whose plans take part, `value(obs, key)` what is still to come
    after the last step; without them there is nothing of the kind. The plan followed is the mean
    that all iterations have come to, as long as it is safe. Where it is not, for the middle of two
    ways around a danger may lead through it, it is the best that was seen.
    """
    low, high = _bounds(actions)
    start_key, propose_key, last_key = jax.random.split(key, 3)
    judge = lambda plans, key: evaluate(
        config, knowledge, actions, ensemble, states, plans, value, key
    )
    start = jnp.moveaxis(mean, 0, 1)
    proposals = jnp.zeros((0, *start.shape))
    if propose is not None and config.proposals:
        proposals = _proposals(config, knowledge, actions, ensemble, states, propose, propose_key)

    def improve(carry: tuple, key: Key[Array, ""]) -> tuple[tuple, Float[Array, " N"]]:
        mean, var, *best = carry
        draw_key, judge_key = jax.random.split(key)
        std = jnp.maximum(jnp.sqrt(var), NARROWEST * (high - low))
        noise = jax.random.truncated_normal(
            draw_key, (low - mean) / std, (high - mean) / std, (config.samples - 1, *mean.shape)
        )
        drawn = jnp.clip(mean + std * noise, low, high)
        plans = jnp.concatenate([mean[None], drawn, proposals])
        values, costs = judge(plans, judge_key)
        weight = jax.vmap(lambda v, c: weights(config, v, c), 1, 1)(values, costs)
        weight = weight[:, None, :, None]
        mean = (weight * plans).sum(0)  # no matrix product: it would be rounded on a GPU
        spread = (weight * jnp.square(plans - mean)).sum(0)
        var = (1 - config.smoothing) * spread + config.smoothing * var
        known = (plans, values, costs)
        known = [jnp.concatenate([x, b[None]]) for x, b in zip(known, best, strict=True)]
        safe_share = (costs <= config.cost_threshold).mean(0)
        return (mean, var, *_pick(known, _best(config, *known[1:]))), safe_share

    nothing = jnp.full(mean.shape[0], jnp.inf)
    var = jnp.broadcast_to(jnp.square(high - low) / 16, start.shape)
    (found, _, best, *_), shares = jax.lax.scan(
        improve,
        (start, var, start, -nothing, nothing),
        jax.random.split(start_key, config.iterations),
    )
    # Judged once more, and alike: the best seen may have been the luckiest.
    plans = jnp.stack([found, best])
    values, costs = judge(plans, last_key)
    which = jnp.where(costs[0] <= config.cost_threshold, 0, _best(config, values, costs))
    chosen, promised, worst = _pick([plans, values, costs], which)
    chosen = jnp.moveaxis(jnp.clip(chosen, low, high), 1, 0)
    later = jnp.concatenate(
        [chosen[:, 1:], initial_mean(config, actions, chosen.shape[0])[:, :1]], 1
    )
    return Plan(
        action=chosen[:, 0],
        mean=chosen + (later - chosen) / config.hold,
        value=promised,
        worst_cost=worst,
        safe=worst <= config.cost_threshold,
        safe_share=shares[-1],
    )


def evaluate(
    config: PlannerConfig,
    knowledge: TaskModel,
    actions: ActionSpec,
    ensemble: Ensemble,
    states: State,
    plans: Float[Array, "C H N A"],
    value: Value | None,
    key: Key[Array, ""],
) -> tuple[Float[Array, "C N"], Float[Array, "C N"]]:
    """Value and worst-case cost of C plans for each of N states.

    Every plan is rolled through every elite, by several particles that stay with their elite. All
    plans meet the same luck, so that they differ by what they do alone, and little is drawn.
    """

    def one(plan: Array, member: Array, key: Key[Array, ""]) -> tuple[Array, Array]:
        roll_key, value_key = jax.random.split(key)
        taken = jnp.repeat(plan, config.hold, 0)
        seen = follow(knowledge, actions, ensemble, taken, states, roll_key, member)
        total = seen.reward
        if value is not None and config.value_weight:
            obs = jax.vmap(knowledge.observe)(seen.states)
            later = config.value_weight * value(obs, value_key)
            total = total + jnp.where(seen.alive > 0, later, 0.0)
        return total, seen.cost.max(-1)

    ensemble = _quick(ensemble)
    keys = jax.random.split(key, (ensemble.elites.shape[0], config.particles))
    over_plans = jax.vmap(one, (0, None, None))
    over_particles = jax.vmap(over_plans, (None, None, 0))
    over_elites = jax.vmap(over_particles, (None, 0, 0))
    total, cost = over_elites(plans, ensemble.elites, keys)
    return total.mean((0, 1)), cost.max((0, 1))


def weights(
    config: PlannerConfig, values: Float[Array, " C"], costs: Float[Array, " C"]
) -> Float[Array, " C"]:
    """How much each of C plans counts; 1 in all."""
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
    knowledge: TaskModel,
    actions: ActionSpec,
    ensemble: Ensemble,
    states: State,
    action: Float[Array, "N A"],
    policy: Policy,
    key: Key[Array, ""],
) -> Float[Array, " N"]:
    """What it may cost to do `action` now and as `policy` says for the rest of the horizon.

    The worst case over elites and particles, as of a plan.
    """

    def one(member: Array, key: Key[Array, ""]) -> Float[Array, " N"]:
        first_key, rest_key = jax.random.split(key)
        now = follow(knowledge, actions, ensemble, action[None], states, first_key, member)
        rest, _ = imagine(
            knowledge, actions, ensemble, policy, now.states, config.steps - 1, rest_key, member
        )
        return (now.cost + now.alive[:, None] * rest.cost_returns()).max(-1)

    ensemble = _quick(ensemble)
    keys = jax.random.split(key, (ensemble.elites.shape[0], config.particles))
    over_particles = jax.vmap(one, (None, 0))
    return jax.vmap(over_particles)(ensemble.elites, keys).max((0, 1))


def _quick(ensemble: Ensemble) -> Ensemble:
    """The ensemble as this device plans soonest with it."""
    return ensemble if jax.default_backend() == "cpu" else rounded(ensemble)


def _bounds(actions: ActionSpec) -> tuple[Float[Array, " A"], Float[Array, " A"]]:
    if actions.discrete:
        raise ValueError(
            f"a planner draws actions from a box with bounds, and these are a choice among "
            f"{actions.size}"
        )
    if not np.isfinite([*actions.low, *actions.high]).all():
        raise ValueError(
            f"a planner draws actions between bounds, which must be finite; they are "
            f"{actions.low} and {actions.high}"
        )
    return jnp.asarray(actions.low, jnp.float32), jnp.asarray(actions.high, jnp.float32)


def _proposals(
    config: PlannerConfig,
    knowledge: TaskModel,
    actions: ActionSpec,
    ensemble: Ensemble,
    states: State,
    propose: Policy,
    key: Key[Array, ""],
) -> Float[Array, "M H N A"]:
    """What a policy would do, each time in the world of another elite."""
    count = config.proposals
    members = ensemble.elites[jnp.arange(count) % ensemble.elites.shape[0]]

    def one(member: Array, key: Key[Array, ""]) -> Float[Array, "H N A"]:
        rollout, _ = imagine(
            knowledge, actions, ensemble, propose, states, config.steps, key, member
        )
        return actions.encode(rollout.action[:: config.hold])

    return jax.vmap(one)(members, jax.random.split(key, count))


def _best(
    config: PlannerConfig, values: Float[Array, "C N"], costs: Float[Array, "C N"]
) -> Int[Array, " N"]:
    """Of each state's plans the safe one of most value; if none is safe, one that costs least."""
    safe = costs <= config.cost_threshold
    good = jnp.where(safe.any(0), safe, costs <= costs.min(0))
    return jnp.argmax(jnp.where(good, values, -jnp.inf), 0)


def _pick(known: list[Array], which: Int[Array, " N"]) -> tuple[Array, Array, Array]:
    """For each state plan number `which`, with its value and cost."""
    plans, values, costs = known
    n = jnp.arange(len(which))
    return jnp.moveaxis(plans[which, :, n], 0, 1), values[which, n], costs[which, n]
