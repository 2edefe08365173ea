"""Local convergence in many random instances, at the papers' scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from svmlib import compare, data, selection, svm
from svmlib.arrays import BoolArray, FloatArray, IntArray, check_integer
from svmlib.attention import Direct, Factored
from svmlib.dynamics import normalized, train

from .framework import Task, experiment

__all__ = ["LocalConvergence", "local_convergence", "p1_local_convergence"]


@dataclass(frozen=True, slots=True, eq=False)
class LocalConvergence:
    """Where gradient descent went in many random instances, for one parametrisation."""

    steps: IntArray
    """(r,) recorded steps."""
    fro: FloatArray
    """(runs, r) correlation with the Frobenius SVM of the tokens that the run selected."""
    nuc: FloatArray
    """(runs, r) the same for the nuclear SVM."""
    top_probability: FloatArray
    """(runs, r) largest attention probability, mean over sequences."""
    size: FloatArray
    """(runs, r) Frobenius norm of W, or of K Q^T."""
    feasible: BoolArray
    """(runs,) whether the selected tokens can be separated; correlations are NaN where not."""
    optimal: BoolArray
    """(runs,) whether every selected token is the optimal one."""
    optimal_share: FloatArray
    """(runs,) share of sequences whose selected token is the optimal one."""
    locally_optimal: BoolArray
    """(runs,) whether the selected tokens are locally optimal in the parametrisation's own norm."""
    support_share: FloatArray
    """(runs,) share of the other tokens that are support tokens, own norm; NaN where infeasible."""


def local_convergence(
    runs: int = 100,
    *,
    n: int = 6,
    T: int = 8,
    d: int = 10,
    steps: int = 2000,
    seed: int = 0,
    record: Any = None,
    device: str | None = None,
    progress: bool = False,
) -> tuple[LocalConvergence, LocalConvergence]:
    """Local convergence of W and of (K, Q) to the SVMs of their own tokens, at the papers' scale.

    Normalised gradient descent with steps of 0.1 on the logistic loss, W from uniform random entries and
    (K, Q) from a small random K and Q = 0 (Tarzanagh et al. 2023, experiment on local convergence).

    Parameters
    ----------
    runs : int
        Number of random instances, seeds ``seed`` to ``seed + runs - 1``.
    n, T, d : int
        Sizes of an instance.
    steps : int
        Number of steps.
    seed : int
        Seed of the first instance and of the starts.
    record : optional
        Steps to record, see :func:`svmlib.dynamics.record_steps`.
    device : str, optional
        Where to train, see :func:`svmlib.arrays.resolve_device`.
    progress : bool
        Whether to show progress bars.

    Returns
    -------
    W : LocalConvergence
        Record of training W.
    KQ : LocalConvergence
        Record of training (K, Q).
    """
    how = {"steps": steps, "seed": seed, "record": record, "device": device, "progress": progress}
    return (_trained("W", runs, n, T, d, **how), _trained("KQ", runs, n, T, d, **how))


def _trained(
    what: str,
    runs: int,
    n: int,
    T: int,
    d: int,
    *,
    steps: int,
    seed: int,
    record: Any = None,
    device: str | None,
    progress: bool,
) -> LocalConvergence:
    p = data.random_problem(n, T, d, batch=check_integer(runs, "runs"), seed=seed)
    start: Any = Direct.random(p, seed=seed) if what == "W" else Factored.random(p, seed=seed)
    run = train(p, start, normalized(0.1), steps, record=record, device=device, progress=progress)
    solutions = {norm: svm.attention_svm(p, run.selected, norm=norm, errors="nan") for norm in ("fro", "nuc")}
    mine = solutions["fro" if what == "W" else "nuc"]
    right = run.selected == p.optimal
    return LocalConvergence(
        steps=run.steps,
        fro=compare.correlation(run.W, solutions["fro"].W),
        nuc=compare.correlation(run.W, solutions["nuc"].W),
        top_probability=run.top_probability.mean(-1),
        size=np.linalg.norm(run.W, axis=(-2, -1)),
        feasible=mine.feasible,
        optimal=right.all(-1),
        optimal_share=right.mean(-1),
        locally_optimal=selection.locally_optimal(p, mine),
        support_share=np.where(mine.solved, mine.support.sum((-2, -1)) / (n * max(T - 1, 1)), np.nan),
    )


def _numbers(what: str, task: Task, n: int, T: int, d: int, steps: int) -> dict[str, Any]:
    found = _trained(
        what,
        task.trials,
        n,
        T,
        d,
        steps=steps,
        seed=task.seed,
        device=task.device,
        progress=task.show_progress,
    )
    return {field: getattr(found, field) for field in LocalConvergence.__dataclass_fields__}


@experiment(
    "p1_local_convergence",
    about="local convergence of W and of (K, Q), n=6, T=8, d=10",
    source="Transformers as Support Vector Machines (2023), experiment on local convergence",
    trials=100,
    cost="2 s on one core",
)
def p1_local_convergence(
    task: Task, *, n: int = 6, T: int = 8, d: int = 10, steps: int = 2000
) -> dict[str, Any]:
    """Correlation of W and of (K, Q) with the SVMs of the tokens that they select.

    Parameters
    ----------
    task : Task
        Trials are random instances; the seed is that of the first, and of the starts.
    n, T, d : int
        Sizes of an instance.
    steps : int
        Number of steps.

    Returns
    -------
    W_steps, KQ_steps : ndarray
        (r,) recorded steps.
    W_fro, W_nuc, KQ_fro, KQ_nuc : ndarray
        (trials, r) correlations, one array for what was trained and each norm of the SVM.
    W_top_probability, W_size, KQ_top_probability, KQ_size : ndarray
        (trials, r) largest attention probability and Frobenius norm.
    W_feasible, W_optimal, W_optimal_share, W_locally_optimal, W_support_share : ndarray
        (trials,) what :class:`LocalConvergence` says of the selected tokens.
    KQ_feasible, KQ_optimal, KQ_optimal_share, KQ_locally_optimal, KQ_support_share : ndarray
        (trials,) the same for (K, Q).
    """
    return {
        f"{what}_{field}": value
        for what in ("W", "KQ")
        for field, value in task.part(what, _numbers, what, task, n, T, d, steps).items()
    }
