"""Scales, number types and conditioning: the right answer or a named error."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.errors import DataError, InfeasibleError

NORMS = ("fro", "nuc")
LONG = np.longdouble


def gaussian(n, T, d, seed=0):
    rng = np.random.default_rng(seed)
    return sv.data.Problem(
        rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), np.ones(n), rng.normal(size=d)
    )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("relaxed", [None, [0, 1, 0]])
def test_scales(norm, relaxed):
    p = gaussian(3, 4, 5)
    tokens, svm = p.optimal, sv.svm.attention_svm(p, norm=norm, relaxed=relaxed)
    for a, b in ((1e-8, 1.0), (1e8, 1.0), (1.0, 1e-8), (1e-8, 1e8), (1e8, 1e8), (1e-8, 1e-8)):
        other = sv.svm.attention_svm(
            sv.data.Problem(a * p.X, b * p.z, p.y), tokens, norm=norm, relaxed=relaxed
        )
        np.testing.assert_allclose(other.value * a * b, svm.value, rtol=1e-10)
        np.testing.assert_allclose(other.W * a * b, svm.W, atol=1e-8 * float(svm.value))
        np.testing.assert_array_equal(other.support, svm.support)
        assert other.rank == svm.rank
    far = sv.data.Problem(p.X + 1e8, p.z, p.y)  # differences keep about eight digits
    moved = sv.svm.attention_svm(far, tokens, norm=norm, relaxed=relaxed)
    np.testing.assert_allclose(moved.value, svm.value, rtol=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_integers_and_single_precision(norm):
    rng = np.random.default_rng(2)
    X, z = rng.integers(-5, 6, size=(3, 4, 5)), rng.integers(-5, 6, size=(3, 5))
    exact = sv.svm.attention_svm(sv.data.Problem(X, z, [1, 1, 1]), [0, 1, 2], norm=norm)
    assert exact.W.dtype == np.float64
    for kind in (np.int8, np.int32, np.float32, np.float64):
        p = sv.data.Problem(X.astype(kind), z.astype(kind), np.ones(3, kind))
        np.testing.assert_array_equal(sv.svm.attention_svm(p, [0, 1, 2], norm=norm).W, exact.W)
    single = gaussian(3, 4, 5)
    X32, z32 = single.X.astype(np.float32), single.z.astype(np.float32)
    svm = sv.svm.attention_svm(sv.data.Problem(X32, z32, single.y), single.optimal, norm=norm)
    assert svm.certificate.worst <= 1e-10  # of the rounded data
    np.testing.assert_allclose(svm.value, sv.svm.attention_svm(single, norm=norm).value, rtol=1e-5)
    keys = np.array([[[0, 0], [2, -1]], [[0, 0], [-1, 0]]], dtype=np.int16)
    np.testing.assert_allclose(sv.svm.token_svm(keys, np.zeros(2, np.int8)).p, [1, 3], atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named(bad):
    p = gaussian(2, 3, 4)
    for name in ("X", "z"):
        a = getattr(p, name).copy()
        a.flat[5] = bad
        with pytest.raises(DataError, match=f"{name} must be finite"):
            sv.data.Problem(**{"X": p.X, "z": p.z, "y": p.y, name: a})
    with pytest.raises(DataError, match="X must be finite"):
        sv.svm.hard_margin([[1.0, bad]], [1])


@pytest.mark.parametrize("seed", range(4))
def test_one_query_direction_makes_the_norms_equal(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    X, z = rng.normal(size=(n, 4, 3 * n)), np.outer(10.0 ** rng.uniform(-2, 2, n), rng.normal(size=3))
    z *= rng.choice([-1.0, 1.0], size=(n, 1))
    p = sv.data.Problem(X, z, np.ones(n))
    tokens = rng.integers(4, size=n)
    fro, nuc = (sv.svm.attention_svm(p, tokens, norm=norm) for norm in NORMS)
    assert fro.rank == nuc.rank == 1
    np.testing.assert_allclose(nuc.value, fro.value, rtol=1e-12)
    np.testing.assert_allclose(nuc.W, fro.W, atol=1e-12 * float(fro.value))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(6))
def test_crowded_and_ill_conditioned_problems_in_few_dimensions(norm, seed):
    rng = np.random.default_rng(seed)
    n, T, d = 8, 7, 2 + seed % 2
    stretch = np.diag(10.0 ** -np.linspace(0, 3, d))
    X, z = rng.normal(size=(n, T, d)) @ stretch, rng.normal(size=(n, d)) @ stretch
    hidden = np.linalg.inv(stretch) @ rng.normal(size=(d, d)) @ np.linalg.inv(stretch)
    tokens = np.einsum("ntd,de,ne->nt", X, hidden, z).argmax(1)
    relaxed = rng.random(n) < 0.3 if seed % 3 == 0 else np.zeros(n, dtype=bool)
    p = sv.data.Problem(X, z, np.ones(n))
    svm = sv.svm.attention_svm(p, tokens, norm=norm, relaxed=relaxed)
    # the proof of optimality once more, in the longest numbers at hand: |W| <= value <= dual value
    chosen = np.take_along_axis(X, tokens[:, None, None], 1).astype(LONG)
    delta, W, lam = chosen - X.astype(LONG), svm.W.astype(LONG), svm.multipliers.astype(LONG)
    margins = np.einsum("ntd,de,ne->nt", delta, W, z.astype(LONG))
    low = (margins - np.where(relaxed, 0, 1)[:, None])[svm.constrained].min()
    assert low >= -1e-9
    G = np.einsum("nt,ntd,ne->de", lam, delta, z.astype(LONG))
    total = lam[~relaxed].sum()
    if norm == "fro":  # max of total - |G|^2 / 2
        best = np.sqrt(2 * total - np.square(G).sum())
    else:
        best = total / max(1.0, float(sv.norms.SPEC(G.astype(float))))
    np.testing.assert_allclose(float(best), float(svm.value), rtol=1e-8)
    assert svm.value > 10.0  # ill-conditioned enough to be a test


def test_nearly_equal_tokens_are_solved_or_refused():
    rng = np.random.default_rng(0)
    for exponent in (-4, -6, -8, -10, -12):
        for _ in range(6):
            X, z = rng.normal(size=(3, 4, 5)), rng.normal(size=(3, 5))
            X[:, 2] = X[:, 1] + 10.0**exponent * rng.normal(size=(3, 5))
            p = sv.data.Problem(X, z, np.ones(3))
            fro = sv.svm.attention_svm(p, [0, 0, 0])
            mask = np.ones((3, 4), dtype=bool)
            mask[:, 2] = False
            merged = sv.data.Problem(X, z, np.ones(3), mask=mask)
            tol = 1e-9 + 30 * 10.0**exponent
            for norm in NORMS:
                svm = sv.svm.attention_svm(p, [0, 0, 0], norm=norm, errors="nan")
                assert svm.feasible
                if svm.solved:
                    near = sv.svm.attention_svm(merged, [0, 0, 0], norm=norm)
                    np.testing.assert_allclose(svm.value, near.value, rtol=tol * float(near.value))
                else:
                    assert norm == "nuc"
            assert fro.certificate.worst <= 1e-9


@pytest.mark.parametrize("norm", NORMS)
def test_contradictions_are_proved_at_every_scale(norm):
    p = gaussian(2, 3, 4)
    for size in (1e-8, 1.0, 1e8):
        twice = sv.data.Problem(size * p.X[[0, 0]], p.z[[0, 0]], p.y)
        with pytest.raises(InfeasibleError, match="contradict each other"):
            sv.svm.attention_svm(twice, [0, 1], norm=norm)
