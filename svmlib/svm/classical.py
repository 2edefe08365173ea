"""The classical hard-margin SVM for linear classification: the warm-up of the attention SVM."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray, as_float, frozen
from svmlib.errors import DataError, InfeasibleError, ShapeError, SolverError

from .least_distance import least_distance
from .records import CERTIFIED, SUPPORT_TOLERANCE, Certificate, HardMargin

__all__ = ["hard_margin"]


def _binary_size(a: FloatArray) -> float:
    """Power of two above the largest entry; 1 for zeros. Dividing by it is exact."""
    return float(np.ldexp(1.0, min(int(np.frexp(np.abs(a).max())[1]), 1023))) if a.any() else 1.0


def hard_margin(X: ArrayLike, y: ArrayLike, bias: bool = False) -> HardMargin:
    r"""Separate two classes of points by the hyperplane of largest margin.

    .. math:: \min_{w,b}\tfrac12\|w\|_2^2\quad\text{s.t.}\quad y_i(w^\top x_i+b)\ge1,

    with :math:`b=0` unless ``bias``. With a bias and points of one class only, the answer is w = 0,
    b = the label, with infinite margin.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Points.
    y : array_like, shape (n,)
        Labels, each +1 or -1.
    bias : bool
        Whether the hyperplane may miss the origin.

    Returns
    -------
    HardMargin
        Normal, intercept, support vectors, multipliers and certificate.

    Raises
    ------
    InfeasibleError
        If no hyperplane (through the origin) separates the classes.
    SolverError
        If the solution cannot be certified to 1e-9 in double precision, or leaves its range.
    ShapeError
        If the shapes do not fit.
    DataError
        If values are not finite or labels are not ±1.

    Examples
    --------
    >>> svm = hard_margin([[0.0, 1.0], [0.0, -1.0], [3.0, 2.0]], [1, -1, 1])
    >>> svm.w, svm.margin
    (array([0., 1.]), 1.0)
    """
    points = as_float(X, "X", ndim=2)
    n, d = points.shape
    if min(n, d) < 1:
        raise ShapeError(f"X must have shape (n, d) with n, d >= 1, got {points.shape}.")
    labels = as_float(y, "y", ndim=1, last=(n,))
    if not np.isin(labels, (-1.0, 1.0)).all():
        raise DataError(f"y must hold labels +1 and -1, got the values {np.unique(labels)[:5].tolist()}.")
    if bias and (labels == labels[0]).all():
        nothing, none = frozen(np.zeros(d)), Certificate(*(frozen(np.zeros(())) for _ in range(3)))
        support = frozen(np.ones(n, dtype=bool))
        return HardMargin(nothing, float(labels[0]), 0.0, np.inf, support, frozen(np.zeros(n)), none)
    top = _binary_size(points)
    points = points / top
    rows = labels[:, None] * (points - points.mean(0) if bias else points)  # a shift only changes b
    with np.errstate(under="ignore"):
        each = np.array([_binary_size(row) for row in rows])
        lengths = each * np.linalg.norm(rows / each[:, None], axis=1)
    if not bias and (lengths == 0).any():
        raise InfeasibleError(
            f"No hyperplane through the origin separates the {n} points in {d} dimensions: point "
            f"{int(np.argmin(lengths))} is the origin itself. Drop it, or pass bias=True."
        )
    scale = np.full(n, lengths.max()) if bias else lengths
    # with a bias all rows share one scale, so that the column of the bias stays plus and minus one
    scale = np.where(scale > 0, scale, 1.0)
    known = scale.min() > 1e-145  # multipliers are of the size of the squares
    right = np.ones(n) if bias or not known else 1.0 / scale
    solved = least_distance(rows / scale[:, None], right, labels if bias else None)
    if solved.status == "infeasible":
        involved = np.flatnonzero(solved.multipliers > 0)
        what = "hyperplane" if bias else "hyperplane through the origin"
        mend = "Remove" if bias else "Pass bias=True, or remove"
        raise InfeasibleError(
            f"No {what} separates the {n} points in {d} dimensions: {involved.size} of them contradict each "
            f"other, points {involved[:8].tolist()}{' and more' if involved.size > 8 else ''}. {mend} or "
            f"relabel some of these."
        )
    unit = scale[0] if bias else 1.0
    with np.errstate(over="ignore", under="ignore"):
        w, multipliers = solved.w / unit, solved.multipliers / (scale * unit)
    b = solved.b - float(w @ points.mean(0)) if bias else 0.0
    margins = rows @ w + labels * solved.b
    value = float(np.linalg.norm(w))
    total = float(multipliers.sum())
    size = value if value > 0 else 1.0
    dual = float(np.linalg.norm(w - rows.T @ multipliers)) / size
    if bias and total > 0:
        dual += abs(float(labels @ multipliers)) / total
    gap = abs(value - total / size) / size
    certificate = Certificate(*(frozen(np.asarray(a)) for a in (max(0.0, 1.0 - margins.min()), dual, gap)))
    with np.errstate(all="ignore"):
        w, value, multipliers = w / top, value / top, multipliers / top / top
    largest = float(multipliers.max())
    fits = 1e-290 < largest < 1e290 and 1e-290 < value < 1e290
    if solved.status != "solved" or not known or not fits or not certificate.worst <= CERTIFIED:
        raise SolverError(
            f"The hard-margin SVM of {n} points in {d} dimensions could not be certified in double "
            "precision: the classes touch up to round-off, or the points are huge, tiny, or differ too much "
            "in scale. Rescale the data."
        )
    return HardMargin(
        w=frozen(w),
        b=b,
        value=value,
        margin=1.0 / value,
        support=frozen(margins < 1.0 + SUPPORT_TOLERANCE),
        multipliers=frozen(multipliers),
        certificate=certificate,
    )
