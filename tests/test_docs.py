"""The documentation: links, code blocks, commands, tables and example scripts."""

import importlib.util
import inspect
import json
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import surefoot
from surefoot.cli import COMMANDS

ROOT = Path(__file__).parents[1]
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
OURS = [
    page for page in PAGES if page.name not in ("CHANGELOG.md",) and "results" not in page.parts
]
"""Pages about the present; the others describe past runs and versions."""
BLOCK = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TINY_PPO = {
    "steps": 60, "steps_per_epoch": 30, "ppo": {"hidden": (8,), "epochs": 1, "critic_epochs": 1},
}  # fmt: skip
name_of = lambda page: str(page.relative_to(ROOT))


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {re.sub(r"[ \-]+", "-", title).strip("-") for title in plain}


def blocks(page: Path, language: str) -> list[str]:
    """Code blocks of a page, without those that include a file."""
    found = [
        (indent, body) for indent, kind, body in BLOCK.findall(page.read_text()) if kind == language
    ]
    return [
        re.sub(f"^{indent}", "", body, flags=re.M) for indent, body in found if "--8<--" not in body
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page):
    text = BLOCK.sub("", page.read_text())
    for link in LINK.findall(text):
        target, _, anchor = link.partition("#")
        if ":" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{name_of(page)}: {link}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path.read_text()), f"{name_of(page)}: {link}"


def test_the_navigation_lists_every_page():
    listed = set(re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {str(page.relative_to(DOCS)) for page in PAGES if DOCS in page.parents}


def test_included_files_exist():
    for page in OURS:
        for source in re.findall(r'--8<-- "([^"]+)"', page.read_text()):
            path, _, section = source.partition(":")
            text = (ROOT / path).read_text()
            assert not section or f"[start:{section}]" in text, f"{name_of(page)}: {source}"


def test_generated_tables_can_be_made():
    sys.path.insert(0, str(DOCS))
    try:
        import hooks
    finally:
        sys.path.pop(0)
    made = [
        hooks.TABLES[kind](value)
        for page in OURS
        for kind, value in hooks.TABLE.findall(page.read_text())
    ]
    assert len(made) >= 12 and all(table.count("\n") >= 2 for table in made)


def commands(page: Path) -> list[list[str]]:
    """The commands of a page: in blocks, indented, and within lines."""
    text = page.read_text()
    lines = [line for block in blocks(page, "bash") for line in block.splitlines()]
    lines += re.findall(r"^    (surefoot .*)$", text, re.M)
    lines += re.findall(r"`(surefoot [^`]*)`", text)
    words = [line.partition("#")[0].split() for line in lines if line.startswith("surefoot ")]
    return [one[1:] for one in words if one[1:] and not one[1].startswith("-")]


def test_commands_and_their_options_exist(call):
    """Every command of every page, and every option by its name."""
    helps = dict[str, str]()
    for page in OURS:
        for words in commands(page):
            name = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
            assert name in COMMANDS, f"{name_of(page)}: surefoot {' '.join(words)}"
            if name == "train":
                pairs = dict(pairwise(words))
                chosen = pairs.get("--algorithm", "mbppo-lagrangian").split(":")[0]
                chosen = "ppo-lagrangian" if chosen.endswith(".py") else chosen
                name = f"train PointGoal --algorithm {chosen}"
            for option in (word for word in words if word.startswith("--")):
                if name not in helps:
                    helps[name] = call(*name.split(), "--help")[1]
                option = (
                    option.partition("=")[0].replace("--multiplier", "--multiplier.kind", 1)
                    if option == "--multiplier"
                    else option.partition("=")[0]
                )
                assert re.search(rf"{option}[\s,=│]", helps[name]), f"{name_of(page)}: {words}"
    assert len(helps) > 8


MY_ENV = """
from own_environment import WarmCart

class MyEnv(WarmCart):
    def __init__(self, render_mode=None):
        super().__init__(render_mode, max_episode_steps=15)

    def step(self, action):
        *rest, info = super().step(action)
        return *rest, info | {"speed": info["speeding"]}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, from which examples and `my_env` can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_env.py").write_text(MY_ENV)
    yield tmp_path
    for name in ("my_env", "own_environment", "safety_gymnasium"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("page", [p for p in OURS if blocks(p, "python")], ids=name_of)
def test_python_blocks_run(page, here, monkeypatch):
    """Blocks run one after the other; training and evaluation are small."""
    train, evaluate, film = surefoot.train, surefoot.evaluate, surefoot.film
    requests = inspect.signature(train)

    def small_train(*args, **options):
        given = requests.bind(*args, **options).arguments
        seen = {"observation": "ego"} if given["task"] == "PointGoal" else {}
        length = {"max_episode_steps": 15} if seen else {}
        kept = {name: given[name] for name in ("cost", "cost_limit") if name in given}
        return train(
            given["task"],
            "ppo-lagrangian",
            quiet=True,
            task_options=length,
            **kept,
            **TINY_PPO,
            **seen,
        )

    monkeypatch.setattr(surefoot, "train", small_train, raising=False)
    monkeypatch.setattr(
        surefoot, "evaluate", lambda *a, **k: evaluate(*a, **{**k, "episodes": 2}), raising=False
    )
    monkeypatch.setattr(
        surefoot, "film", lambda *a, **k: film(*a, **k, steps=4, size=64), raising=False
    )
    space = {"__name__": "page"}
    for number, block in enumerate(blocks(page, "python")):
        exec(compile(block, f"{name_of(page)}, block {number}", "exec"), space)


def script(name: str):
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NAMES = ["two_constraints", "choosing_a_limit", pytest.param("comparing", marks=pytest.mark.slow)]
SHORT = {"quiet": True, "task_options": {"kwargs": {"max_episode_steps": 20}}}


@pytest.mark.parametrize("name", NAMES)
def test_model_free_examples(name, here, capsys):
    settings = {**SHORT, **TINY_PPO}
    if name == "comparing":
        settings = {**SHORT, "seeds": 2, "steps": 120, "steps_per_epoch": 60}
    if name == "choosing_a_limit":
        settings["limits"] = (1, 5)
    result = script(name).main(out=here / "out", **settings)
    assert Path(result).exists() and capsys.readouterr().out


def test_the_example_of_real_steps_alone(here, capsys):
    settings = {"steps": 60, "steps_per_epoch": 60, "update_every": 20, "random_steps": 20}
    small = {"updates": 2, "sac": {"hidden": (8,), "batch_size": 8, "policy_every": 1}}
    run = script("forbidden_disc").main(out=here / "out", fresh=2, **SHORT, **settings, **small)
    assert (run / "curve.png").exists() and "of episodes within it" in capsys.readouterr().out


@pytest.mark.slow
def test_examples_with_a_model(here, capsys, monkeypatch):
    """Train, filter and film an own environment; read its run; guard a policy; export it."""
    settings = {
        **SHORT, "steps": 80, "rollouts": 12, "passes": 2, "horizon": 5, "fresh": 2,
        "ensemble": {"members": 3, "elites": 3, "hidden": (8,), "max_steps": 20},
        "ppo": {"hidden": (8,), "epochs": 1, "critic_epochs": 1, "minibatches": 2},
    }  # fmt: skip
    run = script("own_environment").main(out=here / "out", **settings)
    assert (run / "clip.gif").stat().st_size and (run / "curve.png").stat().st_size
    text = capsys.readouterr().out
    assert "policy: reward" in text and "filter: reward" in text
    monkeypatch.setattr(surefoot, "train", lambda *_, **__: run, raising=False)
    script("reading_a_run").main(fresh=1)
    assert "imagined and real cost" in capsys.readouterr().out and (run / "report.html").exists()
    script("filter_a_policy").main(fresh=2)
    assert "of steps planned" in capsys.readouterr().out
    assert script("export_to_numpy").main(run, here / "policy.npz", steps=3).exists()


def test_the_experiment_is_one():
    from surefoot.experiments.experiment import Experiment

    experiment = script("sweep_on_ray").EXPERIMENT
    assert isinstance(experiment, Experiment)
    limits = {job.config("cpu").cost_limit for job in experiment.jobs}
    assert limits == {(5.0,), (10.0,), (20.0,)}


def test_the_notebook_has_valid_cells():
    cells = json.loads((EXAMPLES / "colab.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 4
    for text in code:
        lines = [line for line in text.splitlines() if not line.startswith(("!", "%"))]
        compile("\n".join(lines), "colab.ipynb", "exec")
        for line in text.splitlines():
            if line.startswith("!surefoot "):
                assert line.split()[1] in COMMANDS
