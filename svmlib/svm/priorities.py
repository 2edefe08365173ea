r"""The SVM of token-priority graphs: cycles tie the logits of their tokens, other edges order them.

.. math::
   W^{mm}=\arg\min_W\|W\|\quad\text{s.t.}\quad (k_a-k_b)^\top Wz_g\;\begin{cases}
   =0,&a,b\text{ in one strongly connected component of graph }g\\
   \ge1,&(a\to b)\text{ an edge of graph }g\text{ between two components.}\end{cases}
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from svmlib.arrays import BoolArray, FloatArray, IntArray, as_float, frozen
from svmlib.errors import ShapeError
from svmlib.graphs import components, strict

from .arguments import checked_errors, checked_norm
from .features import Features
from .general import Rows, raise_failure, solve
from .general_records import GraphSVM
from .reasons import count
from .records import SUPPORT_TOLERANCE, Certificate, widths

__all__ = ["graph_svm"]


def graph_svm(
    keys: ArrayLike, queries: ArrayLike, edges: ArrayLike, norm: str = "fro", errors: str = "raise"
) -> GraphSVM:
    r"""Solve the SVM of token-priority graphs, one for each query, with a certificate.

    Parameters
    ----------
    keys : array_like, shape (V, e)
        Embeddings of the V tokens of the vocabulary.
    queries : array_like, shape (G, q)
        Embedding of the query of each graph.
    edges : array_like of bool, shape (G, V, V)
        ``edges[g, a, b]`` is True where token a has priority over token b for query g. Loops are ignored.
    norm : str
        "fro" (Frobenius, unique solution) or "nuc" (nuclear).
    errors : str
        "raise" raises where there is no solution or it cannot be found; "nan" returns NaN, rank -1 and
        ``solved`` False, with ``feasible`` False where infeasibility is proved.

    Returns
    -------
    GraphSVM
        Read-only arrays.

    Raises
    ------
    InfeasibleError
        If the constraints contradict each other, and ``errors="raise"``.
    SolverError
        If the solution cannot be certified to 1e-9 in double precision, or the program can be neither solved
        nor proved infeasible, and ``errors="raise"``.
    DataError
        If numbers are not finite, ``edges`` is not boolean, or ``norm`` or ``errors`` is unknown.
    ShapeError
        If shapes do not fit.

    Notes
    -----
    Li et al. (2024), Graph-SVM. Components are found by :func:`svmlib.graphs.components`; tokens without an
    edge carry no constraint.

    Examples
    --------
    >>> svm = graph_svm(np.eye(3), [[1.0]], [[[0, 1, 1], [1, 0, 0], [0, 0, 0]]])  # 0 and 1 over 2
    >>> svm.W[:, 0].round(6)
    array([ 0.333333,  0.333333, -0.666667])
    """
    checked_norm(norm)
    stop = checked_errors(errors)
    k = as_float(keys, "keys", ndim=2, meaning="(V, e)")
    z = as_float(queries, "queries", ndim=2, meaning="(G, q): a row for each graph")
    flags = as_float(edges, "edges", ndim=3, meaning="(G, V, V): a matrix for each query")
    if min(*k.shape, *z.shape) < 1 or flags.shape != (len(z), len(k), len(k)):
        raise ShapeError(
            f"keys (V, e), queries (G, q) and edges (G, V, V) must agree on V tokens and G graphs, at least "
            f"one each; got shapes {k.shape}, {z.shape} and {flags.shape}."
        )
    label, between = components(flags), strict(flags)
    V = len(k)
    pairs = [_Pairs.of(*graph) for graph in zip(label, between, strict=True)]
    rows = _rows(k, z, label, pairs)
    found = solve(rows, norm, stop)
    size = f"{len(z)} queries, {V} tokens, {widths(k.shape[1], z.shape[1])}"
    if stop:
        raise_failure(found, norm, lambda _: f"The graph SVM ({size})", partial(_reason, k, pairs))
    support, multipliers = np.zeros(between.shape, dtype=bool), np.zeros(between.shape)
    for g, pair in enumerate(pairs):
        own = slice(V, V + len(pair.upper))
        a, b = np.nonzero(between[g])
        support[g, a, b] = (found.slack[0, g, own] < SUPPORT_TOLERANCE)[pair.of_edge]
        multipliers[g, a[pair.edge], b[pair.edge]] = found.multipliers[0, g, own]
    if not np.isfinite(found.value[0]):
        multipliers[:] = np.nan
    certificate = (getattr(found.certificate, name)[0] for name in ("primal", "dual", "gap"))
    return GraphSVM(
        W=frozen(found.W[0]),
        value=frozen(found.value[0]),
        rank=frozen(found.rank[0]),
        components=frozen(label),
        edges=frozen(between),
        support=frozen(support),
        multipliers=frozen(multipliers),
        equalities=frozen(found.multipliers[0, :, :V]),
        norm=norm,
        feasible=frozen(found.possible[0]),
        certificate=Certificate(*map(frozen, certificate)),
    )


class _Pairs(NamedTuple):
    """Ordered pairs of components of one graph: a margin each.

    Attributes
    ----------
    upper, lower : ndarray of int
        First tokens of the two components.
    edge : ndarray of int
        Position of the first of the edges that join them.
    of_edge : ndarray of int
        The pair of each edge between components, edges in row order.
    first : ndarray of int, shape (V,)
        First token of the component of each token.
    """

    upper: NDArray[np.intp]
    lower: NDArray[np.intp]
    edge: NDArray[np.intp]
    of_edge: NDArray[np.intp]
    first: NDArray[np.intp]

    @classmethod
    def of(cls, label: IntArray, between: BoolArray) -> _Pairs:
        first = (label[:, None] == label).argmax(1)
        a, b = np.nonzero(between)
        numbers = label[a] * (len(label) + 1) + label[b]
        _, edge, of_edge = np.unique(numbers, return_index=True, return_inverse=True)
        return cls(first[a[edge]], first[b[edge]], edge, of_edge.ravel(), first)


def _rows(k: FloatArray, z: FloatArray, label: IntArray, pairs: list[_Pairs]) -> Rows:
    """Equalities token by token, then margins pair by pair."""
    V, most = len(k), max(len(pair.upper) for pair in pairs)
    delta = np.zeros((1, len(z), V + most, k.shape[1]))
    constrained = np.zeros(delta.shape[:-1], dtype=bool)
    equal = np.zeros_like(constrained)
    for g, pair in enumerate(pairs):
        count = len(pair.upper)
        delta[0, g, :V] = k[pair.first] - k
        delta[0, g, V : V + count] = k[pair.upper] - k[pair.lower]
        constrained[0, g, V : V + count] = True
        equal[0, g, :V] = (label[g] >= 0) & (pair.first != np.arange(V))
    return Rows(delta, z[None], constrained, equal, np.zeros(constrained.shape))


def _reason(k: FloatArray, pairs: list[_Pairs], features: Features, weights: FloatArray) -> str:
    V = len(k)
    for g, slot in zip(*(part[~features.equal] for part in features.index), strict=True):
        if not features.query[features.index[0] == g].any():
            return f"query {g} is 0, so all its logits are equal, but its graph orders tokens. Drop the graph"
        upper, lower, _, _, first = pairs[g]
        a, b = upper[slot - V], lower[slot - V]
        for c in np.flatnonzero(first == a):
            same = np.flatnonzero((first == b) & (k == k[c]).all(1))
            if same.size:
                return (
                    f"the keys of tokens {c} and {same[0]} are equal, but the graph of query {g} orders "
                    f"them. Give the tokens different keys, or merge them"
                )
    used = np.abs(weights) > 1e-9 * np.abs(weights).max()
    where = sorted({int(g) for g in features.index[0][used]})
    return (
        f"{count(features, weights)}, in the graphs of queries {where}, contradict each other. Remove edges, "
        f"or widen keys and queries"
    )
