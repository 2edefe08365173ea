"""The classical hard-margin SVM."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.errors import DataError, InfeasibleError, ShapeError, SolverError


def test_two_points():
    svm = sv.svm.hard_margin([[2.0, 0.0], [0.0, 0.5]], [1, -1], bias=True)
    w = np.array([2.0, -0.5]) * 2 / 4.25  # normal of the bisector, margins 1
    np.testing.assert_allclose(svm.w, w, rtol=1e-13)
    np.testing.assert_allclose(svm.b, 1 - 2 * w[0], rtol=1e-13)
    np.testing.assert_allclose(svm.margin, np.sqrt(4.25) / 2, rtol=1e-13)
    np.testing.assert_allclose(svm.multipliers, svm.value**2 / 2, rtol=1e-12)
    assert svm.support.all()
    through = sv.svm.hard_margin([[2.0, 0.0], [0.0, 0.5]], [1, -1])
    np.testing.assert_allclose(through.w, [0.5, -2.0], rtol=1e-14)
    assert through.b == 0.0


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_against_the_conic_solver(bias, seed):
    import cvxpy as cp

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(25, 3)) + 5.0 * bias
    y = np.where((X - 5.0 * bias) @ rng.normal(size=3) > 0, 1.0, -1.0)
    svm = sv.svm.hard_margin(X, y, bias=bias)
    w, b = cp.Variable(3), cp.Variable()
    constraints = [cp.multiply(y, X @ w + b) >= 1] + ([] if bias else [b == 0])
    program = cp.Problem(cp.Minimize(cp.sum_squares(w) / 2), constraints)
    program.solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(svm.w, w.value, rtol=1e-4)
    np.testing.assert_allclose(svm.b, b.value, rtol=1e-4, atol=1e-6)
    assert (y * (X @ svm.w + svm.b)).min() == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(svm.w, (svm.multipliers * y) @ X, atol=1e-8 * svm.value)
    np.testing.assert_allclose(svm.multipliers.sum(), svm.value**2, rtol=1e-9)
    assert (svm.multipliers[~svm.support] == 0).all()
    assert svm.certificate.worst <= 1e-9
    if bias:
        assert abs(svm.multipliers @ y) <= 1e-9 * svm.multipliers.sum()
        moved = sv.svm.hard_margin(X + 100.0, y, bias=True)
        np.testing.assert_allclose(moved.w, svm.w, rtol=1e-9)


def test_the_attention_svm_of_one_query_is_a_classical_svm():
    rng = np.random.default_rng(3)
    keys = rng.normal(size=(4, 6)) + 1.0
    svm = sv.svm.hard_margin(keys, np.ones(4))
    X = np.concatenate([np.zeros((1, 6)), -keys])[None]
    z = rng.normal(size=(1, 6))
    attention = sv.svm.attention_svm(sv.data.Problem(X, z, [1]), [0])
    np.testing.assert_allclose(attention.W, np.outer(svm.w, z[0]) / (z[0] @ z[0]), rtol=1e-10)


def test_one_class():
    svm = sv.svm.hard_margin([[1.0, 2.0], [3.0, 4.0]], [-1, -1], bias=True)
    assert (svm.b, svm.value, svm.margin) == (-1.0, 0.0, np.inf)
    assert not svm.w.any()
    assert svm.certificate.worst == 0
    assert "HardMargin(n=2, d=2, margin inf" in repr(svm)


@pytest.mark.parametrize("seed", range(12))
def test_infeasible_with_and_without_bias(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, 2)) + rng.normal(size=2) * 10.0 ** rng.uniform(-2, 3)
    y = np.tile([1.0, -1.0], 6)
    with pytest.raises(InfeasibleError, match=r"No hyperplane separates the 12 points in 2 dim.* Remove or"):
        sv.svm.hard_margin(X, y, bias=True)
    with pytest.raises(InfeasibleError, match=r"through the origin.* contradict each other.* Pass bias=True"):
        sv.svm.hard_margin(X, y)


@pytest.mark.parametrize(
    ("X", "y", "error", "message"),
    [
        ([1.0, 2.0], [1], ShapeError, "X must have 2 axes"),
        (np.ones((2, 0)), [1, 1], ShapeError, r"n, d >= 1, got \(2, 0\)"),
        ([[1.0], [2.0]], [1], ShapeError, r"y must end in axes of sizes \(2,\)"),
        ([[1.0], [2.0]], [1, 0], DataError, "labels .1 and -1"),
        ([[1.0], [np.nan]], [1, -1], DataError, "X must be finite"),
        (
            [[1.0], [0.0]],
            [1, -1],
            InfeasibleError,
            "point 1 is the origin itself. Drop it, or pass bias=True",
        ),
    ],
)
def test_bad_arguments(X, y, error, message):
    with pytest.raises(error, match=message):
        sv.svm.hard_margin(X, y)


def test_extreme_scales_are_solved_or_refused_but_never_called_infeasible():
    for size in (1e-310, 1e-170, 1e-140, 1e-9, 1.0, 1e140, 1e160, 1e200, 1.7e308):
        X = np.array([[size, 0.0], [0.0, size]])
        for y, bias in (([1, 1], False), ([1, -1], True)):
            if 1e-145 < size < 1e145:
                svm = sv.svm.hard_margin(X, y, bias=bias)
                np.testing.assert_allclose(svm.w * size, y, rtol=1e-12)
                np.testing.assert_allclose(svm.multipliers * size**2, 1.0, rtol=1e-12)
                assert abs(svm.b) < 1e-12
            else:
                with pytest.raises(SolverError, match="huge, tiny, or differ too much in scale"):
                    sv.svm.hard_margin(X, y, bias=bias)
        with pytest.raises(InfeasibleError, match="contradict each other"):
            sv.svm.hard_margin([[size, 0.0], [-size, 0.0]], [1, 1])
    svm = sv.svm.hard_margin([[1e-6, 0.0], [0.0, 1.0]], [1, 1])
    np.testing.assert_allclose(svm.w, [1e6, 1.0], rtol=1e-12)
    with pytest.raises(SolverError, match="differ too much in scale"):
        sv.svm.hard_margin([[1e-170, 0.0], [0.0, 1.0]], [1, 1])


def test_classes_that_touch_up_to_round_off_are_refused():
    with pytest.raises(SolverError, match=r"2 points in 2 dimensions could not be certified in double"):
        sv.svm.hard_margin([[1.0, 3e-8], [1.0, -1e-8]], [1, -1])
