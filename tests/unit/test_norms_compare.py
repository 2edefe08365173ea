from __future__ import annotations

import numpy as np
import pytest

from svmlib import compare, norms
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


def test_unknown_norm():
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


def test_entropy():
    assert float(compare.entropy(np.full(8, 1 / 8))) == pytest.approx(np.log(8), rel=1e-14)
    assert float(compare.entropy([1.0, 0.0])) == 0.0


def test_margins_of_near_tokens_are_exact():
    X = np.array([[[1e8, 1.0], [1e8, 0.0]]])
    got = compare.margins(np.eye(2), X, [[0.0, 1.0]], [0])
    assert got.tolist() == [[np.inf, 1.0]]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([0, 3], r"tokens must lie in 0..2 for sequences of T=3 tokens, got values from 0 to 3"),
        ([-1, 0], r"tokens must lie in 0..2"),
        ([0.5, 1], "tokens must be integers"),
        ([0], r"tokens must have shape \(..., n\) with n=2, got \(1,\)"),
        (0, r"tokens must have shape"),
        (np.zeros((4, 2)), r"tokens must have shape \(2,\) or broadcast to it, got \(4, 2\)"),
    ],
)
def test_bad_tokens(tokens, message):
    with pytest.raises(ShapeError, match=message):
        compare.token_index(tokens, (2, 3))
