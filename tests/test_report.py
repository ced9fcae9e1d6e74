"""Reports: runs read from disk and grouped, the numbers of the table, figures and the page."""

import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import surefoot
from surefoot import cli
from surefoot.algorithms.algorithm import ALGORITHMS
from surefoot.algorithms.algorithm import BUILTIN as NAMES
from surefoot.core.config import to_dict
from surefoot.envs.task import find_task
from surefoot.report import figures
from surefoot.report.command import repeat_command
from surefoot.report.compare import compare
from surefoot.report.data import by_step, load_run, load_runs
from surefoot.report.groups import groups
from surefoot.report.page import Section, Table, write_page
from surefoot.report.summary import baseline, normalised, summary, summary_table, units
from surefoot.runs.folder import RunFolder
from surefoot.runs.info import RunInfo, read_info
from surefoot.runs.loggers.csv import CsvLogger

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def make_run(path, seeds=(0, 1), finals=((10.0, 5.0), (14.0, 25.0)), epochs=3, **changes):
    """A run whose seeds end at the given reward and cost; epochs rise to them by a linear ramp."""
    path.mkdir(parents=True)
    folder = RunFolder(path)
    info = {
        "version": "0.1.0", "task": "PointGoal", "task_options": {}, "algorithm": "ppo-lagrangian",
        "preset": "default", "seeds": list(seeds), "known": ["reward", "cost"],
        "device": "cpu (x86_64, 2 cores)", "backend": "cpu", "command": "surefoot train PointGoal",
        "started": "2026-01-02 03:04:05", "config": {"steps": 3000, "cost_limit": [18.0]},
        "format": 2, "cost_limits": {"cost": 18.0},
    }  # fmt: skip
    evaluated = changes.pop("evaluated", True)
    info |= changes
    name = info["task"] or "own environment"
    folder.write_json("config.json", {**info, "task_name": name})
    for epoch in range(1, epochs + 1):
        CsvLogger(folder).append(
            [
                {
                    "seed": seed, "epoch": epoch, "steps": 1000 * epoch,
                    "reward": final[0] * epoch / epochs, "cost": final[1] * epoch / epochs,
                    "cost_limit": 18.0, "violations": 100 * epoch + seed, "seconds": 2.0 * epoch,
                }
                for seed, final in zip(seeds, finals, strict=True)
            ]
        )  # fmt: skip
    if evaluated:
        rows = [
            {"seed": seed, "episodes": 20, "reward": reward + 1, "cost": cost - 1,
             "within_limit": 0.25 * (seed + 1), "cost_cvar": 2 * cost}
            for seed, (reward, cost) in zip(seeds, finals, strict=True)
        ]  # fmt: skip
        mean = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
        evaluation = mean | {"episodes": 20, "cost_limit": 18.0, "seeds": rows}
        folder.write_json("result.json", {"seconds": 61.0, "evaluation": evaluation})
    return path


def test_the_table_by_hand(tmp_path):
    (group,) = groups([load_run(make_run(tmp_path / "a"))])
    row = summary(group)
    # Fresh episodes: rewards 11 and 15, costs 4 and 24, worst tenths 10 and 50.
    assert (row["reward"], row["cost"], row["cost_cvar"]) == (13, 14, 30)
    assert row["reward_std"] == pytest.approx(np.sqrt(8))
    assert row["cost_std"] == pytest.approx(np.sqrt(200))
    assert (row["seeds_within"], row["within_limit"]) == (0.5, 0.375)
    # Costs of epochs: 5/3, 10/3, 5 and 25/3, 50/3, 25.
    assert row["epochs_within"] == pytest.approx(5 / 6)
    assert (row["violations"], row["real_steps"], row["seconds"]) == (300.5, 3000, 61)
    # Means of two draws out of two: 11, 13 or 15, the ends in a quarter of all draws each.
    assert (row["reward_low"], row["reward_high"]) == (11, 15)
    table = summary_table([group])
    shown = dict(zip(table.head, table.rows[0], strict=True))
    assert shown == {
        "algorithm": "PPO-Lagrangian", "task": "PointGoal", "seeds": "2", "real steps": "3,000",
        "reward": "13.0 ± 2.8", "cost": "14.0 ± 14.1", "limit": "18", "seeds within": "50%",
        "epochs within": "83%", "episodes within": "38%", "worst tenth": "30.0 ± 28.3",
        "violations": "300 ± 1", "wall clock": "61 s",
    }  # fmt: skip
    assert "20 fresh episodes" in table.caption


def test_without_an_evaluation_the_last_epochs_count(tmp_path):
    path = make_run(tmp_path / "a", (3,), ((10.0, 20.0),), epochs=10, evaluated=False)
    (group,) = groups([load_run(path)])
    assert group.runs[0].state == "unfinished"
    assert group.measured_on == "the last 5 epochs"
    # Rewards 6, 7, 8, 9 and 10.
    assert group.final("reward").tolist() == [8.0]
    assert np.isnan(group.final("cost_cvar")).all()
    row = summary(group)
    assert row["reward_std"] is None and row["cost_cvar"] is None
    assert row["seconds"] == 20
    json.dumps(row, allow_nan=False)


def test_an_unfinished_run_is_marked(tmp_path):
    config = {"steps": 90_000, "cost_limit": [18.0]}
    paths = [
        make_run(tmp_path / "ppo", algorithm="ppo"),
        make_run(tmp_path / "cpo", algorithm="cpo", config=config, evaluated=False),
        make_run(tmp_path / "new", algorithm="new"),
    ]
    runs, _ = load_runs(paths)
    ppo, cpo, new = groups(runs)
    assert [group.state for group in (ppo, cpo, new)] == ["finished", "unfinished", "finished"]
    assert (cpo.label, cpo.shown, ppo.shown) == ("CPO", "CPO (unfinished)", "PPO")
    assert (cpo.steps_text, ppo.steps_text) == ("3,000 of 90,000", "3,000")
    # Of three epochs the last alone stands for the end: rewards 10 and 14.
    assert cpo.measured_on == "the last epoch" and cpo.final("reward").tolist() == [10, 14]
    assert list(normalised([ppo, cpo, new], "reward", {"PointGoal": 1.0})[0]) == ["PPO", "new"]
    table = summary_table([ppo, cpo])
    assert [row[3] for row in table.rows] == ["3,000", "3,000 of 90,000"]
    assert "Unfinished:" in table.caption and "Unfinished:" not in summary_table([ppo]).caption
    failed = replace(runs[1], state="failed", error="NaN")
    assert replace(cpo, runs=(failed,)).shown == "CPO (failed)"
    assert replace(ppo, requested=9_000).shown == "PPO (unfinished)"


def test_seeds_in_several_folders_are_one_group(tmp_path):
    one = load_run(make_run(tmp_path / "a", (4, 5)))
    two = load_run(make_run(tmp_path / "b", (0,), ((2.0, 3.0),)))
    again = load_run(make_run(tmp_path / "c", (5, 6)))
    first, second = groups([one, two, again])
    assert first.seeds == [0, 4, 5] and second.seeds == [5, 6]
    assert first.final("reward").tolist() == [3, 11, 15]
    assert (first.label, second.label) == ("PPO-Lagrangian (a)", "PPO-Lagrangian (c)")
    assert first.first_reaching(4.5).tolist()[1:] == [2000, 1000] and first.number != second.number
    assert np.isnan(first.first_reaching(4.5)[0])
    assert first.first_reaching(4.5, "violations").tolist()[1:] == [204, 105]


def test_labels_name_what_differs(tmp_path):
    def run(name, **changes):
        return load_run(make_run(tmp_path / name, **changes))

    config = {"steps": 3000, "cost_limit": [18.0], "beta": 0.5, "ppo": {"clip": 0.2}}
    mbppo = {"algorithm": "mbppo-lagrangian"}
    every = groups(
        [
            run("a", config=config, **mbppo),
            run("b", config=config | {"beta": 0.7}, **mbppo),
            run("c", config=config, preset="paper", **mbppo),
            run("d", config=config | {"constrained": False}, **mbppo),
            run("e", task="CarGoal", config=config | {"beta": 0.9}, **mbppo),
            run("f", algorithm="cpo"),
            run("g", algorithm="cpo", task_options={"hazards": 8}),
            run("h", algorithm="new"),
            run("i", algorithm="cpo", task=None),
        ]
    )
    assert [(group.label, group.task) for group in every] == [
        ("MBPPO-Lagrangian (default, beta=0.5)", "PointGoal"),
        ("MBPPO-Lagrangian (default, beta=0.7)", "PointGoal"),
        ("MBPPO-Lagrangian (paper)", "PointGoal"),
        ("MBPPO-Lagrangian (default, no limit)", "PointGoal"),
        ("MBPPO-Lagrangian (default)", "CarGoal"),
        ("CPO", "PointGoal"),
        ("CPO", "PointGoal (hazards=8)"),
        ("new", "PointGoal"),
        ("CPO", "own environment"),
    ]
    assert len({group.number for group in every if group.label == "CPO"}) == 1


def test_curves_of_seeds_that_are_not_equally_far():
    row = lambda seed, steps, reward: {"seed": seed, "steps": steps, "reward": reward}
    rows = [row(0, 10, 1.0), row(0, 20, 2.0), row(0, 30, 3.0)]
    rows += [row(1, 10, np.nan), row(1, 15, 4.0), row(1, 25, 6.0)]
    steps, values = by_step(rows, "reward")
    assert steps.tolist() == [20] and values.tolist() == [[2.0, 5.0]]


def test_scores_are_divided_by_those_of_an_algorithm_without_a_limit(tmp_path):
    def run(name, reward, **changes):
        return load_run(make_run(tmp_path / name, (0,), ((reward, 9.0),), **changes))

    free = {"algorithm": "mbppo-lagrangian", "config": {
        "steps": 3000, "cost_limit": [18.0], "constrained": False,
    }}  # fmt: skip
    every = groups(
        [
            run("a", 9.0),
            run("b", 24.0, algorithm="ppo"),
            run("c", 9.0, task="CarGoal"),
            run("d", 9.0, task="CarGoal", algorithm="cpo"),
            run("e", 9.0, task="RCCar"),
            run("f", 19.0, task="CarGoal", algorithm="ppo"),
            run("g", 50.0, **free),
        ]
    )
    assert baseline(every) == "PPO", "it was run on more tasks than MBPPO without a limit"
    assert baseline(every[:1]) is None
    rewards, tasks = normalised(every, "reward", units(every, "PPO", "reward"))
    assert tasks == ["PointGoal", "CarGoal"], "RCCar has no unit"
    assert [scores.tolist() for scores in rewards["PPO-Lagrangian"]] == [[10 / 25], [10 / 20]]
    assert list(rewards) == ["PPO-Lagrangian", "PPO"], "the others lack a task"
    violations, _ = normalised(every, "violations", {"PointGoal": 600.0, "CarGoal": 300.0})
    assert [scores.tolist() for scores in violations["PPO-Lagrangian"]] == [[0.5], [1]]


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda path: None, r"x is not a run: there is no such folder"),
        (lambda path: path.mkdir(), r"x is not a run: it holds no config.json"),
        (lambda path: make_run(path, epochs=0), r"x has no metrics.csv"),
        (lambda path: make_run(path, seeds=(0, 0)), r"seeds are not the run's"),
        (
            lambda path: (make_run(path) / "result.json").write_text('{"evaluation": {}}'),
            r"result.json is damaged: episodes is missing",
        ),
    ],
)
def test_a_bad_run_is_reported(tmp_path, damage, message):
    damage(tmp_path / "x")
    if message.startswith("seeds"):
        path = tmp_path / "x" / "config.json"
        path.write_text(path.read_text().replace("0,\n  0", "0,\n  7"))
        value = json.loads(path.read_text())
        value.pop("checksum")
        path.write_text(json.dumps(value))
    with pytest.raises(ValueError, match=message):
        load_run(tmp_path / "x")


def test_committed_results_can_be_read():
    runs, problems = load_runs([*(p.parent for p in RESULTS.glob("*/config.json")), RESULTS / "x"])
    assert len(problems) == 1 and "x is not a run" in problems[0]
    default = next(g for g in groups(runs) if g.runs[0].path.name == "point-default")
    assert len(default.seeds) == 8 and default.measured_on == "50 fresh episodes"
    assert default.final("reward").mean() == pytest.approx(21.0, abs=0.05)
    assert default.final("cost_cvar").mean() == pytest.approx(39.25)


class Outside(HTMLParser):
    """Collects the page's visible words and whatever it would load or run."""

    def __init__(self):
        super().__init__()
        self.loads, self.tags, self.words = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [
            value for name, value in attrs
            if name in ("src", "href", "srcset", "data") and not value.startswith("data:image/png;")
        ]  # fmt: skip
        self.loads += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data):
        self.words += data


def read(page):
    parser = Outside()
    parser.feed(page.read_text())
    return parser


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report of two tasks whose files try to break the page."""
    folder = tmp_path_factory.mktemp("report")
    evil = "<script>alert(1)</script>\"'&"
    paths = [
        make_run(folder / "a", algorithm="ppo"),
        make_run(folder / "b", (2, 3), algorithm=evil, device=evil, known=[evil]),
        make_run(folder / "c", (2,), ((3.0, 4.0),), task="CarGoal", algorithm="ppo", started=evil),
        make_run(folder / "d", task="CarGoal", algorithm=evil, evaluated=False),
        make_run(folder / "e", algorithm="cpo", evaluated=False),
        folder / f"none{evil.replace('/', '')}",
    ]
    RunFolder(paths[3]).write_json("result.json", {"seconds": 6.0})  # finished, not evaluated
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(figures.STYLE, "pdf.fonttype", 3)  # the other takes half of the time
        page = compare(paths, folder / "out", title=f"Title {evil}")
    return page, evil


def test_page_is_whole_and_safe(report):
    page, evil = report
    text, seen = page.read_text(), read(page)
    assert seen.loads == [] and "http" not in re.sub(r"base64,[^\"]*", "", text)
    assert not {"script", "link", "iframe", "object"} & set(seen.tags)
    assert "@import" not in text and "url(" not in text
    assert seen.words.count(evil) >= 5, "in the title, device, known parts, start and algorithm"
    for word in (
        f"Surefoot {surefoot.__version__}",
        "13.0 ± 2.8",
        "20 fresh episodes",
        "Left out",
        "no such folder",
    ):
        assert word in seen.words
    assert seen.tags.count("img") == len(list(page.parent.glob("figures/*.png")))
    assert "Not finished: CPO on PointGoal (unfinished)." in seen.words
    assert "Left out, because not finished on all of these tasks: CPO." in seen.words
    assert f"surefoot compare {page.parents[1] / 'a'} {page.parents[1] / 'b'}" in seen.words


def test_every_figure_is_written_as_png_and_pdf(report):
    page, _ = report
    names = {path.stem for path in (page.parent / "figures").glob("*.png")}
    kinds = ("reward", "cost", "violations", "sample-efficiency", "cvar")
    assert names == {f"{task}-{kind}" for task in ("pointgoal", "cargoal") for kind in kinds} | {
        "normalised-reward", "normalised-violations",
    }  # fmt: skip
    for name in names:
        with Image.open(page.parent / "figures" / f"{name}.png") as image:
            assert image.width == pytest.approx(240 * figures.WIDTH, abs=1)
            assert np.std(np.asarray(image.convert("L"))) > 5, f"{name} is blank"
        pdf = (page.parent / "figures" / f"{name}.pdf").read_bytes()
        assert pdf.startswith(b"%PDF") and len(pdf) > 3000
    caption = figures.caption_of(page.parent / "figures" / "pointgoal-reward.png")
    assert caption.startswith("PointGoal: episode reward over real steps.")
    assert caption in read(page).words


def test_summaries_beside_the_page(report):
    page, _ = report
    contents = json.loads((page.parent / "summary.json").read_text())
    assert [row["reward"] for row in contents["groups"]] == [13, 13, 4, 12, 12]
    assert len(contents["left_out"]) == 1
    lines = (page.parent / "summary.csv").read_text().splitlines()
    assert len(lines) == 6 and lines[0].startswith("label,task,state,seeds,real_steps")


def test_page_of_sections_alone(tmp_path):
    table = Table(("a", "b"), (("1 < 2", "x"),), "of words")
    page = write_page(
        tmp_path / "p.html", "T", "One.\n\nTwo.", [], [Section("S", "text", (), (table,))]
    )
    found = read(page)
    assert found.words.count("1 < 2") == 1 and found.tags.count("p") == 5
    short = Section("S", tables=(Table(("a", "b"), (("1",),)),))
    with pytest.raises(ValueError, match="shorter"):
        write_page(tmp_path / "p.html", "T", "", [], [short])


def test_compare_from_the_command_line(tmp_path, capsys):
    path = make_run(tmp_path / "a", (0,), ((10.0, 5.0),), task=None, evaluated=False)
    with pytest.raises(SystemExit) as stop:
        cli.main(
            ["compare", str(path), str(tmp_path / "no"), "--out", str(tmp_path / "o"), "--json"]
        )
    printed = capsys.readouterr()
    assert stop.value.code == 1 and "no such folder" in printed.err
    assert json.loads(printed.out)["groups"][0]["task"] == "own environment"
    with pytest.raises(SystemExit) as stop:
        cli.main(["compare", str(path), "--out", str(path / "config.json")])
    assert stop.value.code == 2 and "is a file" in capsys.readouterr().err
    for words in ([], [str(tmp_path / "no")]):
        with pytest.raises(SystemExit) as stop:
            cli.main(["compare", *words, "--out", str(tmp_path / "o")])
        assert stop.value.code == 2 and "run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "algorithm, options",
    [(name, {}) for name in list(NAMES)[1:]]
    + [("mbppo-lagrangian", {"hazards": 8, "observation": "ego"})],
)
def test_the_command_repeats_the_run(monkeypatch, call, algorithm, options):
    """`surefoot train` parses it into the same config."""
    preset = next(reversed(ALGORITHMS[algorithm].presets))
    config = ALGORITHMS[algorithm].preset(preset, find_task("PointGoal"), "cpu")
    if algorithm == "mbppo-lagrangian":
        ppo = replace(config.ppo, hidden=(32, 16), max_grad_norm=0.5, scale_costs=True)
        config = replace(config, beta=0.25, constrained=False, ppo=ppo, cost_limit=(18.0,))
    else:
        config = replace(config, steps=90_000, cost_limit=(7.5,))
    info = RunInfo(
        version="0.1.0", task="PointGoal", task_name="PointGoal", task_options=options,
        algorithm=algorithm, preset=preset, seeds=[5, 6, 7], backend="cpu", device="cpu",
        started="", config=json.loads(json.dumps(to_dict(config))), cost_limits={"cost": 7.5},
    )  # fmt: skip
    calls = []
    train = lambda *args, **settings: calls.append((args, settings))
    monkeypatch.setattr("surefoot.runs.train.train", train)
    monkeypatch.setattr("surefoot.cli.train.print_result", lambda path: None)
    command = shlex.split(repeat_command(info))
    assert command[:2] == ["surefoot", "train"]
    assert call(*command[1:])[0] == 0
    (args, settings) = calls[0]
    assert args[:5] == ("PointGoal", algorithm, preset, 3, 5)
    assert settings["task_options"] == options
    settings = {name: settings[name] for name in to_dict(config)}
    assert replace(config, **settings) == config


def test_a_run_of_another_version_is_repeated_by_its_recorded_command(tmp_path):
    path = make_run(
        tmp_path / "a", algorithm="cpo", backend="gpu", command="surefoot train x",
        config={"steps": 1, "cost_limit": [1.0], "gone": 3},
    )  # fmt: skip
    info = read_info(RunFolder(path))
    assert repeat_command(info) == "surefoot train x"
    known = replace(info, config={"steps": 1, "cost_limit": [1.0]})
    assert repeat_command(known).startswith("surefoot train PointGoal --algorithm cpo")
    for change in ({"task": None}, {"algorithm": "gone"}, {"backend": None}):
        assert repeat_command(replace(known, **change)) == "surefoot train x"
