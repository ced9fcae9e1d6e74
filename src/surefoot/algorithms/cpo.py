"""Constrained policy optimisation (Achiam et al., 2017), in the form of safety-starter-agents.

One epoch: collect real steps; take the step that raises the reward most among those that keep the
linearised cost under its limit and the KL in the trust region, or, where there is none, the step
that lowers the cost most; fit the critics. There is no multiplier to learn: each step solves for
its own.
"""

from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool

from surefoot.algorithms import on_policy
from surefoot.algorithms.on_policy import Measured, OnPolicyConfig, State
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Metrics, RandomKey, Scalar
from surefoot.learn import actor_critic, dual, trust_region
from surefoot.learn.actor_critic import Batch, Rows, fit_critics, observe, prepare
from surefoot.learn.multiplier import NO_MULTIPLIER
from surefoot.learn.networks import Actor
from surefoot.learn.trust_region import Judged, TrustRegionConfig


@dataclass(frozen=True)
class CPOConfig(OnPolicyConfig):
    """CPO with safety-starter-agents' settings. It keeps one constraint."""

    signal_scaling: bool = False
    """Scale the requested cost decrease by the estimated signal fraction of the cost gradient."""
    cpo: TrustRegionConfig = field(default_factory=TrustRegionConfig)
    """The learner."""


def init(config: CPOConfig, problem: Problem, key: RandomKey) -> State:
    """A new policy and new critics."""
    if problem.constraints != 1:
        raise ValueError(
            f"cost_names={problem.cost_names!r}: cpo supports exactly one constraint; "
            f"ppo-lagrangian and trpo-lagrangian support several"
        )
    learner_key, key = jax.random.split(key)
    learner = actor_critic.init(
        config.cpo, NO_MULTIPLIER, problem.observation_size, problem.actions, 1, learner_key
    )
    return State(learner, key)


def update(
    config: CPOConfig, state: State, batch: Batch, measured: Measured
) -> tuple[State, Metrics]:
    """One update from real steps."""
    key, sub = jax.random.split(state.key)
    # Per step, which is what the surrogate of the cost is measured in.
    excess = (measured.cost[0] - config.cost_limit[0]) / measured.length
    rows, _ = prepare(config.cpo, state.learner, batch)
    half = halves(*batch.reward.shape) if config.signal_scaling else None
    actor, metrics = improve(config.cpo, state.learner.actor, rows, excess, half)
    # Per episode; comparing it with the next epoch's cost shows how far to trust the batch.
    metrics["expected_cost_change"] *= measured.length
    learner = eqx.tree_at(lambda s: s.actor, state.learner, actor)
    learner, critic_metrics = fit_critics(config.cpo, learner, rows, sub)
    learner = observe(learner, batch)
    return State(learner, key), {**metrics, **critic_metrics}


def improve(
    config: TrustRegionConfig,
    actor: Actor,
    rows: Rows,
    c: Scalar,
    half: Bool[Array, " N"] | None = None,
) -> tuple[Actor, Metrics]:
    """The step of `dual.solve`, shrunk until it holds for the surrogates themselves.

    `c` is the excess of the cost per step over its limit; the expected change is per step too.
    With `half`, which splits the rows in two, the requested decrease is scaled up by the estimated
    noise of the cost gradient.
    """
    region = trust_region.around(config, actor, rows)
    g = jax.grad(lambda p: -region.judge(p).reward)(region.here)
    b = jax.grad(lambda p: region.judge(p).cost[0])(region.here)
    v, w = trust_region.solve(config, region, g), trust_region.solve(config, region, b)
    signal = jnp.array(1.0)
    if half is not None:
        signal = signal_fraction(config, actor, rows, half, b @ w)
    excess = jnp.where(c > 0, c / signal, c)
    chosen = dual.solve(g @ v, b @ v, b @ w, excess, config.delta)
    before = region.judge(region.here)

    def accept(judged: Judged) -> Array:
        # Recovering from a violation may reduce the reward.
        no_worse = (judged.reward >= before.reward) | (c > 0)
        return no_worse & (judged.cost[0] - before.cost[0] <= jnp.maximum(-c, 0.0))

    step = -(chosen.of_v * v + chosen.of_w * w)
    actor, metrics = trust_region.search(config, region, step, accept)
    cases = {"binding": chosen.binding * 1, "recovery": chosen.recovery * 1}
    if half is not None:
        cases["signal_fraction"] = signal
    change = region.judge(ravel_pytree(actor)[0]).cost[0] - before.cost[0]
    return actor, {"lambda": chosen.nu, "expected_cost_change": change, **cases, **metrics}


def halves(steps: int, environments: int) -> Bool[Array, " N"]:
    """Which of a batch's N rows are in the first half: of the environments, or of the time."""
    row = jnp.arange(steps * environments)
    if environments == 1:
        return row < steps // 2
    return row % environments < environments // 2


def signal_fraction(
    config: TrustRegionConfig, actor: Actor, rows: Rows, half: Bool[Array, " N"], s: Scalar
) -> Scalar:
    """The estimated fraction of s = b'H^-1 b that is signal, at least 0.05.

    Half the difference of the two halves' gradients has no signal, and as much noise as their
    mean b.
    """
    weight = jnp.ones(half.shape) if rows.weight is None else rows.weight
    share = weight @ half / weight.sum()
    side = jnp.where(half, 0.5 / share, -0.5 / (1 - share))
    split = eqx.tree_at(lambda r: r.cost_advantage, rows, rows.cost_advantage * side[:, None])
    region = trust_region.around(config, actor, split)
    d = jax.grad(lambda p: region.judge(p).cost[0])(region.here)
    noise = d @ trust_region.solve(config, region, d)
    return jnp.clip(1 - noise / jnp.maximum(s, dual.FLAT), 0.05, 1.0)


ALGORITHM = on_policy.algorithm(
    "cpo",
    "CPO",
    CPOConfig,
    init,
    update,
    remedy="a smaller cpo.critic_learning_rate or cpo.normalise_observations",
    learner="cpo",
)
