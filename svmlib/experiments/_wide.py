"""What the experiments on width measure of one instance, and coordinates in which they are cheap."""

from __future__ import annotations

import numpy as np

from svmlib import compare
from svmlib.arrays import FloatArray
from svmlib.attention import Direct, gradient
from svmlib.data import Problem
from svmlib.errors import DataError

SPREAD = 3.0  # of random logits: probabilities are then neither equal nor 0


def first_step_separates(problem: Problem) -> FloatArray:
    r"""Smallest margin of the optimal tokens after one gradient step from 0, scaled by the step's length.

    Condition B of *Transformers as Support Vector Machines* asks that it be positive.

    Parameters
    ----------
    problem : Problem
        With a linear head.

    Returns
    -------
    ndarray, shape (...)
        :math:`\min_{i,t}\langle A_{it},-\nabla\mathcal L(0)\rangle/\|\nabla\mathcal L(0)\|_F`.
    """
    step = -gradient(problem, Direct.zeros(problem)).matrix()
    size = np.linalg.norm(step, axis=(-2, -1))
    margins = compare.margins(step, problem.keys, problem.z, problem.optimal)
    return np.asarray(np.where(problem.visible, margins, np.inf).min((-2, -1)) / size)


def compressed(problem: Problem) -> Problem:
    r"""Write tokens and queries in coordinates of their spans: no inner product changes.

    Training W from 0 gives the same logits, and so does training (K, Q) where K is Gaussian of the same
    width m: its coordinates in an orthonormal frame are Gaussian, and nothing reads or moves the rest.

    Parameters
    ----------
    problem : Problem
        With one batch axis and a linear head, without a mask and without keys of its own.

    Returns
    -------
    Problem
        With d at most n T and queries of width at most n.

    Raises
    ------
    DataError
        If the problem is of another kind.
    """
    if problem.v is None or problem.mask is not None or problem.keys is not problem.X or problem.X.ndim != 4:
        raise DataError(
            "compressed needs a problem with one batch axis and a linear head, without mask and keys; got "
            f"X of shape {problem.X.shape}."
        )
    B, n, T, d = problem.X.shape
    tokens = problem.X.reshape(B, n * T, d)
    frame = np.linalg.qr(np.swapaxes(tokens, -1, -2))[0]
    queries = problem.z @ np.linalg.qr(np.swapaxes(problem.z, -1, -2))[0]
    v = np.einsum("bd,bdr->br", problem.v, frame)
    return Problem((tokens @ frame).reshape(B, n, T, -1), queries, problem.y, v)


def slope_along(problem: Problem, W: FloatArray, points: int, seed: int) -> FloatArray:
    r"""Slope of the logistic loss in the direction W, where attention has random logits.

    The slope :math:`\frac1n\sum_i\ell_i'\operatorname{Cov}_{s_i}(\gamma_i,X_iWz_i)` depends on the point
    through its logits alone, and for d >= max(T - 1, n) some weights give any logits: so
    these are drawn, Gaussian with standard deviation 3.

    Parameters
    ----------
    problem : Problem
        With a linear head and no mask.
    W : ndarray, shape (..., e, q)
        Direction.
    points : int
        Number of draws.
    seed : int
        Seed.

    Returns
    -------
    ndarray, shape (points, ...)
        Slopes.
    """
    a = SPREAD * np.random.default_rng(seed).normal(size=(points, *problem.scores.shape))
    e = np.exp(a - a.max(-1, keepdims=True))
    s = e / e.sum(-1, keepdims=True)
    b = np.einsum("...ntd,...nd->...nt", problem.keys, problem.z @ np.swapaxes(W, -1, -2))
    gamma, mean = problem.scores, (s * problem.scores).sum(-1)
    covariance = (s * (gamma - mean[..., None]) * (b - (s * b).sum(-1, keepdims=True))).sum(-1)
    return np.asarray(-(covariance / (1.0 + np.exp(mean))).mean(-1))
