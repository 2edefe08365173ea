r"""One attention SVM in an entry-wise norm: power cones or a linear program, then Newton's method.

.. math:: \min_W\|W\|_p\ \text{s.t.}\ \langle A_s,W\rangle\ge c_s
   \qquad\text{dual: }\max_{\lambda\ge0}c^\top\lambda\ \text{s.t.}\ \Big\|\sum_s\lambda_sA_s\Big\|_q\le1,
   \qquad\frac1p+\frac1q=1 .
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from svmlib import norms
from svmlib.arrays import FloatArray

__all__ = ["lp_point"]

_TARGET = 1e-14  # relative gap after which Newton's method stops
_GOOD = 1e-10  # relative gap after which the cones are not tried again
_ATTEMPTS = (
    (1e-9, 0.99),
    (1e-11, 0.99),
    (1e-11, 0.9),
    (1e-9, 0.8),
)  # tolerance, share of the way to the edge
_EXCHANGES = 6  # of active constraints, until Newton's method is given up
_STEPS = 40  # Newton steps for one set of active constraints


def lp_point(rows: FloatArray, c: FloatArray, p: float) -> tuple[FloatArray, FloatArray]:
    r"""Solve one program.

    Where :math:`1<p<\infty`, an interior-point method for power cones finds which constraints are active.
    With these fixed, Newton's method on the optimality conditions goes on to round-off, in W for
    :math:`p\ge2` and in the multipliers for :math:`p<2`: in either case the function that it linearises has
    two continuous derivatives, also where entries of W are 0. For p = 1 and p = inf a vertex of a linear
    program is taken.

    Parameters
    ----------
    rows : ndarray, shape (m, D)
        Features, one a row, of length about 1.
    c : ndarray, shape (m,)
        Positive right-hand sides, scaled so that the solution has norm about 1.
    p : float
        Exponent, 1 to infinity.

    Returns
    -------
    w : ndarray, shape (D,)
        Point, scaled so that the smallest margin is exactly met.
    multipliers : ndarray, shape (m,)
        Nonnegative, scaled so that :math:`\|\sum\lambda A\|_q=1`. Zeros where no solver found a point.
    """
    used = rows.any(axis=0)  # an entry that no constraint sees is 0
    A = rows[:, used]
    with np.errstate(all="ignore"):
        best = _linear(A, c, p) if p in (1.0, np.inf) else _curved(A, c, p)
    w = np.zeros(rows.shape[1])
    if not np.isfinite(best[0]):  # the caller's certificate refuses zeros
        return w, np.zeros(len(c))
    w[used] = best[1]
    return w, best[2]


Point = tuple[float, FloatArray, FloatArray]


def _curved(A: FloatArray, c: FloatArray, p: float) -> Point:
    best: Point = (np.inf, np.zeros(A.shape[1]), np.zeros(len(c)))
    for tolerance, fraction in _ATTEMPTS:
        point = _scaled(A, c, p, *_cones(A, c, p, tolerance, fraction))
        if np.isfinite(point[0]):
            best = min(best, _refined(A, c, p, point), key=lambda found: found[0])
        if best[0] <= _GOOD:
            break
    return best


def _scaled(A: FloatArray, c: FloatArray, p: float, w: FloatArray, lam: FloatArray) -> Point:
    """Scale both points into their feasible sets; the relative gap between them then bounds the error."""
    if not (np.isfinite(w).all() and np.isfinite(lam).all()):
        return np.inf, w, lam
    norm, lam = norms.lp(p), np.maximum(lam, 0.0)
    reach, size = float((A @ w / c).min()), float(norm.dual((lam @ A)[None]))
    if not (reach > 0 and size > 0):
        return np.inf, w, lam
    w, lam = w / reach, lam / size
    value = float(norm(w[None]))
    gap = abs(value - float(c @ lam)) / value
    return (gap if np.isfinite(gap) else np.inf), w, lam


def _refined(A: FloatArray, c: FloatArray, p: float, start: Point) -> Point:
    """Follow Newton's method from a point of low accuracy, exchanging constraints taken wrongly."""
    value = float(norms.lp(p)(start[1][None]))
    c = c / value  # now the solution has norm 1, and the multipliers are those of |W|^p / p
    w, lam, best = start[1] / value, start[2], start
    slack = A @ w - c
    active = lam / lam.max() > slack / max(slack.max(), 1.0)
    newton = _newton_primal if p >= 2.0 else _newton_dual
    for _ in range(_EXCHANGES):
        w, found = newton(A[active], c[active], p, w, lam[active])
        lam = np.zeros(len(c))
        lam[active] = found
        gap, unit, multipliers = _scaled(A, c, p, w, lam)
        if gap < best[0]:
            best = gap, unit * value, multipliers
        below = A @ w - c < -1e-9
        wrong = np.where(active, lam < -1e-9 * np.abs(lam).max(), below)
        if best[0] <= _TARGET or not (np.isfinite(w).all() and wrong.any()):
            break
        active = active ^ wrong
        if not active.any():
            break
    return best


def _newton_primal(
    A: FloatArray, c: FloatArray, p: float, w: FloatArray, lam: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Solve sign(w)|w|^(p-1) = A'lam, A w = c: p >= 2."""
    (k, D), previous = A.shape, np.inf
    J = np.zeros((D + k, D + k))
    J[:D, D:], J[D:, :D] = -A.T, -A
    for _ in range(_STEPS):
        size = np.abs(w)
        residual = np.concatenate([np.sign(w) * size ** (p - 1.0) - A.T @ lam, c - A @ w])
        error = float(np.abs(residual).max())
        if not error < previous:
            break
        previous, good = error, (w, lam)
        J[np.arange(D), np.arange(D)] = (p - 1.0) * size ** (p - 2.0)
        step = _solve(J, -residual)
        w, lam = w + step[:D], lam + step[D:]
    return good if np.isfinite(previous) else (w, lam)


def _newton_dual(
    A: FloatArray, c: FloatArray, p: float, w: FloatArray, lam: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Solve A w = c where w = sign(g)|g|^(q-1), g = A'lam: p < 2, so q > 2."""
    q, previous = p / (p - 1.0), np.inf
    for _ in range(_STEPS):
        g = A.T @ lam
        size = np.abs(g)
        trial = np.sign(g) * size ** (q - 1.0)
        error = float(np.abs(A @ trial - c).max())
        if not error < previous:
            break
        previous, w, good = error, trial, lam
        lam = lam + _solve((A * ((q - 1.0) * size ** (q - 2.0))) @ A.T, c - A @ trial)
    return (w, good) if np.isfinite(previous) else (w, lam)


def _solve(J: FloatArray, rhs: FloatArray) -> FloatArray:
    try:
        step = np.linalg.solve(J, rhs)
        if np.abs(step).max(initial=0.0) < 1.0:
            return np.asarray(step)
    except np.linalg.LinAlgError:
        pass
    return np.asarray(np.linalg.lstsq(J, rhs, rcond=1e-12)[0])  # dependent constraints: the shortest step


def _cones(
    A: FloatArray, c: FloatArray, p: float, tolerance: float, fraction: float
) -> tuple[FloatArray, FloatArray]:
    """Minimise t over |w_j| <= r_j^(1/p) t^(1-1/p), sum r = t, A w >= c: variables w, r, t."""
    import clarabel

    (m, D), j = A.shape, np.arange(A.shape[1])
    total = sparse.csc_matrix(np.r_[np.zeros(D), np.ones(D), -1.0][None])
    margins = sparse.csc_matrix(np.hstack([-A, np.zeros((m, D + 1))]))
    triples = (np.r_[3 * j, 3 * j + 1, 3 * j + 2], np.r_[D + j, np.full(D, 2 * D), j])
    powers = sparse.csc_matrix((-np.ones(3 * D), triples), shape=(3 * D, 2 * D + 1))
    matrix = sparse.vstack([total, margins, powers]).tocsc()
    cones: list[Any] = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(m)]
    cones += [clarabel.PowerConeT(1.0 / p)] * D
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads, settings.max_step_fraction = False, 1, fraction
    settings.equilibrate_enable = False  # the features have one scale already; with it the method may stall
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    nothing = sparse.csc_matrix((2 * D + 1, 2 * D + 1))
    cost = np.r_[np.zeros(2 * D), 1.0]
    rhs = np.r_[0.0, -c, np.zeros(3 * D)]
    answer = clarabel.DefaultSolver(nothing, cost, matrix, rhs, cones, settings).solve()
    return np.asarray(answer.x)[:D], np.asarray(answer.z)[1 : 1 + m]


def _linear(A: FloatArray, c: FloatArray, p: float) -> Point:
    """Linear programs for p = 1 (positive and negative parts) and p = inf (a bound on all entries)."""
    m, D = A.shape
    if p == 1.0:
        cost, matrix, rhs = np.ones(2 * D), np.hstack([-A, A]), -c
        bounds: Any = (0.0, None)
    else:
        eye, one = np.eye(D), np.ones((D, 1))
        cost = np.r_[np.zeros(D), 1.0]
        matrix = np.block([[-A, np.zeros((m, 1))], [eye, -one], [-eye, -one]])
        rhs, bounds = np.r_[-c, np.zeros(2 * D)], (None, None)
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    answer = linprog(cost, A_ub=matrix, b_ub=rhs, bounds=bounds, method="highs-ds", options=tight)
    if answer.x is None:
        return np.inf, np.zeros(D), np.zeros(m)
    w = answer.x[:D] - answer.x[D:] if p == 1.0 else answer.x[:D]
    return _scaled(A, c, p, np.asarray(w), -np.asarray(answer.ineqlin.marginals)[:m])
