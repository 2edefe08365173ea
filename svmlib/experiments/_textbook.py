"""Normalised descent as published for ReLU heads: the textbook gradient, and a constant added to its norm."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from svmlib.arrays import FloatArray
from svmlib.data import Problem

__all__ = ["textbook_path"]

EPSILON = float(np.finfo(float).eps)  # 2.2e-16
WORKSPACE = 250  # instances at a time: what a core's cache holds


def textbook_path(
    problem: Problem, steps: int, *, rate: float = 0.1, record: Iterable[int] = (), constant: float = EPSILON
) -> FloatArray:
    r"""Train W from 0 on the logistic loss with steps :math:`-\eta\,g/(\|g\|_F+\epsilon)`.

    The gradient is :math:`s_t(\gamma_t-\bar\gamma)` as it stands, so that it loses its digits where attention
    saturates, and steps shrink once it is as small as the constant. Compare :func:`svmlib.dynamics.train`.

    Parameters
    ----------
    problem : Problem
        With one batch axis and a head of :func:`svmlib.attention.mlp` for each instance, without a mask.
    steps : int
        Number of steps.
    rate : float
        Step length :math:`\eta`.
    record : iterable of int
        When to record W.
    constant : float
        :math:`\epsilon`.

    Returns
    -------
    ndarray, shape (b, r, e, q)
        W at the recorded steps.
    """
    due = sorted(set(record))
    pieces = range(0, len(problem), WORKSPACE)
    return np.concatenate([_piece(problem[k : k + WORKSPACE], steps, rate, due, constant) for k in pieces])


def _piece(p: Problem, steps: int, rate: float, due: list[int], constant: float) -> FloatArray:
    # instances on the last axis, so that every sum runs along contiguous memory
    X = np.ascontiguousarray(p.X.transpose(2, 3, 1, 0))  # (T, d, n, B)
    z = np.ascontiguousarray(p.z.transpose(2, 1, 0))
    V = np.ascontiguousarray(p.head.V.transpose(1, 2, 0))[:, :, None]  # type: ignore[union-attr]
    y, gram = np.ascontiguousarray(p.y.T), np.einsum("qnb,qmb->nmb", z, z)
    mapped, total = np.zeros(X.shape[1:]), np.zeros(X.shape[1:])  # W z_i, and W = sum of total_i z_i'
    found = []
    for k in range(steps + 1):
        if k in due:
            found.append(np.einsum("dnb,qnb->bdq", total, z))
        logits = (X * mapped).sum(1)
        s = np.exp(logits - logits.max(0))
        s /= s.sum(0)
        u = (X * s[:, None]).sum(0)
        hidden = (V * u[:, None]).sum(0)  # (h, n, B)
        on = (hidden > 0).astype(float)
        gamma = y * (X * (V * on).sum(1)).sum(1)
        margin = y * (hidden * on).sum(0)
        pull = s * (gamma - (s * gamma).sum(0)) / (1.0 + np.exp(margin)) / p.n
        rows = (X * pull[:, None]).sum(0)
        seen = (rows[:, :, None] * gram).sum(1)
        size = np.sqrt(np.maximum((rows * seen).sum((0, 1)), 0.0))
        factor = rate / (size + constant)
        total += factor * rows
        mapped += factor * seen
    return np.stack(found, axis=1)
