"""The induction task: find the earlier occurrence of a symbol and report what followed it."""

from __future__ import annotations

import itertools

import numpy as np

from svmlib.arrays import FloatArray, check_integer
from svmlib.attention import Transformed
from svmlib.data import Problem
from svmlib.errors import ShapeError

__all__ = ["induction_problem", "induction_values", "prefix_sharing"]

SYMBOLS, PAIRS = 4, 3


def induction_problem(n: int = 24, batch: int = 1, seed: int = 0) -> Problem:
    """Make sequences "symbol, value, symbol, value, ..." and a query that repeats one of the symbols.

    The label is the sign of the value that followed that symbol; the other values have the opposite sign. A
    token holds, side by side, its symbol, an empty buffer of the same width, its value and its position. No
    single token says which value is asked for: a model has to bring a symbol to the value after it first.

    Parameters
    ----------
    n : int
        Number of sequences, drawn without repetition out of 144.
    batch : int
        Number of instances.
    seed : int
        Seed of the first.

    Returns
    -------
    Problem
        With T = 6, d = 15 and a head that reads the value.

    Raises
    ------
    ShapeError
        If n is larger than 144.
    """
    everything = list(itertools.product(itertools.permutations(range(SYMBOLS), PAIRS), range(PAIRS), (-1, 1)))
    if check_integer(n, "n") > len(everything):
        raise ShapeError(f"There are {len(everything)} different sequences, got n = {n}.")
    T, value = 2 * PAIRS, 2 * SYMBOLS
    d = value + 1 + T
    count = check_integer(batch, "batch")
    X, z, y = np.zeros((count, n, T, d)), np.zeros((count, n, d)), np.zeros((count, n))
    X[..., np.arange(T), value + 1 + np.arange(T)] = 1.0
    for b in range(count):
        picked = np.random.default_rng(check_integer(seed, "seed", 0) + b).permutation(len(everything))[:n]
        for i, j in enumerate(picked):
            symbols, asked, sign = everything[j]
            for k, symbol in enumerate(symbols):
                X[b, i, 2 * k, symbol] = 1.0
                X[b, i, 2 * k + 1, value] = sign if k == asked else -sign
            z[b, i, symbols[asked]], y[b, i] = 1.0, sign
    return Problem(X, z, y, np.eye(d)[value])


def induction_values(problem: Problem) -> FloatArray:
    """Value maps of two layers: the first copies symbols into buffers, the second passes values on, times 4.

    Parameters
    ----------
    problem : Problem
        Gives the width.

    Returns
    -------
    ndarray, shape (2, 1, d, d)
        For the weights of a transformer with one head.
    """
    V = np.zeros((2, 1, problem.d, problem.d))
    V[0, 0, SYMBOLS + np.arange(SYMBOLS), np.arange(SYMBOLS)] = 1.0
    V[1, 0] = 4.0 * np.eye(problem.d)
    return V


def prefix_sharing(seen: Transformed) -> dict[str, FloatArray]:
    """Measure the two steps of the induction mechanism.

    Parameters
    ----------
    seen : Transformed
        Two layers of one head on :func:`induction_problem`.

    Returns
    -------
    dict of str to ndarray
        ``previous``, (batch,) mean attention of value positions to the symbol before them in the first layer;
        ``match``, (batch,) mean attention of the read-out stream to the right value in the second.
    """
    T, symbols = seen.probabilities.shape[-1], np.arange(SYMBOLS)
    values = np.arange(1, T, 2)
    first = seen.probabilities[:, 0, 0][..., values, values - 1]
    tokens = seen.inputs[:, 0, :, :T]
    asked = np.einsum("bnts,bns->bnt", tokens[..., symbols], seen.inputs[:, 0, :, T][..., symbols])
    after = np.roll(asked, 1, axis=-1)
    second = (seen.probabilities[:, 1, 0, :, T] * after).sum(-1)
    return {"previous": first.mean((1, 2)), "match": second.mean(1)}
