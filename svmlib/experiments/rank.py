"""Ranks of the attention SVM's solutions for both norms, from certified points only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from svmlib import data, svm
from svmlib.arrays import BoolArray, FloatArray
from svmlib.errors import DataError

from .framework import Task, experiment

__all__ = ["p1_rank", "published_ranks", "shown_unique"]

PANELS = ((5, 5), (10, 5), (15, 5), (5, 10), (5, 15))
WIDTHS = (1, 2, 3, 4, 5, 10, 15, 20)
TIGHT = 1e-6  # singular values of the dual matrix this near to 1, multipliers this far from 0


def published_ranks() -> dict[str, FloatArray]:
    """Mean ranks of the published figure at T = 5, read off the plot; NaN where we read nothing.

    Returns
    -------
    dict of str to ndarray, shape (3, 8)
        "fro" and "nuc", rows n = 5, 10, 15, columns d = 1, 2, 3, 4, 5, 10, 15, 20.

    Notes
    -----
    *Transformers as Support Vector Machines* (2023), figure on ranks. Readings are good to about 0.1.
    """
    fro = [
        [1.0, 1.3, 2.8, 3.9, 4.95, 5.0, 5.0, 5.0],
        [1.0, 1.0, 1.2, 3.6, 5.0, 10.0, 10.0, 10.0],
        [1.0, 1.0, 1.0, 1.4, 4.9, 10.0, 15.0, 15.0],
    ]
    nuc = np.full((3, 8), np.nan)
    nuc[1, 5:7] = 9.1, 9.95
    nuc[2, 5:] = 9.7, 13.9, 14.95
    return {"fro": np.array(fro), "nuc": nuc}


@experiment(
    "p1_rank",
    about="ranks of the SVM's solutions in both norms over n, T and d",
    source="Transformers as Support Vector Machines (2023), figure on ranks",
    trials=100,
    cost="about 20 s on one core",
)
def p1_rank(
    task: Task, *, sizes: tuple[tuple[int, int], ...] = PANELS, widths: tuple[int, ...] = WIDTHS
) -> dict[str, ArrayLike]:
    """Solve the SVM of the optimal tokens of random instances and count singular values.

    A singular value counts above 1e-6 of the largest, in a point certified to 1e-9. Infeasible instances have
    no rank.

    Parameters
    ----------
    task : Task
        Number of instances a cell, seed of the first one, progress and storage.
    sizes : tuple of (int, int)
        Pairs (n, T).
    widths : tuple of int
        Widths d.

    Returns
    -------
    dict of str to array
        With c = len(sizes) and w = len(widths): "n", "T" (c,); "d" (w,); and of shape (c, w, trials)
        "feasible", "solved" (bool); "rank_fro", "rank_nuc" (-1 where there is no certified solution);
        "involved", sequences with a positive multiplier (Frobenius); "support", number of support tokens
        (nuclear); "unique", whether the nuclear solution is shown to be unique; "kept" and "dropped", the
        smallest singular value that counts and the largest that does not (nuclear, relative to the largest;
        NaN where there is none); "worst", the certificate of the nuclear solution.
    """
    cells = [(n, T, d) for n, T in sizes for d in widths]
    if not cells:
        raise DataError("p1_rank needs at least one pair in sizes and one number in widths.")
    parts = [
        task.part(f"n{n}_T{T}_d{d}", _one_cell, n, T, d, task.trials, task.seed)
        for n, T, d in task.progress(cells)
    ]
    shape = (len(sizes), len(widths), task.trials)
    stacked = {key: np.stack([part[key] for part in parts]).reshape(shape) for key in parts[0]}
    counts = {"n": np.array([n for n, _ in sizes]), "T": np.array([T for _, T in sizes])}
    return {**counts, "d": np.array(widths), **stacked}


def _one_cell(n: int, T: int, d: int, trials: int, seed: int) -> dict[str, ArrayLike]:
    p = data.random_problem(n, T, d, batch=trials, seed=seed)
    fro = svm.attention_svm(p, norm="fro", errors="nan")
    nuc = svm.attention_svm(p, norm="nuc", errors="nan")
    sigma = np.linalg.svd(np.nan_to_num(nuc.W), compute_uv=False)
    sigma = sigma / np.where(sigma[:, :1] > 0, sigma[:, :1], 1.0)
    counted = np.arange(d) < nuc.rank[:, None]
    kept = np.where(counted, sigma, np.inf).min(-1)
    dropped = np.where(counted, -np.inf, sigma).max(-1)
    kept[~nuc.solved], dropped[~(nuc.solved & (nuc.rank < d))] = np.nan, np.nan
    return {
        "feasible": nuc.feasible,
        "solved": fro.solved & nuc.solved,
        "rank_fro": fro.rank,
        "rank_nuc": nuc.rank,
        "involved": (np.nan_to_num(fro.multipliers) > 0).any(-1).sum(-1),
        "support": nuc.support.sum((-2, -1)),
        "unique": shown_unique(p, nuc),
        "kept": kept,
        "dropped": dropped,
        "worst": nuc.certificate.worst,
    }


def shown_unique(problem: data.Problem, solution: svm.AttentionSVM) -> BoolArray:
    r"""Whether a nuclear solution of each problem is shown to be the only one.

    Let :math:`W=U\Sigma V^\top` have rank r. The solution is unique if exactly r singular values of the dual
    matrix :math:`G=\sum\lambda A` are 1 and the symmetric parts of the :math:`U^\top A_{it}V` with
    :math:`\lambda_{it}>0` span the symmetric matrices. The converse need not hold: False proves nothing.

    Parameters
    ----------
    problem : Problem
        Data, with any batch axes.
    solution : AttentionSVM
        Its solution for the nuclear norm.

    Returns
    -------
    ndarray of bool, shape (...)
        False too where there is no solution.

    Raises
    ------
    DataError
        If the solution is one for the Frobenius norm, which is always unique.
    """
    if solution.norm != "nuc":
        raise DataError(f"shown_unique takes a solution for the nuclear norm, got {solution.norm!r}.")
    out = np.zeros(problem.batch_shape, dtype=bool)
    deltas = problem.differences(solution.tokens)
    for b in np.argwhere(solution.solved):
        at = tuple(b)
        W, lam, delta, z = solution.W[at], solution.multipliers[at], deltas[at], problem.z[at]
        r, (U, _, Vt) = int(solution.rank[at]), np.linalg.svd(W)
        if r == 0:  # nothing to separate: W = 0 is the only matrix of norm 0
            out[at] = True
            continue
        G = np.einsum("nt,ntd,ne->de", lam, delta, z)
        if (np.linalg.svd(G, compute_uv=False)[r:] > 1.0 - TIGHT).any():
            continue
        active = lam > TIGHT * lam.max()
        left, right = delta[active] @ U[:, :r], (z @ Vt[:r].T)[active.nonzero()[0]]
        small = left[:, :, None] * right[:, None, :]
        flat = (small + np.swapaxes(small, -1, -2)).reshape(len(small), -1)
        flat /= np.linalg.norm(flat, axis=-1, keepdims=True)
        out[at] = np.linalg.matrix_rank(flat, tol=TIGHT) == r * (r + 1) // 2
    return out
