"""Predicting trained attention without looking at it: the head whose optimal attention is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare, svm
from svmlib.arrays import BoolArray, FloatArray
from svmlib.attention import Direct, best_attention, probabilities
from svmlib.data import Problem
from svmlib.dynamics import normalized, train

from ._mixtures import combined
from .framework import Task, experiment
from .selection_count import SELECTED, lambda_problem

__all__ = ["p1_lambda_head"]

RATE = 0.1


def _compared(
    p: Problem, W: FloatArray, s: FloatArray, chosen: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """One minus the correlation with the sum, and with the direction; norm of the finite part."""
    mm = svm.generalized_svm(p, chosen, errors="nan").W
    finite = svm.finite_part(p, s, chosen, errors="nan").W
    eq = 1 - compare.correlation(W, combined(W[..., None, :, :], finite, mm)[..., 0, :, :])
    return eq, 1 - compare.correlation(W, mm), np.linalg.norm(finite, axis=(-2, -1))


def _one(curvature: float, n: int, T: int, horizons: tuple[int, ...], task: Task) -> dict[str, ArrayLike]:
    p = lambda_problem([curvature], task.trials, task.seed, T, n).flat()
    star = best_attention(p).probabilities
    run = train(p, Direct.zeros(p), normalized(RATE), horizons[-1], record=horizons, device=task.device)
    found: dict[str, list[Any]] = {}
    for k in range(len(horizons)):
        W = run.W[:, k]
        s = probabilities(p, W)
        eq, mm, finite = _compared(p, W, star, star > 0)
        own_eq, own_mm, _ = _compared(p, W, s, s > SELECTED)
        row = {
            "eq": eq,
            "mm": mm,
            "finite": finite,
            "own_eq": own_eq,
            "own_mm": own_mm,
            "distance": np.abs(s - star).max((-2, -1)),
            "masked": np.where(star > 0, 0.0, s).max((-2, -1)),
            "size": np.linalg.norm(W, axis=(-2, -1)),
        }
        for key, a in row.items():
            found.setdefault(key, []).append(a)
    return {"selected": (star > 0).sum(-1), **{key: np.stack(a, -1) for key, a in found.items()}}


@experiment(
    "p1_lambda_head",
    about="predicting W for heads v'u - lambda |u|^2 whose optimal attention is known beforehand",
    source="Transformers as Support Vector Machines (2023), figure on the head with a quadratic penalty",
    trials=100,
    test_trials=10,
    cost="about 1 minute on one core",
)
def p1_lambda_head(
    task: Task,
    *,
    curvatures: Sequence[float] = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0),
    n: int = 3,
    T: int = 8,
    horizons: Sequence[int] = (500, 2000, 8000),
) -> dict[str, ArrayLike]:
    """Compare trained weights with what the optimal attention predicts: no number of the run enters but R.

    Normalised steps of length 0.1 from W = 0 on the logistic loss, orthonormal tokens with T = d, labels +1.

    Parameters
    ----------
    task : Task
        Instances for each curvature, seed, device.
    curvatures : sequence of float
        Values of lambda.
    n, T : int
        Sequences and tokens.
    horizons : sequence of int
        Steps at which to look, increasing.

    Returns
    -------
    dict
        ``curvatures`` (L,), ``horizons`` (H,); ``selected`` (L, trials, n), tokens that optimal attention
        selects; and, each (L, trials, H): ``eq`` and ``mm``, one minus the correlation of W with the finite
        part plus the generalised SVM and with the generalised SVM alone, both from optimal attention;
        ``own_eq`` and ``own_mm``, from the run's own attention, where more than 0.01 counts as selected;
        ``distance``, largest difference between trained and optimal attention; ``masked``, largest
        probability of a token that optimal attention masks out; ``finite`` and ``size``, norms of the finite
        part and of W. NaN where nothing is masked out, so that there is no direction.
    """
    found: dict[str, list[Any]] = {}
    for curvature in task.progress(curvatures, "lambda"):
        part = task.part(f"lambda{curvature:g}", _one, float(curvature), n, T, tuple(horizons), task)
        for key, a in part.items():
            found.setdefault(key, []).append(a)
    return {
        "curvatures": np.asarray(curvatures),
        "horizons": np.asarray(horizons),
        **{key: np.stack(a) for key, a in found.items()},
    }
