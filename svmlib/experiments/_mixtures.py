"""Random data for ReLU heads, the published acceptance filter, and what formulas predict of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare, svm
from svmlib.arrays import BoolArray, FloatArray, IntArray, as_float, check_integer, torch_normals
from svmlib.attention import mlp, outputs
from svmlib.data import Problem
from svmlib.errors import DataError

__all__ = ["SELECTED", "STATUS", "classify", "composition_problem", "misses", "paired", "silent"]

STATUS = ("accepted", "one label", "between", "finite", "unsolved")
"""What the filter says of a run, in the order of its numbers."""

SELECTED = 1e-3  # probability above which a token counts as selected
MASKED = 1e-6  # and up to which it counts as masked out


def composition_problem(
    n: int, T: int, d: int, hidden: int | None = None, batch: int | None = None, seed: int = 0
) -> Problem:
    r"""Random data of the papers with a random ReLU head, :math:`\mathbf1^\top\mathrm{relu}(V^\top u)`.

    Element b of a batch draws V, y, X, z in this order from torch's generator with seed ``seed + b``, in
    float32, as :func:`svmlib.data.random_problem` draws v, y, X, z. V is Gaussian, divided by its Frobenius
    norm.

    Parameters
    ----------
    n, T, d : int
        Sequences, tokens of a sequence, dimension.
    hidden : int, optional
        Width h of the head, d by default.
    batch : int, optional
        Number of instances; None gives one problem without a batch axis.
    seed : int
        Seed of the first instance.

    Returns
    -------
    Problem
        Tokens and queries on the unit sphere, fair labels, a head of its own for each instance.
    """
    h = d if hidden is None else check_integer(hidden, "hidden")
    seed = check_integer(seed, "seed", 0)
    columns: list[list[FloatArray]] = [[], [], [], []]
    for b in range(1 if batch is None else check_integer(batch, "batch")):
        V, label, X, z = torch_normals(seed + b, (d, h), (n,), (n, T, d), (n, d))
        unit = [a / np.linalg.norm(a, axis=-1, keepdims=True) for a in (X, z)]
        drawn = (*unit, np.where(label < 0, -1.0, 1.0), V / np.linalg.norm(V))
        for column, a in zip(columns, drawn, strict=True):
            column.append(a)
    X, z, y, V = (np.stack(c) if batch is not None else c[0] for c in columns)
    return Problem(X, z, y, head=mlp(V))


def classify(problem: Problem, s: ArrayLike) -> IntArray:
    """Apply the published filter to attention probabilities.

    Parameters
    ----------
    problem : Problem
        Gives the labels.
    s : array_like, shape (..., n, T)
        Probabilities at the end of training.

    Returns
    -------
    ndarray of int, shape (...)
        Positions in :data:`STATUS`, of the first of these that applies: no label -1 ("one label"), a
        probability above 1e-6 and up to 1e-3 ("between"), none up to 1e-6 ("finite"), else 0. Whether the
        solvers fail is another question.
    """
    p = as_float(s, "s")
    between = ((p > MASKED) & (p <= SELECTED)).any((-2, -1))
    finite = ~(p <= MASKED).any((-2, -1))
    one_label = (problem.y > 0).all(-1)
    return np.where(one_label, 1, np.where(between, 2, np.where(finite, 3, 0))).astype(np.int64)


def silent(problem: Problem, W: ArrayLike) -> BoolArray:
    r"""Sequences whose ReLU head is off: all its units are at most 0, and so is the gradient.

    Parameters
    ----------
    problem : Problem
        With a head of :func:`svmlib.attention.mlp`.
    W : array_like, shape (..., e, q) or (..., r, e, q)
        Attention matrices or iterates.

    Returns
    -------
    ndarray of bool, shape (..., n) or (..., r, n)
        True where the head returns 0.

    Raises
    ------
    DataError
        If the problem has another head.
    """
    V = getattr(problem.head, "V", None)
    if V is None:
        raise DataError(f"silent asks ReLU units: the head must be attention.mlp(V), got {problem.head!r}.")
    u = outputs(problem, W)
    if u.ndim > problem.z.ndim and V.ndim > 2:
        V = V[..., None, :, :]
    return np.asarray((np.einsum("...nd,...dh->...nh", u, V) <= 0).all(-1))


def combined(W: FloatArray, finite: FloatArray, direction: FloatArray) -> FloatArray:
    r"""Best :math:`W^{fin}+R\,W^{mm}` for iterates W (..., r, e, q): R is fitted by least squares."""
    F, D = finite[..., None, :, :], direction[..., None, :, :]
    square = (D * D).sum((-2, -1))
    R = ((W - F) * D).sum((-2, -1)) / np.where(square == 0, 1.0, square)  # nothing masked out: D = 0
    return np.asarray(F + R[..., None, None] * D)


def misses(problem: Problem, W: ArrayLike, s: ArrayLike, norm: str = "fro") -> dict[str, FloatArray]:
    r"""One minus the correlation of iterates with what three formulas predict from the final attention.

    Parameters
    ----------
    problem : Problem
        Data.
    W : array_like, shape (..., r, e, q)
        Iterates.
    s : array_like, shape (..., n, T)
        Attention at the end; selected are the tokens with more than 1e-3.
    norm : str
        "fro" or "nuc".

    Returns
    -------
    dict of str to ndarray
        "eq" (..., r), with :math:`W^{fin}+R\,W^{mm}`; "mm" (..., r), with :math:`W^{mm}` of the generalised
        SVM; "one" (..., r), with the attention SVM of the likeliest tokens; "rest" (...), of the last iterate
        less :math:`W^{fin}` with :math:`W^{mm}`; "cosine" (...), of :math:`W^{fin}` and :math:`W^{mm}`, 0
        where one of them is 0. NaN where a program has no solution.
    """
    path, p = as_float(W, "W"), as_float(s, "s")
    chosen = p > SELECTED
    mm = svm.generalized_svm(problem, chosen, norm, errors="nan").W
    finite = svm.finite_part(problem, p, chosen, norm, errors="nan").W
    one = svm.attention_svm(problem, p.argmax(-1), norm, errors="nan").W
    both = compare.correlation(finite, mm)
    several = np.abs(finite).max((-2, -1)) > 0
    return {
        "eq": 1 - compare.correlation(path, combined(path, finite, mm)),
        "mm": 1 - compare.correlation(path, mm),
        "one": 1 - compare.correlation(path, one),
        "rest": 1 - compare.correlation(path[..., -1, :, :] - finite, mm),
        "cosine": np.where(several, both, 0.0),
    }


def paired(one: Any, other: Any, width: int) -> dict[str, tuple[IntArray, IntArray]]:
    """Sort the accepted runs of two records over the same instances by what the records say of them.

    Only instances that both records have reached are sorted.

    Parameters
    ----------
    one, other : Record or mapping of str to ndarray
        Of :func:`svmlib.experiments.p1_composition` or a variant, with the same widths.
    width : int
        Position of the width d that is looked at.

    Returns
    -------
    dict of str to pairs of ndarray
        Positions of runs in ``one`` and in ``other``: "same", accepted in both with the same selected tokens;
        "changed", accepted in both with other selected tokens; "alone", accepted in one record only.
    """
    reached = min(int(r["tried"][width]) for r in (one, other))
    a, b = (r["seed"][width] for r in (one, other))
    _, i, j = np.intersect1d(a, b, return_indices=True)
    chosen = [r["probability"][width][k] > SELECTED for r, k in ((one, i), (other, j))]
    same = (chosen[0] == chosen[1]).all((-2, -1))
    alone = [np.flatnonzero((x < reached) & ~np.isin(x, y)) for x, y in ((a, b), (b, a))]
    return {"same": (i[same], j[same]), "changed": (i[~same], j[~same]), "alone": (alone[0], alone[1])}
