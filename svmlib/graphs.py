"""Directed graphs of token priorities: components whose tokens are equal, and edges that order them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse import csgraph

from .arrays import BoolArray, FloatArray, IntArray, as_float, check_integer
from .errors import DataError, ShapeError

__all__ = ["acyclic", "components", "in_component", "levels", "priority_graphs", "strict"]


def components(edges: ArrayLike) -> IntArray:
    """Strongly connected components: tokens that reach each other along edges.

    Parameters
    ----------
    edges : array_like of bool, shape (..., V, V)
        ``edges[..., a, b]`` is True where token a has priority over token b. Loops, from a token to itself,
        say nothing and are ignored.

    Returns
    -------
    ndarray of int, shape (..., V)
        Component of each token, numbered from 0 in the order of their first tokens; -1 for a token without
        an edge.

    Raises
    ------
    ShapeError
        If the last two axes are not equal.
    DataError
        If ``edges`` is not boolean.

    Notes
    -----
    Li et al. (2024), token-priority graph.

    Examples
    --------
    >>> components([[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    array([ 0,  0,  1, -1])
    """
    flags = _checked(edges)
    V = flags.shape[-1]
    graphs = flags.reshape(-1, V, V)
    # all graphs as one: what is not connected stays apart
    g, a, b = np.nonzero(graphs)
    size = len(graphs) * V
    joint = sparse.csr_matrix((np.ones(len(g), dtype=bool), (g * V + a, g * V + b)), shape=(size, size))
    raw = csgraph.connected_components(joint, directed=True, connection="strong")[1].reshape(-1, V)
    known = (graphs.any(-1) | graphs.any(-2)).reshape(-1, V)
    same = (raw[:, :, None] == raw[:, None, :]) & known[:, None, :]
    first = same.argmax(-1)  # the first token of the component
    leads = known & (first == np.arange(V))
    number = np.cumsum(leads, axis=-1) - 1
    out = np.where(known, np.take_along_axis(number, first, -1), -1)
    return np.asarray(out.reshape(flags.shape[:-1]), dtype=np.int64)


def strict(edges: ArrayLike) -> BoolArray:
    """Keep the edges between different components: the priorities that no cycle contradicts.

    Parameters
    ----------
    edges : array_like of bool, shape (..., V, V)
        ``edges[..., a, b]`` is True where token a has priority over token b.

    Returns
    -------
    ndarray of bool, shape (..., V, V)
        The edges from one component to another; they form a graph without cycles.

    Raises
    ------
    ShapeError
        If the last two axes are not equal.
    DataError
        If ``edges`` is not boolean.

    Examples
    --------
    >>> strict([[0, 1, 1], [1, 0, 0], [0, 0, 0]]).astype(int)
    array([[0, 0, 1],
           [0, 0, 0],
           [0, 0, 0]])
    """
    flags = _checked(edges)
    label = components(flags)
    return np.asarray(flags & (label[..., :, None] != label[..., None, :]))


def acyclic(edges: ArrayLike) -> BoolArray:
    """Whether no directed cycle contradicts the priorities.

    Parameters
    ----------
    edges : array_like of bool, shape (..., V, V)
        ``edges[..., a, b]`` is True where token a has priority over token b.

    Returns
    -------
    ndarray of bool, shape (...)
        True where every component is a single token.

    Raises
    ------
    ShapeError
        If the last two axes are not equal.
    DataError
        If ``edges`` is not boolean.

    Examples
    --------
    >>> acyclic([[[0, 1], [0, 0]], [[0, 1], [1, 0]]])
    array([ True, False])
    """
    flags = _checked(edges)
    return np.asarray((strict(flags) == flags).all((-2, -1)))


def levels(edges: ArrayLike) -> IntArray:
    """Height of each token: edges between components on the longest path that starts at its component.

    Tokens of one component have one height, and each edge between components goes down.

    Parameters
    ----------
    edges : array_like of bool, shape (..., V, V)
        ``edges[..., a, b]`` is True where token a has priority over token b.

    Returns
    -------
    ndarray of int, shape (..., V)
        Heights, 0 at the bottom and for tokens without an edge.

    Raises
    ------
    ShapeError
        If the last two axes are not equal.
    DataError
        If ``edges`` is not boolean.

    Examples
    --------
    >>> levels([[0, 1, 1], [1, 0, 0], [0, 0, 0]])
    array([1, 1, 0])
    """
    flags = _checked(edges)
    label = components(flags)
    down = flags & (label[..., :, None] != label[..., None, :])
    same = (label[..., :, None] == label[..., None, :]) & (label >= 0)[..., None]
    height = np.zeros(label.shape, dtype=np.int64)
    for _ in range(flags.shape[-1]):  # no path is longer
        step = np.where(down, height[..., None, :] + 1, 0).max(-1)
        height = np.where(same, step[..., None, :], 0).max(-1)
    return np.asarray(height)


def priority_graphs(
    sequences: ArrayLike, labels: ArrayLike, types: int, queries: ArrayLike | None = None
) -> BoolArray:
    r"""Token-priority graph of every query: each label has priority over the other tokens of its sequence.

    Parameters
    ----------
    sequences : array_like of int, shape (..., n, T)
        Token types, from 0 to ``types`` - 1.
    labels : array_like of int, shape (..., n)
        Next tokens.
    types : int
        Number M of token types.
    queries : array_like of int, shape (n,), optional
        Which of the queries 0, 1, ... each sequence asks with; its last token by default.

    Returns
    -------
    ndarray of bool, shape (..., G, M, M)
        ``edges[g, a, b]`` is True where a is the label of a sequence with query g that contains b. There
        are G = M queries by default, and one more than the largest of ``queries`` otherwise.

    Raises
    ------
    ShapeError
        If the shapes do not fit.
    DataError
        If entries are not types, or queries are not whole numbers from 0.

    Notes
    -----
    Li et al. (2024), *Mechanics of Next Token Prediction with Self-Attention*.

    Examples
    --------
    >>> priority_graphs([[0, 1], [1, 2], [2, 0]], [0, 1, 2], 3, queries=[0, 0, 1]).astype(int)[0]
    array([[0, 1, 0],
           [0, 0, 1],
           [0, 0, 0]])
    """
    M = check_integer(types, "types")
    seen, goal, asks = _samples(sequences, labels, queries, M)
    G = M if queries is None else int(asks.max()) + 1
    lead, (n, T) = seen.shape[:-2], seen.shape[-2:]
    edges = np.zeros((int(np.prod(lead, dtype=int)), G, M, M), dtype=bool)
    b = np.arange(len(edges))[:, None, None]
    flat = (a.reshape(-1, n)[..., None] for a in (asks, goal))
    edges[(b, *flat, seen.reshape(-1, n, T))] = True
    edges &= ~np.eye(M, dtype=bool)
    return edges.reshape(*lead, G, M, M)


def in_component(
    sequences: ArrayLike, labels: ArrayLike, component: ArrayLike, queries: ArrayLike | None = None
) -> BoolArray:
    """Find the tokens of a sequence in the component of its label, for the query that it asks with.

    Parameters
    ----------
    sequences : array_like of int, shape (..., n, T)
        Token types.
    labels : array_like of int, shape (..., n)
        Next tokens.
    component : array_like of int, shape (..., G, M)
        Component of each type for each query, from :func:`components`.
    queries : array_like of int, shape (n,), optional
        Which query each sequence asks with; its last token by default.

    Returns
    -------
    ndarray of bool, shape (..., n, T)
        True at the label and at tokens that no cycle-free priority tells from it.

    Raises
    ------
    ShapeError
        If the shapes do not fit.
    DataError
        If entries are not types.

    Examples
    --------
    >>> edges = priority_graphs([[0, 1], [0, 1], [0, 2]], [0, 1, 0], 3, queries=[0, 0, 0])
    >>> in_component([[0, 1], [0, 2]], [1, 0], components(edges), queries=[0, 0]).tolist()
    [[True, True], [True, False]]
    """
    table = as_float(component, "component", min_ndim=2, meaning="(..., G, M)")
    if not (table == table.round()).all():
        raise DataError("component must hold whole numbers, as graphs.components gives them.")
    seen, goal, asks = _samples(sequences, labels, queries, table.shape[-1])
    if asks.max() >= table.shape[-2]:
        raise ShapeError(
            f"component has {table.shape[-2]} queries (its axis before the last), but query "
            f"{int(asks.max())} is asked."
        )
    lead = np.broadcast_shapes(seen.shape[:-2], table.shape[:-2])
    table = np.broadcast_to(table, lead + table.shape[-2:])
    asks, seen = np.broadcast_to(asks, lead + asks.shape[-1:]), np.broadcast_to(seen, lead + seen.shape[-2:])
    goal = np.broadcast_to(goal, lead + goal.shape[-1:])
    row = np.take_along_axis(table, asks[..., None], -2)  # (..., n, M)
    of = np.take_along_axis(row, seen, -1)
    own = np.take_along_axis(row, goal[..., None], -1)
    return np.asarray((seen == goal[..., None]) | ((of == own) & (own >= 0)))


def _samples(
    sequences: ArrayLike, labels: ArrayLike, queries: ArrayLike | None, M: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Checked sequences (..., n, T), labels (..., n) and queries (..., n), with common batch axes."""
    seen = as_float(sequences, "sequences", min_ndim=2)
    n, T = seen.shape[-2:]
    if min(n, T) < 1:
        raise ShapeError(f"sequences must have shape (..., n, T) with n, T >= 1, got {seen.shape}.")
    meaning = f"n of sequences, which have shape {seen.shape}"
    goal = as_float(labels, "labels", last=(n,), meaning=meaning)
    for a, name in ((seen, "sequences"), (goal, "labels")):
        if not np.isin(a, np.arange(M)).all():
            raise DataError(f"{name} must hold token types, whole numbers from 0 to {M - 1}.")
    asks = seen[..., -1] if queries is None else as_float(queries, "queries", last=(n,), meaning=meaning)
    if not ((asks == asks.round()) & (asks >= 0)).all():
        raise DataError("queries must hold whole numbers from 0, one for each sequence.")
    try:
        lead = np.broadcast_shapes(seen.shape[:-2], goal.shape[:-1], asks.shape[:-1])
    except ValueError:
        raise ShapeError(
            f"The leading (batch) axes do not fit: sequences have {seen.shape[:-2]}, labels "
            f"{goal.shape[:-1]}, queries {asks.shape[:-1]}."
        ) from None

    def shared(a: FloatArray, own: int) -> IntArray:
        return np.broadcast_to(a, lead + a.shape[a.ndim - own :]).astype(np.int64)

    return shared(seen, 2), shared(goal, 1), shared(asks, 1)


def _checked(edges: ArrayLike) -> BoolArray:
    """Flags without loops."""
    flags = as_float(edges, "edges", min_ndim=2)
    V = flags.shape[-1]
    if flags.shape[-2] != V or V == 0:
        raise ShapeError(f"edges must have shape (..., V, V) with V >= 1 tokens, got {flags.shape}.")
    if not np.isin(flags, (0.0, 1.0)).all():
        raise DataError("edges must be boolean: True where the first token has priority over the second.")
    return np.asarray(flags.astype(bool) & ~np.eye(V, dtype=bool))
