"""The pictures of one query: published settings and numbers, closed forms, and bad arguments."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.experiments import offset, recipe
from svmlib.experiments import one_query as pictures


def test_single_input():
    r = sv.experiments.p2_single_input()
    assert r["svm"] == pytest.approx(np.array([[-0.1, 1.0], [1.01, 0.0]]) / 1.01, abs=1e-8)
    assert 0.5 * (r["svm"][0] ** 2).sum() == pytest.approx(0.49505, abs=1e-5)  # a published solver log
    assert r["starts"][:, 1].tolist() == list(pictures.HEIGHTS)
    assert r["selected"].tolist() == [[0] * 6, [0, 0, 0, 0, 1, 1]]
    end = r["correlation"][:, :, -1]
    assert (end[0, :, 0] > 0.9996).all()
    assert (end[1, :4, 0] > 0.9999).all()
    assert (end[1, 4:, 1] > 0.9999).all()
    assert (np.abs(np.linalg.norm(r["paths"][:, :, -1], axis=-1) - 100) < 2.1).all()
    assert np.isnan(r["correlation"][0, 2, 0]).all()  # the start at the origin has no direction


def test_single_input_with_the_published_constant():
    r = sv.experiments.p2_single_input()
    published = pictures.cosines(r["recipe_paths"], r["svm"])[:, :, -1]
    assert published[0, [0, -1], 0] == pytest.approx([0.9956, 0.9943], abs=1e-4)
    assert published[1, 4:, 1] == pytest.approx([0.9996, 0.9994], abs=1e-4)
    size = np.linalg.norm(r["recipe_paths"][:, :, -1], axis=-1)
    assert size[0] == pytest.approx(21.5, abs=0.05)
    assert size[1] == pytest.approx(23.68, abs=0.06)
    # float32 selects the same tokens and loses the direction
    single = pictures.cosines(r["recipe32_paths"], r["svm"])[:, :, -1]
    assert (single[0, :, 0] < 0.96).all()
    assert (single.argmax(-1) == r["selected"]).all()


def test_multiple_inputs():
    r = sv.experiments.p2_multiple_inputs()
    assert r["svm"] == pytest.approx([0.8446, 0.1711], abs=1e-4)
    at = np.searchsorted(r["steps"], [50, 199, 200, 1000])
    fast, slow = r["normalized_correlation"][:, at], r["plain_correlation"][:, at]
    assert fast[0, :2] == pytest.approx([0.989, 0.9993], abs=5e-4)
    assert fast[5, :2] == pytest.approx([0.964, 0.9993], abs=5e-4)
    assert slow[2, [0, 1, 3]] == pytest.approx([0.962, 0.977, 0.985], abs=5e-4)
    assert (fast[:, 2] >= 0.998).all()
    assert (slow[:, 2] <= 0.982).all()
    lengths = [np.linalg.norm(r[f"{name}_paths"][2, at[2]]) for name in ("normalized", "plain")]
    assert lengths == pytest.approx([19.9, 3.85], abs=0.05)
    seen = [r[f"{name}_probability"][2].mean(-1) for name in ("normalized", "plain")]
    assert [seen[0][0], seen[0][at[0]], seen[1][at[0]], seen[1][at[2]]] == pytest.approx(
        [0.143, 0.993, 0.82, 0.97], abs=5e-3
    )


def test_loss_functions():
    r = sv.experiments.p2_loss_functions()
    C = r["values"].tolist()
    known = {"linear": (0, 0.347, 0.805, 1.151, 2.303), "logistic": (0, -0.060, -1.042, -3.192, -47.041)}
    picked = [C.index(v) for v in (1, 2, 5, 10, 100)]
    for loss, numbers in known.items():
        assert r[f"{loss}_offset"][picked] == pytest.approx(numbers, abs=6e-4)
        assert r[f"{loss}_paths"][:, -1, 1] == pytest.approx(r[f"{loss}_offset"], abs=1e-6)
    at = r["steps"].tolist().index(200)
    cosine = pictures.cosines(np.stack([r["logistic_paths"][-1], r["recipe_path"]]), np.array([[1.0, 0.0]]))
    assert cosine[:, at, 0] == pytest.approx(np.sqrt(0.5), abs=1e-6)
    assert cosine[1, -1, 0] == pytest.approx(np.sqrt(0.5), abs=1e-6)
    assert cosine[0, -1, 0] == pytest.approx(0.8671, abs=1e-3)
    assert offset.horizon(-47.041, 0.99) == pytest.approx(3496, abs=1)


def test_a_constant_that_does_not_matter_yet():
    problem, first = pictures.single_input(0.9), pictures.starts()
    run = sv.dynamics.train(problem.expand(6), first, sv.dynamics.normalized(0.1), 50, record=[10, 50])
    path = recipe.additive_recipe(problem, first, 50, constant=0.0, record=[10, 50])
    assert path == pytest.approx(run.W[..., 0], abs=1e-11)


@pytest.mark.parametrize("constant", [1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize(("third", "gap"), [(0.9, 0.1), (0.0, 1.0)])
def test_a_constant_makes_the_steps_plain(constant, third, gap):
    path = recipe.additive_recipe(
        pictures.single_input(third), pictures.starts([1.0]), 1000, constant=constant, record=[1000]
    )
    predicted = np.log(1.01 * gap / (1 + np.e) * 0.1 * 1000 / constant) / np.sqrt(1.01)
    assert np.linalg.norm(path[0, -1]) == pytest.approx(predicted, abs=0.5)


def test_offsets_of_all_losses():
    C = np.array([1.0, 2.0, 7.0])
    slopes = {
        "linear": lambda x: 1.0 + 0 * x,
        "exponential": lambda x: np.exp(-x),
        "logistic": lambda x: 1 / (1 + np.exp(x)),
    }
    for loss, slope in slopes.items():
        assert offset.limit_offset(C, loss) == pytest.approx(
            0.5 * np.log(C * slope(C) / slope(1.0)), abs=1e-12
        )
    assert np.isfinite(offset.limit_offset(1e4))


def test_batches_of_values():
    assert offset.two_sequences([1.0, 3.0]).batch_shape == (2,)
    one = offset.two_sequences(3.0)
    assert one.batch_shape == ()
    assert one.scores.tolist() == [[0, 3], [0, 1]]
    assert one.optimal.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: offset.two_sequences(0.0), "value must be positive"),
        (lambda: offset.limit_offset([1.0, -2.0]), "value must be positive"),
        (lambda: offset.limit_offset(2.0, "hinge"), "loss must be one of"),
        (lambda: offset.horizon(-1.0, 0.5), "correlation must be in"),
        (lambda: offset.horizon(-1.0, 0.9, length=0.0), "length must be positive"),
        (
            lambda: recipe.additive_recipe(
                pictures.single_input(), pictures.starts(), 5, precision="float16"
            ),
            "precision must be",
        ),
    ],
)
def test_bad_arguments(call, text):
    with pytest.raises(sv.errors.DataError, match=text):
        call()


@pytest.mark.parametrize(
    ("problem", "weights", "text"),
    [
        (offset.two_sequences([1.0, 2.0]), pictures.starts(), r"no batch axes .* got batch axes \(2,\)"),
        (sv.data.random_problem(2, 3, 4), pictures.starts(), "queries of width 1, got .* width 4"),
        (
            pictures.single_input(),
            sv.attention.Direct([[0.0], [1.0]]),
            r"shape \(b, 2, 1\).* got \(2, 1\)",
        ),
    ],
)
def test_bad_shapes(problem, weights, text):
    with pytest.raises(sv.errors.ShapeError, match=text):
        recipe.additive_recipe(problem, weights, 5)


def test_horizon_is_the_point_where_the_corner_path_has_the_correlation():
    y, steps = -47.041, offset.horizon(-47.041, 0.9, length=0.05)
    R = 0.05 * steps - (np.sqrt(2) - 1) * abs(y)
    assert R / np.hypot(R, y) == pytest.approx(0.9, abs=1e-12)
    assert offset.horizon(y, np.sqrt(0.5)) == pytest.approx(np.sqrt(2) * abs(y) / 0.1)  # the corner itself
