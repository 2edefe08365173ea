"""Heat maps draw every cell in its colour, and refuse what does not fit by name."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from svmlib import plot
from svmlib.errors import DataError, ShapeError

mpl.use("Agg")
A = np.arange(6.0).reshape(2, 3)


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_cells_rows_and_groups():
    ax = plot.heat(A, rows=[0, "end"], groups={"common": (0, 1), "distinct": (1, 3)})
    (image,) = ax.get_images()
    np.testing.assert_array_equal(image.get_array(), A)
    assert image.get_clim() == (0.0, 5.0)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["0", "end"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["common", "distinct"]
    assert ax.get_xticks().tolist() == [0.0, 1.5]
    assert [line.get_xdata()[0] for line in ax.get_lines()] == [0.5]  # between the groups alone


def test_larger_is_darker_and_zero_is_white():
    image = plot.heat(A).get_images()[0]
    shades = image.to_rgba(A.ravel())[:, :3].sum(-1)
    assert shades[0] > 2.9
    assert (np.diff(shades) < 0).all()


def test_only_some_of_many_rows_are_named():
    ax = plot.heat(np.ones((101, 2)), rows=range(0, 202, 2))
    labels = [int(t.get_text()) for t in ax.get_yticklabels()]
    assert len(labels) == 14
    assert (labels[0], labels[-1]) == (0, 200)
    np.testing.assert_array_equal(np.array(labels) / 2, ax.get_yticks())


def test_one_scale_for_several_panels():
    fig, axes = plot.figure(2)
    plot.heat(A, top=10, ax=axes[0])
    plot.heat(A, top=3, label="attention", ax=axes[1])
    assert axes[0].get_images()[0].get_clim() == (0.0, 10.0)
    bar = fig.axes[-1]
    assert len(fig.axes) == 3
    assert bar.get_ylabel() == "attention"


def test_nothing_but_zeros_and_gaps():
    assert plot.heat([[0.0, 0.0]]).get_images()[0].get_clim() == (0.0, 1.0)
    assert np.ma.is_masked(plot.heat([[np.nan, 2.0]]).get_images()[0].get_array()[0, 0])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plot.heat([1.0]), ShapeError, "A must have 2 axes"),
        (lambda: plot.heat(np.zeros((0, 2))), ShapeError, r"A is empty, shape \(0, 2\)"),
        (lambda: plot.heat([[-1.0]]), DataError, "not negative, or NaN"),
        (lambda: plot.heat([[np.inf]]), DataError, "finite and not negative"),
        (lambda: plot.heat([[np.nan]]), DataError, "A must hold numbers"),
        (
            lambda: plot.heat(A, rows=[1]),
            ShapeError,
            "rows must have 2 entries, one for each row",
        ),
        (lambda: plot.heat(A, top=0), DataError, "top must be"),
        (lambda: plot.heat(A, groups={"g": (2, 4)}), ShapeError, r"groups\['g'\] must lie in the 3 columns"),
        (lambda: plot.heat(A, groups={"g": (1, 1)}), ShapeError, r"got \(1, 1\)"),
        (lambda: plot.heat(A, groups={"g": (1,)}), ShapeError, r"groups\['g'\] must have 2 entries"),
        (lambda: plot.heat(A, ax=3), DataError, "ax must be one Axes, got int"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
