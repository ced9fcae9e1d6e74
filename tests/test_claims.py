"""The paper's claims by hand, and the parts of a page with the numbers they must show."""

from dataclasses import replace

import numpy as np

from surefoot.experiments import sections
from surefoot.experiments.job import Job
from surefoot.experiments.library import known_runs, make_plan
from surefoot.experiments.results import Results
from surefoot.paper import claims, verdicts
from test_experiments import JOB, write_run


def test_claims_by_hand():
    ours, theirs = np.array([3.0, 5.0]), np.array([1.0, 3.0])
    more = claims.at_least("t", ours, theirs)
    # Means 4 and 2. Of the 16 resamples the difference runs from 0 to 4.
    assert more.held and more.verdict == "held"
    assert more.by == (
        "4 against 2 (2.00 times, 95 % interval of the difference 0 to 4, within the scatter of "
        "seeds)"
    )
    assert claims.at_most("t", ours, theirs).held is False
    assert claims.competitive("t", ours, theirs).held is True  # no more than the scatter
    assert claims.competitive("t", ours + 10, theirs).held is False
    one = claims.competitive("t", ours[:1], theirs)
    assert one.held is False and "too few seeds" in one.by
    assert claims.at_least("t", -ours, theirs).by.startswith("-4 against 2 (-6 apart, ")


def test_limits_by_hand():
    costs = np.array([10.0, 20.0, 30.0])
    found = claims.within_limit("t", costs, 20.0)
    assert found.held and found.by == "cost 20.0 of 20; 2 of 3 seeds within the limit"
    assert claims.breaks_limit("t", costs, 20.0).held is False
    assert claims.breaks_limit("t", costs, 19.9).held is True


def test_trends_by_hand():
    up = [np.array([2.0, 4.0]), np.array([1.0]), np.array([5.0])]
    found = claims.rises_with("t", [0.1, 0.02, 0.5], up)
    assert found.held and found.by == "1 at 0.02, 5 at 0.5 (rank correlation 1.00)"
    assert claims.rises_with("t", [0.5, 0.1, 0.02], up).held is False  # 5, 1, 3: down at the end
    assert claims.rises_with("t", [1.0, 2.0], [np.ones(2), np.ones(2)]).held is False


def test_settling_by_hand():
    steps = np.array([10.0, 20.0, 30.0, 40.0])
    quick = np.array([[11.0, 9.0], [2.0, 2.0], [1.0, 1.0], [0.0, 2.0]])  # means 10, 2, 1, 1
    slow = np.array([[10.0], [5.0], [3.0], [1.0]])
    # Nine tenths of the way from 10 to 1 is 1.9.
    assert claims.settled(steps, quick) == 30 and claims.settled(steps, slow) == 40
    found = claims.settles_sooner("t", (steps, quick), (steps, slow))
    assert found.held and found.by == "after 30 against 40 real steps"
    assert claims.settled(steps, np.ones((4, 1))) == 10


def test_what_still_rises_by_hand():
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


def test_scatter_by_hand():
    found = claims.scatters_more("t", np.array([0.0, 2.0]), np.array([1.0, 1.0, 1.0]))
    assert found.held and found.by == "standard deviation 1.41 against 0"
    assert claims.scatters_more("t", np.zeros(1), np.zeros(2)).held is None
    assert claims.unjudged("t", ["a b"]).verdict == "not judged"


def test_the_time_for_so_many_steps():
    rows = [{"steps": 100.0, "seconds": 50.0}, {"steps": 200.0, "seconds": 60.0}]
    assert sections.time_for(rows, 150) == 55
    assert sections.time_for(rows, 1200) == 60 + 1000 * 0.1  # the first epoch compiles
    assert sections.time_for(rows[:1], 300) == 150


# The parts of a page


def results_of(tmp_path, *jobs_and_runs):
    """Results as if each job had the run beside it; None where it has none."""
    plans = []
    for number, (job, numbers) in enumerate(jobs_and_runs):
        known = []
        if numbers is not None:
            path = write_run(tmp_path / f"run-{number}", job, **{"seeds": range(2), **numbers})
            known, _ = known_runs([path], ours=False)
        plans.append(make_plan(job, known, tmp_path / "home", "cpu", 8))
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
    # The other ends at 3 and 4 on fresh episodes; in training it never passed 3.
    found = rows_of(sections.efficiency(results, "E", [JOB, other], other, ""))
    assert found["PPO"] == ("2 of 2", "40", "10", "5 s")  # violations 10 and 11 after epoch 1
    assert found["PPO-Lagrangian"] == ("0 of 2", "-", "-", "-")


def test_a_sweep_lists_its_values(tmp_path):
    jobs = [
        Job("PointGoal", "mbppo-lagrangian", "paper", changes={"beta": beta}, note=f"beta = {beta}")
        for beta in (0.5, 0.1, 0.2)
    ]
    numbers = ({"cost": 30.0, "reward": 5.0}, {"cost": 10.0}, None)
    results = results_of(tmp_path, *zip(jobs, numbers, strict=True))
    section = sections.sweep(results, "Beta", jobs, "", "beta")
    found = rows_of(section)
    assert found == {
        "0.5": ("450,000", "5.5 ± 0.7", "30.0 ± 0.0", "20.5 ± 0.7", "0%"),
        "0.1": ("450,000", "1.5 ± 0.7", "10.0 ± 0.0", "20.5 ± 0.7", "100%"),
    }
    assert len(section.figures) == 4 and all(path.exists() for path in section.figures)
    assert all(path.with_suffix(".pdf").exists() for path in section.figures)
    reward, cost = verdicts.beta_claims(results, jobs, None)
    assert (reward.held, cost.held) == (True, True)
    limit = verdicts.beta_claims(results, jobs, jobs[0])[2]
    assert limit.held and limit.by.startswith("cost 30.0 of 18; 0 of 2 seeds")
    assert verdicts.beta_claims(results, jobs, jobs[2])[2].held is None
    assert sections.sweep(results, "Beta", jobs[1:], "", "beta") is None  # one value is no sweep


def test_shares_of_ppo(tmp_path):
    other = replace(JOB, algorithm="ppo-lagrangian")
    # On fresh episodes 4 and 5 against 1 and 2; violations 20 and 21 for both.
    results = results_of(tmp_path, (JOB, {"reward": 4.0}), (other, {"reward": 1.0}))
    section = sections.aggregates(results, "A", [other], [JOB], "")
    (reward, violations) = section.tables[0].rows
    assert reward[:2] == ("PPO-Lagrangian", "normalised reward")
    assert reward[2] == "0.333 (0.222 to 0.444)"
    assert violations[2] == "1.000 (0.976 to 1.024)"


def test_running_time_beside_the_papers(tmp_path):
    job = replace(JOB, seeds=1, alone=True)
    results = results_of(tmp_path, (job, {"seeds": [0], "seconds": 10.0}))
    found = rows_of(sections.running_time(results, "T", [(job, 300.0)], 160, ""))
    # 80 steps in 10 s, the second half of them in 5: another 80 take 10 more.
    assert found["PPO"][:4] == ("20.0 s", "from 80 steps", "300 s", "15.0 times")


def test_a_part_without_runs_is_left_out(tmp_path):
    results = results_of(tmp_path, (JOB, None))
    assert sections.curves(results, "C", [JOB], "") is None
    assert sections.metric_curves(results, "C", [JOB], "", "kl") is None
    assert sections.sweep(results, "C", [JOB], "", "steps_per_epoch") is None
    assert sections.aggregates(results, "C", [JOB], [], "") is None
    assert sections.running_time(results, "C", [(JOB, 1.0)], 1, "") is None
    assert sections.final_table(results, "C", [(JOB, "1")], "") is None
    assert sections.efficiency(results, "C", [JOB], JOB, "") is None
    (claim,) = verdicts.loss_claims(results, JOB, JOB)[:1]
    assert claim.held is None and "PointGoal ppo (default)" in claim.by


def test_what_has_not_come_to_its_end_is_told_and_not_judged(tmp_path):
    cpo, other = replace(JOB, algorithm="cpo", changes={"cost_limit": 1.0}), JOB
    results = results_of(
        tmp_path, (cpo, {"cost": 3.0, "finished": False, "steps": 80}), (other, {"seeds": [0]})
    )
    assert results.group(cpo).shown == "CPO (so far)"
    results.group(cpo).runs[0].info["config"]["steps"] = 100
    claim = verdicts.goal_claims(results, other, other, cpo, other, other)[6]
    assert claim.text.endswith("CPO ends with policies that break the limit")
    assert claim.held is None and claim.by == (
        "so far held: cost 3.0 of 1; 0 of 2 seeds within the limit; not at its end: PointGoal cpo "
        "(default), 80 of 100 real steps"
    )
    # CPO cannot be a level to reach, nor a line to compare with.
    assert sections.efficiency(results, "E", [other, cpo], cpo, "") is None
    assert sections.missing(results).tables[0].rows == (
        ("PointGoal cpo (default)", "0 of 2", "80 of 100"),
        ("PointGoal ppo (default)", "1 of 2", "-"),
    )
    judged, others = sections.claims([claims.Claim("a", False, "b"), claim]).tables
    assert judged.rows == (("a", "not\N{NO-BREAK SPACE}held", "b"),)
    assert others.rows == ((claim.text, claim.by),)


def test_every_claim_of_the_paper_finds_its_runs(tmp_path):
    names = ("ppo", "ppo-lagrangian", "cpo", "safe-loop", "mbppo-lagrangian")
    jobs = {name: Job("PointGoal", name, "paper", seeds=2) for name in names}
    rewards = {"ppo": 20.0, "ppo-lagrangian": 9.0, "cpo": 15.0, "safe-loop": 5.0}
    costs = {"ppo": 50.0, "ppo-lagrangian": 17.0, "cpo": 30.0}
    numbers = {
        name: {"reward": rewards.get(name, 10.0), "cost": costs.get(name, 12.0)} for name in names
    }
    results = results_of(tmp_path, *((jobs[name], numbers[name]) for name in names))
    found = verdicts.goal_claims(
        results, jobs["ppo"], jobs["ppo-lagrangian"], jobs["cpo"], jobs["safe-loop"],
        jobs["mbppo-lagrangian"],
    )  # fmt: skip
    assert [claim.held for claim in found] == [True] * 8
    assert found[0].by.startswith("10.5 against 9.5 ")
    assert "still rises" not in found[0].by
    assert found[3].by.startswith("20.5 against 20.5 (1.00 times")
    # Both had 10 and 11 violations at half of their way, 20 and 21 at the end; ours took 450,000
    # steps and safe-LOOP as many.
    assert found[4].by.startswith("20.5 against 20.5 ")
    table = rows_of(sections.final_table(results, "F", [(jobs["cpo"], "7")], ""))
    assert table["CPO (paper)"] == ("2", "2,000,000", "15.5 ± 0.7", "7", "30.0 ± 0.0")


def test_rewards_are_compared_after_as_many_real_steps(tmp_path):
    """And in the same way: by the epochs until then, not by fresh episodes of one of them."""
    loop = Job("PointGoal", "safe-loop", "paper", seeds=2, steps=300_000)
    ours = Job("PointGoal", "mbppo-lagrangian", "paper", seeds=2)  # epochs end at 225,000, 450,000
    results = results_of(tmp_path, (loop, {"reward": 9.75}), (ours, {"reward": 10.0}))
    claim = verdicts.goal_claims(results, loop, loop, loop, loop, ours)[2]
    assert claim.held is True and claim.by.startswith(
        "10 against 9.75 after 300,000 real steps (1.03 times"
    )
    assert claim.by.endswith("; MBPPO-Lagrangian (paper) comes to 10.5 after 450,000")
    assert list(results.group(ours).by_epochs("violations", 300_000)) == [10, 11]
    # The other way round the longer one is safe-LOOP.
    claim = verdicts.goal_claims(results, loop, loop, loop, ours, loop)[2]
    assert claim.held is False and claim.by.endswith("comes to 10.5 after 450,000")


def test_a_sweep_is_measured_alike(tmp_path):
    """Seeds 0 and 1 earn 5 and 6 on fresh episodes and 5 in epochs, which alone the other has."""
    ends = [
        Job("PointGoal", "mbppo-lagrangian", "paper", 2, changes={"beta": b}) for b in (0.1, 0.2)
    ]
    results = results_of(
        tmp_path, (ends[0], {"reward": 5.0}), (ends[1], {"reward": 5.25, "steps": 900_000})
    )
    assert results.group(ends[1]).steps_told == "450,000 of a longer run"
    claim = verdicts.beta_claims(results, ends, None)[0]
    assert claim.held is True and claim.by.startswith("5 at 0.1, 5.25 at 0.2")


def test_a_sweep_leaves_out_what_has_not_come_to_its_end(tmp_path):
    """As it does without what is not there at all; and tells both."""
    jobs = [
        Job("PointGoal", "mbppo-lagrangian", "paper", 2, changes={"beta": b}, note=f"beta = {b}")
        for b in (0.1, 0.2, 0.3, 0.4)
    ]
    begun = {"reward": 9.0, "finished": False}
    numbers = (begun, {"reward": 5.0}, {"reward": 6.0}, None)
    results = results_of(tmp_path, *zip(jobs, numbers, strict=True))
    claim = verdicts.beta_claims(results, jobs, None)[0]
    assert claim.held is True and claim.by.startswith("5.5 at 0.2, 6.5 at 0.3")
    assert claim.by.endswith("; without beta = 0.1, beta = 0.4")
    assert "0.1" in rows_of(sections.sweep(results, "Beta", jobs, "", "beta"))
    # With one at its end there is nothing to hold it against.
    claim = verdicts.beta_claims(results, jobs[:2], None)[0]
    assert claim.held is None and claim.by.startswith("so far not held: 9 at 0.1, 5 at 0.2")
