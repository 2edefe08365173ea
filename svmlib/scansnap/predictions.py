r"""What *Scan and Snap* predicts: the decoder's progress, its speed, and how far attention grows.

With M tokens, C classes met equally often, and the decoder's rate :math:`\eta`, one class trains for the time
:math:`t/C` of t steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import wrightomega

from svmlib.arrays import FloatArray, as_float, check_integer, check_positive
from svmlib.errors import DataError

__all__ = [
    "accumulated_speed",
    "best_rate",
    "log_growth",
    "progress",
    "progress_steps",
    "speed",
    "suppression",
    "transition",
]


def _positive(a: ArrayLike, name: str, *, zero: bool = False) -> FloatArray:
    values = as_float(a, name)
    if not ((values >= 0) if zero else (values > 0)).all():
        raise DataError(f"{name} must {'not be negative' if zero else 'be positive'}, got {values.min():g}.")
    return values


def _class_progress(t: ArrayLike, M: int, C: int, rate: ArrayLike) -> FloatArray:
    # h(t/C): of t steps, a class has every C-th
    return progress(_positive(t, "t", zero=True) / check_integer(C, "C"), M, rate)


def progress(t: ArrayLike, M: int, rate: ArrayLike = 1.0) -> FloatArray:
    r"""Solve :math:`e^{Mh}+(M-1)Mh=M\eta t+1`, the decoder's progress under gradient flow.

    Parameters
    ----------
    t : array_like
        Training time spent on the class.
    M : int
        Number of tokens, at least 2.
    rate : array_like
        Learning rate :math:`\eta` of the decoder.

    Returns
    -------
    ndarray
        h(t), accurate to round-off for all t.

    Notes
    -----
    *Scan and Snap* (2023), Lemma 6; solved with Wright's omega function.

    Examples
    --------
    >>> float(progress(0.0, M=50))
    0.0
    """
    M = check_integer(M, "M", 2)
    x = M * _positive(rate, "rate") * _positive(t, "t", zero=True)  # e^u - 1 + (M - 1) u = x with u = M h
    a = (x + 1.0) / (M - 1)
    u = np.maximum(a - np.real(wrightomega(a - np.log(M - 1.0))), 0.0)
    top = np.log1p(x)  # an upper bound: the difference above loses digits
    u = np.where(a > 1e6, top, np.minimum(u, top))
    for _ in range(3):
        small = np.exp(-u)  # e^u may overflow
        u = u - (((M - 1) * u - x) * small - np.expm1(-u)) / (1.0 + (M - 1) * small)
    return np.asarray(np.maximum(u, 0.0) / M)


def progress_steps(steps: int, M: int, rate: float = 1.0) -> FloatArray:
    r"""Iterate :math:`h^\ast(s)=h^\ast(s-1)+\eta/(M-1+e^{Mh^\ast(s-1)})`, the progress of plain steps.

    Parameters
    ----------
    steps : int
        Number of steps on the class.
    M : int
        Number of tokens, at least 2.
    rate : float
        Learning rate of the decoder.

    Returns
    -------
    ndarray, shape (steps + 1,)
        h* from step 0 on.

    Notes
    -----
    *Scan and Snap* (2023), Lemma 5.
    """
    M, count, eta = check_integer(M, "M", 2), check_integer(steps, "steps", 0), check_positive(rate, "rate")
    out = np.zeros(count + 1)
    for s in range(count):
        out[s + 1] = out[s] + eta / (M - 1 + np.exp(M * out[s]))
    return out


def speed(t: ArrayLike, M: int, C: int, rate: ArrayLike = 1.0) -> FloatArray:
    r"""Compute the decoder's speed :math:`\rho(t)=(M-1)^2h(t/C)/(M-1+e^{Mh(t/C)})`.

    Parameters
    ----------
    t : array_like
        Number of steps, classes drawn equally often.
    M, C : int
        Numbers of tokens and of classes.
    rate : array_like
        Learning rate of the decoder.

    Returns
    -------
    ndarray
        The speed: it rises like :math:`\eta t/C`, and falls like the inverse of the time.

    Notes
    -----
    *Scan and Snap* (2023), Lemma 9, where it is called gamma.
    """
    h = _class_progress(t, M, C, rate)
    small = np.exp(-M * h)
    return np.asarray((M - 1.0) ** 2 * h * small / (1.0 + (M - 1) * small))


def accumulated_speed(
    t: ArrayLike, M: int, C: int, rate: ArrayLike = 1.0, attention_rate: ArrayLike = 1.0
) -> FloatArray:
    r"""Integrate the speed: :math:`G(t)=\eta_Z\int_0^t\rho=\eta_ZC(M-1)^2h^2(t/C)/(2\eta)`.

    Parameters
    ----------
    t : array_like
        Number of steps.
    M, C : int
        Numbers of tokens and of classes.
    rate, attention_rate : array_like
        Learning rates of the decoder and of attention.

    Returns
    -------
    ndarray
        The integral.
    """
    h = _class_progress(t, M, C, rate)
    ratio = _positive(attention_rate, "attention_rate", zero=True) / as_float(rate, "rate")
    return np.asarray(0.5 * ratio * C * (M - 1.0) ** 2 * h**2)


def suppression(
    t: ArrayLike,
    *,
    M: int,
    C: int,
    rate: ArrayLike = 1.0,
    attention_rate: ArrayLike = 1.0,
    C0: ArrayLike = 1.0,
) -> FloatArray:
    r"""Compute :math:`\frac14\log(1+4G(t)/C_0)`, by how much the logit of the one common token has fallen.

    It solves :math:`\dot z=-\eta_Z\rho\,e^{4z}/C_0` from z = 0, the closed approximation of snapping.

    Parameters
    ----------
    t : array_like
        Number of steps.
    M, C : int
        Numbers of tokens and of classes.
    rate, attention_rate : array_like
        Learning rates of the decoder and of attention.
    C0 : array_like
        Constant of the approximation, :math:`N^4/C`, where N stands for the norm of attention.

    Returns
    -------
    ndarray
        Minus the logit, which is 0 at t = 0.

    Notes
    -----
    *Scan and Snap* (2023), section 6; its Theorem 4 prints :math:`\frac14\log(C_0+4G)` for B.
    """
    G = accumulated_speed(t, M, C, rate, attention_rate)
    return np.asarray(0.25 * np.log1p(4.0 * G / _positive(C0, "C0")))


def log_growth(
    t: ArrayLike,
    *,
    M: int,
    C: int,
    rate: ArrayLike = 1.0,
    attention_rate: ArrayLike = 1.0,
    C0: ArrayLike = 1.0,
) -> FloatArray:
    r"""Compute :math:`B(t)=\frac1{4C}\log(1+4G(t)/C_0)`, a bound on the growth of distinct tokens.

    The growth factor of the dominant one lies between :math:`e^{2f^2(0)B}` and :math:`e^{2B}`.

    Parameters
    ----------
    t : array_like
        Number of steps.
    M, C : int
        Numbers of tokens and of classes.
    rate, attention_rate : array_like
        Learning rates of the decoder and of attention.
    C0 : array_like
        Constant of the approximation, as for :func:`suppression`.

    Returns
    -------
    ndarray
        B, which is 0 at t = 0: the :func:`suppression` of the common token, divided among the classes.

    Notes
    -----
    *Scan and Snap* (2023), Theorem 4, with the constant of integration and the factor 1/C missing there.
    """
    return np.asarray(suppression(t, M=M, C=C, rate=rate, attention_rate=attention_rate, C0=C0) / C)


def best_rate(t: ArrayLike, M: int, C: int) -> FloatArray:
    r"""Compute the decoder's learning rate for which :math:`G(t)`, at a given attention rate, is largest.

    It is :math:`C\theta_*/t`, where :math:`\theta_*` is the time of one class with
    :math:`(u-2)e^u+2=(M-1)u` for :math:`u=Mh(\theta_*)`.

    Parameters
    ----------
    t : array_like
        Number of steps, positive.
    M, C : int
        Numbers of tokens and of classes.

    Returns
    -------
    ndarray
        The rate; a slower decoder has not taken off by time t, a faster one has stopped to send gradients.
    """
    M, time = check_integer(M, "M", 2), _positive(t, "t")
    low = np.log(M)
    u = brentq(lambda u: (u - 2.0) * np.exp(u) + 2.0 - (M - 1.0) * u, low, low + 2.0, xtol=1e-14)
    theta = (np.expm1(u) + (M - 1.0) * u) / M
    return np.asarray(check_integer(C, "C") * theta / time)


def transition(M: int, C: int, rate: ArrayLike = 1.0) -> FloatArray:
    r"""Compute the time :math:`t_0'=C\log M/\eta` up to which the decoder's speed rises.

    Parameters
    ----------
    M, C : int
        Numbers of tokens and of classes.
    rate : array_like
        Learning rate of the decoder.

    Returns
    -------
    ndarray
        The time in steps; snapping begins at about twice of it.
    """
    return np.asarray(check_integer(C, "C") * np.log(check_integer(M, "M", 2)) / _positive(rate, "rate"))
