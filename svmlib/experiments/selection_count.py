r"""How many tokens attention keeps: against the curvature of the head, and against the label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray, as_float, check_integer
from svmlib.attention import (
    Direct,
    best_attention,
    mlp,
    outputs,
    predictions,
    probabilities,
    quadratic,
    sparsemax,
    sparsemax_thresholds,
)
from svmlib.attention.heads import Mlp, Quadratic
from svmlib.data import Problem, random_problem
from svmlib.dynamics import normalized, train

from .framework import Task, experiment

__all__ = [
    "CURVATURES",
    "SELECTED",
    "SHRINKING",
    "lambda_problem",
    "p1_lambda_selection",
    "p1_relu_selection",
    "relu_problem",
    "settle",
]

CURVATURES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0)
SHRINKING = ((0.1, 2000), (0.01, 2000), (0.001, 1000))
"""Lengths and numbers of normalised steps: a finite goal is only met up to the length of the last ones."""
SELECTED = 1e-2
"""Probability above which a token of the lambda head counts as selected, as in the counts compared with."""
LABELS = {"drawn": None, "positive": 1, "negative": -1}
PAPER = "Transformers as Support Vector Machines (2023), section on nonlinear heads"


def lambda_problem(
    curvatures: ArrayLike, trials: int, seed: int = 0, T: int = 8, n: int = 1, label: int = 1
) -> Problem:
    r"""Orthonormal tokens under the head :math:`v^\top u-\lambda\|u\|^2`, every curvature with every draw.

    Draw b takes, from numpy's generator with seed ``seed + b``, for each sequence the orthogonal factor of a
    Gaussian matrix as tokens, then a unit head and a unit query for each sequence.

    Parameters
    ----------
    curvatures : array_like, shape (L,)
        Values of lambda.
    trials : int
        Number of draws.
    seed : int
        Seed of the first draw.
    T : int
        Tokens of a sequence, and their dimension.
    n : int
        Sequences.
    label : int
        The label of all sequences, +1 or -1.

    Returns
    -------
    Problem
        With batch shape (L, trials).
    """
    lam = as_float(curvatures, "curvatures", ndim=1)
    T, n = check_integer(T, "T"), check_integer(n, "n")
    draws = [np.random.default_rng(seed + b) for b in range(check_integer(trials, "trials"))]
    X = np.stack([np.linalg.qr(rng.normal(size=(n, T, T)))[0] for rng in draws])
    v = np.stack([rng.normal(size=T) for rng in draws])
    z = np.stack([rng.normal(size=(n, T)) for rng in draws])
    v, z = (a / np.linalg.norm(a, axis=-1, keepdims=True) for a in (v, z))
    lead = (len(lam), len(draws))
    head = quadratic(np.broadcast_to(v, (*lead, T)), lam[:, None])
    return Problem(X, z, np.full(n, float(label)), head=head)


def settle(
    problem: Problem, start: Direct | None = None, schedule: Sequence[Sequence[float]] = SHRINKING
) -> Direct:
    """Train W with normalised steps that get shorter, which also finds goals at a finite distance.

    Parameters
    ----------
    problem : Problem
        Data and head.
    start : Direct, optional
        Where to start; zero by default.
    schedule : sequence of pairs
        Length and number of steps of each phase.

    Returns
    -------
    Direct
        Final weights.
    """
    weights = Direct.zeros(problem) if start is None else start
    for length, steps in schedule:
        rule = normalized(length)
        weights = train(problem, weights, rule, int(steps), record=[int(steps)]).weights  # type: ignore[assignment]
    return weights


def _lambda_part(curvatures: Sequence[float], T: int, trials: int, seed: int) -> dict[str, ArrayLike]:
    p = lambda_problem(curvatures, trials, seed, T)
    W = settle(p).matrix()
    gamma, predicted = _optimum(p)
    return {
        "probabilities": probabilities(p, W)[..., 0, :],
        "predicted": predicted,
        "thresholds": sparsemax_thresholds(gamma[0]),
        "norm": np.linalg.norm(W, axis=(-2, -1)),
    }


def _optimum(p: Problem) -> tuple[FloatArray, FloatArray]:
    """Scores of the only sequence, and their sparsemax; at lambda = 0 its limit, the best token."""
    head = p.head
    assert isinstance(head, Quadratic)
    gamma = np.einsum("...td,...d->...t", p.X[..., 0, :, :], head.v)
    lam = head.lam[..., None]
    curved = sparsemax(gamma / (2.0 * np.where(lam > 0, lam, 1.0)))
    return gamma, np.where(lam > 0, curved, gamma == gamma.max(-1, keepdims=True))


@experiment(
    "p1_lambda_selection",
    about="number of selected tokens against lambda: trained attention and sparsemax",
    source="head: " + PAPER,
    trials=100,
    test_trials=12,
    cost="about 3 s on one core",
)
def p1_lambda_selection(
    task: Task, *, curvatures: Sequence[float] = CURVATURES, T: int = 8
) -> dict[str, ArrayLike]:
    r"""Train attention under the head :math:`v^\top u-\lambda\|u\|^2` and compare with its optimum.

    One sequence of orthonormal tokens with label +1, logistic loss, W from 0, 5,000 normalised steps whose
    length falls from 0.1 to 0.001. All pairs of a curvature and a draw are trained side by side.

    Parameters
    ----------
    task : Task
        Trials and seed.
    curvatures : sequence of float
        Values of lambda, from 0.
    T : int
        Tokens, and their dimension.

    Returns
    -------
    dict
        ``curvatures`` (L,); ``probabilities`` (L, trials, T), trained; ``predicted`` (L, trials, T), the
        sparsemax; ``thresholds`` (trials, T), the curvatures at which a further token enters; ``norm``
        (L, trials), the norm of the trained W.
    """
    found = task.part("all", _lambda_part, tuple(curvatures), T, task.trials, task.seed)
    return {"curvatures": np.asarray(curvatures, dtype=float), **found}


def relu_problem(
    trials: int, seed: int = 0, n: int = 3, T: int = 4, d: int = 6, hidden: int | None = None
) -> Problem:
    """Random data with a fixed random ReLU head of Frobenius norm one for every instance.

    Parameters
    ----------
    trials : int
        Number of instances.
    seed : int
        Seed of the first instance; the heads come from numpy's generator with the same seeds.
    n, T, d : int
        Sequences, tokens, dimension.
    hidden : int, optional
        Number of hidden units, d by default.

    Returns
    -------
    Problem
        With batch shape (trials,).
    """
    base = random_problem(n, T, d, batch=trials, seed=seed)
    width = d if hidden is None else check_integer(hidden, "hidden")
    V = np.stack([np.random.default_rng(seed + b).normal(size=(d, width)) for b in range(trials)])
    head = mlp(V / np.linalg.norm(V, axis=(-2, -1), keepdims=True))
    return Problem(base.X, base.z, base.y, head=head)


def _relu_part(
    n: int, T: int, d: int, steps: int, label: int | None, trials: int, seed: int
) -> dict[str, ArrayLike]:
    p = relu_problem(trials, seed, n, T, d)
    if label is not None:
        p = Problem(p.X, p.z, np.full(n, float(label)), head=p.head)
    head = p.head
    assert isinstance(head, Mlp)
    run = train(p, Direct.random(p, seed=seed), normalized(0.1), steps, record=[steps])
    W = run.W[..., -1, :, :]
    s = probabilities(p, W)
    undecided = ((s > 1e-6) & (s <= 1e-3)).any((-2, -1))
    saturated = (s <= 1e-6).any((-2, -1))
    return {
        "count": (s > 1e-3).sum(-1),
        "label": p.y,
        "accepted": (p.y < 0).any(-1) & ~undecided & saturated,
        "undecided": undecided,
        "margin": p.y * predictions(p, W),
        "best": best_attention(p).value,
        "kink": np.abs(np.einsum("bnd,bdh->bnh", outputs(p, W), head.V)).min(-1),
        "norm": np.linalg.norm(W, axis=(-2, -1)),
    }


@experiment(
    "p1_relu_selection",
    about="number of tokens that attention keeps under a ReLU head, by label",
    source=PAPER,
    trials=500,
    test_trials=150,
    cost="about 8 s on one core",
)
def p1_relu_selection(
    task: Task, *, n: int = 3, T: int = 4, d: int = 6, steps: int = 2000
) -> dict[str, ArrayLike]:
    """Train attention under random ReLU heads and count the tokens with a probability above 0.001.

    Normalised steps of 0.1 on the logistic loss, as in the published experiment, here from a small random W.
    The published filter is computed but not applied: it accepts an instance with a label -1 if no probability
    lies between 1e-6 and 1e-3 and at least one is below. Every instance is trained with its drawn labels, and
    then with all labels +1 and with all labels -1.

    Parameters
    ----------
    task : Task
        Trials and seed.
    n, T, d : int
        Sequences, tokens, dimension.
    steps : int
        Length of training.

    Returns
    -------
    dict
        For the labels ``drawn``, ``positive`` and ``negative``, as in ``count_drawn``: ``count`` (trials, n),
        tokens kept; ``label`` (trials, n); ``accepted`` and ``undecided`` (trials,): whether the filter
        takes the instance, and whether a probability lies between its two levels; ``margin`` (trials, n), the
        prediction margins; ``best`` (trials, n), the largest ones that any attention has; ``kink``
        (trials, n), the smallest absolute input of a unit; ``norm`` (trials,), the norm of W.
    """
    found: dict[str, ArrayLike] = {}
    for name, label in task.progress(LABELS.items(), "labels"):
        part = task.part(name, _relu_part, n, T, d, steps, label, task.trials, task.seed)
        found |= {f"{key}_{name}": value for key, value in part.items()}
    return found
