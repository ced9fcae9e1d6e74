"""Statistics over seeds and tasks: by hand, by other means, and beside rliable's."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from surefoot.report import statistics

FIXTURE = json.loads((Path(__file__).parent / "data" / "rliable.json").read_text())
OURS, THEIRS = np.array(FIXTURE["ours"]), np.array(FIXTURE["theirs"])
LEVELS = np.array(FIXTURE["levels"])
# Of 50,000 repetitions there and as many here, on scores with a spread of a few tenths.
MONTE_CARLO = 0.006


@pytest.mark.parametrize("number, name", list(enumerate(FIXTURE["aggregates"])))
def test_aggregates_and_their_intervals_are_rliables(number, name):
    function = getattr(statistics, name)
    assert function(OURS) == pytest.approx(FIXTURE["aggregate"][number], abs=1e-12)
    found = statistics.interval(function, OURS, resamples=50_000)
    expected = np.array(FIXTURE["aggregate_interval"])[:, number]
    np.testing.assert_allclose(found, expected, atol=MONTE_CARLO)


def test_probability_of_improvement_is_rliables():
    found = statistics.probability_of_improvement(OURS, THEIRS)
    assert found == pytest.approx(FIXTURE["improvement"][0], abs=1e-12)
    found = statistics.interval(
        statistics.probability_of_improvement, OURS, THEIRS, resamples=50_000
    )
    expected = np.array(FIXTURE["improvement_interval"])[:, 0]
    np.testing.assert_allclose(found, expected, atol=MONTE_CARLO)


def test_performance_profile_is_rliables():
    found = statistics.profile(OURS, LEVELS)
    np.testing.assert_allclose(found, FIXTURE["profile"], atol=1e-12)
    of = lambda scores: statistics.profile(scores, LEVELS)
    low, high = statistics.interval(of, OURS, resamples=20_000)
    # A share of 24 runs moves in steps of 1/24, so a percentile may lie one step aside.
    np.testing.assert_allclose([low, high], FIXTURE["profile_interval"], atol=1 / 24 + 1e-9)


def test_aggregates_by_hand():
    scores = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 3.0], [10.0, 7.0]])
    assert statistics.mean(scores) == pytest.approx((4 + 3) / 2)
    assert statistics.median(scores) == pytest.approx(3.5)
    # Sorted: 0 1 1 2 3 4 7 10; the middle half is 1 2 3 4.
    assert statistics.iqm(scores) == pytest.approx(2.5)
    # Short of 2 by 2, 0, 0, 0 on the first task and by 1, 1, 0, 0 on the second.
    assert statistics.optimality_gap(scores, 2.0) == pytest.approx((0.5 + 0.5) / 2)
    np.testing.assert_allclose(statistics.profile(scores, np.array([1.0, 3.5])), [5 / 8, 3 / 8])


def test_tasks_may_have_different_numbers_of_runs():
    scores = [np.array([1.0, 3.0]), np.array([6.0]), np.array([0.0, 0.0, 3.0])]
    assert statistics.mean(scores) == pytest.approx((2 + 6 + 1) / 3)
    assert statistics.median(scores) == pytest.approx(2)
    assert statistics.iqm(scores) == pytest.approx((0 + 1 + 3 + 3) / 4)
    low, high = statistics.interval(statistics.mean, scores)
    assert np.isnan(low) and np.isnan(high), "a single run tells nothing of its spread"
    assert np.isnan(statistics.interval(statistics.mean, np.array([[1.0], [np.nan]]))).all()


def test_improvement_is_mann_and_whitneys():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, (7, 2)).astype(float), rng.integers(0, 5, (4, 2)).astype(float)
    expected = np.mean([mannwhitneyu(x[:, t], y[:, t]).statistic / 28 for t in range(2)])
    assert statistics.probability_of_improvement(x, y) == pytest.approx(expected)
    assert statistics.probability_of_improvement(y, x) == pytest.approx(1 - expected)


def test_interval_of_all_resamples():
    """Two tasks of two runs have 16 resamples, which can be written out."""
    scores = np.array([[0.0, 10.0], [1.0, 30.0]])
    resampled = [(a + b) / 2 for a, b in product([0, 0.5, 0.5, 1], [10, 20, 20, 30])]
    low, high = statistics.interval(statistics.mean, scores, confidence=0.8)
    assert (low, high) == tuple(np.percentile(resampled, (10, 90), method="inverted_cdf"))


def test_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(3)
    hits = 0
    for number in range(200):
        drawn = rng.normal(1.0, 0.5, (30, 1))
        low, high = statistics.interval(statistics.mean, drawn, resamples=500, seed=number)
        hits += low <= 1.0 <= high
    assert 0.88 <= hits / 200 <= 0.99


def test_intervals_are_the_same_twice_and_follow_the_seed():
    once, again, other = (statistics.interval(statistics.iqm, OURS, seed=s) for s in (0, 0, 1))
    assert once == again != other


def test_band_of_curves():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(3, 200)) + np.array([[0.0], [5.0], [9.0]])
    low, high = statistics.band(values)
    # The mean of 200 has a normal spread of std / sqrt(200).
    half = 1.96 * values.std(1) / np.sqrt(200)
    np.testing.assert_allclose(low, values.mean(1) - half, atol=0.02)
    np.testing.assert_allclose(high, values.mean(1) + half, atol=0.02)
    assert np.isnan(statistics.band(values[:, :1])).all()


def test_share_within_the_limit():
    assert statistics.share_within(np.array([[18.0, 18.1], [0.0, np.nan]]), 18.0) == 2 / 3
    assert np.isnan(statistics.share_within(np.array([np.nan]), 18.0))


def test_scores_of_a_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"shape \(3,\) must have the shape \[runs, tasks\]"):
        statistics.iqm(np.zeros(3))
