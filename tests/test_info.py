"""config.json: what it records, and records of earlier versions."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness import TINY
from surefoot.core.config import to_dict
from surefoot.runs.checkpoint import Damaged
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import FORMAT, RunInfo, algorithm_of, config_of, parse_info, read_info

RESULTS = Path(__file__).parent.parent / "docs" / "results"
RUNS = sorted(path.parent for path in RESULTS.rglob("config.json"))
INFO = RunInfo(
    version="0.1.0", task="PointGoal", task_name="PointGoal", task_options={}, algorithm="ppo",
    preset="custom", seeds=[0], device="cpu", started="2026-01-01 00:00:00",
    config=to_dict(TINY["ppo"]), cost_limits={"hazards": 1.0},
)  # fmt: skip


def test_there_are_results_of_earlier_versions():
    assert len(RUNS) > 50


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_every_published_run_can_be_read(run):
    values = json.loads((run / "config.json").read_text())
    info = read_info(RunFolder(run))
    assert info.format == FORMAT
    assert (info.task, info.seeds) == (values["task"], values["seeds"])
    assert info.steps == values["config"]["steps"] and info.known == values.get("known", [])
    config = config_of(info, run)
    assert type(config) is algorithm_of(info).config and config.steps == info.steps
    limit = values["config"]["cost_limit"]
    assert (info.cost_limit,) == config.cost_limit == (limit[0] if "format" in values else limit,)


def test_a_record_survives_json():
    values = json.loads(json.dumps(INFO.to_dict()))
    info = parse_info(values, Path("config.json"))
    assert replace(info, config=INFO.config) == INFO
    assert config_of(info, Path("run")) == TINY["ppo"]


def test_the_first_format_is_migrated():
    old = INFO.to_dict() | {"tensorboard": True, "task": None}
    for name in ("format", "task_name", "cost_limits", "loggers", "restarts"):
        del old[name]
    old["config"] = old["config"] | {"cost_limit": 18.0}
    info = parse_info(old, Path("config.json"))
    assert info.loggers == ["tensorboard"] and info.cost_limit == 18.0
    assert info.task is None and info.task_name
    assert config_of(info, Path("run")).cost_limit == (18.0,)
    assert config_of(info, Path("run")) == replace(TINY["ppo"], cost_limit=(18.0,))


def test_the_second_format_is_migrated():
    config = to_dict(TINY["mbppo-lagrangian"])
    config["gap_memory"] = config.pop("ratio_memory") + 0.3
    old = INFO.to_dict() | {"format": 2, "algorithm": "mbppo-lagrangian", "config": config}
    expected = replace(TINY["mbppo-lagrangian"], ratio_memory=0.3)
    assert config_of(parse_info(old, Path("config.json")), Path("run")) == expected


def test_the_third_format_is_migrated():
    config = to_dict(TINY["mbppo-lagrangian"]) | {"adapt_passes": True}
    old = INFO.to_dict() | {"format": 3, "algorithm": "mbppo-lagrangian", "config": config}
    migrated = config_of(parse_info(old, Path("config.json")), Path("run"))
    assert migrated == TINY["mbppo-lagrangian"]


@pytest.mark.parametrize("number", [0, FORMAT + 1, 99, "2", None])
def test_an_unknown_format_is_refused(number):
    with pytest.raises(Damaged, match=f"config.json .*format={number!r}"):
        parse_info(INFO.to_dict() | {"format": number}, Path("config.json"))


@pytest.mark.parametrize("name", ["version", "task", "algorithm", "config", "seeds", "preset"])
def test_a_missing_value_is_named(name):
    values = {key: value for key, value in INFO.to_dict().items() if key != name}
    with pytest.raises(Damaged, match=name):
        parse_info(values, Path("config.json"))


def test_a_config_of_another_version_is_named():
    info = replace(INFO, version="9.9.9", config=INFO.config | {"clairvoyance": 1})
    with pytest.raises(ValueError, match=r"version 9\.9\.9.*'clairvoyance'"):
        config_of(info, Path("run"))
    info = replace(INFO, algorithm="oracle")
    with pytest.raises(ValueError, match="algorithm='oracle'"):
        config_of(info, Path("run"))
