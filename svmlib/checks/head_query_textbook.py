"""Joint training as everybody writes it, in an arithmetic of one's choice: see :mod:`.textbook`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray, as_float
from svmlib.data import Problem

from .textbook import arithmetic

__all__ = ["descend_jointly"]


def descend_jointly(
    problem: Problem,
    v: ArrayLike,
    p: ArrayLike,
    steps: int,
    *,
    rate: float = 0.1,
    eps: float = 0.0,
    precision: str | int = "float64",
) -> tuple[FloatArray, FloatArray]:
    """Train head and query by normalised steps with the formulas of a textbook.

    Slopes are 1/(1 + exp(f)) and the weight of token t is s_t (gamma_t - s' gamma), so both lose their digits
    at some size of the weights; with enough digits the result is right.

    Parameters
    ----------
    problem : Problem
        One problem whose query is a number; a head in it is not used.
    v, p : array_like, shape (d,), (e,)
        Starts.
    steps : int
        Number of steps.
    rate : float
        Step size of both blocks.
    eps : float
        Added to the norms of the gradients, as published code does.
    precision : str or int
        "float32", "float64", or a number of decimal digits.

    Returns
    -------
    v, p : ndarray, shape (steps + 1, d), (steps + 1, e)
        All iterates; NaN where a gradient has vanished and there is no ``eps``.
    """
    numbers = arithmetic(precision)
    with numbers.context(), np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        X, keys, y = (numbers.convert(np.asarray(a)) for a in (problem.X, problem.keys, problem.y))
        head, query = (numbers.convert(as_float(a, "start", ndim=1)) for a in (v, p))
        eta, extra = (numbers.convert(np.asarray([a]))[0] for a in (rate, eps))
        heads, queries = [as_float(head, "v")], [as_float(query, "p")]
        for _ in range(steps):
            logits = (keys * query).sum(-1)
            e = numbers.exp(logits - logits.max(-1)[:, None])
            s = e / e.sum(-1)[:, None]
            gamma = y[:, None] * (X * head).sum(-1)
            mean = (s * gamma).sum(-1)
            slope = 1 / (1 + numbers.exp(mean))
            up = slope * y
            push = (up[:, None] * (s[..., None] * X).sum(1)).sum(0) / len(y)
            weight = slope[:, None] * s * (gamma - mean[:, None])
            pull = (weight[..., None] * keys).sum((0, 1)) / len(y)
            head = head + eta * push / (numbers.sqrt((push * push).sum()) + extra)
            query = query + eta * pull / (numbers.sqrt((pull * pull).sum()) + extra)
            heads.append(np.asarray(head, dtype=np.float64))
            queries.append(np.asarray(query, dtype=np.float64))
    return np.stack(heads), np.stack(queries)
