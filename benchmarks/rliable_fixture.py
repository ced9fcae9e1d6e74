"""Write tests/data/rliable.json: what rliable says of fixed random scores.

Needs an environment of its own with rliable, which is not among Surefoot's dependencies:

    pip install rliable && python benchmarks/rliable_fixture.py tests/data/rliable.json
"""

import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rliable import library, metrics

REPETITIONS = 50_000
rng = np.random.default_rng(7)
# Eight runs on three tasks of different level and spread, and six runs of a weaker algorithm.
ours = (rng.normal((0.9, 0.6, 1.2), (0.1, 0.3, 0.4), (8, 3))).round(3)
theirs = (rng.normal((0.8, 0.6, 0.9), (0.2, 0.2, 0.5), (6, 3))).round(3)
theirs[0] = ours[0]  # ties
levels = np.linspace(0, 2, 9)
aggregates = lambda x: np.array(
    [
        metrics.aggregate_mean(x),
        metrics.aggregate_median(x),
        metrics.aggregate_iqm(x),
        metrics.aggregate_optimality_gap(x),
    ]
)
improvement = lambda x, y: np.array([metrics.probability_of_improvement(x, y)])


def intervals(scores, statistic):
    """Point estimates and 95 % intervals [2, n]."""
    point, interval = library.get_interval_estimates(
        {"a": scores}, statistic, reps=REPETITIONS, random_state=np.random.RandomState(1)
    )
    return point["a"].tolist(), interval["a"].tolist()


aggregate, aggregate_interval = intervals(ours, aggregates)
better, better_interval = intervals((ours, theirs), improvement)
profiles, profile_intervals = library.create_performance_profile(
    {"ours": ours}, levels, reps=REPETITIONS
)
found = {
    "made by": {name: version(name) for name in ("rliable", "numpy", "scipy", "arch")}
    | {"python": platform.python_version(), "repetitions": REPETITIONS},
    "ours": ours.tolist(),
    "theirs": theirs.tolist(),
    "aggregates": ["mean", "median", "iqm", "optimality_gap"],
    "aggregate": aggregate,
    "aggregate_interval": aggregate_interval,
    "improvement": better,
    "improvement_interval": better_interval,
    "levels": levels.tolist(),
    "profile": profiles["ours"].tolist(),
    "profile_interval": profile_intervals["ours"].tolist(),
}
Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")
