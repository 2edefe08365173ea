r"""The decoder alone, attention held fixed: what can be said in closed form.

From D = 0 the decoder stays in the span of the features, :math:`D=FA`, so what it sends down is
:math:`g_c=\sum_{c'}\langle a_{c'},r_c\rangle f_{c'}` with the residuals :math:`r_c=e_c-\pi_c`. For
classes that are alike the gradient flow of the decoder is one integral.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import lambertw

from svmlib.arrays import FloatArray, as_float, check_integer, check_positive, frozen
from svmlib.errors import DataError

from .layer import attention, features
from .process import TokenProcess

__all__ = ["SymmetricDecoder", "decompose", "peak", "residual_time", "symmetric_decoder"]

PANEL = 0.5  # by how much the largest logarithm may grow over one panel of the quadrature
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)
HIGHEST = 690.0  # largest exponent: e^690 is a number
LATEST = 600.0  # logarithm of the latest time of one class; its quadrature stays below HIGHEST


def decompose(process: TokenProcess, sent: ArrayLike, z: ArrayLike) -> FloatArray:
    r"""Write gradients that were sent down as combinations of the features.

    Parameters
    ----------
    process : TokenProcess
        Classes and their frequencies.
    sent : array_like, shape (..., C, M)
        A vector :math:`g_c` for each class; its part across the features is left out.
    z : array_like, shape (..., Q, M)
        Attention logits, which say what the features are.

    Returns
    -------
    ndarray, shape (..., C, C)
        Entry (c, c') is the coefficient of :math:`f_{c'}` in :math:`g_c`.

    Raises
    ------
    DataError
        If the features are linearly dependent, so that coefficients are not unique.

    Notes
    -----
    *Scan and Snap* (2023), Theorem 1.
    """
    g = as_float(sent, "sent", last=(process.C, process.M), meaning="classes and tokens of the process")
    f = features(attention(process, z))
    gram = f @ f.swapaxes(-1, -2)
    if (np.linalg.eigvalsh(gram)[..., 0] < 1e-12).any():
        raise DataError(
            "The features are linearly dependent, so a vector has no unique coefficients on them."
        )
    return np.asarray(np.linalg.solve(gram, f @ g.swapaxes(-1, -2)).swapaxes(-1, -2))


def peak(M: int, C: int, rate: float = 1.0) -> tuple[float, float]:
    r"""Compute when the decoder's speed is largest, and how large: :math:`(1-\frac1M)W_0(\frac{M-1}e)`.

    Parameters
    ----------
    M, C : int
        Numbers of tokens and of classes.
    rate : float
        Learning rate of the decoder.

    Returns
    -------
    time : float
        Number of steps.
    value : float
        The largest speed, whatever the rate and the number of classes.

    Notes
    -----
    :math:`W_0` is Lambert's function. *Scan and Snap* (2023), Lemma 9, has the order of magnitude.

    Examples
    --------
    >>> [round(x, 3) for x in peak(1000, 10)]
    [56.401, 4.416]
    """
    M, eta = check_integer(M, "M", 2), check_positive(rate, "rate")
    w = float(np.real(lambertw((M - 1) / np.e)))
    u = 1.0 + w  # (u - 1) e^u = M - 1
    theta = ((M - 1) * (u + 1.0 / w) - 1.0) / M
    return check_integer(C, "C") * theta / eta, (1.0 - 1.0 / M) * w


def residual_time(epsilon: ArrayLike, M: int, C: int, rate: float = 1.0) -> FloatArray:
    r"""Compute when :math:`\|e_c-\pi_c\|=\varepsilon`, for classes that train independently from D = 0.

    Parameters
    ----------
    epsilon : array_like
        Lengths of the residual, positive.
    M, C : int
        Numbers of tokens and of classes.
    rate : float
        Learning rate of the decoder.

    Returns
    -------
    ndarray
        Time in steps; 0 where the residual is no longer than that from the start.

    Notes
    -----
    *Scan and Snap* (2023), Corollary 1, has an upper bound on its order.
    """
    M, length, eta = check_integer(M, "M", 2), as_float(epsilon, "epsilon"), check_positive(rate, "rate")
    if not (length > 0).all():
        raise DataError(f"epsilon must be positive: no finite time has residual {length.min():g}.")
    top = np.maximum(np.sqrt(M * (M - 1.0)) / length - (M - 1), 1.0)
    return np.asarray(check_integer(C, "C") * (top - 1 + (M - 1) * np.log(top)) / (M * eta))


@dataclass(frozen=True, slots=True, eq=False)
class SymmetricDecoder:
    """A decoder over fixed features with equal overlaps, at the times asked for."""

    times: FloatArray
    """(r,) times."""
    clock: FloatArray
    r"""(r,) :math:`\Pi_o`, the accumulated probability of a token that is no next token."""
    wrong: FloatArray
    r"""(r,) :math:`\Pi_w`, the accumulated probability of the next token of another class."""
    logits: FloatArray
    """(r, 3) of the class's own next token, of those of other classes, of all other tokens."""
    log_probabilities: FloatArray
    """(r, 3) of one such token each."""
    sent: FloatArray
    r"""(r, 2) coefficients of :math:`g_c`: on :math:`f_c`, and on each other feature."""
    force: FloatArray
    r"""(r,) :math:`\xi_c`, minus overlap times the sum of the coefficients on other features."""


def symmetric_decoder(
    times: ArrayLike, overlap: float, *, M: int, C: int, rate: float = 1.0
) -> SymmetricDecoder:
    r"""Solve the gradient flow of the decoder for features with equal overlaps, from D = 0.

    With the clock :math:`\Pi_o`, :math:`\mu=1-\kappa+\kappa M` and :math:`\bar\mu=\mu/(1-\kappa)`,

    .. math:: \Pi_w=\frac{\log\bigl((e^{\mu\Pi_o}+\bar\mu-1)/\bar\mu\bigr)}{1-\kappa},\qquad
       t=\frac C\eta\int_0^{\Pi_o}\bigl(e^x+(C-1)e^y+M-C\bigr)\,\mathrm d\Pi_o,

    where :math:`y=\mu\Pi_o-(1-\kappa)\Pi_w` and
    :math:`x=\mu\Pi_o+(1-\kappa)\bigl((C-1)\Pi_w+(M-C)\Pi_o\bigr)` are logits above those of tokens that are
    no next token.

    Parameters
    ----------
    times : array_like, shape (r,)
        Times in steps, not negative and at most :math:`e^{600}C/\eta`.
    overlap : float
        :math:`\kappa=f_c^\top f_{c'}`, in [0, 1).
    M, C : int
        Numbers of tokens and of classes, M > C.
    rate : float
        Learning rate of the decoder.

    Returns
    -------
    SymmetricDecoder
        The state at these times.

    Raises
    ------
    DataError
        If an argument is out of range.

    Examples
    --------
    >>> found = symmetric_decoder([0.0, 100.0], 0.0, M=50, C=4)
    >>> float(found.clock[1].round(6))  # without overlap: the progress h(100 / 4)
    0.136417
    """
    when, kappa = as_float(times, "times", ndim=1), float(as_float(overlap, "overlap", ndim=0))
    M, C, eta = check_integer(M, "M", 2), check_integer(C, "C"), check_positive(rate, "rate")
    if not 0.0 <= kappa < 1.0:
        raise DataError(f"overlap must lie in [0, 1), got {kappa:g}.")
    if M <= C:
        raise DataError(
            f"M must exceed the number of classes {C}, got {M}: else no token is left for the clock."
        )
    if not when.size or (when < 0).any() or (when * eta / C > np.exp(LATEST)).any():
        raise DataError(f"times must not be empty, nor negative, nor larger than e^{LATEST:.0f} C / rate.")
    mu = 1.0 - kappa + kappa * M
    m = mu / (1.0 - kappa)

    def state(Q: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        P = _log_mean(mu * Q, m) / (1.0 - kappa)
        own = (C - 1) * P + (M - C) * Q
        return P, own, mu * Q + (1.0 - kappa) * own, mu * Q - (1.0 - kappa) * P

    def pace(Q: FloatArray) -> FloatArray:
        _, _, x, y = state(Q)
        return np.asarray(np.exp(x) + (C - 1) * np.exp(y) + (M - C))

    goal = when * eta / C
    steepest = C * mu + (1.0 - kappa) * (M - C)  # of x in Q: e^x changes by at most e^PANEL on a panel
    edges, sums = [0.0], [0.0]
    while sums[-1] < goal.max():
        start = np.asarray(edges[-1] + PANEL / steepest * np.arange(256), dtype=float)
        start = start[state(start)[2] < HIGHEST]
        half = 0.5 * PANEL / steepest
        part = half * (WEIGHTS * pace(start[:, None] + half * (1 + NODES))).sum(1)
        edges.extend(start + 2 * half)
        sums.extend(sums[-1] + np.cumsum(part))
    left, total = np.array(edges), np.array(sums)
    k = np.clip(np.searchsorted(total, goal, side="right") - 1, 0, None)
    Q = left[k] + (goal - total[k]) / pace(left[k])  # to the right of the root: the pace increases
    for _ in range(8):
        half = 0.5 * (Q - left[k])
        done = total[k] + half * (WEIGHTS * pace(left[k][:, None] + half[:, None] * (1 + NODES))).sum(1)
        Q = Q - (done - goal) / pace(Q)
    return _symmetric_record(when, Q, state(Q), kappa, M, C)


def _log_mean(x: FloatArray, m: float) -> FloatArray:
    # log((e^x + m - 1) / m) for x >= 0, m >= 1: neither overflow nor cancellation
    small = np.log1p(np.expm1(np.minimum(x, 1.0)) / m)
    large = x - np.log(m) + np.log1p((m - 1.0) * np.exp(-x))
    return np.asarray(np.where(x < 1.0, small, large))


def _symmetric_record(
    when: FloatArray,
    Q: FloatArray,
    state: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    kappa: float,
    M: int,
    C: int,
) -> SymmetricDecoder:
    P, own, x, y = state
    norm = np.logaddexp(np.logaddexp(x, np.log(M - C)), y + np.log(max(C - 1, 1)) if C > 1 else -np.inf)
    p, q = np.exp(y - norm), np.exp(-norm)
    error = (C - 1) * p + (M - C) * q
    on_own = own * error + (C - 1) * P * p + (M - C) * Q * q
    on_other = -C * P * p - (M - C) * (Q * p + P * q - Q * q)
    base = -(1.0 - kappa) * Q - kappa * C * Q
    values = (
        np.stack([base + x, base + y, base], -1),
        np.stack([x - norm, y - norm, -norm], -1),
        np.stack([on_own, on_other], -1),
        -kappa * (C - 1) * on_other,
    )
    return SymmetricDecoder(frozen(when), frozen(Q), frozen(P), *(frozen(a) for a in values))
