"""Principal pivoting, which solves the easy Frobenius programs of a batch together."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.svm import pivoting, programs
from svmlib.svm.arguments import constraints
from svmlib.svm.pivoting import pivoted

SIZES = [(1, 2, 1), (3, 3, 4), (5, 5, 10), (4, 5, 4), (10, 10, 10)]


def parts(p, tokens=None, relaxed=None):
    return constraints(p, tokens, relaxed).flat()[1:]


def one_by_one(monkeypatch, *arguments, **named):
    with monkeypatch.context() as patch:
        patch.setattr(
            programs,
            "pivoted",
            lambda d, z, c, r: (np.zeros(len(z), bool), np.zeros((len(z), d.shape[3], z.shape[2])), 0.0 * c),
        )
        return sv.svm.attention_svm(*arguments, **named)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("relaxed", [False, True])
def test_the_other_solver_agrees(monkeypatch, sizes, relaxed):
    p = sv.data.random_problem(*sizes, batch=6, seed=3)
    tokens = np.random.default_rng(0).integers(sizes[1], size=(6, sizes[0]))
    flags = np.arange(sizes[0]) % 2 == 1 if relaxed else None
    want = one_by_one(monkeypatch, p, tokens, relaxed=flags, errors="nan")
    got = sv.svm.attention_svm(p, tokens, relaxed=flags, errors="nan")
    np.testing.assert_array_equal(got.solved, want.solved)
    scale = np.nanmax(want.value)
    np.testing.assert_allclose(got.W, want.W, atol=1e-9 * scale)
    np.testing.assert_allclose(got.multipliers, want.multipliers, rtol=1e-6, atol=1e-7 * scale**2)
    np.testing.assert_array_equal(got.support, want.support)


def test_generic_problems_are_all_settled():
    for sizes in SIZES[1:]:  # unit vectors in one dimension are equal too often
        assert pivoted(*parts(sv.data.random_problem(*sizes, batch=20)))[0].all()


def test_batches_are_cut_without_a_trace(monkeypatch):
    mask = np.ones((9, 3, 5), dtype=bool)
    mask[::2, 1, 4] = mask[1::3, 0, 3] = False  # unequal numbers of constraints
    p = sv.data.random_problem(3, 5, 6, batch=9)
    q = sv.data.Problem(p.X, p.z, p.y, p.v, mask=mask)
    whole = sv.svm.attention_svm(q)
    monkeypatch.setattr(pivoting, "_WORKSPACE", 300)
    cut = sv.svm.attention_svm(q)
    np.testing.assert_array_equal(cut.W, whole.W)
    np.testing.assert_array_equal(cut.multipliers, whole.multipliers)
    assert (cut.multipliers[~cut.constrained] == 0).all()


@pytest.mark.parametrize("case", ["crowded", "duplicate", "silent", "contradictory", "extreme", "degenerate"])
def test_what_it_leaves_to_the_other_solver(case):
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(3, 4, 5)), rng.normal(size=(3, 5))
    if case == "crowded":
        X, z = rng.normal(size=(3, 8, 2)), rng.normal(size=(3, 2))
    elif case == "duplicate":
        X[1, 2] = X[1, 0]
    elif case == "silent":
        z[1] = 0.0
    elif case == "contradictory":
        X[1], z[1] = 2 * X[0, :1] - X[0], z[0]
    elif case == "extreme":
        z[0] *= 1e-200
    elif case == "degenerate":
        X[1, 2:] = X[1, 1]
    p = sv.data.Problem(X, z, np.ones(3))
    solved, W, multipliers = pivoted(*parts(p, [0, 0, 0]))
    if case != "degenerate":
        assert not solved.any()
        assert not W.any()
        assert not multipliers.any()
    svm = sv.svm.attention_svm(p, [0, 0, 0], errors="nan")
    assert svm.feasible == (case not in ("duplicate", "silent", "contradictory"))


def test_one_bad_element_leaves_the_others():
    p = sv.data.random_problem(3, 4, 5, batch=5)
    X = p.X.copy()
    X[2, 1, (p.optimal[2, 1] + 1) % 4] = X[2, 1, p.optimal[2, 1]]
    q = sv.data.Problem(X, p.z, p.y, p.v)
    np.testing.assert_array_equal(pivoted(*parts(q, p.optimal))[0], [True, True, False, True, True])
    svm = sv.svm.attention_svm(q, p.optimal, errors="nan")
    for b in (0, 1, 3, 4):
        np.testing.assert_array_equal(svm.W[b], sv.svm.attention_svm(p[b]).W)


@pytest.mark.parametrize("norm", ["fro", "nuc"])
def test_the_other_solver_bears_every_scale(monkeypatch, norm):
    p = sv.data.random_problem(3, 4, 5, seed=4)
    want = sv.svm.attention_svm(p, norm=norm, relaxed=[0, 1, 0])
    for size in (1e-59, 1e-8, 1e8, 1e59):
        q = sv.data.Problem(p.X * size, p.z * size, p.y, p.v)
        got = one_by_one(monkeypatch, q, norm=norm, relaxed=[0, 1, 0])
        np.testing.assert_allclose(got.W * size**2, want.W, atol=1e-9 * float(want.value))
        assert got.certificate.worst <= 1e-9


def test_unfinished_pivoting_is_not_believed(monkeypatch):
    p = sv.data.random_problem(5, 5, 6, batch=20)
    want = sv.svm.attention_svm(p)
    monkeypatch.setattr(pivoting, "_ROUNDS", 1)
    solved, _, _ = pivoted(*parts(p))
    assert not solved.all()
    np.testing.assert_allclose(sv.svm.attention_svm(p).W, want.W, atol=1e-9)
