"""The interior-point method, and the second solver behind it."""

from __future__ import annotations

import numpy as np
import pytest

from svmlib import data, svm
from svmlib.errors import InfeasibleError
from svmlib.svm import interior, nuclear
from svmlib.svm.interior import interior_points, solve_each

RNG = np.random.default_rng(0)
DELTA, Q = RNG.normal(size=(5, 8, 6)), RNG.normal(size=(5, 8, 3))
DELTA *= np.sign(np.einsum("bma,bme,ae->bm", DELTA, Q, RNG.normal(size=(6, 3))))[..., None]  # separable
C = np.full((5, 8), 0.2)


@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-7])
def test_the_end_of_the_path_is_feasible_and_within_the_gap(gap):
    M, lam = interior_points(DELTA, Q, C, gap)
    G = np.einsum("bm,bma,bme->bae", lam, DELTA, Q)
    assert (lam > 0).all()
    assert (np.linalg.norm(G, 2, axis=(1, 2)) < 1).all()
    margins = np.einsum("bma,bae,bme->bm", DELTA, M, Q)
    assert (margins > C).all()
    distance = np.linalg.svd(M, compute_uv=False).sum(-1) - (lam * C).sum(-1)
    assert (distance > -1e-12).all()
    assert (distance <= 1.5 * gap).all()


def test_a_batch_takes_the_path_of_its_members():
    M, lam = interior_points(DELTA, Q, C, 1e-6)
    one_M, one_lam = interior_points(DELTA[3:4], Q[3:4], C[3:4], 1e-6)
    np.testing.assert_allclose(one_M[0], M[3], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(one_lam[0], lam[3], rtol=1e-4, atol=1e-8)


def test_an_unfinished_path_is_left_to_the_second_solver(monkeypatch):
    p = data.random_problem(4, 4, 5, batch=3)
    want = svm.attention_svm(p, norm="nuc")

    def unfinished(delta, q, c, gap, equal):
        return np.full((len(c), delta.shape[2], q.shape[2]), np.nan), np.full(c.shape, np.nan)

    monkeypatch.setattr(nuclear, "interior_points", unfinished)
    got = svm.attention_svm(p, norm="nuc")
    np.testing.assert_allclose(got.value, want.value, rtol=1e-10)
    np.testing.assert_array_equal(got.rank, want.rank)
    assert got.certificate.worst.max() < 1e-9


def test_the_first_solver_is_enough_for_generic_data(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("the second solver was needed")

    monkeypatch.setattr(nuclear, "_clarabel", refuse)
    monkeypatch.setattr(nuclear, "_path_end", refuse)
    solved = svm.attention_svm(data.random_problem(6, 8, 10, batch=20), norm="nuc")
    assert solved.certificate.worst.max() < 1e-12


DEGENERATE = {
    # two sequences, one of them twice over: Newton's matrix becomes singular along the path
    "singular": ([[[1, 0], [0, 1], [1, 1]], [[0, 0], [0, 1], [0, 1]]], [[1, 0], [0, 1]], np.sqrt(2.0)),
    # a multiplier and its slack vanish together: the active constraints do not show
    "degenerate": ([[[0, 0, 0], [1, 1, 0]], [[0, 1, 0], [1, 0, 1]]], [[1, 0, 0], [0, 0, 1]], 1.2844570503),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_integer_instances_are_solved(name):
    X, z, value = DEGENERATE[name]
    p = data.Problem(X, z, [1, 1])
    got = svm.attention_svm(p, [0, 0], norm="nuc")
    assert float(got.value) == pytest.approx(value, rel=1e-9)
    assert got.certificate.worst <= 1e-9
    assert float(got.value) == pytest.approx(float(svm.attention_svm_conic(p, [0, 0], "nuc").value), rel=1e-6)
    generic = RNG.normal(size=p.X.shape)
    both = svm.attention_svm(
        data.Problem(np.stack([p.X, generic]), np.stack([p.z, generic[:, 1]]), [1, 1]), [0, 0], norm="nuc"
    )
    assert float(both.value[0]) == pytest.approx(value, rel=1e-9)


def test_repeated_and_nearly_repeated_sequences_are_solved_like_one():
    rng = np.random.default_rng(5)
    X, z = rng.normal(size=(2, 4, 5)), rng.normal(size=(2, 5))
    want = svm.attention_svm(data.Problem(X, z, [1, 1]), [0, 0], norm="nuc")
    for noise in (0.0, 1e-14, 1e-11):
        again = data.Problem(
            np.concatenate([X, X + noise * rng.normal(size=X.shape)]), np.concatenate([z, z]), np.ones(4)
        )
        got = svm.attention_svm(again, [0] * 4, norm="nuc")
        np.testing.assert_allclose(got.value, want.value, rtol=1e-8 if noise else 1e-9)


def test_integer_instances_agree_with_the_conic_solver():
    rng, checked = np.random.default_rng(11), 0
    for _ in range(60):
        X = rng.integers(0, 2, (3, 3, 4)) if rng.random() < 0.5 else np.eye(4)[rng.integers(0, 4, (3, 3))]
        p = data.Problem(X, np.eye(4)[rng.integers(0, 4, 3)], np.ones(3))
        got = svm.attention_svm(p, [0, 0, 0], norm="nuc", errors="nan")
        assert (got.feasible == got.solved).all()  # none is given up
        if got.feasible:
            conic = svm.attention_svm_conic(p, [0, 0, 0], norm="nuc")
            assert float(got.value) == pytest.approx(float(conic.value), rel=1e-6)
            checked += 1
        else:
            with pytest.raises(InfeasibleError):
                svm.attention_svm_conic(p, [0, 0, 0], norm="nuc")
    assert checked >= 10


def test_systems_that_cannot_be_solved_are_marked():
    regular, singular = 2.0 * np.eye(2), np.ones((2, 2))
    right = np.ones((3, 2, 1))
    got = solve_each(np.stack([regular, singular, np.zeros((2, 2))]), right)
    np.testing.assert_allclose(got[0], 0.5)
    np.testing.assert_allclose(singular @ got[1], 1.0, rtol=1e-9)  # the ridge leaves a solution
    assert np.isnan(got[2]).all()
    size = interior._SMALL + 1  # large ones are solved one at a time
    got = solve_each(
        np.stack([2.0 * np.eye(size), np.ones((size, size)), np.zeros((size, size))]), np.ones((3, size, 2))
    )
    np.testing.assert_allclose(got[0], 0.5)
    np.testing.assert_allclose(got[1].sum(0), 1.0, rtol=1e-9)
    assert np.isnan(got[2]).all()


def test_programs_of_several_sizes_keep_their_order(monkeypatch):
    mask = np.ones((6, 4, 4), dtype=bool)
    mask[::2, 0, 3] = False
    p = data.random_problem(4, 4, 5, batch=6)
    q = data.Problem(p.X, p.z, p.y, p.v, mask=mask)
    monkeypatch.setattr(nuclear, "_WORKSPACE", 300)
    together = svm.attention_svm(q, norm="nuc")
    for b in range(6):
        np.testing.assert_allclose(together.W[b], svm.attention_svm(q[b], norm="nuc").W, atol=1e-8)


def test_the_path_takes_few_steps(monkeypatch):
    # a Newton step that aims at the wrong parameter still arrives, but late
    monkeypatch.setattr(interior, "_MAX_STEPS", 40)
    M, lam = interior_points(DELTA, Q, C, 1e-7)
    assert np.isfinite(M).all()
    assert np.isfinite(lam).all()
