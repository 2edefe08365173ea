"""Degenerate instances, and what the solvers say of them."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.errors import DataError, InfeasibleError, ShapeError, SolverError
from svmlib.svm.least_distance import FARKAS, least_distance

NORMS = ("fro", "nuc")


def gaussian(n, T, d, seed=0, **rest):
    rng = np.random.default_rng(seed)
    return sv.data.Problem(
        rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), np.ones(n), rng.normal(size=d), **rest
    )


@pytest.mark.parametrize("norm", NORMS)
def test_without_constraints_zero_solves(norm):
    alone = gaussian(3, 1, 4)
    masked = gaussian(3, 5, 4, mask=np.eye(5, dtype=bool)[[0, 2, 4]])
    silent = sv.data.Problem(np.ones((1, 1, 2)), [[0.0, 0.0]], [1], [1.0, 1.0])
    for p in (alone, masked, silent):
        svm = sv.svm.attention_svm(p, norm=norm)
        assert not svm.W.any()
        assert (float(svm.value), int(svm.rank), float(svm.margin)) == (0.0, 0, np.inf)
        assert svm.feasible
        assert not svm.support.any()
        assert float(svm.certificate.worst) == 0.0
        assert sv.svm.feasible(p)


@pytest.mark.parametrize("norm", NORMS)
def test_one_sequence_and_one_dimension(norm):
    p = gaussian(1, 4, 3)
    svm, other = sv.svm.attention_svm(p, norm=norm), sv.svm.attention_svm(p)
    assert int(svm.rank) == 1
    np.testing.assert_allclose(svm.W, other.W, rtol=1e-12)
    np.testing.assert_allclose(svm.value, other.value, rtol=1e-12)
    q = other.W @ p.z[0]  # the solution is q z' / |z|^2
    np.testing.assert_allclose(svm.W, np.outer(q, p.z[0]) / (p.z[0] @ p.z[0]), rtol=1e-10)

    line = sv.data.Problem([[[3.0], [1.0]], [[-2.0], [2.0]]], [[2.0], [-0.5]], [1, 1], [1.0])
    svm = sv.svm.attention_svm(line, [0, 0], norm=norm)  # 4 w >= 1 and 2 w >= 1
    np.testing.assert_allclose(svm.W, [[0.5]], rtol=1e-14)
    np.testing.assert_array_equal(svm.support, [[False, False], [False, True]])
    with pytest.raises(InfeasibleError, match=r"2 of its 2 constraints, in sequences \[0, 1\]"):
        sv.svm.attention_svm(line, [0, 1], norm=norm)


def test_two_tokens():
    p = gaussian(1, 2, 3)
    delta, z = p.differences()[0, 1 - p.optimal[0]], p.z[0]
    want = np.outer(delta, z) / (delta @ delta) / (z @ z)
    np.testing.assert_allclose(sv.svm.attention_svm(p).W, want, rtol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_duplicates(norm):
    p = gaussian(3, 4, 5)
    clean = sv.svm.attention_svm(p, [0, 0, 0], norm=norm)
    X = np.concatenate([p.X, p.X[:, 1:2]], axis=1)  # a token that is not selected, twice
    twice = sv.svm.attention_svm(sv.data.Problem(X, p.z, p.y, p.v), [0, 0, 0], norm=norm)
    np.testing.assert_allclose(twice.W, clean.W, atol=1e-9 * float(clean.value))
    X[1, 4] = X[1, 0]  # now the selected one
    duplicated = sv.data.Problem(X, p.z, p.y, p.v)
    message = r"\(n=3, T=5, d=5\): in sequence 1 token 4 equals the selected token 0.*Merge the duplicates"
    with pytest.raises(InfeasibleError, match=message):
        sv.svm.attention_svm(duplicated, [0, 0, 0], norm=norm)
    assert not sv.svm.feasible(duplicated, [0, 0, 0])
    mask = np.ones((3, 5), dtype=bool)
    mask[1, 4] = False  # merged by hiding the copy
    merged = sv.data.Problem(X, p.z, p.y, p.v, mask=mask)
    assert sv.svm.attention_svm(merged, [0, 0, 0], norm=norm).feasible


@pytest.mark.parametrize("norm", NORMS)
def test_zero_query_and_contradictions(norm):
    p = gaussian(2, 3, 4)
    silent = sv.data.Problem(p.X, [[0.0] * 4, p.z[1]], p.y, p.v)
    with pytest.raises(InfeasibleError, match=r"the query of sequence 0 is 0.*Drop the sequence"):
        sv.svm.attention_svm(silent, norm=norm)
    contradictory = sv.data.Problem(p.X[[0, 0]], p.z[[0, 0]], p.y, p.v)  # opposite orders, any d
    with pytest.raises(InfeasibleError, match=r"2 of its 4 constraints.*Select other tokens, raise d"):
        sv.svm.attention_svm(contradictory, [0, 1], norm=norm)


@pytest.mark.parametrize("norm", NORMS)
def test_identical_queries_give_rank_one(norm):
    p = gaussian(4, 3, 6)
    same = sv.data.Problem(p.X, np.tile(p.z[:1], (4, 1)), p.y, p.v)
    svm, fro = sv.svm.attention_svm(same, norm=norm), sv.svm.attention_svm(same)
    assert int(svm.rank) == 1
    np.testing.assert_allclose(svm.W, fro.W, atol=1e-11 * float(fro.value))


def test_a_nuclear_minimiser_need_not_be_unique():
    # trace(W) >= 2 and |W|_* >= trace(W): every [[1, a], [a, 1]] with |a| <= 1 is optimal
    p = sv.data.Problem([[[1, 0], [0, 0]], [[0, 1], [0, 0]]], np.eye(2), [1, 1])
    svm = sv.svm.attention_svm(p, [0, 0], norm="nuc")
    np.testing.assert_allclose(svm.value, 2.0, rtol=1e-12)
    assert svm.certificate.worst <= 1e-12
    np.testing.assert_allclose(np.diag(svm.W), 1.0, rtol=1e-9)
    assert svm.W[0, 1] == pytest.approx(svm.W[1, 0], abs=1e-9)
    ones = np.ones((2, 2))
    assert float(sv.norms.NUC(ones)) == pytest.approx(2.0, rel=1e-14)  # another one, of rank 1
    assert (sv.compare.margins(ones, p.X, p.z, [0, 0]) >= 1).all()


@pytest.mark.parametrize("norm", NORMS)
def test_orthogonal_queries_decouple_for_frobenius_only(norm):
    p = gaussian(3, 4, 5)
    z = np.linalg.qr(p.z.T)[0].T
    svm = sv.svm.attention_svm(sv.data.Problem(p.X, z, p.y, p.v), norm=norm)
    alone = sum(
        sv.svm.attention_svm(sv.data.Problem(p.X[i : i + 1], z[i : i + 1], [1], p.v)).W for i in range(3)
    )
    assert np.allclose(svm.W, alone, atol=1e-10) == (norm == "fro")


@pytest.mark.parametrize("norm", NORMS)
def test_ties_choose_the_first_best_token(norm):
    X = [[[1.0, 1.0], [1.0, -1.0], [0.0, 0.0]]]
    p = sv.data.Problem(X, [[1.0, 0.0]], [1], [1.0, 0.0])
    assert p.tied.all()
    svm = sv.svm.attention_svm(p, norm=norm)
    np.testing.assert_array_equal(svm.tokens, [0])
    np.testing.assert_allclose(svm.W[:, 0], [0.5, 0.5], atol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_extreme_scales(norm):
    p = gaussian(3, 4, 5)
    svm = sv.svm.attention_svm(p, norm=norm)
    for size in (1e-59, 1e-6, 1e6, 1e59):
        scaled = sv.svm.attention_svm(sv.data.Problem(p.X * size, p.z * size, p.y, p.v), norm=norm)
        np.testing.assert_allclose(scaled.W * size**2, svm.W, rtol=1e-9)
    uneven = sv.data.Problem(p.X, p.z * np.array([[1e-3], [1.0], [1e3]]), p.y, p.v)
    assert sv.svm.attention_svm(uneven, norm=norm).certificate.worst <= 1e-9


@pytest.mark.parametrize("exponent", [1, 3, 5, 7, 9, 11, 13])
def test_thin_margins_are_solved_or_refused_but_never_mislabelled(exponent):
    # features (1, e) and (-1, e) with one query: feasible with |W| = 1/e, however small e is
    e = 10.0**-exponent
    p = sv.data.Problem([[[0, 0], [-1, -e]], [[0, 0], [1, -e]]], [[1, 0], [1, 0]], [1, 1])
    assert sv.svm.feasible(p, [0, 0])
    try:
        svm = sv.svm.attention_svm(p, [0, 0])
    except SolverError:
        assert exponent > 6
    else:
        np.testing.assert_allclose(float(svm.value) * e, 1.0, rtol=1e-9)
    opposite = sv.data.Problem([[[0, 0], [-1, -e]], [[0, 0], [1, e]]], [[1, 0], [1, 0]], [1, 1])
    assert not sv.svm.feasible(opposite, [0, 0])


@pytest.mark.parametrize("norm", NORMS)
def test_refusals_of_the_solver_say_what_was_reached(norm):
    p = gaussian(3, 4, 5)
    z = p.z.copy()
    z[1] = z[0] * (1 + 1e-9) + 1e-9
    thin = sv.data.Problem(np.stack([p.X[0], -p.X[0], p.X[2]]), z, p.y, p.v)
    message = r"of batch element \(1\) \(n=3, T=4, d=5\) is feasible, but cannot be solved to the promised"
    batch = sv.data.Problem(np.stack([p.X, thin.X]), np.stack([p.z, z]), p.y, p.v)
    with pytest.raises(SolverError, match=message):
        sv.svm.attention_svm(batch, [0, 0, 0], norm=norm)
    apart = sv.data.Problem(p.X, p.z * np.array([[1e-170], [1.0], [1e50]]), p.y, p.v)
    assert sv.svm.feasible(apart)  # lengths do not matter for that
    with pytest.raises(SolverError, match=r"feasible, but cannot be solved .* rescale the data"):
        sv.svm.attention_svm(apart, norm=norm)


@pytest.mark.parametrize("margin", [0.0, 1e-15, 3e-14, 6e-14, 1e-13, 1e-12, 1e-9])
def test_infeasible_means_proved(margin):
    rng, seen = np.random.default_rng(0), set()
    for _ in range(40):
        F = rng.normal(size=(8, 4))
        F[:, 0] = 0.0
        F[7] = -(rng.random(7) @ F[:7])  # a positive combination of the rows vanishes
        F /= np.linalg.norm(F, axis=1, keepdims=True)
        F[:, 0] = margin * rng.random(8)  # but for this column
        answer = least_distance(F, np.ones(8))
        seen.add(answer.status)
        if answer.status == "infeasible":
            assert (answer.multipliers >= 0).all()
            np.testing.assert_allclose(answer.multipliers.sum(), 1.0, rtol=1e-12)
            assert np.linalg.norm(F.T @ answer.multipliers) <= FARKAS * (1 + 1e-9)
    if margin <= 1e-15:
        assert seen == {"infeasible"}
    if margin >= 1e-12:
        assert "infeasible" not in seen


def test_masked_tokens_carry_no_constraint():
    p = gaussian(3, 4, 5)
    mask = np.ones((3, 6), dtype=bool)
    mask[:, 4:] = False
    X = np.concatenate([p.X, 100 * np.ones((3, 2, 5))], axis=1)
    padded = sv.svm.attention_svm(sv.data.Problem(X, p.z, p.y, p.v, mask=mask))
    np.testing.assert_array_equal(padded.W, sv.svm.attention_svm(p).W)
    assert not padded.support[:, 4:].any()
    assert not padded.constrained[:, 4:].any()


def test_conic_arguments():
    p = gaussian(2, 3, 4)
    with pytest.raises(DataError, match="norm must be"):
        sv.svm.attention_svm_conic(p, norm="spec")
    with pytest.raises(ShapeError, match=r"takes one problem, got a batch of shape \(2,\): index it"):
        sv.svm.attention_svm_conic(sv.data.Problem(p.X[None].repeat(2, 0), p.z, p.y, p.v))


def test_conic_refuses_inaccurate_points(monkeypatch):
    from svmlib.svm import conic

    monkeypatch.setattr(conic, "_ACCEPTED", 1e-30)
    with pytest.raises(SolverError, match=r"Clarabel solved the \"fro\" .* only up to .* promised 1e-30"):
        sv.svm.attention_svm_conic(gaussian(2, 3, 4))


def test_points_are_scaled_into_their_feasible_sets():
    from svmlib.svm.nuclear import Program, _scaled

    eye, c = np.eye(2), np.array([1.0, 2.0])
    program = Program(eye, eye, c, c)
    gap, M, lam = _scaled(program, np.diag([0.25, 1.0]), np.array([3.0, 3.0]))
    np.testing.assert_allclose(M, np.diag([1.0, 4.0]))  # the smallest margin met
    np.testing.assert_allclose(lam, 1.0)
    assert gap == pytest.approx((5 - 3) / 5)
    assert _scaled(program, -np.eye(2), lam)[0] == np.inf


def test_least_distance_gives_up_when_its_inner_solver_does(monkeypatch):
    from svmlib.svm import least_distance as module

    def stuck(*args, **kwargs):
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr(module, "nnls", stuck)
    assert least_distance(np.eye(2), np.ones(2)).status == "unsettled"
    crowded = gaussian(1, 8, 3)  # more features than dimensions: not a case for pivoting
    with pytest.raises(SolverError, match="neither solved nor proved infeasible"):
        sv.svm.attention_svm(crowded)
