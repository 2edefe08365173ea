"""The parts that solve programs with equalities: certificates, the second solver, rows that depend less."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.errors import SolverError
from svmlib.svm import general, nuclear
from svmlib.svm.cones import nuclear_cone
from svmlib.svm.general import certified
from svmlib.svm.generalized import _rows
from svmlib.svm.ties import Tied

NORMS = ("fro", "nuc")
SELECTED = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [1, 1, 1, 0]], dtype=bool)
ATTENTION = np.array([[0.75, 0.25, 0, 0], [0, 1.0, 0, 0], [0.5, 0.25, 0.25, 0]])


def gaussian(n=3, T=4, d=5, seed=0):
    rng = np.random.default_rng(seed)
    return sv.data.Problem(rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), np.ones(n))


@pytest.mark.parametrize("norm", NORMS)
def test_certificates_count_missed_equalities_and_negative_multipliers(norm):
    p = gaussian()
    rows = _rows(p, SELECTED, np.zeros(SELECTED.shape), with_margins=True)
    svm = sv.svm.generalized_svm(p, SELECTED, norm=norm)
    lam = (svm.multipliers + svm.equalities)[None]
    assert certified(rows, svm.W[None], lam, norm)[0].worst < 1e-10
    # along an equality no margin changes, once what the other features see is taken out
    features = rows.delta[0][:, :, :, None] * p.z[:, None, None, :]
    others = features[rows.constrained[0] | rows.equal[0]].reshape(-1, 25)
    moved = np.linalg.lstsq(others, (np.arange(len(others)) == 0) * 1e-6, rcond=None)[0]
    W = svm.W + moved.reshape(5, 5)
    certificate, _, slack = certified(rows, W[None], lam, norm)
    np.testing.assert_allclose(certificate.primal, 1e-6, rtol=1e-6)
    np.testing.assert_allclose(slack.min(), 0.0, atol=1e-9)
    lam[0, 0, 2] = -1e-3 * lam.max()
    assert certified(rows, svm.W[None], lam, norm)[0].dual >= 1e-4
    worse = certified(rows, 0.9 * svm.W[None], lam, norm)[0]
    assert abs(worse.primal - 0.1) < 1e-9 and worse.gap > 0.01


def test_points_that_miss_equalities_are_refused(monkeypatch):
    p, true = gaussian(), general.pivoted

    def off(delta, z, *rest):
        done, W, lam = true(delta, z, *rest)
        return done, W * (1 + 1e-6), lam

    monkeypatch.setattr(general, "pivoted", off)
    with pytest.raises(
        SolverError, match=r'generalised SVM .* solved for "fro" only up to primal .*promised 1e-09'
    ):
        sv.svm.generalized_svm(p, SELECTED)
    with pytest.raises(SolverError, match=r"finite part .* only up to primal 1\.\de-06"):
        sv.svm.finite_part(p, ATTENTION)
    lost = sv.svm.generalized_svm(p, SELECTED, errors="nan")
    assert lost.feasible and not lost.solved and "not solved" in repr(lost)


def test_the_second_solver_takes_equalities(monkeypatch):
    p = gaussian(seed=2)
    want = [sv.svm.generalized_svm(p, SELECTED, norm="nuc"), sv.svm.finite_part(p, ATTENTION, norm="nuc")]

    def unfinished(delta, q, c, gap, equal):
        return np.full((len(c), delta.shape[2], q.shape[2]), np.nan), np.full(c.shape, np.nan)

    monkeypatch.setattr(nuclear, "interior_points", unfinished)
    got = [sv.svm.generalized_svm(p, SELECTED, norm="nuc"), sv.svm.finite_part(p, ATTENTION, norm="nuc")]
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b.value, a.value, rtol=1e-9)
        assert b.certificate.worst < 1e-9


def test_the_cone_takes_equalities_in_any_order():
    rng = np.random.default_rng(4)
    delta, q = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    c, equal = np.array([0, 1.0, 0, 1.0, 1.0]), np.array([1, 0, 1, 0, 0], dtype=bool)
    M, lam = nuclear_cone(delta, q, c, equal, 1e-10)
    margins = ((delta @ M) * q).sum(1)
    np.testing.assert_allclose(margins[equal], 0.0, atol=1e-7)
    assert (margins[~equal] > 1 - 1e-7).all() and (lam[~equal] > -1e-7).all() and (lam[equal] < 0).any()
    np.testing.assert_allclose(np.linalg.svd((delta * lam[:, None]).T @ q, compute_uv=False)[0], 1, rtol=1e-6)
    np.testing.assert_allclose(lam @ c, np.linalg.svd(M, compute_uv=False).sum(), rtol=1e-6)


def test_rows_of_one_query_are_made_orthogonal():
    rng = np.random.default_rng(5)
    delta, q = rng.normal(size=(7, 3)), np.repeat(rng.normal(size=(2, 4)), [4, 3], axis=0)
    delta[2] = delta[0] + delta[1]  # a dependent equality, and two sequences with one query
    q[4:] = q[0]
    equal = np.array([1, 1, 1, 0, 1, 0, 0], dtype=bool)
    delta[4] = delta[0] - delta[1]
    program = nuclear.Program(delta, q, (~equal).astype(float), np.ones(7))
    tied = Tied.of(program, equal, np.array([0, 0, 0, 0, 1, 1, 1]), np.zeros((3, 4)))
    new = tied.program
    rows = (new.delta[:, :, None] * new.q[:, None, :]).reshape(len(new.c), -1)
    free = rows[new.ties.equal]
    assert len(free) == np.linalg.matrix_rank(free) == 2
    np.testing.assert_allclose(new.delta[0] @ delta[:3].T, 0, atol=1e-12)
    lam = rng.random(len(new.c))
    G = np.einsum("m,ma,me->ae", lam, new.delta, new.q)
    np.testing.assert_allclose(np.einsum("m,ma,me->ae", tied.multipliers(lam), delta, q), G, atol=1e-12)
    M = new.ties.met(rng.normal(size=(3, 4)))
    np.testing.assert_allclose(np.einsum("ma,ae,me->m", delta, M, q)[equal], 0, atol=1e-12)
    value, scaled, _ = nuclear._scaled(new, rng.normal(size=(3, 4)), lam)
    assert value > 0
    np.testing.assert_allclose(np.einsum("ma,ae,me->m", delta, scaled, q)[equal], 0, atol=1e-10)
