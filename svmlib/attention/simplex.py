r"""The best attention that a head could be given: maxima over the simplex, with proofs of optimality.

.. math:: \max_{s\in\Delta}\ y\,\psi(X^\top s)

A convex head takes a token (the maximum of a convex function over a polytope is at a vertex); a concave one
may take several, and for orthonormal tokens and the quadratic head these follow from the projection onto
the simplex, sparsemax.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from svmlib.arrays import BoolArray, FloatArray, as_float, frozen
from svmlib.data import Problem, check_problem
from svmlib.errors import DataError, ShapeError, SolverError

from .heads import Linear, Mlp, Quadratic

__all__ = ["BestAttention", "best_attention", "sparsemax", "sparsemax_thresholds"]

GAP = 1e-10  # largest gap, relative to the sizes in the problem, with which a solution is returned


def sparsemax(a: ArrayLike, mask: ArrayLike | None = None) -> FloatArray:
    r"""Project onto the simplex: :math:`\argmin_{s\in\Delta}\|s-a\|`, by sorting.

    The projection is :math:`s_t=\max(a_t-\tau,0)` with the one number :math:`\tau` that makes the sum 1
    (Martins and Astudillo 2016, *From Softmax to Sparsemax*).

    Parameters
    ----------
    a : array_like, shape (..., T)
        Points; minus infinity stands for a masked entry.
    mask : array_like of bool, shape (..., T), optional
        True where there is an entry.

    Returns
    -------
    ndarray, shape (..., T)
        Probabilities, 0 at masked entries and wherever else the projection lies on the boundary.

    Raises
    ------
    ShapeError
        If there is no entry, or the mask does not fit.
    DataError
        If an entry is NaN or plus infinity, or all entries of a point are masked.

    Examples
    --------
    >>> sparsemax([0.5, 0.3, -1.0])
    array([0.6, 0.4, 0. ])
    """
    points = as_float(a, "a", min_ndim=1, finite=False)
    if not points.shape[-1]:
        raise ShapeError(f"a must have at least one entry on its last axis, got shape {points.shape}.")
    if np.isnan(points).any() or (points == np.inf).any():
        raise DataError("a must hold numbers, or minus infinity for masked entries, but NaN or inf is there.")
    if mask is not None:
        seen = as_float(mask, "mask", last=points.shape[-1:], meaning="T of a")
        if not np.isin(seen, (0.0, 1.0)).all():
            raise DataError("mask must be boolean: True where there is an entry.")
        try:
            points = np.where(seen > 0, points, -np.inf)
        except ValueError:
            raise ShapeError(f"mask has shape {seen.shape}, which does not fit a, {points.shape}.") from None
    top = points.max(-1, keepdims=True)
    if not np.isfinite(top).all():
        raise DataError("All entries of a point are masked; the simplex over no token is empty.")
    with np.errstate(over="ignore"):
        # tau is at least the largest entry minus 1: whatever is lower may as well be that
        b = np.maximum(points - top, -1.0)
    ordered = -np.sort(-b, axis=-1)
    total = np.cumsum(ordered, axis=-1)
    count = np.arange(1, b.shape[-1] + 1)
    kept = (1.0 + count * ordered > total).sum(-1, keepdims=True)
    tau = (np.take_along_axis(total, kept - 1, -1) - 1.0) / kept
    return np.asarray(np.maximum(b - tau, 0.0))


def sparsemax_thresholds(scores: ArrayLike) -> FloatArray:
    r"""Compute the curvatures from which the best, second best, ... of orthonormal tokens is selected.

    With sorted scores :math:`\gamma_{(1)}\ge\gamma_{(2)}\ge\dots` the k-th token has a positive share in
    :math:`\operatorname{sparsemax}(\gamma/2\lambda)` exactly if

    .. math:: \lambda>\lambda^{(k)}=\tfrac12\sum_{j<k}\big(\gamma_{(j)}-\gamma_{(k)}\big) .

    Parameters
    ----------
    scores : array_like, shape (..., T)
        Scores; minus infinity stands for a masked token.

    Returns
    -------
    ndarray, shape (..., T)
        Nondecreasing, the first one 0; infinity for masked tokens.

    Examples
    --------
    >>> sparsemax_thresholds([0.0, 1.0, 0.4])
    array([0. , 0.3, 0.7])
    """
    gamma = as_float(scores, "scores", min_ndim=1, finite=False)
    if not gamma.shape[-1]:
        raise ShapeError(f"scores must have at least one entry on its last axis, got shape {gamma.shape}.")
    if np.isnan(gamma).any() or not np.isfinite(gamma.max(-1)).all():
        raise DataError("scores must hold finite numbers, or minus infinity for some of the tokens.")
    ordered = -np.sort(-gamma, axis=-1)
    steps = np.zeros_like(ordered)
    seen = np.isfinite(ordered)
    drops = np.where(seen[..., 1:], ordered[..., :-1] - np.where(seen, ordered, 0.0)[..., 1:], np.inf)
    steps[..., 1:] = 0.5 * np.arange(1, gamma.shape[-1]) * drops
    return np.asarray(np.cumsum(steps, axis=-1))


@dataclass(frozen=True, slots=True, eq=False)
class BestAttention:
    """The attention that serves the head best. All arrays are read-only."""

    probabilities: FloatArray
    """(..., n, T) a maximiser: exactly 0 at the tokens it drops."""
    outputs: FloatArray
    """(..., n, d) what the head then reads."""
    value: FloatArray
    """(..., n) largest prediction margin."""
    gap: FloatArray
    """(..., n) certificate: no attention has a margin above ``value + gap``; 0 for a convex head, which takes
    the best of finitely many tokens."""
    concave: BoolArray
    """(..., n) whether the margin is concave, and not linear, in the output."""

    @property
    def selected(self) -> BoolArray:
        """(..., n, T) tokens with a positive probability."""
        return np.asarray(self.probabilities > 0.0)

    def __repr__(self) -> str:
        counts = self.selected.sum(-1)
        return (
            f"BestAttention({counts.size} sequences, {counts.mean():.4g} of {self.probabilities.shape[-1]} "
            f"tokens selected on average, largest gap {self.gap.max():.1e})"
        )


def best_attention(problem: Problem) -> BestAttention:
    r"""Maximise the prediction margin :math:`y_i\psi(X_i^\top s)` over all probabilities of each sequence.

    What attention is asked to do, apart from what a matrix W can do or training finds. Linear heads and those
    whose margin is convex take their best token. For the quadratic head and :math:`y\lambda>0` the optimal
    output is the point of the tokens' hull nearest to :math:`v/2\lambda`, found by an active-set method; for
    the ReLU head and y = -1 it solves a linear program. Neither needs orthonormal tokens.

    Parameters
    ----------
    problem : Problem
        Tokens, labels, mask and head; keys and queries play no part.

    Returns
    -------
    BestAttention
        Probabilities, outputs, margins and certificates. Where the maximiser is not unique (equal tokens,
        more than d + 1 tokens, a flat region of the ReLU head), one of them.

    Raises
    ------
    DataError
        If the head is none of ``linear``, ``quadratic`` and ``mlp``.
    SolverError
        If a gap is not within 1e-10 of the sizes of the problem.

    Notes
    -----
    With small :math:`\lambda` the probabilities inherit the round-off of the scores divided by
    :math:`\lambda`; the value does not.

    Examples
    --------
    >>> import numpy as np, svmlib as sv
    >>> head = sv.attention.quadratic([1.0, 0.8, 0.0], lam=0.5)
    >>> p = sv.data.Problem(np.eye(3)[None], np.ones((1, 1)), [1], head=head)
    >>> sv.attention.best_attention(p).probabilities.round(3)
    array([[0.6, 0.4, 0. ]])
    """
    flat = check_problem(problem).flat()
    head = Linear(flat.v) if flat.v is not None else flat.head
    if not isinstance(head, (Linear, Quadratic, Mlp)):
        what = "this problem has no head" if head is None else f"got {type(head).__name__}"
        raise DataError(
            "best_attention needs a head of which it is known where it is convex and where concave: "
            f"attention.linear, quadratic or mlp; {what}."
        )
    B, n, T = flat.X.shape[:3]
    s, gap = np.zeros((B, n, T)), np.zeros((B, n))
    value, concave = np.zeros((B, n)), np.zeros((B, n), dtype=bool)
    visible = flat.visible
    for b in range(B):
        part = [a[b] if head.batch_shape else a for a in (getattr(head, name) for name in head.own)]
        for i in range(n):
            seen = visible[b, i]
            X, y = flat.X[b, i, seen], float(flat.y[b, i])
            found = _one(head, part, X, y)
            s[b, i, seen], value[b, i], gap[b, i], concave[b, i] = found
    lead = problem.batch_shape
    outputs = np.einsum("bnt,bntd->bnd", s, flat.X)
    return BestAttention(*(frozen(a.reshape(lead + a.shape[1:])) for a in (s, outputs, value, gap, concave)))


def _one(
    head: Linear | Quadratic | Mlp, part: list[FloatArray], X: FloatArray, y: float
) -> tuple[FloatArray, float, float, bool]:
    if isinstance(head, Quadratic):
        slope, curvature = y * part[0], y * float(part[1])
        margins = X @ slope - curvature * np.square(X).sum(-1)
        if curvature > 0.0:
            return (*_nearest(X, slope, curvature, margins), True)
    elif isinstance(head, Mlp):
        margins = y * np.maximum(X @ part[0], 0.0).sum(-1)
        if y < 0.0:
            return (*_least_relu(X @ part[0], margins), True)
    else:
        margins = y * (X @ part[0])
    best = int(margins.argmax())
    return np.eye(len(X))[best], float(margins[best]), 0.0, False


def _nearest(
    X: FloatArray, slope: FloatArray, curvature: float, margins: FloatArray
) -> tuple[FloatArray, float, float]:
    r"""Maximise slope'u - curvature |u|^2 over the hull of the rows of X.

    Active sets: on the tokens in use the optimum is a least-squares problem; a token that would gain is taken
    in, one that would get a negative probability is dropped. The tokens in use stay affinely independent,
    for a token in their affine hull has no gain left.
    """
    T = len(X)
    pivot = int(margins.argmax())
    D = X - X[pivot]  # measured from the best token: nothing cancels where that is all that is used
    start = slope - 2.0 * curvature * X[pivot]
    size = np.abs(D).max(initial=0.0) * (
        np.abs(slope).max() + 2.0 * curvature * np.abs(X).max()
    )  # of a gain, for round-off
    s = np.eye(T)[pivot]
    used = s > 0.0
    tol = 4.0 * np.finfo(float).eps * X.shape[1] * size
    for _ in range(20 * T + 100):
        force = start - 2.0 * curvature * (s @ D)
        gain = D @ force
        gain -= s @ gain
        enter = int(np.where(used, -np.inf, gain).argmax())
        if used.all() or gain[enter] <= tol:
            break
        before = used.copy()
        used[enter] = True
        s, used = _settled(D, start, curvature, s, used)
        if (used == before).all():  # nothing but round-off spoke for the token
            break
    value = margins[pivot] + s @ (D @ start) - curvature * np.square(s @ D).sum()
    force = start - 2.0 * curvature * (s @ D)
    gain = D @ force
    return s, float(value), _certified(float(gain.max() - s @ gain), size)


def _settled(
    D: FloatArray, start: FloatArray, curvature: float, s: FloatArray, used: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """Best probabilities on the tokens in use, of which those that turn negative are dropped."""
    s, used = s.copy(), used.copy()
    while True:
        index = np.flatnonzero(used)
        if len(index) == 1:
            s[:] = 0.0
            s[index] = 1.0
            return s, used
        force = start - 2.0 * curvature * (s @ D)
        base = index[s[index].argmax()]
        rest = index[index != base]
        step = np.zeros(len(s))
        step[rest] = np.linalg.lstsq((D[rest] - D[base]).T, force / (2.0 * curvature), rcond=None)[0]
        step[base] = -step[rest].sum()
        falling = used & (s + step <= 0.0)
        if not falling.any():
            return (s + step) / (s + step).sum(), used
        length = np.min(s[falling] / (s[falling] - (s + step)[falling]))
        s = s + length * step
        gone = used & (s <= 1e-15)
        if not gone.any():
            gone = falling & (s <= s[falling].min())
        s[gone] = 0.0
        used &= ~gone
        s /= s.sum()


def _least_relu(hidden: FloatArray, margins: FloatArray) -> tuple[FloatArray, float, float]:
    """Maximise -sum(relu(hidden' s)), with hidden of shape (T, h), by a linear program."""
    T, h = hidden.shape
    scale = float(np.abs(hidden).max(initial=0.0)) or 1.0
    H = hidden / scale
    found = linprog(
        np.r_[np.zeros(T), np.ones(h)],
        A_ub=np.c_[H.T, -np.eye(h)],
        b_ub=np.zeros(h),
        A_eq=np.r_[np.ones(T), np.zeros(h)][None],
        b_eq=[1.0],
        method="highs-ds",
    )
    if found.x is None:
        raise SolverError(f"The linear program for the ReLU head was not solved: {found.message}")
    s = np.maximum(found.x[:T], 0.0)
    s /= s.sum()
    value = -np.maximum(s @ H, 0.0).sum()
    if value * scale < margins.max():  # a token is as good up to round-off
        s = np.eye(T)[int(margins.argmax())]
        value = margins.max() / scale
    weights = np.clip(-found.ineqlin.marginals, 0.0, 1.0)
    bound = float((-H @ weights).max())  # relu(x) >= w x for w in [0, 1]
    return s, float(value * scale), _certified((bound - value) * scale, scale * h)


def _certified(gap: float, size: float) -> float:
    if not gap <= GAP * size:
        raise SolverError(
            f"The best attention was found only up to a gap of {gap:.1e}, where sizes of {size:.1e} occur; "
            "the tokens may be nearly equal. Remove duplicates, or rescale the data."
        )
    return max(gap, 0.0)
