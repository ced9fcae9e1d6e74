"""All parts of training against a fixed loop on the same machine: a guard against slower versions.

A ratio says how much a part does while the loop runs once, on a CPU in processor time. It hardly
depends on the machine, so a ratio far below the recorded one is a regression.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from surefoot import __version__
from surefoot.algorithms.planning import DEFAULT as PLANNER
from surefoot.algorithms.safe_loop import SafeLoopConfig
from surefoot.benchmark.env import random_actions
from surefoot.benchmark.parts import SMALL, TASK, Parts
from surefoot.benchmark.planner import plan_call
from surefoot.benchmark.timing import Row, alternate, work_clock
from surefoot.envs.task import make
from surefoot.learn.sac import SACLearnerConfig
from surefoot.runs.device import device_name
from surefoot.use.programs import Part

FLOOR = 1 / 3
"""Share of the recorded ratio below which a part counts as slower."""
NUM_ENVS = 16
ROWS = 2_000
LOOPS = 100


def host_loop() -> None:
    """The reference for numpy and MuJoCo."""
    x = np.full((64, 64), 0.01, np.float32)
    for _ in range(LOOPS):
        x = np.tanh(x @ x + 0.01)


def device_loop() -> Callable[[], object]:
    """The reference for compiled programs."""
    body = lambda _, x: jnp.tanh(x @ x + 0.01)
    program = jax.jit(lambda x: jax.lax.fori_loop(0, LOOPS, body, x))
    x = jnp.full((64, 64), 0.01)
    return lambda: jax.block_until_ready(program(x))


def benchmark(recorded: Mapping[str, float]) -> Iterator[Row]:
    """One row per part; with a `recorded` ratio, also the share of it that is reached."""
    on_device = device_loop()
    for name, part, reference in _parts(on_device):
        seconds, loop = alternate(part.call, reference, clock=work_clock())
        rate = part.count / seconds
        row: Row = {
            "part": name,
            "unit": part.unit,
            "per_second": rate,
            "loops_per_second": 1 / loop,
            "ratio": rate * loop,
            "device": device_name(),
        }
        if name in recorded:
            row |= {"recorded": recorded[name], "share": rate * loop / recorded[name]}
        yield row


def slower(rows: Sequence[Row]) -> list[str]:
    """The parts that reach less than FLOOR of the recorded ratio."""
    return [str(row["part"]) for row in rows if float(str(row.get("share", 1))) < FLOOR]


def _parts(on_device: Callable[[], object]) -> Iterator[tuple[str, Part, Callable[[], object]]]:
    nothing = lambda: 0
    env = make(TASK, num_envs=NUM_ENVS, seed=0, threads=1)
    env.reset()
    actions = random_actions(env)
    step = lambda: [env.step(action) for action in actions]
    yield "envs", Part(step, len(actions) * NUM_ENVS, "real steps", nothing), host_loop
    parts = Parts(SMALL)
    yield "collect", parts.collect(NUM_ENVS), host_loop
    yield "fit", parts.fit(ROWS), on_device
    imagination, update = parts.imagination()
    yield "imagination", imagination, on_device
    yield "update", update, on_device
    config = SafeLoopConfig(
        model=SMALL.model, planner=PLANNER, ensemble=SMALL.ensemble,
        sac=SACLearnerConfig(hidden=(64, 64)),
    )  # fmt: skip
    plan = plan_call(config, parts.problem.task_model, parts.problem.actions, 1)
    yield "planner", Part(plan, 1, "plans", nothing), on_device


def read_history(path: Path) -> list[Row]:
    """The recorded measurements, oldest first; none if there is no such file."""
    return json.loads(path.read_text()) if path.exists() else []


def last_ratios(history: Sequence[Row]) -> Mapping[str, float]:
    """The ratios that were recorded last on this kind of device."""
    same = [entry for entry in history if entry["backend"] == jax.default_backend()]
    ratios = same[-1]["ratios"] if same else {}
    assert isinstance(ratios, dict)
    return ratios


def record(path: Path, history: Sequence[Row], rows: Sequence[Row]) -> None:
    """Append a measurement to the history."""
    entry: Row = {
        "version": __version__,
        "date": time.strftime("%Y-%m-%d"),
        "backend": jax.default_backend(),
        "device": device_name(),
        "ratios": {str(row["part"]): row["ratio"] for row in rows},
    }
    path.write_text(json.dumps([*history, entry], indent=1) + "\n")
