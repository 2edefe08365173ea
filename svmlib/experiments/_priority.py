r"""Next-token prediction split in two: which component of the priority graph, and which token inside it.

The loss is convex, so that Newton's method finds its regularisation path to any radius. Coordinates are
chosen in the span of the cyclic features and in its complement: the gradient in the complement is then a sum
of tiny numbers of its own, and stays exact where it has fallen far below the round-off of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import BoolArray, FloatArray, as_float, frozen
from svmlib.data import Problem
from svmlib.errors import DataError, ShapeError, SolverError

__all__ = ["PriorityPath", "finite_minimum", "priority_path", "split_loss"]

RTOL = 1e-9  # of singular values: what lies in the span of the cyclic features


@dataclass(frozen=True, slots=True, eq=False)
class PriorityPath:
    """Minimisers of the loss with a penalty on the squared norm: points of the regularisation path."""

    decay: FloatArray
    """(r,) strengths c of the penalty c |W|^2 / 2."""
    W: FloatArray
    """(r, e, q) minimisers."""
    inside: FloatArray
    """(r, e, q) their parts in the span of the cyclic features."""
    log_outside: FloatArray
    """(r,) logarithm of the second part of the loss, accurate however small."""

    @property
    def radius(self) -> FloatArray:
        """(r,) Frobenius norms of the minimisers."""
        return np.asarray(np.linalg.norm(self.W, axis=(-2, -1)))


def _checked(problem: Problem, inside: ArrayLike) -> BoolArray:
    if problem.batch_shape:
        raise ShapeError(
            f"One problem is needed, got a batch of shape {problem.batch_shape}: index it, p[k]."
        )
    flags = as_float(inside, "inside", last=(problem.n, problem.T), ndim=2).astype(bool)
    return np.asarray((flags | (problem.X[..., 0] > 0)) & problem.visible)


def split_loss(problem: Problem, W: ArrayLike, inside: ArrayLike) -> tuple[FloatArray, FloatArray]:
    r"""Split the log loss into the choice inside the label's component and the choice of the component.

    .. math:: -\log f_i=-\log\frac{f_i}{\sum_{t\in\mathcal C_i}s_{it}}-\log\sum_{t\in\mathcal C_i}s_{it}

    Parameters
    ----------
    problem : Problem
        From :func:`svmlib.data.next_token_problem`, without batch axes.
    W : array_like, shape (..., e, q)
        Attention matrices.
    inside : array_like of bool, shape (n, T)
        Tokens of the label's component, :func:`svmlib.graphs.in_component`.

    Returns
    -------
    inside, outside : ndarray, shape (...)
        The two parts, means over the sequences; their sum is the loss.
    """
    flags = _checked(problem, inside)
    matrix = as_float(W, "W", last=(problem.key_dim, problem.query_dim))
    a = np.einsum("nte,...eq,nq->...nt", problem.keys, matrix, problem.z)
    a = np.where(problem.visible, a, -np.inf)
    label, chosen = (_log_sum(np.where(f, a, -np.inf)) for f in (problem.X[..., 0] > 0, flags))
    with np.errstate(divide="ignore"):
        rest = _log_sum(np.where(flags, -np.inf, a))
    outside = np.log1p(np.exp(np.minimum(rest - chosen, 700.0)))
    return np.asarray((chosen - label).mean(-1)), np.asarray(outside.mean(-1))


def _log_sum(a: FloatArray) -> FloatArray:
    top = a.max(-1, keepdims=True)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(a - safe).sum(-1)) + safe[..., 0])


def _coordinates(problem: Problem, flags: BoolArray) -> tuple[FloatArray, FloatArray, int]:
    """Features (n, T, r) against the label, the basis (r, e q), and the dimension of its first part."""
    first = (problem.X[..., 0] > 0).argmax(-1)
    delta = np.where(problem.visible[..., None], -problem.differences(first), 0.0)  # k_t - k_label
    A = np.einsum("nte,nq->nteq", delta, problem.z).reshape(problem.n, problem.T, -1)
    inner = _span(A[flags])
    rest = A[problem.visible & ~flags]
    outer = _span(rest - rest @ inner.T @ inner)
    outer = outer - outer @ inner.T @ inner  # once more, against round-off
    basis = np.vstack([inner, outer])
    F = A @ basis.T
    F[flags, len(inner) :] = 0.0  # exactly: the complement does not see the cyclic features
    return F, basis, len(inner)


def _span(rows: FloatArray) -> FloatArray:
    if not rows.size:
        return np.zeros((0, rows.shape[-1]))
    _, size, V = np.linalg.svd(rows, full_matrices=False)
    kept: FloatArray = V[size > RTOL * size.max(initial=1e-300)]
    return kept


def _newton(F: FloatArray, shown: BoolArray, decay: float, start: FloatArray, tol: float) -> FloatArray:
    """Minimise mean log sum exp(F w) + decay |w|^2 / 2 over w."""
    w: FloatArray = start.copy()
    r, n = len(w), len(F)
    for _ in range(200):
        a = np.where(shown, F @ w, -np.inf)
        a -= a.max(-1, keepdims=True)
        s = np.exp(a)
        s /= s.sum(-1, keepdims=True)
        slope = np.einsum("nt,ntr->nr", s, F)
        gradient = slope.mean(0) + decay * w
        centred = F - slope[:, None]
        H = np.einsum("nt,ntr,ntq->rq", s, centred, centred) / n + decay * np.eye(r)
        size = np.sqrt(np.maximum(np.diag(H), 1e-300))  # curvatures differ by hundreds of orders
        step = -np.linalg.lstsq(H / size / size[:, None], gradient / size, rcond=None)[0] / size
        far = float(np.abs(np.where(shown, F @ step, 0.0)).max(initial=0.0))
        w = w + step / max(1.0, far)  # logits move by at most 1: the curvature changes by a factor at most
        if far <= tol:
            return w
    hint = " Without decay a minimiser exists only if the features inside the components balance."
    raise SolverError(
        f"Newton's method did not settle at decay {decay:.1e} in 200 steps, the last of which moved a logit "
        f"by {far:.1e}.{'' if decay else hint}"
    )


def finite_minimum(problem: Problem, inside: ArrayLike) -> tuple[FloatArray, float]:
    r"""Minimise the part of the log loss inside the components, over the span of its features.

    Parameters
    ----------
    problem : Problem
        From :func:`svmlib.data.next_token_problem`, without batch axes.
    inside : array_like of bool, shape (n, T)
        Tokens of the label's component.

    Returns
    -------
    W : ndarray, shape (e, q)
        The finite part, 0 where the graph has no cycle.
    loss : float
        Its value: the infimum of the whole loss.

    Raises
    ------
    SolverError
        If Newton's method does not settle: the features do not balance.
    """
    flags = _checked(problem, inside)
    F, basis, r = _coordinates(problem, flags)
    w = _newton(F[..., :r], flags, 0.0, np.zeros(r), 1e-13) if r else np.zeros(0)
    W = (w @ basis[:r]).reshape(problem.key_dim, problem.query_dim)
    return W, float(split_loss(problem, W, flags)[0])


def priority_path(problem: Problem, inside: ArrayLike, decay: ArrayLike) -> PriorityPath:
    r"""Follow the minimisers of :math:`\mathcal L(W)+\frac c2\|W\|_F^2` as c falls.

    The loss is convex, so these are all points of the regularisation path: W minimises the loss over the
    ball of radius its own norm, and no other matrix does.

    Parameters
    ----------
    problem : Problem
        From :func:`svmlib.data.next_token_problem`, without batch axes.
    inside : array_like of bool, shape (n, T)
        Tokens of the label's component.
    decay : array_like, shape (r,)
        Strengths c > 0; they are followed from the largest to the smallest.

    Returns
    -------
    PriorityPath
        In the order of ``decay``.

    Raises
    ------
    DataError
        If a strength is not positive, or there is none.
    SolverError
        If Newton's method does not settle.
    """
    flags = _checked(problem, inside)
    strengths = as_float(decay, "decay", ndim=1)
    if not strengths.size or strengths.min() <= 0:
        raise DataError(f"decay must hold positive strengths, at least one; got {strengths.tolist()}.")
    F, basis, r = _coordinates(problem, flags)
    order = np.argsort(-strengths)
    found, log_out = np.empty((len(strengths), basis.shape[0])), np.empty(len(strengths))
    w, last = np.zeros(basis.shape[0]), float(strengths.max())
    outer = problem.visible & ~flags
    for k in order:
        # no further than a factor of e at a time: the next start is then close
        count = max(1, int(np.ceil(np.log(last / strengths[k]))))
        for c in np.geomspace(last, strengths[k], count + 1)[1:] if last > strengths[k] else [strengths[k]]:
            w = _newton(F, problem.visible, float(c), w, 1e-10)
        last, found[k] = float(strengths[k]), w
        a = np.where(problem.visible, F @ w, -np.inf)
        each = _log_sum(np.where(outer, a, -np.inf)) - _log_sum(np.where(flags, a, -np.inf))
        each = np.where(each > -30, np.log(np.log1p(np.exp(np.maximum(each, -30)))), each)
        log_out[k] = _log_sum(each[None])[0] - np.log(problem.n)
    shape = (-1, problem.key_dim, problem.query_dim)
    return PriorityPath(
        decay=frozen(strengths),
        W=frozen((found @ basis).reshape(shape)),
        inside=frozen((found[:, :r] @ basis[:r]).reshape(shape)),
        log_outside=frozen(log_out),
    )
