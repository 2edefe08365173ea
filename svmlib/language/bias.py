r"""Tokens that tell next words apart: distinct and common ones in real text, and their attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, xlogy

from svmlib.arrays import BoolArray, FloatArray, IntArray, as_float, check_integer
from svmlib.errors import DataError, ShapeError
from svmlib.text import Cooccurrence

__all__ = ["Kinds", "attended", "discrimination", "kinds", "mass"]


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """Token types by the number of next tokens they were seen with, for each query."""

    distinct: BoolArray
    """(Q, V) seen with exactly one of the next tokens."""
    common: BoolArray
    """(Q, V) seen with more than one."""
    accidental: FloatArray
    """(Q,) how many distinct tokens there would be on average if windows had their next tokens by chance."""
    least: int
    """Windows in which a token type must occur to be of either kind."""


def kinds(cooc: Cooccurrence, least: int = 5) -> Kinds:
    r"""Sort token types into distinct and common ones, as the theory does, from counts.

    A token seen in a single window is distinct by accident. So types in fewer than ``least`` windows of a
    query are of neither kind; and ``accidental`` says how many distinct ones chance alone would make: if k of
    W windows have the token, they all are among the :math:`w_n` of next token n with probability
    :math:`\binom{w_n}k/\binom Wk`.

    Parameters
    ----------
    cooc : Cooccurrence
        Counts.
    least : int
        Windows in which a token type must occur.

    Returns
    -------
    Kinds
        Masks (Q, V), and what chance would make.

    Notes
    -----
    *Scan and Snap* (2023), section 3, with classes that share their query: those whose features meet in its
    row of attention logits. Only the next tokens of ``cooc`` count.
    """
    least = check_integer(least, "least")
    total = cooc.seen.sum(1)
    met = (cooc.seen > 0).sum(1)
    enough = total >= least
    expected = np.zeros(len(cooc.queries))
    for q, w in enumerate(cooc.windows):
        k, times = np.unique(total[q][enough[q]], return_counts=True)
        size, W = w[:, None], w.sum()
        possible = size >= k
        logs = gammaln(size + 1) - gammaln(np.where(possible, size - k, 0) + 1)
        chance = np.where(possible, np.exp(logs - gammaln(W + 1) + gammaln(W - k + 1)), 0.0)
        expected[q] = chance.sum(0) @ times
    return Kinds(enough & (met == 1), enough & (met > 1), expected, least)


def discrimination(cooc: Cooccurrence, least: int = 1) -> FloatArray:
    r"""Measure how much a token type before the query says about the next token, beyond chance.

    With :math:`w_n` of W windows followed by n, and :math:`x_{nl}` of the k windows that have type l,

    .. math:: \sum_n\frac{x_{nl}}k\log\frac{x_{nl}/k}{w_n/W}
       -\mathbb E\sum_n\frac{X_n}k\log\frac{X_n/k}{w_n/W},

    the Kullback-Leibler divergence of the next token given query and l from that given the query alone, less
    its mean if the k windows are drawn from all W without replacement. Without the second term every rare
    type would discriminate. It needs no draws: each :math:`X_n` is hypergeometric, and the mean of the sum is
    the sum of the means.

    Parameters
    ----------
    cooc : Cooccurrence
        Counts.
    least : int
        Windows in which a token type must occur.

    Returns
    -------
    ndarray, shape (Q, V)
        In nats; about 0 for a type that says nothing; NaN where a type occurs in fewer windows.
    """
    least = check_integer(least, "least")
    out = np.full((len(cooc.queries), cooc.vocabulary), np.nan)
    for q, (x, w) in enumerate(zip(cooc.seen, cooc.windows, strict=True)):
        x, w = x[w > 0], w[w > 0]
        total = x.sum(0)
        known = total >= least
        share = x[:, known] / total[known]
        raw = xlogy(share, share / (w / w.sum())[:, None]).sum(0)
        sizes, back = np.unique(total[known], return_inverse=True)
        out[q, known] = raw - np.array([_chance(int(k), w) for k in sizes])[back]
    return out


def _chance(k: int, w: IntArray) -> float:
    """Mean divergence of k windows drawn without replacement from w_n of each kind."""
    W = int(w.sum())
    mean = k * w / W
    # beyond this distance from its mean a hypergeometric variable has probability below exp(-45) (Bernstein)
    reach = 10 * np.sqrt(mean * (1 - w / W)) + 30
    low = np.maximum(np.maximum(0, k - (W - w)), np.floor(mean - reach)).astype(np.int64)
    high = np.minimum(np.minimum(k, w), np.ceil(mean + reach)).astype(np.int64)
    x = low[:, None] + np.arange(int((high - low).max()) + 1)
    inside = x <= high[:, None]
    size = np.broadcast_to(w[:, None], x.shape)[inside]
    x = x[inside]
    logs = _choose(size, x) + _choose(W - size, k - x) - _choose(np.array(W), np.array(k))
    return float(np.exp(logs) @ xlogy(x / k, (x / k) / (size / W)))


def _choose(n: IntArray, k: IntArray) -> FloatArray:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def mass(maps: ArrayLike, tokens: ArrayLike, cooc: Cooccurrence, least: int = 5) -> dict[str, FloatArray]:
    """Compute how much attention queries give to distinct and to common tokens.

    Parameters
    ----------
    maps : array_like, shape (..., P, H, T, T)
        Attention on probes, by head.
    tokens : array_like of int, shape (P, T)
        Tokens of the probes.
    cooc : Cooccurrence
        Counts, which name the queries.
    least : int
        See :func:`kinds`.

    Returns
    -------
    dict of ndarray, shape (..., H, Q)
        "distinct", "common", "unknown" (of neither kind) and "own", the query's position itself, which only
        some models read: shares with sum 1, means over the positions at which a query stands and reads
        something; NaN for a query that does not occur there.

    Raises
    ------
    ShapeError
        If maps and tokens do not fit.
    DataError
        If tokens lie outside the vocabulary.
    """
    found = kinds(cooc, least)
    value, probes = _read(maps, tokens, cooc)
    names = ("distinct", "common", "unknown", "own")
    out = {name: np.full((*value.shape[:-4], value.shape[-3], len(cooc.queries)), np.nan) for name in names}
    for q, a, p, t in _rows(value, probes, cooc.queries):
        own = np.arange(value.shape[-1]) == t[:, None]
        distinct, common = found.distinct[q][probes[p]] & ~own, found.common[q][probes[p]] & ~own
        kind = {"distinct": distinct, "common": common, "unknown": ~(distinct | common | own), "own": own}
        for name, where in kind.items():
            out[name][..., q] = np.einsum("...kht,kt->...h", a, where.astype(float)) / len(t)
    return out


def attended(maps: ArrayLike, tokens: ArrayLike, cooc: Cooccurrence, values: ArrayLike) -> FloatArray:
    """Average a quantity of token types over what queries attend to, as :func:`discrimination`.

    Parameters
    ----------
    maps : array_like, shape (..., P, H, T, T)
        Attention on probes, by head.
    tokens : array_like of int, shape (P, T)
        Tokens of the probes.
    cooc : Cooccurrence
        Counts, which name the queries.
    values : array_like, shape (Q, V)
        The quantity for each query and token type; NaN where it is not known.

    Returns
    -------
    ndarray, shape (..., H, Q)
        Means over all positions at which a query stands, weighted by attention on tokens that are known and
        are not the query's position itself; NaN where no attention goes there.

    Raises
    ------
    ShapeError
        If maps, tokens and values do not fit.
    DataError
        If tokens lie outside the vocabulary.
    """
    value, probes = _read(maps, tokens, cooc)
    size = len(cooc.queries), cooc.vocabulary
    table = as_float(values, "values", ndim=2, last=size, meaning="queries and token types", finite=False)
    out = np.full((*value.shape[:-4], value.shape[-3], size[0]), np.nan)
    for q, a, p, t in _rows(value, probes, cooc.queries):
        x = table[q][probes[p]]
        known = ~np.isnan(x) & (np.arange(value.shape[-1]) != t[:, None])
        weight = np.einsum("...kht,kt->...h", a, known.astype(float))
        total = np.einsum("...kht,kt->...h", a, np.where(known, x, 0.0))
        out[..., q] = np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)
    return out


def _read(maps: ArrayLike, tokens: ArrayLike, cooc: Cooccurrence) -> tuple[FloatArray, IntArray]:
    value, probes = as_float(maps, "maps", min_ndim=4), np.asarray(tokens)
    if probes.ndim != 2 or not np.issubdtype(probes.dtype, np.integer):
        raise ShapeError(
            f"tokens must be whole numbers of shape (P, T), got {probes.dtype} of shape {probes.shape}."
        )
    P, T = probes.shape
    if (value.shape[-4], *value.shape[-2:]) != (P, T, T):
        raise ShapeError(
            f"maps must end in axes (P, H, T, T) with P = {P} and T = {T} as in tokens, "
            f"got shape {value.shape}."
        )
    if not ((probes >= 0) & (probes < cooc.vocabulary)).all():
        raise DataError(f"tokens must lie in 0..{cooc.vocabulary - 1}, got {probes.min()}..{probes.max()}.")
    return value, probes.astype(np.int64)


def _rows(
    value: FloatArray, probes: IntArray, queries: IntArray
) -> Iterator[tuple[int, FloatArray, IntArray, IntArray]]:
    """For each query its rows (..., k, H, T) that read something, with their probes and positions."""
    reads = (value > 0).any((-3, -1)).reshape(-1, *probes.shape).any(0)
    for q, token in enumerate(queries):
        p, t = np.nonzero((probes == token) & reads)
        if len(t):
            # both indices are apart from each other, so their axis comes first
            yield q, np.moveaxis(value[..., p, :, t, :], 0, -3), p, t
