r"""Regularisation path of a linear classifier: minimisers of the loss over balls of growing radius."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import FloatArray, as_float, frozen
from ..errors import DataError, SolverError
from ._data import Directions, signed_points
from .losses import LinearLoss, get_loss, log_mean_exp

__all__ = ["LinearPath", "path"]

TOLERANCE = 1e-8
ITERATIONS = 200
ROUNDOFF = 1e-13  # an increase of the log loss up to this may be rounding: the gradient sees further


@dataclass(frozen=True, slots=True, eq=False)
class LinearPath(Directions):
    """Regularisation path: read-only arrays.

    The properties ``loss`` and ``norm`` and the methods ``correlation`` and ``angle`` are functions of them.
    """

    radii: FloatArray
    """(r,) radii R."""
    w: FloatArray
    """(..., r, d) minimisers of the loss over norm <= R."""
    log_loss: FloatArray
    """(..., r) logarithm of the mean loss."""
    margin: FloatArray
    """(..., r) smallest signed margin, min_i y_i <x_i, w>."""
    interior: FloatArray
    """(..., r) 1 where the minimiser lies inside the ball, 0 where it lies on the sphere."""
    stationarity: FloatArray
    """(..., r) certificate: on the sphere, the share of the gradient that is not along -w; inside, the
    gradient's norm over the sum of the norms of its terms."""

    def __repr__(self) -> str:
        return f"LinearPath({len(self.radii)} radii to {self.radii[-1]:g}, w {self.w.shape})"


def path(X: ArrayLike, y: ArrayLike, radii: ArrayLike, *, loss: str = "logistic") -> LinearPath:
    r"""Minimise :math:`\mathcal L(w)` over :math:`\|w\|\le R` for each radius R.

    Parameters
    ----------
    X, y : array_like, shapes (..., n, d) and (..., n)
        Points and labels.
    radii : array_like, shape (r,)
        Positive radii in increasing order; each solution starts the next.
    loss : str
        "logistic", "exponential" or "polynomial".

    Returns
    -------
    LinearPath
        Minimisers, one for each radius.

    Raises
    ------
    ShapeError, DataError
        If an argument does not fit.
    SolverError
        If a minimiser is not stationary to 1e-8.

    Notes
    -----
    The problem is convex: a point of the sphere where :math:`-\nabla\mathcal L` points along w is one.
    Newton's method on the sphere finds it, with the gradient and the Hessian divided by the largest example
    weight, so that neither underflows.

    Examples
    --------
    >>> path([[3.0, 4.0]], [1], [1.0, 10.0]).w
    array([[0.6, 0.8],
           [6. , 8. ]])
    """
    A, ell = signed_points(X, y), get_loss(loss)
    R = as_float(radii, "radii", ndim=1)
    if not R.size or not (R > 0).all() or not (np.diff(R) > 0).all():
        raise DataError(f"radii must be positive and increasing, got {R.size} values {R[:5]}.")
    top = float(np.abs(A).max())
    with np.errstate(over="ignore", under="ignore"):
        reach = R[[0, -1]] * (top if top > 0 else 1.0)
    if not (reach[0] > 1e-100 and reach[1] < 1e100 and R[0] > 1e-100 and R[-1] < 1e100):
        raise DataError(
            f"radii ({R[0]:g} to {R[-1]:g}), and radii times the largest entry of X ({top:g}), must lie "
            "between 1e-100 and 1e100: rescale X, or leave out radii."
        )
    with np.errstate(under="ignore"):
        return _path(A, R, ell)


def _path(A: FloatArray, R: FloatArray, ell: LinearLoss) -> LinearPath:
    exponent = int(np.frexp(np.abs(A).max())[1])
    # points with entries near 1, in balls that much larger: the same margins, and no square leaves the range
    flat = np.ldexp(A, -exponent).reshape(-1, *A.shape[-2:])
    w = np.empty((len(flat), len(R), A.shape[-1]))
    interior, residual = np.zeros((len(flat), len(R))), np.empty((len(flat), len(R)))
    for b, points in enumerate(flat):
        for j, found in enumerate(_follow(points, np.ldexp(R, exponent), ell, 2.0**-exponent)):
            w[b, j], interior[b, j], residual[b, j] = found
    margins = w @ np.swapaxes(flat, -1, -2)
    log_loss = log_mean_exp(ell.log_value(margins))
    w = np.ldexp(w, -exponent)
    columns = (w, log_loss, margins.min(axis=-1), interior, residual)
    return LinearPath(frozen(R), *(frozen(c.reshape(A.shape[:-2] + c.shape[1:])) for c in columns))


def _scaled(A: FloatArray, w: FloatArray, loss: LinearLoss) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Example weights, gradient and Hessian of the loss, over n and over one positive number."""
    m = A @ w
    log_weight = loss.log_slope(m)
    top = log_weight.max()
    weight = np.exp(log_weight - top)
    return weight, -(weight @ A), (A.T * np.exp(loss.log_curvature(m) - top)) @ A


def _follow(
    A: FloatArray, radii: FloatArray, loss: LinearLoss, unit: float
) -> list[tuple[FloatArray, float, float]]:
    """Minimiser, 1 if it lies inside the ball, and its certificate, for each radius."""
    found: list[tuple[FloatArray, float, float]] = []
    w, inner = _start(A), None
    reached = 1.0 / max(float(np.abs(A).max()), 1e-300)
    for R in radii:
        # Newton's method follows the path while the radius at most doubles: the example weights, which are
        # exponentials of the margins, then stay comparable from one radius to the next
        while True:
            reached = float(R) if 2.0 * reached >= R else 2.0 * reached
            if inner is None:
                w, pull, residual = _on_sphere(A, w, reached, loss)
                if pull < 0:  # the loss falls towards the inside of the ball
                    inner = _unconstrained(A, w, loss)
            if reached == R:
                break
        # a minimiser inside one ball is the minimiser over every larger one
        at = inner if inner is not None else (w, 0.0, residual)
        if not at[2] <= TOLERANCE or np.linalg.norm(at[0]) > R * (1 + 1e-12):
            raise SolverError(
                f"The minimiser over the ball of radius {R * unit:g} ({len(A)} points in {A.shape[1]} "
                f"dimensions) is stationary to {at[2]:.1e} only. Check for huge or tiny points; "
                "leave out large radii."
            )
        found.append(at)
    return found


def _start(A: FloatArray) -> FloatArray:
    mean = A.mean(axis=0)
    return np.asarray(mean if mean.any() else np.eye(A.shape[1])[0])


def _on_sphere(
    A: FloatArray, direction: FloatArray, R: float, loss: LinearLoss
) -> tuple[FloatArray, float, float]:
    w = R * direction / np.linalg.norm(direction)
    best, stalled = (w, 0.0, np.inf), 0
    value = float(log_mean_exp(loss.log_value(A @ w)))
    for _ in range(ITERATIONS):
        _, g, H = _scaled(A, w, loss)
        pull = -float(g @ w) / R**2
        r = g + pull * w
        size = float(np.linalg.norm(g))
        residual = float(np.linalg.norm(r)) / size if size > 0 else 0.0
        stalled = 0 if residual < 0.5 * best[2] else stalled + 1
        if residual < best[2]:
            best = (w, pull, residual)
        if residual < 1e-14 or (best[2] < 1e-10 and stalled > 2):
            break
        M = H + (abs(pull) + 1e-300) * np.eye(len(w))
        try:
            solved = np.linalg.solve(M, np.stack([r, w], axis=1))
        except np.linalg.LinAlgError:  # flat to all digits: the certificate decides
            break
        step = -solved[:, 0] + solved[:, 1] * (w @ solved[:, 0]) / (w @ solved[:, 1])
        for shrink in 0.5 ** np.arange(40):
            trial = w + shrink * step
            trial *= R / np.linalg.norm(trial)
            new = float(log_mean_exp(loss.log_value(A @ trial)))
            if new <= value + ROUNDOFF * (1.0 + abs(value)):
                break
        else:
            break
        if np.array_equal(trial, w):
            break
        w, value = trial, new
    return best


def _unconstrained(A: FloatArray, w: FloatArray, loss: LinearLoss) -> tuple[FloatArray, float, float]:
    best, stalled = (w, 1.0, np.inf), 0
    value = float(log_mean_exp(loss.log_value(A @ w)))
    for _ in range(ITERATIONS):
        weight, g, H = _scaled(A, w, loss)
        residual = float(np.linalg.norm(g) / (weight @ np.linalg.norm(A, axis=1)))
        stalled = 0 if residual < 0.5 * best[2] else stalled + 1
        if residual < best[2]:
            best = (w, 1.0, residual)
        if residual < 1e-14 or (best[2] < 1e-10 and stalled > 2):
            break
        step = -np.linalg.lstsq(H, g, rcond=1e-13)[0]
        for shrink in 0.5 ** np.arange(40):
            new = float(log_mean_exp(loss.log_value(A @ (w + shrink * step))))
            if new <= value + ROUNDOFF * (1.0 + abs(value)):
                break
        else:
            break
        w, value = w + shrink * step, new
    return best
