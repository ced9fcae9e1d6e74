"""Train: from a task's name, or any environment, to a run folder with a result."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jax

from surefoot import __version__
from surefoot.algorithms.common import Epoch
from surefoot.algorithms.presets import MODEL_BASED, MODEL_FREE
from surefoot.algorithms.presets import preset as preset_config
from surefoot.algorithms.safe_loop import SafeLoopConfig
from surefoot.core.snapshot import Saved
from surefoot.envs.navigation.goal_model import goal_model
from surefoot.envs.rc_car.model import RCCarModel
from surefoot.envs.task import find_task, make
from surefoot.runs import asked
from surefoot.runs.checkpoint import Checkpoint
from surefoot.runs.device import device_name
from surefoot.runs.drive import WriteFault, drive, how_to_finish
from surefoot.runs.folder import RunFolder, config_dict
from surefoot.runs.info import read_info
from surefoot.runs.interrupt import stop_at_once
from surefoot.use.evaluate import evaluate_policy
from surefoot.world.model import BlackBox, TaskModel
from surefoot.world.planner import PlannerConfig

MakeEnv = Callable[[int], Any]
EVALUATION_EPISODES = 50
PLANNED_EPISODES = 10  # where every step is planned
EVALUATION_SEED = 10_000_000  # far from the seeds of training


def train(
    task: str | MakeEnv,
    algorithm: str | None = None,
    preset: str = "default",
    seeds: int = 1,
    seed: int = 0,
    out: str | Path | None = None,
    config: Any = None,
    task_options: dict[str, Any] | None = None,
    knowledge: Callable[[Any], TaskModel] | None = None,
    quiet: bool = False,
    tensorboard: bool = False,
    checkpoint_every: float | None = None,
    keep: int = 2,
    **changes: Any,
) -> Path:
    """Train on a task by name, or on environments of your own, and return the run's folder.

    Args:
        task: A task's name, or a function that makes n environments (see `surefoot.adapt`).
        algorithm: mbppo-lagrangian (if not given), ppo-lagrangian, ppo, trpo-lagrangian, cpo, sac
            or safe-loop.
        preset: default or paper.
        seeds: How many seeds to train side by side.
        seed: The first seed.
        out: The run's folder; a fresh one under runs/ if not given.
        config: A whole config instead of a preset.
        task_options: Options of the task, such as {"hazards": 8}.
        knowledge: For environments of your own: what is known of them, given the environment.
        quiet: Show no progress.
        tensorboard: Write TensorBoard events too.
        checkpoint_every: Least seconds between checkpoints; 0 writes one after every epoch. If not
            given, they take at most a hundredth of the time. The last epoch is always written, and
            an interrupted one.
        keep: How many of the last checkpoints are kept, beside the best.
        **changes: Fields of the config to change, such as steps=30_000.
    """
    asked.check_run(seeds, seed, checkpoint_every, keep)
    name = task if isinstance(task, str) else None
    if name is not None:
        find_task(name)
    wanted = algorithm
    if config is None:
        wanted = algorithm or "mbppo-lagrangian"
        config = preset_config(wanted, preset, name, jax.default_backend())
    if name is None and hasattr(config, "model"):
        config = replace(config, model="black-box")
    config = asked.changed(config, changes)
    algorithm = asked.check_algorithm(wanted, config)
    options = dict(task_options or {})
    if name is not None:
        asked.check_options(name, options, config)
        make(name, **options)  # a wrong option is said before a folder exists
    folder = RunFolder.new(f"{name or 'own'}-{algorithm}", out)
    info = {
        "version": __version__,
        "task": name,
        "task_options": options,
        "algorithm": algorithm,
        "preset": preset,
        "seeds": list(range(seed, seed + seeds)),
        "known": [],
        "device": device_name(),
        "backend": jax.default_backend(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
        "started_at": time.time(),
        "checkpoint_every": checkpoint_every,
        "keep": keep,
        "tensorboard": tensorboard,
        "config": config_dict(config),
    }
    with folder.locked():
        folder.write_json("config.json", info)
        return train_to_the_end(folder, info, config, task, knowledge, None, [], quiet)


def train_to_the_end(
    folder: RunFolder,
    info: dict[str, Any],
    config: Any,
    task: str | MakeEnv,
    knowledge: Callable[[Any], TaskModel] | None,
    last: Checkpoint | None,
    notes: list[str],
    quiet: bool,
) -> Path:
    """Train from the beginning, or from the checkpoint `last`, and leave the result.

    `info` is the run's config.json; what the model is told is added to it once that is known.
    """
    seeds, options = info["seeds"], info["task_options"]

    def telling(env: Any) -> TaskModel:
        told = knowledge(env) if knowledge else task_model(env, config.model)
        info["known"] = list(told.known)
        folder.write_json("config.json", info)
        return told

    saved = None if last is None else Saved(last.arrays)
    epochs = _epochs(task, config, seeds, options, telling, saved)
    policy, result = drive(folder, info, config, epochs, last, notes, quiet)
    result |= {"known": info["known"], "device": device_name()}
    with stop_at_once(f"stopped: {how_to_finish(folder, info)}"):
        if isinstance(config, SafeLoopConfig) and isinstance(task, str):
            from surefoot.use.plan import evaluate_planned

            # Without its planner a policy of safe-LOOP keeps no limit.
            found = evaluate_planned(
                folder.path, "look-ahead", None, PLANNED_EPISODES, EVALUATION_SEED, False
            )
            result["plans_per_second"] = found["plan"].pop("plans_per_second")
            result["evaluation"] = found
        elif isinstance(task, str):
            observation = getattr(config, "model", getattr(config, "observation", None))
            env = make_task(task, options)(len(seeds) * EVALUATION_EPISODES, observation)
            result["evaluation"] = evaluate_policy(
                env, policy, seeds, EVALUATION_EPISODES, EVALUATION_SEED, config.cost_limit
            )
    try:
        folder.write_json("result.json", result)
    except OSError as error:
        raise WriteFault(
            f"{folder.path / 'result.json'} cannot be written: {error.strerror or error}. When "
            f"that is put right: {how_to_finish(folder, info)}"
        ) from None
    return folder.path


def _epochs(
    task: str | MakeEnv,
    config: Any,
    seeds: list[int],
    options: dict[str, Any],
    make_knowledge: Callable[[Any], TaskModel],
    saved: Saved | None,
) -> Iterator[Epoch]:
    """The training loop of the config's algorithm."""
    make_env = make_task(task, options) if isinstance(task, str) else lambda n, _: task(n)
    if type(config) in MODEL_FREE:
        return MODEL_FREE[type(config)].epochs(config, make_env, seeds, saved)
    return MODEL_BASED[type(config)].epochs(config, make_env, make_knowledge, seeds, saved)


def make_task(task: str, options: dict[str, Any]) -> Callable[[int, str | None], Any]:
    """`make_env(n, observation)`: where the task has several observations, the one asked for."""

    def make_env(n: int, observation: str | None) -> Any:
        chosen = dict(options)
        names = getattr(find_task(task).env, "observations", ())
        if observation in names and "observation" not in chosen:
            chosen["observation"] = observation
        return make(task, num_envs=n, **chosen)

    return make_env


def task_model(env: Any, model: str) -> TaskModel:
    """What is known of one of Surefoot's tasks; of any other environment, nothing."""
    config = getattr(env, "config", None)
    if model == "black-box" or config is None:
        size = env.single_observation_space.shape[0]
        return BlackBox(size, tuple(env.cost_names))
    if hasattr(env, "robot"):
        return goal_model(config, model)
    return RCCarModel(config)


def load_policies(path: str | Path) -> tuple[RunFolder, dict[str, Any], Any]:
    """A finished or running run: its folder, config.json and policies."""
    folder = RunFolder(Path(path))
    info, policy = read_info(folder), folder.read_policy()
    if any(len(array) != len(info["seeds"]) for array in (*policy.weights, *policy.biases)):
        raise ValueError(
            f"{folder.path / 'policy.npz'} is not of this run, which has {len(info['seeds'])} seeds"
        )
    return folder, info, policy


def evaluate(
    run: str | Path,
    episodes: int | None = None,
    seed: int = EVALUATION_SEED,
    deterministic: bool = False,
    plan: Literal["look-ahead", "filter"] | None = None,
    planner: PlannerConfig | None = None,
) -> dict[str, Any]:
    """Evaluate a run's policies on fresh episodes of its task: see `evaluate_policy`.

    Args:
        run: The run's folder.
        episodes: Episodes per seed; if not given 100, or 10 where every step is planned.
        seed: Where the environments' seeds start.
        deterministic: Act by the policy's mode instead of drawing from it.
        plan: Plan every step with the run's model: look-ahead does as planned, filter keeps the
            policy's action unless it might cost more than the planner's threshold. If not given,
            a run of safe-LOOP looks ahead, as it did in training, and others do not plan.
        planner: How to plan; if not given, as safe-LOOP does, or as the run did.
    """
    if plan is None and plans_itself(run):
        plan = "look-ahead"
    if episodes is None:
        episodes = 100 if plan is None else PLANNED_EPISODES
    if episodes < 1:
        raise ValueError(f"episodes={episodes} must be at least 1")
    if plan is not None:
        from surefoot.use.plan import evaluate_planned

        return evaluate_planned(run, plan, planner, episodes, seed, deterministic)
    if planner is not None:
        raise ValueError("planner is given, but nothing plans: say plan='look-ahead' or 'filter'")
    _, info, policy = load_policies(run)
    if info["task"] is None:
        raise ValueError(f"{run} was trained on an environment of your own; use evaluate_policy")
    config = info["config"]
    observation = config.get("model", config.get("observation"))
    env = make_task(info["task"], info["task_options"])(len(info["seeds"]) * episodes, observation)
    return evaluate_policy(
        env, policy, info["seeds"], episodes, seed, config["cost_limit"], deterministic
    )


def plans_itself(run: str | Path) -> bool:
    """Whether a run acts by planning, so that its policy alone is not what was trained."""
    try:
        return read_info(RunFolder(Path(run)))["algorithm"] == "safe-loop"
    except (ValueError, OSError):  # which whoever reads on will tell
        return False


def policy_of(run: str | Path, which: int = 0) -> Any:
    """The numpy policy of a run's seed number `which`, counted from 0."""
    _, info, policy = load_policies(run)
    check_which(run, info, which)
    return policy.seed(which)


def check_which(run: str | Path, info: dict[str, Any], which: int) -> None:
    """A ValueError if the run has no seed of that number."""
    count = len(info["seeds"])
    if not 0 <= which < count:
        raise ValueError(f"which={which} must be from 0 to {count - 1}: {run} has {count} seeds")


def learning_curve(run: str | Path) -> Path:
    """Draw the run's learning curve into its folder."""
    from surefoot.report.curves import draw_curve

    folder = RunFolder(Path(run))
    info = read_info(folder)
    rows = folder.read_metrics()
    title = f"{info['task'] or 'own environment'}, {info['algorithm']} ({info['preset']})"
    return draw_curve(rows, info["config"]["cost_limit"], title, folder.path / "curve.png")
