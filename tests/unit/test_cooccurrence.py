"""Counts of the tokens before query words, by hand, against plain loops, and at the size of a real text."""

import time
import tracemalloc
from importlib import import_module

import numpy as np
import pytest

from svmlib.errors import DataError, ShapeError
from svmlib.text import cooccurrence


def test_by_hand() -> None:
    #        0  1  2  3  4  5  6  7  8  9
    ids = [5, 1, 1, 5, 2, 1, 1, 5, 3, 5]
    found = cooccurrence(ids, [5], length=3, following=2, vocabulary=6)
    # at 0 nothing stands before it, at 9 nothing after: left are (5 1 1) before 2 and (2 1 1) before 3
    assert found.following.tolist() == [[2, 3]]
    assert found.windows.tolist() == [[1, 1]]
    assert found.counts[0].tolist() == [[0, 2, 0, 0, 0, 1], [0, 2, 1, 0, 0, 0]]
    assert found.seen[0].tolist() == [[0, 1, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0]]
    assert found.occurrences.tolist() == [2] and found.length == 3 and found.vocabulary == 6
    np.testing.assert_allclose(found.shares[0, 1], [0, 2 / 3, 1 / 3, 0, 0, 0])


def test_windows_are_cut_at_the_start_and_next_tokens_ranked() -> None:
    ids = [4, 0, 1, 0, 1, 0, 2]
    found = cooccurrence(ids, [0, 1], length=4, following=3, vocabulary=5)
    assert found.following.tolist() == [[1, 2, -1], [0, -1, -1]]
    assert found.windows.tolist() == [[2, 1, 0], [2, 0, 0]]
    assert found.occurrences.tolist() == [3, 2]
    # before the two "0 1": (4) and (4 0 1)
    assert found.counts[0, 0].tolist() == [1, 1, 0, 0, 2] == found.seen[0, 0].tolist()
    assert not found.counts[0, 2].any() and not found.shares[0, 2].any()
    tie = cooccurrence([3, 0, 2, 0, 1], [0], length=1, following=1, vocabulary=5)
    assert tie.following.tolist() == [[1]] and tie.occurrences.tolist() == [2]


@pytest.mark.parametrize("block", [1, 50, 1 << 20])
def test_against_loops(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("svmlib.text.cooccurrence"), "BLOCK", block)
    rng = np.random.default_rng(0)
    V, length = 9, 7
    ids = rng.integers(0, V, 300).astype(np.int32)
    found = cooccurrence(ids, [3, 0, 8], length=length, following=4, vocabulary=V)
    counts, seen = np.zeros((3, 4, V), int), np.zeros((3, 4, V), int)
    for t in range(1, len(ids) - 1):
        for q in np.flatnonzero(found.queries == ids[t]):
            for n in np.flatnonzero(found.following[q] == ids[t + 1]):
                window = ids[max(0, t - length) : t]
                for token in window:
                    counts[q, n, token] += 1
                for token in set(window.tolist()):
                    seen[q, n, token] += 1
    np.testing.assert_array_equal(found.counts, counts)
    np.testing.assert_array_equal(found.seen, seen)
    with pytest.raises(ValueError, match="read-only"):
        found.counts[0] = 0


def test_a_million_tokens() -> None:
    rng = np.random.default_rng(0)
    V = 5000
    p = 1 / np.arange(1, V + 1)
    ids = np.searchsorted(np.cumsum(p / p.sum()), rng.random(10**6)).clip(0, V - 1).astype(np.int32)
    tracemalloc.start()
    start = time.perf_counter()
    found = cooccurrence(ids, np.arange(20), length=31, following=20, vocabulary=V)
    assert time.perf_counter() - start < 20
    assert tracemalloc.get_traced_memory()[1] < 400e6
    tracemalloc.stop()
    inside = found.counts.sum(-1)
    assert (inside <= 31 * found.windows).all() and (inside >= 31 * found.windows - 31 * 31).all()
    assert (found.seen <= found.windows[..., None]).all() and (found.seen <= found.counts).all()


@pytest.mark.parametrize(
    "change, error, match",
    [
        ({"queries": [7]}, DataError, r"queries must hold tokens 0\.\.4 of the vocabulary, got 7\.\.7"),
        ({"queries": [1, 1]}, DataError, r"each token once, got \[1, 1\]"),
        ({"queries": [3, 1]}, DataError, r"Queries \[3\] never occur in the 7 tokens"),
        ({"queries": [2]}, DataError, r"Queries \[2\] never occur"),
        ({"queries": 1}, ShapeError, "queries must be a list of whole numbers"),
        ({"queries": []}, ShapeError, "queries must be a list"),
        ({"ids": [0.0, 1.0]}, ShapeError, "ids must be a list of whole numbers, tokens, got float64"),
        ({"ids": [0, 1, 9]}, DataError, r"ids must hold tokens 0\.\.4 .* unknown words are 0"),
        ({"ids": [1, 1]}, DataError, "never occur in the 2 tokens"),
        ({"length": 0}, ShapeError, "length must be a positive integer, got 0"),
        ({"following": -1}, ShapeError, "following must be a positive integer"),
        ({"vocabulary": 1}, ShapeError, "vocabulary must be an integer >= 2"),
    ],
)
def test_errors(change: dict, error: type[Exception], match: str) -> None:
    given = {"ids": [4, 0, 1, 0, 1, 0, 2], "queries": [0], "length": 3, "following": 2, "vocabulary": 5}
    given.update(change)
    with pytest.raises(error, match=match):
        cooccurrence(given.pop("ids"), given.pop("queries"), **given)
