r"""Scanning in closed form: along which curve attention logits move, whatever the learning rates.

Behind a decoder in its closed form the logits of the distinct tokens of a class share one constant,
:math:`(e^{-2z_l(0)}-e^{-2z_l})/\mathbb P(l\mid c)^2`. Learning rates decide how far a run gets on the curve
that this describes, and not where the curve goes (*Scan and Snap* 2023, Theorem 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray, as_float, check_integer, check_positive, frozen
from svmlib.errors import DataError, ShapeError

from .process import TokenProcess

__all__ = ["SymmetricPath", "growth_constant", "growth_curve", "log_steps", "symmetric_path"]

PANEL = 0.125  # length of a panel of the quadrature: the integrand changes by a moderate factor on it
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)


def growth_constant(process: TokenProcess, z: ArrayLike, start: ArrayLike | None = None) -> FloatArray:
    r"""Compute :math:`(e^{-2z_{ql}(0)}-e^{-2z_{ql}})/\mathbb P(l\mid c)^2` for each class and token.

    Parameters
    ----------
    process : TokenProcess
        Classes and their frequencies.
    z : array_like, shape (..., Q, M)
        Attention logits.
    start : array_like, shape (Q, M), optional
        Attention logits at time 0, zeros by default.

    Returns
    -------
    ndarray, shape (..., C, M)
        The constant; NaN where the class does not have the token. In the reduced flow it is the same for all
        distinct tokens of a class.

    Raises
    ------
    ShapeError
        If z or start does not fit the process.

    Notes
    -----
    *Scan and Snap* (2023), Theorem 3, written without time.

    Examples
    --------
    >>> from svmlib.scansnap import reduced_flow, symmetric
    >>> process = symmetric(2, [0.5], [0.3, 0.2])
    >>> growth_constant(process, reduced_flow(process, [100.0]).z)[0, 0, 1:3].round(4)
    array([6.1332, 6.1332])
    """
    shape = (len(process.queries), process.M)
    now = as_float(z, "z", last=shape, meaning="query tokens x tokens")
    first = np.zeros(shape) if start is None else as_float(start, "start", ndim=2, last=shape)
    change = (np.exp(-2 * first) * -np.expm1(-2 * (now - first)))[..., process.row, :]
    present = process.P > 0
    return np.asarray(np.where(present, change / np.where(present, process.P, 1.0) ** 2, np.nan))


def growth_curve(weights: ArrayLike, grown: ArrayLike) -> FloatArray:
    r"""Tell how far the other distinct tokens of a class get when the first one has grown that far.

    .. math:: e^{-2\Delta z_l}=1-\frac{w_l^2}{w_0^2}\bigl(1-e^{-2\Delta z_0}\bigr),\qquad
       w_l=\mathbb P(l\mid c)e^{z_l(0)} .

    Parameters
    ----------
    weights : array_like, shape (k,)
        :math:`w_l`, with the reference token first; none may be larger than that.
    grown : array_like, shape (...)
        :math:`\Delta z_0\ge0`, infinity allowed: the limits of all logits.

    Returns
    -------
    ndarray, shape (..., k)
        :math:`\Delta z_l`.

    Raises
    ------
    DataError
        If a weight is not positive or larger than the first, or growth is negative.

    Notes
    -----
    *Scan and Snap* (2023), Theorem 3.

    Examples
    --------
    >>> growth_curve([0.3, 0.2, 0.1], np.inf).round(3)  # only the first has no limit
    array([  inf, 0.294, 0.059])
    """
    w = as_float(weights, "weights", ndim=1)
    if not w.size or (w <= 0).any() or (w > w[0]).any():
        raise DataError("weights must be positive, and none larger than the first, which is the reference.")
    far = as_float(grown, "grown", finite=False)
    if not (far >= 0).all():
        raise DataError(f"grown must not be negative, got {far.min():g}.")
    share = (w / w[0]) ** 2
    with np.errstate(divide="ignore"):
        return np.asarray(-0.5 * np.log((1 - share) + share * np.exp(-2 * far[..., None])))


@dataclass(frozen=True, slots=True, eq=False)
class SymmetricPath:
    """The path of symmetric classes with a clock on it."""

    z: FloatArray
    """(r, 1, M) attention logits."""
    G: FloatArray
    r"""(r,) accumulated speed :math:`G=\eta_Z\int\rho` at which the reduced flow is there."""


def symmetric_path(process: TokenProcess, grown: ArrayLike) -> SymmetricPath:
    r"""Compute the whole path of the reduced flow for classes that are alike, from Z = 0.

    Parameters
    ----------
    process : TokenProcess
        As :func:`symmetric` makes it: one query, common tokens with the same frequencies in all classes,
        distinct tokens with the same frequencies in each.
    grown : array_like, shape (r,)
        Increasing logits of the most frequent distinct token, not negative.

    Returns
    -------
    SymmetricPath
        Logits of all tokens, and the accumulated speed at which they are reached.

    Raises
    ------
    DataError
        If the process is not symmetric, or ``grown`` does not increase from 0 on.
    ShapeError
        If ``grown`` has another shape.

    Notes
    -----
    With a and b the sums of :math:`\mathbb P(l\mid c)^2e^{2z_l}` over common and over distinct tokens,
    :math:`\mathrm dG/\mathrm dz_0=C(a+b)b(Ca+b)/\bigl((C-1)a^2\mathbb P(l_0\mid c)^2e^{2z_0}\bigr)`,
    integrated with Gauss's rule on short panels.

    Examples
    --------
    >>> from svmlib.scansnap import symmetric
    >>> path = symmetric_path(symmetric(2, [0.5], [0.3, 0.2]), [0.0, 0.1])
    >>> path.z[1, 0, :3].round(3), path.G.round(3)
    (array([-0.284,  0.1  ,  0.042]), array([0.   , 1.396]))
    """
    common, distinct = _frequencies(process)
    C = process.C
    far = as_float(grown, "grown", ndim=1)
    if not far.size:
        raise ShapeError("grown is empty: give at least one logit of the most frequent distinct token.")
    if (far < 0).any() or (np.diff(far) <= 0).any():
        raise DataError("grown must increase, and not be negative: the logit of that token rises from 0.")
    order = np.argsort(-distinct, kind="stable")

    def logits(z0: FloatArray) -> tuple[FloatArray, FloatArray]:
        own = np.empty((*z0.shape, distinct.size))
        own[..., order] = growth_curve(distinct[order], z0)
        return _suppressed(common, C * own.sum(-1)), own

    def rate(z0: FloatArray) -> FloatArray:
        z_common, z_own = logits(z0)
        a = ((common * np.exp(z_common)) ** 2).sum(-1)
        b = ((distinct * np.exp(z_own)) ** 2).sum(-1)
        return np.asarray(C * (a + b) * b * (C * a + b) / ((C - 1) * (a * distinct.max() * np.exp(z0)) ** 2))

    edges = np.concatenate([[0.0], far])
    G = np.empty(far.size)
    total = 0.0
    for k, (low, high) in enumerate(pairwise(edges)):
        ends = np.linspace(low, high, 1 + max(1, int(np.ceil((high - low) / PANEL))))
        half = 0.5 * np.diff(ends)[:, None]
        total += float((half * WEIGHTS * rate(ends[:-1, None] + half * (1 + NODES))).sum())
        G[k] = total
    z_common, z_own = logits(far)
    z = np.zeros((far.size, 1, process.M))
    z[:, 0, process.common] = z_common
    for own in process.distinct:
        z[:, 0, own] = z_own
    return SymmetricPath(frozen(z), frozen(G))


def _frequencies(process: TokenProcess) -> tuple[FloatArray, FloatArray]:
    # frequencies of the common tokens, and of the distinct ones of a class
    common = process.P[:, process.common]
    counts = process.distinct.sum(1)
    alike = (
        process.C > 1 and len(process.queries) == 1 and common.size > 0 and counts.min() == counts.max() > 0
    )
    if alike:
        own = np.stack([P[d] for P, d in zip(process.P, process.distinct, strict=True)])
        alike = all(np.allclose(a, a[0], rtol=1e-12, atol=0.0) for a in (common, own, process.prior))
    if not alike:
        raise DataError(
            "The process is not symmetric: it needs two classes or more, equally probable, with one "
            "query, the same "
            "frequencies of common tokens, and the same frequencies of their distinct tokens, in the "
            "same order."
        )
    return common[0], own[0]


def _suppressed(common: FloatArray, gained: FloatArray) -> FloatArray:
    # z_l = -log(1 + P_l^2 kappa) / 2 with sum -gained: find u = log kappa by bisection
    p = 2 * np.log(common)
    y = 2 * np.asarray(gained, dtype=float)
    low = np.full(y.shape, -80.0)
    high = np.maximum(y - p.max(), -p.max()) + 2.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        above = np.logaddexp(0.0, middle[..., None] + p).sum(-1) > y
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    u = 0.5 * (low + high)
    return np.asarray(np.where(y[..., None] > 0, -0.5 * np.logaddexp(0.0, u[..., None] + p), 0.0))


def log_steps(G: ArrayLike, M: int, C: int, rate: float = 1.0, attention_rate: float = 1.0) -> FloatArray:
    r"""Compute the logarithm of the number of steps after which the accumulated speed is G.

    Parameters
    ----------
    G : array_like
        Accumulated speed, not negative; the inverse of :func:`accumulated_speed`.
    M, C : int
        Numbers of tokens and of classes.
    rate, attention_rate : float
        Learning rates of the decoder and of attention, positive.

    Returns
    -------
    ndarray
        Natural logarithm of t: t itself may exceed all floating-point numbers. Minus infinity at G = 0.

    Raises
    ------
    DataError
        If G is negative or a rate is not positive.

    Examples
    --------
    >>> from svmlib.scansnap import accumulated_speed
    >>> float(accumulated_speed(np.exp(log_steps(2.0, 50, 4)), 50, 4).round(12))
    2.0
    """
    M, C = check_integer(M, "M", 2), check_integer(C, "C")
    eta, eta_Z = check_positive(rate, "rate"), check_positive(attention_rate, "attention_rate")
    value = as_float(G, "G")
    if (value < 0).any():
        raise DataError(f"G must not be negative, got {value.min():g}.")
    u = M * np.sqrt(2 * value * eta / (C * eta_Z)) / (M - 1)  # M h
    # t = C (e^u - 1 + (M - 1) u) / (M eta)
    with np.errstate(divide="ignore", over="ignore"):
        small = np.log(np.expm1(np.minimum(u, 30.0)) + (M - 1) * u)
        large = u + np.log1p(np.exp(-u) * ((M - 1) * u - 1))
        return np.asarray(np.where(u < 30.0, small, large) + np.log(C / (M * eta)))
