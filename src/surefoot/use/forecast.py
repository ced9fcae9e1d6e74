"""What training on an environment will be: algorithms that fit, settings, and how long it takes."""

import time
from dataclasses import replace

import jax

from surefoot.algorithms import mbppo_lagrangian as mbppo
from surefoot.algorithms.algorithm import ALGORITHMS, DEFAULT
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.off_policy import OffPolicyConfig, check_actions
from surefoot.algorithms.trainer import Problem
from surefoot.core.config import flat
from surefoot.core.spaces import action_spec
from surefoot.envs.base import TaskEnv
from surefoot.envs.task import GymOptions, Task
from surefoot.runs.cache import use_cache
from surefoot.runs.folder import Values
from surefoot.runs.setup import CostLimits, new_setup
from surefoot.use import programs
from surefoot.use.programs import Part

SETTINGS = (
    "model", "steps", "episodes", "horizon", "rollouts", "passes", "replay_share", "ppo.hidden",
    "ppo.normalise_observations", "ensemble.members", "ensemble.hidden", "ensemble.max_steps",
)  # fmt: skip
"""Settings of the default algorithm that are reported."""

LENGTH = 8
"""Steps of the timed rollouts."""
GRADIENT_STEPS = 40
"""Of the timed fit."""
ROWS = 4_000
"""Real steps that the timed model is fitted to."""


def training(
    task: Task, env: TaskEnv, options: Values, limits: CostLimits, rate: float, learning: bool
) -> Values:
    """Which algorithms fit, with the reason if one does not, and the default one's settings and
    time, if the environment takes `rate` steps per second."""
    if isinstance(task.options, GymOptions):  # one environment serves all
        task, options = replace(task, make_envs=lambda *_, **__: env), {}
    fits, more = dict[str, str | None](), Values()
    for name in ALGORITHMS:
        try:
            setup = new_setup(
                task, name, "default", jax.default_backend(), [0], None, {}, options,
                cost_limit=limits or 1.0,
            )  # fmt: skip
            if isinstance(setup.config, OffPolicyConfig):
                check_actions(action_spec(env.single_action_space))
        except ValueError as error:
            fits[name] = str(error)
            continue
        fits[name] = None
        if name == DEFAULT and isinstance(setup.config, MBPPOConfig):
            settings, config = flat(setup.config), setup.config
            more["settings"] = {s: settings[s] for s in SETTINGS if s in settings}
            more["summary"] = setup.algorithm.summary(config)
            more["environment_seconds"] = settings["steps"] / rate
            if learning:
                more["learning_seconds"] = learning_seconds(
                    config, setup.problem(setup.make_envs(1), 1)
                )
    return {"algorithms": fits, **more}


def learning_seconds(config: MBPPOConfig, problem: Problem) -> float:
    """Seconds of fits and practice in the whole training, without compiling.

    Fits may end early and practice may be cut short, so it is an upper estimate.
    """
    use_cache()
    length = mbppo.horizon(config, problem)
    short = min(LENGTH, length)
    # Minibatches as large as in training.
    batches = max(1, round(config.ppo.minibatches * short / length))
    small = replace(
        config,
        horizon=short,
        ppo=replace(config.ppo, minibatches=batches),
        ensemble=replace(config.ensemble, max_steps=GRADIENT_STEPS),
    )
    state = programs.new_state(small, problem)
    practice = sum(map(seconds_each, programs.imagination(small, problem, state)))
    fit = seconds_each(programs.fit(small, problem, state, min(ROWS, config.steps)))
    epochs = max(1, round(config.steps / (config.episodes * problem.episode_steps)))
    imagined = config.passes * config.rollouts * length
    return epochs * (imagined * practice + config.ensemble.max_steps * fit)


def seconds_each(part: Part, repeats: int = 3) -> float:
    """Seconds of one step of what a part does: the fastest of some calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        part.call()
        times.append(time.perf_counter() - start)
    return min(times) / part.count
