"""The speed of imagination; one state at a time gives the same steps as many together."""

import json
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from harness import TINY
from linear_world import ACTIONS, PUSH, REWARD, TASK_MODEL, TURN, cost_of, model, system
from surefoot.algorithms.trainer import Problem
from surefoot.benchmark import imagination as benchmark_imagination
from surefoot.benchmark import timing
from surefoot.runs.setup import new_setup


def test_one_state_at_a_time_is_the_same_world():
    """All members but the elite promise nonsense."""
    nonsense = 1e3 * np.ones((3, 5))
    ensemble = eqx.tree_at(lambda e: e.elites, model(nonsense, system(), nonsense), jnp.array([1]))
    problem = Problem((0,), 1, 20, 2, ACTIONS, ("cost",), TASK_MODEL)
    policy = SimpleNamespace(sample=lambda obs, key: obs[:, :1] - obs[:, 1:])
    now, s, key = jnp.array([0.4, -0.7]), np.array([0.4, -0.7]), jax.random.key(0)
    step = jax.jit(lambda *args: benchmark_imagination.one_step(problem, policy, *args))
    for _ in range(5):
        now, reward, cost, key = step(ensemble, now, key)
        x = np.append(s, np.clip(s[0] - s[1], -0.5, 0.5))
        s = s @ TURN + x[2] * PUSH
        np.testing.assert_allclose(now, s, atol=1e-5)
        np.testing.assert_allclose([reward, cost[0]], [x @ REWARD, cost_of(x)], atol=1e-5)


def test_benchmark_imagination_as_a_user_types_it(call, monkeypatch):
    requests = []

    def tiny_setup(task, algorithm, preset, device, seeds, config, changes, options):
        requests.append((task, algorithm, preset, device))
        return new_setup(task, algorithm, preset, device, seeds, TINY[algorithm], changes, options)

    monkeypatch.setattr(benchmark_imagination, "new_setup", tiny_setup)
    monkeypatch.setattr(timing, "SECONDS", 0.05)
    monkeypatch.setattr(timing, "WINDOWS", 2)
    code, out, err = call("benchmark", "imagination", "--json")
    assert code == 0 and not err
    row = json.loads(out)
    assert requests == [("PointGoal", "mbppo-lagrangian", "default", jax.default_backend())]
    assert row["members"] == 3 and "12 rollouts of 5 steps" in row["together"]
    both = row["steps_per_second"], row["one_at_a_time_steps_per_second"]
    assert row["ratio"] == both[0] / both[1] and min(both) > 0
    assert "all 3 networks evaluated" in row["one_at_a_time"]
    code, _, err = call("benchmark", "imagination", "--task=PointGaol")
    assert code == 2 and "did you mean PointGoal" in err


def test_the_fastest_window_counts(monkeypatch):
    """Calls of 2, 4, 1 and 3 seconds in windows of one call each; the first one compiles."""
    clock, calls = [0.0], iter((9.0, 2.0, 4.0, 1.0, 3.0))

    def call():
        clock[0] += next(calls)

    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(timing, "SECONDS", 4.0)
    monkeypatch.setattr(timing, "WINDOWS", 4)
    assert timing.fastest(call) == 1.0
