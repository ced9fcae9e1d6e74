"""How long training will take: parts timed in small, and multiplied."""

from dataclasses import replace

import pytest

from surefoot.benchmark.parts import SMALL
from surefoot.runs.setup import new_setup
from surefoot.use import forecast
from surefoot.use.programs import Part


def test_the_parts_add_up_to_the_whole_training(monkeypatch):
    parts = []

    def one_microsecond(part):
        parts.append(part)
        return 1e-6

    monkeypatch.setattr(forecast, "seconds_each", one_microsecond)
    config = replace(SMALL, steps=6_000, episodes=4, passes=10)
    setup = new_setup("PointGoal", None, "", "cpu", [0], config, {}, {"max_episode_steps": 300})
    problem = setup.problem(setup.make_envs(1), 1)
    seconds = forecast.learning_seconds(setup.config, problem)
    # 5 epochs of 10 passes of 96 rollouts of 20 steps, each imagined and learned from, and 5 fits
    # of 40 gradient steps.
    assert seconds == pytest.approx(1e-6 * (5 * 10 * 96 * 20 * 2 + 5 * 40))
    # The timed programs are short rollouts, their update, and a fit.
    assert [(part.count, part.unit) for part in parts] == [
        (96 * forecast.LENGTH, "imagined steps"),
        (96 * forecast.LENGTH, "imagined steps"),
        (forecast.GRADIENT_STEPS, "gradient steps"),
    ]
    for part in parts:
        part.call()


def test_the_fastest_of_some_calls_counts(monkeypatch):
    clock = iter([0.0, 8.0, 10.0, 14.0, 20.0, 26.0])
    monkeypatch.setattr(forecast.time, "perf_counter", lambda: next(clock))
    assert forecast.seconds_each(Part(lambda: None, 16, "steps", lambda: 0)) == 4.0 / 16
