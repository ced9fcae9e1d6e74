"""The axes of learning curves."""

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from surefoot.report.figures import draw_curve, finish_curves, plot_curve

EPOCHS = Path(__file__).parent / "data" / "wide_labels.csv"


def bounds(values, name):
    """Of the axis on which these epochs of one seed are drawn."""
    figure, axis = plt.subplots()
    plot_curve(axis, [{"seed": 0, "steps": i + 1, name: v} for i, v in enumerate(values)], name)
    finish_curves(axis, name)
    plt.close(figure)
    return axis.get_ylim(), [text.get_text() for text in axis.texts]


def test_a_bad_start_does_not_take_the_axis():
    # Of 40 epochs two are far below the others, which go from -50 to -12.
    (low, high), told = bounds([-500.0, -300.0, *np.arange(-50.0, -12.0)], "reward")
    assert -60 < low < -45
    assert -13 < high < -5
    assert told == ["first values lie lower"]


@pytest.mark.parametrize("start", [-20.0, 0.0])
def test_an_ordinary_start_is_shown(start):
    (low, _), told = bounds(np.linspace(start, 20.0, 40), "reward")
    assert low <= start
    assert told == []


def test_a_cost_of_0_is_off_the_axis():
    (low, high), _ = bounds([40.0, 0.0, 0.0], "cost")
    assert -0.05 * high < low < 0


def test_no_label_is_cut_off(tmp_path):
    """These epochs once pushed the label of the reward out of the picture."""
    with EPOCHS.open() as file:
        rows = [{name: float(x) for name, x in row.items()} for row in csv.DictReader(file)]
    path = draw_curve(rows, 18.0, "CarGoal, safe-loop (default)", tmp_path / "curve.png")
    picture = np.asarray(Image.open(path).convert("L"))
    for edge in (picture[0], picture[-1], picture[:, 0], picture[:, -1]):
        assert (edge > 200).all()
