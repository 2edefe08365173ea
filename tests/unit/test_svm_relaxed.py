"""Relaxed sequences: margins that need only be at least 0."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import svmlib as sv
from svmlib.errors import DataError, InfeasibleError, ShapeError
from svmlib.svm.least_distance import FARKAS, least_distance
from svmlib.svm.nuclear import Program, _scaled

NORMS = ("fro", "nuc")


def gaussian(n, T, d, seed=0, **rest):
    rng = np.random.default_rng(seed)
    return sv.data.Problem(
        rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), np.ones(n), rng.normal(size=d), **rest
    )


@pytest.mark.parametrize("norm", NORMS)
def test_a_toy_with_an_exact_answer(norm):
    # W e_1 = (a, b) with a + b >= 1, b - a >= 0, and the negative of the third row
    def solve(relaxed, third):
        X = [[[0, 0], [-1, -1]], [[0, 0], [1, -1]], [[0, 0], third]]
        p = sv.data.Problem(X, [[1.0, 0.0]] * 3, [1, 1, 1])
        return sv.svm.attention_svm(p, [0, 0, 0], norm=norm, relaxed=relaxed)

    np.testing.assert_allclose(solve([0, 0, 1], [0, -1]).W[:, 0], [0, 1], atol=1e-12)
    svm = solve([0, 1, 1], [0, -1])
    np.testing.assert_allclose(svm.W[:, 0], [0.5, 0.5], atol=1e-12)
    np.testing.assert_array_equal(svm.required, [True, False, False])
    np.testing.assert_array_equal(svm.support[:, 1], [True, True, False])  # the third has margin 0.5
    svm = solve([0, 1, 1], [1, -2])  # 2 b >= a
    np.testing.assert_allclose(svm.W[:, 0], [0.5, 0.5], atol=1e-12)
    svm = solve([0, 1, 0], [2, -1])  # b >= 2 a + 1
    np.testing.assert_allclose(svm.W[:, 0], [0.0, 1.0], atol=1e-12)
    with pytest.raises(InfeasibleError, match="contradict each other"):  # a >= 3 b, b >= a, a + b >= 1
        solve([0, 1, 1], [-1, 3])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(5))
def test_certificates_and_complementary_slackness(norm, seed):
    p = gaussian(5, 4, 5, seed)
    relaxed = np.array([0, 1, 0, 1, 1], dtype=bool)
    svm = sv.svm.attention_svm(p, norm=norm, relaxed=relaxed)
    assert svm.certificate.worst <= 1e-10
    margins = sv.compare.margins(svm.W, p.X, p.z, svm.tokens)
    rhs = np.where(relaxed, 0.0, 1.0)[:, None]
    assert (margins >= rhs - 1e-10).all()
    np.testing.assert_array_equal(svm.support, margins < rhs + 1e-3)
    assert (svm.multipliers[~svm.support] <= 1e-9 * svm.multipliers.max()).all()
    assert svm.multipliers[relaxed].max() > 1e-3  # some relaxed constraint does hold W back
    G = np.einsum("nt,ntd,ne->de", svm.multipliers, p.differences(), p.z)
    total = svm.multipliers[~relaxed].sum()
    if norm == "fro":
        np.testing.assert_allclose(G, svm.W, atol=1e-10)
        np.testing.assert_allclose(total, svm.value**2, rtol=1e-10)
    else:
        np.testing.assert_allclose(sv.norms.SPEC(G), 1.0, rtol=1e-10)
        np.testing.assert_allclose(total, svm.value, rtol=1e-10)
    full = sv.svm.attention_svm(p, norm=norm)
    alone = sv.svm.attention_svm(sv.data.Problem(p.X[~relaxed], p.z[~relaxed], p.y[~relaxed], p.v), norm=norm)
    assert alone.value < svm.value < full.value


@pytest.mark.parametrize("seed", range(4))
def test_frobenius_against_the_dual_program(seed):
    # max b'lambda - |A'lambda|^2 / 2 over lambda >= 0, by a quasi-Newton method that knows only the bounds
    p, relaxed = gaussian(4, 3, 3, seed), [False, True, True, False]
    i, t = np.nonzero(np.arange(3) != p.optimal[:, None])
    A = np.einsum("sd,se->sde", p.differences()[i, t], p.z[i]).reshape(len(i), -1)
    b = np.where(np.array(relaxed)[i], 0.0, 1.0)
    best = minimize(
        lambda lam: 0.5 * np.square(A.T @ lam).sum() - b @ lam,
        np.ones(len(b)),
        jac=lambda lam: A @ (A.T @ lam) - b,
        bounds=[(0.0, None)] * len(b),
        method="L-BFGS-B",
        options={"ftol": 1e-16, "gtol": 1e-10, "maxiter": 5000, "maxfun": 50000},
    )
    svm = sv.svm.attention_svm(p, relaxed=relaxed)
    np.testing.assert_allclose(svm.W.ravel(), A.T @ best.x, atol=1e-5)
    np.testing.assert_allclose(svm.value**2 / 2, -best.fun, rtol=1e-7)


@pytest.mark.parametrize("norm", NORMS)
def test_relaxing_nothing_or_everything(norm):
    p = gaussian(3, 4, 5)
    none, plain = sv.svm.attention_svm(p, norm=norm, relaxed=[0, 0, 0]), sv.svm.attention_svm(p, norm=norm)
    np.testing.assert_array_equal(none.W, plain.W)
    assert none.required.all()
    assert "relaxed" not in repr(none)
    for solve in (sv.svm.attention_svm, sv.svm.attention_svm_conic):
        svm = solve(p, norm=norm, relaxed=[1, 1, 1])
        assert not svm.W.any()
        assert (float(svm.value), int(svm.rank), float(svm.margin)) == (0.0, 0, np.inf)
        assert float(svm.certificate.worst) == 0.0
        np.testing.assert_array_equal(svm.support, svm.constrained)
        assert "3 of 3 sequences relaxed" in repr(svm)
    assert sv.svm.feasible(p, relaxed=[1, 1, 1])


@pytest.mark.parametrize("norm", NORMS)
def test_relaxed_sequences_bear_duplicates_and_zero_queries(norm):
    p = gaussian(3, 4, 5)
    X, z = p.X.copy(), p.z.copy()
    X[1, 2] = X[1, 0]
    z[2] = 0.0
    bad = sv.data.Problem(X, z, p.y, p.v)
    svm = sv.svm.attention_svm(bad, [0, 0, 0], norm=norm, relaxed=[False, True, True])
    mask = np.ones((3, 4), dtype=bool)
    mask[1, 2] = mask[2, 1:] = False
    clean = sv.svm.attention_svm(
        sv.data.Problem(X, z, p.y, p.v, mask=mask), [0, 0, 0], norm=norm, relaxed=[False, True, True]
    )
    np.testing.assert_allclose(svm.W, clean.W, atol=1e-10)
    assert svm.support[1, 2]  # its margin is 0
    assert svm.multipliers[1, 2] == 0
    assert svm.support[2, 1:].all()
    for relaxed in ([0, 0, 1], [0, 1, 0]):
        assert not sv.svm.feasible(bad, [0, 0, 0], relaxed)
        with pytest.raises(InfeasibleError):
            sv.svm.attention_svm(bad, [0, 0, 0], norm=norm, relaxed=relaxed)


@pytest.mark.parametrize("norm", NORMS)
def test_opposite_relaxed_constraints_hold_as_equalities(norm):
    p = gaussian(4, 3, 5)
    X, z = p.X.copy(), p.z.copy()
    X[1], z[1] = X[0], z[0]
    p = sv.data.Problem(X, z, p.y, p.v)
    tokens, relaxed = [0, 1, 0, 0], [1, 1, 0, 0]  # token 0 before token 1, and the other way round
    svm = sv.svm.attention_svm(p, tokens, norm=norm, relaxed=relaxed)
    margins = sv.compare.margins(svm.W, p.X, p.z, tokens)
    np.testing.assert_allclose([margins[0, 1], margins[1, 0]], 0.0, atol=1e-10)
    conic = sv.svm.attention_svm_conic(p, tokens, norm, relaxed)
    np.testing.assert_allclose(svm.value, conic.value, rtol=1e-7)
    assert not sv.svm.feasible(p, tokens, [1, 0, 0, 0])  # 0 >= m and m >= 1


def test_a_vanishing_combination_of_relaxed_rows_proves_nothing():
    F = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.3, 0.4, 0.0]])
    F[2] /= np.linalg.norm(F[2])
    required = np.array([False, False, True])
    answer = least_distance(F, np.ones(3), required=required)
    assert answer.status == "solved"
    np.testing.assert_allclose(answer.w, [0.0, 1.0 / 0.8, 0.0], atol=1e-12)
    blocked = least_distance(np.r_[F, [[0.0, -1.0, 0.0]]], np.ones(4), required=np.append(required, False))
    assert blocked.status == "infeasible"
    assert (blocked.multipliers >= 0).all()
    np.testing.assert_allclose(blocked.multipliers[2], 1.0, rtol=1e-12)
    vanishing = np.r_[F, [[0.0, -1.0, 0.0]]].T @ blocked.multipliers
    assert np.linalg.norm(vanishing) <= FARKAS


def test_negative_relaxed_margins_count_against_a_nuclear_point():
    eye, c = np.eye(2), np.array([1.0, 0.0])
    program = Program(eye, eye, c, np.array([1.0, 1e-3]))
    lam = np.array([1.0, 0.5])
    gap, M, _ = _scaled(program, np.diag([2.0, 0.0]), lam)
    assert gap == pytest.approx(0.0, abs=1e-15)
    np.testing.assert_allclose(M, np.diag([1.0, 0.0]))
    # the gap is 5e-6, but on the scale of its row the margin is -5e-3
    assert _scaled(program, np.diag([2.0, -1e-5]), lam)[0] == pytest.approx(5e-3)


@pytest.mark.parametrize("norm", NORMS)
def test_batches_broadcast_the_flags(norm):
    p = sv.data.random_problem(3, 4, 5, batch=4)
    rows = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1]])
    svm = sv.svm.attention_svm(p, norm=norm, relaxed=rows)
    np.testing.assert_array_equal(svm.required, rows == 0)
    for b in range(4):
        np.testing.assert_array_equal(
            svm.W[b], sv.svm.attention_svm(p[b], norm=norm, relaxed=rows[b].astype(bool)).W
        )
    shared = sv.svm.attention_svm(p, norm=norm, relaxed=[0, 1, 1])
    assert shared.required.shape == (4, 3)
    np.testing.assert_array_equal(shared.W[2], svm.W[2])
    assert "8 of 12 sequences relaxed" in repr(shared)


@pytest.mark.parametrize(
    ("relaxed", "error", "message"),
    [
        ([True, False], ShapeError, r"relaxed must end in axes of sizes \(3,\)"),
        ([[True, False, True]] * 2, ShapeError, r"relaxed has shape \(2, 3\).*batch axes \(\)"),
        ([0.5, 0.0, 1.0], DataError, "relaxed must be boolean"),
        ([np.nan, 0.0, 1.0], DataError, "relaxed must be finite"),
        ("all", DataError, "relaxed must be an array of real numbers"),
    ],
)
def test_bad_flags(relaxed, error, message):
    p = gaussian(3, 4, 5)
    for solve in (sv.svm.attention_svm, sv.svm.attention_svm_conic, sv.svm.feasible):
        with pytest.raises(error, match=message):
            solve(p, relaxed=relaxed)
