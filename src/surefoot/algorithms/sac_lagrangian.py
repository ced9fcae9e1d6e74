"""SAC-Lagrangian: off-policy learning under a limit, with many updates per real step.

One round: a few real steps; update the multiplier if an episode has ended; then many updates of
critics, policy and temperature on batches of the replay buffer. No model is learned, so nothing is
assumed of the environment but a Box of actions.
"""

from dataclasses import dataclass, field, replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from surefoot.algorithms import off_policy
from surefoot.algorithms.algorithm import Algorithm, CostLimit, Overrides, Preset, Shape, Steps
from surefoot.algorithms.experience import Experience
from surefoot.algorithms.off_policy import OffPolicy, OffPolicyConfig, Updates, squashed_policy
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Flag, Index, Metrics, RandomKey, Scalar
from surefoot.core.config import Count, NonNegativeInt, Positive, PositiveShare, Share
from surefoot.core.policy import Policy
from surefoot.learn import multiplier, replay, sac_lagrangian
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.replay import CostTransitions
from surefoot.learn.sac_lagrangian import Learner, SACLagrangianLearnerConfig

CONTROL_STEPS = 1_000
"""Real steps, at the full learning rate, for which the multiplier's integral gain and the memory of
costs are meant. A policy that learns at half of the rate takes twice as many."""
SMALL = 16
"""Numbers in observation and action up to which few real steps suffice."""
FEWEST_EPISODES = 100
METRICS = (*off_policy.METRICS, "lambda")


@dataclass(frozen=True)
class SACLagrangianConfig(OffPolicyConfig):
    """SAC-Lagrangian with many updates per step."""

    steps: Steps = 100_000
    """Real steps in all."""
    cost_limit: CostLimit = ()
    """Limit on the undiscounted cost of an episode, one per constraint."""
    constrained: bool = True
    """Whether to keep the limit; otherwise costs have no price."""
    beta: Positive = 0.8
    """The multiplier aims at beta times the limit."""
    cost_memory: Share = 0.2
    """Weight of what is 1,000 steps old in the cost that the multiplier follows. At a lower
    learning rate older costs count as much."""
    steps_per_epoch: Steps = 2_000
    """Real steps per epoch."""
    environments: Count = 1
    """Environments stepped together."""
    random_steps: NonNegativeInt = 2_000
    """Real steps with random actions at the start, without updates."""
    updates: Count = 200
    """Updates after each round."""
    final_rate: PositiveShare = 0.2
    """Share of the learning rate that is left in the last epoch; it falls linearly."""
    observation: str = "reference"
    """Observation that the policy sees, if the task has several."""
    sac: SACLagrangianLearnerConfig = field(default_factory=SACLagrangianLearnerConfig)
    """The learner of policy and values."""
    multiplier: MultiplierConfig = field(
        default_factory=lambda: MultiplierConfig(
            kind="log-pi", initial=0.25, proportional_gain=0.7, integral_gain=0.4
        )
    )
    """The multiplier's rule. It is updated when an episode has ended. The integral gain of log-pi
    is for 1,000 real steps at the full learning rate, because a policy learns by steps and not by
    episodes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.updates % self.sac.policy_every:
            near = -(-self.updates // self.sac.policy_every) * self.sac.policy_every
            raise ValueError(
                f"updates={self.updates} must be a multiple of "
                f"sac.policy_every={self.sac.policy_every}, such as {near}"
            )


class State(eqx.Module):
    """Everything that learns."""

    learner: Learner
    cost: Float[Array, " k"]
    """Mean cost of the latest episodes; NaN before the first."""
    priced: Flag
    """Whether costs have a price: from the first time that one is above what is aimed at."""
    waited: Index
    """Real steps since an episode ended."""
    counted: Index
    """Rows added to the replay buffer that the scales of observations, rewards and costs count."""
    key: RandomKey


def init(config: SACLagrangianConfig, problem: Problem, key: RandomKey) -> State:
    """A new policy, new critics and the initial multipliers."""
    learner_key, key = jax.random.split(key)
    k = problem.constraints
    learner = sac_lagrangian.init(
        config.sac, config.multiplier, problem.observation_size, problem.actions, k, learner_key
    )
    zero = jnp.array(0)
    return State(learner, jnp.full(k, jnp.nan), jnp.array(False), zero, zero, key)


def improve(
    config: SACLagrangianConfig,
    state: State,
    rows: CostTransitions,
    added: Index,
    seen: Float[Array, " k"],
    share: Scalar,
) -> tuple[State, Metrics]:
    """The multiplier and the updates after a round, `share` of the way through training.

    So many rows were `added` to the replay buffer in all. `seen` is the mean cost of the episodes
    that ended in the round; NaN if none did.
    """
    learner = sac_lagrangian.observe(state.learner, rows, state.counted, added)
    speed, entropy = pace(config, rows.action.shape[-1], share)
    state = replace(state, learner=learner, counted=added)
    state, lam = follow_costs(config, state, seen, speed)

    def step(learner: Learner, inputs: tuple[Index, RandomKey]) -> tuple[Learner, Metrics]:
        number, key = inputs
        draw_key, update_key = jax.random.split(key)
        batch = replay.draw(rows, added, config.sac.batch_size, draw_key)
        return sac_lagrangian.update(
            config.sac, learner, batch, lam, number, update_key, speed, entropy
        )

    key, sub = jax.random.split(state.key)
    numbers, keys = jnp.arange(config.updates), jax.random.split(sub, config.updates)
    learner, metrics = jax.lax.scan(step, state.learner, (numbers, keys))
    metrics = jax.tree.map(jnp.mean, metrics)
    for name in ("q", "entropy", "temperature"):
        metrics[name] *= config.sac.policy_every
    return replace(state, learner=learner, key=key), {**metrics, "lambda": lam}


def follow_costs(
    config: SACLagrangianConfig, state: State, seen: Float[Array, " k"], speed: Scalar
) -> tuple[State, Float[Array, " k"]]:
    """The state after a round in which episodes of mean cost `seen` ended, and the price of costs.

    `speed` is the factor on the learning rate.

    The multiplier moves if an episode has ended and costs have a price. That begins when their
    mean is first above what is aimed at: until then nothing is known of how much they weigh.
    """
    ended, waited = ~jnp.isnan(seen).any(), state.waited + config.update_every
    passed = speed * waited / CONTROL_STEPS
    limit = config.beta * jnp.asarray(config.cost_limit, jnp.float32)
    # A limit of 0 is broken by whatever is left of an old cost.
    forget = jnp.isnan(state.cost) | (limit == 0)
    memory = jnp.where(forget, 0.0, config.cost_memory**passed)
    mean = memory * jnp.nan_to_num(state.cost) + (1 - memory) * seen
    cost = jnp.where(ended, mean, state.cost)
    state = replace(state, cost=cost, waited=jnp.where(ended, 0, waited))
    if not config.constrained:
        return state, jnp.zeros_like(cost)
    learner = state.learner
    priced = state.priced | (ended & jnp.any(cost > limit) & (learner.spread[0] > 0))
    # What was measured over many steps is still one measurement.
    rate, before = jnp.minimum(passed, 1.0), learner.multiplier
    moved = multiplier.update(config.multiplier, before, cost, limit, learner.scales(), rate)
    moved = jax.tree.map(lambda new, old: jnp.where(ended & priced, new, old), moved, before)
    learner = eqx.tree_at(lambda s: s.multiplier, learner, moved)
    lam = jnp.where(priced, multiplier.value(config.multiplier, moved), 0.0)
    return replace(state, learner=learner, priced=priced), lam


def pace(config: SACLagrangianConfig, actions: int, share: Scalar) -> tuple[Scalar, Scalar]:
    """Factor on the learning rate, and target of the entropy, which falls in the second half."""
    first, last = config.sac.first_entropy, config.sac.final_entropy
    entropy = first + jnp.maximum(2 * share - 1, 0) * (last - first)
    return 1 - (1 - config.final_rate) * share, actions * entropy


def trainer(config: SACLagrangianConfig, problem: Problem) -> OffPolicy[State]:
    """SAC-Lagrangian at work on all seeds."""

    def given(experience: Experience, done: int) -> tuple[np.ndarray, np.ndarray]:
        share = np.full(len(problem.seeds), min(1.0, done / config.steps), np.float32)
        return episode_cost(experience), share

    def policy_of(state: State) -> Policy:
        learner = state.learner
        return squashed_policy(learner.networks.actor, problem.actions, learner.normalizer)

    def average_of(state: State) -> Policy:
        learner = state.learner
        return squashed_policy(learner.average, problem.actions, learner.normalizer)

    return OffPolicy(
        config,
        problem,
        init=lambda key: init(config, problem, key),
        updates=Updates(config, problem, partial(improve, config), CostTransitions, METRICS),
        policy_of=policy_of,
        returned=average_of,
        remedy="a smaller sac.learning_rate or fewer updates",
        given=given,
    )


def episode_cost(experience: Experience) -> np.ndarray:
    """Mean cost [S, k] of the episodes that ended; NaN where none did."""
    nothing = np.full(experience.cost.shape[-1], np.nan)
    means = [e.mean_cost() if len(e.cost) else nothing for e in experience.episodes]
    return np.stack(means).astype(np.float32)


def fit_to(shape: Shape, device: str) -> Overrides:
    """Settings for an environment of which nothing is known."""
    if shape.observation_size + shape.action_size > SMALL:
        return {}
    steps = min(100_000, max(20_000, FEWEST_EPISODES * shape.episode_steps))
    return {"steps": steps, "random_steps": 1_000, "steps_per_epoch": 1_000}


ALGORITHM = Algorithm(
    name="sac-lagrangian",
    title="SAC-Lagrangian",
    config=SACLagrangianConfig,
    trainer=trainer,
    environments=lambda config, episode_steps: config.environments,
    presets={"default": Preset(black_box=fit_to)},
    columns={"lambda": "{lambda:.3f}", "temperature": "{temperature:.3f}"},
    keeps_limit=lambda config: config.constrained,
)
