"""Contradictions, duplicates, near-duplicates and refused arguments of the programs with equalities."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.errors import DataError, InfeasibleError, ShapeError, SolverError

NORMS = ("fro", "nuc")


def gaussian(n=3, T=4, d=5, seed=0):
    rng = np.random.default_rng(seed)
    return sv.data.Problem(rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), np.ones(n))


SELECTED = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [1, 1, 1, 0]], dtype=bool)
ATTENTION = np.array([[0.75, 0.25, 0, 0], [0, 1.0, 0, 0], [0.5, 0.25, 0.25, 0]])


def changed(X=None, z=None):
    p = gaussian()
    return sv.data.Problem(p.X if X is None else X, p.z if z is None else z, p.y)


def with_token(i, t, value):
    X = gaussian().X.copy()
    X[i, t] = value(X[i])
    return changed(X=X)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            with_token(0, 2, lambda x: x[1]),
            "in sequence 0 the masked-out token 2 equals the selected token 1",
        ),
        (
            with_token(2, 3, lambda x: x[0]),
            "in sequence 2 the masked-out token 3 equals the selected token 0",
        ),
        (
            changed(z=gaussian().z * [[1], [0], [1]]),
            "the query of sequence 1 is 0.*but token 0 is masked out",
        ),
        # a masked-out token on the line through two selected ones
        (
            with_token(0, 3, lambda x: 3 * x[0] - 2 * x[1]),
            r"1 of its 3 equalities and 1 of its 6 margins, in sequences \[0\], contradict each other",
        ),
        # one within the convex hull of the masked-out and the selected tokens, no margin alone being at fault
        (
            with_token(2, 2, lambda x: 2 * x[0] - x[3]),
            r"equalities and 1 of its 6 margins, in sequences \[2\], contradict",
        ),
    ],
)
def test_contradictions_are_named(problem, message, norm):
    with pytest.raises(InfeasibleError, match=message):
        sv.svm.generalized_svm(problem, SELECTED, norm=norm)
    with pytest.raises(InfeasibleError):
        sv.svm.generalized_svm_conic(problem, SELECTED, norm="fro")
    lost = sv.svm.generalized_svm(problem, SELECTED, norm=norm, errors="nan")
    assert not lost.feasible and not lost.solved and lost.rank == -1 and not lost.support.any()
    for a in (lost.W, lost.value, lost.multipliers, lost.equalities, lost.certificate.worst):
        assert np.isnan(a).all()
    assert "infeasible" in repr(lost)


def test_margins_may_contradict_each_other_across_sequences():
    p = gaussian()
    X, z = p.X.copy(), p.z.copy()
    z[1] = z[0]
    X[0, 2], X[1] = 0.0, 5.0
    X[1, 0], X[1, 1] = X[0, 1], X[0, 2]  # in sequence 1 the order that sequence 0 forbids
    with pytest.raises(InfeasibleError, match=r"2 of its . margins, in sequences \[0, 1\]"):
        sv.svm.generalized_svm(sv.data.Problem(X, z, p.y), SELECTED)


@pytest.mark.parametrize("norm", NORMS)
def test_contradictory_log_ratios_are_named(norm):
    twins = with_token(2, 2, lambda x: x[1])
    assert sv.svm.finite_part(twins, ATTENTION, norm=norm).certificate.worst < 1e-10  # they agree
    s = ATTENTION.copy()
    s[2] = [0.5, 0.2, 0.3, 0]
    with pytest.raises(InfeasibleError, match="in sequence 2 tokens 2 and 1 are equal, but their prob"):
        sv.svm.finite_part(twins, s, norm=norm)
    with pytest.raises(
        InfeasibleError, match=r"query of sequence 0 is 0.*probabilities of its tokens differ"
    ):
        sv.svm.finite_part(changed(z=gaussian().z * [[0], [1], [1]]), ATTENTION, norm=norm)
    line = with_token(2, 2, lambda x: (x[0] + x[1]) / 2)
    with pytest.raises(InfeasibleError, match=r"2 of its 3 equalities, in sequences \[2\], contradict"):
        sv.svm.finite_part(line, ATTENTION, norm=norm)
    s[2, :3] = np.exp([0.0, 1.0, 0.5])
    assert sv.svm.finite_part(line, s, norm=norm).certificate.worst < 1e-10
    lost = sv.svm.finite_part(line, ATTENTION, norm=norm, errors="nan")
    assert not lost.feasible and not lost.solved and np.isnan(lost.W).all()


@pytest.mark.parametrize("norm", NORMS)
def test_what_asks_for_nothing_does_no_harm(norm):
    p = gaussian()
    X, z = p.X.copy(), p.z.copy()
    X[2, 2] = X[2, 1]  # two selected twins
    want = sv.svm.generalized_svm(changed(X=X), np.where([[1], [1], [1]], SELECTED, False), norm=norm)
    mask = np.ones((3, 4), dtype=bool)
    mask[2, 2] = False
    merged = sv.svm.generalized_svm(sv.data.Problem(X, z, p.y, mask=mask), SELECTED, norm=norm)
    np.testing.assert_allclose(want.value, merged.value, rtol=1e-9)
    z[0] = 0.0  # a query without logits, all its tokens selected
    sets = SELECTED.copy()
    sets[0] = True
    silent = sv.svm.generalized_svm(changed(z=z), sets, norm=norm)
    rest = sv.data.Problem(p.X[1:], p.z[1:], p.y[1:])
    np.testing.assert_allclose(
        silent.value, sv.svm.generalized_svm(rest, SELECTED[1:], norm=norm).value, rtol=1e-9
    )
    assert not silent.equalities[0].any()


@pytest.mark.parametrize("norm", NORMS)
def test_dependent_equalities_count_once(norm):
    # three selected tokens on a line, and more selected tokens than dimensions
    rng = np.random.default_rng(5)
    X = rng.normal(size=(2, 6, 3))
    X[0, 2] = 0.25 * X[0, 0] + 0.75 * X[0, 1]
    p = sv.data.Problem(X, rng.normal(size=(2, 3)), np.ones(2))
    sets = np.array([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1]], dtype=bool)
    svm = sv.svm.generalized_svm(p, sets, norm=norm, errors="nan")
    sets_less = sets & ~np.array([[0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1]], dtype=bool)
    mask = sets_less | ~sets
    less = sv.svm.generalized_svm(sv.data.Problem(X, p.z, p.y, mask=mask), sets_less, norm=norm, errors="nan")
    np.testing.assert_array_equal(svm.feasible, less.feasible)
    np.testing.assert_allclose(svm.value, less.value, rtol=1e-9)
    W = rng.normal(size=(3, 3))
    s = np.exp(np.einsum("nte,ef,nf->nt", X, W, p.z))
    fin = sv.svm.finite_part(p, s, sets, norm=norm)
    assert fin.certificate.worst < 1e-9
    a = np.einsum("nte,ef,nf->nt", X, fin.W, p.z)[1]
    np.testing.assert_allclose(np.exp(a - a[0]), s[1] / s[1, 0], rtol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-8, 1e-11])
def test_near_duplicates(norm, gap):
    rng = np.random.default_rng(7)
    # within the selected set a near-duplicate asks for next to nothing new
    twin = with_token(2, 2, lambda x: x[1] + gap * rng.normal(size=5))
    svm = sv.svm.generalized_svm(twin, SELECTED, norm=norm, errors="nan")
    assert svm.feasible
    assert svm.solved or gap == 1e-8  # multipliers too large for a certificate, a direction too long to drop
    # a masked-out one pushes W to the size of 1/gap: certified, or refused, but never called infeasible
    away = with_token(0, 2, lambda x: x[1] + gap * rng.normal(size=5))
    got = sv.svm.generalized_svm(away, SELECTED, norm=norm, errors="nan")
    assert got.feasible
    if gap >= 1e-5:
        assert got.solved and got.value > 0.01 / gap
    elif not got.solved:
        with pytest.raises(SolverError, match=r"double precision|promised"):
            sv.svm.generalized_svm(away, SELECTED, norm=norm)


def test_log_ratios_of_nearly_equal_tokens_may_be_round_off():
    # in the plane four tokens are dependent; the ratio of two equal but for 1e-12 has no digits left
    rng = np.random.default_rng(3)
    X = rng.normal(size=(4, 5, 2))
    X[:, 4] = X[:, 0] + 1e-12 * rng.normal(size=(4, 2))
    p = sv.data.Problem(X, rng.normal(size=(4, 2)), np.ones(4))
    s = np.exp(np.einsum("nte,ef,nf->nt", X, rng.normal(size=(2, 2)), p.z))
    fin = sv.svm.finite_part(p, s, np.ones((4, 5), dtype=bool), errors="nan")
    assert fin.solved and fin.certificate.primal < 1e-12


@pytest.mark.parametrize("norm", NORMS)
def test_one_lost_problem_leaves_the_others(norm):
    good, bad = gaussian(), with_token(0, 2, lambda x: x[1])
    batch = sv.data.Problem(np.stack([good.X, bad.X, good.X]), np.stack([good.z] * 3), good.y)
    svm = sv.svm.generalized_svm(batch, SELECTED, norm=norm, errors="nan")
    np.testing.assert_array_equal(svm.feasible, [True, False, True])
    np.testing.assert_array_equal(svm.solved, [True, False, True])
    one = sv.svm.generalized_svm(good, SELECTED, norm=norm)
    np.testing.assert_allclose(svm.W[[0, 2]], np.stack([one.W] * 2), rtol=0, atol=1e-10)
    assert "2 of 3 feasible" in repr(svm)
    with pytest.raises(InfeasibleError, match=r"of batch element \(1\) \(n=3, T=4, d=5\)"):
        sv.svm.generalized_svm(batch, SELECTED, norm=norm)


@pytest.mark.parametrize(
    ("selected", "error", "message"),
    [
        (SELECTED.astype(float) / 2, DataError, "selected must be boolean"),
        (SELECTED & False, DataError, r"Sequence 0 \(n=3, T=4, d=5\) has no selected visible token: select"),
        (SELECTED[:2], ShapeError, "n sequences of T tokens"),
        (np.stack([SELECTED] * 2), ShapeError, "problem.expand"),
        (None, DataError, "selected"),
    ],
)
def test_refused_selections(selected, error, message):
    with pytest.raises(error, match=message):
        sv.svm.generalized_svm(gaussian(), selected)


@pytest.mark.parametrize("norm", ["fro", "nuc"])
def test_an_empty_batch_has_no_solutions(norm):
    p = gaussian().expand(2)[:0]
    assert sv.svm.generalized_svm(p, SELECTED, norm=norm).W.shape == (0, p.d, p.d)
    assert sv.svm.finite_part(p, ATTENTION, norm=norm).multipliers.shape == (0, p.n, p.T)


def test_refused_arguments():
    p = gaussian()
    for call in (sv.svm.generalized_svm, lambda q, s, **k: sv.svm.finite_part(q, ATTENTION, s, **k)):
        with pytest.raises(DataError, match=r"problem must be a svmlib.data.Problem, got ndarray"):
            call(p.X, SELECTED)
        with pytest.raises(DataError, match="norm must be"):
            call(p, SELECTED, norm="spec")
        with pytest.raises(DataError, match="errors must be"):
            call(p, SELECTED, errors="ignore")
    with pytest.raises(DataError, match="probabilities must be >= 0"):
        sv.svm.finite_part(p, -ATTENTION)
    with pytest.raises(DataError, match="1 of them are 0: their log-ratios are infinite"):
        sv.svm.finite_part(p, ATTENTION, SELECTED | (np.arange(12).reshape(3, 4) == 3))
    with pytest.raises(DataError, match=r"no probability exceeds 0.001; pass selected="):
        sv.svm.finite_part(p, ATTENTION / 1000)
    with pytest.raises(ShapeError, match="probabilities"):
        sv.svm.finite_part(p, ATTENTION[:, :3])
    masked = sv.data.Problem(p.X, p.z, p.y, mask=np.array([[1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 1, 1]]))
    with pytest.raises(DataError, match=r"Sequence 1 .* no selected visible"):
        sv.svm.generalized_svm(masked, SELECTED)
