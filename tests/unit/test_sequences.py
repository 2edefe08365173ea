"""Problems in which every position asks, and next-token data with their priority graphs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import svmlib as sv
from svmlib.errors import DataError, ShapeError


def brute_loss(X, y, v, W, causal):
    """Logistic loss by loops over sequences and positions, softmax over 1..j."""
    n, T, _ = X.shape
    total = 0.0
    for i, j in itertools.product(range(n), range(T)):
        seen = X[i][: j + 1] if causal else X[i]
        a = seen @ W @ X[i, j]
        s = np.exp(a - a.max())
        s /= s.sum()
        total += np.log1p(np.exp(-y[i, j] * (s @ seen @ v)))
    return total / (n * T)


@pytest.mark.parametrize("causal", [False, True])
def test_every_position_is_an_example(causal):
    rng = np.random.default_rng(0)
    X, y, v = rng.normal(size=(3, 4, 5)), rng.choice([-1.0, 1.0], (3, 4)), rng.normal(size=5)
    p = sv.data.sequence_problem(X, y, v, causal=causal)
    assert (p.n, p.T, p.d) == (12, 4, 5)
    for W in rng.normal(size=(5, 5, 5)):
        assert sv.attention.loss(p, W) == pytest.approx(brute_loss(X, y, v, W, causal), abs=1e-13)


def test_selected_tokens_against_a_search_over_all_selections_that_the_mask_allows():
    rng = np.random.default_rng(1)
    X, y, v = rng.normal(size=(1, 3, 3)), np.array([[1.0, -1.0, 1.0]]), rng.normal(size=3)
    p = sv.data.sequence_problem(X, y, v, causal=True)
    allowed = [t for t in itertools.product(range(3), repeat=3) if all(a <= j for j, a in enumerate(t))]
    assert len(allowed) == 6
    for tokens in allowed:
        solved = sv.svm.attention_svm(p, tokens)
        rows = [
            np.outer(X[0, a] - X[0, t], X[0, j]).ravel()
            for j, a in enumerate(tokens)
            for t in range(j + 1)
            if t != a
        ]
        assert (np.array(rows) @ solved.W.ravel()).min() == pytest.approx(1.0)
        assert int(solved.constrained.sum()) == len(rows) == 3
    for tokens in set(itertools.product(range(3), repeat=3)) - set(allowed):
        with pytest.raises(DataError, match="masked"):
            sv.svm.attention_svm(p, tokens)


def test_batches_and_heads():
    p = sv.data.random_sequence_problem(2, 3, 4, batch=5, seed=3, causal=True)
    assert p.batch_shape == (5,)
    alone = sv.data.random_sequence_problem(2, 3, 4, batch=1, seed=3)
    assert np.array_equal(alone[0].X[2], p[0].X[2])  # the last position sees all
    assert np.array_equal(alone[0].y, p[0].y)
    assert alone.mask is None
    assert np.linalg.norm(alone.X, axis=-1) == pytest.approx(1.0)
    square = sv.data.sequence_problem(np.eye(3)[None], [[1, 1, 1]], head=lambda u: u.square().sum(-1))
    assert sv.attention.predictions(square, np.zeros((3, 3))) == pytest.approx(1 / 3)
    # without the mask, the zeros that stand in for masked tokens
    hidden = p.X[0, 0]
    assert (hidden[1:] == 0).all()


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"X": np.eye(3), "y": [1, 1, 1]}, ShapeError, "X must have"),
        ({"X": np.zeros((1, 0, 2)), "y": np.zeros((1, 0))}, ShapeError, "n, T, d >= 1"),
        ({"X": np.eye(3)[None], "y": [1, 1, 1]}, ShapeError, "y"),
        ({"X": np.eye(3)[None], "y": [[1, 1, 0]]}, DataError, "labels"),
        ({"X": np.eye(3)[None], "y": [[1, 1, 1]], "causal": "yes"}, DataError, "causal"),
    ],
)
def test_sequence_problem_says_what_is_wrong(arguments, error, says):
    with pytest.raises(error, match=says):
        sv.data.sequence_problem(**arguments)


def test_next_token_problem_predicts_the_attention_on_the_label():
    rng = np.random.default_rng(2)
    sequences, labels = np.array([[0, 2, 2, 1], [1, 0, 3, 3]]), np.array([2, 3])
    keys, W = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    p = sv.data.next_token_problem(sequences, labels, keys)
    for i in range(2):
        a = np.array([keys[t] @ W @ keys[sequences[i, -1]] for t in sequences[i]])
        s = np.exp(a) / np.exp(a).sum()
        assert sv.attention.predictions(p, W)[i] == pytest.approx(s[sequences[i] == labels[i]].sum())
    mean = -np.log(sv.attention.predictions(p, W)).mean()
    assert sv.attention.loss(p, W, "log") == pytest.approx(mean)
    many = sv.data.next_token_problem(sequences, labels, rng.normal(size=(5, 4, 3)))
    assert many.batch_shape == (5,)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"sequences": [[0, 4]]}, DataError, "from 0 to 3"),
        ({"sequences": [[0, 0.5]]}, DataError, "whole numbers"),
        ({"labels": [2]}, DataError, "does not occur"),
        ({"labels": [0, 1]}, ShapeError, "labels"),
        ({"sequences": [0, 1]}, ShapeError, "sequences"),
        ({"z": [[1.0], [1.0]]}, ShapeError, "z"),
        ({"sequences": np.zeros((2, 1, 2)), "labels": np.zeros((3, 1))}, ShapeError, "batch"),
    ],
)
def test_next_token_problem_says_what_is_wrong(change, error, says):
    arguments = {"sequences": [[0, 1]], "labels": [1], "keys": np.eye(4)} | change
    with pytest.raises(error, match=says):
        sv.data.next_token_problem(**arguments)


def test_random_next_tokens_obey_their_levels():
    sequences, labels = sv.data.random_next_tokens(6, 3, 5, 4, batch=7, seed=1)
    assert sequences.shape == (7, 15, 4)
    assert (np.sort(sequences, -1)[..., 1:] != np.sort(sequences, -1)[..., :-1]).all()  # no repetition
    assert (sequences[..., -1] == np.repeat([0, 1, 2], 5)).all()
    assert (sequences == labels[..., None]).any(-1).all()
    assert sv.graphs.acyclic(sv.graphs.priority_graphs(sequences, labels, 6)).all()
    tied = sv.data.random_next_tokens(6, 3, 12, 4, levels=2, batch=7, seed=1)
    assert not sv.graphs.acyclic(sv.graphs.priority_graphs(*tied, 6)).all()
    one = sv.data.random_next_tokens(6, 3, 5, 4, batch=1, seed=1)
    assert np.array_equal(one[0][0], sequences[0])
    for wrong in ({"queries": 7}, {"length": 7}, {"levels": 7}):
        with pytest.raises(ShapeError):
            sv.data.random_next_tokens(**({"types": 6, "queries": 2, "samples": 2, "length": 3} | wrong))


def brute_graphs(sequences, labels, queries, G, M):
    edges = np.zeros((G, M, M), dtype=bool)
    for sequence, label, query in zip(sequences, labels, queries, strict=True):
        for token in sequence:
            if token != label:
                edges[query, label, token] = True
    return edges


def test_priority_graphs_against_loops():
    rng = np.random.default_rng(3)
    sequences = rng.integers(0, 5, (4, 9, 3))
    labels = np.take_along_axis(sequences, rng.integers(0, 3, (4, 9, 1)), -1)[..., 0]
    edges = sv.graphs.priority_graphs(sequences, labels, 5)
    asks = rng.integers(0, 2, 9)
    asks[0] = 1
    grouped = sv.graphs.priority_graphs(sequences, labels, 5, queries=asks)
    for b in range(4):
        assert np.array_equal(edges[b], brute_graphs(sequences[b], labels[b], sequences[b, :, -1], 5, 5))
        assert np.array_equal(grouped[b], brute_graphs(sequences[b], labels[b], asks, 2, 5))


def reach(edges):
    """Transitive closure, by repeated squaring."""
    closed = edges | np.eye(len(edges), dtype=bool)
    for _ in range(len(edges)):
        closed = (closed.astype(int) @ closed.astype(int)) > 0
    return closed


def test_components_levels_and_members_against_the_transitive_closure():
    rng = np.random.default_rng(4)
    for _ in range(60):
        M = int(rng.integers(2, 7))
        edges = (rng.random((M, M)) < rng.uniform(0.1, 0.5)) & ~np.eye(M, dtype=bool)
        closed = reach(edges)
        together = closed & closed.T
        known = edges.any(0) | edges.any(1)
        component, level = sv.graphs.components(edges), sv.graphs.levels(edges)
        for a, b in itertools.product(range(M), repeat=2):
            if known[a] and known[b]:
                assert (component[a] == component[b]) == together[a, b]
                if together[a, b]:
                    assert level[a] == level[b]
                elif edges[a, b]:
                    assert level[a] > level[b]
        assert sv.graphs.acyclic(edges) == (together.sum() == M)
        # heights are as small as they can be
        for a in range(M):
            below = [
                level[b]
                for b in range(M)
                for c in range(M)
                if together[a, c] and edges[c, b] and not together[a, b]
            ]
            assert level[a] == (max(below) + 1 if below else 0)


def test_in_component():
    sequences, labels = [[0, 1, 3], [1, 0, 3], [0, 2, 3], [3, 3, 3]], [0, 1, 0, 3]
    component = sv.graphs.components(sv.graphs.priority_graphs(sequences, labels, 4))
    found = sv.graphs.in_component(sequences, labels, component)
    assert found.tolist() == [
        [True, True, False],
        [True, True, False],
        [True, False, False],
        [True, True, True],
    ]
    with pytest.raises(DataError, match="component must hold whole numbers"):
        sv.graphs.in_component(sequences, labels, component + 0.5)
    with pytest.raises(ShapeError, match="query 3"):
        sv.graphs.in_component(sequences, labels, component[:2])
    with pytest.raises(DataError, match="queries"):
        sv.graphs.priority_graphs(sequences, labels, 4, queries=[0, 1, -1, 0])
    with pytest.raises(DataError, match="types"):
        sv.graphs.priority_graphs(sequences, labels, 3)
    with pytest.raises(ShapeError, match="batch"):
        sv.graphs.priority_graphs(np.zeros((2, 1, 3)), np.zeros((3, 1)), 2)


def test_priority_graph_is_drawn():
    edges = np.array([[0, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=bool)
    ax = sv.plot.priority_graph(edges, names=["a", "b", "c", "d"])
    shown = {t.get_text() for t in ax.texts}
    assert shown == {"a", "b", "c"}  # d has no edge
    places = {t.get_text(): t.get_position() for t in ax.texts}
    assert places["a"][1] == places["b"][1] > places["c"][1]
    arrows = [p for p in ax.patches if type(p).__name__ == "FancyArrowPatch"]
    assert len(arrows) == 4
    assert len(ax.patches) == 5  # and one shaded component
    with pytest.raises(ShapeError, match="no edge"):
        sv.plot.priority_graph(np.zeros((2, 2)))
    with pytest.raises(ShapeError, match="names"):
        sv.plot.priority_graph(edges, names=["a"])


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_random_next_tokens_checks_its_seed(seed):
    with pytest.raises(ShapeError, match="seed must be a whole number >= 0, got"):
        sv.data.random_next_tokens(4, 2, 2, 3, seed=seed)
