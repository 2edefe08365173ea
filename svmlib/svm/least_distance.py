r"""The point of a polyhedron nearest to the origin, with multipliers or a proof that it is empty.

.. math:: \min_{w,b}\tfrac12\|w\|^2\quad\text{s.t.}\quad Fw+b\,e\ge c,\qquad c\ge0,

where :math:`e` is absent or a given column whose variable :math:`b` costs nothing. Lawson and Hanson
(1974, chapter 23) turn it into non-negative least squares; that finds which constraints are active, and
the equality system on those then gives the solution to round-off.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dtrtrs
from scipy.optimize import nnls

from svmlib.arrays import BoolArray, FloatArray

__all__ = ["FARKAS", "LeastDistance", "least_distance"]

FARKAS = 2e-14
"""A convex combination of unit rows shorter than this counts as zero: a proof of infeasibility.

Moving each row by one part in 5e13 makes it exactly zero, and the rows themselves are known to a few
units of round-off only. Rows with right-hand side 0 may be added with any nonnegative weights: the weights
of the others are to sum to 1, without which a vanishing combination proves nothing."""

_WEIGHT = 1e4  # of the row that keeps sum(lambda e) at 0; the equality system then makes it exact


@dataclass(frozen=True, slots=True, eq=False)
class LeastDistance:
    """What came out, and how far it is proved.

    Attributes
    ----------
    status : str
        "solved"; "infeasible", with a proof; "separable", when a point with margins above round-off was
        met, so that there is a solution, but none as accurate as promised; or "unsettled".
    w : ndarray, shape (D,)
        Nearest point (zeros unless solved).
    b : float
        The free variable (0 without one).
    multipliers : ndarray, shape (m,)
        Solved: multipliers with ``w = F.T @ multipliers`` up to round-off. Infeasible: nonnegative weights of
        a combination of the rows that vanishes; those of the required rows sum to 1.
    """

    status: str
    w: FloatArray
    b: float
    multipliers: FloatArray


def least_distance(
    F: FloatArray, c: FloatArray, free: FloatArray | None = None, required: BoolArray | None = None
) -> LeastDistance:
    r"""Solve the least-distance problem, or prove that it has no solution.

    Parameters
    ----------
    F : ndarray, shape (m, D)
        Rows of length about 1 (scale row and ``c`` together); round-off is judged on that scale.
    c : ndarray, shape (m,)
        Positive right-hand sides.
    free : ndarray, shape (m,), optional
        Column of a variable that does not count in the norm.
    required : ndarray of bool, shape (m,), optional
        Rows that keep their right-hand side, at least one; that of the others becomes 0, and ``c`` is the
        scale of their violations.

    Returns
    -------
    LeastDistance
        "solved" when the polished point meets every constraint to 1e-10 of its right-hand side and the
        multipliers close the duality gap to 1e-10;
        "infeasible" when a combination of the rows vanishes that proves it, and the point at hand separates
        nothing; "separable" when a point was met that does; "unsettled" when none of these can be shown in
        double precision.
    """
    m, D = F.shape
    need = np.ones(m, dtype=bool) if required is None else required
    rhs = np.where(need, c, 0.0)
    rows = F.T if free is None else np.vstack([F.T, _WEIGHT * free])
    target = np.zeros(rows.shape[0] + 1)
    target[-1] = 1.0
    nothing = np.zeros(D)
    try:
        u, residual = nnls(np.vstack([rows, rhs / rhs.max()]), target, maxiter=30 * m + 100)
    except RuntimeError:
        return LeastDistance("unsettled", nothing, 0.0, np.zeros(m))
    weights = u / u[need].sum()
    # The residual vector is (-w, 1)/(1 + |w|^2) in units of max c. Its last entry, on which all multipliers
    # rest, loses digits when |w| is large; the constraints it tells active do not, so solve with these.
    lam, w, b = _polish(F, rhs, free, u > 0)
    slack = F @ w if free is None else F @ w + b * free
    length = float(np.linalg.norm(w))
    met = (slack >= rhs - 1e-10 * c).all()
    if met and abs(rhs @ lam - length**2) <= 1e-10 * length**2:  # no duality gap either
        return LeastDistance("solved", w, b, lam)
    if (slack > np.where(need, 1.0, -1.0) * 1e-15 * (D + 2) * (length + abs(b))).all():
        return LeastDistance("separable", nothing, 0.0, weights)
    if residual < 1e-6:
        weights, size = _vanishing(F if free is None else np.c_[F, free], weights, need)
        if size <= FARKAS:
            return LeastDistance("infeasible", nothing, 0.0, weights)
    return LeastDistance("unsettled", nothing, 0.0, weights)


def _vanishing(F: FloatArray, weights: FloatArray, need: BoolArray) -> tuple[FloatArray, float]:
    """Combination of the rows that carry weight, as near to 0 as round-off allows, and its length."""
    carry = weights > 0
    equations = np.vstack([F[carry].T, need[carry].astype(float)])
    refined = np.zeros(len(F))
    missing = np.append(-F.T @ weights, 1.0 - weights[need].sum())
    refined[carry] = weights[carry] + np.linalg.lstsq(equations, missing, rcond=None)[0]
    if refined.min() < 0:
        refined = weights
    refined = refined / refined[need].sum()
    return refined, float(np.linalg.norm(F.T @ refined))


def _polish(
    F: FloatArray, c: FloatArray, free: FloatArray | None, active: BoolArray
) -> tuple[FloatArray, FloatArray, float]:
    """Solve the constraints that are active as equalities: multipliers, point, free variable."""
    lam, rows, rhs = np.zeros(len(F)), F[active], c[active]
    if free is None:
        lam[active], w = _shortest(rows, rhs)
        return np.maximum(lam, 0.0), w, 0.0
    e = free[active]  # the first equation gives b; put into the others, it leaves a problem without b
    part, w = _shortest(rows[1:] - np.outer(e[1:] / e[0], rows[0]), rhs[1:] - e[1:] / e[0] * rhs[0])
    lam[active] = np.append(-(e[1:] @ part) / e[0], part)
    return np.maximum(lam, 0.0), w, float((rhs[0] - rows[0] @ w) / e[0])


def _shortest(rows: FloatArray, rhs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Shortest w with rows w = rhs, and multipliers with w = rows' multipliers.

    A QR factorisation keeps the point as accurate as the rows allow. Recomputing it from the multipliers
    would cost digits: these are as large as |w|^2.
    """
    Q, R = np.linalg.qr(rows.T)
    diagonal = np.abs(np.diagonal(R))
    if R.shape[0] == R.shape[1] and diagonal.min(initial=np.inf) > 1e-13 * diagonal.max(initial=0.0):
        half = dtrtrs(R, rhs, trans=1)[0]
        half += dtrtrs(R, rhs - rows @ (Q @ half), trans=1)[0]
        return dtrtrs(R, half)[0], Q @ half
    w = np.linalg.lstsq(rows, rhs, rcond=None)[0]  # dependent rows: multipliers are not unique, w is
    return np.asarray(np.linalg.lstsq(rows.T, w, rcond=None)[0]), np.asarray(w)
