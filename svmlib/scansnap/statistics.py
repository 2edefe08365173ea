"""What is read off attention by token type: mass on common tokens, entropy, recall."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare
from svmlib.arrays import FloatArray, as_float
from svmlib.errors import DataError

from .process import TokenProcess

__all__ = ["common_mass", "distinct_entropy", "recall"]


def _attention(process: TokenProcess, s: ArrayLike) -> FloatArray:
    return as_float(s, "s", last=(process.C, process.M), meaning="classes and tokens of the process")


def common_mass(process: TokenProcess, s: ArrayLike) -> FloatArray:
    """Share of attention that common tokens have.

    Parameters
    ----------
    process : TokenProcess
        Says which tokens are common.
    s : array_like, shape (..., C, M)
        Attention by token type.

    Returns
    -------
    ndarray, shape (..., C)
        The share in each class.
    """
    return np.asarray(_attention(process, s)[..., process.common].sum(-1))


def distinct_entropy(process: TokenProcess, s: ArrayLike) -> FloatArray:
    """Entropy of attention restricted to the distinct tokens of a class and scaled to sum 1, in nats.

    Parameters
    ----------
    process : TokenProcess
        Says which tokens are distinct.
    s : array_like, shape (..., C, M)
        Attention by token type.

    Returns
    -------
    ndarray, shape (..., C)
        The entropy in each class; small where attention is sparse.

    Raises
    ------
    DataError
        If a class has no distinct token.

    Notes
    -----
    *Scan and Snap* (2023), figure 6, averages it over classes.
    """
    own = process.distinct
    if not own.any(1).all():
        raise DataError("A class without distinct tokens has no entropy on them.")
    share = np.where(own, _attention(process, s), 0.0)
    return compare.entropy(share / share.sum(-1, keepdims=True))


def recall(process: TokenProcess, s: ArrayLike, thresholds: ArrayLike) -> FloatArray:
    """Share of distinct tokens whose attention in their class exceeds a threshold.

    Parameters
    ----------
    process : TokenProcess
        Says which tokens are distinct.
    s : array_like, shape (..., C, M)
        Attention by token type.
    thresholds : array_like, shape (k,)
        Thresholds.

    Returns
    -------
    ndarray, shape (..., k)
        Shares, averaged over all pairs of a class and a distinct token of it.

    Notes
    -----
    *Scan and Snap* (2023), figures 11 and 12.
    """
    own = _attention(process, s)[..., process.distinct]
    levels = as_float(thresholds, "thresholds", ndim=1)
    return np.asarray((own[..., None] > levels).mean(-2))
