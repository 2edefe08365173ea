"""The programs with equalities against the same ones written with a constraint for each pair of tokens."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.errors import DataError, InfeasibleError, ShapeError

NORMS = ("fro", "nuc")


def instance(seed):
    """Random sizes, widths, masks and selected sets."""
    rng = np.random.default_rng(seed)
    n, T, e, q = (int(rng.integers(low, high)) for low, high in ((1, 5), (2, 6), (2, 7), (2, 6)))
    mask = rng.random((n, T)) < 0.8
    mask[:, 0] = True
    p = sv.data.Problem(
        rng.normal(size=(n, T, e)), rng.normal(size=(n, q)), np.ones(n), mask=mask if seed % 2 else None
    )
    selected = rng.random((n, T)) < 0.4
    selected[:, 0] = True
    a = np.einsum("nte,ef,nf->nt", p.keys, rng.normal(size=(e, q)), p.z)
    s = np.where(p.visible, np.exp(a - a.max(-1, keepdims=True)), 0.0)
    return p, selected, s


def answers(ours, theirs):
    """Both answers; None where there is no solution."""
    out = []
    for solve in (ours, theirs):
        try:
            out.append(solve())
        except InfeasibleError:
            out.append(None)
    return out


def agree(record, W, norm):
    value = float(sv.norms.get(norm)(W))
    assert record.certificate.worst <= 1e-9
    np.testing.assert_allclose(value, record.value, rtol=1e-5, atol=1e-8)
    if norm == "fro":  # unique
        np.testing.assert_allclose(W, record.W, rtol=0, atol=1e-6 * max(value, 1.0))


@pytest.mark.parametrize("norm", NORMS)
def test_generalised_svm(norm):
    kinds = []
    for seed in range(40):
        p, selected, _ = instance(seed)
        record, W = answers(
            lambda p=p, selected=selected: sv.svm.generalized_svm(p, selected, norm=norm),
            lambda p=p, selected=selected: sv.svm.generalized_svm_conic(p, selected, norm=norm),
        )
        assert (record is None) == (W is None), seed
        kinds.append(record is None)
        if record is not None:
            agree(record, W, norm)
    assert 30 <= kinds.count(False) < 40


@pytest.mark.parametrize("norm", NORMS)
def test_finite_part(norm):
    for seed in range(30):
        p, selected, s = instance(seed)
        sets = selected & p.visible
        agree(
            sv.svm.finite_part(p, s, sets, norm=norm),
            sv.svm.finite_part_conic(p, s, sets, norm=norm),
            norm,
        )


@pytest.mark.parametrize("norm", NORMS)
def test_graph_svm(norm):
    kinds = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        V, G, e, q = (int(rng.integers(low, high)) for low, high in ((2, 6), (1, 4), (3, 7), (2, 5)))
        keys, queries, edges = rng.normal(size=(V, e)), rng.normal(size=(G, q)), rng.random((G, V, V)) < 0.3
        record, W = answers(
            lambda a=(keys, queries, edges): sv.svm.graph_svm(*a, norm=norm),
            lambda a=(keys, queries, edges): sv.svm.graph_svm_conic(*a, norm=norm),
        )
        assert (record is None) == (W is None), seed
        kinds.append(record is None)
        if record is not None:
            agree(record, W, norm)
    assert 20 <= kinds.count(False) < 30


def test_what_the_second_formulation_refuses():
    p, selected, s = instance(0)
    batch = p.expand(2)
    for solve in (
        lambda: sv.svm.generalized_svm_conic(batch, selected),
        lambda: sv.svm.finite_part_conic(batch, s, selected),
    ):
        with pytest.raises(ShapeError, match="one problem"):
            solve()
    with pytest.raises(DataError, match="norm"):
        sv.svm.generalized_svm_conic(p, selected, norm="spec")
    with pytest.raises(ShapeError, match="a graph for each of the 3 queries, got 1"):
        sv.svm.graph_svm_conic(np.eye(2), np.ones((3, 1)), np.zeros((1, 2, 2)))
    with pytest.raises(DataError, match="edges must be boolean"):
        sv.svm.graph_svm_conic(np.eye(2), np.ones((1, 1)), np.full((1, 2, 2), 0.5))
    with pytest.raises(DataError, match="problem must be"):
        sv.svm.generalized_svm_conic(None, selected)
    twins = sv.data.Problem(np.ones((1, 2, 2)), np.ones((1, 2)), [1.0])
    with pytest.raises(InfeasibleError, match="contradict each other"):
        sv.svm.generalized_svm_conic(twins, [[True, False]])
