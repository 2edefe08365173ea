from __future__ import annotations

import pickle

import numpy as np
import pytest

from svmlib import compare, norms
from svmlib.attention import Direct, Factored
from svmlib.errors import DataError, ShapeError


@pytest.mark.parametrize("norm", [norms.FRO, norms.NUC, norms.SPEC])
def test_steepest_direction_attains_the_dual_norm(norm):
    G = np.random.default_rng(0).normal(size=(5, 4, 3))
    D = norm.steepest(G)
    np.testing.assert_allclose(norm(D), 1.0, rtol=1e-12)
    np.testing.assert_allclose((G * D).sum((-2, -1)), norm.dual(G), rtol=1e-12)
    assert norm.dual.dual is norm
    assert not norm.steepest(np.zeros((4, 3))).any()


def test_norms_of_a_known_matrix():
    A = np.array([[3.0, 0.0], [0.0, -4.0]])
    assert float(norms.FRO(A)) == 5.0
    assert float(norms.NUC(A)) == pytest.approx(7.0, rel=1e-14)
    assert float(norms.SPEC(A)) == pytest.approx(4.0, rel=1e-14)


def test_frobenius_norm_of_extreme_entries():
    assert float(norms.FRO(np.full((2, 2), 1e-200))) == pytest.approx(2e-200, rel=1e-14)
    assert float(norms.FRO(np.full((2, 2), 1e200))) == pytest.approx(2e200, rel=1e-14)


def test_entries_near_the_largest_and_the_smallest_number():
    rng = np.random.default_rng(0)
    W = rng.normal(size=(3, 3))
    for size in (1e-300, 1e308 / np.abs(W).max()):
        A = W * size
        assert float(compare.correlation(A, A)) == pytest.approx(1.0, rel=1e-12)
        assert float(compare.angle(A, A)) == 0.0
        assert float(compare.correlation(A, -A)) == pytest.approx(-1.0, rel=1e-12)
        assert int(compare.rank(A)) == 3
        for norm in (norms.FRO, norms.NUC, norms.SPEC):
            np.testing.assert_allclose(norm.steepest(A), norm.steepest(W), rtol=1e-9, atol=1e-12)
            assert float(norm(A / 8)) == pytest.approx(float(norm(W)) * (size / 8), rel=1e-12)
    full = np.full((2, 2), 1.7e308)
    assert float(norms.FRO(full)) == np.inf  # as it is: twice the entries
    np.testing.assert_allclose(norms.FRO.steepest(full), 0.5)
    np.testing.assert_allclose(norms.SPEC.steepest(full), 0.5)
    assert int(compare.rank(full)) == 1


def test_weights_stand_for_their_matrix():
    rng = np.random.default_rng(2)
    factored = Factored(rng.normal(size=(4, 2)), rng.normal(size=(4, 2)))
    W = factored.K @ factored.Q.T
    assert float(compare.correlation(factored, W)) == pytest.approx(1.0, rel=1e-14)
    assert float(compare.angle(W, factored)) == 0.0
    assert int(compare.rank(factored)) == 2
    X, z = rng.normal(size=(3, 5, 4)), rng.normal(size=(3, 4))
    for weights in (factored, Direct(W)):
        assert compare.correlation(weights, weights).shape == ()
        np.testing.assert_array_equal(
            compare.margins(weights, X, z, [0, 1, 2]), compare.margins(W, X, z, [0, 1, 2])
        )
        for norm in (norms.FRO, norms.NUC, norms.SPEC):
            np.testing.assert_array_equal(norm(weights), norm(W))
            np.testing.assert_array_equal(norm.steepest(weights), norm.steepest(W))


def test_norms_can_be_pickled_and_shown():
    for norm in (norms.FRO, norms.NUC, norms.SPEC):
        again = pickle.loads(pickle.dumps(norm))
        assert again.dual_name == norm.dual_name and again(np.eye(2)) == norm(np.eye(2))
        assert repr(norm) == f"Norm('{norm.name}')"
    assert norms.NUC.steepest(np.zeros((0, 3))).shape == (0, 3)


def test_unknown_norm():
    with pytest.raises(DataError, match="norm must be one of"):
        norms.get(["fro"])
    assert norms.get("nuc") is norms.NUC
    assert norms.get(norms.NUC) is norms.NUC
    with pytest.raises(DataError, match=r"norm must be one of \['fro', 'nuc', 'spec'\], got 'max'"):
        norms.get("max")


def test_correlation_of_iterates_with_one_matrix():
    rng = np.random.default_rng(1)
    A, B = rng.normal(size=(7, 5, 3, 3)), rng.normal(size=(7, 3, 3))
    got = compare.correlation(A, B)
    want = [
        [(a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b) for a in run]
        for run, b in zip(A, B, strict=True)
    ]
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert np.isnan(compare.correlation(np.zeros((3, 3)), B[0]))
    with pytest.raises(ShapeError, match="matrices of one size"):
        compare.correlation(np.ones((3, 3)), np.ones((3, 2)))
    with pytest.raises(ShapeError, match="leading axes of A and B do not fit"):
        compare.correlation(np.ones((4, 3, 3)), np.ones((5, 3, 3)))


def test_angle_is_right_where_the_correlation_has_lost_everything():
    B = np.array([[1.0, 0.0]])
    for theta in (1e-12, 1e-9, 1e-3, 1.0, np.pi):
        A = np.array([[np.cos(theta), np.sin(theta)]])
        assert float(compare.angle(A, B)) == pytest.approx(theta, rel=1e-9)


def test_rank_counts_relative_singular_values():
    assert int(compare.rank(np.diag([1.0, 1e-5, 1e-7]))) == 2
    assert int(compare.rank(np.zeros((3, 3)))) == 0
    with pytest.raises(DataError, match="A must be finite"):
        compare.rank(np.full((2, 2), np.nan))
    for rtol in (-1.0, np.nan, 1.0, "a"):
        with pytest.raises(DataError, match="rtol must be"):
            compare.rank(np.eye(2), rtol=rtol)


def test_entropy():
    assert float(compare.entropy(np.full(8, 1 / 8))) == pytest.approx(np.log(8), rel=1e-14)
    assert float(compare.entropy([1.0, 0.0])) == 0.0
    with pytest.raises(DataError, match=r"smallest entry is -0\.5"):
        compare.entropy([1.5, -0.5])
    for axis in (1, -2, 0.0):
        with pytest.raises(ShapeError, match=r"axis must be an integer and name an axis of p \(2,\)"):
            compare.entropy([0.5, 0.5], axis=axis)


def test_margins_of_near_tokens_are_exact():
    X = np.array([[[1e8, 1.0], [1e8, 0.0]]])
    got = compare.margins(np.eye(2), X, [[0.0, 1.0]], [0])
    assert got.tolist() == [[np.inf, 1.0]]


def test_margins_name_the_axes_that_do_not_fit():
    X = np.ones((2, 3, 4, 5))
    with pytest.raises(ShapeError, match=r"batch axes of W \(7,\), X \(2,\) and z \(2,\) do not fit"):
        compare.margins(np.ones((7, 5, 5)), X, np.ones((2, 3, 5)), [0, 0, 0])
    with pytest.raises(ShapeError, match=r"n, T >= 1, got \(3, 0, 5\)"):
        compare.margins(np.eye(5), np.ones((3, 0, 5)), np.ones((3, 5)), [0, 0, 0])


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([0, 3], r"tokens must lie in 0..2 for sequences of T=3 tokens, got values from 0 to 3"),
        ([-1, 0], r"tokens must lie in 0..2"),
        ([0.5, 1], "tokens must be integers"),
        ([True, False], "tokens must be integers"),
        ([1e30, 0], "tokens must lie in 0..2"),
        ([0], r"tokens must have shape \(..., n\) with n=2, got \(1,\)"),
        (0, r"tokens must have shape"),
        (np.zeros((4, 2)), r"tokens must have shape \(2,\) or broadcast to it, got \(4, 2\)"),
    ],
)
def test_bad_tokens(tokens, message):
    with pytest.raises(ShapeError, match=message):
        compare.token_index(tokens, (2, 3))
