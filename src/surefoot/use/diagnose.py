"""How far to believe a run's learned model: what it says of fresh real episodes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from surefoot.algorithms.collect import Collector, Experience
from surefoot.algorithms.safe_loop import SafeLoopConfig
from surefoot.core.spaces import action_spec
from surefoot.runs.keeper import policy_in
from surefoot.runs.train import EVALUATION_SEED, MakeEnv, make_task, task_model
from surefoot.use.model import ensembles_in, learned_in
from surefoot.world.diagnostics import LEVELS, Diagnostic, RealSteps, Trial
from surefoot.world.model import TaskModel


def diagnose(
    run: str | Path,
    episodes: int = 4,
    seed: int = EVALUATION_SEED,
    horizon: int | None = None,
    make_env: MakeEnv | None = None,
    knowledge: Callable[[Any], TaskModel] | None = None,
) -> dict[str, Any]:
    """Hold the model of a run's last checkpoint against fresh real episodes of its policy.

    Returns plain values, for each seed and in the mean: `one_step` (error, loss and calibration of
    each of the `outputs`), `binary` (the same of the `binary_outputs`), `rollouts` (after so many
    `steps` of the same actions, the error of the `features` in units of their spread in the data,
    and in how many rollouts they could be compared), and `reward` and `costs` over the horizon,
    imagined and real. Draws `diagnosis.png` into the run's folder.

    Args:
        run: The run's folder.
        episodes: Fresh episodes per seed.
        seed: Where the environments' seeds start.
        horizon: Steps of a rollout; the run's own if not given.
        make_env: For a run on environments of your own, the function that makes n of them.
        knowledge: For environments of your own: what is known of them, as given to `train`.
    """
    from surefoot.report.diagnosis import draw_diagnosis

    learned = learned_in(run, "diagnose")
    last, info, config = learned
    if (info["task"] is None) != (make_env is not None):
        raise ValueError(
            f"{run} was trained on the task {info['task']}, so make_env must not be given"
            if make_env
            else f"{run} was trained on environments of your own: diagnose it from Python, with "
            f"surefoot.diagnose({str(run)!r}, make_env=...)"
        )
    own = config.planner if isinstance(config, SafeLoopConfig) else config
    length = own.horizon if horizon is None else horizon
    for name, value, least in (
        ("episodes", episodes, 1),
        ("horizon", length, 1),
        ("seed", seed, 0),
    ):
        if value < least:
            raise ValueError(f"{name}={value} must be at least {least}")
    seeds, task = info["seeds"], info["task"]
    count = len(seeds) * episodes
    env = (
        make_env(count) if make_env else make_task(task, info["task_options"])(count, config.model)
    )
    know = knowledge(env) if knowledge else task_model(env, config.model)
    if list(know.known) != info["known"]:
        raise ValueError(
            f"knowledge: the model of {run} was told {info['known']}, not {list(know.known)}; "
            f"give what was given to train"
        )
    actions = action_spec(env.single_action_space)
    models = ensembles_in(learned, know, actions)
    collector = Collector(env, [seed + s for s in seeds], episodes, know)
    seen = collector.collect(policy_in(last), actions, env.max_episode_steps or 1000)
    diagnostic = Diagnostic(know, actions, length)
    trials = []
    for s, number in enumerate(seeds):
        model = jax.tree.map(lambda x, s=s: x[s], models)
        key = jax.random.fold_in(jax.random.key(seed), number)
        trials.append(diagnostic(model, real_steps(seen, s), key))

    steps = steps_shown(length)
    found = [_numbers(trial, steps) for trial in trials]
    title = f"{task or 'own environment'}, {config.model} model after epoch {last.meta['epoch']}"
    names = list(know.output_names)
    return {
        "run": str(run),
        "epoch": last.meta["epoch"],
        "real_steps": int(last.arrays["totals/steps"]),
        "model": config.model,
        "known": info["known"],
        "episodes": episodes,
        "horizon": length,
        "outputs": names[: know.target_size],
        "binary_outputs": names[know.target_size :],
        "features": list(know.feature_names),
        "cost_names": list(know.cost_names),
        "steps": steps,
        **_plain(jax.tree.map(_mean, *found)),
        "seeds": [{"seed": s, **_plain(one)} for s, one in zip(seeds, found, strict=True)],
        "figure": str(draw_diagnosis(trials, know.cost_names, title, Path(run) / "diagnosis.png")),
    }


def real_steps(experience: Experience, s: int) -> RealSteps:
    """The real steps of seed number s; observations are the records of a black box."""
    before = experience.obs if experience.before is None else experience.before
    after = experience.next_obs if experience.after is None else experience.after
    return RealSteps(
        before[s],
        experience.action[s],
        experience.reward[s],
        experience.cost[s],
        after[s],
        experience.terminated[s],
        experience.ended[s],
    )


def steps_shown(horizon: int) -> list[int]:
    """1, 2, 5, 10, 20, 40, 80 … and the horizon itself."""
    shown, step = [1, 2, 5], 10
    while step < horizon:
        shown.append(step)
        step *= 2
    return sorted({min(s, horizon) for s in [*shown, horizon]})


def _numbers(trial: Trial, steps: list[int]) -> dict[str, Any]:
    """What a trial has come to; NaN where nothing could be compared."""
    one, at = trial.one, np.asarray(steps) - 1
    levels = {f"coverage_{100 * level:.0f}": i for i, level in enumerate(LEVELS)}
    return {
        "one_step": {
            "rmse": one.rmse,
            "share": one.share,
            "loss": one.loss,
            **{name: one.calibration.coverage[i] for name, i in levels.items()},
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


def _mean(*values: Any) -> np.ndarray:
    """Over seeds, those left out where nothing could be compared."""
    known = ~np.isnan(values)
    total, count = np.sum(values, 0, where=known), known.sum(0)
    return np.where(count, total / np.maximum(count, 1), np.nan)


def _plain(tree: Any) -> Any:
    """Lists and numbers, None for NaN."""
    if isinstance(tree, dict):
        return {name: _plain(x) for name, x in tree.items()}
    if isinstance(tree, list):
        return [_plain(x) for x in tree]
    if isinstance(tree, np.ndarray | np.generic):
        return _plain(tree.tolist())
    return None if isinstance(tree, float) and np.isnan(tree) else tree
