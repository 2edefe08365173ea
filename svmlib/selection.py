r"""Which tokens attention selects, and whether that selection is locally optimal."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import BoolArray, FloatArray, IntArray, as_float
from .compare import margins
from .data import Problem
from .errors import DataError, ShapeError
from .norms import as_matrices, scaled
from .svm import AttentionSVM
from .svm.records import require

__all__ = ["locally_optimal", "selected_tokens", "support_fraction"]


def selected_tokens(problem: Problem, W: Any) -> IntArray:
    r"""Token with the largest logit of each sequence, :math:`\arg\max_t x_{it}^\top Wz_i`.

    Parameters
    ----------
    problem : Problem
        Data; masked tokens are never selected.
    W : array_like or attention weights, shape (..., e, q) or (..., r, e, q)
        Attention matrices; with one axis more than the problem's batch they are r iterates, ``run.W`` for
        example.

    Returns
    -------
    ndarray of int, shape (..., n) or (..., r, n)
        Positions; the first one in a tie (W = 0 ties all).

    Raises
    ------
    ShapeError
        If W does not fit.
    DataError
        If W is not finite, or ``problem`` is none.

    Examples
    --------
    >>> import svmlib as sv
    >>> p = sv.data.planar(1)
    >>> selected_tokens(p, sv.svm.attention_svm(p).W)
    array([0, 2])
    """
    require(problem, Problem, "problem")
    weights = as_matrices(W, "W", last=(problem.key_dim, problem.query_dim))
    X, z, visible = problem.keys, problem.z, problem.visible
    if weights.ndim == X.ndim:  # iterates
        X, z, visible = X[..., None, :, :, :], z[..., None, :, :], visible[..., None, :, :]
    try:
        if weights.ndim > X.ndim - 1:
            raise ValueError
        np.broadcast_shapes(weights.shape[:-2], X.shape[:-3])
    except ValueError:
        raise ShapeError(
            f"The leading axes of W {weights.shape[:-2]} do not fit the batch axes {problem.batch_shape} of "
            f"the problem, after which one axis of iterates may follow."
        ) from None
    # logits of huge weights may overflow; a power of two for each matrix keeps their order, and their ties
    logits = np.einsum("...ntd,...nd->...nt", X, z @ np.swapaxes(scaled(weights)[0], -1, -2))
    return np.asarray(np.where(visible, logits, -np.inf).argmax(-1), dtype=np.int64)


def locally_optimal(problem: Problem, svm: AttentionSVM, rtol: float = 1e-3) -> BoolArray:
    r"""Whether the selected tokens score strictly higher than their neighbours, the support tokens.

    The direction of ``svm.W`` is locally optimal when :math:`\gamma_{i\alpha_i}>\gamma_{it}` for each token
    t of sequence i whose margin is below ``1 + rtol``. A sequence without neighbours asks for nothing, and
    the neighbours depend on the norm.

    Parameters
    ----------
    problem : Problem
        Data with a linear head.
    svm : AttentionSVM
        Solution for this problem and the selected tokens.
    rtol : float
        How far above its right-hand side, 1 or 0 where it is relaxed, a margin may lie for the token to be a
        neighbour. Report it: with ties among the constraints the answer depends on it.

    Returns
    -------
    ndarray of bool, shape (...)
        False where the SVM has no solution.

    Raises
    ------
    ShapeError
        If the SVM was not solved for a problem of these sizes.
    DataError
        If the head is not linear, ``rtol`` is negative, or an argument is of another type.

    Notes
    -----
    *Transformers as Support Vector Machines* (2023), definition of locally-optimal tokens. Scores that
    differ by round-off only, 1e-14 of the largest, count as equal.
    """
    require(problem, Problem, "problem")
    require(svm, AttentionSVM, "svm")
    if not as_float(rtol, "rtol", ndim=0, finite=False) >= 0:
        raise DataError(f"rtol must be at least 0, got {rtol!r}.")
    if svm.support.shape != problem.X.shape[:-1]:
        raise ShapeError(
            f"svm was solved for sequences of shape (..., n, T) = {svm.support.shape}, but the problem has "
            f"{problem.X.shape[:-1]}: pass the problem that the SVM was solved for."
        )
    scores = np.where(problem.visible, problem.scores, 0.0)
    chosen = np.take_along_axis(scores, svm.tokens[..., None], axis=-1)
    scale = np.abs(scores).max(-1, keepdims=True)
    asked = svm.required[..., None].astype(float)  # relaxed sequences ask for margin 0 only
    near = svm.constrained & (margins(svm.W, problem.keys, problem.z, svm.tokens) < asked + rtol)
    beaten = scores < chosen - 1e-14 * scale
    return np.asarray((beaten | ~near).all(axis=(-2, -1)) & svm.solved)


def support_fraction(svm: AttentionSVM) -> FloatArray:
    """Share of the constrained tokens that are support tokens.

    Parameters
    ----------
    svm : AttentionSVM
        Solution.

    Returns
    -------
    ndarray, shape (...)
        Between 0 and 1; NaN where the SVM has no solution or nothing is constrained.

    Raises
    ------
    DataError
        If ``svm`` is none.
    """
    require(svm, AttentionSVM, "svm")
    count = svm.constrained.sum(axis=(-2, -1))
    share = svm.support.sum(axis=(-2, -1)) / np.maximum(count, 1)
    return np.where(svm.solved & (count > 0), share, np.nan)
