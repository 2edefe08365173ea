"""Problems in which every position asks: sequence and causal self-attention, and next-token prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import IntArray, as_float, check_integer
from svmlib.errors import DataError, ShapeError

from .problem import Problem

__all__ = ["next_token_problem", "random_next_tokens", "random_sequence_problem", "sequence_problem"]


def sequence_problem(
    X: ArrayLike,
    y: ArrayLike,
    v: ArrayLike | None = None,
    *,
    head: Callable[[Any], Any] | None = None,
    causal: bool = False,
) -> Problem:
    r"""Problem in which every token is a query: each position of each sequence is one example.

    Example :math:`iT+j` (from 0) has the tokens of sequence i, the query :math:`z=x_{ij}` and the label
    :math:`y_{ij}`. Its loss is the mean over all :math:`nT` positions.

    Parameters
    ----------
    X : array_like, shape (..., n, T, d)
        Tokens of n sequences.
    y : array_like, shape (..., n, T)
        Labels +1 or -1, one for each position.
    v : array_like, shape (..., d), optional
        Linear head.
    head : callable, optional
        Any other head; exclusive with ``v``.
    causal : bool
        Whether position j sees the tokens 0 to j alone. The first position then sees itself only: it has
        no gradient and no constraint.

    Returns
    -------
    Problem
        With n T sequences; masked if causal.

    Raises
    ------
    ShapeError
        If the shapes do not fit.
    DataError
        If values are not finite, labels are not ±1, or ``causal`` is not a bool.

    Notes
    -----
    *Transformers as Support Vector Machines* (2023), section on sequential and causal prediction.

    Examples
    --------
    >>> p = sequence_problem(np.eye(3)[None], [[1, 1, -1]], v=[1.0, 2.0, 3.0], causal=True)
    >>> p
    Problem(n=3, T=3, d=3, linear head, masked)
    >>> p.visible[1].tolist(), p.optimal.tolist()
    ([True, True, False], [0, 1, 0])
    """
    if not isinstance(causal, (bool, np.bool_)):
        raise DataError(f"causal must be True or False, got {causal!r}.")
    tokens = as_float(X, "X", min_ndim=3)
    n, T, d = tokens.shape[-3:]
    if min(n, T, d) < 1:
        raise ShapeError(f"X must have shape (..., n, T, d) with n, T, d >= 1, got {tokens.shape}.")
    labels = as_float(y, "y", last=(n, T), meaning=f"n and T of X, which has shape {tokens.shape}")
    lead = tokens.shape[:-3]
    repeated = np.broadcast_to(tokens[..., None, :, :], (*lead, n, T, T, d)).reshape(*lead, n * T, T, d)
    mask = np.tile(np.tri(T, dtype=bool), (n, 1)) if causal else None
    return Problem(
        repeated,
        tokens.reshape(*lead, n * T, d),
        labels.reshape(*labels.shape[:-2], n * T),
        v,  # type: ignore[arg-type]
        head=head,
        mask=mask,
    )


def random_sequence_problem(
    n: int, T: int, d: int, batch: int | None = None, seed: int = 0, causal: bool = False
) -> Problem:
    r"""Random sequences in which every position asks: tokens uniform on the sphere, fair labels.

    The same seed gives the same tokens, labels and head with and without the causal mask.

    Parameters
    ----------
    n, T, d : int
        Sequences, tokens a sequence, dimension.
    batch : int, optional
        Number of instances; None gives one problem without a batch axis.
    seed : int
        Seed; instance b has the seed (seed, b).
    causal : bool
        Whether position j sees the tokens 0 to j alone.

    Returns
    -------
    Problem
        With n T examples and a linear head of length 1.

    Raises
    ------
    ShapeError
        If a size is not a positive integer.

    Examples
    --------
    >>> random_sequence_problem(n=2, T=5, d=10, batch=100, causal=True)
    Problem(n=10, T=5, d=10, batch (100,), linear head, masked)
    """
    n, T, d = (check_integer(value, name) for value, name in ((n, "n"), (T, "T"), (d, "d")))
    count = None if batch is None else check_integer(batch, "batch")
    made = []
    for b in range(count or 1):
        rng = np.random.default_rng([check_integer(seed, "seed", 0), b])
        X, v, y = rng.normal(size=(n, T, d)), rng.normal(size=d), rng.choice([-1.0, 1.0], (n, T))
        made.append((X / np.linalg.norm(X, axis=-1, keepdims=True), y, v / np.linalg.norm(v)))
    X, y, v = (np.stack(a) if count is not None else a[0] for a in zip(*made, strict=True))
    return sequence_problem(X, y, v, causal=causal)


def _checked_types(sequences: ArrayLike, labels: ArrayLike, types: int) -> tuple[IntArray, IntArray]:
    """Sequences (..., n, T) and labels (..., n) as types, with common batch axes."""
    seen = as_float(sequences, "sequences", min_ndim=2)
    n, T = seen.shape[-2:]
    if min(n, T) < 1:
        raise ShapeError(f"sequences must have shape (..., n, T) with n, T >= 1, got {seen.shape}.")
    goal = as_float(labels, "labels", last=(n,), meaning=f"n of sequences, which have shape {seen.shape}")
    for a, name in ((seen, "sequences"), (goal, "labels")):
        if not (np.isin(a, np.arange(types))).all():
            raise DataError(f"{name} must hold token types, whole numbers from 0 to {types - 1}.")
    try:
        lead = np.broadcast_shapes(seen.shape[:-2], goal.shape[:-1])
    except ValueError:
        raise ShapeError(
            f"The leading (batch) axes do not fit: sequences have {seen.shape[:-2]}, "
            f"labels {goal.shape[:-1]}."
        ) from None
    seen, goal = np.broadcast_to(seen, (*lead, n, T)), np.broadcast_to(goal, (*lead, n))
    absent = ~(seen == goal[..., None]).any(-1)
    if absent.any():
        where = tuple(map(int, np.argwhere(absent)[0]))
        raise DataError(
            f"labels names a token that does not occur in its sequence, the first at index {where}: "
            "attention cannot put weight on a token that is not there. Leave such examples out."
        )
    return seen.astype(np.int64), goal.astype(np.int64)


def next_token_problem(
    sequences: ArrayLike, labels: ArrayLike, keys: ArrayLike, z: ArrayLike | None = None
) -> Problem:
    r"""Problem of predicting the next token by attention: the prediction is the mass on that token.

    The values are the numbers 1 where the token is the label and 0 elsewhere, the head is v = 1 and all
    labels are +1, so that the prediction is :math:`f_i=\sum_{t:\,\text{type}=c_i}s_{it}`. Train it with
    ``loss="log"``, :math:`-\log f_i`.

    Parameters
    ----------
    sequences : array_like of int, shape (..., n, T)
        Token types; the last one of a sequence asks.
    labels : array_like of int, shape (..., n)
        Next tokens :math:`c_i`: each occurs in its sequence.
    keys : array_like, shape (..., M, e)
        One embedding for each of M token types.
    z : array_like, shape (..., n, q), optional
        Queries; the embedding of the last token by default.

    Returns
    -------
    Problem
        With tokens of width 1, and keys of width e.

    Raises
    ------
    ShapeError
        If the shapes do not fit.
    DataError
        If a sequence holds something else than types, or a label does not occur in its sequence.

    Notes
    -----
    The setting of Li et al. (2024), *Mechanics of Next Token Prediction with Self-Attention*.

    Examples
    --------
    >>> p = next_token_problem([[0, 1, 1]], [1], np.eye(2))
    >>> p.X[0, :, 0].tolist(), p.keys.shape
    ([0.0, 1.0, 1.0], (1, 3, 2))
    """
    table = as_float(keys, "keys", min_ndim=2)
    seen, goal = _checked_types(sequences, labels, table.shape[-2])
    try:
        lead = np.broadcast_shapes(seen.shape[:-2], table.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"The leading (batch) axes do not fit: sequences and labels have {seen.shape[:-2]}, "
            f"keys {table.shape[:-2]}."
        ) from None
    n, T = seen.shape[-2:]
    seen, goal = np.broadcast_to(seen, (*lead, n, T)), np.broadcast_to(goal, (*lead, n))
    table = np.broadcast_to(table, lead + table.shape[-2:])
    picked = np.take_along_axis(table[..., None, :, :], seen[..., None], axis=-2)
    value = (seen == goal[..., None]).astype(np.float64)[..., None]
    asks = picked[..., -1, :] if z is None else as_float(z, "z", last=(n, None), meaning="n of sequences")
    return Problem(value, asks, np.ones(n), np.ones(1), keys=picked)


def random_next_tokens(
    types: int,
    queries: int,
    samples: int,
    length: int,
    *,
    levels: int | None = None,
    batch: int | None = None,
    seed: int = 0,
) -> tuple[IntArray, IntArray]:
    """Draw sequences and next tokens that obey a random order of priority for every last token.

    Each of the first ``queries`` types is the last token of ``samples`` sequences and has an order of its
    own: every type gets a level, and the next token is drawn from the types of highest level in the
    sequence. The other tokens of a sequence are drawn without repetition.

    Parameters
    ----------
    types : int
        Number M of token types.
    queries : int
        Number of types that occur as last tokens.
    samples : int
        Sequences for each last token.
    length : int
        Tokens of a sequence, at most M.
    levels : int, optional
        Number of levels. By default M: all types are ordered, so that the priority graphs are acyclic.
        With fewer levels, types of one level win against each other in turn, and cycles appear.
    batch : int, optional
        Number of data sets; None gives one without a batch axis.
    seed : int
        Seed; data set b has the seed (seed, b).

    Returns
    -------
    sequences : ndarray of int, shape (..., n, T)
        Token types, n = queries x samples; the last column holds the last tokens.
    labels : ndarray of int, shape (..., n)
        Next tokens.

    Raises
    ------
    ShapeError
        If a size or the seed is out of range.

    Examples
    --------
    >>> sequences, labels = random_next_tokens(types=6, queries=2, samples=3, length=4)
    >>> sequences.shape, bool((sequences == labels[:, None]).any(1).all())
    ((6, 4), True)
    """
    M, G, S, T = (
        check_integer(value, name)
        for value, name in ((types, "types"), (queries, "queries"), (samples, "samples"), (length, "length"))
    )
    if G > M or T > M:
        raise ShapeError(
            f"random_next_tokens needs queries and length of at most types={M}, got queries={G}, length={T}."
        )
    L = M if levels is None else check_integer(levels, "levels")
    if L > M:
        raise ShapeError(f"There can be at most one level for each of the {M} types, got levels={L}.")
    count = None if batch is None else check_integer(batch, "batch")
    start = check_integer(seed, "seed", 0)
    made = [_drawn(M, G, S, T, L, np.random.default_rng([start, b])) for b in range(count or 1)]
    sequences, labels = (np.stack(a) for a in zip(*made, strict=True))
    return (sequences, labels) if count is not None else (sequences[0], labels[0])


def _drawn(M: int, G: int, S: int, T: int, L: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    sequences, labels = np.empty((G * S, T), dtype=np.int64), np.empty(G * S, dtype=np.int64)
    for g in range(G):
        level = rng.permutation(np.arange(M) % L)  # each level is taken, by as equal numbers as possible
        others = np.delete(np.arange(M), g)
        for i in range(g * S, (g + 1) * S):
            sequences[i] = [*rng.choice(others, T - 1, replace=False), g]
            top = level[sequences[i]]
            labels[i] = rng.choice(sequences[i][top == top.max()])
    return sequences, labels
