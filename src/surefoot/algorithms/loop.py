"""The training loop that all algorithms share: act, learn, report, checkpoint."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import equinox as eqx
import jax
import numpy as np

from surefoot.algorithms.algorithm import Algorithm, Config
from surefoot.algorithms.collect import Collector
from surefoot.algorithms.experience import Experience, joined, worst_constraint
from surefoot.algorithms.phases import Phases
from surefoot.algorithms.seeds import all_finite
from surefoot.algorithms.trainer import Problem, Trainer
from surefoot.core.arrays import Metrics, Tree
from surefoot.core.policy import Policy
from surefoot.core.snapshot import Saved
from surefoot.envs.base import TaskEnv

Row = dict[str, float]
"""One row of metrics.csv: numbers by column."""
LARGE = 1e9
"""Rewards and costs of an episode beyond which single precision is at its end."""


class TrainingFault(RuntimeError):
    """Training failed in a way that more training cannot mend."""


class Totals(eqx.Module):
    """Counts since the start of a run."""

    steps: int
    """Real steps of each seed."""
    epoch: int
    violations: np.ndarray
    """Steps with a cost, of each seed."""


class Snapshot(eqx.Module):
    """Everything needed to resume training: a tree of arrays, which the next epoch may reuse."""

    trainer: dict[str, Tree]
    totals: Totals
    collector: dict[str, Tree]
    phases: dict[str, float]


@dataclass(frozen=True)
class Epoch:
    """What one epoch leaves behind."""

    number: int
    total: int
    metrics: list[Row]
    """One row per seed."""
    policy: Policy
    """Of all seeds."""
    seconds: dict[str, float]
    """Wall-clock time by phase since the start."""
    snapshot: Snapshot
    warnings: tuple[str, ...] = ()
    """What the user should know about the environments."""


@dataclass
class Training:
    """A run in memory: environments, trainer and totals."""

    problem: Problem
    cost_limits: tuple[float, ...]
    steps: int
    """Real steps requested, of each seed."""
    collector: Collector
    trainer: Trainer
    totals: Totals
    phases: Phases = field(default_factory=Phases)

    def restore(self, saved: Saved) -> None:
        """Continue from a snapshot; a ValueError if it does not fit."""
        try:
            self.totals = saved.like("totals", self.totals)
            self.phases = Phases(saved.part("phases"))
            self.trainer.restore(saved.under("trainer"), self.totals.steps)
            self.collector.restore(saved.part("collector"), self.totals.epoch)
        except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise ValueError(f"the checkpoint does not fit this run: {problem}") from error


def begin(
    algorithm: Algorithm, config: Config, problem: Problem, env: TaskEnv, saved: Saved | None = None
) -> Training:
    """A run at its beginning, or continued from a snapshot."""
    collector = Collector(env, problem.seeds, problem.environments, problem.model)
    totals = Totals(0, 0, np.zeros(len(problem.seeds)))
    trainer = algorithm.trainer(config, problem)
    training = Training(problem, config.cost_limit, config.steps, collector, trainer, totals)
    if saved is not None:
        training.restore(saved)
    return training


def epochs(training: Training) -> Iterator[Epoch]:
    """Train, one epoch at a time; the last one may have fewer rounds than the others."""
    trainer, problem, phases = training.trainer, training.problem, training.phases
    round_size = trainer.round_steps * problem.environments
    left = -(-max(0, training.steps - training.totals.steps) // round_size)
    total = training.totals.epoch + -(-left // trainer.rounds)
    while left:
        rounds = min(trainer.rounds, left)
        left -= rounds
        experience = []
        done = training.totals.steps
        for _ in range(rounds):
            with phases("collect"):
                actor = trainer.actor(done, training.collector.rngs)
                experience.append(
                    training.collector.collect(actor, problem.actions, trainer.round_steps)
                )
            done += round_size
            trainer.learn(experience[-1], done, phases)
        training.totals, rows = _real_metrics(training, joined(experience))
        for name, values in jax.device_get(trainer.end_epoch()).items():
            _add_metric(rows, name, np.asarray(values), training)
        _check_finite(trainer, rows)
        with phases("save"):
            environments = training.collector.snapshot()
        seconds = phases.seconds()
        snapshot = Snapshot(trainer.snapshot(), training.totals, environments, seconds)
        yield Epoch(
            training.totals.epoch, total, rows, trainer.policy(), seconds, snapshot,
            tuple(training.collector.warnings()),
        )  # fmt: skip


def _real_metrics(training: Training, experience: Experience) -> tuple[Totals, list[Row]]:
    """New totals, and a row per seed with what happened in the environments.

    With several constraints, `cost` and `cost_limit` are those of the constraint with the largest
    excess in units of its limit, so `cost <= cost_limit` only if all are within their limits.
    """
    violations = (experience.cost > 0).any(-1).sum((1, 2))
    totals = Totals(
        training.totals.steps + experience.steps,
        training.totals.epoch + 1,
        training.totals.violations + violations,
    )
    limits = np.asarray(training.cost_limits)
    rows = []
    for s, episodes in enumerate(experience.episodes):
        count = len(episodes.reward)
        cost = episodes.mean_cost() if count else np.full(len(limits), np.nan)
        worst = worst_constraint(cost, limits)
        row: Row = {
            "seed": experience.seeds[s],
            "epoch": totals.epoch,
            "steps": int(totals.steps),
            "episodes": count,
            "reward": float(episodes.reward.mean()) if count else float("nan"),
            "cost": float(cost[worst]),
            "cost_limit": float(limits[worst]),
            "violations": int(totals.violations[s]),
        }
        if len(limits) > 1:
            names = training.problem.cost_names
            for column, values in (("cost", cost), ("cost_limit", limits)):
                row |= {f"{column}_{n}": float(x) for n, x in zip(names, values, strict=True)}
        rows.append(row)
    return totals, rows


def _add_metric(rows: list[Row], name: str, values: np.ndarray, training: Training) -> None:
    """Give each seed its value of a metric [S], or [S, k] with one value per constraint.

    Of several constraints the column `name` has the one that `cost` is of, and `name_<constraint>`
    has each.
    """
    names, limits = training.problem.cost_names, np.asarray(training.cost_limits)
    for s, row in enumerate(rows):
        if values.ndim == 1 or len(names) == 1:
            row[name] = values[s].item()
        else:
            cost = np.array([row[f"cost_{c}"] for c in names])
            row[name] = values[s, worst_constraint(cost, limits)].item()
            row |= {f"{name}_{c}": x.item() for c, x in zip(names, values[s], strict=True)}


def _check_finite(trainer: Trainer, rows: list[Row]) -> None:
    """Raise TrainingFault before anything broken is saved."""
    bad: dict[int, list[str]] = {}
    for name, tree in trainer.finite_parts().items():
        for s in np.flatnonzero(~all_finite(tree)):
            bad.setdefault(int(s), []).append(name)
    for s, names in sorted(bad.items()):
        row = rows[s]
        large = [n for n in ("reward", "cost") if abs(row[n]) > LARGE]
        scale = " and ".join(f"{n}s of {row[n]:.1e} per episode" for n in large)
        remedy = f"smaller units: the environment has {scale}" if large else trainer.remedy
        raise TrainingFault(
            f"seed {row['seed']}: {', '.join(names)} became NaN or infinite in epoch "
            f"{row['epoch']}. Try {remedy}"
        )


def mean_metrics(
    parts: Sequence[Metrics], names: tuple[str, ...], seeds: int
) -> dict[str, np.ndarray]:
    """Means over several updates of metrics [S]; NaN where there was none."""
    parts = jax.device_get(parts)
    unknown = np.full(seeds, np.nan)
    return {n: np.mean([part[n] for part in parts], 0) if parts else unknown for n in names}
