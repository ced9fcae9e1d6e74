"""How fast PPO-Lagrangian trains on PointGoal, and how much faster than OmniSafe on one machine."""

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from surefoot.algorithms import loop
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.benchmark.env import ask_python
from surefoot.learn.ppo import PPOConfig
from surefoot.runs.device import cores
from surefoot.runs.setup import new_setup

NEEDS = "Python 3.10 with omnisafe 0.5.0, torch and numpy below 1.27"


@dataclass(frozen=True)
class Schedule:
    """How many real steps an update gets, and what it does with them."""

    name: str
    does: str
    config: PPOLagrangianConfig
    options: dict[str, Any] = field(default_factory=dict)
    """Of the task."""
    reference: dict[str, Any] | None = None
    """The same schedule in OmniSafe's terms, where it has one."""


SCHEDULES = (
    Schedule(
        name="full-batch",
        does="80 + 80 full-batch steps",
        # Without an early stop, so that all the steps are taken.
        config=PPOLagrangianConfig(
            steps_per_epoch=30_000,
            ppo=PPOConfig(gae_lambda=0.97, value_targets="return", kl_stop=None),
        ),
    ),
    Schedule(
        name="omnisafe",
        does="one pass in minibatches of 64",
        config=PPOLagrangianConfig(
            cost_limit=(25.0,),
            steps_per_epoch=20_000,
            observation="reference",
            ppo=PPOConfig(
                epochs=1,
                critic_epochs=1,
                minibatches=20_000 // 64,
                kl_stop=None,
                critic_learning_rate=3e-4,
                max_grad_norm=40.0,
                normalise_observations=True,
            ),
        ),
        options={"level": 1},
        reference={"steps_per_epoch": 20_000, "batch_size": 64, "update_iters": 1},
    ),
)

# Runs under a Python that has OmniSafe. Its logs, which are many, go where it stands; its time per
# epoch is what it logs itself. All settings but the schedule are its own defaults for PPOLag.
REFERENCE_SCRIPT = """
import csv, glob, json, sys
import omnisafe
if __name__ == '__main__':
    schedule, epochs, threads = json.loads(sys.argv[1])
    agent = omnisafe.Agent('PPOLag', 'SafetyPointGoal1-v0', custom_cfgs={
        'seed': 0,
        'train_cfgs': {
            'total_steps': epochs * schedule['steps_per_epoch'], 'torch_threads': threads},
        'algo_cfgs': schedule,
        'logger_cfgs': {'use_wandb': False, 'use_tensorboard': False, 'log_dir': 'logs'},
    })
    agent.learn()
    (path,) = glob.glob('logs/**/progress.csv', recursive=True)
    rows = list(csv.DictReader(open(path)))
    print(json.dumps({'version': omnisafe.__version__, 'epochs': [
        {name: float(row['Time/' + name]) for name in ('Epoch', 'Rollout', 'Update')}
        for row in rows]}))
"""


def benchmark(epochs: int, reference: str | None) -> Iterator[dict[str, Any]]:
    """One row per schedule, each the fastest of so many epochs: other work only slows.

    `reference` is a Python that has OmniSafe, timed right after Surefoot.
    """
    if epochs < 1:
        raise ValueError(f"epochs={epochs} must be at least 1")
    if reference is not None:
        _check_reference(reference)
    for schedule in SCHEDULES:
        row = {"schedule": schedule.name, "does": schedule.does, **_time_ours(schedule, epochs)}
        if reference is not None and schedule.reference is not None:
            theirs = _time_reference(schedule.reference, epochs, reference)
            row |= theirs
            row["ratio"] = row["steps_per_second"] / theirs["reference_steps_per_second"]
        yield row


def _time_ours(schedule: Schedule, epochs: int) -> dict[str, Any]:
    setup = new_setup(
        "PointGoal", "ppo-lagrangian", "default", "cpu", [0], schedule.config, {}, schedule.options
    )
    episode_steps = setup.problem(setup.make_envs(1), 1).episode_steps
    env = setup.make_envs(setup.algorithm.environments(setup.config, episode_steps))
    problem = setup.problem(env, env.num_envs)
    best: dict[str, Any] = {"steps_per_second": 0.0}
    before, done = {"collect": 0.0, "update": 0.0}, 0
    running = loop.epochs(loop.begin(setup.algorithm, setup.config, problem, env))
    start = time.perf_counter()
    for epoch in islice(running, epochs + 1):
        seconds = time.perf_counter() - start
        steps, spent = epoch.metrics[0]["steps"] - done, epoch.seconds
        # The first epoch compiles.
        if epoch.number > 1 and steps / seconds > best["steps_per_second"]:
            best = {
                "steps_per_update": steps,
                "steps_per_second": steps / seconds,
                **{f"{name}_seconds": spent[name] - before[name] for name in before},
            }
        before, done, start = spent, done + steps, time.perf_counter()
    return best


def _check_reference(python: str) -> None:
    """Say what is wrong before minutes are spent."""
    ask_python(python, "OmniSafe", NEEDS, "import omnisafe\nprint('null')", [])


def _time_reference(schedule: dict[str, Any], epochs: int, python: str) -> dict[str, Any]:
    task = json.dumps([schedule, epochs, cores()])
    with tempfile.TemporaryDirectory() as folder:
        said = ask_python(python, "OmniSafe", NEEDS, REFERENCE_SCRIPT, [task], folder)
    best = min(said["epochs"], key=lambda epoch: epoch["Epoch"])
    return {
        "reference": f"OmniSafe {said['version']}",
        "reference_steps_per_second": schedule["steps_per_epoch"] / best["Epoch"],
        "reference_collect_seconds": best["Rollout"],
        "reference_update_seconds": best["Update"],
    }
