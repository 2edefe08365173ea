"""Where training ends: with the best tokens, with locally optimal ones, with others, or undecided."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare, data, selection, svm
from svmlib.arrays import FloatArray, IntArray
from svmlib.attention import Direct, Factored, Weights
from svmlib.dynamics import normalized, train

from .framework import Task, experiment

__all__ = ["ARMS", "OUTCOMES", "Arm", "outcome", "p1_limits"]

OUTCOMES = ("global", "local", "neither", "unsaturated")
"""Names of the classes, in the order of their numbers."""

SATURATED = 0.99  # largest probability of every sequence
HORIZONS = (500, 2000, 8000)


class Arm(NamedTuple):
    """One way to train: what, from where, on which data and loss."""

    factored: bool = False
    """Train (K, Q) and compare with the nuclear SVM; otherwise W and the Frobenius SVM."""
    scale: float = 0.0
    """W: entries uniform within scale / sqrt(d). (K, Q): standard deviation of the entries of K."""
    query: float = 0.0
    """(K, Q): standard deviation of the entries of Q."""
    self_attention: bool = False
    """Whether the query is the first token."""
    loss: str = "logistic"
    """Loss."""


ARMS: dict[str, Arm] = {
    "W": Arm(),
    "W_random": Arm(scale=1.0),
    "W_random_10": Arm(scale=10.0),
    "W_random_100": Arm(scale=100.0),
    "W_self": Arm(self_attention=True),
    "W_linear": Arm(loss="linear"),
    "W_exponential": Arm(loss="exponential"),
    "KQ": Arm(factored=True, scale=0.1),
    "KQ_random": Arm(factored=True, scale=0.1, query=0.1),
    "KQ_self": Arm(factored=True, scale=0.1, self_attention=True),
}
"""The ways to train that :func:`p1_limits` compares."""


def outcome(
    problem: data.Problem, tokens: IntArray, probability: FloatArray, norm: str = "fro"
) -> tuple[IntArray, svm.AttentionSVM]:
    """Classify where runs stand: global, local, neither or unsaturated.

    Parameters
    ----------
    problem : Problem
        Data with a linear head, with any batch axes.
    tokens : ndarray of int, shape (..., n)
        Tokens that the runs select.
    probability : ndarray, shape (..., n)
        Their attention probabilities.
    norm : str
        "fro" for runs of W, "nuc" for runs of (K, Q).

    Returns
    -------
    classes : ndarray of int, shape (...)
        Positions in :data:`OUTCOMES`. Unsaturated: some probability is below 0.99. Of the others, global: all
        tokens are optimal; local: they are locally optimal but not all optimal; neither: the rest, tokens
        that no W separates included.
    solution : AttentionSVM
        SVM of the selected tokens; NaN where it has no solution.
    """
    solution = svm.attention_svm(problem, tokens, norm=norm, errors="nan")
    best = (tokens == problem.optimal).all(-1)
    local = selection.locally_optimal(problem, solution)
    classes = np.where(best, 0, np.where(local, 1, 2))
    return np.where(probability.min(-1) < SATURATED, 3, classes).astype(np.int64), solution


@experiment(
    "p1_limits",
    about="share of runs that end with the best, with locally optimal, and with other tokens",
    source="Transformers as Support Vector Machines (2023), text on local convergence",
    trials=200,
    test_trials=20,
    cost="about 50 s on one core",
)
def p1_limits(
    task: Task,
    *,
    arms: tuple[str, ...] = tuple(ARMS),
    n: int = 6,
    T: int = 8,
    d: int = 10,
    horizons: tuple[int, ...] = HORIZONS,
) -> dict[str, ArrayLike]:
    """Train random instances in several ways and classify the tokens that the runs hold at several steps.

    Normalised gradient descent with steps of 0.1. All arms share the instances, except that self-attention
    replaces the queries.

    Parameters
    ----------
    task : Task
        Number of instances, seed of the first one and of the starts, device, progress, storage.
    arms : tuple of str
        Keys of ``svmlib.experiments.limits.ARMS``.
    n, T, d : int
        Sizes of an instance.
    horizons : tuple of int
        Steps at which to classify, increasing.

    Returns
    -------
    dict of str to array
        With a = len(arms) and h = len(horizons): "horizons" (h,); "outcome" (a, trials, h), positions in
        ``OUTCOMES``; "tokens" (a, trials, h, n) selected tokens; "correlation" (a, trials, h) with the SVM
        of these tokens, Frobenius for W and nuclear for (K, Q), NaN where there is none; "optimal_share"
        (a, trials, h), share of sequences that select their optimal token.
    """
    parts = [
        task.part(arm, _one_arm, task, arm, (n, T, d), tuple(horizons)) for arm in task.progress(arms, "arms")
    ]
    return {"horizons": np.array(horizons), **{key: np.stack([p[key] for p in parts]) for key in parts[0]}}


def _one_arm(
    task: Task, name: str, sizes: tuple[int, int, int], horizons: tuple[int, ...]
) -> dict[str, ArrayLike]:
    arm = ARMS[name]
    p = data.random_problem(*sizes, batch=task.trials, seed=task.seed, self_attention=arm.self_attention)
    run = train(
        p,
        _start(p, arm, task.seed),
        normalized(0.1),
        horizons[-1],
        record=horizons,
        loss=arm.loss,
        device=task.device,
    )
    classes, correlations = [], []
    for k in range(len(horizons)):
        c, s = outcome(p, run.top_token[:, k], run.top_probability[:, k], "nuc" if arm.factored else "fro")
        classes.append(c)
        correlations.append(compare.correlation(run.W[:, k], s.W))
    return {
        "outcome": np.stack(classes, 1),
        "tokens": run.top_token,
        "correlation": np.stack(correlations, 1),
        "optimal_share": (run.top_token == p.optimal[:, None]).mean(-1),
    }


def _start(p: data.Problem, arm: Arm, seed: int) -> Weights:
    if arm.factored:
        small = Factored.random(p, seed=seed, scale=arm.scale)
        if not arm.query:
            return small
        return Factored(small.K, Factored.random(p, seed=seed + 1, scale=arm.query).K)
    return Direct.random(p, seed=seed, scale=arm.scale / p.d**0.5) if arm.scale else Direct.zeros(p)
