"""Random words and values: an error that names what is wrong, and never a traceback."""

import json

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
from surefoot.core.config import from_dict, to_dict
from surefoot.envs.task import TASKS
from surefoot.learn.multiplier import MultiplierConfig
from surefoot.learn.ppo import PPOConfig
from surefoot.learn.sac import SACLearnerConfig
from surefoot.learn.trust_region import TrustRegionConfig
from surefoot.runs.folder import RunFolder
from surefoot.world.ensemble import EnsembleConfig
from surefoot.world.planner import PlannerConfig

NUMBERS = st.one_of(
    st.integers(-3, 3), st.floats(), st.just(10**30), st.none(), st.text(max_size=3), st.booleans(),
    st.tuples(st.integers(-2, 2)), st.lists(st.floats(), max_size=2),
)  # fmt: skip
KINDS = (
    PPOConfig, MultiplierConfig, EnsembleConfig, TrustRegionConfig, MBPPOConfig,
    PPOLagrangianConfig, TRPOLagrangianConfig, CPOConfig, SACLearnerConfig, SACConfig,
    SafeLoopConfig, PlannerConfig, *(type(TASKS[name].options) for name in TASKS),
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_configs_refuse_invalid_values_by_name(data):
    """A ValueError that names the field, or a config that survives config.json."""
    kind = data.draw(st.sampled_from(KINDS))
    name = data.draw(st.sampled_from(sorted(to_dict(kind()))))
    value = data.draw(NUMBERS)
    try:
        made = kind(**{name: value})
    except ValueError as error:
        assert name in str(error) or "extent=" in str(error)  # keepouts and extent go together
        return
    accepted = getattr(made, name)
    assert not (isinstance(accepted, float) and not np.isfinite(accepted))
    whole = isinstance(getattr(kind(), name), int)
    assert not isinstance(accepted, int | float) or abs(accepted) <= (10**12 if whole else 1e18)
    assert isinstance(accepted, type(getattr(kind(), name)) | int | float | type(None))
    assert from_dict(kind, json.loads(json.dumps(to_dict(made)))) == made


@pytest.mark.parametrize(
    ("kind", "field", "message"),
    [
        (MBPPOConfig, {"steps": 10**10}, r"steps=10000000000 must be .*at most 1,000,000,000\b"),
        (PPOLagrangianConfig, {"steps": 10**13}, r"steps=10{13} .*at most 1,000,000,000,000"),
        (MBPPOConfig, {"horizon": 10**10}, "horizon=10000000000 must be at most 1,000,000,000"),
        (PPOConfig, {"hidden": (8, 10**9)}, r"hidden=\(8, 1000000000\) must be .* 1,000,000\b"),
        (CPOConfig, {"cost_limit": (1e300,)}, r"cost_limit=\(1e\+300,\) must be at most"),
        (CPOConfig, {"cost_limit": (-1.0,)}, r"cost_limit=\(-1.0,\) must be at least 0"),
        (CPOConfig, {"cost_limit": 18.0}, "cost_limit=18.0 must be a tuple"),
        (PPOConfig, {"initial_log_std": 300.0}, "initial_log_std=300.0 must be .* at most 5"),
        (EnsembleConfig, {"activation": [1.0]}, "activation=.* must be one of 'silu', 'tanh'"),
        (EnsembleConfig, {"weight_decay": (1.0,)}, "weight_decay=.* a tuple of 2 finite numbers"),
    ],
)
def test_sizes_have_bounds(kind, field, message):
    with pytest.raises(ValueError, match=message):
        kind(**field)


def test_large_limits_are_accepted():
    """A limit of a billion means no limit, also as a whole number."""
    assert PPOLagrangianConfig(cost_limit=(10**9,), steps=10**11).cost_limit == (10**9,)


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
        "ppo", "--cost", "info:cost", "--loggers", "tensorboard", "nothere.py:make", "hazards=18",
        "CartPole-v1",
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
    """All words end in SystemExit with a code of 0, 1 or 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RunFolder, "new", staticmethod(nothing_more))
    monkeypatch.setattr(
        "surefoot.envs.render.film.save_clip", lambda frames, *_, **__: next(frames)
    )
    monkeypatch.setattr("surefoot.benchmark.env.fastest", nothing_more)
    monkeypatch.setattr("surefoot.benchmark.train.islice", nothing_more)
    monkeypatch.setattr("surefoot.benchmark.imagination.new_setup", nothing_more)
    monkeypatch.setattr("surefoot.benchmark.planner.plans_per_second", nothing_more)
    monkeypatch.setattr("surefoot.experiments.reproduce.run_blocks", nothing_more)
    monkeypatch.setattr("surefoot.experiments.reproduce.OnRay", nothing_more)
    with pytest.raises(SystemExit) as end:
        cli.main([*command.split(), *words])
    assert end.value.code in (0, 1, 2)
