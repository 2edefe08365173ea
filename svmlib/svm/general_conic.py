"""The programs with equalities once more, as the formulas read: one cvxpy constraint for each pair of tokens.

Slow and independent of the other solver: the second opinion that tests and benchmarks compare with.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import BoolArray, FloatArray, as_float, frozen
from svmlib.data import Problem
from svmlib.errors import DataError, InfeasibleError, ShapeError, SolverError

from .arguments import checked_norm, checked_selection, per_token

__all__ = ["finite_part_conic", "generalized_svm_conic", "graph_svm_conic"]

Row = tuple[FloatArray, FloatArray, float, bool]
"""Key difference, query, right-hand side, and whether it is an equality."""


def generalized_svm_conic(problem: Problem, selected: ArrayLike, norm: str = "fro") -> FloatArray:
    r"""Solve the generalised SVM of one problem with cvxpy, a constraint for each pair of tokens.

    Meant for comparison with :func:`generalized_svm`, which is faster, more accurate and certified.

    Parameters
    ----------
    problem : Problem
        Data without batch axes.
    selected : array_like of bool, shape (n, T)
        Selected tokens.
    norm : str
        "fro" (Frobenius) or "nuc" (nuclear).

    Returns
    -------
    ndarray, shape (e, q)
        The point that the solver returns.

    Raises
    ------
    InfeasibleError
        If the solver reports infeasibility.
    SolverError
        If it finds no point.
    DataError
        If ``problem`` is none, ``norm`` is unknown or ``selected`` is not fit.
    ShapeError
        If the problem has batch axes or ``selected`` does not fit.

    Notes
    -----
    *Transformers as Support Vector Machines* (2023), (Gen-SVM).
    """
    sets = checked_selection(selected, _single(problem))
    return _solved(list(_generalized(problem, sets)), norm, (problem.key_dim, problem.query_dim))


def finite_part_conic(
    problem: Problem, probabilities: ArrayLike, selected: ArrayLike, norm: str = "fro"
) -> FloatArray:
    r"""Find the finite part of one problem with cvxpy, an equation for each pair of tokens.

    Meant for comparison with :func:`finite_part`, which is faster, more accurate and certified.

    Parameters
    ----------
    problem : Problem
        Data without batch axes.
    probabilities : array_like, shape (n, T)
        Attention, positive at selected tokens.
    selected : array_like of bool, shape (n, T)
        Selected tokens.
    norm : str
        "fro" (Frobenius) or "nuc" (nuclear).

    Returns
    -------
    ndarray, shape (e, q)
        The point that the solver returns.

    Raises
    ------
    InfeasibleError
        If the solver reports infeasibility.
    SolverError
        If it finds no point.
    DataError
        If ``problem`` is none, ``norm`` is unknown or ``selected`` is not fit.
    ShapeError
        If the problem has batch axes, or ``probabilities`` or ``selected`` does not fit.
    """
    sets = checked_selection(selected, _single(problem))
    s = per_token(probabilities, "probabilities", problem)
    k, z = problem.keys, problem.z
    rows: list[Row] = [
        (k[i, t] - k[i, tau], z[i], float(np.log(s[i, t] / s[i, tau])), True)
        for i in range(problem.n)
        for t in np.flatnonzero(sets[i])
        for tau in np.flatnonzero(sets[i])
        if t < tau
    ]
    return _solved(rows, norm, (problem.key_dim, problem.query_dim))


def graph_svm_conic(keys: ArrayLike, queries: ArrayLike, edges: ArrayLike, norm: str = "fro") -> FloatArray:
    r"""Solve the SVM of token-priority graphs with cvxpy, a constraint for each pair of tokens.

    Meant for comparison with :func:`graph_svm`, which is faster, more accurate and certified. Components are
    found here by powers of the adjacency matrix.

    Parameters
    ----------
    keys : array_like, shape (V, e)
        Embeddings of the tokens.
    queries : array_like, shape (G, q)
        Embedding of the query of each graph.
    edges : array_like of bool, shape (G, V, V)
        Priorities.
    norm : str
        "fro" (Frobenius) or "nuc" (nuclear).

    Returns
    -------
    ndarray, shape (e, q)
        The point that the solver returns.

    Raises
    ------
    InfeasibleError
        If the solver reports infeasibility.
    SolverError
        If it finds no point.
    DataError
        If numbers are not finite or ``norm`` is unknown.
    ShapeError
        If shapes do not fit.

    Notes
    -----
    Li et al. (2024), Graph-SVM.
    """
    k, z = as_float(keys, "keys", ndim=2), as_float(queries, "queries", ndim=2)
    flags = as_float(edges, "edges", ndim=3, last=(len(k), len(k)))
    if len(flags) != len(z):
        raise ShapeError(f"There must be a graph for each of the {len(z)} queries, got {len(flags)}.")
    if not np.isin(flags, (0.0, 1.0)).all():
        raise DataError("edges must be boolean: True where the first token has priority over the second.")
    flags = flags.astype(bool)
    rows = [row for graph, query in zip(flags, z, strict=True) for row in _ordered(k, query, graph)]
    return _solved(rows, norm, (k.shape[1], z.shape[1]))


def _single(problem: Problem) -> Problem:
    if isinstance(problem, Problem) and problem.batch_shape:
        raise ShapeError(
            f"The conic programs take one problem, got a batch of shape {problem.batch_shape}: index it, "
            f"problem[0]."
        )
    return problem


def _generalized(problem: Problem, sets: BoolArray) -> Iterator[Row]:
    k, z = problem.keys, problem.z
    for i in range(problem.n):
        for t in np.flatnonzero(sets[i]):
            for tau in np.flatnonzero(problem.visible[i]):
                if not sets[i, tau]:
                    yield k[i, t] - k[i, tau], z[i], 1.0, False
                elif t < tau:
                    yield k[i, t] - k[i, tau], z[i], 0.0, True


def _ordered(k: FloatArray, query: FloatArray, graph: BoolArray) -> Iterator[Row]:
    reach = graph.copy()
    for _ in range(len(k)):
        reach = reach | ((reach.astype(int) @ graph.astype(int)) > 0)
    both = reach & reach.T
    for a in range(len(k)):
        for b in range(len(k)):
            if a != b and both[a, b]:
                yield k[a] - k[b], query, 0.0, True
            elif a != b and graph[a, b]:
                yield k[a] - k[b], query, 1.0, False


def _solved(rows: list[Row], norm: str, shape: tuple[int, int]) -> FloatArray:
    """Least norm subject to all rows."""
    checked_norm(norm)
    if not any(side for _, _, side, _ in rows):  # W = 0, which no solver meets to a relative accuracy
        return frozen(np.zeros(shape))
    import cvxpy as cp

    W = cp.Variable(shape)
    each = [d @ W @ z == side if tied else d @ W @ z >= side for d, z, side, tied in rows]
    program = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(W) if norm == "fro" else cp.normNuc(W)), each)
    failed: Exception | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "may be inaccurate": it is only compared with
        for ridge in (1e-8, 1e-7, 1e-6):  # equalities of pairs depend on each other: a larger one helps
            try:
                settings = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
                settings["static_regularization_constant"] = ridge
                program.solve(solver=cp.CLARABEL, warm_start=False, **settings)
                break
            except cp.error.SolverError as exc:
                failed = exc
        else:
            raise SolverError(f"Clarabel failed on {len(rows)} constraints: {failed}") from failed
    if program.status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
        raise InfeasibleError(
            f"Clarabel reports that the {len(rows)} constraints contradict each other ({program.status}). "
            f"generalized_svm, finite_part and graph_svm name those that do."
        )
    if W.value is None:
        raise SolverError(f"Clarabel found no solution with {len(rows)} constraints: {program.status}.")
    return frozen(np.asarray(W.value))
