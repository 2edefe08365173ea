"""Keys and queries of any width, and the vector programs."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.errors import DataError, InfeasibleError, ShapeError

NORMS = ("fro", "nuc")
JOINT = np.array([[[0, 0], [1, 1]], [[0, 0], [1, -1]], [[0, 0], [0.5, 1.0]]])  # labels 1, -1, 1


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("e", "q"), [(5, 2), (2, 5), (4, 1), (3, 3), (1, 4)])
def test_keys_and_queries_of_different_widths(norm, e, q):
    rng = np.random.default_rng(e + 10 * q)
    keys, z, W = rng.normal(size=(3, 4, e)), rng.normal(size=(3, q)), rng.normal(size=(e, q))
    tokens = np.einsum("nte,eq,nq->nt", keys, W, z).argmax(1)
    p = sv.data.Problem(rng.normal(size=(3, 4, 2)), z, np.ones(3), keys=keys)
    svm, conic = sv.svm.attention_svm(p, tokens, norm), sv.svm.attention_svm_conic(p, tokens, norm)
    assert svm.W.shape == conic.W.shape == (e, q)
    assert svm.certificate.worst <= 1e-10
    np.testing.assert_allclose(svm.value, conic.value, rtol=1e-6)
    margins = sv.compare.margins(svm.W, keys, z, tokens)
    assert margins.min() == pytest.approx(1.0, abs=1e-10)
    assert ("d=3" if e == q else f"keys {e} wide, queries {q} wide") in repr(svm)
    assert svm.rank <= min(e, q)
    assert sv.svm.feasible(p, tokens)


@pytest.mark.parametrize("norm", NORMS)
def test_keys_matter_and_not_the_tokens(norm):
    p = sv.data.random_problem(3, 4, 5)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    keyed = sv.data.Problem(p.X, p.z, p.y, p.v, keys=p.X @ turn)
    svm, turned = sv.svm.attention_svm(p, norm=norm), sv.svm.attention_svm(keyed, norm=norm)
    np.testing.assert_allclose(turned.value, svm.value, rtol=1e-10)
    np.testing.assert_allclose(turned.W, turn.T @ svm.W, atol=1e-8 * float(svm.value))


def test_token_svm_is_the_attention_svm_for_unit_queries():
    rng = np.random.default_rng(1)
    keys = rng.normal(size=(2, 3, 4, 12))
    svm = sv.svm.token_svm(keys, [[0, 1, 2], [3, 3, 0]])
    assert svm.p.shape == (2, 12)
    np.testing.assert_array_equal(svm.p, svm.W[..., 0])
    for b, tokens in enumerate(svm.tokens):
        delta = keys[b, np.arange(3), tokens][:, None] - keys[b]
        classical = sv.svm.hard_margin(delta[svm.constrained[b]], np.ones(9))
        np.testing.assert_allclose(svm.p[b], classical.w, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(
            svm.multipliers[b][svm.constrained[b]], classical.multipliers, rtol=1e-7, atol=1e-10
        )
    np.testing.assert_allclose(svm.value, np.linalg.norm(svm.p, axis=-1), rtol=1e-13)
    nuclear = sv.svm.attention_svm(
        sv.data.Problem(keys[0], np.ones((3, 1)), np.ones(3), keys=keys[0]), [0, 1, 2], norm="nuc"
    )
    np.testing.assert_allclose(nuclear.p, svm.p[0], rtol=1e-9, atol=1e-12)  # a column has one norm


def test_token_svm_toys():
    svm = sv.svm.token_svm([[[0, 0], [2, -1]], [[0, 0], [-1, 0]]], [0, 0])
    np.testing.assert_allclose(svm.p, [1, 3], atol=1e-13)
    np.testing.assert_allclose(svm.multipliers[:, 1], [3, 7], rtol=1e-12)
    one = sv.svm.token_svm([[[-0.1, 1.0], [1.0, 0.0], [0.0, 0.0]]], [0])
    np.testing.assert_allclose(one.p, np.array([-0.1, 1.0]) / 1.01, rtol=1e-12)
    mask = [[True, False, True]]  # hidden keys may hold anything
    hidden = sv.svm.token_svm([[[-0.1, 1.0], [np.nan, 0.0], [0.0, 0.0]]], [0], mask=mask)
    np.testing.assert_allclose(hidden.p, one.p, rtol=1e-12)


@pytest.mark.parametrize(("third", "p"), [(1.0, [4 / 3, 1 / 3]), (1.5, [1.0, 0.0])])
def test_head_and_query_together(third, p):
    X = JOINT.copy()
    X[2, 1, 1] = third
    problem = sv.data.Problem(X, np.ones((3, 1)), [1, -1, 1])
    head = sv.svm.value_svm(problem, [1, 1, 1])
    np.testing.assert_allclose(head.w, [0, 1], atol=1e-13)
    np.testing.assert_array_equal(head.support, [True, True, third == 1.0])
    svm = sv.svm.token_svm(X, [1, 1, 1], relaxed=~head.support)
    np.testing.assert_allclose(svm.p, p, atol=1e-12)
    tight = sv.svm.token_svm(X, [1, 1, 1])
    np.testing.assert_allclose(tight.p, [4 / 3, 1 / 3] if third == 1.0 else [1.25, 0.25], atol=1e-12)


def test_value_svm_reads_the_selected_tokens():
    p = sv.data.random_problem(4, 3, 6)
    tokens = [0, 2, 1, 1]
    svm = sv.svm.value_svm(p, tokens)
    want = sv.svm.hard_margin(p.X[np.arange(4), tokens], p.y)
    np.testing.assert_array_equal(svm.w, want.w)
    assert svm.b == 0.0
    np.testing.assert_array_equal(sv.svm.value_svm(p).w, sv.svm.value_svm(p, p.optimal).w)
    keyed = sv.data.Problem(p.X, p.z, p.y, p.v, keys=-p.X)  # values are what counts
    np.testing.assert_array_equal(sv.svm.value_svm(keyed, tokens).w, svm.w)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sv.svm.token_svm(JOINT[0], [1]), ShapeError, "keys must have at least 3 axes"),
        (lambda: sv.svm.token_svm(np.zeros((2, 0, 3)), [0, 0]), ShapeError, "keys must have shape"),
        (lambda: sv.svm.token_svm(np.full((1, 2, 2), np.nan), [0]), DataError, "keys must be finite"),
        (lambda: sv.svm.token_svm(JOINT, [1, 2, 1]), ShapeError, r"tokens must lie in 0\.\.1"),
        (lambda: sv.svm.token_svm(JOINT, [1, 1, 1], errors="no"), DataError, "errors must be"),
        (
            lambda: sv.svm.token_svm(JOINT[[0, 0]], [0, 1]),
            InfeasibleError,
            r"No vector p .* widen the keys \(n \(T - 1\) is enough",
        ),
        (
            lambda: sv.svm.attention_svm(sv.data.planar(1)).p,
            ShapeError,
            r"queries of width 1, but here W has shape \(2, 2\)",
        ),
        (
            lambda: sv.svm.value_svm(sv.data.random_problem(2, 3, 4, batch=2)),
            ShapeError,
            r"one problem, got a batch of shape \(2,\): index it, p\[k\]",
        ),
        (
            lambda: sv.svm.value_svm(sv.data.Problem(JOINT[[0, 0]], np.ones((2, 1)), [1, -1]), [1, 1]),
            InfeasibleError,
            r"No head v gives all 2 selected tokens \(d=2\) their labels",
        ),
        (
            lambda: sv.svm.value_svm(sv.data.Problem(JOINT, np.ones((3, 1)), [1, 1, 1])),
            DataError,
            "linear head",
        ),
        (lambda: sv.svm.value_svm(JOINT), DataError, r"problem must be a svmlib\.data\.Problem"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_infeasible_widths_are_named():
    X = np.random.default_rng(0).normal(size=(2, 3, 4))
    twin = sv.data.Problem(X[[0, 0]], np.ones((2, 3)), [1, 1], keys=X[[0, 0]])
    with pytest.raises(
        InfeasibleError, match=r"keys 4 wide, queries 3 wide\).*widen keys and queries \(T - 1 and n"
    ):
        sv.svm.attention_svm(twin, [0, 1])
    lost = sv.svm.token_svm(JOINT[[0, 0]], [0, 1], errors="nan")
    assert not lost.feasible
    assert np.isnan(lost.p).all()
