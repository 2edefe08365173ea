r"""Attention behind a decoder that has always done what its own closed form says.

If the decoder is much faster than attention, it is at every time the shortest one with the logits that
training a fixed feature would have reached, :math:`D=F(F^\top F)^{-1}\bar W(t)`. What it sends down is then
:math:`g_c=\rho(t)\bigl(f_c-\sum_{c'}E'_{cc'}f_{c'}\bigr)`, and only the attention logits are left to follow.

This is the model of the paper, whose Lemma 3 modifies the gradient so that classes decouple. The exact
gradient leads to :math:`D=FA` with other coefficients; :func:`svmlib.scansnap.flow` follows it. There the
force on attention has the same sign, but can be smaller by orders of magnitude.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray, frozen
from svmlib.errors import DataError

from ._ode import conditions, integrate
from .layer import attention, features
from .predictions import speed
from .process import TokenProcess

__all__ = ["ReducedFlow", "force", "reduced_flow", "velocity"]


@dataclass(frozen=True, slots=True, eq=False)
class ReducedFlow:
    """The state of the reduced flow at the times asked for."""

    times: FloatArray
    """(r,) times."""
    s: FloatArray
    """(r, C, M) attention by token type."""
    z: FloatArray
    """(r, Q, M) attention logits of the query tokens."""
    speed: FloatArray
    r"""(r, C) :math:`\rho`, the decoder's speed; equal for all classes if these are equally frequent."""
    force: FloatArray
    r"""(r, C) :math:`\xi_c`, the driving force on distinct tokens."""
    growth: FloatArray
    r"""(r, C) :math:`B_c=\eta_Z\mathbb P(c)\int\xi_c`, which bounds the growth of logits."""


def force(process: TokenProcess, z: ArrayLike) -> FloatArray:
    r"""Compute the driving force :math:`\xi_c` at speed 1, :math:`[(F^\top F)^{-1}]_{cc}-1`.

    Parameters
    ----------
    process : TokenProcess
        Classes and their frequencies.
    z : array_like, shape (..., Q, M)
        Attention logits.

    Returns
    -------
    ndarray, shape (..., C)
        Never negative; 0 for a class whose feature is orthogonal to all others.

    Raises
    ------
    DataError
        If the features of the classes are linearly dependent.

    Notes
    -----
    *Scan and Snap* (2023), Theorem 1, where it is :math:`\sum_{c'\ne c}\beta_{cc'}f_c^\top f_{c'}`.
    """
    return _pull(process, features(attention(process, z)))[1]


def velocity(process: TokenProcess, z: ArrayLike) -> FloatArray:
    r"""Compute :math:`\dot z` at speed and learning rate 1, for a decoder in its closed form.

    Parameters
    ----------
    process : TokenProcess
        Classes and their frequencies.
    z : array_like, shape (..., Q, M)
        Attention logits.

    Returns
    -------
    ndarray, shape (..., Q, M)
        Velocity of every logit; the sum over tokens is 0.

    Raises
    ------
    DataError
        If the features of the classes are linearly dependent.

    Notes
    -----
    *Scan and Snap* (2023), Lemma 4, with the probabilities of the classes as weights.
    """
    f = features(attention(process, z))
    return _collect(process, f, _pull(process, f)[0], process.prior)


def reduced_flow(
    process: TokenProcess,
    times: ArrayLike,
    decoder_rate: float = 1.0,
    attention_rate: float = 1.0,
    *,
    z: ArrayLike | None = None,
    rtol: float = 1e-9,
) -> ReducedFlow:
    r"""Follow the attention logits behind a decoder in its closed form.

    Parameters
    ----------
    process : TokenProcess
        Classes and their frequencies.
    times : array_like, shape (r,)
        Increasing times, not negative.
    decoder_rate, attention_rate : float
        Learning rates.
    z : array_like, shape (Q, M), optional
        Attention logits at time 0, zeros by default.
    rtol : float
        Relative accuracy of the solver.

    Returns
    -------
    ReducedFlow
        The state at these times.

    Raises
    ------
    DataError
        If times are negative or do not increase, or the features of classes are linearly dependent.
    SolverError
        If the solver gives up.

    Notes
    -----
    *Scan and Snap* (2023), section 5, with the probabilities of the classes as weights: time counts steps.
    """
    when, eta_D, eta_Z, start = conditions(process, times, decoder_rate, attention_rate, z)
    Q, C, M = len(process.queries), process.C, process.M

    def speeds(t: ArrayLike) -> FloatArray:
        own = np.asarray(t, dtype=float)[..., None] * process.prior
        return speed(own, M, 1, eta_D) if eta_D else np.zeros(own.shape)

    def slope(t: float, y: FloatArray) -> FloatArray:
        f = features(attention(process, y[: Q * M].reshape(Q, M)))
        pull, xi = _pull(process, f)
        weight = eta_Z * process.prior * speeds(t)
        return np.concatenate([_collect(process, f, pull, weight).ravel(), weight * xi])

    states = integrate(slope, when, np.append(start.ravel(), np.zeros(C)), rtol)
    Z = states[:, : Q * M].reshape(-1, Q, M)
    rho = speeds(when)
    values = (attention(process, Z), Z, rho, rho * force(process, Z), states[:, Q * M :])
    return ReducedFlow(frozen(when), *(frozen(a) for a in values))


def _pull(process: TokenProcess, f: FloatArray) -> tuple[FloatArray, FloatArray]:
    # (..., C, M) part of g_c / rho across f_c, and (..., C) minus its part along f_c beyond f_c itself
    gram = f @ f.swapaxes(-1, -2)
    try:
        inverse = np.linalg.inv(gram)
    except np.linalg.LinAlgError:
        inverse = np.full(gram.shape, np.nan)
    if not np.isfinite(inverse).all() or np.abs(inverse).max() > 1e12:
        raise DataError(
            "The features of the classes are linearly dependent, so no decoder has independent logits for "
            "them. Two classes may have the same frequencies, or one be a mixture of others."
        )
    g = inverse @ f
    return g - f * (f * g).sum(-1, keepdims=True), np.einsum("...cc->...c", inverse) - 1.0


def _collect(process: TokenProcess, f: FloatArray, pull: FloatArray, weight: FloatArray) -> FloatArray:
    out = np.zeros((*f.shape[:-2], len(process.queries), process.M))
    for c, row in enumerate(process.row):
        out[..., row, :] += weight[c] * f[..., c, :] * pull[..., c, :]
    return out
