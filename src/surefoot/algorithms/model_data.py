"""Real steps as a model learns from them, and fits of the ensemble to them, for all seeds."""

from typing import Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from surefoot.algorithms.dataset import Dataset
from surefoot.algorithms.experience import Experience
from surefoot.algorithms.seeds import flatten_steps, over_seeds
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import Index, RandomKey
from surefoot.world import ensemble as ensembles
from surefoot.world import fitting
from surefoot.world.ensemble import Ensemble, EnsembleConfig
from surefoot.world.fitting import FitMetrics
from surefoot.world.model import training_rows


class ModelState(Protocol):
    """The state of an algorithm that learns a model."""

    ensemble: Ensemble
    key: RandomKey


S = TypeVar("S", bound=ModelState)


def new_ensemble(config: EnsembleConfig, problem: Problem, key: RandomKey) -> Ensemble:
    """An untrained ensemble for a problem's model."""
    model = problem.task_model
    width = model.feature_size + problem.actions.size
    return ensembles.init(config, width, model.target_size, model.binary_size, key)


class ModelData:
    """The dataset of all real steps, as inputs and targets of the model."""

    def __init__(
        self, config: EnsembleConfig, problem: Problem, capacity: int, with_records: bool = False
    ):
        """`with_records` also stores the records before each step, as `records`."""
        model, actions, many = problem.task_model, problem.actions, len(problem.seeds)
        sizes = {
            "inputs": model.feature_size + actions.size,
            "targets": model.target_size + model.binary_size,
            **({"records": model.record_size} if with_records else {}),
        }
        row = {name: np.zeros(size, np.float32) for name, size in sizes.items()}
        self.dataset = Dataset(capacity, many, row)
        self._with_records = with_records
        self._rows = over_seeds(lambda steps: training_rows(model, actions, **steps), many)

        def fit(
            ensemble: Ensemble, key: RandomKey, rows: dict[str, Array], count: Index
        ) -> tuple[Ensemble, RandomKey, FitMetrics]:
            key, sub = jax.random.split(key)
            inputs, targets = rows["inputs"], rows["targets"]
            fitted, metrics = fitting.fit(config, ensemble, inputs, targets, count, sub)
            return fitted, key, metrics

        self._fit = over_seeds(fit, many, shared=(3,), whole_loops=True)

    def add(self, experience: Experience) -> None:
        """Append real steps."""
        before, after = experience.records
        steps = {
            "before": before,
            "after": after,
            "action": experience.action,
            "reward": experience.reward,
            "cost": experience.cost,
            "terminated": experience.terminated,
            "failed": experience.failed,
        }
        steps = {name: flatten_steps(x) for name, x in steps.items() if x is not None}
        records = {"records": steps["before"]} if self._with_records else {}
        self.dataset.add({**self._rows(steps), **records})

    def fit(self, state: S) -> tuple[S, FitMetrics]:
        """The state with an ensemble fitted to all steps so far, and a new key."""
        count = jnp.int32(self.dataset.count)
        *learned, metrics = jax.block_until_ready(
            self._fit(state.ensemble, state.key, self.dataset.rows, count)
        )
        return eqx.tree_at(lambda s: (s.ensemble, s.key), state, tuple(learned)), metrics


def fit_is_finite(fitted: FitMetrics) -> np.ndarray:
    """NaN for each seed whose fit met a loss that was not finite, otherwise 0."""
    return np.where(np.asarray(fitted.finite), 0.0, np.nan)
