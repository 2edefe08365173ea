r"""Largest margin in the l1 and l-infinity norms, by linear programming."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import FloatArray, frozen
from ..errors import DataError, InfeasibleError, ShapeError, SolverError
from ..svm import hard_margin
from ._data import signed_points

__all__ = ["MaxMargin", "max_margin"]

TOLERANCE = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class MaxMargin:
    r"""Smallest weights with all margins at least 1, in one norm, with a certificate."""

    w: FloatArray
    """(d,) weights; need not be unique for these norms."""
    value: float
    """Norm of ``w``."""
    multipliers: FloatArray
    """(n,) multipliers of the margin constraints, >= 0; their sum is ``value`` and
    the dual norm of sum_i multipliers_i y_i x_i is at most 1."""
    norm: str
    """"l1" or "linf"."""
    gap: float
    """Largest of relative duality gap, primal and dual violation, computed from w and multipliers."""

    @property
    def margin(self) -> float:
        """Largest margin of weights of norm 1: 1 / value."""
        return 1.0 / self.value

    def __repr__(self) -> str:
        n, d = self.multipliers.size, self.w.size
        return f'MaxMargin("{self.norm}", n={n}, d={d}, margin {self.margin:.6g}, gap {self.gap:.1e})'


def max_margin(X: ArrayLike, y: ArrayLike, norm: str) -> MaxMargin:
    r"""Hard-margin classifier without bias, :math:`\min\|w\|` subject to :math:`y_i\langle x_i,w\rangle\ge1`.

    For the Euclidean norm use :func:`svmlib.svm.hard_margin`.

    Parameters
    ----------
    X, y : array_like, shapes (n, d) and (n,)
        Points and labels.
    norm : str
        "l1" or "linf".

    Returns
    -------
    MaxMargin
        Solution with its certificate.

    Raises
    ------
    ShapeError, DataError
        If an argument does not fit.
    InfeasibleError
        If no hyperplane through the origin separates the points.
    SolverError
        If the linear program was not solved to 1e-8.

    Examples
    --------
    >>> max_margin([[2.0, 1.0]], [1], "l1").w
    array([0.5, 0. ])
    """
    A = signed_points(X, y)
    if A.ndim != 2:
        raise ShapeError(f"max_margin takes one instance: X of shape (n, d), got signed points {A.shape}.")
    n, d = A.shape
    where = f"{n} points in {d} dimensions"
    if norm not in ("l1", "linf"):
        raise DataError(f'norm must be "l1" or "linf", got {norm!r}; for "l2" use svmlib.svm.hard_margin.')
    size = _size(A, where)
    x, multipliers = _program(A * size, norm, where)
    combined = np.abs(multipliers @ (A * size))
    value, dual = (np.abs(x).sum(), combined.max()) if norm == "l1" else (np.abs(x).max(), combined.sum())
    gap = max(1.0 - (A * size @ x).min(), dual - 1.0, abs(value - multipliers.sum()) / value)
    if not gap <= TOLERANCE:
        raise SolverError(f"The linear program of {where} was solved to {gap:.1e} only. Rescale the data.")
    return MaxMargin(frozen(size * x), float(size * value), frozen(size * multipliers), norm, float(gap))


def _size(A: FloatArray, where: str) -> float:
    """Length of the Euclidean solution, which brings the linear program to the scale of its tolerances."""
    try:
        return hard_margin(A, np.ones(len(A))).value
    except InfeasibleError as exc:
        raise InfeasibleError(
            f"No hyperplane through the origin separates the {where}. "
            "Check the labels, or add a constant coordinate for a bias."
        ) from exc
    except SolverError:
        top = max(float(np.abs(A).max()), 1e-300)
        return 1.0 / top


def _program(A: FloatArray, norm: str, where: str) -> tuple[FloatArray, FloatArray]:
    from scipy.optimize import linprog

    n, d = A.shape
    if norm == "l1":  # w = p - q, p and q >= 0
        cost, rows, rhs, lowest = np.ones(2 * d), np.hstack([-A, A]), -np.ones(n), 0.0
    else:  # -t <= w <= t
        box = np.vstack([np.c_[np.eye(d), -np.ones(d)], np.c_[-np.eye(d), -np.ones(d)]])
        cost, lowest = np.r_[np.zeros(d), 1.0], -np.inf
        rows, rhs = np.vstack([np.c_[-A, np.zeros(n)], box]), np.r_[-np.ones(n), np.zeros(2 * d)]
    got = linprog(cost, A_ub=rows, b_ub=rhs, bounds=(lowest, None), method="highs")
    if got.status != 0:  # infeasibility would have been proved before
        raise SolverError(f"The linear program of {where} was not solved: {got.message} Rescale the data.")
    w = got.x[:d] - got.x[d:] if norm == "l1" else got.x[:d]
    return np.asarray(w), np.maximum(-got.ineqlin.marginals[:n], 0.0)
