"""Sparsemax and the best attention of a head."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import svmlib as sv
from svmlib.attention import best_attention, linear, mlp, quadratic, sparsemax, sparsemax_thresholds
from svmlib.data import Problem
from svmlib.errors import DataError, ShapeError

SETTINGS = settings(deadline=None, derandomize=True, max_examples=60)


def by_supports(X, slope, curvature):
    """Largest slope'u - curvature |u|^2 over the hull, by trying every set of tokens."""
    best = -np.inf
    for size in range(1, min(len(X), X.shape[1] + 1) + 1):
        for index in itertools.combinations(range(len(X)), size):
            Y = X[list(index)]
            A = np.block([[2 * curvature * Y @ Y.T, np.ones((size, 1))], [np.ones((1, size)), 0.0]])
            s = np.linalg.lstsq(A, np.append(Y @ slope, 1.0), rcond=None)[0][:size]
            if s.min() >= -1e-12 and abs(s.sum() - 1) < 1e-9:
                u = s @ Y
                best = max(best, slope @ u - curvature * u @ u)
    return best


class TestSparsemax:
    @SETTINGS
    @given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.floats(-8, 8))
    def test_projection(self, T, seed, decade):
        rng = np.random.default_rng(seed)
        a = rng.normal(size=(3, T)) * 10.0**decade
        s = sparsemax(a)
        assert s.min() >= 0
        np.testing.assert_allclose(s.sum(-1), 1.0, atol=1e-13)
        # variational inequality of the projection: (a - s)'(e_t - s) <= 0 for every corner
        force = a - s
        slack = force.max(-1) - (s * force).sum(-1)
        assert slack.max() <= 1e-13 * max(1.0, np.abs(a).max())

    @SETTINGS
    @given(st.integers(2, 12), st.integers(0, 2**32 - 1))
    def test_symmetries(self, T, seed):
        rng = np.random.default_rng(seed)
        a = rng.normal(size=T)
        order = rng.permutation(T)
        np.testing.assert_allclose(sparsemax(a[order]), sparsemax(a)[order], atol=1e-15)
        np.testing.assert_allclose(sparsemax(a + 3.0), sparsemax(a), atol=1e-14)
        s = sparsemax(a)
        np.testing.assert_allclose(sparsemax(s), s, atol=1e-15)

    def test_known(self):
        np.testing.assert_allclose(sparsemax([0.5, 0.3, -1.0]), [0.6, 0.4, 0.0], atol=1e-15)
        np.testing.assert_array_equal(sparsemax([2.0, 1.0]), [1.0, 0.0])  # exactly at the threshold
        np.testing.assert_allclose(sparsemax(np.zeros(7)), np.full(7, 1 / 7), atol=1e-16)

    def test_extreme_scales(self):
        np.testing.assert_array_equal(sparsemax([1e308, -1e308]), [1.0, 0.0])
        np.testing.assert_allclose(sparsemax([1e300, 1e300, 0.0]), [0.5, 0.5, 0.0])
        np.testing.assert_allclose(sparsemax([1e-300, 0.0]), [0.5, 0.5])
        np.testing.assert_allclose(sparsemax([1e9 + 0.25, 1e9]), [0.625, 0.375])

    def test_mask(self):
        a = np.array([[1.0, 5.0, 0.8], [0.0, 0.0, 9.0]])
        mask = np.array([[True, False, True], [True, True, False]])
        by_mask, by_infinity = sparsemax(a, mask), sparsemax(np.where(mask, a, -np.inf))
        np.testing.assert_array_equal(by_mask, by_infinity)
        np.testing.assert_allclose(by_mask, [[0.6, 0.0, 0.4], [0.5, 0.5, 0.0]], atol=1e-15)

    @pytest.mark.parametrize("bad", [[np.nan, 1.0], [np.inf, 1.0], [-np.inf, -np.inf]])
    def test_refuses(self, bad):
        with pytest.raises(DataError):
            sparsemax(bad)

    def test_refuses_shapes(self):
        with pytest.raises(ShapeError, match="at least one entry"):
            sparsemax(np.zeros((2, 0)))
        with pytest.raises(ShapeError, match="mask"):
            sparsemax(np.zeros((2, 3)), np.ones((3, 3), dtype=bool))


class TestThresholds:
    @SETTINGS
    @given(st.integers(2, 9), st.integers(0, 2**32 - 1))
    def test_counts(self, T, seed):
        gamma = np.random.default_rng(seed).normal(size=T)
        at = sparsemax_thresholds(gamma)
        for lam in (0.05, 0.3, 1.0, 4.0):
            if np.abs(at - lam).min() > 1e-9:
                assert (sparsemax(gamma / (2 * lam)) > 0).sum() == (at < lam).sum()

    def test_known(self):
        np.testing.assert_allclose(sparsemax_thresholds([0.0, 1.0, 0.4]), [0.0, 0.3, 0.7])
        np.testing.assert_array_equal(sparsemax_thresholds([1.0, 1.0]), [0.0, 0.0])
        np.testing.assert_allclose(sparsemax_thresholds([1.0, -np.inf, 0.5]), [0.0, 0.25, np.inf])

    def test_refuses(self):
        with pytest.raises(DataError):
            sparsemax_thresholds([np.nan, 1.0])


class TestBestAttention:
    def test_orthonormal_is_sparsemax(self):
        for seed in range(40):
            rng = np.random.default_rng(seed)
            X = np.linalg.qr(rng.normal(size=(9, 9)))[0][:7]
            v, lam = rng.normal(size=9) * 10 ** rng.uniform(-2, 2), 10 ** rng.uniform(-3, 3)
            best = best_attention(Problem(X[None], np.ones((1, 1)), [1], head=quadratic(v, lam)))
            assert np.abs(best.probabilities[0] - sparsemax(X @ v / (2 * lam))).max() <= 1e-10
            assert best.concave.all()

    @pytest.mark.parametrize("d", [1, 2, 4])
    def test_any_tokens_against_all_supports(self, d):
        for seed in range(15):
            rng = np.random.default_rng(seed)
            X, v, lam = rng.normal(size=(6, d)), rng.normal(size=d), 10 ** rng.uniform(-1.5, 1.5)
            X[1] = X[0] if seed % 3 == 0 else X[1]  # equal tokens, and one between two others
            X[2] = 0.5 * (X[3] + X[4]) if seed % 3 == 1 else X[2]
            best = best_attention(Problem(X[None], np.ones((1, 1)), [1], head=quadratic(v, lam)))
            assert best.value[0] == pytest.approx(by_supports(X, v, lam), rel=1e-9, abs=1e-9)
            assert best.probabilities.min() >= 0
            assert best.probabilities.sum() == pytest.approx(1.0, abs=1e-13)
            assert best.selected.sum() <= d + 1
            np.testing.assert_allclose(best.outputs[0], best.probabilities[0] @ X, atol=1e-12)

    def test_convex_cases_take_the_best_token(self):
        rng = np.random.default_rng(0)
        X, v = rng.normal(size=(5, 4, 3)), rng.normal(size=3)
        y = np.array([1, -1, 1, -1, 1])
        cases = {
            "v": Problem(X, np.ones((5, 1)), y, v),
            "linear": Problem(X, np.ones((5, 1)), y, head=linear(v)),
            "convex": Problem(X, np.ones((5, 1)), np.ones(5), head=quadratic(v, -0.7)),
            "negative label": Problem(X, np.ones((5, 1)), -np.ones(5), head=quadratic(v, 0.7)),
            "relu": Problem(X, np.ones((5, 1)), np.ones(5), head=mlp(rng.normal(size=(3, 4)))),
        }
        for name, p in cases.items():
            best = best_attention(p)
            assert (best.selected.sum(-1) == 1).all(), name
            assert not best.concave.any(), name
            one = Problem(best.outputs[:, None], np.ones((5, 1)), p.y, p.v, head=p.head)
            np.testing.assert_allclose(p.y * sv.attention.predictions(one, np.zeros((3, 1))), best.value)
            assert (best.gap == 0).all()
        np.testing.assert_array_equal(best_attention(cases["v"]).probabilities.argmax(-1), cases["v"].optimal)

    def test_relu_with_negative_label(self):
        for seed in range(20):
            rng = np.random.default_rng(seed)
            X, V = rng.normal(size=(5, 3)), rng.normal(size=(3, 4))
            p = Problem(X[None], np.ones((1, 1)), [-1], head=mlp(V))
            best = best_attention(p)
            s = rng.dirichlet(np.ones(5) * 0.5, size=4000)
            assert (-np.maximum(s @ X @ V, 0).sum(-1)).max() <= best.value[0] + 1e-9
            assert best.value[0] == pytest.approx(-np.maximum(best.outputs[0] @ V, 0).sum(), abs=1e-12)
            assert best.value[0] <= 0

    def test_batch_mask_and_heads_of_their_own(self):
        p = sv.data.random_problem(3, 5, 4, batch=4)
        lam = np.array([0.1, 1.0, 3.0, -1.0])
        mask = np.random.default_rng(0).random((4, 3, 5)) < 0.7
        mask[..., 0] = True
        many = Problem(p.X, p.z, p.y, head=quadratic(p.v, lam), mask=mask)
        best = best_attention(many)
        assert best.probabilities.shape == (4, 3, 5)
        assert (best.probabilities[~mask] == 0).all()
        for b in range(4):
            one = best_attention(many[b])
            np.testing.assert_allclose(one.probabilities, best.probabilities[b], atol=1e-14)
            for i in range(3):
                seen = mask[b, i]
                part = Problem(p.X[b, i, seen][None], np.ones((1, 1)), p.y[b, i : i + 1], head=many[b].head)
                np.testing.assert_allclose(best_attention(part).value, best.value[b, i], atol=1e-12)
        assert not best.probabilities.flags.writeable
        assert "12 sequences" in repr(best)

    def test_certificate_covers_random_attention(self):
        p = sv.data.random_problem(2, 6, 3, batch=20)
        p = Problem(p.X, p.z, np.ones(2), head=quadratic(p.v, 1.5))
        best = best_attention(p)
        for seed in range(20):
            W = np.random.default_rng(seed).normal(scale=6.0, size=(20, 3, 3))
            assert (sv.attention.predictions(p, W) <= best.value + best.gap + 1e-15).all()

    def test_scale_invariance(self):
        rng = np.random.default_rng(3)
        X, v = rng.normal(size=(6, 3)), rng.normal(size=3)
        base = best_attention(Problem(X[None], np.ones((1, 1)), [1], head=quadratic(v, 0.8)))
        for c in (1e-12, 1e12):  # tokens times c: slope over c, curvature over c squared
            scaled = Problem(c * X[None], np.ones((1, 1)), [1], head=quadratic(v / c, 0.8 / c**2))
            np.testing.assert_allclose(best_attention(scaled).probabilities, base.probabilities, atol=1e-9)

    def test_refuses_other_heads(self):
        p = Problem(np.eye(2)[None], np.ones((1, 1)), [1], head=lambda u: u.sum(-1))
        with pytest.raises(DataError, match="linear, quadratic or mlp"):
            best_attention(p)
        with pytest.raises(DataError, match="no head"):
            best_attention(Problem(np.eye(2)[None], np.ones((1, 1)), [1]))


def test_masks_and_scores_that_say_nothing():
    with pytest.raises(DataError, match="mask must be boolean"):
        sparsemax([1.0, 2.0], [0.5, 1.0])
    with pytest.raises(ShapeError, match="scores must have at least one entry"):
        sparsemax_thresholds(np.zeros((2, 0)))
