"""Components of priority graphs, and the SVM that they pose."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.errors import DataError, InfeasibleError, ShapeError

NORMS = ("fro", "nuc")


def reachable(edges):
    """Which token reaches which, by walking."""
    V = len(edges)
    out = np.zeros((V, V), dtype=bool)
    for start in range(V):
        stack = [start]
        while stack:
            for b in np.flatnonzero(edges[stack.pop()]):
                if not out[start, b]:
                    out[start, b] = True
                    stack.append(b)
    return out


def test_components_are_what_reaches_each_other():
    rng = np.random.default_rng(0)
    edges = rng.random((3, 40, 6, 6)) < rng.choice([0.1, 0.25, 0.4], size=(3, 40, 1, 1))
    label, between = sv.graphs.components(edges), sv.graphs.strict(edges)
    assert label.shape == (3, 40, 6)
    for at in np.ndindex(3, 40):
        own = edges[at] & ~np.eye(6, dtype=bool)
        reach = reachable(own)
        both = (reach & reach.T) | np.eye(6, dtype=bool)
        known = own.any(0) | own.any(1)
        np.testing.assert_array_equal(label[at] >= 0, known)
        same = (label[at][:, None] == label[at]) & known
        np.testing.assert_array_equal(same[known], (both & known)[known])
        firsts = [int(np.flatnonzero(label[at] == c)[0]) for c in range(label[at].max() + 1)]
        assert firsts == sorted(firsts)  # numbered in the order of their first tokens
        np.testing.assert_array_equal(between[at], own & ~both)


@pytest.mark.parametrize("call", [sv.graphs.components, sv.graphs.strict])
def test_graphs_that_are_refused(call):
    with pytest.raises(ShapeError, match=r"\(\.\.\., V, V\)"):
        call(np.zeros((2, 3)))
    with pytest.raises(DataError, match="boolean"):
        call(np.full((2, 2), 0.5))


def drawn(V=5, G=3, e=7, q=4, seed=0, share=0.25):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(V, e)), rng.normal(size=(G, q)), rng.random((G, V, V)) < share


@pytest.mark.parametrize("norm", NORMS)
def test_margins_equalities_and_multipliers(norm):
    for seed in range(10):
        keys, queries, edges = drawn(seed=seed)
        svm = sv.svm.graph_svm(keys, queries, edges, norm=norm)
        assert svm.certificate.worst < 1e-10
        np.testing.assert_array_equal(svm.components, sv.graphs.components(edges))
        np.testing.assert_array_equal(svm.edges, sv.graphs.strict(edges))
        a = queries @ svm.W.T @ keys.T
        margins = a[:, :, None] - a[:, None, :]
        assert (margins[svm.edges] >= 1 - 1e-9).all()
        np.testing.assert_array_equal(svm.support, svm.edges & (margins < 1.001))
        for g in range(3):
            for c in range(svm.components[g].max() + 1):
                assert np.ptp(a[g, svm.components[g] == c]) < 1e-9
        assert (svm.multipliers >= 0).all() and not svm.multipliers[~svm.edges].any()
        first = (svm.components[:, :, None] == svm.components[:, None, :]).argmax(-1)
        tied = keys[first] - keys  # first token of the component less the token
        edge = keys[first][:, :, None] - keys[first][:, None, :]
        G = np.einsum("gv,gve,gq->eq", svm.equalities, tied, queries)
        G += np.einsum("gab,gabe,gq->eq", svm.multipliers, edge, queries)
        total = svm.multipliers.sum()
        if norm == "fro":
            np.testing.assert_allclose(G, svm.W, rtol=0, atol=1e-9 * svm.value)
            np.testing.assert_allclose(total, svm.value**2, rtol=1e-9)
        else:
            np.testing.assert_allclose(sv.norms.SPEC(G), 1.0, rtol=1e-9)
            np.testing.assert_allclose(total, svm.value, rtol=1e-9)
        np.testing.assert_allclose(svm.margin, 1 / svm.value)


@pytest.mark.parametrize("norm", NORMS)
def test_stars_are_the_attention_svm(norm):
    # one token over all others, for each query: a selected token of a sequence that holds the vocabulary
    rng = np.random.default_rng(2)
    keys, queries, tokens = rng.normal(size=(5, 6)), rng.normal(size=(4, 6)), rng.integers(5, size=4)
    edges = np.zeros((4, 5, 5), dtype=bool)
    edges[np.arange(4), tokens] = True
    svm = sv.svm.graph_svm(keys, queries, edges, norm=norm)
    p = sv.data.Problem(np.broadcast_to(keys, (4, 5, 6)), queries, np.ones(4))
    want = sv.svm.attention_svm(p, tokens, norm=norm)
    np.testing.assert_allclose(svm.value, want.value, rtol=1e-9)
    np.testing.assert_allclose(svm.W, want.W, rtol=0, atol=1e-9 * want.value)


@pytest.mark.parametrize("norm", NORMS)
def test_a_cycle_with_a_tail_is_the_generalised_svm(norm):
    keys, queries, _ = drawn()
    edges = np.zeros((3, 5, 5), dtype=bool)
    edges[:, 0, 1] = edges[:, 1, 2] = edges[:, 2, 0] = True  # 0, 1, 2 in a cycle
    edges[:, 1, 3] = edges[:, 2, 4] = edges[:, 0, 3] = True
    svm = sv.svm.graph_svm(keys, queries, edges, norm=norm)
    p = sv.data.Problem(np.broadcast_to(keys, (3, 5, 7)), queries, np.ones(3))
    want = sv.svm.generalized_svm(p, np.broadcast_to(np.arange(5) < 3, (3, 5)), norm=norm)
    np.testing.assert_allclose(svm.value, want.value, rtol=1e-9)
    # of the two edges that join the cycle to token 3, one carries the multiplier
    assert ((svm.multipliers[:, :, 3] > 0).sum(1) <= 1).all()
    assert (svm.support[:, 0, 3] == svm.support[:, 1, 3]).all()


@pytest.mark.parametrize("norm", NORMS)
def test_cycles_and_empty_graphs_order_nothing(norm):
    keys, queries, _ = drawn()
    edges = np.zeros((3, 5, 5), dtype=bool)
    edges[0, 0, 1] = edges[0, 1, 0] = edges[1, 2, 2] = True
    svm = sv.svm.graph_svm(keys, queries, edges, norm=norm)
    assert not svm.W.any() and svm.value == 0 and svm.rank == 0 and np.isinf(svm.margin) and svm.solved
    np.testing.assert_array_equal(svm.components, [[0, 0, -1, -1, -1], [-1] * 5, [-1] * 5])


@pytest.mark.parametrize("norm", NORMS)
def test_contradictions_are_named(norm):
    keys, queries, edges = drawn()
    edges[:] = False
    edges[1, 0, 3] = edges[1, 3, 4] = edges[2, 1, 2] = edges[2, 2, 1] = True
    twins = keys.copy()
    twins[3] = twins[0]
    line = keys.copy()
    line[4] = 2 * keys[1] - keys[2]
    silent = queries * [[1], [0], [1]]
    back = edges.copy()
    back[2, 1, 4] = True
    for args, message in (
        ((twins, queries, edges), "keys of tokens 0 and 3 are equal, but the graph of query 1 orders them"),
        ((keys, silent, edges), "query 1 is 0, so all its logits are equal, but its graph orders tokens"),
        (
            (line, queries, back),
            r"1 of its 1 equalities and 1 of its 3 margins, in the graphs of queries \[2\]",
        ),
    ):
        with pytest.raises(InfeasibleError, match=message):
            sv.svm.graph_svm(*args, norm=norm)
        lost = sv.svm.graph_svm(*args, norm=norm, errors="nan")
        assert not lost.feasible and not lost.solved and "infeasible" in repr(lost)
        assert np.isnan(lost.W).all() and np.isnan(lost.multipliers).all() and not lost.support.any()


def test_refused_arguments():
    keys, queries, edges = drawn()
    with pytest.raises(ShapeError, match="must agree on V tokens and G graphs"):
        sv.svm.graph_svm(keys, queries, edges[:2])
    with pytest.raises(ShapeError, match=r"keys must have 2 axes, \(V, e\)"):
        sv.svm.graph_svm(keys[0], queries, edges)
    with pytest.raises(ShapeError, match=r"queries must have 2 axes, \(G, q\)"):
        sv.svm.graph_svm(keys, queries[0], edges[:1])
    with pytest.raises(ShapeError, match=r"edges must have 3 axes, \(G, V, V\)"):
        sv.svm.graph_svm(keys, queries[:1], edges[0])
    with pytest.raises(DataError, match="boolean"):
        sv.svm.graph_svm(keys, queries, edges / 2)
    with pytest.raises(DataError, match="norm must be"):
        sv.svm.graph_svm(keys, queries, edges, norm="spec")
    with pytest.raises(DataError, match="errors must be"):
        sv.svm.graph_svm(keys, queries, edges, errors="no")


def test_the_record_stays_as_it_is():
    svm = sv.svm.graph_svm(*drawn())
    assert repr(svm).startswith('GraphSVM("fro", 3 graphs of 5 tokens,')
    for name in ("W", "value", "rank", "components", "edges", "support", "multipliers", "equalities"):
        assert not getattr(svm, name).flags.writeable


@pytest.mark.parametrize("norm", NORMS)
def test_orthonormal_embeddings_have_many_minimisers(norm):
    # a multiplier and its slack vanish, and the nuclear solution is not unique: Newton's matrix is singular
    rng = np.random.default_rng(1)
    V, G = int(rng.integers(3, 9)), int(rng.integers(1, 7))
    edges = rng.random((G, V, V)) < rng.choice([0.1, 0.2, 0.3])
    keys = np.linalg.qr(rng.normal(size=(V + 2, V)))[0].T
    svm = sv.svm.graph_svm(keys, keys[rng.permutation(V)[:G]], edges, norm=norm)
    assert svm.certificate.worst < 1e-10
