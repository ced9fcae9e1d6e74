"""Constrained policy optimisation (Achiam et al., 2017), in the form of safety-starter-agents.

One epoch: collect real steps; take the step that raises the reward most among those that keep the
linearised cost under its limit and the KL in the trust region, or, where there is none, the step
that lowers the cost most; fit the critics. There is no multiplier to learn: each step solves for
its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Key

from surefoot.algorithms import model_free
from surefoot.algorithms.common import Epoch
from surefoot.algorithms.model_free import Measured, Sizes, State
from surefoot.core.snapshot import Saved
from surefoot.learn import dual, ppo, trust_region
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.networks import Actor
from surefoot.learn.trust_region import Judged, TrustRegionConfig


@dataclass(frozen=True)
class CPOConfig:
    """CPO with safety-starter-agents' settings. It keeps one constraint."""

    steps: int = 2_000_000
    """Real steps in all."""
    cost_limit: float = 18.0
    """Limit on the undiscounted cost of an episode."""
    steps_per_epoch: int = 30_000
    """Real steps per update."""
    observation: str = "paper"
    """Which observation of the Goal tasks the policy sees."""
    doubt: bool = False
    """Whether to ask for more where the batch promises more than it can know: two halves of the
    environments tell how much of the cost's gradient is noise, along which no cost will fall."""
    cpo: TrustRegionConfig = field(default_factory=TrustRegionConfig)
    """The learner."""

    def __post_init__(self) -> None:
        model_free.check_schedule(self)


def init(config: CPOConfig, sizes: Sizes, key: Key[Array, ""]) -> State:
    """A new policy and new critics."""
    if sizes.constraints != 1:
        raise ValueError(
            f"cost_names: the environment has {sizes.constraints} costs and algorithm=cpo keeps "
            f"exactly one; ppo-lagrangian and trpo-lagrangian keep several"
        )
    learner_key, key = jax.random.split(key)
    actions, none = sizes.actions, MultiplierConfig(initial=0.0)
    learner = trust_region.init(
        config.cpo, none, sizes.obs, actions.size, actions.discrete, 1, learner_key
    )
    return State(learner, key)


def update(
    config: CPOConfig, state: State, batch: ppo.Batch, measured: Measured
) -> tuple[State, dict[str, Array]]:
    """One update from real steps."""
    key, sub = jax.random.split(state.key)
    # Per step, which is what the surrogate of the cost is measured in.
    excess = (measured.cost[0] - config.cost_limit) / measured.length
    rows = ppo.prepare(config.cpo.ppo, state.learner, batch)
    half = halves(*batch.reward.shape) if config.doubt else None
    actor, metrics = improve(config.cpo, state.learner.actor, rows, excess, half)
    # For an episode. What the next epoch's cost makes of it tells how far to believe the batch.
    metrics["expected_cost_change"] *= measured.length
    learner = eqx.tree_at(lambda s: s.actor, state.learner, actor)
    learner, critic_metrics = ppo.fit_critics(config.cpo.ppo, learner, rows, sub)
    learner = ppo.observe(learner, batch.obs)
    return State(learner, key), {**metrics, **critic_metrics}


def improve(
    config: TrustRegionConfig,
    actor: Actor,
    rows: ppo.Rows,
    c: Float[Array, ""],
    half: Bool[Array, " N"] | None = None,
) -> tuple[Actor, dict[str, Array]]:
    """The step of `dual.solve`, shrunk until it holds for the surrogates themselves.

    `c` is by how much the cost per step exceeds its limit; the expected change is per step too.
    With `half`, which splits the rows in two, as much more is asked for as is noise.
    """
    region = trust_region.around(config, actor, rows)
    g = jax.grad(lambda p: -region.judge(p).reward)(region.here)
    b = jax.grad(lambda p: region.judge(p).cost[0])(region.here)
    v, w = trust_region.solve(config, region, g), trust_region.solve(config, region, b)
    believed = jnp.array(1.0)
    if half is not None:
        believed = share_of_signal(config, actor, rows, half, b @ w)
    wanted = jnp.where(c > 0, c / believed, c)
    chosen = dual.solve(g @ v, b @ v, b @ w, wanted, config.delta)
    before = region.judge(region.here)

    def accept(judged: Judged) -> Array:
        # While the limit is broken, coming back may well take reward.
        no_worse = (judged.reward >= before.reward) | (c > 0)
        return no_worse & (judged.cost[0] - before.cost[0] <= jnp.maximum(-c, 0.0))

    step = -(chosen.of_v * v + chosen.of_w * w)
    actor, metrics = trust_region.search(config, region, step, accept)
    cases = {"binding": chosen.binding * 1, "recovery": chosen.recovery * 1}
    if half is not None:
        cases["believed"] = believed
    change = region.judge(ravel_pytree(actor)[0]).cost[0] - before.cost[0]
    return actor, {"lambda": chosen.nu, "expected_cost_change": change, **cases, **metrics}


def halves(steps: int, environments: int) -> Bool[Array, " N"]:
    """Which of a batch's N rows are in the first half: of the environments, or of the time."""
    row = jnp.arange(steps * environments)
    if environments == 1:
        return row < steps // 2
    return row % environments < environments // 2


def share_of_signal(
    config: TrustRegionConfig,
    actor: Actor,
    rows: ppo.Rows,
    half: Bool[Array, " N"],
    s: Float[Array, ""],
) -> Float[Array, ""]:
    """How much of s = b'H^-1 b is not noise, at least a twentieth.

    Half the difference of two halves' gradients has no signal, and as much noise as b, their mean.
    """
    weight = jnp.ones(half.shape) if rows.weight is None else rows.weight
    share = weight @ half / weight.sum()
    side = jnp.where(half, 0.5 / share, -0.5 / (1 - share))
    apart = eqx.tree_at(lambda r: r.cost_advantage, rows, rows.cost_advantage * side[:, None])
    region = trust_region.around(config, actor, apart)
    d = jax.grad(lambda p: region.judge(p).cost[0])(region.here)
    noise = d @ trust_region.solve(config, region, d)
    return jnp.clip(1 - noise / jnp.maximum(s, dual.FLAT), 0.05, 1.0)


def epochs(
    config: CPOConfig,
    make_env: Callable[[int, str], Any],
    seeds: list[int],
    saved: Saved | None = None,
) -> Iterator[Epoch]:
    """Train, one epoch at a time: see `model_free.epochs`."""
    remedy = "a smaller cpo.critic_learning_rate or cpo.normalise_observations"
    return model_free.epochs(config, init, update, make_env, seeds, remedy, saved)
