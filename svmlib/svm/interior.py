r"""Interior-point method for the nuclear-norm program, for many instances of one size at once.

Everything the method needs of the features :math:`A_s=\delta_sq_s^\top` are inner products with small
matrices, because they have rank one: no matrix larger than the number of constraints is ever formed.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dposv

from svmlib.arrays import BoolArray, FloatArray

__all__ = ["interior_points", "solve_each"]

_MAX_STEPS = 80
_SHRINK = 0.1  # factor of the barrier parameter in one step
_BOUNDARY = 0.9  # share of the way to the boundary that a step may go
_SMALL = 40  # size up to which one call for all systems is faster than half the arithmetic for each
_NEAR, _CENTRED = 1.0, 0.02  # Newton decrements at which the parameter shrinks, and at which the end is exact


def _t(a: FloatArray) -> FloatArray:
    return np.swapaxes(a, -1, -2)


def interior_points(
    delta: FloatArray, q: FloatArray, c: FloatArray, gap: float, equal: BoolArray | None = None
) -> tuple[FloatArray, FloatArray]:
    r"""Follow the central path of the nuclear-norm program and its dual to a given gap.

    With :math:`G=\sum_s\lambda_s\delta_sq_s^\top`, the point of the path at the parameter :math:`\mu`
    maximises

    .. math:: c^\top\lambda+\mu\log\det(I-G^\top G)+\mu\sum_s\log\lambda_s,

    and its optimality condition says that :math:`M=2\mu\,G(I-G^\top G)^{-1}` has the margins
    :math:`\delta_s^\top Mq_s=c_s+\mu/\lambda_s`: it is feasible. Newton's method keeps
    :math:`\sigma_s\approx\mu/\lambda_s` as variables of their own, which lets the multipliers of inactive
    constraints go to 0 as fast as :math:`\mu` does. The multiplier of an equality is free: it has no barrier,
    and its margin is :math:`c_s`.

    Parameters
    ----------
    delta, q : ndarray, shapes (B, m, a) and (B, m, e)
        Factors of the features, rows of length about 1.
    c : ndarray, shape (B, m)
        Right-hand sides, scaled so that the solutions have norm about 1; those of margins not negative, some
        of all not 0.
    gap : float
        Duality gap at which to stop.
    equal : ndarray of bool, shape (B, m), optional
        Which constraints are equalities: linearly independent ones, in each program.

    Returns
    -------
    M : ndarray, shape (B, a, e)
        Points near the end of the path.
    multipliers : ndarray, shape (B, m)
        Positive at margins, with operator norm of G below 1. NaN where the path was not finished.
    """
    (B, m, a), e = delta.shape, q.shape[2]
    tied = np.zeros((B, m), dtype=bool) if equal is None else equal
    barrier = 2 * min(a, e) + (~tied).sum(1, keepdims=True)  # the gap at mu is about barrier * mu
    lam = np.where(tied, 0.0, 1.0 / m)
    size = np.linalg.norm(_t(delta * lam[..., None]) @ q, 2, axis=(1, 2))
    lam *= (0.5 / np.where(size > 0, size, 1.0))[:, None]
    mu = 1.0 / barrier
    sigma = mu / np.where(tied, 1.0, lam)
    M, multipliers = np.full((B, a, e), np.nan), np.full((B, m), np.nan)
    alive, diagonal = np.arange(B), np.arange(m)
    for _ in range(_MAX_STEPS):
        d, w, rhs, x, s, u = delta[alive], q[alive], c[alive], lam[alive], sigma[alive], mu[alive]
        free = tied[alive]
        unit = np.where(free, 1.0, x)
        G = _t(d * x[..., None]) @ w
        inverse = solve_each(np.eye(e) - _t(G) @ G, np.broadcast_to(np.eye(e), (len(x), e, e)))
        R = G @ inverse
        P = np.eye(a) + R @ _t(G)  # (I - G G')^-1
        margin = 2.0 * ((d @ R) * w).sum(2)
        # Newton's matrix in relative changes of lambda: well scaled however small some of them are
        relative = d * (np.sqrt(2.0 * u) * unit)[..., None]
        cross = relative @ R @ _t(w)
        H = relative @ P @ _t(relative)
        H *= w @ inverse @ _t(w)
        H += cross * _t(cross)
        H[:, diagonal, diagonal] += np.where(free, 0.0, x * s)
        target = np.stack([u, _SHRINK * u], -1)  # centre here, or go on
        right = unit[..., None] * (rhs[..., None] - target * margin[..., None])
        right += np.where(free[..., None], 0.0, target)
        both = solve_each(H, right)
        lost = ~np.isfinite(both).all(axis=(1, 2))
        both[lost] = 0.0
        decrement = np.sqrt(np.maximum((both[..., 0] * right[..., 0]).sum(1), 0.0) / u[:, 0])
        last = barrier[alive, 0] * u[:, 0] <= gap
        done = last & (decrement < _CENTRED) & ~lost
        D = _t(d * (unit * both[..., 0])[..., None]) @ w
        # to first order in the Newton step the margins are c + sigma: feasible although not quite centred
        R = R + P @ D @ inverse + R @ _t(D) @ R
        M[alive[done]], multipliers[alive[done]] = 2.0 * u[done, :, None] * R[done], x[done]
        alive_next = ~(done | lost)
        if not alive_next.any():
            break
        onward = ((decrement < _NEAR) & ~last)[:, None]
        aim = np.where(onward, _SHRINK * u, u)
        dx = np.where(onward, both[..., 1], both[..., 0])
        ds = np.where(free, 0.0, aim / unit - s - s * dx)
        fall = (np.where(free, 0.0, dx), ds / s)
        length = _step_length(G, _t(d * (unit * dx)[..., None]) @ w, *fall)[:, None]
        keep = alive[alive_next]
        lam[keep] = (x + length * unit * dx)[alive_next]
        sigma[keep] = (s + length * ds)[alive_next]
        mu[keep] = (u + length * (aim - u))[alive_next]
        alive = keep
    return M, multipliers


def solve_each(A: FloatArray, right: FloatArray) -> FloatArray:
    """Solve each positive definite system of a batch, with a small ridge where that is singular.

    Repeated constraints make Newton's matrix singular up to round-off, once their barrier terms have shrunk
    below that. Which of them carries the multiplier does not matter, so a ridge of that size does no harm.

    Parameters
    ----------
    A : ndarray, shape (B, m, m)
        Symmetric matrices.
    right : ndarray, shape (B, m, k)
        Right-hand sides.

    Returns
    -------
    ndarray, shape (B, m, k)
        Solutions, NaN where no ridge helps.
    """
    if A.shape[1] > _SMALL:
        return np.stack([_one_solved(*pair) for pair in zip(A, right, strict=True)])
    try:
        return np.asarray(np.linalg.solve(A, right))
    except np.linalg.LinAlgError:
        return np.stack([_one_solved(*pair) for pair in zip(A, right, strict=True)])


def _one_solved(A: FloatArray, right: FloatArray) -> FloatArray:
    if len(A) > _SMALL:
        _, x, failed = dposv(A.T, right)  # the transpose has the order that it wants
        if not failed:
            return np.asarray(x)
    for ridge in (0.0, 1e-15, 1e-13):
        try:
            return np.asarray(np.linalg.solve(A + ridge * np.trace(A) * np.eye(len(A)), right))
        except np.linalg.LinAlgError:
            continue
    return np.full(right.shape, np.nan)


def _step_length(G: FloatArray, D: FloatArray, *relative: FloatArray) -> FloatArray:
    """Longest step, at most 1, that keeps positive numbers positive and the operator norm of G below 1."""
    fall = np.max([-change.min(1) for change in relative], axis=0)
    length = np.minimum(1.0, _BOUNDARY / np.maximum(fall, 1e-300))
    for _ in range(60):
        N = G + (length / _BOUNDARY)[:, None, None] * D
        outside = ~(np.linalg.eigvalsh(_t(N) @ N)[:, -1] < 1.0)
        if not outside.any():
            break
        length = np.where(outside, 0.75 * length, length)
    return np.asarray(length)
