"""Two sequences behind one prompt: the offset that a loss leaves behind, and when the limit shows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray, as_float
from svmlib.data import Problem, prompt_problem
from svmlib.errors import DataError

__all__ = ["horizon", "limit_offset", "two_sequences"]


def two_sequences(value: ArrayLike = 1.0) -> Problem:
    """Two sequences whose good tokens lie at (1, 1) and (1, -1), each against a token at 0 with score 0.

    Parameters
    ----------
    value : array_like, shape (...)
        Score of the first good token; the second one has score 1.

    Returns
    -------
    Problem
        Prompt problems, n = T = 2, one for each value.

    Raises
    ------
    DataError
        If a value is not positive.
    """
    C = as_float(value, "value")
    if not (C > 0).all():
        raise DataError(f"value must be positive, so that the good token is the better one, got {C.min():g}.")
    keys = [[[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, -1.0]]]
    scores = np.zeros((*C.shape, 2, 2))
    scores[..., 0, 1], scores[..., 1, 1] = C, 1.0
    return prompt_problem(np.broadcast_to(keys, (*C.shape, 2, 2, 2)), scores)


def limit_offset(value: ArrayLike, loss: str = "logistic") -> FloatArray:
    r"""Limit of the second coordinate of p on :func:`two_sequences`.

    .. math:: y_\infty=\tfrac12\log\frac{C\,|\ell'(C)|}{|\ell'(1)|}

    Parameters
    ----------
    value : array_like, shape (...)
        Score C of the first good token.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    ndarray, shape (...)
        Offsets, in units of p.

    Raises
    ------
    DataError
        If a value is not positive or the loss is unknown.
    """
    C = as_float(value, "value")
    if not (C > 0).all():
        raise DataError(f"value must be positive, got {C.min():g}.")
    slopes: dict[str, Callable[[FloatArray], FloatArray]] = {  # log |l'|
        "logistic": lambda x: np.asarray(-np.logaddexp(0.0, x)),
        "exponential": lambda x: -x,
        "linear": np.zeros_like,
    }
    if loss not in slopes:
        raise DataError(f"loss must be one of {', '.join(map(repr, slopes))}, got {loss!r}.")
    log_slope = slopes[loss]
    return np.asarray(0.5 * (np.log(C) + log_slope(C) - log_slope(np.ones(()))))


def horizon(offset: float, correlation: float, length: float = 0.1) -> float:
    r"""Normalised steps until p has this correlation with the first axis.

    The path is taken to run along the diagonal to the corner at :math:`(|y_\infty|,y_\infty)`, then along the
    axis: :math:`p(k)=(R,y_\infty)` with :math:`\eta k=R+(\sqrt2-1)\,|y_\infty|`.

    Parameters
    ----------
    offset : float
        Limit of the second coordinate.
    correlation : float
        From :math:`1/\sqrt2`, the corner, to below 1.
    length : float
        Length of a step.

    Returns
    -------
    float
        Number of steps.

    Raises
    ------
    DataError
        If the correlation or the length is not in its range: before the corner the formula does not hold.
    """
    if not np.sqrt(0.5) <= correlation < 1:
        raise DataError(f"correlation must be in [0.7071..., 1), got {correlation:g}.")
    if not length > 0:
        raise DataError(f"length must be positive, got {length:g}.")
    R = abs(offset) * correlation / np.sqrt(1 - correlation**2)
    return float((R + (np.sqrt(2) - 1) * abs(offset)) / length)
