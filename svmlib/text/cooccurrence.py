r"""Which words stand before a query word, by the word that follows it: sequence classes of real text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray, IntArray, check_integer
from svmlib.errors import DataError, ShapeError

__all__ = ["Cooccurrence", "cooccurrence"]

BLOCK = 1 << 20  # tokens of windows in memory at a time


@dataclass(frozen=True, slots=True, eq=False)
class Cooccurrence:
    """Counts of the tokens before a query token, apart for each next token."""

    queries: IntArray
    """(Q,) query tokens, in the order that was asked for."""
    following: IntArray
    """(Q, N) next tokens, the most frequent first; -1 where a query has fewer of them."""
    windows: IntArray
    """(Q, N) occurrences of the query followed by the next token, each with its window."""
    counts: IntArray
    """(Q, N, V) how often each token type occurs in these windows."""
    seen: IntArray
    """(Q, N, V) number of windows with the token type, however often it occurs in them."""
    occurrences: IntArray
    """(Q,) occurrences of the query, whatever follows."""
    length: int
    """Tokens of a window; fewer at the start of the stream."""

    @property
    def vocabulary(self) -> int:
        """Number of token types, V."""
        return int(self.counts.shape[-1])

    @property
    def shares(self) -> FloatArray:
        """(Q, N, V) frequencies of token types in the windows of a class; 0 where there is no class."""
        total = self.counts.sum(-1, keepdims=True)
        return np.asarray(self.counts / np.maximum(total, 1))


def cooccurrence(
    ids: ArrayLike, queries: ArrayLike, *, length: int, following: int = 20, vocabulary: int
) -> Cooccurrence:
    r"""Count the tokens before query tokens, by the token that follows.

    An occurrence of a query counts if a token stands before it and one after it. Its window are the
    ``length`` tokens before it, without the query itself; at the start of the stream there are fewer.

    Parameters
    ----------
    ids : array_like of int, shape (words,)
        The stream of tokens.
    queries : array_like of int, shape (Q,)
        Query tokens, each once.
    length : int
        Number of tokens of a window.
    following : int
        Number N of next tokens of each query: its most frequent ones; of equally frequent ones the smaller
        number first.
    vocabulary : int
        Number V of token types.

    Returns
    -------
    Cooccurrence
        Counts (Q, N, V) of tokens and of windows that have them.

    Raises
    ------
    ShapeError
        If a size is not a positive whole number, or ids or queries are not lists.
    DataError
        If tokens lie outside the vocabulary, queries repeat, or a query never occurs.

    Notes
    -----
    A pair of a query and a next token is a sequence class of *Scan and Snap* (2023), section 3, and
    ``counts``, scaled to sum 1, its :math:`\mathbb P(l\mid m,n)`.

    Examples
    --------
    >>> found = cooccurrence([1, 1, 2, 0, 1, 2, 3], [2], length=2, following=2, vocabulary=4)
    >>> found.following, found.counts[0, 0], found.seen[0, 0]
    (array([[0, 3]]), array([0, 2, 0, 0]), array([0, 1, 0, 0]))
    """
    V, N = check_integer(vocabulary, "vocabulary", 2), check_integer(following, "following")
    length = check_integer(length, "length")
    stream, asked = as_tokens(ids, "ids", V), as_tokens(queries, "queries", V)
    Q = len(asked)
    if len(np.unique(asked)) < Q:
        raise DataError(f"queries must name each token once, got {asked.tolist()}.")
    place = np.full(V, -1)
    place[asked] = np.arange(Q)
    at = np.flatnonzero(place[stream[1:-1]] >= 0) + 1
    row, then = place[stream[at]], stream[at + 1]
    pairs = np.bincount(row * V + then, minlength=Q * V).reshape(Q, V)
    occurrences = pairs.sum(1)
    if not occurrences.all():
        raise DataError(
            f"Queries {asked[occurrences == 0].tolist()} never occur in the {len(stream)} tokens of ids with "
            "a token before and one after. Leave them out, or give a longer stream."
        )
    chosen = np.argsort(-pairs, axis=1, kind="stable")[:, :N]
    windows = np.take_along_axis(pairs, chosen, 1)
    if chosen.shape[1] < N:  # a vocabulary smaller than that
        missing = ((0, 0), (0, N - chosen.shape[1]))
        chosen, windows = np.pad(chosen, missing), np.pad(windows, missing)
    chosen = np.where(windows > 0, chosen, -1)
    kept = np.full((Q, V), -1)
    q, n = np.nonzero(windows)
    kept[q, chosen[q, n]] = q * N + n
    cell = kept[row, then]
    counts, seen = _count(stream, at[cell >= 0], cell[cell >= 0], length, Q * N, V)
    shape = Q, N, V
    arrays = asked, chosen, windows, counts.reshape(shape), seen.reshape(shape), occurrences
    for a in arrays:
        a.setflags(write=False)
    return Cooccurrence(*arrays, length)


def _count(
    stream: IntArray, at: IntArray, cell: IntArray, length: int, cells: int, V: int
) -> tuple[IntArray, IntArray]:
    # a token is the first of its type in a window if the one of its type before it lies before the window
    order = np.argsort(stream, kind="stable")
    earlier = np.full(len(stream), -1)
    again = stream[order[1:]] == stream[order[:-1]]
    earlier[order[1:][again]] = order[:-1][again]
    counts, seen = (np.zeros(cells * V, np.int64) for _ in range(2))
    lowest = at - length
    back = np.arange(-length, 0)
    step = max(1, BLOCK // length)
    for k in range(0, len(at), step):
        index = at[k : k + step, None] + back
        inside = index >= 0
        where = index[inside]
        target = np.repeat(cell[k : k + step], inside.sum(1)) * V + stream[where]
        start = np.repeat(lowest[k : k + step], inside.sum(1))
        np.add.at(counts, target, 1)
        np.add.at(seen, target[earlier[where] < start.clip(0)], 1)
    return counts, seen


def as_tokens(a: ArrayLike, name: str, V: int) -> IntArray:
    """Check a list of tokens.

    Parameters
    ----------
    a : array_like of int, shape (k,)
        Tokens, at least one.
    name : str
        What the caller calls it.
    V : int
        Size of the vocabulary.

    Returns
    -------
    ndarray of int64, shape (k,)
        The tokens.

    Raises
    ------
    ShapeError
        If it is no list of whole numbers.
    DataError
        If a token lies outside the vocabulary.
    """
    value = np.asarray(a)
    if value.ndim != 1 or not value.size or not np.issubdtype(value.dtype, np.integer):
        raise ShapeError(
            f"{name} must be a list of whole numbers, tokens, got {value.dtype} of shape {value.shape}."
        )
    if int(value.min()) < 0 or int(value.max()) >= V:
        raise DataError(
            f"{name} must hold tokens 0..{V - 1} of the vocabulary, got {value.min()}..{value.max()}. "
            "Encode the text with this vocabulary; unknown words are 0."
        )
    return value.astype(np.int64)
