"""The page of one run, films side by side, and a policy that the user brings."""

import json
import os

import numpy as np
import pytest
from PIL import Image

import surefoot
from harness import start
from surefoot.core.files import Damaged
from surefoot.envs.render.film import side_by_side
from surefoot.report.data import load_run
from surefoot.runs.folder import RunFolder
from test_report import make_run, read


@pytest.fixture
def run(tmp_path):
    """A finished run with a picture, a clip and a link to a file elsewhere."""
    path = make_run(tmp_path / "run")
    values = json.loads((path / "result.json").read_text())
    values.pop("checksum")
    RunFolder(path).write_json("result.json", {**values, "phases": {"collect": 3.0, "fit": 700.0}})
    Image.new("RGB", (4, 4)).save(path / "diagnosis.png")
    Image.new("RGB", (4, 4)).save(path / "clip.gif")
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    os.symlink(tmp_path / "secret.mp4", path / "clip.mp4")
    return path


def test_the_page_of_a_run(run, call):
    code, out, err = call("report", str(run))
    assert code == 0 and not err
    page = run / "report.html"
    assert out == f"page: {page}\n"
    text, seen = page.read_text(), read(page)
    for word in ("Learning curves", "Evaluation", "Model diagnosis", "Film", "collect", "12 min"):
        assert word in seen.words
    assert "20 fresh episodes per seed" in seen.words
    # Reward, cost and violations; the diagnosis and the clip. The link is not followed.
    assert seen.tags.count("img") == 5 and "video" not in seen.tags
    assert "data:image/gif" in text and not {"script", "link"} & set(seen.tags)
    assert not list(run.glob("*.pdf")), "figures are in the page only"


def test_the_page_may_lie_elsewhere_and_skips_what_is_no_picture(run, tmp_path):
    (run / "diagnosis.png").write_bytes(b"no picture")
    page = surefoot.write_report(run, tmp_path / "there" / "page.html")
    assert page == tmp_path / "there" / "page.html" and not (run / "report.html").exists()
    assert "Model diagnosis" not in read(page).words and "Film" in read(page).words


def test_phases_of_a_forged_result_are_checked(run):
    RunFolder(run).write_json("result.json", {"phases": {"fit": "long"}})
    with pytest.raises(Damaged, match="phases"):
        load_run(run)


def test_films_form_a_grid():
    films = [iter([np.full((2, 3, 3), i, np.uint8)]) for i in range(3)]
    (picture,) = side_by_side(films)
    assert picture.shape == (4, 6, 3)
    assert picture[0, 0, 0] == 0 and picture[0, 3, 0] == 1 and picture[2, 0, 0] == 2
    assert (picture[2:, 3:] == 255).all()


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A tiny run of two seeds."""
    return start("ppo", tmp_path_factory.mktemp("films") / "run", 1)


def test_two_seeds_are_shown_side_by_side(learned, call, tmp_path):
    clip = tmp_path / "x.gif"
    words = ("--which", "0", "1", "--steps", "2", "--every", "1", "--size", "64")
    code, _, err = call("watch", str(learned), *words, "--out", str(clip))
    assert code == 0, err
    with Image.open(clip) as shown:
        assert shown.width == 128 and shown.n_frames == 2
    code, _, err = call("watch", str(learned), "--beside", "--out", str(clip))
    assert code == 2 and "needs a plan" in err


def test_a_given_policy_acts_instead_of_the_runs(learned):
    seen = []

    def still(observations):
        seen.append(observations.shape)
        return np.zeros((len(observations), 2))

    own = surefoot.evaluate(learned, episodes=2)
    given = surefoot.evaluate(learned, episodes=2, policy=still)
    assert own["reward"] != given["reward"] and set(seen) == {(4, 26)}
    with pytest.raises(ValueError, match="1 actions for 4 observations"):
        surefoot.evaluate(learned, episodes=2, policy=lambda obs: np.zeros((1, 2)))
