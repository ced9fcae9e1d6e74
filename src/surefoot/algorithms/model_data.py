"""Real steps as a model learns from them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from surefoot.algorithms.experience import Experience
from surefoot.algorithms.seeds import flatten_steps
from surefoot.algorithms.trainer import Problem
from surefoot.core.arrays import RandomKey
from surefoot.world import ensemble as ensembles
from surefoot.world import fitting
from surefoot.world.ensemble import Ensemble, EnsembleConfig
from surefoot.world.model import targets_of


def real_rows(experience: Experience) -> dict[str, np.ndarray]:
    """Real steps flattened to [S, N, …]."""
    before, after = experience.records
    arrays = {
        "before": before,
        "after": after,
        "action": experience.action,
        "reward": experience.reward,
        "cost": experience.cost,
        "terminated": experience.terminated,
    }
    return {name: flatten_steps(x) for name, x in arrays.items()}


def model_rows(
    problem: Problem,
    before: Float[Array, "N R"],
    after: Float[Array, "N R"],
    action: Array,
    reward: Float[Array, " N"],
    cost: Float[Array, "N k"],
    terminated: Bool[Array, " N"],
) -> dict[str, Array]:
    """Inputs and targets of the model for N real steps of one seed."""
    model = problem.task_model
    features = jax.vmap(model.record_features)(before)
    return {
        "inputs": jnp.concatenate([features, problem.actions.encode(action)], -1),
        "targets": targets_of(model, before, after, reward, cost, terminated),
    }


def new_ensemble(config: EnsembleConfig, problem: Problem, key: RandomKey) -> Ensemble:
    """An untrained ensemble for a problem's model."""
    model = problem.task_model
    width = model.feature_size + problem.actions.size
    return ensembles.init(config, width, model.target_size, model.binary_size, key)


def fit(
    config: EnsembleConfig, ensemble: Ensemble, key: RandomKey, rows: dict[str, Array], count: Array
) -> tuple[Ensemble, RandomKey, fitting.FitMetrics]:
    """Train an ensemble on the first `count` rows; also the next key."""
    key, sub = jax.random.split(key)
    ensemble, metrics = fitting.fit(config, ensemble, rows["inputs"], rows["targets"], count, sub)
    return ensemble, key, metrics


def fit_is_finite(fitted: fitting.FitMetrics) -> Any:
    """NaN for each seed whose fit met a loss that was not finite, otherwise 0."""
    return np.where(np.asarray(fitted.finite), 0.0, np.nan)
