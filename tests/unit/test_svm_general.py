"""The generalised SVM and the finite part: what a solution is, and what it reduces to."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv

NORMS = ("fro", "nuc")


def drawn(n, T, d, batch=None, seed=0, share=0.4):
    """Random problems, selected sets and probabilities that some W attains."""
    rng = np.random.default_rng(seed)
    lead = () if batch is None else (batch,)
    p = sv.data.Problem(
        rng.normal(size=(*lead, n, T, d)), rng.normal(size=(*lead, n, d)), np.ones((*lead, n))
    )
    selected = rng.random((*lead, n, T)) < share
    selected[..., 0] |= ~selected.any(-1)
    logits = np.einsum("...nte,...ef,...nf->...nt", p.keys, rng.normal(size=(*lead, d, d)), p.z) / d
    s = np.exp(logits - logits.max(-1, keepdims=True))
    return p, selected, s / s.sum(-1, keepdims=True)


def logits(p, W):
    return np.einsum("...nte,...ef,...nf->...nt", p.keys, W, p.z)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("sizes", [(3, 4, 4), (3, 4, 10), (6, 5, 8)])
def test_every_pair_of_tokens_has_its_margin(norm, sizes):
    p, selected, _ = drawn(*sizes, batch=20)
    svm = sv.svm.generalized_svm(p, selected, norm=norm)
    assert svm.certificate.worst.max() < 1e-10
    a = logits(p, svm.W)
    for b, i in np.ndindex(20, p.n):
        ours, theirs = a[b, i][selected[b, i]], a[b, i][~selected[b, i]]
        assert np.ptp(ours) < 1e-10
        assert (ours[:, None] - theirs >= 1 - 1e-10).all()
    np.testing.assert_array_equal(svm.constrained, ~selected)
    np.testing.assert_allclose(svm.margin, 1 / svm.value)
    np.testing.assert_array_equal(svm.rank, np.linalg.matrix_rank(svm.W, rtol=1e-6))


@pytest.mark.parametrize("norm", NORMS)
def test_multipliers_prove_that_it_is_optimal(norm):
    p, selected, s = drawn(4, 5, 6, batch=20)
    svm = sv.svm.generalized_svm(p, selected, norm=norm)
    fin = sv.svm.finite_part(p, s, selected, norm=norm)
    delta = p.differences(selected.argmax(-1))
    assert (svm.multipliers >= 0).all()
    assert (svm.equalities < -1e-3).any()  # these may have any sign
    assert not svm.multipliers[selected].any() and not svm.equalities[~selected].any()
    assert (svm.multipliers[~svm.support] < 1e-9).all()
    for found, mu, total in (
        (svm, svm.multipliers + svm.equalities, svm.multipliers.sum((1, 2))),
        (fin, fin.multipliers, (fin.multipliers * fin.log_ratios).sum((1, 2))),
    ):
        G = np.einsum("bnt,bnte,bnf->bef", mu, delta, p.z)
        if norm == "fro":
            np.testing.assert_allclose(G, found.W, rtol=0, atol=1e-9 * found.value.max())
            np.testing.assert_allclose(total, found.value**2, rtol=1e-9)
        else:
            np.testing.assert_allclose(sv.norms.SPEC(G), found.value > 0, rtol=1e-9)
            np.testing.assert_allclose(total, found.value, rtol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_one_selected_token_is_the_attention_svm(norm):
    p, _, _ = drawn(5, 4, 6, batch=30)
    tokens = np.random.default_rng(1).integers(4, size=(30, 5))
    svm = sv.svm.generalized_svm(p, np.arange(4) == tokens[..., None], norm=norm)
    want = sv.svm.attention_svm(p, tokens, norm=norm)
    np.testing.assert_array_equal(svm.W, want.W)  # the same solver, called alike
    for name in ("value", "rank", "support", "multipliers", "margin", "constrained"):
        np.testing.assert_array_equal(getattr(svm, name), getattr(want, name))
    assert not svm.equalities.any()
    s = np.where(np.arange(4) == tokens[..., None], 1.0, 0.0)
    fin = sv.svm.finite_part(p, s, norm=norm)
    assert not fin.W.any() and not fin.value.any() and fin.solved.all()


@pytest.mark.parametrize("norm", NORMS)
def test_all_tokens_selected_leave_nothing_to_separate(norm):
    p, _, _ = drawn(3, 4, 5, batch=3)
    mask = np.ones((3, 3, 4), dtype=bool)
    mask[1, 0, 2:] = False
    p = sv.data.Problem(p.X, p.z, p.y, mask=mask)
    svm = sv.svm.generalized_svm(p, mask, norm=norm)
    assert not svm.W.any() and not svm.value.any() and not svm.rank.any()
    assert np.isinf(svm.margin).all() and svm.solved.all() and svm.feasible.all()
    assert not sv.svm.finite_part(p, np.full((3, 4), 0.25), norm=norm).W.any()  # equal probabilities


@pytest.mark.parametrize("norm", NORMS)
def test_the_finite_part_gives_the_probabilities(norm):
    p, selected, s = drawn(3, 4, 6, batch=20)
    fin = sv.svm.finite_part(p, s, selected, norm=norm)
    assert fin.certificate.worst.max() < 1e-10
    a = logits(p, fin.W)
    got = np.exp(np.where(selected, a, -np.inf))
    want = np.where(selected, s, 0.0)
    np.testing.assert_allclose(
        got / got.sum(-1, keepdims=True), want / want.sum(-1, keepdims=True), rtol=1e-10
    )
    np.testing.assert_array_equal(fin.rank, np.linalg.matrix_rank(fin.W, rtol=1e-6))
    scaled = sv.svm.finite_part(p, 7 * s, selected, norm=norm)  # only ratios count
    np.testing.assert_allclose(scaled.W, fin.W, rtol=0, atol=1e-9)


def test_default_selection_is_what_exceeds_a_thousandth():
    p, _, _ = drawn(2, 3, 4)
    s = np.array([[0.6, 0.399, 0.001], [0.0, 0.9985, 0.0015]])
    fin = sv.svm.finite_part(p, s)
    np.testing.assert_array_equal(fin.selected, [[True, True, False], [False, True, True]])


@pytest.mark.parametrize("sizes", [(3, 4, 4), (3, 4, 10), (5, 6, 5)])
def test_the_two_parts_are_orthogonal_in_the_frobenius_norm(sizes):
    p, selected, s = drawn(*sizes, batch=40)
    svm = sv.svm.generalized_svm(p, selected, errors="nan")
    fin = sv.svm.finite_part(p, s, selected)
    both = svm.solved & (svm.value > 0) & (fin.value > 0)
    assert both.sum() > 20
    assert np.abs(sv.compare.correlation(svm.W[both], fin.W[both])).max() < 1e-10


@pytest.mark.parametrize("norm", NORMS)
def test_batches_masks_and_broadcasting(norm):
    p, selected, s = drawn(3, 5, 5, batch=6)
    mask = np.ones(selected.shape, dtype=bool)
    mask[::2, 1, 3:] = False
    X = np.where(mask[..., None], p.X, 1e3)  # what is masked does not matter
    selected[..., 0] = True
    p = sv.data.Problem(
        X.reshape(2, 3, 3, 5, 5), p.z.reshape(2, 3, 3, 5), np.ones(3), mask=mask.reshape(2, 3, 3, 5)
    )
    sets, s = selected.reshape(2, 3, 3, 5), s.reshape(2, 3, 3, 5)
    svm = sv.svm.generalized_svm(p, sets, norm=norm)
    fin = sv.svm.finite_part(p, s, sets, norm=norm)
    assert svm.W.shape == fin.W.shape == (2, 3, 5, 5) and svm.value.shape == (2, 3)
    np.testing.assert_array_equal(svm.selected, sets & p.visible)
    assert not (svm.constrained & ~p.visible).any()
    for at in np.ndindex(2, 3):
        one = sv.svm.generalized_svm(p[at], sets[at], norm=norm)
        np.testing.assert_allclose(one.W, svm.W[at], rtol=0, atol=1e-8 * one.value)
        one = sv.svm.finite_part(p[at], s[at], sets[at], norm=norm)
        np.testing.assert_allclose(one.W, fin.W[at], rtol=0, atol=1e-8 * one.value)
    same = sv.svm.generalized_svm(p, sets[0, 0], norm=norm, errors="nan")
    assert same.selected.shape == sets.shape


def test_keys_and_queries_of_other_widths():
    rng = np.random.default_rng(3)
    p = sv.data.Problem(
        rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 3)), np.ones(3), keys=rng.normal(size=(3, 4, 5))
    )
    selected = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 1, 1]], dtype=bool)
    svm = sv.svm.generalized_svm(p, selected)
    assert svm.W.shape == (5, 3)
    a = logits(p, svm.W)
    assert (a[0, :2].min() - a[0, 2:].max()) > 1 - 1e-9


def test_records_say_what_they_hold_and_stay_as_they_are():
    p, selected, s = drawn(3, 4, 5)
    svm, fin = sv.svm.generalized_svm(p, selected), sv.svm.finite_part(p, s, selected)
    assert repr(svm).startswith('GeneralizedSVM("fro", n=3, T=4, d=5,') and "value" in repr(svm)
    assert repr(fin).startswith('FinitePart("fro", n=3, T=4, d=5,') and "rank" in repr(fin)
    for record in (svm, fin):
        for name in ("W", "value", "rank", "selected", "multipliers", "feasible"):
            array = getattr(record, name)
            assert not array.flags.writeable
        with pytest.raises(AttributeError):
            record.W = 0
