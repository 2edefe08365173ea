"""Figures draw the numbers they are given, look the same everywhere, and refuse what does not fit by name."""

from __future__ import annotations

import base64
import io
import itertools

import matplotlib as mpl
import matplotlib.pyplot as plt
import nbclient
import nbformat
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

import svmlib as sv
from svmlib import plot
from svmlib.errors import DataError, ShapeError

mpl.use("Agg")
RNG = np.random.default_rng(0)
PLANAR = sv.data.planar(2)


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def luminance(color):
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return float(np.dot(channels, [0.2126, 0.7152, 0.0722]))


def dark(color):
    """The dark pages' filter, invert(.93) hue-rotate(180deg)."""
    inverted = 0.93 - np.array(to_rgb(color)) * 0.86
    weights = np.array([[0.213, 0.715, 0.072]])
    return np.clip(2 * weights @ inverted - inverted, 0, 1)


@pytest.mark.parametrize("name", plot.COLORS)
def test_colours_have_contrast_on_light_and_dark_pages(name):
    assert 1.05 / (luminance(plot.COLORS[name]) + 0.05) >= 3.0
    assert (luminance(dark(plot.COLORS[name])) + 0.05) / (luminance(dark("white")) + 0.05) >= 3.0


@pytest.mark.parametrize("pair", list(itertools.combinations(("W", "KQ", "fro", "nuc"), 2)))
def test_what_shares_a_figure_differs_without_colour(pair):
    first, second = (plot.STYLES[name] for name in pair)
    assert first.dash != second.dash and first.marker != second.marker


def test_no_global_style():
    before = dict(mpl.rcParams)
    fig, axes = plot.figure(2)
    plot.curve([1, 2], [1, 2], ax=axes[0])
    plot.tokens(PLANAR, ax=axes[1])
    plot.png(fig)
    assert dict(mpl.rcParams) == before


def test_png_is_sharp_and_light():
    fig, axes = plot.figure(2)
    for ax, color in itertools.product(axes, ("W", "KQ")):
        plot.band(np.arange(200), RNG.normal(size=(30, 200)).cumsum(1), color=color, label=color, ax=ax)
    data, metadata = fig._repr_png_()
    image = Image.open(io.BytesIO(data))
    assert image.size == (1404, 626) and len(data) < 120_000
    assert image.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    assert metadata == {"width": 702}


def test_a_notebook_shows_figures_in_their_full_size():
    # The first figure of a kernel switches Jupyter's backend on; it must stay on for the next ones.
    cells = [
        "import svmlib as sv\nax = sv.plot.curve([1, 2], [1, 2])\nax.set(xlabel='x');",
        "fig, ax = sv.plot.figure(2)\nsv.plot.tokens(sv.data.planar(1), ax=ax[0]);",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    nbclient.NotebookClient(book, timeout=120).execute()
    for cell, size in zip(book.cells, ((1404, 777), (1404, 626)), strict=True):
        (output,) = cell.outputs
        image = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"])))
        assert image.size == size
        assert output.metadata["image/png"] == {"width": 702}


def test_curve_draws_its_arrays():
    x, y = np.array([1.0, 2.0, 4.0]), np.array([3.0, np.nan, 1.0])
    ax = plot.curve(x, y, color="KQ", label="a name")
    (line,) = ax.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), x)
    np.testing.assert_array_equal(line.get_ydata(), y)
    assert line.get_color() == plot.COLORS["KQ"] and line.get_marker() == plot.STYLES["KQ"].marker
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a name"]


@pytest.mark.parametrize("spread", ["std", "quartiles"])
def test_band_draws_the_summary_of_its_runs(spread):
    x, Y = np.arange(5.0), RNG.normal(size=(40, 5))
    ax = plot.band(x, Y, label="W", spread=spread)
    if spread == "std":
        middle, low, high = Y.mean(0), Y.mean(0) - Y.std(0), Y.mean(0) + Y.std(0)
    else:
        low, middle, high = np.quantile(Y, (0.25, 0.5, 0.75), axis=0)
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), middle, rtol=1e-12)
    corners = {tuple(v) for v in ax.collections[0].get_paths()[0].vertices.round(9)}
    assert {*zip(x, low.round(9), strict=True), *zip(x, high.round(9), strict=True)} <= corners
    title = {"std": "mean ± 1 std, 40 runs", "quartiles": "median and quartiles, 40 runs"}[spread]
    assert ax.get_legend().get_title().get_text() == title


def test_band_leaves_out_missing_numbers_and_says_so():
    Y = RNG.normal(size=(4, 3))
    Y[1], Y[2, 0] = np.nan, np.nan
    ax = plot.band([0, 1, 2], Y, label="W")
    expected = [Y[[0, 3], 0].mean(), Y[[0, 2, 3], 1].mean(), Y[[0, 2, 3], 2].mean()]
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), expected)
    assert ax.get_legend().get_title().get_text() == "mean ± 1 std, 3 of 4 runs"


def test_power_guide_has_its_slope():
    ax = plot.curve([1, 10, 100], [1, 1e-2, 1e-4])
    plot.power_guide(ax, -2)
    x, y = ax.get_lines()[-1].get_data()
    assert np.diff(np.log(y)) / np.diff(np.log(x)) == pytest.approx(-2)
    assert y[0] == pytest.approx(2e-2) and ax.texts[-1].get_text() == "slope −2"
    with pytest.raises(DataError, match="no curve"):
        plot.power_guide(plot.figure()[1], -2)
    with pytest.raises(DataError, match=r"at must be a positive number, got 0\.0"):
        plot.power_guide(ax, -2, at=(0.0, 1.0))


def test_histogram_counts():
    ax = plot.histogram([0.5, 1.5, 1.6, np.nan], bins=[0, 1, 2])
    assert [patch.get_height() for patch in ax.patches[:2]] == [1, 2]


def test_looks_may_be_colours_and_their_points_are_seen():
    ax = plot.margin_picture([[1.0, 0.0], [-1.0, 0.0]], [1.0, 0.0], y=[1, -1], looks=("red", (0, 0, 1)))
    assert [line.get_marker() for line in ax.get_lines()[:2]] == ["o", "o"]


def test_pictures_keep_to_the_numbers_at_any_scale():
    X, far = [[1.0, 0.0], [-1.0, 0.0]], np.full((2, 1, 2), 1e308)
    usual, tiny = (plot.margin_picture(X, [s, 0.0], y=[1, -1], levels=(-s, 0, s)) for s in (1.0, 1e-200))
    for one, other in zip(usual.get_lines(), tiny.get_lines(), strict=True):
        np.testing.assert_allclose(one.get_xydata(), other.get_xydata(), atol=1e-12)
    drawn = plot.paths(far, log_radius=True).get_lines()[0].get_xydata()
    np.testing.assert_allclose(np.hypot(*drawn[0]), np.log(1e308) + np.log(2) / 2)


def test_scatter_draws_points_without_a_line():
    ax = plot.scatter([1, 2], [3, 4], color="opt")
    assert ax.get_lines()[0].get_linestyle() == "None"
    np.testing.assert_array_equal(ax.get_lines()[0].get_xydata(), [[1, 3], [2, 4]])


def test_bars_and_matrix():
    ax = plot.bars([0.2, 0.8], highlight=1, names=["a", "b"])
    assert [patch.get_height() for patch in ax.patches] == [0.2, 0.8]
    assert ax.patches[1].get_hatch() and not ax.patches[0].get_hatch()
    A = np.array([[1.0, -2.0], [0.0, 0.5]])
    ax = plot.matrix(A)
    np.testing.assert_array_equal(ax.images[0].get_array(), A)
    assert ax.images[0].get_clim() == (-2.0, 2.0)
    assert [t.get_text() for t in ax.texts] == ["1.00", "−2.00", "0.00", "0.50"]


def test_tokens_stars_and_queries():
    ax = plot.tokens(PLANAR, queries=True)
    first, second, stars = (np.asarray(line.get_xydata()) for line in ax.get_lines())
    np.testing.assert_array_equal(first, PLANAR.X[0, 1:])
    np.testing.assert_array_equal(second, PLANAR.X[1, 1:])
    np.testing.assert_array_equal(stars, PLANAR.X[[0, 1], PLANAR.optimal])
    assert ax.get_aspect() == 1.0
    chosen = plot.tokens(PLANAR, selected=[2, 3]).get_lines()[-1]
    np.testing.assert_array_equal(chosen.get_xydata(), PLANAR.X[[0, 1], [2, 3]])
    assert chosen.get_label() == "selected token"


def test_tokens_leave_out_what_the_mask_hides():
    mask = np.ones((2, 5), dtype=bool)
    mask[1, 4] = False
    p = sv.data.Problem(PLANAR.X, PLANAR.z, PLANAR.y, PLANAR.v, mask=mask)
    assert [len(line.get_xydata()) for line in plot.tokens(p).get_lines()] == [4, 3, 2]


def test_planar_paths_are_the_images_of_the_queries():
    W = RNG.normal(size=(6, 2, 2))
    KQ = RNG.normal(size=(4, 2, 2))
    ax = plot.planar_paths(PLANAR, W=W, KQ=KQ, fro=W[-1], nuc=KQ[-1], every=(2, 1), show_tokens=True)
    curves = [line for line in ax.get_lines() if len(line.get_xydata()) in (4, 6)][-4:]
    for line, matrices, i in zip(curves, (W, W, KQ, KQ), (0, 1, 0, 1), strict=True):
        np.testing.assert_allclose(line.get_xydata(), matrices @ PLANAR.z[i])
    assert curves[0].get_linestyle() == "-" and curves[2].get_linestyle() == "--"
    assert curves[0].get_markevery() == 2 and curves[2].get_markevery() == 1


def test_a_logarithmic_radius_keeps_directions():
    points = np.array([[[0.0, 0.0]], [[3.0, 4.0]], [[300.0, 400.0]]])
    drawn = plot.paths(points, log_radius=True).get_lines()[0].get_xydata()
    expected = [[0, 0], np.log1p(5) * np.array([0.6, 0.8]), np.log1p(500) * np.array([0.6, 0.8])]
    np.testing.assert_allclose(drawn, expected, atol=1e-12)


def test_rays_point_along_the_solution_and_leave_the_limits_alone():
    ax = plot.paths(RNG.normal(size=(5, 2, 2)))
    before = ax.get_xlim(), ax.get_ylim()
    W = RNG.normal(size=(2, 2))
    plot.rays(W, PLANAR.z, ax=ax)
    assert (ax.get_xlim(), ax.get_ylim()) == before
    for line, z in zip(ax.get_lines()[-2:], PLANAR.z, strict=True):
        start, end = line.get_xydata()
        assert not start.any()
        np.testing.assert_allclose(end / np.hypot(*end), W @ z / np.hypot(*(W @ z)))


def test_margin_picture_draws_level_lines():
    X, y = RNG.normal(size=(8, 2)), np.repeat([1.0, -1.0], 4)
    w, b, support = np.array([1.0, 2.0]), 0.3, np.arange(8) < 2
    ax = plot.margin_picture(X, w, b, y=y, support=support)
    good, bad, rings, *levels = (np.asarray(line.get_xydata()) for line in ax.get_lines())
    np.testing.assert_array_equal(good, X[:4])
    np.testing.assert_array_equal(bad, X[4:])
    np.testing.assert_array_equal(rings, X[:2])
    for line, level in zip(levels, (-1, 0, 1), strict=True):
        np.testing.assert_allclose(line @ w + b, level, atol=1e-9)


def test_token_margins_run_through_the_selected_token():
    solved = sv.svm.attention_svm(PLANAR)
    ax = plot.token_margins(PLANAR, solved.W, 1, support=solved.support)
    q = solved.W @ PLANAR.z[1]
    *_, lower, _, upper = (np.asarray(line.get_xydata()) for line in ax.get_lines())
    np.testing.assert_allclose(upper @ q, PLANAR.X[1, 0] @ q, atol=1e-9)
    np.testing.assert_allclose(lower @ q, PLANAR.X[1, 0] @ q - 1, atol=1e-9)
    rings = ax.get_lines()[2].get_xydata()
    np.testing.assert_allclose(rings @ q, PLANAR.X[1, 0] @ q - 1, atol=1e-6)


def test_simplex_puts_certainty_into_the_corners():
    ax = plot.simplex(np.eye(3))
    np.testing.assert_allclose(ax.get_lines()[0].get_xydata(), [[0, 0], [1, 0], [0.5, np.sqrt(0.75)]])


def test_a_legend_moves_and_keeps_its_title():
    ax = plot.band([0, 1], np.zeros((3, 2)), label="runs")
    plot.curve([0, 1], [0, 1], label="one", ax=ax)
    box = plot.legend(ax, loc="upper left")
    assert box.get_title().get_text() == "mean ± 1 std, 3 runs"
    assert [t.get_text() for t in box.get_texts()] == ["runs", "one"]
    assert plot.legend(plot.figure()[1]) is None


def test_panels_share_the_legend_on_top():
    fig, axes = plot.figure(2)
    for ax in axes:
        plot.tokens(PLANAR, ax=ax)
    (box,) = fig.legends
    names = ["tokens of sequence 1", "tokens of sequence 2", "optimal token"]
    assert [t.get_text() for t in box.get_texts()] == names
    assert axes[0].get_legend() is None
    plot.legend(axes[0], above=False)
    assert axes[0].get_legend() is not None and len(fig.legends) == 1


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: plot.curve([1, 2], [1, 2, 3]), "x must have one entry for each of the 3"),
        (lambda: plot.curve([1, 2], [[1, 2]]), r"y must have 1 axes, got shape \(1, 2\)"),
        (lambda: plot.band([1, 2], [1, 2]), "Y must have 2 axes"),
        (lambda: plot.band([1, 2], np.zeros((4, 3))), "x must have one entry for each of the 3"),
        (lambda: plot.histogram([[1.0]]), "values must have 1 axes"),
        (lambda: plot.bars([[0.5]]), "p must have 1 axes"),
        (lambda: plot.bars([0.5, 0.5], names=["a"]), "names must have 2 entries, one for each token, got 1"),
        (
            lambda: plot.bars([0.5, 0.5], highlight=2),
            r"highlight must lie in 0\.\.1, one of the 2 tokens, got 2",
        ),
        (lambda: plot.matrix([1.0]), "A must have 2 axes"),
        (lambda: plot.paths(np.zeros((4, 2))), "points must have 3 axes"),
        (lambda: plot.paths(np.zeros((4, 2, 3))), r"points must end in axes of sizes \(2,\)"),
        (lambda: plot.rays(np.eye(3), PLANAR.z), "W must end in axes"),
        (lambda: plot.rays(np.eye(2), np.zeros((2, 3))), "z must end in axes"),
        (lambda: plot.planar_paths(PLANAR, W=np.eye(2)), "W must have 3 axes"),
        (lambda: plot.planar_paths(PLANAR, KQ=np.zeros((5, 3, 3))), "KQ must end in axes"),
        (lambda: plot.tokens(sv.data.random_problem(2, 3, 3)), "tokens draws one problem with d=2, got d=3"),
        (lambda: plot.tokens(sv.data.random_problem(2, 3, 2, batch=2)), r"batch \(2,\)"),
        (lambda: plot.tokens(PLANAR, selected=[9, 0]), r"tokens must lie in 0\.\.4"),
        (lambda: plot.margin_picture(np.zeros((3, 3)), [1, 0], y=[1, 1, 1]), "X must end in axes"),
        (lambda: plot.margin_picture(np.zeros((3, 2)), [1, 0, 0], y=[1, 1, 1]), "w must end in axes"),
        (lambda: plot.margin_picture(np.zeros((3, 2)), [1, 0], y=[1, 1]), "y must end in axes"),
        (
            lambda: plot.token_margins(PLANAR, np.eye(2), 2),
            r"sequence must lie in 0\.\.1, one of the 2 sequences, got 2",
        ),
        (lambda: plot.simplex([[0.5, 0.5]]), "P must end in axes"),
        (lambda: plot.figure(0), "ncols must be a positive integer, got 0"),
        (lambda: plot.figure(1, 1.5), "nrows must be a positive integer, got 1.5"),
        (lambda: plot.bars([]), r"p is empty, shape \(0,\).*one number for each token"),
        (lambda: plot.bars([0.5, 0.5], highlight=0.5), "highlight must be a whole number >= 0, got 0.5"),
        (lambda: plot.bars([0.5, 0.5], names=3), "names must have 2 entries, .* got 3; put them in a list"),
        (lambda: plot.bars([0.5, 0.5], names="ab"), "names must have 2 entries, .* got 'ab'; put them"),
        (lambda: plot.matrix([[1.0]], digits=-1), "digits must be a whole number >= 0, got -1"),
        (lambda: plot.matrix(np.zeros((0, 2))), r"A is empty, shape \(0, 2\)"),
        (lambda: plot.power_guide(plot.figure()[1], 1, at=(1,)), "at must have 2 entries, x and y .* got 1"),
        (lambda: plot.paths(np.zeros((0, 2, 2)), names=True), r"points is empty, shape \(0, 2, 2\).*iterate"),
        (lambda: plot.paths(np.zeros((3, 1, 2)), every=-1), "every must be a positive integer, got -1"),
        (lambda: plot.paths(np.zeros((3, 1, 2)), every=0), "every must be a positive integer, got 0"),
        (lambda: plot.planar_paths(PLANAR, W=np.zeros((0, 2, 2))), "W is empty, .* at least one iterate"),
        (
            lambda: plot.planar_paths(PLANAR, every=3),
            r"every must have 2 entries, .* W and of \(K, Q\).* got 3",
        ),
        (lambda: plot.margin_picture(np.zeros((0, 2)), [1, 0], y=[]), "X is empty, .* at least one point"),
        (
            lambda: plot.margin_picture([[1, 0]], [1, 0], y=[1], levels=(0,)),
            "levels must have 3 entries, .* 1",
        ),
        (lambda: plot.margin_picture([[1, 0]], [1, 0], y=[1], looks=["W"]), "looks must have 2 entries"),
        (lambda: plot.margin_picture([[1, 0]], [1, 0], y=[1], names="ab"), "names must have 2 entries"),
        (lambda: plot.margin_picture([[1, 0]], [1, 0], y=[1], support=[1, 1]), "support .*each point of X"),
        (lambda: plot.token_margins(PLANAR, np.eye(2), 0.5), "sequence must be a whole number >= 0, got 0.5"),
        (lambda: plot.token_margins(PLANAR, np.eye(2), -1), "sequence must be a whole number >= 0, got -1"),
        (lambda: plot.simplex(np.zeros((0, 3))), "P is empty, .* at least one distribution"),
        (lambda: plot.simplex([[1, 0, 0]], names=("a",)), "names must have 3 entries, .*corner, got 1"),
    ],
)
def test_shapes_that_do_not_fit_are_named(call, name):
    with pytest.raises(ShapeError, match=name):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot.curve([1], [1], color="mauve-ish"), "color must be a meaning .*W, KQ"),
        (lambda: plot.curve([np.nan], [1]), "x must be finite"),
        (lambda: plot.curve([1], [1], ax=plot.figure(2)[1]), "ax must be one Axes, got ndarray"),
        (lambda: plot.band([1], [[np.nan]]), "no finite entry"),
        (lambda: plot.band([1], [[1.0]], spread="iqr"), "spread must be"),
        (lambda: plot.histogram([np.nan]), "no finite entry"),
        (lambda: plot.curve([1], [1], color=["W"]), "color must be a meaning .* got \\['W'\\]"),
        (lambda: plot.band([1], [[np.inf], [1.0]]), r"Y has 1 infinite of 2 entries, .*\(0, 0\)\. Write NaN"),
        (lambda: plot.histogram([1.0, -np.inf]), r"values has 1 infinite of 2 entries, .* index \(1,\)"),
        (lambda: plot.histogram([1.0], bins=0), "bins must be a positive integer, .* got 0"),
        (lambda: plot.histogram([1.0], bins="abc"), "bins must be .* got 'abc'"),
        (lambda: plot.histogram([1.0], bins=[2, 1]), r"bins must be .* increasing .* got \[2, 1\]"),
        (lambda: plot.histogram([1.0], bins=[0, np.nan]), "bins must be .* finite edges"),
        (lambda: plot.power_guide(None, -1), "ax must be one Axes, got NoneType"),
        (lambda: plot.power_guide(plot.figure()[1], np.nan, at=(1, 1)), "slope must be one finite number"),
        (lambda: plot.power_guide(plot.figure()[1], 1, at=(np.nan, 1)), "at must be a positive number"),
        (lambda: plot.power_guide(plot.figure()[1], 1, at=(1, 1), span=0), "span must be a positive number"),
        (lambda: plot.figure(width=np.nan), "width must be a positive number, got nan"),
        (lambda: plot.figure(height=-1), "height must be a positive number, got -1"),
        (lambda: plot.legend(None), "ax must be one Axes, got NoneType"),
        (lambda: plot.png(None), "fig must be a Figure, got NoneType"),
        (lambda: plot.tokens(None), "problem must be a svmlib.data.Problem, got NoneType"),
        (lambda: plot.planar_paths(PLANAR.X), "problem must be a svmlib.data.Problem, got ndarray"),
        (lambda: plot.token_margins(None, np.eye(2), 0), "problem must be a svmlib.data.Problem"),
        (lambda: plot.token_margins(PLANAR, np.zeros((2, 2)), 1), "W maps the query of sequence 1 to 0"),
        (
            lambda: plot.margin_picture([[1, 0]], [1, 0], np.nan, y=[1]),
            "b must be one finite number, got nan",
        ),
        (lambda: plot.margin_picture([[1, 0]], [1, 0], "1", y=[1]), "b must be one finite number, got '1'"),
        (lambda: plot.margin_picture([[1, 0]] * 2, [1, 0], y=[1, 0]), "y must be .* entry 1 is 0"),
        (lambda: plot.margin_picture([[1, 0]], [1, 0], y=[1], levels=(0, 1, None)), "levels must be one fin"),
        (lambda: plot.margin_picture(np.zeros((2, 2)), [0, 0], y=[1, -1]), "w is zero"),
        (lambda: plot.planar_paths(PLANAR, show_tokens=True, log_radius=True), "no place on a logarithmic"),
        (lambda: plot.simplex([[0.5, 0.5, 0.5]]), "row 0 sums to 1.5"),
    ],
)
def test_values_that_do_not_fit_are_named(call, message):
    with pytest.raises(DataError, match=message):
        call()


def test_band_of_standard_errors():
    hits = np.zeros((400, 2))
    hits[:100, 1] = 1.0
    ax = plot.band([1, 2], hits, spread="error", label="global")
    low, high = ax.collections[0].get_datalim(ax.transData).intervaly
    np.testing.assert_allclose((low, high), (0.0, 0.25 + np.sqrt(0.25 * 0.75 / 400)))
    assert "standard error" in ax.get_legend().get_title().get_text()


def test_shares_are_stacked():
    ax = plot.shares(["2", "3"], [[0.25, 1.0], [0.75, 0.0]], ["global", "local"])
    tops = [bar.get_y() + bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(tops, [0.25, 1.0, 1.0, 1.0])
    for bad, error, message in (
        ([[0.5, 0.5]], DataError, "each column with sum 1"),
        ([[1.5, 1.0], [-0.5, 0.0]], DataError, "not negative"),
    ):
        with pytest.raises(error, match=message):
            plot.shares(["2", "3"], bad, ["a", "b"][: len(bad)])
    with pytest.raises(ShapeError, match="kinds must have 2 entries"):
        plot.shares(["2"], [[1.0], [0.0]], ["a"])
