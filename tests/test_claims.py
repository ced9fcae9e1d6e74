"""The paper's claims by hand, and the sections of a page with the numbers they must show."""

from dataclasses import replace

import numpy as np
import pytest

from surefoot.experiments import sections
from surefoot.experiments.job import Job
from surefoot.experiments.library import Results, find_runs, make_plan
from surefoot.paper import claims
from surefoot.paper import sections as paper
from surefoot.paper.catalogue import goal_claims
from surefoot.paper.claims import Claim, Verdict, judge
from test_experiments import JOB, write_run


def test_comparisons_by_hand():
    a, b = np.array([3.0, 5.0]), np.array([1.0, 3.0])
    # Means 4 and 2. Over the 16 resamples the difference ranges from 0 to 4.
    numbers = "4 against 2 (95 % interval of the difference 0 to 4)"
    assert claims.compared(a, b, "above") == (None, numbers), "the interval contains zero"
    assert claims.compared(a + 1, b, "above")[0] is True
    assert claims.compared(a + 1, b, "below")[0] is False
    assert claims.compared(b, a + 1, "below")[0] is True
    held, numbers = claims.compared(a[:1], b, "above")
    assert held is None and "too few seeds" in numbers


def test_limits_by_hand():
    costs = np.array([10.0, 20.0, 30.0])
    held, numbers = claims.against_limit(costs, 20.0, "within limit")
    assert held is None and numbers.startswith("cost 20.0 of 20; 2 of 3 seeds within the limit (")
    assert claims.against_limit(costs, 31.0, "within limit")[0] is True
    assert claims.against_limit(costs, 31.0, "above limit")[0] is False
    assert claims.against_limit(costs, 9.0, "above limit")[0] is True


def test_trends_by_hand():
    up = [np.array([2.0, 4.0]), np.array([1.0, 1.0]), np.array([5.0, 5.0])]
    held, numbers = claims.rises([0.1, 0.02, 0.5], up)
    assert held is True and numbers.startswith("1 at 0.02, 5 at 0.5 (rank correlation 1.00; ")
    wide = [up[0], up[2], np.array([1.0, 6.0])]
    assert claims.rises([0.1, 0.2, 0.5], wide)[0] is None  # the ends differ by -3 to 4
    assert claims.rises([0.1, 0.5, 0.02], up)[0] is False  # from 5 to 1
    assert claims.rises([1.0, 2.0], [np.ones(2), np.ones(2)])[0] is None


def test_settling_by_hand():
    steps = np.array([10.0, 20.0, 30.0, 40.0])
    # Nine tenths of the way from 10 to 1 is 1.9.
    assert claims.settled(steps, np.array([10.0, 2.0, 1.0, 1.0])) == 30
    assert claims.settled(steps, np.array([10.0, 5.0, 3.0, 1.0])) == 40
    assert claims.settled(steps, np.ones(4)) == 10
    assert claims.settled(steps, np.arange(4.0)) == 40, "a rising curve settles last"


def test_a_curve_still_rises_by_hand():
    steps = np.arange(10.0, 101.0, 10.0)
    line = np.arange(10.0)[:, None] * np.ones((1, 2))
    assert claims.still_rising(steps, line)  # a ninth of its range in the last tenth
    assert not claims.still_rising(steps, np.minimum(line, 6))
    # From 0 to 8 and then 0.4 more is not more than a twentieth of 8.4; 0.5 of 8.5 is.
    line[-1] = 8.4
    assert not claims.still_rising(steps, line)
    line[-1] = 8.5
    assert claims.still_rising(steps, line)
    assert not claims.still_rising(steps[-1:], line[-1:])


def test_variation_by_hand():
    held, numbers = claims.compared(np.array([0.0, 2.0]), np.array([1.0, 1.0, 1.0]), "varies more")
    assert held is None and numbers.startswith("standard deviation 1.41 against 0 (95 % interval")
    wide = np.array([-9.0, -8.0, 0.0, 9.0, 8.0, 10.0, -10.0])
    assert claims.compared(wide, np.array([1.0, 1.1, 1.2]), "varies more")[0] is True
    assert claims.compared(np.array([1.0, 1.1, 1.2]), wide, "varies more")[0] is False


def test_the_time_for_so_many_steps():
    rows = [{"steps": 100.0, "seconds": 50.0}, {"steps": 200.0, "seconds": 60.0}]
    assert claims.time_for(rows, 150) == 55
    assert claims.time_for(rows, 1200) == 60 + 1000 * 0.1  # the first epoch compiles
    assert claims.time_for(rows[:1], 300) == 150


# Claims and sections from runs on disk


def results_of(tmp_path, *jobs_and_runs):
    """Results as if each job had the run beside it; None for a job without runs."""
    plans = []
    for number, (job, numbers) in enumerate(jobs_and_runs):
        runs = []
        if numbers is not None:
            path = write_run(tmp_path / f"run-{number}", job, **{"seeds": range(3), **numbers})
            runs, _ = find_runs([path])
        plans.append(make_plan(job, runs, tmp_path / "home", "cpu", 8))
    (tmp_path / "page").mkdir()
    return Results([job for job, _ in jobs_and_runs], plans, tmp_path / "page")


def rows_of(section):
    (table,) = section.tables
    return {row[0]: row[1:] for row in table.rows}


def test_efficiency_counts_until_the_level_of_another(tmp_path):
    other = replace(JOB, algorithm="ppo-lagrangian")
    results = results_of(
        tmp_path, (JOB, {"reward": 4.0}), (other, {"reward": 3.0, "seconds": 60.0})
    )
    # The other ends at 3 to 5 on fresh episodes; in training it never exceeded 3.
    rows = rows_of(sections.efficiency(results, "E", [JOB, other], other, ""))
    assert rows["PPO"] == ("3 of 3", "40", "11", "5 s")  # violations 10, 11, 12 after epoch 1
    assert rows["PPO-Lagrangian"] == ("0 of 3", "-", "-", "-")


def sweep_jobs(*betas):
    return [
        Job("PointGoal", "mbppo-lagrangian", "paper", 3, changes={"beta": b}, note=f"beta = {b}")
        for b in betas
    ]


def test_a_sweep_lists_its_values(tmp_path):
    jobs = sweep_jobs(0.5, 0.1, 0.2)
    numbers = ({"cost": 30.0, "reward": 9.0}, {"cost": 10.0}, None)
    results = results_of(tmp_path, *zip(jobs, numbers, strict=True))
    section = sections.sweep(results, "Beta", jobs, "", "beta")
    assert rows_of(section) == {
        "0.5": ("450,000", "10.0 ± 1.0", "30.0 ± 0.0", "21.0 ± 1.0", "0%"),
        "0.1": ("450,000", "2.0 ± 1.0", "10.0 ± 0.0", "21.0 ± 1.0", "100%"),
    }
    assert len(section.figures) == 4 and all(path.exists() for path in section.figures)
    assert all(path.with_suffix(".pdf").exists() for path in section.figures)
    reward = judge(Claim("t", "reward", "rises", tuple(jobs[:2])), results)
    assert reward.held and reward.numbers.startswith("2 at 0.1, 10 at 0.5")
    limit = judge(Claim("t", "cost", "above limit", (jobs[0],)), results)
    assert limit.held and limit.numbers.startswith("cost 30.0 of 18; 0 of 3 seeds")
    assert judge(Claim("t", "cost", "above limit", (jobs[2],)), results).held is None
    assert sections.sweep(results, "Beta", jobs[1:], "", "beta") is None  # a single value


def test_shares_of_ppo(tmp_path):
    other = replace(JOB, algorithm="ppo-lagrangian")
    # On fresh episodes 4, 5, 6 against 1, 2, 3; violations 20, 21, 22 for both.
    results = results_of(tmp_path, (JOB, {"reward": 4.0}), (other, {"reward": 1.0}))
    section = paper.aggregates(results, [other], [JOB])
    (_, reward, _, violations) = section.tables[0].rows
    assert reward[:2] == ("PPO-Lagrangian", "normalised reward")
    assert reward[2] == "0.400 (0.200 to 0.600)"
    assert violations[2] == "1.000 (0.952 to 1.048)"


def test_shares_of_the_papers_ppo(tmp_path):
    job = replace(JOB, algorithm="cpo", changes={}, task_options={}, steps=None)
    results = results_of(tmp_path, (job, {"reward": 9.0}))
    section = paper.aggregates(results, [job], [])
    assert section.tables[0].rows[0][2].startswith("0.500 (")  # 10 of 20


def test_running_time_beside_the_papers(tmp_path):
    job = replace(JOB, seeds=1, alone=True)
    results = results_of(tmp_path, (job, {"seeds": [0], "seconds": 10.0}))
    rows = rows_of(paper.running_time(results, "T", [(job, 112_500.0)], ""))
    # 80 steps in 10 s, the second half of them in 5: 449,920 more take 56,240.
    assert rows["PPO"][:4] == (
        "56,250 s", "extrapolated from 80 steps", "112,500 s", "2.0 times",
    )  # fmt: skip


def test_a_section_without_runs_is_left_out(tmp_path):
    results = results_of(tmp_path, (JOB, None))
    assert sections.curves(results, "C", [JOB], "") is None
    assert sections.sweep(results, "C", [JOB], "", "steps_per_epoch") is None
    assert paper.aggregates(results, [JOB], []) is None
    assert paper.running_time(results, "C", [(JOB, 1.0)], "") is None
    assert paper.final_table(results, "C", [(JOB, "1")], "") is None
    assert sections.efficiency(results, "C", [JOB], JOB, "") is None
    verdict = judge(Claim("t", "settling steps", "below", (JOB, JOB)), results)
    assert verdict.held is None and "no runs of PointGoal ppo (default)" in verdict.numbers


def test_a_run_that_is_too_short_decides_nothing(tmp_path):
    cpo = replace(JOB, algorithm="cpo", changes={"cost_limit": (1.0,)}, seeds=3)
    results = results_of(
        tmp_path, (cpo, {"cost": 3.0, "finished": False, "epochs": 1}), (JOB, {"seeds": [0]})
    )
    assert results.group(cpo).shown == "CPO (unfinished)"
    verdict = judge(Claim("t", "cost", "above limit", (cpo,)), results)
    assert verdict.held is None and verdict.numbers.startswith("cost 3.0 of 1; 0 of 3 seeds")
    assert verdict.numbers.endswith("; CPO has 40 of 80 real steps")
    # It is neither a level to reach nor a line to compare with.
    assert sections.efficiency(results, "E", [JOB, cpo], cpo, "") is None
    assert sections.missing(results).tables[0].rows == (
        ("PointGoal cpo (default)", "0 of 3", "40 of 80"),
        ("PointGoal ppo (default)", "1 of 2", "-"),
    )
    section = paper.Claims((Claim("t", "cost", "above limit", (cpo,)),))(results)
    assert section.tables[0].rows == (("t", "undecided", verdict.numbers),)


@pytest.mark.parametrize(("requested", "held"), [(None, True), (10_000_000, None)])
def test_a_finished_run_may_be_shorter_than_requested(tmp_path, requested, held):
    """A run that ended after 80 steps serves a job of more steps, which the page must show."""
    other = replace(JOB, algorithm="ppo-lagrangian", seeds=3)
    paths = [
        write_run(tmp_path / name, job, range(3), reward=reward)
        for name, job, reward in (("a", JOB, 9.0), ("b", other, 1.0))
    ]
    runs, _ = find_runs(paths)
    jobs = [replace(job, seeds=3, steps=requested or 80) for job in (JOB, other)]
    plans = [make_plan(job, runs, tmp_path / "home", "cpu", 8) for job in jobs]
    results = Results(jobs, plans, tmp_path)
    assert judge(Claim("t", "reward", "above", tuple(jobs)), results).held is held
    group = results.group(jobs[0])
    assert group.steps_text == ("80" if requested is None else "80 of 10,000,000")
    assert group.shown == ("PPO" if requested is None else "PPO (unfinished)")
    assert plans[0].done == (3 if requested is None else 0)
    assert len(plans[0].blocks) == (0 if requested is None else 1)


def test_two_seeds_decide_nothing(tmp_path):
    other = replace(JOB, algorithm="ppo-lagrangian")
    results = results_of(tmp_path, (JOB, {"reward": 9.0}), (other, {"seeds": range(2)}))
    verdict = judge(Claim("t", "reward", "above", (JOB, other)), results)
    assert verdict.held is None and verdict.numbers.endswith("; PPO-Lagrangian has 2 seeds")
    assert Verdict("t", None, "").name == "undecided"


def test_every_claim_about_a_goal_task(tmp_path):
    names = ("ppo", "ppo-lagrangian", "cpo", "safe-loop", "mbppo-lagrangian")
    presets = {"safe-loop": "paper", "mbppo-lagrangian": "paper"}
    jobs = {name: Job("PointGoal", name, presets.get(name, "default"), seeds=3) for name in names}
    rewards = {"ppo": 20.0, "ppo-lagrangian": 5.0, "cpo": 15.0, "safe-loop": 5.0}
    costs = {"ppo": 50.0, "ppo-lagrangian": 17.0, "cpo": 30.0}
    more = {"ppo-lagrangian": 9.0, "safe-loop": 9.0}
    numbers = {
        name: {"reward": rewards.get(name, 10.0), "cost": costs.get(name, 12.0),
               "violations": more.get(name, 1.0)}
        for name in names
    }  # fmt: skip
    results = results_of(tmp_path, *((jobs[name], numbers[name]) for name in names))
    verdicts = [judge(c, results) for c in goal_claims("PointGoal", *(jobs[n] for n in names))]
    assert [verdict.held for verdict in verdicts] == [True] * 8
    assert verdicts[0].numbers.startswith("11 against 6 ")
    assert "still rises" not in verdicts[0].numbers
    assert verdicts[3].numbers.startswith("21 against 181 ")
    rows = rows_of(paper.final_table(results, "F", [(jobs["cpo"], "7")], ""))
    assert rows["CPO"] == ("3", "2,000,000", "16.0 ± 1.0", "7", "30.0 ± 0.0")


def test_rewards_are_compared_after_the_same_real_steps(tmp_path):
    """And measured alike: by the epochs until then, not by fresh episodes of one side."""
    loop = Job("PointGoal", "safe-loop", "paper", seeds=3, steps=300_000)
    ours = Job("PointGoal", "mbppo-lagrangian", "paper", seeds=3)  # epochs end at 225,000, 450,000
    results = results_of(tmp_path, (loop, {"reward": 9.75}), (ours, {"reward": 10.0}))
    verdict = judge(Claim("t", "reward by then", "above", (ours, loop)), results)
    assert verdict.held is True and verdict.numbers.startswith("10 against 9.75 (")
    assert list(results.group(ours).by_epochs("violations", 300_000)) == [10, 11, 12]
    claim = Claim("t", "violations by then", "below", (ours, loop))
    # Ours has 10 to 12 after 225,000 steps and 20 to 22 after 450,000: 13.3 to 15.3 at 300,000.
    assert judge(claim, results).numbers.startswith("14.3 against 21 (")


def test_a_sweep_is_measured_alike(tmp_path):
    """Seeds earn 5, 6, 7 on fresh episodes and 5 in epochs; the other has epochs only."""
    ends = sweep_jobs(0.1, 0.2)
    results = results_of(
        tmp_path, (ends[0], {"reward": 5.0}), (ends[1], {"reward": 5.25, "finished": False})
    )
    verdict = judge(Claim("t", "reward", "rises", tuple(ends)), results)
    assert verdict.held is None and verdict.numbers.startswith("5 at 0.1, 5.25 at 0.2")


def test_a_sweep_is_undecided_until_all_its_runs_are_finished(tmp_path):
    jobs = sweep_jobs(0.1, 0.2, 0.3, 0.4)
    begun = {"reward": 4.0, "finished": False, "epochs": 1}
    numbers = (begun, {"reward": 5.0}, {"reward": 9.0}, None)
    results = results_of(tmp_path, *zip(jobs, numbers, strict=True))
    verdict = judge(Claim("t", "reward", "rises", tuple(jobs)), results)
    assert verdict.held is None and verdict.numbers.startswith("4 at 0.1, 9 at 0.3")
    assert "no runs of PointGoal mbppo-lagrangian (paper, beta = 0.4)" in verdict.numbers
    assert "has 225,000 of 450,000 real steps" in verdict.numbers
    rows = rows_of(sections.sweep(results, "Beta", jobs, "", "beta"))
    assert rows["0.1"][0] == "225,000 of 450,000"
