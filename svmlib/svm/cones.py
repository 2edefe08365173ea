"""The nuclear-norm program as Clarabel takes it: its dual, with a semidefinite cone."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from svmlib.arrays import BoolArray, FloatArray

__all__ = ["nuclear_cone"]


@lru_cache(maxsize=32)
def _pattern(m: int, a: int, e: int, free: int) -> tuple[Any, Any, FloatArray, list[Any]]:
    """Sparsity pattern of the dual for given sizes, the last ``free`` multipliers being of any sign."""
    import clarabel

    order, signed = a + e, m - free
    columns, rows = np.meshgrid(np.arange(a, order), np.arange(a), indexing="ij")
    block = signed + (columns * (columns + 1) // 2 + rows).ravel()  # entries of the upper right block
    indices = np.c_[np.arange(m), np.broadcast_to(block, (m, block.size))].ravel()
    sizes = np.where(np.arange(m) < signed, 1 + block.size, block.size)
    there = np.ones((m, 1 + block.size), dtype=bool)
    there[signed:, 0] = False
    indices = indices[there.ravel()]
    diagonal = np.arange(order)
    b = np.zeros(signed + order * (order + 1) // 2)
    b[signed + diagonal * (diagonal + 1) // 2 + diagonal] = 1.0
    indptr = np.append(0, np.cumsum(sizes))
    matrix = sparse.csc_matrix((np.full(indices.size, -1.0), indices, indptr), shape=(b.size, m))
    cones = [clarabel.NonnegativeConeT(signed)] if signed else []
    return matrix, block, b, [*cones, clarabel.PSDTriangleConeT(order)]


def nuclear_cone(
    delta: FloatArray, q: FloatArray, c: FloatArray, equal: BoolArray, tolerance: float
) -> tuple[FloatArray, FloatArray]:
    """Maximise c'lambda over lambda >= 0 with [[I, G], [G', I]] positive semidefinite.

    Parameters
    ----------
    delta, q : ndarray, shapes (m, a) and (m, e)
        Factors of the features.
    c : ndarray, shape (m,)
        Right-hand sides.
    equal : ndarray of bool, shape (m,)
        Equalities: their multipliers may have any sign.
    tolerance : float
        Of the solver.

    Returns
    -------
    M : ndarray, shape (a, e)
        Primal point.
    multipliers : ndarray, shape (m,)
        Dual point.
    """
    import clarabel

    order = np.argsort(equal, kind="stable")  # free multipliers last
    free = int(equal.sum())
    delta, q, c = delta[order], q[order], c[order]
    (m, a), e = delta.shape, q.shape[1]
    pattern, block, b, cones = _pattern(m, a, e, free)
    matrix = pattern.copy()
    # svec stores an off-diagonal entry times sqrt(2)
    entries = -np.sqrt(2.0) * (q[:, :, None] * delta[:, None, :]).reshape(m, -1)
    signed = (m - free) * (1 + entries.shape[1])
    matrix.data[:signed].reshape(m - free, 1 + entries.shape[1])[:, 1:] = entries[: m - free]
    matrix.data[signed:] = entries[m - free :].ravel()
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.presolve_enable = settings.chordal_decomposition_enable = False
    settings.iterative_refinement_enable = tolerance < 1e-8
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    zero = sparse.csc_matrix((m, m))
    answer = clarabel.DefaultSolver(zero, -c, matrix, b, cones, settings).solve()
    # the upper right block of the dual matrix Z carries the primal solution: M = -2 Z
    M = -np.sqrt(2.0) * np.asarray(answer.z)[block].reshape(e, a).T
    lam = np.empty(m)
    lam[order] = np.asarray(answer.x)
    return M, lam
