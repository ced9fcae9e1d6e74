"""Which runs are taken for a job, which are gone on with, and what is left to train."""

from dataclasses import replace

from harness import PPO
from surefoot.experiments import library
from surefoot.experiments.job import Job
from surefoot.experiments.library import known_runs, make_plan, near_misses
from surefoot.experiments.results import Results
from surefoot.report.data import load_run
from surefoot.report.groups import groups
from surefoot.runs.folder import RunFolder, config_from
from test_experiments import JOB, SMALL, TASK, write_run


def test_finished_runs_are_taken_and_the_missing_seeds_trained(tmp_path):
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
    others, problems = known_runs([tmp_path / "others", note], ours=False)
    assert len(problems) == 2 and "broken" in problems[0] and "not a folder" in problems[1]
    ours, _ = known_runs([home], ours=True)
    plan = make_plan(replace(JOB, seeds=10), [*ours, *others], home, "cpu", most=10)
    assert [run.path.name for run in plan.taken] == ["four"] and plan.done == 4
    # The begun run at home is gone on with; of the rest, 4 and 5 are apart from 8 and 9.
    found = [(block.first, block.count, block.folder.name) for block in plan.blocks]
    name = JOB.name("cpu")
    assert found == [
        (6, 2, "begun"), (4, 2, f"{name}-seeds-4-5"), (8, 2, f"{name}-seeds-8-9")
    ]  # fmt: skip
    cut = make_plan(replace(JOB, seeds=5), [], home, "cpu", most=2).blocks
    assert [(block.first, block.count) for block in cut] == [(0, 2), (2, 2), (4, 1)]


def test_more_seeds_than_asked_for_are_welcome(tmp_path):
    write_run(tmp_path / "run", JOB, range(8))
    known, _ = known_runs([tmp_path / "run"], ours=False)
    plan = make_plan(JOB, known, tmp_path, "cpu", most=8)
    assert plan.done == 2 and len(plan.taken[0].seeds) == 8 and not plan.blocks


def test_a_time_is_told_only_by_runs_of_one_seed(tmp_path):
    write_run(tmp_path / "eight", JOB, range(8))
    write_run(tmp_path / "one", JOB, [1])
    known, _ = known_runs([tmp_path], ours=False)
    plan = make_plan(replace(JOB, seeds=3, alone=True), known, tmp_path / "home", "cpu", most=8)
    assert [run.path.name for run in plan.taken] == ["one"]
    assert [(block.first, block.count) for block in plan.blocks] == [(0, 1), (2, 1)]


def test_a_setting_that_came_later_does_not_make_a_run_another(tmp_path):
    path = write_run(tmp_path / "run", JOB, range(2))
    folder = RunFolder(path)
    info = folder.read_json("config.json")
    del info["config"]["ppo"]["clip"]
    folder.write_json("config.json", info)
    known, _ = known_runs([path], ours=False)
    assert config_from(type(JOB.config("cpu")), info["config"]).ppo.clip == PPO.clip
    same = replace(JOB, changes={**SMALL, "ppo.clip": PPO.clip})
    assert make_plan(same, known, tmp_path, "cpu", 8).done == 2


def test_a_longer_run_stands_for_a_shorter_one_as_far_as_that_goes(tmp_path):
    """Epochs end at 120 and 240 real steps, and 80 are asked for: the first, and no evaluation."""
    write_run(tmp_path / "longer", JOB, range(2), steps=240, reward=3.0)
    known, _ = known_runs([tmp_path], ours=False)
    plan = make_plan(JOB, known, tmp_path / "home", "cpu", most=8)
    assert [run.path.name for run in plan.taken] == ["longer"] and not plan.blocks
    group = Results([JOB], [plan], tmp_path).group(JOB)
    assert group.state == "finished" and group.steps_told == "120 of a longer run"
    assert list(group.final("reward")) == [3.0, 3.0] and group.measured_on == "the last epoch"
    assert list(group.violations) == [10, 11] and group.seconds == 5.0
    whole = load_run(tmp_path / "longer")
    assert whole.cut(240) is whole and list(groups([whole])[0].final("reward")) == [3.0, 4.0]
    # It may have been stopped, if it came that far; and one that was to be as long comes first.
    write_run(tmp_path / "stopped", JOB, range(2, 4), finished=False, steps=100)
    write_run(tmp_path / "exact", JOB, range(2), reward=5.0)
    known, _ = known_runs([tmp_path], ours=False)
    four = replace(JOB, seeds=4)
    plan = make_plan(four, known, tmp_path / "home", "cpu", most=8)
    assert [run.path.name for run in plan.taken] == ["exact", "stopped"] and plan.done == 4
    assert Results([four], [plan], tmp_path).group(four).steps_told == "80 of a longer run"
    # Unless the longer one has more seeds.
    write_run(tmp_path / "three", JOB, range(3), steps=200)
    more, _ = known_runs([tmp_path / "exact", tmp_path / "three"], ours=False)
    assert [run.path.name for run in make_plan(four, more, tmp_path, "cpu", 8).taken] == ["three"]
    # How long a run takes is told by itself alone, and its steps are not all that may differ.
    for other in (
        replace(JOB, alone=True, seeds=1),
        replace(JOB, changes={**SMALL, "ppo.clip": 0.3}),
    ):
        assert not make_plan(other, known, tmp_path / "home", "cpu", most=8).taken
    far = replace(JOB, steps=110, seeds=4)
    assert [r.path.name for r in make_plan(far, known, tmp_path, "cpu", 8).taken] == ["longer"]
    short = replace(JOB, steps=90)
    told = near_misses([make_plan(short, [], tmp_path, "cpu", 8)], known, "cpu")
    assert [line.split(" is left out: ")[1] for line in told] == [
        "steps is 80, not 90", *["its seeds are there already, or not asked for"] * 2
    ]  # fmt: skip
    rows = (tmp_path / "longer" / "metrics.csv").read_bytes().splitlines(keepends=True)
    (tmp_path / "longer" / "metrics.csv").write_bytes(b"".join(rows[:3]))  # the first epoch
    known, _ = known_runs([tmp_path / "longer"], ours=False)
    later = make_plan(replace(JOB, steps=130), known, tmp_path, "cpu", 8)
    (line,) = near_misses([later], known, "cpu")
    assert line.endswith("longer is left out: it has come to 120 of 130 real steps")


def test_a_longer_run_whose_rates_fall_is_another(tmp_path):
    for rate, names in ((1.0, ["run"]), (0.5, [])):
        job = Job("PointGoal", "mbppo-lagrangian", seeds=2, changes={"final_rate": rate})
        path = tmp_path / f"{rate}" / "run"
        write_run(path, job, range(2), steps=2 * job.config("cpu").steps)
        known, _ = known_runs([path], ours=False)
        plan = make_plan(job, known, tmp_path / "home", "cpu", most=8)
        assert [run.path.name for run in plan.taken] == names


def test_near_misses_say_in_what_they_differ(tmp_path):
    write_run(tmp_path / "a", JOB, range(2), steps=60)
    write_run(tmp_path / "b", replace(JOB, task_options={**TASK, "hazards": 3}), range(2))
    write_run(tmp_path / "c", JOB, range(8, 10))
    write_run(tmp_path / "d", replace(JOB, preset="paper"), range(2), finished=False, steps=40)
    write_run(tmp_path / "e", replace(JOB, algorithm="cpo", changes={}), range(2))
    known, _ = known_runs([tmp_path], ours=False)
    lines = near_misses([make_plan(JOB, known, tmp_path, "cpu", 8)], known, "cpu")
    assert [line.split(" is left out: ")[1] for line in lines] == [
        "steps is 60, not 80",
        "hazards is 3, not the default",
        "its seeds are there already, or not asked for",
        "steps is 40, not 80",
    ]  # of another algorithm there is no job
    alone = near_misses([make_plan(replace(JOB, alone=True), [], tmp_path, "cpu", 8)], known, "cpu")
    assert alone[2].endswith("it has 2 seeds side by side, not one")
    assert library.differences(JOB.config("cpu"), JOB.config("cpu")) == []
