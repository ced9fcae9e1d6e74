"""The Goal tasks against recordings of the reference environment."""

import json

import numpy as np
import pytest

from conftest import DATA
from surefoot.envs.parity import check

FILES = sorted(DATA.glob("*_*_?.npz"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_one_step_from_every_recorded_state(path):
    report = check(path)
    assert report.failures() == []
    assert report.steps in (400, 750)


def test_recordings_hold_goals_and_costs():
    """Goals are met and redrawn, and hazards entered."""
    reports = [check(p) for p in FILES if "seek" in p.stem and "Doggo" not in p.stem]
    assert sum(r.redraws for r in reports) >= 10
    assert sum(np.load(p)["cost"].sum() for p in FILES) > 50


def _spoiled(tmp_path, name, change):
    data = dict(np.load(DATA / "Car_random_1.npz"))
    change(data)
    path = tmp_path / name
    np.savez(path, **data)
    return check(path)


def test_a_wrong_reward_is_reported(tmp_path):
    def change(data):
        data["rew"] = data["rew"].copy()
        data["rew"][7] += 1e-6

    assert any("reward" in f for f in _spoiled(tmp_path, "r.npz", change).failures())


def test_a_wrong_cost_layout_and_position_are_reported(tmp_path):
    def change(data):
        data["cost"] = 1 - data["cost"]
        data["haz"] = data["haz"] + 1e-12
        data["xpos"] = data["xpos"] + 1e-5

    report = _spoiled(tmp_path, "c.npz", change)
    failures = " ".join(report.failures())
    assert report.cost_mismatches == 400
    assert "layout" in failures and "position" in failures and "open loop" in failures


def test_command(capsys, tmp_path):
    from surefoot.cli import main

    with pytest.raises(SystemExit) as done:
        main(["parity", str(FILES[0]), "--json"])
    assert done.value.code == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["ok"] and rows[0]["cost_mismatches"] == 0

    data = dict(np.load(FILES[0]))
    data["rew"] = data["rew"] + 1.0
    np.savez(tmp_path / "bad.npz", **data)
    with pytest.raises(SystemExit) as done:
        main(["parity", str(tmp_path / "bad.npz")])
    assert done.value.code == 1

    (tmp_path / "junk.npz").write_bytes(b"not a zip")
    for bad, word in ((tmp_path / "none.npz", "does not exist"), (tmp_path / "junk.npz", "read")):
        with pytest.raises(SystemExit) as done:
            main(["parity", str(bad)])
        assert done.value.code == 2
        assert word in capsys.readouterr().err


def test_a_recording_may_name_its_robot(tmp_path):
    data = dict(np.load(DATA / "Car_random_1.npz"))
    np.savez(tmp_path / "named.npz", **data, robot=np.array("car"))
    assert check(tmp_path / "named.npz").robot == "car"
    with pytest.raises(ValueError, match="robot='cat'"):
        check(DATA / "Car_random_1.npz", robot="cat")
    data["act"] = data["act"][:, :1]
    np.savez(tmp_path / "odd.npz", **data)
    with pytest.raises(ValueError, match="13 positions, 11 velocities and 1 actuators"):
        check(tmp_path / "odd.npz")
