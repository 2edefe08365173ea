"""Normalisation with an additive constant, as in published code, to compare with the library's runs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from svmlib.arrays import FloatArray
from svmlib.attention import Direct
from svmlib.data import Problem
from svmlib.dynamics import record_steps
from svmlib.errors import DataError, ShapeError

__all__ = ["additive_recipe"]


def additive_recipe(
    problem: Problem,
    weights: Direct,
    steps: int,
    *,
    rate: float = 0.1,
    constant: float = 1e-9,
    precision: str = "float64",
    record: int | Iterable[int] | None = None,
) -> FloatArray:
    r"""Train with steps :math:`-\eta\,g/(\|g\|+\epsilon)` of the textbook gradient of the logistic loss.

    This is how published code normalises. Once :math:`\|g\|\ll\epsilon` it is plain gradient descent with the
    step size :math:`\eta/\epsilon`. Compare :func:`svmlib.dynamics.normalized`, which has no constant.

    Parameters
    ----------
    problem : Problem
        A prompt problem without batch axes.
    weights : Direct
        Starts, (b, e, 1).
    steps : int
        Number of steps.
    rate : float
        Step length :math:`\eta`.
    constant : float
        :math:`\epsilon`.
    precision : str
        "float64" or "float32".
    record : int or iterable of int, optional
        See :func:`svmlib.dynamics.record_steps`.

    Returns
    -------
    ndarray, shape (b, r, e)
        Paths of p.

    Raises
    ------
    ShapeError
        If the problem or the weights have other axes.
    DataError
        If the precision is another one.
    """
    if problem.batch_shape or problem.query_dim != 1:
        raise ShapeError(
            f"problem must be one prompt problem: no batch axes and queries of width 1, got batch axes "
            f"{problem.batch_shape} and width {problem.query_dim}. Select an element: problem[0]."
        )
    if np.ndim(weights.W) != 3 or np.shape(weights.W)[1:] != (problem.key_dim, 1):
        raise ShapeError(
            f"weights must have shape (b, {problem.key_dim}, 1), b starts for keys of width "
            f"{problem.key_dim}, got {np.shape(weights.W)}. One start p: Direct(p[None, :, None])."
        )
    if precision not in ("float32", "float64"):
        raise DataError(f'precision must be "float32" or "float64", got {precision!r}.')
    kind = np.dtype(precision).type
    when = record_steps(record, steps)
    due = set(when.tolist())
    keys, gamma = problem.keys.astype(kind), problem.scores.astype(kind)
    p = np.asarray(weights.W)[..., 0].astype(kind)
    found = []
    for k in range(steps + 1):
        if k in due:
            found.append(p.astype(np.float64))
        logits = np.einsum("nte,be->bnt", keys, p)
        s = np.exp(logits - logits.max(-1, keepdims=True))
        s = s / s.sum(-1, keepdims=True)
        mean = (s * gamma).sum(-1, keepdims=True)
        pull = s * (gamma - mean) / (1 + np.exp(mean))
        g = np.einsum("bnt,nte->be", pull, keys) / kind(problem.n)
        p = p + kind(rate) * g / (np.linalg.norm(g, axis=-1, keepdims=True) + kind(constant))
    return np.stack(found, axis=1)
