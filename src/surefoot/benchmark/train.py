"""How fast PPO-Lagrangian trains on PointGoal, and how much faster than OmniSafe on one machine."""

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from surefoot.algorithms import loop
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.benchmark.timing import Row, ask_python
from surefoot.learn.ppo import PPOConfig
from surefoot.runs.device import cores
from surefoot.runs.setup import new_setup

PHASES = ("collect", "update")
NEEDS = "Python 3.10 with omnisafe 0.5.0, torch and numpy below 1.27"


@dataclass(frozen=True)
class Schedule:
    """How many real steps an update gets, and what it does with them."""

    name: str
    does: str
    config: PPOLagrangianConfig
    options: dict[str, int] = field(default_factory=dict)
    """Of the task."""
    reference: dict[str, int] | None = None
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
                epochs=1, critic_epochs=1, minibatches=20_000 // 64, kl_stop=None,
                critic_learning_rate=3e-4, max_grad_norm=40.0, normalise_observations=True,
            ),
        ),
        options={"level": 1},
        reference={"steps_per_epoch": 20_000, "batch_size": 64, "update_iters": 1},
    ),
)  # fmt: skip

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


def benchmark(epochs: int, reference: str | None) -> Iterator[Row]:
    """One row per schedule, each the fastest of so many epochs: other work only slows.

    `reference` is a Python that has OmniSafe, timed right after Surefoot.
    """
    if epochs < 1:
        raise ValueError(f"epochs={epochs} must be at least 1")
    if reference is not None:  # report what is wrong before minutes are spent
        ask_python(reference, "OmniSafe", NEEDS, "import omnisafe\nprint('null')", [])
    for schedule in SCHEDULES:
        ours = _time_ours(schedule, epochs)
        row: Row = {"schedule": schedule.name, "does": schedule.does, **ours}
        if reference is not None and schedule.reference is not None:
            version, theirs = _time_reference(schedule.reference, epochs, reference)
            ratio = ours["steps_per_second"] / theirs["reference_steps_per_second"]
            row |= {"reference": f"OmniSafe {version}", **theirs, "ratio": ratio}
        yield row


def _time_ours(schedule: Schedule, epochs: int) -> dict[str, float]:
    setup = new_setup(
        "PointGoal", "ppo-lagrangian", "default", "cpu", [0], schedule.config, {}, schedule.options
    )
    episode_steps = setup.problem(setup.make_envs(1), 1).episode_steps
    env = setup.make_envs(setup.algorithm.environments(setup.config, episode_steps))
    problem = setup.problem(env, env.num_envs)
    rows: list[dict[str, float]] = []
    before, done = dict.fromkeys(PHASES, 0.0), 0
    running = loop.epochs(loop.begin(setup.algorithm, setup.config, problem, env))
    start = time.perf_counter()
    for epoch in islice(running, epochs + 1):
        steps, spent = epoch.metrics[0]["steps"] - done, epoch.seconds
        rate = steps / (time.perf_counter() - start)
        parts = {f"{name}_seconds": spent[name] - before[name] for name in PHASES}
        rows.append({"steps_per_update": steps, "steps_per_second": rate, **parts})
        before, done, start = (
            {name: spent[name] for name in before},
            done + steps,
            time.perf_counter(),
        )
    return max(rows[1:], key=lambda row: row["steps_per_second"])  # the first epoch compiles


def _time_reference(
    schedule: dict[str, int], epochs: int, python: str
) -> tuple[str, dict[str, float]]:
    """The version of OmniSafe, and its fastest epoch."""
    task = json.dumps([schedule, epochs, cores()])
    with tempfile.TemporaryDirectory() as folder:
        printed = ask_python(python, "OmniSafe", NEEDS, REFERENCE_SCRIPT, [task], folder)
    best = min(printed["epochs"], key=lambda epoch: epoch["Epoch"])
    return printed["version"], {
        "reference_steps_per_second": schedule["steps_per_epoch"] / best["Epoch"],
        "reference_collect_seconds": best["Rollout"],
        "reference_update_seconds": best["Update"],
    }
