r"""The nuclear-norm program in the coordinates of its features: interior point, then Newton's method.

.. math:: \min_M\|M\|_\star\ \text{s.t.}\ \langle A_s,M\rangle\ge c_s
   \qquad\text{dual: }\max_{\lambda\ge0}c^\top\lambda\ \text{s.t.}\ \Big\|\sum_s\lambda_sA_s\Big\|_{op}\le1 .

The features have rank one, :math:`A_s=\delta_sq_s^\top`. Some constraints may be equalities; their
multipliers are free.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmlib.arrays import BoolArray, FloatArray

from .cones import nuclear_cone
from .interior import interior_points

__all__ = ["Program", "nuclear_programs"]

_TARGET = 1e-10  # accuracy after which no further attempt is made
_PATH_GAP = 1e-6  # where the central path ends: rank and active constraints show there in practice
_CUTS = (1e-9, 1e-11, 1e-13)  # of small singular values, where the solution is not unique up to round-off
_FIRST = (0.0,)  # no cut, unless the system shows that it is singular
_EXCHANGES = 6  # of active constraints, until Newton's method is given up
_WORKSPACE = 1 << 18  # numbers in the largest array of the interior-point method


class Ties(NamedTuple):
    """Equalities of a program.

    Attributes
    ----------
    equal : ndarray of bool, shape (m,)
        Which constraints are equalities; they are linearly independent.
    basis : ndarray, shape (r, a * e)
        Orthonormal basis of the span of their features, as rows.
    point : ndarray, shape (a, e)
        Matrix of least Frobenius norm that meets them.
    """

    equal: BoolArray
    basis: FloatArray
    point: FloatArray

    def met(self, M: FloatArray) -> FloatArray:
        """Project a matrix on those that meet the equalities.

        Parameters
        ----------
        M : ndarray, shape (a, e)
            The matrix.

        Returns
        -------
        ndarray, shape (a, e)
            The nearest one.
        """
        for _ in range(2):  # the second time removes what round-off left
            M = M - (self.basis.T @ (self.basis @ (M - self.point).ravel())).reshape(M.shape)
        return M


class Program(NamedTuple):
    """One nuclear-norm program.

    Attributes
    ----------
    delta, q : ndarray, shapes (m, a) and (m, e)
        Factors of the features, rows of length about 1.
    c : ndarray, shape (m,)
        Right-hand sides, scaled so that the solution has norm about 1; those of margins not negative, some
        of all not 0.
    scale : ndarray, shape (m,)
        Positive scales of violations: ``c`` where that is positive.
    ties : Ties, optional
        Equalities.
    """

    delta: FloatArray
    q: FloatArray
    c: FloatArray
    scale: FloatArray
    ties: Ties | None = None


def nuclear_programs(programs: list[Program]) -> list[tuple[FloatArray, FloatArray]]:
    r"""Solve nuclear-norm programs with rank-one features.

    An interior-point method takes all programs of one size along the central path until the rank and the
    active constraints show. With these fixed, Newton's method on the optimality conditions of balanced
    factors :math:`M=PQ^\top`,

    .. math:: GQ=P,\quad G^\top P=Q,\quad\langle A_s,PQ^\top\rangle=c_s,\quad G=\sum_s\lambda_sA_s,

    goes on to round-off. A program that is not settled so is followed further along its path, and then given
    to Clarabel. Of all points met, the one
    with the best certificate is returned.

    Parameters
    ----------
    programs : list of Program
        Any number of them, of any sizes.

    Returns
    -------
    list of (M, multipliers)
        M, shape (a, e), feasible up to round-off: scaled so that the smallest margin is exactly met.
        Multipliers, shape (m,), nonnegative, scaled so that the operator norm of G is 1.
    """
    out: list[tuple[FloatArray, FloatArray]] = [(np.zeros(0), np.zeros(0))] * len(programs)
    sizes: dict[tuple[int, int, int], list[int]] = {}
    for k, program in enumerate(programs):
        sizes.setdefault((*program.delta.shape, program.q.shape[1]), []).append(k)
    for (m, _, _), members in sizes.items():
        chunk = max(1, _WORKSPACE // m**2)
        for first in range(0, len(members), chunk):
            some = members[first : first + chunk]
            path = _path([programs[k] for k in some], _PATH_GAP)
            for k, M, lam in zip(some, *path, strict=True):
                out[k] = _finished(programs[k], M, lam)
    return out


def _finished(program: Program, M: FloatArray, lam: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Refine a point of the central path; where that does not certify it, try other points.

    Where rank or active constraints do not show, because a multiplier and its slack vanish together, a point
    further along the path is accurate as it is. Where the path is not finished there, Clarabel is asked.
    """
    best = _refined(program, M, lam)
    for solve, accuracy in ((_path_end, 5e-11), (_path_end, 1e-8), (_clarabel, 1e-6), (_clarabel, 1e-12)):
        if best[0] <= _TARGET:
            break
        best = min(best, _refined(program, *solve(program, accuracy), _FIRST + _CUTS), key=lambda p: p[0])
    if not np.isfinite(best[0]):  # the caller's certificate refuses zeros
        return np.zeros(M.shape), np.zeros(len(program.c))
    return best[1], best[2]


def _refined(
    program: Program, M: FloatArray, lam: FloatArray, cuts: tuple[float, ...] = _FIRST
) -> tuple[float, FloatArray, FloatArray]:
    if not (np.isfinite(M).all() and np.isfinite(lam).all()):
        return np.inf, M, lam
    start = _scaled(program, M, lam)
    best = start
    for cut in cuts:
        if best[0] <= _TARGET / 100:
            break
        try:
            points = _newton(program, start[1], start[2], cut)
            best = min([best, *(_scaled(program, *point) for point in points)], key=lambda p: p[0])
        except np.linalg.LinAlgError:  # no convergence: the points at hand remain
            continue
    return best


def _scaled(program: Program, M: FloatArray, lam: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Scale both points into their feasible sets; the relative gap between them then bounds the error.

    Scaling does not help margins that are to be at least 0: their violation counts like the gap.
    """
    delta, q, c, scale, ties = program
    equal = _equal(program)
    asked = (c > 0) & ~equal
    lam = np.where(equal, lam, np.maximum(lam, 0.0))
    with np.errstate(all="ignore"):
        lam = lam / np.linalg.norm((delta * lam[:, None]).T @ q, 2)
        M = M if ties is None else ties.met(M)
        margins = ((delta @ M) * q).sum(1) / scale
        reach = 1.0 if equal.all() else margins[asked].min()
        M = M / reach
        value = np.linalg.svd(M, compute_uv=False).sum() if np.isfinite(M).all() else np.inf
        below = -(margins[~(asked | equal)] / reach).min(initial=0.0)
        gap = max(abs(value - c @ lam) / value, below)
    return (float(gap) if reach > 0 and np.isfinite(gap) else np.inf), M, lam


def _equal(program: Program) -> BoolArray:
    return np.zeros(len(program.c), dtype=bool) if program.ties is None else program.ties.equal


def _clarabel(program: Program, tolerance: float) -> tuple[FloatArray, FloatArray]:
    return nuclear_cone(program.delta, program.q, program.c, _equal(program), tolerance)


def _path_end(program: Program, gap: float) -> tuple[FloatArray, FloatArray]:
    """Follow the central path of one program further."""
    M, lam = _path([program], gap)
    return M[0], lam[0]


def _path(programs: list[Program], gap: float) -> tuple[FloatArray, FloatArray]:
    """Follow the central paths of programs of one size."""
    delta, q, c, _, ties = zip(*programs, strict=True)
    equal = np.stack([_equal(program) for program in programs]) if any(ties) else None
    return interior_points(np.stack(delta), np.stack(q), np.stack(c), gap, equal)


def _newton(
    program: Program, M: FloatArray, lam: FloatArray, cut: float
) -> list[tuple[FloatArray, FloatArray]]:
    """Refine a solution at fixed rank and fixed active constraints; empty when there is nothing to do.

    Where the result shows that some constraints were taken for active or inactive wrongly, these are
    exchanged.
    """
    if not (np.isfinite(M).all() and np.isfinite(lam).all()):
        return []
    delta, q, c, equal = *program[:3], _equal(program)
    G = (delta * lam[:, None]).T @ q
    u, s, vt = np.linalg.svd(M, full_matrices=False)
    # Along the central path the products lambda (margin - c) and sigma (1 - singular value of G) are all
    # equal, so in each pair the larger one is the one that does not vanish.
    slack = ((delta @ M) * q).sum(1) - c
    top = lam[~equal].max(initial=0.0)
    active = equal | (lam > slack / max(slack[~equal].max(initial=0.0), s[0]) * top)
    dual_gap = 1.0 - ((u.T @ G) * vt).sum(1)
    rank = max(1, int((s / s[0] > np.maximum(dual_gap, 0.0)).sum()))
    root = np.sqrt(s[:rank])
    P, Q = u[:, :rank] * root, vt[:rank].T * root
    points: list[tuple[FloatArray, FloatArray]] = []
    for _ in range(_EXCHANGES):
        P, Q, lam, size = _newton_fixed(program, P, Q, np.where(active, lam, 0.0), active, cut)
        points.append((P @ Q.T, lam))
        below = ((delta @ P) * (q @ Q)).sum(1) - c < -1e-9 * s[0]
        wrong = np.where(active, lam < -1e-9 * lam[~equal].max(initial=0.0), below) & ~equal
        if not (size < 1e-3 and wrong.any()):
            break
        active = active ^ wrong
    return points


def _newton_fixed(
    program: Program, P: FloatArray, Q: FloatArray, lam: FloatArray, active: BoolArray, cut: float
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Solve the optimality conditions with given active constraints; the last residual tells how well."""
    d_act, q_act, c_act = program.delta[active], program.q[active], program.c[active]
    multipliers, full = lam[active], lam
    previous = size = np.inf
    for _ in range(8):
        residual, J = _system(d_act, q_act, c_act, P, Q, multipliers)
        size = float(np.abs(residual).max())
        if not np.isfinite(size) or size > 0.5 * previous:
            break
        previous = size
        try:
            if cut > 0:
                raise np.linalg.LinAlgError
            step = np.linalg.solve(J, -residual)
            if not np.abs(step).max() < 1.0:
                raise np.linalg.LinAlgError
        except np.linalg.LinAlgError:  # solution not unique: the shortest step will do
            step = np.linalg.lstsq(J, -residual, rcond=cut or _CUTS[0])[0]
        P = P + step[: P.size].reshape(P.shape)
        Q = Q + step[P.size : P.size + Q.size].reshape(Q.shape)
        multipliers = multipliers + step[P.size + Q.size :]
        full = np.zeros(len(lam))
        full[active] = multipliers
        if size < 1e-9:  # the step just made has squared it
            break
    return P, Q, full, previous


def _system(
    delta: FloatArray, q: FloatArray, c: FloatArray, P: FloatArray, Q: FloatArray, lam: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Residual and Jacobian of the optimality conditions; all constraints passed are active."""
    (a, r), e, k = P.shape, len(Q), len(lam)
    G = (delta * lam[:, None]).T @ q
    by_q, by_p = q @ Q, delta @ P
    residual = np.concatenate([(P - G @ Q).ravel(), (Q - G.T @ P).ravel(), c - (by_q * by_p).sum(1)])
    J = np.zeros((residual.size, residual.size))
    top, mid = a * r, (a + e) * r
    # M = PQ' is unchanged by rotating both factors; adding the projector on these directions makes the
    # system regular and its solution the shortest one
    pairs = [(i, j) for i in range(r) for j in range(i)]
    turn = np.zeros((mid, len(pairs)))
    for column, (i, j) in enumerate(pairs):
        for factor, start in ((P, 0), (Q, top)):
            block = turn[start : start + factor.size, column].reshape(factor.shape)
            block[:, i], block[:, j] = factor[:, j], -factor[:, i]
    J[:mid, :mid] = turn @ turn.T
    index = np.arange(mid)
    J[index, index] += 1.0
    coupling = np.einsum("ae,rt->aret", G, np.eye(r)).reshape(top, e * r)
    J[:top, top:mid] -= coupling
    J[top:mid, :top] -= coupling.T
    J[mid:, :top] = -(delta[:, :, None] * by_q[:, None, :]).reshape(k, top)
    J[mid:, top:mid] = -(q[:, :, None] * by_p[:, None, :]).reshape(k, e * r)
    J[:mid, mid:] = J[mid:, :mid].T
    return residual, J
