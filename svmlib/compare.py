"""Measures that compare matrices, distributions and token selections: functions of arrays alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from . import norms
from .arrays import FloatArray, IntArray, as_float
from .errors import DataError, ShapeError

__all__ = ["angle", "correlation", "entropy", "margins", "rank", "token_index"]


def _unit_pair(A: ArrayLike, B: ArrayLike) -> tuple[FloatArray, FloatArray]:
    a, b = norms.as_matrices(A, "A", finite=False), norms.as_matrices(B, "B", finite=False)
    if a.shape[-2:] != b.shape[-2:]:
        raise ShapeError(f"A and B must hold matrices of one size, got shapes {a.shape} and {b.shape}.")
    if a.ndim == b.ndim + 1:  # iterates (..., r, d, e) against one matrix (..., d, e)
        b = b[..., None, :, :]
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ShapeError(f"The leading axes of A and B do not fit: shapes {a.shape} and {b.shape}.") from None
    return _unit(a), _unit(b)


def _unit(A: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore", divide="ignore", under="ignore"):
        shrunk = norms.scaled(A)[0]  # first: the norm of finite entries may be infinite
        return np.asarray(shrunk / norms.FRO._value(shrunk)[..., None, None])


def correlation(A: ArrayLike, B: ArrayLike) -> FloatArray:
    r"""Cosine of the angle between matrices, :math:`\langle A,B\rangle/(\|A\|_F\|B\|_F)`.

    Parameters
    ----------
    A : array_like or attention weights, shape (..., d, e)
        Matrices; weights stand for ``weights.matrix()``. With one axis more than ``B`` (iterates, shape
        (..., r, d, e)) each iterate is compared with the same matrix.
    B : array_like or attention weights, shape (..., d, e)
        Matrices.

    Returns
    -------
    ndarray, shape (...)
        Correlations in [-1, 1]; NaN where a matrix is 0 or NaN.

    Raises
    ------
    ShapeError
        If the shapes do not fit.

    Examples
    --------
    >>> float(correlation([[1.0, 0.0]], [[1.0, 1.0]]).round(4))
    0.7071
    """
    a, b = _unit_pair(A, B)
    return np.asarray(np.clip((a * b).sum(axis=(-2, -1)), -1.0, 1.0))


def angle(A: ArrayLike, B: ArrayLike) -> FloatArray:
    r"""Angle between matrices in radians, accurate for small angles too.

    Computed as :math:`2\operatorname{atan2}(\|a-b\|,\|a+b\|)` of the normalised matrices, since the
    arc cosine of a correlation loses everything below :math:`10^{-8}`.

    Parameters
    ----------
    A, B : array_like or attention weights, shape (..., d, e)
        Matrices; ``A`` may have an iterate axis more, as in :func:`correlation`.

    Returns
    -------
    ndarray, shape (...)
        Angles in [0, pi]; NaN where a matrix is 0 or NaN.

    Raises
    ------
    ShapeError
        If the shapes do not fit.
    """
    a, b = _unit_pair(A, B)
    return np.asarray(2.0 * np.arctan2(norms.FRO._value(a - b), norms.FRO._value(a + b)))


def rank(A: ArrayLike, rtol: float = 1e-6) -> IntArray:
    """Number of singular values above ``rtol`` times the largest; 0 for a zero matrix.

    Parameters
    ----------
    A : array_like or attention weights, shape (..., d, e)
        Finite matrices.
    rtol : float
        Relative threshold, from 0 to 1.

    Returns
    -------
    ndarray of int, shape (...)
        Ranks.

    Raises
    ------
    DataError
        If an entry is NaN: a missing solution has no rank. If ``rtol`` is not between 0 and 1.
    """
    if not 0 <= as_float(rtol, "rtol", ndim=0, finite=False) < 1:
        raise DataError(f"rtol must be a number from 0 to 1, got {rtol!r}.")
    s = np.linalg.svd(norms.scaled(norms.as_matrices(A, "A"))[0], compute_uv=False)
    return np.asarray(((s > rtol * s[..., :1]) & (s > 0)).sum(-1), dtype=np.int64)


def entropy(p: ArrayLike, axis: int = -1) -> FloatArray:
    r"""Shannon entropy :math:`-\sum_t p_t\log p_t` in nats, with :math:`0\log0=0`.

    Parameters
    ----------
    p : array_like
        Probabilities, >= 0; their sum along ``axis`` is not checked.
    axis : int
        Axis of the distribution.

    Returns
    -------
    ndarray
        Entropies.

    Raises
    ------
    ShapeError
        If ``p`` has no such axis.
    DataError
        If a probability is negative or not finite.
    """
    probability = as_float(p, "p")
    if not isinstance(axis, (int, np.integer)) or not -probability.ndim <= axis < probability.ndim:
        raise ShapeError(f"axis must be an integer and name an axis of p {probability.shape}, got {axis!r}.")
    if (probability < 0).any():
        raise DataError(f"p must hold probabilities, but its smallest entry is {probability.min():g}.")
    logs = np.log(np.where(probability > 0, probability, 1.0))
    return np.asarray(-(probability * logs).sum(axis=axis))


def token_index(tokens: ArrayLike, shape: tuple[int, ...]) -> IntArray:
    """Check token positions against scores of shape (..., n, T) and broadcast them to (..., n).

    Parameters
    ----------
    tokens : array_like of int, shape (..., n) or broadcastable to it
        Positions, 0 to T - 1.
    shape : tuple of int
        (..., n, T).

    Returns
    -------
    ndarray of int, shape (..., n)
        Checked positions.

    Raises
    ------
    ShapeError
        If the positions do not fit the shape, are not integers, or lie outside 0 to T - 1.
    """
    got = np.asarray(as_float(tokens, "tokens"))
    if np.asarray(tokens).dtype == np.bool_ or (np.trunc(got) != got).any():
        raise ShapeError("tokens must be integers: positions of the selected token in each sequence.")
    if got.size and (got.min() < 0 or got.max() >= shape[-1]):
        raise ShapeError(
            f"tokens must lie in 0..{shape[-1] - 1} for sequences of T={shape[-1]} tokens, "
            f"got values from {got.min():g} to {got.max():g}."
        )
    index = got.astype(np.int64)
    if index.ndim == 0 or index.shape[-1] != shape[-2]:
        raise ShapeError(f"tokens must have shape (..., n) with n={shape[-2]}, got {index.shape}.")
    try:
        return np.broadcast_to(index, shape[:-1])
    except ValueError:
        raise ShapeError(
            f"tokens must have shape {shape[:-1]} or broadcast to it, got {index.shape}."
        ) from None


def margins(W: ArrayLike, X: ArrayLike, z: ArrayLike, tokens: ArrayLike) -> FloatArray:
    r"""Measure the margins :math:`(x_{i\alpha_i}-x_{it})^\top W z_i` of the selected token over every token.

    Parameters
    ----------
    W : array_like or attention weights, shape (..., e, q)
        Attention matrices, mapping queries to keys.
    X : array_like, shape (..., n, T, e)
        Keys: the tokens, or ``problem.keys``.
    z : array_like, shape (..., n, q)
        Queries.
    tokens : array_like of int, shape (..., n)
        Selected token of each sequence.

    Returns
    -------
    ndarray, shape (..., n, T)
        Margins, in units of logits; infinite at the selected token itself.

    Raises
    ------
    ShapeError
        If the shapes do not fit.
    """
    x = as_float(X, "X", min_ndim=3)
    if not x.shape[-3] or not x.shape[-2]:
        raise ShapeError(f"X must have shape (..., n, T, d) with n, T >= 1, got {x.shape}.")
    query = as_float(z, "z", last=(x.shape[-3], None))
    weights = norms.as_matrices(W, "W", last=(x.shape[-1], query.shape[-1]), finite=False)
    try:
        np.broadcast_shapes(weights.shape[:-2], x.shape[:-3], query.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"The batch axes of W {weights.shape[:-2]}, X {x.shape[:-3]} and z {query.shape[:-2]} do not fit."
        ) from None
    index = token_index(tokens, x.shape[:-1])
    # subtracting the tokens before the product keeps small margins between near tokens exact
    delta = np.take_along_axis(x, index[..., None, None], axis=-2) - x
    mapped = query @ np.swapaxes(weights, -1, -2)
    out = np.einsum("...ntd,...nd->...nt", delta, mapped)
    return np.where(np.arange(x.shape[-2]) == index[..., None], np.inf, out)
