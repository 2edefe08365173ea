r"""The layer in the limit of long sequences: attention by token type, its loss and the gradients.

For a class with frequencies :math:`\mathbb P(l\mid c)` and query q attention on token type l is

.. math:: s_{cl}\propto\mathbb P(l\mid c)\,e^{z_{ql}},\qquad\sum_ls_{cl}=1,\qquad f_c=s_c/\|s_c\|,

and the decoder D predicts the next token from :math:`\mathbb S(D^\top f_c)` (*Scan and Snap* 2023,
equations 5 to 7).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray, as_float, to_tensor
from svmlib.errors import DataError, ShapeError

from ._engine import Batch, Step, ascent
from .process import TokenProcess

__all__ = ["Gradients", "attention", "features", "gradients", "loss"]


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """Loss and what flows back from it; leading axes are those of the weights."""

    loss: FloatArray
    """(...) cross-entropy, the mean over classes."""
    D: FloatArray
    """(..., M, M) gradient of the loss in the decoder."""
    z: FloatArray
    """(..., Q, M) gradient of the loss in the attention logits."""
    logits: FloatArray
    """(..., C, M) decoder logits of each class."""
    sent: FloatArray
    r"""(..., C, M) :math:`g_c=D(e_c-\pi_c)`, minus the gradient of the loss of class c in :math:`f_c`."""


def attention(process: TokenProcess, z: ArrayLike) -> FloatArray:
    r"""Compute :math:`s_{cl}\propto\mathbb P(l\mid c)e^{z_{ql}}`, attention by token type.

    Parameters
    ----------
    process : TokenProcess
        Classes and their frequencies.
    z : array_like, shape (..., Q, M)
        Attention logits of the query tokens, in the order of ``process.queries``.

    Returns
    -------
    ndarray, shape (..., C, M)
        Attention, rows with sum 1.

    Notes
    -----
    *Scan and Snap* (2023), equation 5, where it is called c.
    """
    logits = _logits(process, z)[..., process.row, :]
    logits = np.where(process.P > 0, logits, -np.inf)
    mass = process.P * np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(mass / mass.sum(-1, keepdims=True))


def features(s: ArrayLike) -> FloatArray:
    r"""Scale attention to length one, :math:`f_c=s_c/\|s_c\|`.

    Parameters
    ----------
    s : array_like, shape (..., M)
        Attention by token type.

    Returns
    -------
    ndarray, shape (..., M)
        Unit vectors, what the decoder reads.

    Raises
    ------
    DataError
        If a vector is zero.
    """
    value = as_float(s, "s")
    length = np.linalg.norm(value, axis=-1, keepdims=True)
    if not length.all():
        raise DataError("s holds a vector of zeros, which has no direction: attention sums to 1.")
    return np.asarray(value / length)


def gradients(process: TokenProcess, D: ArrayLike, z: ArrayLike) -> Gradients:
    r"""Compute loss and gradients of the population of infinitely long sequences, in closed form.

    Parameters
    ----------
    process : TokenProcess
        Classes and their frequencies.
    D : array_like, shape (..., M, M)
        Decoder: row l holds the logits that token l gives to the next tokens.
    z : array_like, shape (..., Q, M)
        Attention logits of the query tokens.

    Returns
    -------
    Gradients
        Loss, its gradients, decoder logits and the gradient sent down.

    Raises
    ------
    ShapeError
        If D and z do not fit the process or each other.

    Notes
    -----
    *Scan and Snap* (2023), Lemma 1 with Lemma 2, where the objective is ascended:

    .. math:: -\nabla_D\mathcal L=\sum_c\mathbb P(c)f_c(e_c-\pi_c)^\top,\qquad
       -\nabla_{z_q}\mathcal L=\sum_{c:q(c)=q}\mathbb P(c)\,\mathrm{diag}(f_c)(I-f_cf_c^\top)g_c.
    """
    M = process.M
    decoder = as_float(D, "D", last=(M, M), meaning="M x M, tokens of the process")
    logits = _logits(process, z)
    try:
        lead = np.broadcast_shapes(decoder.shape[:-2], logits.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"Leading axes of D {decoder.shape[:-2]} and of z {logits.shape[:-2]} do not broadcast."
        ) from None
    flat_D = np.broadcast_to(decoder, (*lead, M, M)).reshape(-1, M, M)
    flat_z = np.broadcast_to(logits, (*lead, *logits.shape[-2:])).reshape(-1, *logits.shape[-2:])
    R = len(flat_D)
    batch = Batch(
        to_tensor(process.P).expand(R, -1, -1),
        to_tensor(process.row).expand(R, -1),
        to_tensor(process.label).expand(R, -1),
        to_tensor(process.prior),
    )
    with torch.inference_mode():
        step: Step = ascent(to_tensor(flat_D), to_tensor(flat_z), batch)

    def back(a: torch.Tensor) -> FloatArray:
        return np.asarray(a.numpy().reshape(lead + tuple(a.shape[1:])))

    sent = back(step.sent) / process.prior[:, None]
    return Gradients(back(step.loss), -back(step.D), -back(step.Z), back(step.logits), sent)


def loss(process: TokenProcess, D: ArrayLike, z: ArrayLike) -> FloatArray:
    """Compute the cross-entropy of the population of infinitely long sequences.

    Parameters
    ----------
    process : TokenProcess
        Classes and their frequencies.
    D : array_like, shape (..., M, M)
        Decoder.
    z : array_like, shape (..., Q, M)
        Attention logits of the query tokens.

    Returns
    -------
    ndarray, shape (...)
        Mean over classes, weighted by their probabilities.
    """
    return gradients(process, D, z).loss


def _logits(process: TokenProcess, z: ArrayLike) -> FloatArray:
    return as_float(z, "z", last=(len(process.queries), process.M), meaning="query tokens x tokens")
