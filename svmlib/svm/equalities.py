r"""The least-distance problem with equalities.

.. math:: \min_w\tfrac12\|w\|^2\quad\text{s.t.}\quad Fw\ge c,\quad Ew=h .

With h = 0 the point is orthogonal to the rows of E, so that only what remains of the rows of F after
projection counts: a least-distance problem without equalities. Without margins it is the shortest solution
of a linear system.
"""

from __future__ import annotations

import numpy as np

from svmlib.arrays import BoolArray, FloatArray

from .least_distance import FARKAS, LeastDistance, least_distance

__all__ = ["CONTRADICTION", "independent", "row_space", "tied_distance"]

CONTRADICTION = 1e-9
"""Log-ratios that miss each other by more than this contradict each other; below, it is round-off."""

_CUTS = (1e-13, 1e-11, 1e-10)  # of singular values of E: what is below counts as a dependent row
_SHORT = 1e-6  # remainders shorter than this are too inaccurate to prove that margins are positive


def tied_distance(rows: FloatArray, scale: FloatArray, side: FloatArray, equal: BoolArray) -> LeastDistance:
    r"""Solve the problem, or prove that it has no solution.

    Parameters
    ----------
    rows : ndarray, shape (m, D)
        Rows of E and F, of length about 1.
    scale : ndarray, shape (m,)
        Positive scales of violations.
    side : ndarray, shape (m,)
        Right-hand sides divided by ``scale``: margins 1 or 0. In equalities 0, unless there are no margins.
    equal : ndarray of bool, shape (m,)
        Which rows are equalities, at least one.

    Returns
    -------
    LeastDistance
        As :func:`.least_distance` returns it. The multipliers of equalities have any sign, and so have their
        weights in a combination that proves infeasibility: it vanishes while the same combination of the
        right-hand sides does not.
    """
    if equal.all():
        return _shortest(rows, scale, side)
    best = LeastDistance("unsettled", np.zeros(rows.shape[1]), 0.0, np.zeros(len(rows)))
    for cut in _CUTS:
        solved, worst = _projected(rows, scale, side, equal, cut)
        if solved.status in ("infeasible", "separable") or worst <= 1e-10:
            return solved
        best = solved if best.status == "unsettled" else best
    return best


def row_space(rows: FloatArray, cut: float = _CUTS[0]) -> FloatArray:
    """Find an orthonormal basis of the span of unit rows.

    Parameters
    ----------
    rows : ndarray, shape (r, D)
        Vectors.
    cut : float
        Singular values up to this share of the largest count as 0.

    Returns
    -------
    ndarray, shape (rank, D)
        The basis, as rows.
    """
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(vt[s > cut * s.max(initial=0.0)])


def independent(rows: FloatArray, count: int) -> FloatArray:
    """Choose rows that span what all of them span.

    Parameters
    ----------
    rows : ndarray, shape (r, D)
        Vectors.
    count : int
        Dimension of their span.

    Returns
    -------
    ndarray of int, shape (count,)
        Positions of the chosen rows, ascending.
    """
    from scipy.linalg import qr

    order = qr(rows.T, mode="r", pivoting=True)[1]
    return np.sort(order[:count])


def _projected(
    rows: FloatArray, scale: FloatArray, side: FloatArray, equal: BoolArray, cut: float
) -> tuple[LeastDistance, float]:
    """Solve with the margins' rows projected off those of the equalities; also how good the point is."""
    E, F, c, needed = rows[equal], rows[~equal], scale[~equal], side[~equal] > 0
    basis = row_space(E, cut)

    def off(a: FloatArray) -> FloatArray:
        for _ in range(2):  # the second time removes what round-off left
            a = a - (a @ basis.T) @ basis
        return a

    def joined(lam: FloatArray, w: FloatArray) -> FloatArray:
        both = np.zeros(len(rows))
        both[~equal] = lam
        both[equal] = np.linalg.lstsq(E.T, w - F.T @ lam, rcond=cut)[0]
        return both

    nothing = np.zeros(rows.shape[1])
    rest = off(F)
    size = np.linalg.norm(rest, axis=1)
    for s in np.flatnonzero(needed & (size <= 10 * FARKAS)):  # an equality and a margin on one feature
        weights = joined(np.eye(len(F))[s], nothing)
        if _vanishes(rows, weights):
            return LeastDistance("infeasible", nothing, 0.0, weights), 0.0
    used = size > 10 * FARKAS
    if not used[needed].all():
        return LeastDistance("unsettled", nothing, 0.0, np.zeros(len(rows))), np.inf
    length = np.where(used, size, 1.0)
    solved = least_distance(rest[used] / length[used, None], c[used] / length[used], required=needed[used])
    lam = np.zeros(len(F))
    lam[used] = solved.multipliers / length[used]
    if solved.status == "infeasible":
        weights = joined(lam / lam[needed].sum(), nothing)
        status = "infeasible" if _vanishes(rows, weights) else "unsettled"
        return LeastDistance(status, nothing, 0.0, weights), np.inf
    if solved.status != "solved":
        short = solved.status == "separable" and size.min() < _SHORT
        status = "unsettled" if short else solved.status
        return LeastDistance(status, nothing, 0.0, np.zeros(len(rows))), np.inf
    w = off(solved.w)
    both = joined(lam, w)
    length_w = float(np.linalg.norm(w))
    missing = (side * scale - rows @ w) / scale
    worst = max(
        float(np.where(equal, np.abs(missing), missing).max()),
        float(np.linalg.norm(rows.T @ both - w)) / length_w,
        abs(float((side * scale) @ both) - length_w**2) / length_w**2,
    )
    return LeastDistance("solved", w, 0.0, both), worst


def _vanishes(rows: FloatArray, weights: FloatArray) -> bool:
    """Whether a combination of unit rows is 0 up to the round-off that they carry."""
    return bool(np.linalg.norm(rows.T @ weights) <= FARKAS * np.abs(weights).sum())


def _shortest(rows: FloatArray, scale: FloatArray, side: FloatArray) -> LeastDistance:
    """Shortest solution of the equalities alone."""
    h = side * scale
    # Unit rows make the most of the digits. Rows as they were given let the shortest ones, of nearly equal
    # tokens, give way to the others where round-off makes them contradict each other.
    for weight in (np.ones(len(h)), scale.min() / scale):
        u, s, vt = np.linalg.svd(weight[:, None] * rows, full_matrices=False)
        kept = s > _CUTS[0] * s.max(initial=0.0)
        u, s, vt = u[:, kept], s[kept], vt[kept]
        w = vt.T @ (u.T @ (weight * h) / s)
        missing = h - rows @ w
        if np.abs(missing / scale).max() <= CONTRADICTION:
            return LeastDistance("solved", w, 0.0, weight * (u @ (vt @ w / s)))
        proof = weight**2 * missing  # orthogonal to the rows, but not to h
        proof = proof / np.abs(proof).max()
        if _vanishes(rows, proof):
            return LeastDistance("infeasible", np.zeros(rows.shape[1]), 0.0, proof)
    return LeastDistance("unsettled", np.zeros(rows.shape[1]), 0.0, proof)
