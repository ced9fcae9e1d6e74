"""Any words and any values: a sentence, and never a traceback."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import nothing_more
from surefoot import cli
from surefoot.algorithms.cpo import CPOConfig
from surefoot.algorithms.mbppo_config import MBPPOConfig
from surefoot.algorithms.ppo_lagrangian import PPOLagrangianConfig
from surefoot.algorithms.sac import SACConfig
from surefoot.algorithms.safe_loop import SafeLoopConfig
from surefoot.algorithms.trpo_lagrangian import TRPOLagrangianConfig
from surefoot.envs.task import TASKS
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.learn.sac import SACLearnerConfig
from surefoot.learn.trust_region import TrustRegionConfig
from surefoot.runs.folder import RunFolder, config_dict
from surefoot.world.ensemble import EnsembleConfig

NUMBERS = st.one_of(
    st.integers(-3, 3), st.floats(), st.just(10**30), st.none(), st.text(max_size=3), st.booleans(),
    st.tuples(st.integers(-2, 2)), st.lists(st.floats(), max_size=2),
)  # fmt: skip
KINDS = (
    PPOConfig, MultiplierConfig, EnsembleConfig, TrustRegionConfig, MBPPOConfig,
    PPOLagrangianConfig, TRPOLagrangianConfig, CPOConfig, SACLearnerConfig, SACConfig,
    SafeLoopConfig,
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_no_config_takes_nonsense_or_breaks_down_over_it(data):
    """A ValueError that names the field, or a config that survives being written down."""
    kind = data.draw(st.sampled_from((*KINDS, *(type(t.defaults) for t in TASKS.values()))))
    name = data.draw(st.sampled_from(sorted(config_dict(kind()))))
    value = data.draw(NUMBERS)
    try:
        made = kind(**{name: value})
    except ValueError as error:
        assert name in str(error) or "extent=" in str(error)  # keepouts and extent go together
        return
    taken = getattr(made, name)
    assert not (isinstance(taken, float) and not np.isfinite(taken))
    whole = isinstance(getattr(kind(), name), int)
    assert not isinstance(taken, int | float) or abs(taken) <= (10**12 if whole else 1e18)
    assert isinstance(taken, type(getattr(kind(), name)) | int | float | type(None))


@pytest.mark.parametrize(
    ("kind", "field", "message"),
    [
        (MBPPOConfig, {"steps": 10**10}, r"steps=10000000000 must be at most 1,000,000,000"),
        (PPOLagrangianConfig, {"steps": 10**13}, "must be at most 1,000,000,000,000"),
        (MBPPOConfig, {"horizon": 10**7}, "horizon=10000000 must be at most 1,000,000"),
        (
            PPOConfig,
            {"hidden": (8, 10**9)},
            r"hidden=\(8, 1000000000\) must be .* 1,000,000",
        ),
        (CPOConfig, {"cost_limit": 1e300}, r"cost_limit=1e\+300 must be at most"),
        (
            PPOConfig,
            {"initial_log_std": 300.0},
            "initial_log_std=300.0 must be .* at most 5",
        ),
        (EnsembleConfig, {"activation": [1.0]}, "activation=.* must be one of 'silu', 'tanh'"),
        (EnsembleConfig, {"weight_decay": (1.0,)}, "weight_decay=.* a tuple of 2 finite numbers"),
    ],
)
def test_sizes_have_bounds(kind, field, message):
    with pytest.raises(ValueError, match=message):
        kind(**field)


def test_large_limits_are_taken_as_they_are():
    """A limit of a billion means none, also as a whole number."""
    assert PPOLagrangianConfig(cost_limit=10**9, steps=10**11).cost_limit == 10**9


WORDS = st.one_of(
    st.sampled_from([
        "train", "resume", "runs", "show", "evaluate", "export", "envs", "PointGoal", "RCCar",
        "--steps", "--ppo.clip", "--ensemble.hidden", "--seeds", "--env", "hazards=-1", "level=9",
        "extent=nan", "radius=[]", "--out", "--algorithm", "cpo", "--preset", "paper", "--keep",
        "--checkpoint-every", "nan", "-1", "0", "1e9", "--json", "--multiplier", "pid", "--device",
        "gpu", "--help", "--quiet", "--rollouts", "7", "num_envs=2", "task=1", "--observation",
        "ego", "--which", "--size", "--every", "--view", "camera", "--tasks", "--num-envs",
        "--threads", "--epochs", "--cost-limit", "--policy", "still", "x.gif", "x.npz", "run",
        "--scale", "--runs", "--jobs", "--on", "ray", "--plan", "filter", "--planner.hold",
        "--report-only", "--episodes", "--seed", str(10**30), "--horizon", ".", "--constrained",
        "ppo",
    ]),
    st.text(max_size=6),
)  # fmt: skip
COMMANDS = [
    "train", "train PointGoal", "resume", "show", "runs", "evaluate", "diagnose", "export", "watch",
    "watch RCCar --steps 1", "parity", "benchmark env", "benchmark train", "benchmark imagination",
    "benchmark planner", "compare", "reproduce", "reproduce smoke", "evaluate run --plan",
]  # fmt: skip


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(command=st.sampled_from(COMMANDS), words=st.lists(WORDS, max_size=6))
def test_no_command_line_ends_in_a_traceback(command, words, monkeypatch, tmp_path):
    """Nothing but SystemExit, with a code of 0, 1 or 2, comes out of any words."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RunFolder, "new", staticmethod(nothing_more))
    monkeypatch.setattr(
        "surefoot.envs.render.film.save_clip", lambda frames, *_, **__: next(frames)
    )
    monkeypatch.setattr("surefoot.benchmark.env._best", nothing_more)
    monkeypatch.setattr("surefoot.benchmark.train.islice", nothing_more)
    monkeypatch.setattr("surefoot.benchmark.imagination.task_model", nothing_more)
    monkeypatch.setattr("surefoot.benchmark.planner.plans_per_second", nothing_more)
    monkeypatch.setattr("surefoot.experiments.reproduce.run_blocks", nothing_more)
    monkeypatch.setattr("surefoot.experiments.reproduce.OnRay", nothing_more)
    with pytest.raises(SystemExit) as end:
        cli.main([*command.split(), *words])
    assert end.value.code in (0, 1, 2)
