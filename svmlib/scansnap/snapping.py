r"""Classes that are alike and share one token: snapping without approximation.

C classes have one query, one common token l, and J distinct tokens of equal frequency each. By symmetry all
is said by the *overlap* :math:`\kappa=f_{cl}^2=f_c^\top f_{c'}`, squared entry of the common token: the row
of the query sums to 0, so every distinct token has the logit :math:`-z_l/(CJ)`, and

.. math:: v=\frac1\kappa-1=v_0\,e^{-2z_l(1+1/(CJ))}.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp

from svmlib.arrays import FloatArray, as_float, check_integer, check_positive, frozen
from svmlib.errors import DataError, SolverError

from .predictions import accumulated_speed

__all__ = ["Snapping", "symmetric_flow", "symmetric_growth"]

BEGIN = 1e-6  # time of one class, rate x t / C, up to which the first order of the flow is taken


@dataclass(frozen=True, slots=True, eq=False)
class Snapping:
    """Attention of classes that are alike, at the times asked for."""

    overlap: FloatArray
    r"""(r,) :math:`\kappa=f_c^\top f_{c'}` of two classes."""
    common: FloatArray
    """(r,) attention logit of the common token."""
    distinct: FloatArray
    """(r,) attention logit of every distinct token."""


def symmetric_growth(
    t: ArrayLike,
    overlap: float,
    *,
    M: int,
    C: int,
    distinct: int = 1,
    rate: float = 1.0,
    attention_rate: float = 1.0,
) -> Snapping:
    r"""Solve the reduced flow of classes that are alike, in closed form up to one scalar equation.

    .. math:: \Bigl[\tfrac12v^2+(C+1)v+C\log v\Bigr]_{v_0}^{v(t)}=2(C-1)\Bigl(1+\frac1{CJ}\Bigr)G(t)

    Parameters
    ----------
    t : array_like, shape (r,)
        Number of steps.
    overlap : float
        Overlap of two classes at the start, where attention logits are 0; between 0 and 1.
    M, C : int
        Numbers of tokens and of classes.
    distinct : int
        Number J of distinct tokens of each class.
    rate, attention_rate : float
        Learning rates of the decoder and of attention.

    Returns
    -------
    Snapping
        Overlap and logits.

    Raises
    ------
    DataError
        If the overlap is not between 0 and 1.

    Notes
    -----
    The reduced flow is that of :func:`reduced_flow`, behind a decoder in its closed form. The equation is
    solved by Newton's method in log v, from above, where it converges monotonically.

    Examples
    --------
    >>> r = symmetric_growth([0.0, 200.0], 0.3, M=1000, C=10, attention_rate=0.5)
    >>> r.common.round(5)
    array([ 0.     , -1.61695])
    """
    kappa, C, J = _shape(overlap, C, distinct)
    factor = 1.0 + 1.0 / (C * J)
    start = 1.0 / kappa - 1.0
    G = accumulated_speed(as_float(t, "t", ndim=1), M, C, rate, attention_rate)
    target = _potential(np.log(start), C) + 2.0 * (C - 1) * factor * G
    y = 0.5 * np.log(start**2 + 4.0 * (C - 1) * factor * G)  # above the solution: v^2 grows no faster
    for _ in range(60):
        v = np.exp(y)
        y = y - (_potential(y, C) - target) / (v**2 + (C + 1) * v + C)
    common = (np.log(start) - y) / (2.0 * factor)
    return _record(common, C, J, start)


def symmetric_flow(
    log_times: ArrayLike,
    overlap: float,
    *,
    M: int,
    C: int,
    distinct: int = 1,
    rate: float = 1.0,
    attention_rate: float = 1.0,
    rtol: float = 1e-9,
) -> Snapping:
    r"""Follow decoder and attention together, for classes that are alike, to times like :math:`e^{10^6}`.

    It is the gradient flow that :func:`flow` solves, reduced by symmetry to five numbers and integrated over
    the logarithm of time.

    Parameters
    ----------
    log_times : array_like, shape (r,)
        Increasing natural logarithms of times, in steps; none earlier than a millionth of C / rate.
    overlap : float
        Overlap of two classes at the start, where attention logits are 0; between 0 and 1.
    M, C : int
        Numbers of tokens and of classes; M exceeds C.
    distinct : int
        Number J of distinct tokens of each class.
    rate, attention_rate : float
        Learning rates of the decoder and of attention.
    rtol : float
        Relative accuracy of the solver.

    Returns
    -------
    Snapping
        Overlap and logits.

    Raises
    ------
    DataError
        If the overlap is not between 0 and 1, M does not exceed C, or times do not rise or begin too early.
    SolverError
        If the solver gives up.

    Notes
    -----
    The row of D of the common token has an excess X on the C next tokens over the other M - C; rows of a
    class's distinct tokens have p on its next token, q on those of other classes, r elsewhere. With the
    probabilities :math:`\pi_w` of one wrong next token and S of all others together, and
    :math:`R=(C-1)\pi_w+S`,

    .. math:: \dot z_l=\eta_Z\,ab\,\bigl(b\,SX-a\,(pR-(C-1)q\pi_w-rS)\bigr),\qquad a^2=\kappa=1-b^2.

    Examples
    --------
    >>> symmetric_flow(np.log([1e2, 1e6]), 0.3, M=1000, C=10, attention_rate=0.5).common.round(5)
    array([-0.12398, -0.40563])
    """
    kappa, C, J = _shape(overlap, C, distinct)
    M, tokens = check_integer(M, "M"), C * J
    if M <= C:
        raise DataError(f"M must exceed the number of classes {C}, got {M}: some tokens are no next tokens.")
    eta_D, eta_Z = check_positive(rate, "rate"), check_positive(attention_rate, "attention_rate")
    first, when = np.log(BEGIN * C / eta_D), as_float(log_times, "log_times", ndim=1)
    if not when.size or (np.diff(when) <= 0).any() or when[0] < first:
        raise DataError(f"log_times must increase, from no less than {first:.4g} on.")
    start, others = 1.0 / kappa - 1.0, M - C

    def slope(w: float, y: FloatArray) -> FloatArray:
        X, p, q, r, z = y
        v = start * np.exp(-2.0 * z * (1.0 + 1.0 / tokens))
        a, b = 1.0 / np.sqrt(1.0 + v), np.sqrt(v / (1.0 + v))
        wrong, other = -b * (p - q), -a * X - b * (p - r)
        norm = np.log1p((C - 1) * np.exp(wrong) + others * np.exp(other))
        log_t = np.sinh(w)
        t_w, t_o = np.exp(log_t + wrong - norm), np.exp(log_t + other - norm)  # probabilities times t
        S, R = others * t_o, (C - 1) * t_w + others * t_o
        down = b * S * X - a * (p * R - (C - 1) * q * t_w - r * S)
        decoder = eta_D / C * np.array([a * (S + C * t_o), b * R, -b * t_w, -b * t_o])
        return np.asarray(np.cosh(w) * np.append(decoder, eta_Z * a * b * down))

    a, b = np.sqrt(kappa), np.sqrt(1.0 - kappa)
    begin = BEGIN * np.array([a, b * (M - 1) / M, -b / M, -b / M, 0.0])
    w = np.arcsinh(when)  # log t is long at both ends
    with np.errstate(invalid="ignore", over="ignore"):  # BDF computes with memory that it has not yet written
        solved = solve_ivp(
            slope,
            (np.arcsinh(first), w[-1]),
            begin,
            "BDF",
            w,
            rtol=check_positive(rtol, "rtol"),
            atol=1e-3 * rtol,
        )
    if not solved.success:
        raise SolverError(f"The flow could not be followed to log t = {when[-1]:g}: {solved.message}")
    return _record(solved.y[4], C, J, start)


def _potential(y: FloatArray, C: int) -> FloatArray:
    v = np.exp(y)
    return np.asarray(0.5 * v**2 + (C + 1) * v + C * y)


def _record(common: FloatArray, C: int, J: int, start: float) -> Snapping:
    v = start * np.exp(-2.0 * common * (1.0 + 1.0 / (C * J)))
    return Snapping(frozen(1.0 / (1.0 + v)), frozen(common), frozen(-common / (C * J)))


def _shape(overlap: float, C: int, distinct: int) -> tuple[float, int, int]:
    kappa = check_positive(overlap, "overlap")
    if kappa >= 1.0:
        raise DataError(
            f"overlap must lie between 0 and 1, got {kappa:g}: classes with overlap 1 are the same."
        )
    return kappa, check_integer(C, "C", 2), check_integer(distinct, "distinct")
