"""Labelled points, and what records of linear classifiers share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .. import compare
from ..arrays import FloatArray, as_float, check_integer
from ..errors import DataError, ShapeError

__all__ = ["Directions", "separable_data", "signed_points"]


def signed_points(X: ArrayLike, y: ArrayLike) -> FloatArray:
    r"""Signed points :math:`\tilde x_i=y_ix_i`, on which a classifier without bias must be positive.

    Parameters
    ----------
    X : array_like, shape (..., n, d)
        Points.
    y : array_like, shape (..., n)
        Labels, +1 or -1; labels without batch axes are shared by the batch.

    Returns
    -------
    ndarray, shape (..., n, d)

    Raises
    ------
    ShapeError
        If the shapes do not fit, or there is no point or no dimension.
    DataError
        If an entry is not finite, or a label is not ±1.

    Examples
    --------
    >>> signed_points([[1.0, 2.0], [3.0, 4.0]], [1, -1])
    array([[ 1.,  2.],
           [-3., -4.]])
    """
    points = as_float(X, "X", min_ndim=2)
    labels = as_float(y, "y", min_ndim=1, last=(points.shape[-2],))
    if not points.shape[-1] or not points.shape[-2]:
        raise ShapeError(f"X needs at least one point and one dimension, got shape {points.shape}.")
    if not (np.abs(labels) == 1).all():
        bad = labels[np.abs(labels) != 1]
        raise DataError(
            f"y must hold labels +1 and -1, but {bad.size} of {labels.size} are not, such as {bad[0]:g}."
        )
    try:
        return np.asarray(labels[..., None] * points)
    except ValueError:
        raise ShapeError(
            f"The leading axes of X and y do not fit: shapes {points.shape} and {labels.shape}."
        ) from None


def separable_data(
    n: int, d: int, batch: int | None = None, seed: int = 0, gap: float = 0.3
) -> tuple[FloatArray, FloatArray]:
    r"""Random points that a hyperplane through the origin separates.

    A unit vector u is drawn, then Gaussian points, labelled by the side of u on which they lie and moved
    away from the boundary by ``gap``: all margins of u are at least ``gap``. Element b of a batch has its
    own stream of random numbers, so a larger batch begins with the smaller one.

    Parameters
    ----------
    n, d : int
        Points and dimensions.
    batch : int, optional
        Number of instances; None gives one without a batch axis.
    seed : int
        Seed.
    gap : float
        Distance that each point is moved, :math:`\ge0`.

    Returns
    -------
    X : ndarray, shape (..., n, d)
        Points.
    y : ndarray, shape (..., n)
        Labels.

    Raises
    ------
    ShapeError
        If a size is not a positive integer, or the seed is not a whole number >= 0.
    DataError
        If ``gap`` is negative or not finite.
    """
    n, d, seed = check_integer(n, "n"), check_integer(d, "d"), check_integer(seed, "seed", 0)
    batch = None if batch is None else check_integer(batch, "batch")
    gap = float(as_float(gap, "gap", ndim=0))
    if gap < 0:
        raise DataError(f"gap must be a finite number >= 0, got {gap!r}.")
    X, y = [], []
    for b in range(1 if batch is None else batch):
        rng = np.random.default_rng([seed, b])
        u = rng.normal(size=d)
        u /= np.linalg.norm(u)
        points = rng.normal(size=(n, d))
        labels = np.where(points @ u < 0, -1.0, 1.0)
        X.append(points + gap * labels[:, None] * u)
        y.append(labels)
    return (X[0], y[0]) if batch is None else (np.stack(X), np.stack(y))


class Directions:
    """Measures of weight vectors ``w`` of shape (..., r, d) against one direction (..., d)."""

    __slots__ = ()
    w: FloatArray
    log_loss: FloatArray

    @property
    def loss(self) -> FloatArray:
        """(..., r) mean loss; 0 where it underflows, which ``log_loss`` does not."""
        return np.asarray(np.exp(self.log_loss))

    @property
    def norm(self) -> FloatArray:
        """(..., r) Euclidean norms."""
        return np.asarray(np.linalg.norm(self.w, axis=-1))

    def correlation(self, direction: ArrayLike) -> FloatArray:
        """Cosine of the angle between each w and ``direction`` (..., d): (..., r), NaN where w = 0.

        Raises
        ------
        ShapeError
            If the shapes do not fit.
        """
        return compare.correlation(self.w[..., None], as_float(direction, "direction", min_ndim=1)[..., None])

    def angle(self, direction: ArrayLike) -> FloatArray:
        """Angle in radians between each w and ``direction`` (..., d): (..., r), NaN where w = 0.

        Raises
        ------
        ShapeError
            If the shapes do not fit.
        """
        return compare.angle(self.w[..., None], as_float(direction, "direction", min_ndim=1)[..., None])
