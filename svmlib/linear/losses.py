r"""Losses of a margin, as logarithms: :math:`\log\ell`, :math:`\log(-\ell')`, :math:`\log\ell''`.

Along a run the margins grow without bound and the losses underflow; their logarithms do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from ..errors import DataError

__all__ = ["LOSSES", "LinearLoss", "get_loss", "log_mean_exp"]

Elementwise = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True)
class LinearLoss:
    r"""A convex, positive, strictly decreasing function of the margin.

    Attributes
    ----------
    name : str
        "logistic", "exponential" or "polynomial".
    log_value, log_slope, log_curvature : callable
        Elementwise :math:`\log\ell(m)`, :math:`\log(-\ell'(m))`, :math:`\log\ell''(m)`.
    """

    name: str
    log_value: Elementwise
    log_slope: Elementwise
    log_curvature: Elementwise


def _logistic(m: FloatArray) -> FloatArray:
    # log(log(1 + e^-m)) loses all digits once e^-m is below the round-off of 1: there log(1+x) = x - x²/2
    near = np.log(np.logaddexp(0.0, -np.minimum(m, 30.0)))
    return np.where(m > 30.0, -m - 0.5 * np.exp(-np.maximum(m, 30.0)), near)


def _logistic_slope(m: FloatArray) -> FloatArray:
    return np.asarray(-np.logaddexp(0.0, m))


def _logistic_curvature(m: FloatArray) -> FloatArray:
    return np.asarray(-np.logaddexp(0.0, m) - np.logaddexp(0.0, -m))


def _up(m: FloatArray) -> FloatArray:
    return np.log1p(np.maximum(m, 0.0))


def _down(m: FloatArray) -> FloatArray:
    return np.maximum(-m, 0.0)  # how far the margin is below 0, where the tail is continued by a parabola


LOSSES = {
    loss.name: loss
    for loss in (
        LinearLoss("logistic", _logistic, _logistic_slope, _logistic_curvature),
        LinearLoss("exponential", np.negative, np.negative, np.negative),
        LinearLoss(
            "polynomial",  # 1/(1 + m) for m >= 0, 1 - m + m² below: two continuous derivatives
            lambda m: np.log1p(_down(m) + _down(m) ** 2) - _up(m),
            lambda m: np.log1p(2.0 * _down(m)) - 2.0 * _up(m),
            lambda m: np.log(2.0) - 3.0 * _up(m),
        ),
    )
}


def get_loss(loss: str) -> LinearLoss:
    """Return the loss called ``loss``.

    Parameters
    ----------
    loss : str
        Name.

    Returns
    -------
    LinearLoss
        The loss.

    Raises
    ------
    DataError
        If there is no loss of that name.
    """
    if not isinstance(loss, str) or loss not in LOSSES:
        raise DataError(f"loss must be one of {sorted(LOSSES)}, got {loss!r}.")
    return LOSSES[loss]


def log_mean_exp(a: FloatArray) -> FloatArray:
    """Compute the logarithm of the mean of ``exp(a)``, without overflow or underflow.

    Parameters
    ----------
    a : ndarray, shape (..., n)
        Exponents.

    Returns
    -------
    ndarray, shape (...)
        Logarithms.
    """
    top = a.max(axis=-1, keepdims=True)
    return np.asarray(top[..., 0] + np.log(np.exp(a - top).mean(axis=-1)))
