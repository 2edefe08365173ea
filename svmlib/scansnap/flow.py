r"""Gradient flow in the long-sequence limit, by an adaptive solver.

Tokens that are no next token of any class are predicted alike if they start alike, so their columns of D are
one column; the state then has the size (contextual tokens) x (classes + 1), whatever the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from svmlib.arrays import FloatArray, as_float, frozen

from ._ode import conditions, integrate
from .layer import attention
from .process import TokenProcess

__all__ = ["ScanFlow", "flow"]


@dataclass(frozen=True, slots=True, eq=False)
class ScanFlow:
    """The state of the flow at the times asked for."""

    times: FloatArray
    """(r,) times."""
    loss: FloatArray
    """(r,) cross-entropy of the population."""
    s: FloatArray
    """(r, C, M) attention by token type."""
    z: FloatArray
    """(r, Q, M) attention logits of the query tokens."""
    logits: FloatArray
    """(r, C, M) decoder logits of each class."""
    sent: FloatArray
    r"""(r, C, M) :math:`g_c=D(e_c-\pi_c)`, the gradient sent down; 0 at tokens that are no context."""
    decoder: FloatArray
    """(r, L, C + 1) decoder: rows of the L contextual tokens in their order; columns of the next token of
    each class, and one of any other token."""


def flow(
    process: TokenProcess,
    times: ArrayLike,
    decoder_rate: float = 1.0,
    attention_rate: float = 1.0,
    *,
    z: ArrayLike | None = None,
    decoder: ArrayLike | None = None,
    normalize: bool = True,
    rtol: float = 1e-9,
) -> ScanFlow:
    r"""Solve :math:`\dot D=-\eta_D\nabla_D\mathcal L,\ \dot Z=-\eta_Z\nabla_Z\mathcal L`.

    Parameters
    ----------
    process : TokenProcess
        Classes and their frequencies.
    times : array_like, shape (r,)
        Increasing times, not negative.
    decoder_rate, attention_rate : float
        Learning rates; either may be 0.
    z : array_like, shape (Q, M), optional
        Attention logits at time 0, zeros by default.
    decoder : array_like, shape (L, C + 1), optional
        Decoder at time 0 in the form of :attr:`ScanFlow.decoder`, zeros by default.
    normalize : bool
        Whether the decoder reads attention scaled to length one, or attention itself.
    rtol : float
        Relative accuracy of the solver.

    Returns
    -------
    ScanFlow
        The state at these times.

    Raises
    ------
    DataError
        If times are negative or do not increase, or a rate is negative.
    ShapeError
        If z or decoder has another shape.
    SolverError
        If the solver gives up.

    Notes
    -----
    *Scan and Snap* (2023), equations 3 to 7, with the mean over classes for the expectation.

    Examples
    --------
    >>> process = TokenProcess([[2, 1, 0, 0], [2, 0, 1, 0]], query=[3, 3], label=[0, 1])
    >>> flow(process, [0.0, 200.0], 1.0, 0.1).s[:, 0, 0].round(2)  # attention on the common token
    array([0.67, 0.39])
    """
    when, eta_D, eta_Z, start = conditions(process, times, decoder_rate, attention_rate, z)
    context = np.flatnonzero(process.P.any(0))
    P, row, prior = process.P[:, context], process.row, process.prior
    (C, L), Q = P.shape, len(process.queries)
    absent = np.where(P > 0, 0.0, -np.inf)  # or a token that a class lacks could drown its own
    shape = (L, C + 1)
    D0 = np.zeros(shape) if decoder is None else as_float(decoder, "decoder", ndim=2, last=shape)
    number = np.append(np.ones(C), process.M - C)  # tokens that a column stands for
    with np.errstate(divide="ignore"):
        log_number = np.log(number)

    def forward(y: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        D, Z = y[: L * (C + 1)].reshape(shape), y[L * (C + 1) :].reshape(Q, L)
        seen = Z[row] + absent
        mass = P * np.exp(seen - seen.max(1, keepdims=True))
        f = mass / (np.linalg.norm(mass, axis=1) if normalize else mass.sum(1))[:, None]
        logits = f @ D
        p = np.exp(logits - logsumexp(logits + log_number, axis=1, keepdims=True))  # of each token
        np.fill_diagonal(p[:, :C], 0.0)
        residual = -p
        np.fill_diagonal(residual[:, :C], p @ number)  # 1 minus the label's own would cancel
        return f, logits, residual, (residual * number) @ D.T

    def slope(_: float, y: FloatArray) -> FloatArray:
        f, _logits, residual, g = forward(y)
        along = (f * g).sum(1, keepdims=True)  # both forms keep the sum of logits
        pull = prior[:, None] * f * (g - (f * along if normalize else along))
        into = np.zeros((Q, L))
        np.add.at(into, row, pull)
        return np.concatenate([eta_D * (f.T @ (prior[:, None] * residual)).ravel(), eta_Z * into.ravel()])

    first = np.concatenate([D0.ravel(), start[:, context].ravel()])
    states = integrate(slope, when, first, rtol)
    Z = np.repeat(start[None], when.size, 0)
    Z[..., context] = states[:, L * (C + 1) :].reshape(-1, Q, L)
    loss, logits = np.empty(when.size), np.empty((when.size, C, process.M))
    sent = np.zeros((when.size, C, process.M))
    for k, y in enumerate(states):
        _f, own, _residual, g = forward(y)
        wrong = own + log_number - np.diagonal(own)[:, None]
        np.fill_diagonal(wrong[:, :C], -np.inf)
        loss[k] = prior @ np.logaddexp(0.0, logsumexp(wrong, axis=1))  # accurate where it is tiny
        logits[k], logits[k][:, process.label], sent[k][:, context] = own[:, -1:], own[:, :C], g
    s = attention(process, Z)
    D = states[:, : L * (C + 1)].reshape(-1, *shape)
    return ScanFlow(*(frozen(a) for a in (when, loss, s, Z, logits, sent, D)))
