"""Which constraints of a program contradict each other, in words."""

from __future__ import annotations

import numpy as np

from svmlib.arrays import BoolArray, FloatArray

from .equalities import CONTRADICTION
from .features import Features

__all__ = ["contradiction", "count"]


def contradiction(
    keys: FloatArray, selected: BoolArray, sides: FloatArray, features: Features, weights: FloatArray
) -> str:
    """Explain why the constraints of selected sets cannot be met.

    Parameters
    ----------
    keys : ndarray, shape (n, T, e)
        Keys.
    selected : ndarray of bool, shape (n, T)
        Selected tokens.
    sides : ndarray, shape (n, T)
        Log-ratios that are asked for.
    features : Features
        The constraints.
    weights : ndarray, shape (m,)
        Weights of a combination of the features that vanishes.

    Returns
    -------
    str
        The reason and what to do, without a full stop.
    """
    for i, t, side, tied in zip(*features.index, features.side, features.equal, strict=True):
        if side == 0:
            continue
        if not features.query[features.index[0] == i].any():
            asks = "the probabilities of its tokens differ" if tied else f"token {t} is masked out"
            return (
                f"the query of sequence {i} is 0, so all its logits are equal, but {asks}. Drop the "
                f"sequence or give it a query"
            )
        same = np.flatnonzero(selected[i] & (keys[i] == keys[i, t]).all(-1))
        if not tied and same.size:
            return (
                f"in sequence {i} the masked-out token {t} equals the selected token {same[0]}. Select both "
                f"or neither, or merge the duplicates (mask one of them)"
            )
        apart = same[np.abs(sides[i, same] - side) > CONTRADICTION] if tied else same
        if apart.size:
            return (
                f"in sequence {i} tokens {apart[0]} and {t} are equal, but their probabilities are not. "
                f"Merge the duplicates (mask one of them)"
            )
    where = sorted({int(i) for i in features.index[0][_involved(weights)]})
    return (
        f"{count(features, weights)}, in sequences {where}, contradict each other. Select other tokens, "
        f"widen keys and queries"
    )


def count(features: Features, weights: FloatArray) -> str:
    """Count the equalities and margins of a combination.

    Parameters
    ----------
    features : Features
        The constraints.
    weights : ndarray, shape (m,)
        Weights of the combination.

    Returns
    -------
    str
        The counts.
    """
    tied, used = features.equal, _involved(weights)
    parts = [
        f"{int((used & kind).sum())} of its {int(kind.sum())} {name}"
        for kind, name in ((tied, "equalities"), (~tied, "margins"))
        if (used & kind).any()
    ]
    return " and ".join(parts)


def _involved(weights: FloatArray) -> BoolArray:
    return np.asarray(np.abs(weights) > 1e-9 * np.abs(weights).max())
