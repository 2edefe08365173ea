"""The infimum of the training loss, and the distance to it without cancellation."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from svmlib._pivoted import LOSSES, excess, get_loss
from svmlib.arrays import FloatArray, to_tensor
from svmlib.attention import Weights, probabilities
from svmlib.data import Problem, check_problem

__all__ = ["LOSSES", "gap", "infimum"]


def infimum(problem: Problem, loss: str = "logistic") -> FloatArray:
    r"""Infimum of the loss over all weights if the optimal tokens can be separated.

    :math:`\mathcal L_\ast=\frac1n\sum_i\ell(\gamma_{i\,\mathrm{opt}_i})`, never attained at finite weights.

    Parameters
    ----------
    problem : Problem
        With linear head.
    loss : str
        "logistic", "exponential", "linear" or "log".

    Returns
    -------
    ndarray, shape (...)
        The infimum; it is the true one only if the optimal tokens can be separated.
    """
    best = check_problem(problem).scores.max(-1)
    value = get_loss(loss, problem).value(torch.from_numpy(np.ascontiguousarray(best))).numpy()
    return np.asarray(value.mean(-1))


def gap(problem: Problem, W: ArrayLike | Weights, loss: str = "logistic") -> FloatArray:
    r"""Loss above its infimum, :math:`\mathcal L(W)-\mathcal L_\ast`, without cancellation.

    Parameters
    ----------
    problem : Problem
        With linear head.
    W : array_like or weights, shape (..., d, d) or (..., r, d, d)
        Attention matrices; with one axis more than the problem's batch they are r iterates.
    loss : str
        "logistic", "exponential", "linear" or "log".

    Returns
    -------
    ndarray, shape (...) or (..., r)
        Nonnegative, and accurate down to the smallest numbers of float64.
    """
    chosen = get_loss(loss, check_problem(problem))
    s = probabilities(problem, W)
    gamma, best = np.where(problem.visible, problem.scores, 0.0), problem.scores.max(-1)
    if s.ndim > gamma.ndim:
        gamma, best = gamma[..., None, :, :], best[..., None, :]
    missing = (s * (best[..., None] - gamma)).sum(-1)  # a sum of non-negative terms: masked tokens have s = 0
    margin = (s * gamma).sum(-1)
    top = np.broadcast_to(best, missing.shape)
    above = excess(chosen, to_tensor(top), to_tensor(missing), to_tensor(margin))
    return np.asarray(above.numpy().mean(-1))
