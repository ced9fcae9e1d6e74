"""Which runs serve a job, which are resumed, and what is left to train."""

from dataclasses import replace

from harness import PPO
from surefoot.core.config import from_dict
from surefoot.experiments.job import Job
from surefoot.experiments.library import Results, find_runs, make_plan
from surefoot.runs.folder import RunFolder
from test_experiments import JOB, SMALL, write_run


def test_finished_runs_are_used_and_missing_seeds_trained(tmp_path):
    home = tmp_path / "home"
    write_run(tmp_path / "others" / "four", JOB, range(4))
    write_run(tmp_path / "others" / "overlapping", JOB, [3, 4, 5])
    write_run(tmp_path / "others" / "different", JOB, range(8), **{"ppo.clip": 0.3})
    write_run(tmp_path / "others" / "begun", JOB, [6, 7], finished=False)
    write_run(home / "begun", JOB, [6, 7], finished=False)
    (tmp_path / "others" / "broken").mkdir()
    (tmp_path / "others" / "broken" / "config.json").write_text("{")
    note = tmp_path / "README.md"
    note.write_text("as a shell's * names it too")
    others, problems = find_runs([tmp_path / "others", note])
    assert len(problems) == 2 and "broken" in problems[0] and "not a folder" in problems[1]
    ours, _ = find_runs([home])
    plan = make_plan(replace(JOB, seeds=10), [*ours, *others], home, "cpu", most=10)
    assert [run.path.name for run in plan.complete] == ["four"] and plan.done == 4
    # The unfinished run at home is resumed; of the rest, 4 and 5 are apart from 8 and 9.
    blocks = [(block.first, block.count, block.folder.name) for block in plan.blocks]
    name = JOB.name("cpu")
    assert blocks == [
        (6, 2, "begun"), (4, 2, f"{name}-seeds-4-5"), (8, 2, f"{name}-seeds-8-9")
    ]  # fmt: skip
    cut = make_plan(replace(JOB, seeds=5), [], home, "cpu", most=2).blocks
    assert [(block.first, block.count) for block in cut] == [(0, 2), (2, 2), (4, 1)]


def test_a_run_may_have_more_seeds_than_requested(tmp_path):
    write_run(tmp_path / "run", JOB, range(8))
    runs, _ = find_runs([tmp_path / "run"])
    plan = make_plan(JOB, runs, tmp_path, "cpu", most=8)
    assert plan.done == 2 and len(plan.complete[0].info.seeds) == 8 and not plan.blocks


def test_a_time_is_measured_only_by_runs_of_one_seed(tmp_path):
    write_run(tmp_path / "eight", JOB, range(8))
    write_run(tmp_path / "one", JOB, [1])
    runs, _ = find_runs([tmp_path])
    plan = make_plan(replace(JOB, seeds=3, alone=True), runs, tmp_path / "home", "cpu", most=8)
    assert [run.path.name for run in plan.complete] == ["one"]
    assert [(block.first, block.count) for block in plan.blocks] == [(0, 1), (2, 1)]


def test_a_setting_added_later_does_not_exclude_a_run(tmp_path):
    path = write_run(tmp_path / "run", JOB, range(2))
    folder = RunFolder(path)
    info = folder.read_json("config.json")
    del info["config"]["ppo"]["clip"]
    folder.write_json("config.json", info)
    runs, _ = find_runs([path])
    assert from_dict(type(JOB.config("cpu")), info["config"]).ppo.clip == PPO.clip
    same = replace(JOB, changes={**SMALL, "ppo.clip": PPO.clip})
    assert make_plan(same, runs, tmp_path, "cpu", 8).done == 2


def test_a_longer_run_is_shown_but_decides_nothing(tmp_path):
    write_run(tmp_path / "longer", JOB, range(2), steps=240, reward=3.0)
    runs, _ = find_runs([tmp_path])
    plan = make_plan(JOB, runs, tmp_path / "home", "cpu", most=8)
    assert [run.path.name for run in plan.partial] == ["longer"] and plan.done == 0
    assert [block.count for block in plan.blocks] == [2]
    group = Results([JOB], [plan], tmp_path).group(JOB)
    assert (group.state, group.shown, group.steps_text) == (
        "longer",
        "PPO (longer)",
        "240 instead of 80",
    )
    # A run of exactly this length comes first.
    write_run(tmp_path / "exact", JOB, range(2), reward=5.0)
    runs, _ = find_runs([tmp_path])
    plan = make_plan(JOB, runs, tmp_path / "home", "cpu", most=8)
    assert [run.path.name for run in plan.complete] == ["exact"] and not plan.partial
    # Other settings than the steps must be equal, and a time needs runs of one seed.
    for other in (
        replace(JOB, alone=True, seeds=1),
        replace(JOB, changes={**SMALL, "ppo.clip": 0.3}),
    ):
        plan = make_plan(other, runs, tmp_path / "home", "cpu", most=8)
        assert not plan.complete and not plan.partial


def test_of_shorter_runs_the_longest_is_shown(tmp_path):
    """Neither counts as done, and those at home are resumed only if they request as much."""
    write_run(tmp_path / "short", JOB, range(2), steps=40)
    write_run(tmp_path / "stopped", JOB, range(2), finished=False, epochs=1, steps=100)
    write_run(tmp_path / "home" / "shorter", JOB, range(2), steps=20)
    others, _ = find_runs([tmp_path])
    ours, _ = find_runs([tmp_path / "home"])
    plan = make_plan(JOB, others, tmp_path / "home", "cpu", most=8)
    assert [run.path.name for run in plan.partial] == ["stopped"] and not plan.complete
    group = Results([JOB], [plan], tmp_path).group(JOB)
    assert group.state == "unfinished" and group.steps_text == "50 of 80" and plan.done == 0
    (block,) = make_plan(JOB, [*ours, *others], tmp_path / "home", "cpu", most=8).blocks
    assert block.folder.name != "shorter" and block.count == 2


def test_a_longer_run_with_decaying_rates_is_not_shown(tmp_path):
    for rate, names in ((1.0, ["run"]), (0.5, [])):
        job = Job("PointGoal", "mbppo-lagrangian", seeds=2, changes={"final_rate": rate})
        path = tmp_path / f"{rate}" / "run"
        write_run(path, job, range(2), steps=2 * job.config("cpu").steps)
        runs, _ = find_runs([path])
        plan = make_plan(job, runs, tmp_path / "home", "cpu", most=8)
        assert [run.path.name for run in plan.partial] == names
