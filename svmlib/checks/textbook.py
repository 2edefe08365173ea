r"""Training as everybody writes it, in an arithmetic of one's choice: what exact training is compared with.

The textbook gradient gives token t the coefficient :math:`s_t(\gamma_t-s^\top\gamma)`. Once the top
probability rounds to 1, the top token's coefficient is a difference of equal numbers, and a normalised step
then follows rounding noise. With enough digits the same formula is right; so one code runs in float32, in
float64 and with any number of digits, and what differs is the arithmetic alone. The papers' recipe adds two
terms of the size of one rounding error, ``eps`` and ``decay``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from svmlib.arrays import FloatArray, IntArray, as_float, frozen
from svmlib.attention import Direct, Weights, check_weights
from svmlib.data import Problem
from svmlib.dynamics import record_steps
from svmlib.errors import DataError

__all__ = ["EPS", "Arithmetic", "Descent", "arithmetic", "coefficients", "descend", "gradient"]

EPS = float(np.finfo(np.float64).eps)
"""2.2e-16, the constant of the papers' recipe: added to norms, and the strength of the decay on K and Q."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Numbers of one precision, as an array type with the two functions that need to know it.

    Attributes
    ----------
    name : str
        "float32", "float64" or "40 digits".
    digits : int or None
        Decimal digits; None for machine numbers.
    convert : callable
        From a float64 array to an array of these numbers.
    exp, sqrt : callable
        Elementwise functions.
    """

    name: str
    digits: int | None
    convert: Callable[[Array], Array]
    exp: Callable[[Array], Array]
    sqrt: Callable[[Array], Array]

    def context(self) -> Any:
        """Context manager inside which arrays of these numbers are used."""
        if self.digits is None:
            return nullcontext()
        import mpmath

        return mpmath.workdps(self.digits)


def arithmetic(precision: str | int) -> Arithmetic:
    """Return the arithmetic of a precision.

    Parameters
    ----------
    precision : str or int
        "float32", "float64", or a number of decimal digits (mpmath; slow, one instance at a time).

    Returns
    -------
    Arithmetic

    Raises
    ------
    DataError
        If it is none of these.
    """
    if isinstance(precision, int) and not isinstance(precision, bool) and precision >= 15:
        import mpmath

        functions = (lambda x: mpmath.mpf(float(x)), mpmath.exp, mpmath.sqrt)
        to_mp, exp, sqrt = (np.frompyfunc(f, 1, 1) for f in functions)
        return Arithmetic(f"{precision} digits", precision, to_mp, exp, sqrt)
    if precision in ("float32", "float64"):
        dtype = np.dtype(precision)
        return Arithmetic(str(precision), None, lambda a: a.astype(dtype), np.exp, np.sqrt)
    raise DataError(
        f'precision must be "float32", "float64" or a number of digits from 15, got {precision!r}.'
    )


def _pull(s: Array, gamma: Array) -> Array:
    return np.asarray(s * (gamma - (s * gamma).sum(-1, keepdims=True)))


def _softmax(a: Array, numbers: Arithmetic) -> Array:
    e = numbers.exp(a - a.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _ascent(data: tuple[Array, Array, Array], W: Array, numbers: Arithmetic, pivot: bool = False) -> Array:
    """Negative gradient of the logistic loss, (..., d, d)."""
    X, z, gamma = data
    mapped = z @ np.swapaxes(W, -1, -2)
    logits = (X * mapped[..., None, :]).sum(-1)
    s = _softmax(logits, numbers)
    slope = 1 / (1 + numbers.exp((s * gamma).sum(-1)))  # |l'| at the margins
    if pivot:  # scores and tokens relative to the top token: its own coefficient drops out
        top = logits.argmax(-1)[..., None]
        gamma = gamma - np.take_along_axis(gamma, top, -1)
        X = X - np.take_along_axis(X, top[..., None], -2)
    c = _pull(s, gamma) * slope[..., None]
    rows = (c[..., None] * X).sum(-2)
    return np.asarray(np.swapaxes(rows, -1, -2) @ z / z.shape[-2])


def _load(problem: Problem, numbers: Arithmetic) -> tuple[Array, Array, Array]:
    if problem.v is None or problem.mask is not None:
        raise DataError("The textbook recipe is written for a linear head and sequences without a mask.")
    X, z, v, y = map(numbers.convert, (problem.X, problem.z, problem.v, problem.y))
    return X, z, y[..., None] * (X * v[..., None, None, :]).sum(-1)


def coefficients(problem: Problem, W: ArrayLike, precision: str | int = "float64") -> FloatArray:
    r"""Coefficients :math:`s_{it}(\gamma_{it}-s_i^\top\gamma_i)` of the tokens in the gradient.

    Parameters
    ----------
    problem : Problem
        With linear head and no mask.
    W : array_like, shape (..., d, d)
        Attention matrix.
    precision : str or int
        See :func:`arithmetic`.

    Returns
    -------
    ndarray, shape (..., n, T)

    Raises
    ------
    DataError
        If the problem has another head or a mask.
    """
    numbers = arithmetic(precision)
    with numbers.context():
        X, z, gamma = _load(problem, numbers)
        mapped = z @ np.swapaxes(numbers.convert(as_float(W, "W", min_ndim=2)), -1, -2)
        c = _pull(_softmax((X * mapped[..., None, :]).sum(-1), numbers), gamma)
    return c.astype(np.float64)


def gradient(problem: Problem, W: ArrayLike, precision: str | int = "float64") -> FloatArray:
    r"""Gradient of the logistic loss with respect to W, by the textbook formula.

    Parameters
    ----------
    problem, W, precision
        As for :func:`coefficients`.

    Returns
    -------
    ndarray, shape (..., d, d)

    Raises
    ------
    DataError
        If the problem has another head or a mask.
    """
    numbers = arithmetic(precision)
    with numbers.context():
        data = _load(problem, numbers)
        G = -_ascent(data, numbers.convert(as_float(W, "W", min_ndim=2)), numbers)
    return G.astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Descent:
    """What a run of the textbook recipe recorded; arrays are read-only float64 unless said.

    Attributes
    ----------
    steps : ndarray of int, shape (r,)
        Recorded steps.
    W : ndarray, shape (..., r, d, d)
        Attention matrices; K Q^T for factors.
    selected : ndarray of int, shape (..., n)
        Token with the largest logit at the end.
    """

    steps: IntArray
    W: FloatArray
    selected: IntArray


def descend(
    problem: Problem,
    weights: Weights,
    steps: int,
    *,
    rate: float = 0.1,
    eps: float = 0.0,
    decay: float = 0.0,
    pivot: bool = False,
    precision: str | int = "float64",
    record: int | Iterable[int] | None = None,
) -> Descent:
    r"""Normalised gradient descent on the logistic loss with the textbook gradient, or a pivoted one.

    Every block :math:`B` of the weights moves by :math:`-\eta G_B/(\|G_B\|_F+\epsilon)`, where
    :math:`G_B=\nabla_B\mathcal L+2\lambda B`.

    Parameters
    ----------
    problem : Problem
        With linear head and no mask. More than machine precision needs a problem without batch axes.
    weights : Direct or Factored
        Start.
    steps : int
        Number of steps.
    rate : float
        Step length :math:`\eta`.
    eps : float
        :math:`\epsilon` in the denominator; :data:`EPS` in the papers' recipe.
    decay : float
        Decay :math:`\lambda`; :data:`EPS` in the papers' recipe for (K, Q).
    pivot : bool
        Whether the gradient is computed relative to the top token, which keeps its digits: the arm that
        tells what ``eps`` and ``decay`` do from what rounding does. It has no guard against underflow,
        which :func:`svmlib.dynamics.train` has.
    precision : str or int
        See :func:`arithmetic`.
    record : int or iterable of int, optional
        See :func:`svmlib.dynamics.record_steps`.

    Returns
    -------
    Descent

    Raises
    ------
    DataError
        If the problem has another head or a mask.
    """
    numbers = arithmetic(precision)
    when = record_steps(record, steps)
    due = set(when.tolist())
    start = check_weights(problem, weights)
    records = []
    with numbers.context():
        data = _load(problem, numbers)
        blocks = [numbers.convert(np.asarray(b, dtype=np.float64)) for b in start]
        eta, small, shrink = (numbers.convert(np.array(a)) for a in (rate, eps, 2.0 * decay))
        for k in range(int(when[-1]) + 1):
            W = blocks[0] if isinstance(start, Direct) else blocks[0] @ np.swapaxes(blocks[1], -1, -2)
            if k in due:
                records.append(W.astype(np.float64))
            if k == when[-1]:
                break
            D = _ascent(data, W, numbers, pivot)
            pulls = [D] if isinstance(start, Direct) else [D @ blocks[1], np.swapaxes(D, -1, -2) @ blocks[0]]
            pulls = [g - shrink * b for g, b in zip(pulls, blocks, strict=True)]
            blocks = [_moved(b, g, eta, small, numbers) for b, g in zip(blocks, pulls, strict=True)]
        logits = (data[0] * (data[1] @ np.swapaxes(W, -1, -2))[..., None, :]).sum(-1).astype(np.float64)
    return Descent(when, frozen(np.stack(records, axis=-3)), frozen(logits.argmax(-1)))


def _moved(block: Array, pull: Array, eta: Array, small: Array, numbers: Arithmetic) -> Array:
    size = numbers.sqrt((pull * pull).sum((-2, -1), keepdims=True)) + small
    return np.asarray(block + eta * pull / np.where(size > 0, size, 1))
