"""The two vector programs of *Max-Margin Token Selection*: one for the query, one for the head."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import BoolArray, as_float
from svmlib.data import Problem
from svmlib.errors import InfeasibleError, ShapeError

from .classical import hard_margin
from .programs import attention_svm
from .records import AttentionSVM, HardMargin, require

__all__ = ["token_svm", "value_svm"]


def token_svm(
    keys: ArrayLike,
    tokens: ArrayLike,
    mask: ArrayLike | None = None,
    relaxed: ArrayLike | None = None,
    errors: str = "raise",
) -> AttentionSVM:
    r"""Separate a selected token of each sequence from all others by one vector of least length.

    .. math:: p^{mm}=\arg\min_p\|p\|_2\quad\text{s.t.}\quad(k_{i\alpha_i}-k_{it})^\top p\ge1
       \quad\forall t\ne\alpha_i,

    with 0 in place of 1 in relaxed sequences. This is :func:`attention_svm` with the number 1 as every query;
    the two norms are the same.

    Parameters
    ----------
    keys : array_like, shape (..., n, T, e)
        Keys, with any batch axes.
    tokens : array_like of int, shape (..., n)
        Selected tokens.
    mask : array_like of bool, shape (..., n, T), optional
        True where there is a token.
    relaxed : array_like of bool, shape (..., n), optional
        Sequences whose margins need only be at least 0; none by default.
    errors : str
        "raise" or "nan", as in :func:`attention_svm`.

    Returns
    -------
    AttentionSVM
        Its ``p`` is the vector.

    Raises
    ------
    InfeasibleError
        If no vector separates the selected tokens, and ``errors="raise"``.
    SolverError
        If the solution cannot be certified, and ``errors="raise"``.
    ShapeError
        If shapes do not fit.
    DataError
        If values are not finite, or a masked token is selected.

    Notes
    -----
    *Max-Margin Token Selection* (2023), (ATT-SVM) and its relaxed form.

    Examples
    --------
    >>> token_svm([[[0.0, 0.0], [2.0, -1.0]], [[0.0, 0.0], [-1.0, 0.0]]], [0, 0]).p.round(6)
    array([1., 3.])
    """
    k = as_float(keys, "keys", min_ndim=3, finite=False)  # masked keys may be anything
    if min(k.shape[-3:]) < 1:
        raise ShapeError(f"keys must have shape (..., n, T, e) with n, T, e >= 1, got {k.shape}.")
    n, T, _ = k.shape[-3:]
    flags = cast(BoolArray | None, mask)  # checked there
    problem = Problem(np.zeros((n, T, 1)), np.ones((n, 1)), np.ones(n), mask=flags, keys=k)
    return attention_svm(problem, tokens, errors=errors, relaxed=relaxed)


def value_svm(problem: Problem, tokens: ArrayLike | None = None) -> HardMargin:
    r"""Separate the selected tokens by their labels: the head that attention to them asks for.

    .. math:: v^{mm}=\arg\min_v\|v\|_2\quad\text{s.t.}\quad y_iv^\top x_{i\alpha_i}\ge1 .

    Parameters
    ----------
    problem : Problem
        Data without batch axes; its head is not used, unless it chooses the tokens.
    tokens : array_like of int, shape (n,), optional
        Selected tokens; ``problem.optimal`` by default.

    Returns
    -------
    HardMargin
        Its ``w`` is the head, its ``support`` the support sequences; the others are those to relax in
        :func:`token_svm`.

    Raises
    ------
    InfeasibleError
        If no head gives every selected token its label.
    SolverError
        If the solution cannot be certified.
    ShapeError
        If the problem has batch axes or ``tokens`` does not fit.
    DataError
        If ``problem`` is none, a masked token is selected, or tokens are needed but the head is not linear.

    Notes
    -----
    *Max-Margin Token Selection* (2023), joint training of head and query.

    Examples
    --------
    >>> p = Problem([[[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, -1.0]]], np.zeros((2, 2)), [1, -1])
    >>> value_svm(p, [1, 1]).w.round(6)
    array([0., 1.])
    """
    require(problem, Problem, "problem")
    if problem.batch_shape:
        raise ShapeError(
            f"value_svm takes one problem, got a batch of shape {problem.batch_shape}: index it, p[k]."
        )
    index = problem.checked_tokens(tokens)
    try:
        return hard_margin(problem.X[np.arange(problem.n), index], problem.y)
    except InfeasibleError as exc:
        raise InfeasibleError(
            f"No head v gives all {problem.n} selected tokens (d={problem.d}) their labels: no hyperplane "
            f"through 0 separates them. Select other tokens, or give X a constant entry for an intercept."
        ) from exc
