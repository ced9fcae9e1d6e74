"""Runs on a velocity task from the command line, and its benchmark."""

import json

import numpy as np
from PIL import Image

from harness import came_to, differences
from surefoot.benchmark import timing

TINY_RUN = (
    "--algorithm", "ppo-lagrangian", "--ppo.hidden", "8", "--ppo.epochs", "1",
    "--steps-per-epoch", "40", "--env", "max_episode_steps=20", "version=v0", "--quiet",
)  # fmt: skip


def test_from_the_command_line(call, tmp_path):
    """In the middle of episodes: a hopper falls at any time."""
    start = ("train", "HopperVelocity", *TINY_RUN)
    run, whole, clip = tmp_path / "run", tmp_path / "whole", tmp_path / "clip.gif"
    for words in (
        (*start, "--steps", "40", "--out", str(run)),
        ("resume", str(run), "--steps", "80", "--quiet"),
        (*start, "--steps", "80", "--out", str(whole)),
        ("watch", str(run), "--steps", "4", "--size", "96", "--out", str(clip)),
    ):
        code, _, err = call(*words)
        assert code == 0, err
    assert differences(came_to(run), came_to(whole)) == []
    code, out, _ = call("evaluate", str(run), "--episodes", "2", "--json")
    assert code == 0 and np.isfinite(json.loads(out)["seeds"][0]["reward"])
    with Image.open(clip) as film:
        assert film.n_frames == 2


def test_benchmark_beside_gymnasium(call, monkeypatch):
    monkeypatch.setattr(timing, "SECONDS", 0.05)
    words = ("--tasks", "SwimmerVelocity", "--num-envs", "2", "--threads", "1", "--gymnasium")
    code, out, err = call("benchmark", "env", *words, "--json")
    assert code == 0, err
    (row,) = json.loads(out)
    theirs = [row[f"gymnasium_{mode}_steps_per_second"] for mode in ("sync", "async")]
    assert row["times"] == row["steps_per_second"] / max(theirs) and min(theirs) > 10
    assert "overhead_beyond_physics" in row
