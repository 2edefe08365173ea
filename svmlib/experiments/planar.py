"""Trajectories in the plane: the papers' first picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from svmlib import compare, data, svm
from svmlib.arrays import FloatArray
from svmlib.attention import Direct, Factored
from svmlib.dynamics import Run, normalized, train

from .framework import Task, experiment

__all__ = ["PlanarPaths", "p1_planar_1", "p1_planar_2", "planar_paths"]


@dataclass(frozen=True, slots=True, eq=False)
class PlanarPaths:
    """Paths of the mapped queries W z_i in the plane, for both parametrisations, beside the SVMs' rays."""

    problem: data.Problem
    """The instance, n = 2 and d = 2."""
    W: Run
    """Run of W from 0."""
    KQ: Run
    """Run of (K, Q) from Q = 0 and a small random K."""
    fro: svm.AttentionSVM
    """SVM of the tokens that W selects, Frobenius norm."""
    nuc: svm.AttentionSVM
    """SVM of the tokens that (K, Q) selects, nuclear norm."""
    W_path: FloatArray
    """(r, n, d) mapped queries W(k) z_i."""
    KQ_path: FloatArray
    """(r, n, d) mapped queries K Q^T z_i."""
    correlations: dict[str, FloatArray]
    """(r,) each: "W_fro", "W_nuc", "KQ_fro", "KQ_nuc", iterates against either solution."""


def planar_paths(
    which: int,
    steps: int = 2000,
    *,
    seed: int = 0,
    record: Any = None,
    loss: str = "logistic",
    device: str | None = None,
) -> PlanarPaths:
    """Two-dimensional trajectories of normalised gradient descent (Tarzanagh et al. 2023, section 1).

    Parameters
    ----------
    which : int
        1 or 2, see :func:`svmlib.data.planar`.
    steps : int
        Number of steps of length 0.1.
    seed : int
        Seed of the start of K.
    record : optional
        Steps to record, see :func:`svmlib.dynamics.record_steps`.
    loss : str
        "logistic", "exponential" or "linear".
    device : str, optional
        Where to train, see :func:`svmlib.arrays.resolve_device`.

    Returns
    -------
    PlanarPaths
        Runs, solutions and paths.
    """
    p = data.planar(which)
    rule = normalized(0.1)
    run_W = train(p, Direct.zeros(p), rule, steps, record=record, loss=loss, device=device)
    run_KQ = train(p, Factored.random(p, seed=seed), rule, steps, record=record, loss=loss, device=device)
    fro = svm.attention_svm(p, run_W.selected, norm="fro")
    nuc = svm.attention_svm(p, run_KQ.selected, norm="nuc")
    correlations = {
        f"{name}_{s.norm}": compare.correlation(run.W, s.W)
        for name, run in (("W", run_W), ("KQ", run_KQ))
        for s in (fro, nuc)
    }
    path_W, path_KQ = (np.einsum("rde,ne->rnd", run.W, p.z) for run in (run_W, run_KQ))
    return PlanarPaths(p, run_W, run_KQ, fro, nuc, path_W, path_KQ, correlations)


def _numbers(which: int, task: Task, loss: str) -> dict[str, Any]:
    r = planar_paths(which, seed=task.seed, loss=loss, device=task.device)
    return {
        "steps": r.W.steps,
        "W_path": r.W_path,
        "KQ_path": r.KQ_path,
        "W_fro": r.fro.W,
        "W_nuc": r.nuc.W,
        **{f"correlation_{k}": v for k, v in r.correlations.items()},
    }


@experiment(
    "p1_planar_1",
    about="planar trajectories, first instance",
    source="Transformers as Support Vector Machines (2023), trajectories in section 1",
    trials=1,
    cost="1 s on one core",
)
def p1_planar_1(task: Task, *, loss: str = "logistic") -> dict[str, Any]:
    """Mapped queries of gradient descent in the plane, first instance: W turns to a full-rank solution.

    Parameters
    ----------
    task : Task
        The seed is that of the start of K.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    steps : ndarray
        (r,) recorded steps, those of :class:`PlanarPaths`, as all of the arrays.
    W_path, KQ_path : ndarray
        (r, 2, 2) mapped queries.
    W_fro, W_nuc : ndarray
        (2, 2) solutions of the two SVMs.
    correlation_W_fro, correlation_W_nuc, correlation_KQ_fro, correlation_KQ_nuc : ndarray
        (r,) correlations of the iterates with either solution.
    """
    return _numbers(1, task, loss)


@experiment(
    "p1_planar_2",
    about="planar trajectories, second instance",
    source="Transformers as Support Vector Machines (2023), trajectories in section 1",
    trials=1,
    cost="1 s on one core",
)
def p1_planar_2(task: Task, *, loss: str = "logistic") -> dict[str, Any]:
    """Mapped queries of gradient descent in the plane, second instance, with five tokens.

    Parameters
    ----------
    task : Task
        The seed is that of the start of K.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    steps, W_path, KQ_path, W_fro, W_nuc : ndarray
        As in :func:`p1_planar_1`.
    correlation_W_fro, correlation_W_nuc, correlation_KQ_fro, correlation_KQ_nuc : ndarray
        As in :func:`p1_planar_1`.
    """
    return _numbers(2, task, loss)
