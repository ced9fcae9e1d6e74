"""How far to trust a run's learned model: its predictions of fresh real episodes."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from surefoot.algorithms.actors import draw_from
from surefoot.algorithms.collect import Collector
from surefoot.algorithms.experience import Experience
from surefoot.algorithms.seeds import pick_seeds
from surefoot.core.config import Count, NonNegativeInt, check_values
from surefoot.envs.gym.adapted import Cost
from surefoot.runs.acting import EVALUATION_SEED
from surefoot.runs.folder import Values
from surefoot.runs.known import Known
from surefoot.runs.setup import MakeEnv
from surefoot.use.run import load_model
from surefoot.world.diagnostics import LEVELS, Diagnostic, RealSteps, Trial


class Diagnosis(NamedTuple):
    """What a model predicts of fresh real episodes."""

    values: Values
    """Plain values; see `diagnose`."""
    trials: list[Trial]
    """One for each seed."""
    cost_names: tuple[str, ...]
    title: str


def diagnose(
    run: str | Path,
    episodes: int = 4,
    seed: int = EVALUATION_SEED,
    horizon: int | None = None,
    make_env: MakeEnv | None = None,
    known: Known = None,
    cost: Cost | None = None,
) -> Diagnosis:
    """Compare the model of a run's last checkpoint with fresh real episodes of its policy.

    The values are means over seeds and for each seed: `one_step` (error, loss and calibration of
    each of the `outputs`), `binary` (the same of the `binary_outputs`), `rollouts` (the error of
    the `features` after so many `steps` of the same actions, in units of their spread, and the
    number of rollouts compared), and `reward` and `costs` over the horizon, imagined and real.

    Args:
        run: The run's folder.
        episodes: Fresh episodes per seed.
        seed: Added to the run's seeds; decides which episodes are met.
        horizon: Steps of a rollout; the run's own if not given.
        make_env: The function that makes environments, if the run does not record its task.
        known: What was given to `train` as `known`, if that was a Python function.
        cost: What was given to `train` as `cost`, if that was a Python function.
    """
    learned = load_model(run, "diagnose", make_env, known, cost)
    info, setup = learned.info, learned.setup
    length = learned.planning.horizon if horizon is None else horizon
    check_values(
        {"episodes": episodes, "horizon": length, "seed": seed},
        {"episodes": Count, "horizon": Count, "seed": NonNegativeInt},
    )
    env = setup.make_envs(len(info.seeds) * episodes)
    problem = setup.problem(env, episodes)
    model, actions = problem.task_model, problem.actions
    collector = Collector(env, [seed + s for s in info.seeds], episodes, model)
    actor = draw_from(learned.policy, collector.rngs, episodes, problem.episode_steps)
    seen = collector.collect(actor, actions, problem.episode_steps)
    diagnostic = Diagnostic(model, actions, length)
    trials = []
    for s, number in enumerate(info.seeds):
        ensemble = pick_seeds(learned.planning.ensemble, s)
        key = jax.random.fold_in(jax.random.key(seed), number)
        trials.append(diagnostic(ensemble, real_steps(seen, s), key))
    shown, epoch = steps_shown(length), learned.checkpoint.meta["epoch"]
    numbers = [_numbers(trial, shown) for trial in trials]
    names = model.output_names
    values = {
        "run": str(run),
        "epoch": epoch,
        "real_steps": int(learned.checkpoint.arrays["totals/steps"]),
        "model": setup.config.model,
        "known": info.known,
        "episodes": episodes,
        "horizon": length,
        "outputs": list(names[: model.target_size]),
        "binary_outputs": list(names[model.target_size :]),
        "features": list(model.feature_names),
        "cost_names": list(model.cost_names),
        "steps": shown,
        **_plain(jax.tree.map(_mean, *numbers)),
        "seeds": [{"seed": s, **_plain(one)} for s, one in zip(info.seeds, numbers, strict=True)],
    }
    title = f"{info.task_name}, {setup.config.model} model after epoch {epoch}"
    return Diagnosis(values, trials, model.cost_names, title)


def real_steps(experience: Experience, s: int) -> RealSteps:
    """The real steps of seed number s, as the model takes them."""
    before, after = experience.records
    parts = (
        before, experience.action, experience.reward, experience.cost, after,
        experience.terminated, experience.ended,
    )  # fmt: skip
    return RealSteps(*(part[s] for part in parts))


def steps_shown(horizon: int) -> list[int]:
    """1, 2, 5, 10, 20, 40, 80 … and the horizon itself."""
    shown = [1, 2, 5, *(10 * 2**i for i in range(horizon.bit_length()))]
    return [*(step for step in shown if step < horizon), horizon]


def _numbers(trial: Trial, steps: list[int]) -> Values:
    """A trial's results; NaN where nothing could be compared."""
    one, at = trial.one, np.asarray(steps) - 1
    coverage = {
        f"coverage_{100 * level:.0f}": one.calibration.coverage[i] for i, level in enumerate(LEVELS)
    }
    return {
        "one_step": {
            **{name: getattr(one, name) for name in ("rmse", "share", "loss")},
            **coverage,
            "chi2": one.calibration.chi2,
        },
        "binary": {
            "loss": one.binary_loss,
            "predicted_rate": one.predicted_rate,
            "real_rate": one.real_rate,
        },
        "rollouts": {
            "compared": trial.counted[at].sum(1),
            "error": np.sqrt(np.square(trial.rmse[at]).mean(1)),
            "feature_errors": trial.rmse[at],
        },
        "reward": {
            "imagined": trial.imagined_reward[-1].mean(),
            "real": trial.real_reward[-1].mean(),
        },
        "costs": {
            "imagined": trial.imagined_cost[-1].mean(0),
            "real": trial.real_cost[-1].mean(0),
        },
    }


def _mean(*values: np.ndarray) -> np.ndarray:
    """Means over seeds, without those that could not be compared."""
    known = ~np.isnan(values)
    total, count = np.sum(values, 0, where=known), known.sum(0)
    return np.where(count, total / np.maximum(count, 1), np.nan)


def _plain(tree: object) -> Any:
    """Lists and numbers, None for NaN."""
    if isinstance(tree, dict):
        return {name: _plain(x) for name, x in tree.items()}
    if isinstance(tree, list):
        return [_plain(x) for x in tree]
    if isinstance(tree, np.ndarray | np.generic):
        return _plain(tree.tolist())
    return None if isinstance(tree, float) and np.isnan(tree) else tree
