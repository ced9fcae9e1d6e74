"""MBPPO-Lagrangian for all seeds: the host's part of Algorithm 1, and the `Algorithm` value."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from surefoot.algorithms import careful
from surefoot.algorithms import mbppo_lagrangian as mbppo
from surefoot.algorithms.actors import draw_from
from surefoot.algorithms.algorithm import Algorithm, Preset
from surefoot.algorithms.collect import Actor, Generators
from surefoot.algorithms.experience import Experience, joined
from surefoot.algorithms.mbppo_config import DEFAULT, MBPPOConfig
from surefoot.algorithms.mbppo_lagrangian import Pace, Past, State
from surefoot.algorithms.model_data import ModelData, fit_is_finite
from surefoot.algorithms.on_policy import numpy_policy
from surefoot.algorithms.phases import Phases
from surefoot.algorithms.real_batch import episode_statistics, real_batch
from surefoot.algorithms.seeds import over_seeds, seed_keys
from surefoot.algorithms.trainer import Planning, Problem
from surefoot.core.arrays import Metrics, Tree, choose
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved
from surefoot.world import trust
from surefoot.world.trust import CostRatio


class MBPPOTrainer:
    """See `trainer.Trainer`."""

    remedy = (
        "a smaller ensemble.learning_rate or ppo.actor_learning_rate, a shorter horizon, or more "
        "real episodes per epoch"
    )

    def __init__(self, config: MBPPOConfig, problem: Problem):
        self.config, self.problem = config, problem
        self._filter = careful.Filter(config.filter, problem) if config.careful else None
        steps = problem.episode_steps
        self.round_steps = careful.round_steps(steps) if config.careful else steps
        self.rounds = steps // self.round_steps
        self._batch = batch = config.episodes * steps
        self._epochs = -(-config.steps // batch)
        self._parts: list[Experience] = []
        many = len(problem.seeds)
        begin = over_seeds(lambda key: mbppo.init(config, problem, key), many)
        self.state: State = begin(seed_keys(problem.seeds))
        self._data = ModelData(
            config.ensemble, problem, self._epochs * batch, bool(config.replayed or config.short)
        )
        self.datasets = {"dataset": self._data.dataset}
        # With a performance ratio, seeds need very different numbers of passes: run in turn, the
        # device works only for those that continue.
        self._pass = over_seeds(
            lambda *args: mbppo.practise_if_active(config, problem, *args),
            many,
            shared=(4, 5),
            in_turn=config.gate != "none",
            whole_loops=True,
        )
        self._scale = over_seeds(partial(mbppo.scale_observations, problem), many)
        self._longest = mbppo.horizon(config, problem)
        self._reach = np.full(many, self._longest, np.float32)
        # What the last practice imagined for the policy that the next epoch tries.
        self._promised_reward = np.full(many, np.nan, np.float32)
        self._promised_cost = np.full((many, problem.constraints), np.nan, np.float32)
        self._best_reward = np.full(many, np.nan, np.float32)
        # Least and largest return so far: while all are equal, there is nothing to learn from.
        self._returns = np.tile(np.array([np.inf, -np.inf], np.float32), (many, 1))
        self._compiled: Future | None = None

    def actor(self, done: int, rngs: Generators) -> Actor:
        """Line 3: the present policy, through the safety filter if training is careful."""
        correlation = None
        if self.config.noise_correlation:
            explores = self._returns[:, 0] >= self._returns[:, 1]
            correlation = explores * self.config.noise_correlation
        policy = draw_from(
            self.policy(), rngs, self.config.episodes, self.round_steps, correlation=correlation
        )
        if self._filter is None:
            return policy
        return self._filter.actor(self.planning(), policy, done, done % self._batch == 0)

    def learn(self, experience: Experience, done: int, phases: Phases) -> None:
        """Lines 4 to 16: fit the model, then practise."""
        config, many = self.config, len(self.problem.seeds)
        number = -(-done // self._batch) - 1
        self._parts.append(experience)
        with phases("fit"):
            self._data.add(experience)
            if self._filter is not None:
                count = self._data.dataset.count
                if done % self._batch and done < config.steps:  # within an epoch
                    if self._filter.fit_is_due(count):
                        self._filter.fitted(count)
                        self.state, _ = self._data.fit(self.state)
                    return
                self._filter.fitted(count)
            past = self._past(experience)
            experience, self._parts = joined(self._parts), []
            for seen, episodes in zip(self._returns, experience.episodes, strict=True):
                low, high = seen
                seen[:] = episodes.reward.min(initial=low), episodes.reward.max(initial=high)
            self._episodes = episode_statistics(self.problem, experience)
            reward, best = self._episodes.reward, self._best_reward
            rising = trust.well_above(reward, best)
            self._best_reward = np.fmax(reward, best)
            self._real = real_batch(
                config, self.problem, experience, self._episodes, rising, number,
                self.state.learner.actor,
            )  # fmt: skip
            pace = mbppo.pace(config, number / max(1, self._epochs - 1))
            if self._compiled is None:  # compile a pass while the model fits
                self._compiled = _compile_aside(
                    self._pass, jnp.ones(many, bool), self.state, past, self._real,
                    jnp.array(True), pace, self._steps_within_reach(),
                )  # fmt: skip
            self.state, self._fitted = self._data.fit(self.state)
            if config.ppo.normalise_observations:
                self.state = self._scale(self.state)
                # The same policy, for observations of this scale.
                self._real = replace(self._real, actor=self.state.learner.actor)
        with phases("practise"):
            self._practise(self._compiled.result(), past, pace)

    def _past(self, experience: Experience) -> Past:
        """Real states to start from, with a leading axis of seeds."""
        many, size = len(self.problem.seeds), self.problem.task_model.record_size
        nothing = jnp.zeros((many, 1, size))
        starts = nothing if experience.starts is None else jnp.asarray(experience.starts)
        count = jnp.full(many, self._data.dataset.count, jnp.int32)
        return Past(starts, self._data.dataset.rows.get("records", nothing), count)

    def _practise(
        self, one_pass: Callable[..., tuple[State, Array, Metrics]], past: Past, pace: Pace
    ) -> None:
        """Line 5: passes until the performance ratio stops every seed, or the maximum."""
        many, config = len(self.problem.seeds), self.config
        active, self._passes = jnp.ones(many, bool), np.zeros(many, int)
        state, first, last, reach = self.state, None, None, self._steps_within_reach()
        for i in range(config.passes):
            before = active
            state, active, now = one_pass(
                active, state, past, self._real, jnp.array(i == 0), pace, reach
            )
            # For seeds that have stopped, the last pass they took part in is reported.
            last = now if last is None else choose(before, now, last)
            first = last if first is None else first
            if config.gate == "none":
                self._passes += 1  # without waiting for the device
                continue
            self._passes += np.asarray(active)
            if not np.asarray(active).any():
                break
        self.state = jax.block_until_ready(state)
        self._first, self._last = jax.device_get((first, last))

    def _steps_within_reach(self) -> Array:
        return jnp.asarray(np.round(self._reach), jnp.int32)

    def end_epoch(self) -> dict[str, Array | np.ndarray]:
        self._data.dataset.end_epoch()
        first, last, seen = self._first, self._last, self._episodes
        limit = jnp.asarray(self.config.cost_limit, jnp.float32)
        filtered: dict[str, np.ndarray] = {}
        if self._filter is not None:
            filtered["interventions"] = self._filter.interventions(seen.steps)
        promised_reward, promised_cost = self._promised_reward, self._promised_cost
        # A fit explains the steps that it has just seen. Whether practice exploits the model shows
        # in what it had imagined for this policy before.
        now = self._mismatched(first["imagined_reward"], first["imagined_cost"])
        before = self._mismatched(promised_reward, promised_cost)
        reward_mismatch, cost_mismatch = now[0] | before[0], now[1] | before[1]
        reach = np.round(self._reach)
        if self.config.adapt_practice:
            # Broken promises do not count: early ones are many, and lead to where data are missing.
            self._reach = trust.next_reach(self._reach, now[0] | now[1], self._longest)
        ratio = jax.vmap(partial(CostRatio.value, limit=limit))(self.state.ratio)
        self._promised_reward = np.asarray(last["imagined_reward"])
        self._promised_cost = np.asarray(last["imagined_cost"] * ratio)
        share = {} if self.config.within is None else {"imagined_within": last["imagined_within"]}
        return {
            **share,
            **filtered,
            "promised_reward": promised_reward,
            "promised_cost": promised_cost,
            "imagined_reward_before": first["imagined_reward"],
            "imagined_cost_before": first["imagined_cost"],
            "imagined_reward": last["imagined_reward"],
            "imagined_cost": last["imagined_cost"],
            "lambda": last["lambda"],
            "waiting": last["waiting"],
            "model_error": np.asarray(self._fitted.holdout_mse).mean(-1),
            "model_epochs": np.asarray(self._fitted.epochs),
            "passes": self._passes,
            "reach": reach,
            "performance_ratio": last["performance_ratio"],
            "shift": last["shift"],
            "kl": last["kl"],
            "actor_steps": last["actor_steps"],
            "entropy": last["entropy"],
            "cost_ratio": ratio,
            "cost_mismatch": cost_mismatch.astype(int),
            "reward_mismatch": reward_mismatch.astype(int),
        }

    def _mismatched(self, reward: np.ndarray, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which seeds' real reward, and which seeds' real costs, differ from these; NaN never."""
        seen, limit = self._episodes, np.asarray(self.config.cost_limit, np.float32)
        larger = np.maximum(np.abs(seen.reward), np.abs(reward))
        rewards = trust.mismatched(seen.reward, seen.reward_error, reward, larger)
        costs = trust.mismatched(seen.cost, seen.cost_error, cost, limit)
        if self._filter is not None:
            # The filter lowers cost and reward: only a cost above the imagined one is a mistake.
            rewards, costs = np.zeros(len(seen.reward), bool), costs & (seen.cost > cost)
        return np.asarray(rewards), np.any(costs, axis=-1)

    def finite_parts(self) -> dict[str, Tree]:
        names = ("imagined_reward", "imagined_cost", "kl")
        return {
            **{name: self._last[name] for name in names},
            "the model's fit": fit_is_finite(self._fitted),
            "policy or critics": self.state.learner,
        }

    def policy(self) -> Policy:
        return numpy_policy(self.state.learner, self.problem.actions)

    def planning(self) -> Planning:
        return Planning(
            self.state.ensemble,
            self.state.learner,
            lambda learner, obs, key: learner.sample(obs, key),
            lambda learner, obs, key: learner.mode(obs),
            lambda learner, obs, key: learner.values(learner.scaled(obs))[..., 0],
            self.config.filter if self.config.careful else None,
            self.config.horizon,
        )

    def snapshot(self) -> dict[str, Tree]:
        dataset = self._data.dataset.snapshot()
        return {
            "state": self.state,
            "reach": self._reach,
            "best_reward": self._best_reward,
            "promised_reward": self._promised_reward,
            "promised_cost": self._promised_cost,
            "returns": self._returns,
            "dataset": dataset,
        }

    def restore(self, saved: Saved, steps: int, data: bool = True) -> None:
        self.state = saved.like("state", self.state)
        if data:
            self._reach = saved.like("reach", self._reach)
            self._best_reward = saved.like("best_reward", self._best_reward)
            self._promised_reward = saved.like("promised_reward", self._promised_reward)
            self._promised_cost = saved.like("promised_cost", self._promised_cost)
            self._returns = saved.like("returns", self._returns)
            self._data.dataset.restore(saved.part("dataset"), steps)
        if self._filter is not None:
            self._filter.fitted(self._data.dataset.count)


def _compile_aside(jitted: jax.stages.Wrapped, *args: Tree) -> Future:
    """Compile a function for such arguments in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(lambda: jitted.lower(*args).compile())
    pool.shutdown(wait=False)
    return future


def _warning(row: Mapping[str, float]) -> str | None:
    wrong = [name for name in ("reward", "cost") if row[f"{name}_mismatch"]]
    if not wrong:
        return None
    compared = ", ".join(
        f"real {name} {_digits(row[name])}, imagined {_digits(row[f'imagined_{name}_before'])}"
        f"{_before_trial(row[f'promised_{name}'])}"
        for name in wrong
    )
    return f"{compared} for the same policy: the model misjudges the {' and the '.join(wrong)}"


def _before_trial(promised: float) -> str:
    return "" if promised != promised else f" ({_digits(promised)} before it was tried)"


def _digits(value: float) -> str:
    """One digit after the point, and more of small numbers."""
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _imagined(row: Mapping[str, float]) -> str:
    """Reward and cost, and with a target for it the share of episodes within the limit."""
    share = row["imagined_within"]
    text = f"{row['imagined_reward']:.1f}/{row['imagined_cost']:.1f}"
    return text if share != share else f"{text} {share:.0%} within"


def _passes(row: Mapping[str, float]) -> str:
    """Passes of practice, and the share of the steps at which the safety filter stepped in."""
    share = row["interventions"]
    return f"{row['passes']:.0f}" + ("" if share != share else f"  filter {share:.1%}")


def _reach(row: Mapping[str, float]) -> str:
    """Steps from real states that are trusted, and with a trust region how far practice went."""
    shift = row["shift"]
    return f"{row['reach']:.0f}" + ("" if shift != shift else f"  shift {shift:.2f}")


def _summary(config: MBPPOConfig) -> str:
    model = config.ensemble
    return (
        f"{config.model} model of {model.members} networks {'-'.join(map(str, model.hidden))}; "
        f"each epoch {config.episodes} real episodes, then up to {config.passes} passes of "
        f"{config.rollouts} rollouts of up to {config.horizon} steps"
    )


ALGORITHM = Algorithm(
    name="mbppo-lagrangian",
    title="MBPPO-Lagrangian",
    config=MBPPOConfig,
    trainer=MBPPOTrainer,
    environments=lambda config, episode_steps: config.episodes,
    presets={"default": DEFAULT, "paper": Preset()},
    uses_model=True,
    filter="filter",
    keeps_limit=lambda config: config.constrained,
    columns={
        "imagined": _imagined,
        "lambda": lambda row: f"{row['lambda']:.3f}{' waits' if row['waiting'] else ''}",
        "model error": "{model_error:.4f}",
        "passes": _passes,
        "reach": _reach,
    },
    acts=lambda config: "filter" if config.careful else None,
    summary=_summary,
    warning=_warning,
)
