"""Steps per second of the environments, and of others on the same machine."""

import sys
from collections.abc import Iterator, Sequence
from itertools import product
from tempfile import TemporaryDirectory

import gymnasium
import numpy as np

from surefoot.benchmark import timing
from surefoot.benchmark.timing import Row, ask_python, fastest
from surefoot.envs.task import FAMILY, FAMILY_ROBOTS, find_task, make

FAMILY_NAMES = {f"{r}{t}{k}" for r in FAMILY_ROBOTS for t, n in FAMILY.items() for k in range(n)}
CALLS = 8
"""Steps that are timed together."""
# In safety-gymnasium. Without vases and with 15 hazards, level 2 is the paper's task.
PAPER_TASKS = {"PointGoal": "PointGoal2", "CarGoal": "CarGoal2", "DoggoGoal": "DoggoGoal2"}

# Runs under the reference's Python. Prints one JSON object: seconds per step and per reset, and the
# mean length of random episodes if they end before their limit, as Ant's do.
REFERENCE_SCRIPT = """
import json, sys, time
import safety_gymnasium
from safety_gymnasium.tasks.safe_navigation.goal.goal_level2 import GoalLevel2
def init(self, config, _init=GoalLevel2.__init__):
    _init(self, config)
    self.hazards.num = 15
    self.vases.num, self.vases.is_lidar_observed, self.vases.is_constrained = 0, False, False
    self.num_steps = 750
if sys.argv[3] == 'paper':
    GoalLevel2.__init__ = init
env = safety_gymnasium.make('Safety' + sys.argv[1] + '-v0')
env.reset(seed=0)
env.action_space.seed(0)
chunk, times, resets, lengths, length = 25, [], [], [], 0
def reset():
    t = time.perf_counter()
    env.reset()
    resets.append(time.perf_counter() - t)
for i in range(int(sys.argv[2]) // chunk):
    actions = [env.action_space.sample() for _ in range(chunk)]
    t = time.perf_counter()
    for k, action in enumerate(actions):
        ended = env.step(action)[3]
        if ended:
            break
    times.append((time.perf_counter() - t) / (k + 1))
    length += k + 1
    if ended:
        lengths.append(length)
        length = 0
        if len(lengths) == 8:
            break
        reset()
while len(resets) < 3:
    reset()
mean = sum(lengths) / len(lengths) if lengths else None
print(json.dumps({'step': min(times), 'reset': min(resets), 'length': mean}))
"""

GYMNASIUM_SCRIPT = """
import json, sys
import gymnasium
from surefoot.benchmark import env, timing
name, num_envs, timing.SECONDS = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
rates = {}
for mode in ('sync', 'async'):
    kwargs = {'autoreset_mode': gymnasium.vector.AutoresetMode.SAME_STEP}
    envs = gymnasium.make_vec(name, num_envs, vectorization_mode=mode, vector_kwargs=kwargs)
    envs.reset(seed=0)
    actions = env.random_actions(envs)
    seconds = timing.fastest(lambda: [envs.step(action) for action in actions])
    rates[f'gymnasium_{mode}_steps_per_second'] = len(actions) * num_envs / seconds
    envs.close()
print(json.dumps(rates))
"""


def steps_per_second(task: str, num_envs: int, threads: int) -> tuple[float, float | None]:
    """Steps per second under random actions, auto-resets included, and the overhead.

    The overhead is the time beyond that of the physics engine alone, as a fraction; None for tasks
    without an engine.
    """
    env = make(task, num_envs=num_envs, seed=0, threads=threads)
    env.reset()
    # Episodes end at different times, as in training.
    env.elapsed[:] = np.arange(num_envs) * env.max_episode_steps // num_envs
    actions = random_actions(env)
    complete = fastest(lambda: [env.step(action) for action in actions])
    rate, physics = CALLS * num_envs / complete, env.physics()
    if physics is None:
        return rate, None
    return rate, complete / fastest(lambda: [physics(action) for action in actions]) - 1


def random_actions(env: gymnasium.vector.VectorEnv) -> np.ndarray:
    """Actions of all environments for CALLS steps, within their bounds."""
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    rng = np.random.default_rng(0)
    return rng.uniform(space.low, space.high, (CALLS, *space.shape)).astype(space.dtype)


def benchmark(
    tasks: Sequence[str],
    num_envs: Sequence[int],
    threads: Sequence[int],
    reference: str | None,
    with_gymnasium: bool = False,
) -> Iterator[Row]:
    """One row per task, number of environments and threads.

    Other environments are timed in the same run: the reference, under the Python `reference`, and
    Gymnasium's own of the same robot.
    """
    for name in tasks:
        find_task(name)  # report unknown names before the first measurement
    for name in tasks:
        known = name in PAPER_TASKS or name in FAMILY_NAMES
        base = _time_reference(name, reference) if reference and known else {}
        theirs = name.replace("Velocity", "-v5") if with_gymnasium and "Velocity" in name else ""
        others = {n: _time_gymnasium(theirs, n) for n in num_envs if theirs}
        for n, t in product(num_envs, threads):
            rate, overhead = steps_per_second(name, n, t)
            row: Row = {"task": name, "num_envs": n, "threads": t, "steps_per_second": rate}
            row |= {"overhead_beyond_physics": overhead, **base}
            if base:
                row["ratio"] = rate / base["reference_steps_per_second"]
                row["ratio_with_resets"] = rate / base["reference_with_resets"]
            if theirs:
                row |= others[n] | {"times": rate / max(others[n].values())}
            yield row


def _time_gymnasium(name: str, num_envs: int) -> dict[str, float]:
    """Steps per second of Gymnasium's vector environments, one after the other and as processes.

    In a process and folder of their own: MuJoCo writes warnings of the half-cheetah's file there.
    """
    words = [name, str(num_envs), str(timing.SECONDS)]
    with TemporaryDirectory() as folder:
        return ask_python(sys.executable, "gymnasium", "MuJoCo", GYMNASIUM_SCRIPT, words, folder)


def _time_reference(task: str, python: str) -> dict[str, float]:
    """Steps per second of the reference, without and with the resets between episodes."""
    needs = "Python 3.10 with safety-gymnasium installed"
    words = [PAPER_TASKS.get(task, task), "700", "paper" if task in PAPER_TASKS else "stock"]
    seconds = ask_python(python, "safety-gymnasium", needs, REFERENCE_SCRIPT, words)
    steps = seconds["length"] or find_task(task).options.max_episode_steps
    return {
        "reference_steps_per_second": 1 / seconds["step"],
        "reference_with_resets": steps / (steps * seconds["step"] + seconds["reset"]),
        "reference_episode_steps": steps,
    }
