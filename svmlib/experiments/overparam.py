"""Over-parameterisation: what changes as tokens get more dimensions than there are constraints."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svmlib import selection, svm
from svmlib.arrays import check_integer
from svmlib.attention import Direct, Factored
from svmlib.data import random_problem
from svmlib.dynamics import normalized, train
from svmlib.errors import DataError

from ._wide import compressed, first_step_separates, slope_along
from .framework import Task, experiment
from .limits import outcome

__all__ = ["p1_global_fraction", "p1_global_map", "p1_spurious_directions", "p1_support_fraction"]

RATE = 0.1
STEPS = 2000
SOURCE = "Transformers as Support Vector Machines (2023), section on over-parameterisation"
PARAMETRISATIONS = ("W", "KQ")


def _outcomes(
    n: int, T: int, d: int, self_attention: bool, which: str, trials: int, seed: int, device: str | None
) -> dict[str, ArrayLike]:
    p = compressed(random_problem(n, T, d, batch=trials, seed=seed, self_attention=self_attention))
    start: Any = Direct.zeros(p) if which == "W" else Factored.random(p, m=d, seed=seed)
    run = train(p, start, normalized(RATE), STEPS, record=[STEPS], device=device)
    norm = "fro" if which == "W" else "nuc"
    chosen = np.take_along_axis(p.scores, run.selected[..., None], -1)
    better = (p.scores > chosen).sum(-1)  # tokens with a higher score, of each sequence
    return {
        "outcome": outcome(p, run.selected, run.top_probability[..., -1, :], norm)[0],
        "wrong": (better > 0).sum(-1),
        "second": (better == 1).sum(-1),
    }


@experiment(
    "p1_global_fraction",
    about="share of global and local limits against d, cross- and self-attention, W and (K, Q)",
    source=SOURCE,
    trials=500,
    test_trials=20,
    cost="about 150 s on one core",
)
def p1_global_fraction(
    task: Task, *, widths: Sequence[int] = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30), n: int = 5, T: int = 5
) -> dict[str, ArrayLike]:
    """Count the limits of normalised gradient descent on random instances of growing dimension.

    2000 steps of length 0.1 on the logistic loss, W from 0, (K, Q) from Q = 0 and a small random K.

    Parameters
    ----------
    task : Task
        Trials, seed and device.
    widths : sequence of int
        Dimensions d.
    n, T : int
        Sequences and tokens.

    Returns
    -------
    dict
        ``widths`` (D,); ``outcome_W_cross``, ``outcome_W_self``, ``outcome_KQ_cross``, ``outcome_KQ_self``,
        each (D, trials): codes of ``svmlib.experiments.limits.OUTCOMES``; ``feasible_cross`` and
        ``feasible_self`` (D, trials): whether the optimal tokens can be separated.
    """
    found: dict[str, list[Any]] = {}
    for d, kind in task.progress(list(product(widths, ("cross", "self"))), "d and kind"):
        sizes = (n, T, d, kind == "self")
        for which in PARAMETRISATIONS:
            part = task.part(
                f"{which}_{kind}_d{d}", _outcomes, *sizes, which, task.trials, task.seed, task.device
            )
            found.setdefault(f"outcome_{which}_{kind}", []).append(part["outcome"])
        part = task.part(f"feasible_{kind}_d{d}", _feasible, *sizes, task.trials, task.seed)
        found.setdefault(f"feasible_{kind}", []).append(part["feasible"])
    return {"widths": np.asarray(widths), **{key: np.stack(rows) for key, rows in found.items()}}


def _feasible(n: int, T: int, d: int, self_attention: bool, trials: int, seed: int) -> dict[str, ArrayLike]:
    p = random_problem(n, T, d, batch=trials, seed=seed, self_attention=self_attention)
    return {"feasible": svm.attention_svm(p, errors="nan").feasible}


@experiment(
    "p1_global_map",
    about="share of global limits over (n, T, d), W and (K, Q)",
    source=SOURCE,
    trials=100,
    test_trials=10,
    cost="about 120 s on one core",
)
def p1_global_map(
    task: Task,
    *,
    sizes: Sequence[Sequence[int]] = ((2, 5), (5, 5), (10, 5), (20, 5), (5, 2), (5, 10), (5, 20)),
    widths: Sequence[int] = (2, 4, 8, 16, 32),
) -> dict[str, ArrayLike]:
    """Count global limits for many numbers of sequences, of tokens and of dimensions.

    Parameters
    ----------
    task : Task
        Trials, seed and device.
    sizes : sequence of pairs
        Pairs (n, T).
    widths : sequence of int
        Dimensions d.

    Returns
    -------
    dict
        ``sizes`` (S, 2), ``widths`` (D,), and, each (S, D, trials), for W and for KQ: ``outcome_W``, codes of
        ``svmlib.experiments.limits.OUTCOMES``; ``wrong_W``, in how many sequences the selected token is
        not the optimal one; ``second_W``, in how many it is the second best.
    """
    if not all(np.shape(size) == (2,) for size in sizes):
        raise DataError(
            f"sizes must be a sequence of pairs (n, T), such as ((5, 5), (10, 5)); got {sizes!r}."
        )
    found: dict[str, list[Any]] = {}
    for (n, T), d in task.progress(list(product(sizes, widths)), "sizes"):
        for which in PARAMETRISATIONS:
            key = f"{which}_n{n}_T{T}_d{d}"
            part = task.part(key, _outcomes, n, T, d, False, which, task.trials, task.seed, task.device)
            for name, value in part.items():
                found.setdefault(f"{name}_{which}", []).append(value)
    shape = (len(sizes), len(widths), task.trials)
    return {
        "sizes": np.asarray(sizes),
        "widths": np.asarray(widths),
        **{key: np.stack(rows).reshape(shape) for key, rows in found.items()},
    }


def _geometry(n: int, T: int, d: int, points: int, trials: int, seed: int) -> dict[str, ArrayLike]:
    p = compressed(random_problem(n, T, d, batch=trials, seed=seed))
    solution = svm.attention_svm(p, errors="nan")
    uphill = (slope_along(p, solution.W, points, seed) >= 0).mean(0)
    return {
        "support": selection.support_fraction(solution),
        "first_step": first_step_separates(p),
        "uphill": np.where(solution.solved, uphill, np.nan),
    }


@experiment(
    "p1_support_fraction",
    about="support tokens, assumption B and descent along the SVM direction against d",
    source=SOURCE,
    trials=200,
    test_trials=20,
    cost="about 3 s on one core",
)
def p1_support_fraction(
    task: Task,
    *,
    widths: Sequence[int] = (5, 10, 20, 40, 80, 120, 200, 400),
    n: int = 5,
    T: int = 5,
    points: int = 100,
) -> dict[str, ArrayLike]:
    """Measure, for the optimal tokens of random instances, what the theorems on global convergence assume.

    Parameters
    ----------
    task : Task
        Trials and seed.
    widths : sequence of int
        Dimensions d.
    n, T : int
        Sequences and tokens.
    points : int
        Random logits, Gaussian with standard deviation 3, at which the slope is taken.

    Returns
    -------
    dict
        ``widths`` (D,) and, each (D, trials): ``support``, the share of tokens that are support tokens (NaN
        where infeasible); ``first_step``, the smallest margin of the optimal tokens along one gradient
        step from 0 of length 1; ``uphill``, the share of points at which the loss does not fall along the
        solution of the SVM.
    """
    check_integer(T, "T", 2)  # of a single token there are no margins
    check_integer(points, "points")
    found: dict[str, list[Any]] = {}
    for d in task.progress(widths, "d"):
        for key, value in task.part(f"d{d}", _geometry, n, T, d, points, task.trials, task.seed).items():
            found.setdefault(key, []).append(value)
    return {"widths": np.asarray(widths), **{key: np.stack(rows) for key, rows in found.items()}}


def _directions(n: int, T: int, d: int, trials: int, seed: int) -> dict[str, ArrayLike]:
    selections = np.array(list(product(range(T), repeat=n)))
    p = compressed(random_problem(n, T, d, batch=trials, seed=seed))
    many = p.expand(len(selections))
    tokens = np.broadcast_to(selections[:, None], (len(selections), trials, n))
    solution = svm.attention_svm(many, tokens, errors="nan")
    local = selection.locally_optimal(many, solution)
    wrong = (tokens != p.optimal).sum(-1)
    return {
        "local": local.sum(0),
        "by_wrong": np.stack([(local & (wrong == k)).sum(0) for k in range(n + 1)], -1),
        "feasible": solution.feasible.mean(0),
    }


@experiment(
    "p1_spurious_directions",
    about="number of locally optimal selections among all T^n against d",
    source=SOURCE,
    trials=1000,
    test_trials=20,
    cost="about 2 s on one core",
)
def p1_spurious_directions(
    task: Task, *, widths: Sequence[int] = (5, 10, 20, 60, 100), n: int = 3, T: int = 3
) -> dict[str, ArrayLike]:
    """Solve the Frobenius SVM for every selection of small instances and count the locally optimal ones.

    Parameters
    ----------
    task : Task
        Trials and seed.
    widths : sequence of int
        Dimensions d.
    n, T : int
        Sequences and tokens; there are T to the power n selections.

    Returns
    -------
    dict
        ``widths`` (D,); ``local`` (D, trials), the number of locally optimal selections; ``by_wrong``
        (D, trials, n + 1), how many of them have 0, 1, ..., n wrong tokens; ``feasible`` (D, trials), the
        share of selections that can be separated.
    """
    found: dict[str, list[Any]] = {}
    for d in task.progress(widths, "d"):
        for key, value in task.part(f"d{d}", _directions, n, T, d, task.trials, task.seed).items():
            found.setdefault(key, []).append(value)
    return {"widths": np.asarray(widths), **{key: np.stack(rows) for key, rows in found.items()}}
