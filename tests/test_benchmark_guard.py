"""`surefoot benchmark all` and `growth`: ratios that compare versions, and exponents."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import TINY
from surefoot.benchmark import growth, parts, profile, suite, timing
from surefoot.core.config import flat
from surefoot.runs.setup import new_setup

HISTORY = Path(__file__).parents[1] / "docs" / "benchmarks.json"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(timing, "SECONDS", 0.02)
    monkeypatch.setattr(timing, "WINDOWS", 2)


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only where a call says so."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(timing.time, "process_time", lambda: now[0])

    def taking(seconds: float):
        def call():
            now[0] += seconds

        return call

    return taking


def test_ratios_are_recorded_and_checked(call, clock, monkeypatch, tmp_path):
    """A part that does 6 steps in 2 s, against a loop of 4 s: 12 steps per loop."""
    history = tmp_path / "benchmarks.json"

    def measure(seconds: float, *words: str):
        part = parts.Part(clock(seconds), 6, "steps", lambda: 0)
        monkeypatch.setattr(suite, "_parts", lambda _: [("work", part, clock(4.0))])
        code, out, err = call("benchmark", "all", "--json", f"--history={history}", *words)
        return code, json.loads(out)[0], err

    code, row, err = measure(2.0, "--check", "--record")
    assert code == 0 and not err and "share" not in row
    assert (row["per_second"], row["loops_per_second"], row["ratio"]) == (3.0, 0.25, 12.0)
    (entry,) = json.loads(history.read_text())
    assert entry["ratios"] == {"work": 12.0} and entry["backend"] == "cpu"
    code, row, err = measure(5.9, "--check")
    assert code == 0 and row["recorded"] == 12.0 and row["share"] == pytest.approx(2 / 5.9)
    code, row, err = measure(6.1, "--check")
    assert code == 1 and "below a third of the recorded ratio: work" in err
    assert measure(6.1)[0] == 0
    measure(1.0, "--record")
    assert [e["ratios"]["work"] for e in json.loads(history.read_text())] == [12.0, 24.0]
    other = json.loads(history.read_text()) + [{"backend": "gpu", "ratios": {"work": 1e9}}]
    history.write_text(json.dumps(other))
    assert measure(1.0)[1]["share"] == 1.0


def test_windows_alternate(clock):
    assert timing.alternate(clock(3.0), clock(2.0)) == [3.0, 2.0]


def test_the_committed_history_has_every_part(monkeypatch):
    """So that no part escapes the guard."""
    part = parts.Part(lambda: None, 1, "x", lambda: 0)
    fake = SimpleNamespace(
        collect=lambda n: part, fit=lambda n: part, imagination=lambda: (part, part),
        problem=SimpleNamespace(task_model=None, actions=None),
    )  # fmt: skip
    monkeypatch.setattr(suite, "Parts", lambda config: fake)
    monkeypatch.setattr(suite, "plan_call", lambda *_: part.call)
    names = {name for name, _, _ in suite._parts(part.call)}
    recorded = suite.last_ratios(suite.read_history(HISTORY))
    assert len(names) == 6 and set(recorded) == names and min(recorded.values()) > 0


@pytest.mark.slow
def test_parts_do_what_they_count():
    tiny = replace(TINY["mbppo-lagrangian"], gate="none", carry=0.0, replay_share=0.0)
    some = parts.Parts(tiny, seeds=2)  # which the tests of resuming compile too
    collect, fit, practise = some.collect(3), some.fit(50), some.practise()
    assert (collect.count, fit.count, practise.count) == (2 * 3 * 20, 2 * 20, 2 * 12 * 5)
    assert collect.call().steps == 3 * 20
    _, metrics = fit.call()
    assert metrics.epochs.shape == (2,)
    _, _, metrics = practise.call()
    assert metrics["imagined_reward"].shape == (2,)
    data = 2 * 50 * (5 + 6) * 4
    assert fit.memory() > data and practise.memory() > 1000
    assert 10_000 < collect.memory() < 10_000_000


def test_growth_is_measured_and_drawn(call, tmp_path, monkeypatch):
    monkeypatch.setattr(growth, "SMALL", TINY["mbppo-lagrangian"])
    figure = tmp_path / "growth.png"
    words = ("--quantities", "environments", "--sizes", "4", "2", f"--out={figure}", "--json")
    code, out, _ = call("benchmark", "growth", *words)
    small, large = json.loads(out)
    assert code in (0, 1) and figure.stat().st_size > 5000
    assert [small["size"], large["size"]] == [2, 4] and "exponent" not in small
    assert large["bytes"] > small["bytes"] and {"exponent", "bytes_exponent"} <= large.keys()
    code, _, err = call("benchmark", "growth", "--quantities", "seed")
    assert code == 2 and "quantity='seed' must be one of seeds, rollouts" in err


def test_exponents_tell_linear_from_quadratic(clock, monkeypatch):
    monkeypatch.setattr(
        growth, "_part", lambda base, q, n: parts.Part(clock(n**2 / 1e3), n, "x", lambda: 7 * n)
    )
    rows = list(growth.benchmark(None, ["seeds"]))
    assert [row["size"] for row in rows] == [1, 8, 64]
    assert [row["exponent"] for row in rows[1:]] == pytest.approx([2.0, 2.0])
    assert [row["bytes_exponent"] for row in rows[1:]] == pytest.approx([1.0, 1.0])
    assert growth.worse_than_linear(rows) == rows[1:]


@pytest.mark.parametrize(
    "task", ["HalfCheetahVelocity", "examples/forbidden_disc.py:ForbiddenDisc"]
)
def test_profile_has_the_sizes_of_a_training(task, monkeypatch):
    """Also where they follow the environment's shape, and where a task has no limit of its own."""
    used = []
    monkeypatch.setattr(profile, "Parts", lambda config, *_: used.append(config) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(profile.benchmark(task))
    name = "mbppo-lagrangian"
    setup = new_setup(task, name, "default", "cpu", (0,), None, {}, {}, cost_limit=1.0)
    found, expected = flat(used[0]), flat(setup.config)
    for name in ("episodes", "rollouts", "horizon", "passes", "ensemble.hidden"):
        assert found[name] == expected[name]
    assert found["cost_limit"] == (() if "Half" in task else (1.0,))


@pytest.mark.slow
def test_profile_measures_an_epoch_and_its_parts(call, monkeypatch):
    tiny = TINY["mbppo-lagrangian"]
    monkeypatch.setattr(profile, "preset_config", lambda *_: tiny)
    code, out, _ = call("benchmark", "profile", "--seeds", "2", "--json")
    rows = json.loads(out)
    assert code == 0 and all(row["seconds"] > 0 < row["compile_seconds"] for row in rows)
    epoch, parts_of_a_pass = rows[:3], rows[3:]
    assert [row["part"] for row in epoch] == [
        "real episodes",
        "fit of the model",
        "pass of practice",
    ]
    assert [row["calls"] for row in epoch] == [750 / 20, 1, tiny.passes]
    assert sum(row["share"] for row in epoch) == pytest.approx(1)
    total = sum(row["calls"] * row["seconds"] for row in epoch)
    for row in rows:
        assert row["share"] == pytest.approx(row["calls"] * row["seconds"] / total)
    names = [row["part"] for row in parts_of_a_pass]
    assert [name.strip() for name in names if not name.startswith("    ")] == [
        "rollouts", "advantages", "update of the policy", "update of the critics",
    ]  # fmt: skip
    code, out, _ = call("benchmark", "profile", "--seeds", "2")
    assert code == 0 and out.startswith("PointGoal, default, seeds: 2, cpu")
    assert len(out.splitlines()) == 2 + len(rows)
