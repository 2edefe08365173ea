r"""Frobenius programs of one size, many at once: principal pivoting on the Gram matrix of the features.

.. math:: \lambda\ge0,\quad K\lambda-c\ge0,\quad\lambda^\top(K\lambda-c)=0,
   \qquad K_{st}=\langle A_s,A_t\rangle=(\delta_s^\top\delta_t)(q_s^\top q_t) .

These are the optimality conditions of :math:`\min\frac12\|W\|_F^2` with :math:`\langle A_s,W\rangle\ge c_s`
and :math:`W=\sum_s\lambda_sA_s`. An equality has a multiplier of any sign
and is always active. Guess which multipliers are positive, solve for them, and exchange all wrong guesses
at once (Portugal, Júdice and Vicente, 1994). A squared matrix costs digits, so a point counts
only when it meets the conditions computed from the features themselves. What is not settled so, because it
cycles, is singular or has no solution, is left to the solver for one problem.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from svmlib.arrays import BoolArray, FloatArray

from .features import unit
from .interior import solve_each

__all__ = ["pivoted"]

_ACCEPTED = 1e-12  # violation and gap of the points that are returned
_ROUNDS = 40
_WORKSPACE = 1 << 18  # numbers in the largest array


def pivoted(
    delta: FloatArray,
    z: FloatArray,
    constrained: BoolArray,
    required: BoolArray,
    equal: BoolArray | None = None,
    sides: FloatArray | None = None,
) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Solve the Frobenius programs that are easy.

    Parameters
    ----------
    delta : ndarray, shape (B, n, T, e)
        Key differences.
    z : ndarray, shape (B, n, q)
        Queries.
    constrained : ndarray of bool, shape (B, n, T)
        Tokens that carry a constraint.
    required : ndarray of bool, shape (B, n)
        Sequences whose margins are to be 1; 0 is enough elsewhere.
    equal : ndarray of bool, shape (B, n, T), optional
        Tokens whose margin is to have a given value; none of them is in ``constrained``.
    sides : ndarray, shape (B, n, T), optional
        These values; needed with ``equal``.

    Returns
    -------
    solved : ndarray of bool, shape (B,)
        Where the conditions are met up to 1e-12.
    W : ndarray, shape (B, e, q)
        Solutions; 0 elsewhere.
    multipliers : ndarray, shape (B, n, T)
        Multipliers; 0 elsewhere.
    """
    (B, n, T, e), q = delta.shape, z.shape[-1]
    solved, W, multipliers = np.zeros(B, dtype=bool), np.zeros((B, e, q)), np.zeros((B, n * T))
    rhs = np.broadcast_to(required[..., None].astype(float), constrained.shape)
    if equal is not None and sides is not None:
        constrained, rhs = constrained | equal, np.where(equal, sides, rhs)
    m = int(constrained.sum((1, 2)).max(initial=0))
    if m == 0:  # W = 0
        return ~solved, W, multipliers.reshape(B, n, T)
    if m > e * min(n, q) or constrained.sum(2).max(initial=0) > e:  # more features than independent ones
        return solved, W, multipliers.reshape(B, n, T)
    chunk = max(1, _WORKSPACE // max(1, m * max(m, e)))
    for first in range(0, B, chunk):
        part = slice(first, first + chunk)
        flags = constrained[part].reshape(-1, n * T)
        place = np.argsort(~flags, axis=1, kind="stable")[:, :m]  # constraints first, then what fills up
        live = np.take_along_axis(flags, place, 1)
        rows_of = np.take_along_axis(delta[part].reshape(-1, n * T, e), place[..., None], 1)
        d, length = unit(rows_of * live[..., None])  # zeros fill up
        queries, sizes = unit(z[part])
        sequence = place // T
        w = np.take_along_axis(queries, sequence[..., None], 1)
        side = np.where(live, np.take_along_axis(rhs[part].reshape(-1, n * T), place, 1), 0.0)
        free = np.zeros_like(live)
        if equal is not None:
            free = np.take_along_axis(equal[part].reshape(-1, n * T), place, 1)
        with np.errstate(all="ignore"):
            length = length * np.take_along_axis(sizes, sequence, 1)
            scale = 1.0 / length
        regular = (~live | ((scale > 1e-145) & (scale < 1e145))).all(1)  # not for zeros either
        scale[~live] = 1.0
        known = np.flatnonzero(regular)
        lam, point, good = _solved(d[known], w[known], scale[known], live[known], side[known], free[known])
        done = known[good]
        rows = np.zeros(flags.shape)
        np.put_along_axis(rows, place, _spread(lam, known, len(flags)), 1)
        solved[first + done] = True
        W[first + done], multipliers[first + done] = point[good], rows[done]
    return solved, W, multipliers.reshape(B, n, T)


def _spread(rows: FloatArray, at: NDArray[np.intp], count: int) -> FloatArray:
    out = np.zeros((count, rows.shape[1]))
    out[at] = rows
    return out


def _solved(
    d: FloatArray, w: FloatArray, scale: FloatArray, live: BoolArray, side: FloatArray, free: BoolArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Multipliers of the features as given (not of unit ones), points, and where both are good."""
    top = np.abs(side * scale).max(1, initial=0.0)
    top = np.where(top > 0, top, 1.0)[:, None]
    unit_scale = scale / top
    c = side * unit_scale
    K = (d @ np.swapaxes(d, 1, 2)) * (w @ np.swapaxes(w, 1, 2))
    lam, active = _exchanged(K, c, free)
    system = _restricted(K, active)
    least = np.where(free, -np.inf, 0.0)

    def combined(lam: FloatArray) -> FloatArray:
        return np.asarray(np.swapaxes(d * lam[..., None], 1, 2) @ w)

    with np.errstate(all="ignore"):
        W = combined(lam)
        for _ in range(2):  # the residual comes from the features, so it is accurate
            missing = np.where(active, c - ((d @ W) * w).sum(2), 0.0)
            lam = np.maximum(lam + solve_each(system, missing[..., None])[..., 0], least)
            W = combined(lam)
        below = (c - ((d @ W) * w).sum(2)) / unit_scale
        below = np.where(live, np.where(free, np.abs(below), below), 0.0).max(1, initial=0.0)
        size = np.square(W).sum((1, 2))
        gap = np.abs((c * lam).sum(1) - size)
        good = (below <= _ACCEPTED) & (gap <= _ACCEPTED * size)
        return lam * top * scale, top[..., None] * W, good


def _restricted(K: FloatArray, active: BoolArray) -> FloatArray:
    """Rows and columns of the active constraints; the identity for the others."""
    system = K * (active[:, :, None] & active[:, None, :])
    index = np.arange(K.shape[1])
    system[:, index, index] += ~active
    return system


def _exchanged(K: FloatArray, c: FloatArray, free: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Multipliers and active constraints; of no use where pivoting does not end."""
    lam, active = np.zeros(c.shape), (c > 0) | free
    going = np.arange(len(c))
    for _ in range(_ROUNDS):
        k, on, rhs, tied = K[going], active[going], c[going], free[going]
        x = solve_each(_restricted(k, on), np.where(on, rhs, 0.0)[..., None])[..., 0]
        lam[going] = x
        slack = (k @ x[..., None])[..., 0] - rhs
        top = np.abs(x).max(1, keepdims=True, initial=0.0)
        wrong = (np.where(on, x, slack) < -1e-13 * top) & ~tied
        active[going] = on ^ wrong
        going = going[wrong.any(1)]
        if not going.size:
            break
    return lam, active
