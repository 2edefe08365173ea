r"""Steepest descent on the loss of a linear classifier, in a norm of one's choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .. import norms
from ..arrays import FloatArray, IntArray, as_float, check_positive, frozen
from ..dynamics import record_steps
from ..errors import DataError, ShapeError, SolverError
from ._data import Directions, signed_points
from .losses import LinearLoss, get_loss, log_mean_exp

__all__ = ["LinearRun", "Step", "descend", "gradient_descent", "normalized", "steepest"]

CHECK_EVERY = 1000  # steps between two looks for NaN


class Step(NamedTuple):
    """An update rule, made by :func:`gradient_descent`, :func:`normalized` or :func:`steepest`.

    ``norm`` is None for plain gradient descent; otherwise step k has length ``rate / (k + 1)**decay`` in that
    norm.
    """

    norm: str | None
    rate: float
    decay: float = 0.0


def gradient_descent(rate: float) -> Step:
    r"""Plain gradient descent, :math:`w\leftarrow w-\eta\nabla\mathcal L(w)`.

    Parameters
    ----------
    rate : float
        Step size :math:`\eta>0`.

    Returns
    -------
    Step
        For :func:`descend`.

    Raises
    ------
    DataError
        If ``rate`` is not a positive number.
    """
    return Step(None, check_positive(rate, "rate"))


def normalized(rate: float) -> Step:
    r"""Normalised gradient descent, :math:`w\leftarrow w-\eta\nabla\mathcal L/\|\nabla\mathcal L\|`.

    Parameters
    ----------
    rate : float
        Length of a step, :math:`\eta>0`.

    Returns
    -------
    Step
        For :func:`descend`; the same as ``steepest("l2", rate)``.

    Raises
    ------
    DataError
        If ``rate`` is not a positive number.
    """
    return Step("l2", check_positive(rate, "rate"))


def steepest(norm: str, rate: float, decay: float = 0.0) -> Step:
    r"""Normalised steepest descent: a step in the direction of a norm in which the loss falls fastest.

    :math:`w\leftarrow w+\eta_kD_k` with :math:`D_k` maximising :math:`\langle-\nabla\mathcal L,D\rangle` over
    :math:`\|D\|\le1`, and :math:`\eta_k=\eta(k+1)^{-\mathrm{decay}}`.

    Parameters
    ----------
    norm : str
        "l2" (normalised gradient descent), "linf" (sign descent: every coordinate moves by the step size)
        or "l1" (coordinate descent: the coordinate with the largest slope moves).
    rate : float
        :math:`\eta>0`.
    decay : float
        Exponent, :math:`\ge0`.

    Returns
    -------
    Step
        For :func:`descend`.

    Raises
    ------
    DataError
        If an argument is out of range.
    """
    if not isinstance(norm, str) or norm not in _STEEPEST:
        raise DataError(f"norm must be one of {sorted(_STEEPEST)}, got {norm!r}.")
    decay = float(as_float(decay, "decay", ndim=0))
    if decay < 0:
        raise DataError(f"decay must be a finite number >= 0, got {decay!r}.")
    return Step(norm, check_positive(rate, "rate"), float(decay))


def _l2(g: FloatArray) -> FloatArray:
    size = np.sqrt(np.square(g).sum(axis=-2, keepdims=True))
    return np.asarray(g / np.where(size > 0, size, 1.0))


def _l1(g: FloatArray) -> FloatArray:
    out = np.zeros_like(g)
    at = np.abs(g).argmax(axis=-2, keepdims=True)
    np.put_along_axis(out, at, np.sign(np.take_along_axis(g, at, axis=-2)), axis=-2)
    return out


# columns (..., d, 1) in, steepest directions of the same shape out
_STEEPEST: dict[str, Callable[[FloatArray], FloatArray]] = {"l1": _l1, "l2": _l2, "linf": np.sign}


@dataclass(frozen=True, slots=True, eq=False)
class LinearRun(Directions):
    """What a run of :func:`descend` recorded: read-only arrays.

    The properties ``loss`` and ``norm`` and the methods ``correlation`` and ``angle`` are functions of them.
    """

    steps: IntArray
    """(r,) numbers of completed steps at which something was recorded."""
    w: FloatArray
    """(..., r, d) weight vectors."""
    log_loss: FloatArray
    """(..., r) logarithm of the mean loss."""
    margin: FloatArray
    """(..., r) smallest signed margin, min_i y_i <x_i, w>."""

    def __repr__(self) -> str:
        return f"LinearRun({self.steps[-1]} steps, {len(self.steps)} recorded, w {self.w.shape})"


def descend(
    X: ArrayLike,
    y: ArrayLike,
    rule: Step,
    steps: int,
    *,
    start: ArrayLike | None = None,
    record: int | Iterable[int] | None = None,
    loss: str = "logistic",
) -> LinearRun:
    r"""Minimise :math:`\mathcal L(w)=\frac1n\sum_i\ell(y_i\langle x_i,w\rangle)` by steepest descent.

    Parameters
    ----------
    X, y : array_like, shapes (..., n, d) and (..., n)
        Points and labels; batch axes are trained side by side.
    rule : Step
        :func:`gradient_descent`, :func:`normalized` or :func:`steepest`.
    steps : int
        Number of steps.
    start : array_like, shape (..., d), optional
        Initial weights, 0 by default.
    record : int or iterable of int, optional
        When to record, see :func:`svmlib.dynamics.record_steps`.
    loss : str
        "logistic", "exponential" or "polynomial".

    Returns
    -------
    LinearRun
        Records at the chosen steps.

    Raises
    ------
    ShapeError, DataError
        If an argument does not fit.
    SolverError
        If the weights become NaN or infinite.

    Notes
    -----
    A normalised step needs the direction of the gradient alone. It is computed after dividing by the largest
    of the example weights, so it stays right when all of them underflow.

    Examples
    --------
    >>> run = descend([[2.0], [-1.0]], [1, -1], normalized(0.5), steps=4, record=[4])
    >>> run.w, run.margin
    (array([[2.]]), array([2.]))
    """
    if not isinstance(rule, Step):
        raise DataError(
            "rule must come from gradient_descent, normalized or steepest of svmlib.linear, called with a "
            f"step size, as in linear.normalized(0.1); got {type(rule).__module__}.{type(rule).__name__}."
        )
    if rule.norm is None:
        gradient_descent(rule.rate)
    else:
        steepest(rule.norm, rule.rate, rule.decay)
    A, ell, when = signed_points(X, y), get_loss(loss), record_steps(record, steps)
    shape = (*A.shape[:-2], A.shape[-1])
    w = np.zeros(shape) if start is None else as_float(start, "start", last=(A.shape[-1],))
    try:
        w = np.broadcast_to(w, shape)[..., None].copy()
    except ValueError:
        raise ShapeError(f"start must have shape {shape} or broadcast to it, got {w.shape}.") from None
    back = np.ascontiguousarray(np.swapaxes(A, -1, -2))
    # the direction of a gradient does not depend on the scale of the points, but its squares might overflow
    toward = back if rule.norm is None else np.ascontiguousarray(norms.scaled(back)[0])
    records: list[FloatArray] = []
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for first, last in zip([0, *when[:-1]], when, strict=True):
            w = _advance(A, toward, w, rule, ell, int(first), int(last))
            records.append(w[..., 0])
        iterates = np.stack(records, axis=-2)
        margins = iterates @ back  # (..., r, n)
        log_loss = log_mean_exp(ell.log_value(margins))
    return LinearRun(frozen(when), frozen(iterates), frozen(log_loss), frozen(margins.min(axis=-1)))


def _advance(
    A: FloatArray, back: FloatArray, w: FloatArray, rule: Step, loss: LinearLoss, first: int, last: int
) -> FloatArray:
    """Take steps ``first`` to ``last`` - 1 from the columns ``w`` (..., d, 1)."""
    rate = rule.rate / A.shape[-2] if rule.norm is None else rule.rate
    direction = None if rule.norm is None else _STEEPEST[rule.norm]
    for k in range(first, last):
        log_weight = loss.log_slope(A @ w)
        if direction is None:
            w = w + back @ (rate * np.exp(log_weight))
        else:
            length = rate / (k + 1) ** rule.decay if rule.decay else rate
            w = w + length * direction(back @ np.exp(log_weight - log_weight.max(axis=-2, keepdims=True)))
        if k % CHECK_EVERY == 0 or k == last - 1:
            _check_finite(w, k + 1)
    return w


def _check_finite(w: FloatArray, k: int) -> None:
    bad = ~np.isfinite(w[..., 0]).all(axis=-1)
    if bad.any():
        raise SolverError(
            f"Descent left the finite numbers by step {k} in {int(bad.sum())} of {bad.size} instances. "
            "Use a smaller step size, or normalized steps."
        )
