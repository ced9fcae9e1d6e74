"""Steps per second of the environments, and of the reference on the same machine."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from surefoot.envs.task import find_task, make

SECONDS = 3.0
WINDOWS = 30
# Names in safety-gymnasium; without vases and with 15 hazards they are the paper's task.
REFERENCE_IDS = {"PointGoal": "Point", "CarGoal": "Car", "DoggoGoal": "Doggo"}

# Runs under the reference's Python. Prints one JSON object: seconds per step and per reset.
REFERENCE_SCRIPT = """
import json, sys, time
import safety_gymnasium
from safety_gymnasium.tasks.safe_navigation.goal.goal_level2 import GoalLevel2
def init(self, config, _init=GoalLevel2.__init__):
    _init(self, config)
    self.hazards.num = 15
    self.vases.num, self.vases.is_lidar_observed, self.vases.is_constrained = 0, False, False
    self.num_steps = 750
GoalLevel2.__init__ = init
env = safety_gymnasium.make('Safety' + sys.argv[1] + 'Goal2-v0')
env.reset(seed=0)
n = int(sys.argv[2])
actions = [env.action_space.sample() for _ in range(n)]
def best(calls):
    times = []
    for call in calls:
        t = time.perf_counter()
        call()
        times.append(time.perf_counter() - t)
    return min(times)
def steps(part):
    for a in part:
        env.step(a)
step = best([lambda i=i: steps(actions[i:i + 100]) for i in range(0, n, 100)]) / 100
print(json.dumps({'step': step, 'reset': best([env.reset] * 3)}))
"""


def steps_per_second(
    task: str, num_envs: int, threads: int, **options: Any
) -> dict[str, float | None]:
    """Steps per second under random actions, auto-resets included.

    `overhead_beyond_physics` is the time beyond that of the physics engine alone, as a fraction.
    """
    env = make(task, num_envs=num_envs, seed=0, threads=threads, **options)
    env.reset()
    # Episodes end at different times, as in training.
    env.elapsed[:] = np.arange(num_envs) * env.max_episode_steps // num_envs
    rng = np.random.default_rng(0)
    low, high = env.single_action_space.low, env.single_action_space.high
    actions = rng.uniform(low, high, (64, num_envs, len(low)))
    for action in actions[:8]:
        env.step(action)
    complete = _best(lambda action: env.step(action), actions)
    physics = env.physics()
    if physics is None:
        return {"steps_per_second": num_envs / complete, "overhead_beyond_physics": None}
    overhead = complete / _best(physics, actions) - 1
    return {"steps_per_second": num_envs / complete, "overhead_beyond_physics": overhead}


def _best(call: Callable[[np.ndarray], object], actions: np.ndarray) -> float:
    """Seconds per call in the fastest of several windows, least disturbed by other processes."""
    seconds = []
    for _ in range(WINDOWS):
        count, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < SECONDS / WINDOWS:
            for action in actions[:8]:
                call(action)
            count += 8
        seconds.append(spent / count)
    return min(seconds)


def benchmark(
    tasks: Sequence[str], num_envs: Sequence[int], threads: Sequence[int], reference: str | None
) -> Iterator[dict[str, Any]]:
    """One row per task, number of environments and threads."""
    for name in tasks:
        find_task(name)  # report unknown names before the first measurement
    for name in tasks:
        base = _time_reference(name, reference) if reference else None
        for n in num_envs:
            for t in threads:
                row: dict[str, Any] = {"task": name, "num_envs": n, "threads": t}
                row |= steps_per_second(name, n, t)
                if base:
                    steps = find_task(name).options.max_episode_steps
                    stepping = 1 / base["step"]
                    complete = steps / (steps * base["step"] + base["reset"])
                    row["reference_steps_per_second"] = stepping
                    row["reference_with_resets"] = complete
                    row["ratio"] = row["steps_per_second"] / stepping
                    row["ratio_with_resets"] = row["steps_per_second"] / complete
                yield row


def _time_reference(task: str, python: str) -> dict[str, float] | None:
    if task not in REFERENCE_IDS:
        return None
    needs = "Python 3.10 with safety-gymnasium installed"
    words = [REFERENCE_IDS[task], "700"]
    return ask_python(python, "safety-gymnasium", needs, REFERENCE_SCRIPT, words)


def ask_python(
    python: str,
    library: str,
    needs: str,
    script: str,
    words: Sequence[str],
    folder: str | None = None,
) -> Any:
    """The last line that `script` prints, as JSON, run in `folder` by --reference-python.

    Errors name the `library` that the script times, and what it `needs`.
    """
    # Symbolic links are not resolved: a virtual environment's Python is identified by its path.
    program = os.path.abspath(python) if os.sep in python else python
    command = [program, "-W", "ignore", "-c", script, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    except OSError as error:
        raise ValueError(f"--reference-python {python!r} cannot be run: {error}") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(
            f"--reference-python {python!r} could not run {library}: {last}. It needs {needs}"
        )
    return json.loads(done.stdout.strip().splitlines()[-1])
