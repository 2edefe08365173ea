"""The papers' experiments, one function per figure or table, each returning a record of numbers.

``svmlib reproduce --list`` names them; ``svmlib reproduce NAME --out FOLDER`` runs one and stores its record.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import compare, data, selection, svm
from .arrays import BoolArray, FloatArray, IntArray, check_integer
from .attention import Direct, Factored
from .dynamics import Run, normalized, train
from .errors import DataError

__all__ = ["EXPERIMENTS", "LocalConvergence", "PlanarPaths", "local_convergence", "planar_paths", "trials"]

RATE = 0.1  # step length in all of the papers' experiments


def trials(full: int, test: int) -> int:
    """Number of trials for this build: ``full``, or ``test`` where SVMLIB_SCALE=test asks for a small one.

    Only numbers of repetitions shrink this way, never a size or a number of steps that a claim depends on.

    Parameters
    ----------
    full, test : int
        Numbers for the two scales.

    Returns
    -------
    int
        One of them.

    Raises
    ------
    DataError
        If SVMLIB_SCALE is set to anything but "full" or "test".
    """
    scale = os.environ.get("SVMLIB_SCALE") or "full"
    if scale not in ("full", "test"):
        raise DataError(f'SVMLIB_SCALE must be "full" or "test", got {scale!r}.')
    return full if scale == "full" else test


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
    which: int, steps: int = 2000, *, seed: int = 0, record: Any = None, loss: str = "logistic"
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

    Returns
    -------
    PlanarPaths
        Runs, solutions and paths.
    """
    p = data.planar(which)
    rule = normalized(RATE)
    run_W = train(p, Direct.zeros(p), rule, steps, record=record, loss=loss)
    run_KQ = train(p, Factored.random(p, seed=seed), rule, steps, record=record, loss=loss)
    fro = svm.attention_svm(p, run_W.selected, norm="fro")
    nuc = svm.attention_svm(p, run_KQ.selected, norm="nuc")
    correlations = {
        f"{name}_{s.norm}": compare.correlation(run.W, s.W)
        for name, run in (("W", run_W), ("KQ", run_KQ))
        for s in (fro, nuc)
    }
    path_W, path_KQ = (np.einsum("rde,ne->rnd", run.W, p.z) for run in (run_W, run_KQ))
    return PlanarPaths(p, run_W, run_KQ, fro, nuc, path_W, path_KQ, correlations)


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
    p = data.random_problem(n, T, d, batch=check_integer(runs, "runs"), seed=seed)
    starts: tuple[tuple[Any, str], ...] = (
        (Direct.random(p, seed=seed), "fro"),
        (Factored.random(p, seed=seed), "nuc"),
    )
    out = []
    for start, own in starts:
        run = train(p, start, normalized(RATE), steps, record=record, device=device, progress=progress)
        solutions = {
            norm: svm.attention_svm(p, run.selected, norm=norm, errors="nan") for norm in ("fro", "nuc")
        }
        mine = solutions[own]
        right = run.selected == p.optimal
        share = np.where(mine.solved, mine.support.sum((-2, -1)) / (n * max(T - 1, 1)), np.nan)
        out.append(
            LocalConvergence(
                steps=run.steps,
                fro=compare.correlation(run.W, solutions["fro"].W),
                nuc=compare.correlation(run.W, solutions["nuc"].W),
                top_probability=run.top_probability.mean(-1),
                size=np.linalg.norm(run.W, axis=(-2, -1)),
                feasible=mine.feasible,
                optimal=right.all(-1),
                optimal_share=right.mean(-1),
                locally_optimal=selection.locally_optimal(p, mine),
                support_share=share,
            )
        )
    return out[0], out[1]


EXPERIMENTS: dict[str, tuple[str, Callable[[int | None, int, str | None], dict[str, Any]]]] = {}


def _experiment(name: str, about: str) -> Callable[[Any], Any]:
    def register(run: Callable[[int | None, int, str | None], dict[str, Any]]) -> Any:
        EXPERIMENTS[name] = (about, run)
        return run

    return register


def _planar_numbers(which: int, seed: int) -> dict[str, Any]:
    r = planar_paths(which, seed=seed)
    return {
        "steps": r.W.steps,
        "W_path": r.W_path,
        "KQ_path": r.KQ_path,
        "W_fro": r.fro.W,
        "W_nuc": r.nuc.W,
        **{f"correlation_{k}": v for k, v in r.correlations.items()},
    }


@_experiment("p1_planar_1", "planar trajectories, first instance (one run; --trials has no effect)")
def _planar_1(trials: int | None, seed: int, device: str | None) -> dict[str, Any]:
    return _planar_numbers(1, seed)


@_experiment("p1_planar_2", "planar trajectories, second instance (one run; --trials has no effect)")
def _planar_2(trials: int | None, seed: int, device: str | None) -> dict[str, Any]:
    return _planar_numbers(2, seed)


@_experiment("p1_local_convergence", "local convergence of W and of (K, Q), n=6, T=8, d=10, 100 instances")
def _local(trials: int | None, seed: int, device: str | None) -> dict[str, Any]:
    both = local_convergence(100 if trials is None else trials, seed=seed, device=device, progress=True)
    return {
        f"{name}_{field}": getattr(record, field)
        for name, record in zip(("W", "KQ"), both, strict=True)
        for field in record.__dataclass_fields__
    }
