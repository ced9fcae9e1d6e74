"""MBPPO-Lagrangian: Algorithm 1 of Jayant & Bhatnagar (NeurIPS 2022), and what goes beyond it.

One epoch: collect real episodes; fit the ensemble to all real steps so far; practise in imagination
(roll out, move the multiplier, improve the policy) for as long as it pays; go back to the world.
All functions are for one seed; `epochs` runs several side by side.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

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
from surefoot.spaces import ActionSpec
from surefoot.world import ensemble as ensembles
from surefoot.world import fitting, trust
from surefoot.world.ensemble import Ensemble, EnsembleConfig
from surefoot.world.imagination import Rollout, imagine
from surefoot.world.knowledge import Knowledge, targets_of


@dataclass(frozen=True)
class MBPPOConfig:
    """MBPPO-Lagrangian. The defaults are the `paper` preset; `presets.py` has the others."""

    steps: int = 450_000
    """Real steps in all."""
    cost_limit: float = 18.0
    """Limit on the undiscounted cost of an episode; the same for each constraint."""
    constrained: bool = True
    """Whether the limit is kept; without, the multiplier stays at 0."""
    episodes: int = 13
    """Real episodes per epoch, collected side by side."""
    model: Literal["ego", "paper", "black-box"] = "paper"
    """What the ensemble predicts: the robot's own motion, the paper's state, or observations."""
    horizon: int = 80
    """Steps of an imagined rollout, H."""
    rollouts: int = 378
    """Imagined rollouts per pass; a multiple of the elites."""
    carry: float = 0.0
    """Share of the rollouts that go on from pass to pass through whole episodes; they tell what an
    episode costs. The others start anew in every pass, which teaches faster."""
    passes: int = 30
    """Most passes of practice per epoch."""
    real_share: float = 0.05
    """Share of real rollouts in the first pass of an epoch."""
    replay_share: float = 0.0
    """Share of the rollouts that start from past real states rather than from resets."""
    beta: float = 0.02
    """The multiplier aims at beta times the limit."""
    anchor: bool = False
    """Judge costs per episode and put them right by the gap seen in the last real batch; without,
    the cost of H imagined steps is held against beta times the limit, as in the paper."""
    gap_memory: float = 0.0
    """Share of the earlier gap between real and imagined cost that is kept."""
    gate: Literal["none", "reward", "lagrangian"] = "reward"
    """What the performance ratio compares; none practises for all passes."""
    pr_threshold: float = 0.66
    """Practice goes on while this share of the elites agrees that it helps."""
    pr_rollouts: int = 64
    """Paired rollouts per elite for the performance ratio."""
    pr_horizon: int = 75
    """Steps of those rollouts."""
    ppo: PPOConfig = field(default_factory=lambda: PPOConfig(clip=0.1, value_targets="return"))
    """The policy's learner."""
    multiplier: MultiplierConfig = field(default_factory=MultiplierConfig)
    """The multiplier's rule."""
    ensemble: EnsembleConfig = field(default_factory=lambda: EnsembleConfig(max_steps=2000))
    """The model of the world."""

    @property
    def carried(self) -> int:
        """How many rollouts are carried from pass to pass."""
        return round(self.carry * self.rollouts)

    def __post_init__(self) -> None:
        for name in ("steps", "episodes", "horizon", "rollouts", "passes", "pr_rollouts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("carry", "real_share", "replay_share", "gap_memory"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 0 and below 1")
        if not self.cost_limit >= 0:
            raise ValueError(f"cost_limit={self.cost_limit} must not be negative")
        if not self.beta > 0:
            raise ValueError(f"beta={self.beta} must be positive")
        if not 0 < self.pr_threshold <= 1:
            raise ValueError(f"pr_threshold={self.pr_threshold} must be above 0 and at most 1")
        if self.rollouts % self.ensemble.elites:
            raise ValueError(
                f"rollouts={self.rollouts} must be a multiple of ensemble.elites="
                f"{self.ensemble.elites}; {-(-self.rollouts // self.ensemble.elites) * self.ensemble.elites} would do"
            )
        for name, choices in (
            ("model", ("ego", "paper", "black-box")), ("gate", ("none", "reward", "lagrangian")),
        ):  # fmt: skip
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r} must be one of {choices}")


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
    gap: trust.Gap
    key: Key[Array, ""]


class Memory(eqx.Module):
    """All real steps so far, as the model learns from them; rows beyond the count are empty."""

    inputs: Float[Array, "C F+A"]
    targets: Float[Array, "C D+b"]
    records: Float[Array, "C R"]
    starts: Float[Array, "M R"]
    """Real initial states, used where the task does not know them."""


class World(eqx.Module):
    """What stays the same during training; static for the compiler."""

    knowledge: Knowledge = eqx.field(static=True)
    actions: ActionSpec = eqx.field(static=True)
    episode_steps: int = eqx.field(static=True)


def init(config: MBPPOConfig, world: World, capacity: int, key: Key[Array, ""]) -> tuple[State, Memory]:
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
    memory = Memory(
        jnp.zeros((capacity, width)),
        jnp.zeros((capacity, know.target_size + know.binary_size)),
        jnp.zeros((capacity if config.replay_share else 1, know.record_size)),
        jnp.zeros((1, know.record_size)),
    )
    empty = know.revive(key, jnp.zeros((config.rollouts, know.record_size)))
    dreams = Dreams(empty, jnp.full(config.rollouts, -1, jnp.int32))
    return State(learner, ensemble, dreams, trust.Gap.none(k), key), memory


def remember(
    config: MBPPOConfig, world: World, memory: Memory, rows: dict[str, Array], count: Array
) -> Memory:
    """Add real steps [N, …] at row `count`."""
    know = world.knowledge
    inputs = jnp.concatenate(
        [jax.vmap(know.record_features)(rows["before"]), world.actions.encode(rows["action"])], -1
    )
    targets = targets_of(
        know, rows["before"], rows["after"], rows["reward"], rows["cost"], rows["terminated"]
    )
    put = lambda buffer, new: jax.lax.dynamic_update_slice_in_dim(buffer, new, count, 0)
    records = put(memory.records, rows["before"]) if config.replay_share else memory.records
    return Memory(
        put(memory.inputs, inputs), put(memory.targets, targets), records, rows["starts"]
    )


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
    config: MBPPOConfig, world: World, memory: Memory, count: Array, n: int, key: Key[Array, ""]
) -> Any:
    """Line 6: s0 ~ mu, and a share of past real states."""
    fresh_key, old_key, revive_key = jax.random.split(key, 3)
    old = round(config.replay_share * n)
    fresh = world.knowledge.initial_records(fresh_key, n - old)
    if fresh is None:
        index = jax.random.randint(fresh_key, (n - old,), 0, memory.starts.shape[0])
        fresh = memory.starts[index]
    if old:
        index = jax.random.randint(old_key, (old,), 0, count)
        fresh = jnp.concatenate([fresh, memory.records[index]])
    return world.knowledge.revive(revive_key, fresh)


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
    memory: Memory,
    count: Array,
    real: dict[str, Array],
    active: Bool[Array, ""],
    first: Bool[Array, ""],
) -> tuple[State, Bool[Array, ""], dict[str, Array]]:
    """Lines 6 to 16: one pass. Returns the state, whether another pass is worth it, and metrics."""
    key, start_key, age_key, roll_key, update_key, trust_key = jax.random.split(state.key, 6)
    old = state.learner
    fresh = starting_states(config, world, memory, count, config.rollouts, start_key)
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
    learner, metrics = ppo.update(config.ppo, learner, batch, lam, update_key)
    learner = ppo.observe(learner, batch.obs)
    # Lines 16 and 5: is it better in enough of the elites? If not, nothing of the pass is kept.
    helped, pr = jnp.array(True), jnp.array(jnp.nan)
    if config.gate != "none":
        pr = improvement(config, world, state, memory, count, learner, lam, trust_key)
        helped = pr >= config.pr_threshold - 1e-6
    keep = active & helped
    choose = lambda a, b: jax.tree.map(lambda x, y: jnp.where(keep, x, y), a, b)
    moved = State(choose(learner, old), state.ensemble, dreams, gap, key)
    # A seed that has stopped stays as it is while its neighbours go on.
    state = jax.tree.map(lambda x, y: jnp.where(active, x, y), moved, state)
    metrics |= {
        "imagined_reward": rollout.returns()[judged].mean() * per_episode,
        "imagined_cost": imagined if config.anchor else imagined * per_episode,
        "cost_estimate": estimate,
        "lambda": lam,
        "performance_ratio": pr,
    }
    return state, keep, metrics


def to_batch(rollout: Rollout, real: dict[str, Array], first: Bool[Array, ""]) -> ppo.Batch:
    """Imagined rollouts as the learner takes them, beside real ones that count in the first pass."""
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
        weight=jnp.full((horizon, width), first * 1.0),
    )
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), batch, segments)


def improvement(
    config: MBPPOConfig,
    world: World,
    state: State,
    memory: Memory,
    count: Array,
    new: ppo.Learner,
    lam: Float[Array, " k"],
    key: Key[Array, ""],
) -> Float[Array, ""]:
    """The performance ratio of `new` over the present policy (eq. pr), with common luck."""
    state_key, luck = jax.random.split(key)
    states = starting_states(config, world, memory, count, config.pr_rollouts, state_key)
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
    make_knowledge: Callable[[Any], Knowledge],
    seeds: list[int],
) -> Iterator[Epoch]:
    """Train, one epoch at a time. `make_env(n, model)` makes n environments."""
    env = make_env(len(seeds) * config.episodes, config.model)
    from surefoot.spaces import action_spec

    episode_steps = env.max_episode_steps or 1000
    world = World(make_knowledge(env), action_spec(env.single_action_space), episode_steps)
    collector = Collector(env, seeds, config.episodes, world.knowledge)
    batch = config.episodes * episode_steps
    count_epochs = -(-config.steps // batch)
    capacity = count_epochs * batch
    state, memory = over_seeds(lambda key: init(config, world, capacity, key), len(seeds))(
        seed_keys(seeds)
    )
    adding = over_seeds(
        lambda memory, rows, count: remember(config, world, memory, rows, count),
        len(seeds), shared=(2,), donate=(0,),
    )  # fmt: skip
    fitting_ = over_seeds(
        lambda state, memory, count: fit_world(config, state, memory, count), len(seeds), shared=(2,)
    )
    passing = over_seeds(
        lambda state, memory, count, real, active, first: practise(
            config, world, state, memory, count, real, active, first
        ),
        len(seeds), shared=(2, 5),
    )  # fmt: skip
    phases = Phases()
    totals = {"violations": np.zeros(len(seeds)), "steps": 0}
    for number in range(count_epochs):
        with phases("collect"):
            policy = numpy_policy(state.learner, world.actions)
            experience = collector.collect(policy, world.actions, episode_steps)
        count = jnp.asarray(number * batch, jnp.int32)
        with phases("fit"):
            memory = adding(memory, _rows(experience, collector, world), count)
            count = count + batch
            state, fit = jax.block_until_ready(fitting_(state, memory, count))
        with phases("practise"):
            real = _real(config, experience, seeds, episode_steps)
            active, passes = jnp.ones(len(seeds), bool), np.zeros(len(seeds), int)
            first = last = None
            for i in range(config.passes):
                before = active
                state, active, now = passing(
                    state, memory, count, real, active, jnp.asarray(i == 0)
                )
                # Of seeds that have stopped, the last pass they took part in is reported.
                last = now if last is None else _where(before, now, last)
                first = last if first is None else first
                if config.gate != "none":
                    passes += np.asarray(active)
                    if not np.asarray(active).any():
                        break
                else:
                    passes += 1
            jax.block_until_ready(state)
        metrics = real_metrics(experience, totals, config.cost_limit)
        first, last = jax.device_get(first), jax.device_get(last)
        model = np.asarray(fit.holdout_mse).mean(-1)
        gap = np.asarray(jax.vmap(trust.Gap.value)(state.gap))
        for s, row in enumerate(metrics):
            row |= {
                "imagined_cost_before": float(first["imagined_cost"][s].sum()),
                "imagined_reward": float(last["imagined_reward"][s]),
                "imagined_cost": float(last["imagined_cost"][s].sum()),
                "lambda": float(last["lambda"][s].sum()),
                "model_error": float(model[s]),
                "model_epochs": int(fit.epochs[s]),
                "passes": int(passes[s]),
                "performance_ratio": float(last["performance_ratio"][s]),
                "kl": float(last["kl"][s]),
                "entropy": float(last["entropy"][s]),
                "gap": float(gap[s].sum()),
            }
            row["parted"] = int(
                trust.parted(
                    real["cost"][s], real["cost_error"][s], first["imagined_cost"][s],
                    config.cost_limit,
                ).any()
            )  # fmt: skip
        _check(state, metrics, fit)
        yield Epoch(number + 1, count_epochs, metrics, state, numpy_policy(state.learner, world.actions), phases.seconds())


def _where(condition: Bool[Array, " S"], new: Any, old: Any) -> Any:
    """Seed by seed, one tree or the other."""
    pick = lambda a, b: jnp.where(condition.reshape(-1, *[1] * (a.ndim - 1)), a, b)
    return jax.tree.map(pick, new, old)


def _rows(experience: Experience, collector: Collector, world: World) -> dict[str, np.ndarray]:
    """Real steps flattened to [S, N, …] for the memory."""
    flat = lambda x: x.reshape(x.shape[0], -1, *x.shape[3:])
    before = experience.obs if experience.before is None else experience.before
    after = experience.next_obs if experience.after is None else experience.after
    starts = collector.starts().astype(np.float32)
    if experience.before is not None:  # the task knows its initial states
        starts = np.zeros((len(starts), 1, before.shape[-1]), np.float32)
    return {
        "before": flat(before),
        "after": flat(after),
        "action": flat(experience.action),
        "reward": flat(experience.reward),
        "cost": flat(experience.cost),
        "terminated": flat(experience.terminated),
        "starts": starts,
    }


def _real(
    config: MBPPOConfig, experience: Experience, seeds: list[int], episode_steps: int
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
    steps, width = experience.reward.shape[1:]
    if not wanted or steps < horizon:
        return out
    parts: list[tuple] = []
    for s, seed in enumerate(seeds):
        rng = np.random.default_rng([seed, 2, int(experience.reward[s].sum() * 1e3) & 0xFFFF])
        # Segments must not run over the end of an episode.
        ends = np.cumsum(np.pad(experience.ended[s], ((1, 0), (0, 0))), 0)
        clear = ends[horizon - 1 : -1] - ends[: steps - horizon + 1] == 0
        t0, column = np.nonzero(clear)
        if len(t0) == 0:
            return out
        pick = rng.integers(0, len(t0), wanted)
        t = t0[pick][None] + np.arange(horizon)[:, None]
        c = np.broadcast_to(column[pick][None], t.shape)
        take = lambda x, t=t, c=c, s=s: x[s][t, c]
        parts.append(
            (take(experience.obs), take(experience.action), take(experience.reward),
             take(experience.cost), take(experience.next_obs)[-1], take(experience.terminated))
        )  # fmt: skip
    names = ("obs", "action", "reward", "cost", "last", "terminated")
    for i, name in enumerate(names):
        out[f"segment_{name}"] = np.stack([p[i] for p in parts])
    return out


def _check(state: State, metrics: list[dict], fit: fitting.FitMetrics) -> None:
    """Stop before anything broken is written down."""
    sound = all_finite(state.learner)
    for s, row in enumerate(metrics):
        bad = [k for k in ("imagined_reward", "imagined_cost", "lambda", "kl") if not np.isfinite(row[k])]
        if not bool(np.asarray(fit.finite)[s]):
            bad.append("model fit")
        if not sound[s]:
            bad.append("policy or critics")
        if bad:
            raise TrainingFault(
                f"seed {row['seed']}: {', '.join(bad)} became NaN or infinite in epoch "
                f"{row['epoch']}. Try a smaller ensemble.learning_rate or ppo.actor_learning_rate, "
                f"a shorter horizon, or more real episodes per epoch"
            )
