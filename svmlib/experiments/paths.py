"""Regularisation paths of W and of (K, Q) beside the two SVMs, on one small instance and on many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare, data, dynamics, svm
from svmlib.arrays import FloatArray
from svmlib.attention import probabilities
from svmlib.data import Problem

from .framework import Task, experiment

__all__ = ["feature_weights", "p1_regularization_path", "path_residual"]

TABLE = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
SLOPE: dict[str, Callable[[FloatArray], FloatArray]] = {
    "logistic": lambda f: np.asarray(1.0 / (1.0 + np.exp(f))),
    "exponential": lambda f: np.asarray(np.exp(-f)),
    "linear": np.ones_like,
}


def feature_weights(problem: Problem, tokens: ArrayLike | None = None, loss: str = "logistic") -> FloatArray:
    r"""Compute weights :math:`w_{it}=|\ell'(\gamma_{i\alpha_i})|(\gamma_{i\alpha_i}-\gamma_{it})`.

    Parameters
    ----------
    problem : Problem
        With linear head.
    tokens : array_like of int, shape (..., n), optional
        Selected tokens; the optimal ones by default.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    ndarray, shape (..., n, T)
        0 at the selected tokens.
    """
    index = problem.checked_tokens(tokens)
    gamma = problem.scores
    best = np.take_along_axis(gamma, index[..., None], -1)
    return np.asarray(SLOPE[loss](best) * (best - gamma))


def path_residual(problem: Problem, solution: svm.AttentionSVM, loss: str = "logistic") -> FloatArray:
    r"""Bounded part :math:`\widetilde W` that the Frobenius path keeps beside the SVM's direction.

    It lies in the span of the support features, is orthogonal to the solution, and
    :math:`\langle A_j,\widetilde W\rangle-\log(w_j/\lambda_j)` is the same for all support features j.

    Parameters
    ----------
    problem : Problem
        One problem, no batch.
    solution : AttentionSVM
        Its Frobenius SVM, of any selection.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    ndarray, shape (e, q)
        The matrix; NaN where support features are dependent or a multiplier vanishes.
    """
    lam = solution.multipliers
    on = solution.support & solution.constrained
    A = np.einsum("ntd,ne->ntde", problem.differences(solution.tokens), problem.z)[on]
    flat, active = A.reshape(len(A), -1), lam[on]
    generic = len(A) > 0 and active.min() > 1e-7 * active.max()
    if not generic or np.linalg.matrix_rank(flat, tol=1e-9 * np.linalg.norm(flat)) < len(A):
        return np.full_like(solution.W, np.nan)
    weight = feature_weights(problem, solution.tokens, loss)[on]
    if not (weight > 0).all():
        return np.full_like(solution.W, np.nan)
    target = np.log(weight / active)
    target -= (active * target).sum() / active.sum()
    return np.asarray((np.linalg.solve(flat @ flat.T, target) @ flat).reshape(solution.W.shape))


@experiment(
    "p1_regularization_path",
    about="regularisation paths of W and (K, Q) against both SVMs, a table and random instances",
    source="Transformers as Support Vector Machines (2023), theorem on the regularisation path",
    trials=100,
    cost="about 20 s on one core",
)
def p1_regularization_path(
    task: Task,
    *,
    n: int = 3,
    T: int = 5,
    d: int = 4,
    radii: tuple[float, ...] = (2, 5, 10, 20, 40, 80, 160, 320, 640, 1280),
) -> dict[str, ArrayLike]:
    """Follow both paths on random instances, and on one that is small enough for a table.

    Every point is stationary to 1e-8 or better, and the best of four starts.

    Parameters
    ----------
    task : Task
        Number of instances, seed of the first one, progress and storage.
    n, T, d : int
        Sizes of the random instances; with d at least T - 1 and n all of them are feasible.
    radii : tuple of float
        Radii of the random instances.

    Returns
    -------
    dict of str to array
        "radii" (r,). For the paths "fro" and "nuc", of shape (trials, r): "fro_fro" is the correlation of
        the Frobenius path with the Frobenius SVM, "fro_nuc" with the nuclear one, and so on; "margin_fro"
        the smallest margin over its largest value at this radius; "probability_fro" that of the optimal
        tokens, mean over sequences; "optimal_fro", whether all optimal tokens have the largest
        probability; "log_gap_fro", "log_floor_fro", "stationarity_fro", "start_fro" as in
        :class:`svmlib.dynamics.Path`. "both" (trials,), correlation of the two solutions; "residual"
        (trials,), norm of the predicted residual. "table_radii" (6,) and "table_fro_fro" to
        "table_nuc_nuc" (6,), "table_K", "table_Q", "table_norm" (6,), norms of the factors and of their
        product, for n = 2, T = 3, d = 3, seed 11.
    """
    parts: dict[str, Any] = {}
    for norm in task.progress(("fro", "nuc"), "paths"):
        parts |= task.part(norm, _paths, (n, T, d), task.trials, task.seed, norm, radii)
    p = data.random_problem(n, T, d, batch=task.trials, seed=task.seed)
    fro, nuc = (svm.attention_svm(p, norm=norm) for norm in ("fro", "nuc"))
    lengths = [np.linalg.norm(path_residual(p[b], svm.attention_svm(p[b]))) for b in range(task.trials)]
    return {
        "radii": np.array(radii),
        **parts,
        "both": compare.correlation(fro.W, nuc.W),
        "residual": np.array(lengths),
        **task.part("table", _table),
    }


def _paths(
    size: tuple[int, int, int], trials: int, seed: int, norm: str, radii: tuple[float, ...]
) -> dict[str, ArrayLike]:
    n, T, d = size
    p = data.random_problem(n, T, d, batch=trials, seed=seed)
    path = dynamics.regularization_path(p, radii, norm, seed=seed)
    solutions = {name: svm.attention_svm(p, norm=name) for name in ("fro", "nuc")}
    best = p.optimal[:, None]
    margins = np.einsum("bntd,brde,bne->brnt", p.differences(), path.W, p.z)
    smallest = np.where(np.arange(T) == best[..., None], np.inf, margins).min((-2, -1))
    s = probabilities(p, path.W)
    chosen = np.take_along_axis(s, best[..., None], -1)[..., 0]
    return {
        **{f"{norm}_{k}": compare.correlation(path.W, v.W) for k, v in solutions.items()},
        f"margin_{norm}": smallest / (path.radii * solutions[norm].margin[:, None]),
        f"probability_{norm}": chosen.mean(-1),
        f"optimal_{norm}": (s.argmax(-1) == best).all(-1),
        f"log_gap_{norm}": path.log_gap,
        f"log_floor_{norm}": path.log_floor,
        f"stationarity_{norm}": path.stationarity,
        f"start_{norm}": path.start,
    }


def _table() -> dict[str, ArrayLike]:
    p = data.random_problem(2, 3, 3, seed=11)
    solutions = {name: svm.attention_svm(p, norm=name) for name in ("fro", "nuc")}
    paths = {name: dynamics.regularization_path(p, TABLE, name) for name in solutions}
    factors = paths["nuc"]
    assert factors.K is not None and factors.Q is not None
    return {
        "table_radii": np.array(TABLE),
        **{
            f"table_{a}_{b}": compare.correlation(path.W, s.W)
            for a, path in paths.items()
            for b, s in solutions.items()
        },
        "table_K": np.linalg.norm(factors.K, axis=(-2, -1)),
        "table_Q": np.linalg.norm(factors.Q, axis=(-2, -1)),
        "table_norm": np.linalg.svd(factors.W, compute_uv=False).sum(-1),
    }
