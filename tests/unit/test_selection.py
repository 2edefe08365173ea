from __future__ import annotations

import re

import numpy as np
import pytest

import svmlib as sv
from svmlib import selection
from svmlib.errors import DataError, ShapeError


def test_the_solution_selects_its_own_tokens():
    p = sv.data.random_problem(4, 5, 6, batch=7)
    svm = sv.svm.attention_svm(p)
    np.testing.assert_array_equal(selection.selected_tokens(p, svm.W), p.optimal)
    runs = np.stack([np.zeros_like(svm.W), svm.W], axis=1)  # an axis of iterates, after that of the batch
    got = selection.selected_tokens(p, runs)
    assert got.shape == (7, 2, 4)
    np.testing.assert_array_equal(got[:, 0], 0)
    np.testing.assert_array_equal(got[:, 1], p.optimal)
    np.testing.assert_array_equal(selection.selected_tokens(p, svm.W * 1e307), p.optimal)


def test_iterates_are_read_as_attention_reads_them():
    p = sv.data.random_problem(3, 4, 5, batch=6)
    run = sv.dynamics.train(
        p, sv.attention.Direct.random(p), sv.dynamics.normalized(0.1), 5, record=[0, 1, 2, 3, 4, 5]
    )
    assert run.W.shape[:2] == (6, 6)  # as many records as instances: axes could be crossed
    got = selection.selected_tokens(p, run.W)
    np.testing.assert_array_equal(got, sv.attention.logits(p, run.W).argmax(-1))
    np.testing.assert_array_equal(got[:, -1], run.selected)
    single = selection.selected_tokens(p[2], run.W[2])
    np.testing.assert_array_equal(single, got[2])


def test_weights_stand_for_their_matrix():
    p, rng = sv.data.random_problem(3, 4, 5), np.random.default_rng(0)
    factored = sv.attention.Factored(rng.normal(size=(5, 5)), rng.normal(size=(5, 5)))
    want = selection.selected_tokens(p, factored.K @ factored.Q.T)
    np.testing.assert_array_equal(selection.selected_tokens(p, factored), want)
    np.testing.assert_array_equal(selection.selected_tokens(p, sv.attention.Direct(factored.matrix())), want)


def test_masked_tokens_are_not_selected():
    X = np.array([[[1.0], [2.0], [3.0]]])
    p = sv.data.Problem(X, [[1.0]], [1], [1.0], mask=[[True, True, False]])
    np.testing.assert_array_equal(selection.selected_tokens(p, [[1.0]]), [1])
    np.testing.assert_array_equal(selection.selected_tokens(p, [[-1.0]]), [0])
    negative = sv.data.Problem(-X, [[1.0]], [1], [1.0], mask=[[True, True, False]])
    np.testing.assert_array_equal(selection.selected_tokens(negative, [[1.0]]), [0])  # padding has logit 0


def test_selected_tokens_arguments():
    p = sv.data.random_problem(2, 3, 4, batch=3)
    with pytest.raises(ShapeError, match=r"W must end in axes of sizes \(4, 4\)"):
        selection.selected_tokens(p, np.ones((4, 3)))
    for lead in ((2,), (2, 3), (1, 3, 2)):
        match = re.escape(f"leading axes of W {lead} do not fit the batch axes (3,)")
        with pytest.raises(ShapeError, match=match):
            selection.selected_tokens(p, np.ones((*lead, 4, 4)))
    for call in (
        lambda: selection.selected_tokens(p.X, np.eye(4)),
        lambda: selection.locally_optimal(None, None),
    ):
        with pytest.raises(DataError, match=r"problem must be a svmlib\.data\.Problem, got"):
            call()
    for call in (lambda: selection.support_fraction(p), lambda: selection.locally_optimal(p, p)):
        with pytest.raises(DataError, match=r"svm must be a svmlib\.svm\.AttentionSVM, got Problem"):
            call()
    with pytest.raises(DataError, match="W must be finite"):
        selection.selected_tokens(p, np.full((4, 4), np.nan))


def spurious(better: float):
    """Two sequences of two tokens; the selected token of the first one scores lower than the other."""
    # without the third coordinate, which carries the scores, the differences of the selected tokens are
    # (2, -1) and (1, 0): the solution is (1, 0), with margins 2 and 1
    X = [[[0.0, 0.0, 0.0], [-2.0, 1.0, better]], [[0.0, 0.0, 0.1], [-1.0, 0.0, 0.0]]]
    return sv.data.Problem(X, [[1.0, 0.0, 0.0]] * 2, [1, 1], [0.0, 0.0, 1.0])


def test_local_optimality_asks_only_the_neighbours():
    p = spurious(better=0.05)
    svm = sv.svm.attention_svm(p, [0, 0])
    np.testing.assert_array_equal(svm.support[:, 1], [False, True])
    assert selection.locally_optimal(p, svm)  # the better token of sequence 0 is no neighbour
    assert not (svm.tokens == p.optimal).all()
    assert not selection.locally_optimal(p, svm, rtol=10.0)  # now it counts as one
    worse = sv.data.Problem(p.X * [1.0, 1.0, -1.0], p.z, p.y, p.v)
    assert not selection.locally_optimal(worse, sv.svm.attention_svm(worse, [0, 0]))


def test_neighbours_of_a_relaxed_sequence_have_margin_zero():
    # the solution is (1, 0): margins 0 and 0.5 in the relaxed sequence, whose second token is no neighbour
    keys = [[[0.0, 0.0], [0.0, 1.0], [-0.5, 0.0]], [[0.0, 0.0], [-1.0, 0.0], [-2.0, 0.0]]]
    for second, optimal in (([0.0, 2.0], True), ([2.0, 0.0], False)):
        p = sv.data.prompt_problem(keys, [[1.0, *second], [1.0, 0.0, 0.0]])
        svm = sv.svm.attention_svm(p, [0, 0], relaxed=[True, False])
        np.testing.assert_allclose(svm.p, [1.0, 0.0], atol=1e-12)
        assert selection.locally_optimal(p, svm) == optimal


def test_equal_scores_are_not_strictly_higher():
    X = [[[1.0, 1.0], [1.0, -1.0]]]
    p = sv.data.Problem(X, [[1.0, 0.0]], [1], [1.0, 0.0])
    assert not selection.locally_optimal(p, sv.svm.attention_svm(p))


def test_the_best_tokens_are_always_locally_optimal():
    p = sv.data.random_problem(3, 4, 5, batch=20)
    for norm in ("fro", "nuc"):
        assert selection.locally_optimal(p, sv.svm.attention_svm(p, norm=norm)).all()
    worst = p.scores.argmin(-1)
    assert not selection.locally_optimal(p, sv.svm.attention_svm(p, worst)).any()


def test_infeasible_and_unconstrained():
    p = sv.data.Problem([[[1.0], [1.0]]], [[1.0]], [1], [1.0])
    svm = sv.svm.attention_svm(p, errors="nan")
    assert not selection.locally_optimal(p, svm)
    assert np.isnan(selection.support_fraction(svm))
    alone = sv.data.Problem([[[1.0]]], [[1.0]], [1], [1.0])
    svm = sv.svm.attention_svm(alone)
    assert selection.locally_optimal(alone, svm)
    assert np.isnan(selection.support_fraction(svm))


def test_support_fraction():
    p, _ = sv.data.planted_problem(3, 4, 5, batch=2)
    np.testing.assert_array_equal(selection.support_fraction(sv.svm.attention_svm(p)), [1.0, 1.0])
    svm = sv.svm.attention_svm(spurious(0.05), [0, 0])
    assert float(selection.support_fraction(svm)) == 0.5


def test_support_fraction_grows_with_the_dimension():
    means = [
        selection.support_fraction(sv.svm.attention_svm(sv.data.random_problem(5, 5, d, batch=60))).mean()
        for d in (5, 10, 20, 40)
    ]
    np.testing.assert_allclose(means, [0.52, 0.70, 0.83, 0.96], atol=0.06)


def test_locally_optimal_arguments():
    p = sv.data.random_problem(2, 3, 4, batch=3)
    svm = sv.svm.attention_svm(p)
    with pytest.raises(ShapeError, match=r"solved for sequences of shape .* = \(3, 2, 3\), but .* \(2, 3\)"):
        selection.locally_optimal(p[0], svm)
    with pytest.raises(DataError, match="rtol must be at least 0, got -1"):
        selection.locally_optimal(p, svm, rtol=-1)
    with pytest.raises(DataError, match="rtol must be"):
        selection.locally_optimal(p, svm, rtol="a")
