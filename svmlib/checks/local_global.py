"""Claims of the chapter on local and global directions: which selections can be the end of a run."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np

from svmlib import compare, data, dynamics, selection, svm
from svmlib.arrays import BoolArray, FloatArray, IntArray
from svmlib.attention import Direct

from .descent import long_run, step_weights
from .registry import Measured, claim

PAGE = "convergence/local_global"
PAPER = "Transformers as Support Vector Machines (2023)"


def selections(problem: data.Problem, norm: str = "fro") -> tuple[data.Problem, svm.AttentionSVM, BoolArray]:
    """All T^n selections of a small instance, with their SVMs, and which of them are locally optimal.

    Parameters
    ----------
    problem : Problem
        One problem, no batch.
    norm : str
        "fro" or "nuc".

    Returns
    -------
    copies : Problem
        The problem once for each selection.
    solution : AttentionSVM
        Their solutions, ``solution.tokens`` (T^n, n); NaN where a selection is infeasible.
    local : ndarray of bool, shape (T^n,)
        Whether the selection is locally optimal.
    """
    tokens = np.array(list(itertools.product(range(problem.T), repeat=problem.n)))
    copies = problem.expand(len(tokens))
    solution = svm.attention_svm(copies, tokens, norm=norm, errors="nan")
    return copies, solution, selection.locally_optimal(copies, solution)


def better_tokens(problem: data.Problem, tokens: IntArray) -> BoolArray:
    """Which tokens score higher than the selected one of their sequence, (..., n, T)."""
    return np.asarray(problem.scores > np.take_along_axis(problem.scores, tokens[..., None], -1))


def features(problem: data.Problem, tokens: IntArray) -> FloatArray:
    r"""Matrices :math:`A_{it}=(x_{i\alpha_i}-x_{it})z_i^\top`, shape (..., n, T, d, d)."""
    return np.asarray(np.einsum("...ntd,...ne->...ntde", problem.differences(tokens), problem.z))


def reduced_svm(
    problem: data.Problem, tokens: IntArray, norm: str = "fro"
) -> tuple[svm.AttentionSVM, FloatArray]:
    """SVM against the worse-scored tokens alone, and its margins at the better-scored ones.

    Parameters
    ----------
    problem : Problem
        Data with a linear head, with any batch axes.
    tokens : ndarray of int, shape (..., n)
        A selection.
    norm : str
        "fro" or "nuc".

    Returns
    -------
    solution : AttentionSVM
        Solution U of the program without the constraints of better tokens; NaN where it has none.
    margins : ndarray, shape (..., n, T)
        Margins of U at the better tokens; infinite elsewhere, NaN where there is no U.
    """
    better = better_tokens(problem, tokens)
    seen = ~better if problem.mask is None else ~better & problem.mask
    fewer = data.Problem(problem.X, problem.z, problem.y, problem.v, mask=seen, keys=problem.keys)
    solution = svm.attention_svm(fewer, tokens, norm=norm, errors="nan")
    margins = compare.margins(solution.W, problem.keys, problem.z, tokens)
    return solution, np.where(better, margins, np.inf)


def coefficients(A: FloatArray, W: FloatArray) -> FloatArray:
    """Least-squares coefficients of a matrix W on matrices A (s, d, e)."""
    rows = A.reshape(len(A), -1)
    return np.asarray(np.linalg.lstsq(rows.T, W.ravel(), rcond=None)[0])


@cache
def small(trials: int) -> list[tuple[data.Problem, svm.AttentionSVM, BoolArray]]:
    """Small instances with all of their 27 selections, Frobenius norm."""
    return [selections(data.random_problem(n=3, T=3, d=3, seed=seed)) for seed in range(trials)]


@claim(
    "prop-local-clearance",
    title="Locally optimal: the SVM against the worse tokens clears the better ones",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="all 27 selections of instances with n = T = d = 3, both norms; runs with n = 6, T = 8, d = 10",
    seeds="0 to trials − 1",
    trials=(25, 8),
)
def clearance(trials: int) -> list[Measured]:
    """Compare the definition with the reduced program, over all selections and over runs."""
    wrong = {"fro": 0, "nuc": 0}
    count = {"fro": 0, "nuc": 0}
    some, nearest = 0, -np.inf
    for seed in range(trials):
        p = data.random_problem(n=3, T=3, d=3, seed=seed)
        for norm in wrong:
            copies, s, local = selections(p, norm)
            smallest = reduced_svm(copies, s.tokens, norm)[1].min((-2, -1))
            wrong[norm] += int((local != (smallest > 1.001)).sum())
            count[norm] += int(local.sum())
            others = ~local & s.solved & np.isfinite(smallest)
            nearest = max(nearest, float(smallest[others].max(initial=-np.inf)))
        some += int(local.sum() > 1)
    runs = data.random_problem(n=6, T=8, d=10, batch=trials)
    end = dynamics.train(runs, Direct.zeros(runs), dynamics.normalized(0.1), 250, record=1)
    own = svm.attention_svm(runs, end.selected, errors="nan")
    smallest = reduced_svm(runs, end.selected)[1].min((-2, -1))
    differ = selection.locally_optimal(runs, own) != (smallest > 1.001)
    return [
        Measured("Frobenius: selections where the two disagree", wrong["fro"], "==", 0),
        Measured(
            "nuclear: share of the 27 selections where they disagree",
            wrong["nuc"] / (27 * trials),
            "<=",
            0.002,
            "solutions need not be unique",
        ),
        Measured("feasible, not locally optimal: largest of the smallest clearances", nearest, "<", 0.999),
        Measured("runs after 250 steps where they disagree", differ.sum(), "==", 0, f"{trials} runs"),
        Measured(
            "locally optimal selections an instance, Frobenius", count["fro"] / trials, "in", (1.2, 3.5)
        ),
        Measured("instances with more than one", some, ">=", 1),
    ]


@claim(
    "prop-local-followers",
    title="A sequence without support tokens follows the others",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="n = T = d = 3, all 27 selections, Frobenius norm",
    seeds="0 to trials − 1",
    trials=(40, 15),
)
def followers(trials: int) -> list[Measured]:
    """Take away each sequence without support tokens: the same W, which selects its token."""
    moved, chosen, lead, found = [], [], [], 0
    removed: list[float] = []
    for p, s, _ in small(trials):
        for b in np.flatnonzero(s.solved):
            for i in range(p.n):
                rest = np.delete(np.arange(p.n), i)
                one = data.Problem(p.X[b][rest], p.z[b][rest], p.y[b][rest], p.v[b])  # type: ignore[index]
                if s.support[b, i].any():
                    if len(removed) < 20:
                        other = svm.attention_svm(one, s.tokens[b][rest]).W
                        removed.append(float(np.linalg.norm(other - s.W[b]) / s.value[b]))
                    continue
                found += 1
                W = svm.attention_svm(one, s.tokens[b][rest]).W
                moved.append(np.linalg.norm(W - s.W[b]) / s.value[b])
                logits = p.X[b, i] @ W @ p.z[b, i]
                chosen.append(logits.argmax() == s.tokens[b, i])
                lead.append(np.diff(np.sort(logits))[-1])
    return [
        Measured("sequences without support tokens", found, ">=", trials, "all selections"),
        Measured("largest relative change of W without such a sequence", max(moved), "<=", 1e-6),
        Measured("share where the others' solution selects its token", np.mean(chosen), "==", 1.0),
        Measured("smallest lead of that token", min(lead), ">", 1.0),
        Measured(
            "sequences with support tokens: median change of W without one",
            np.median(removed),
            ">=",
            0.01,
            breaks=True,
        ),
    ]


def orthogonal(n: int, T: int, d: int, seed: int) -> data.Problem:
    """Random tokens with orthonormal queries."""
    p = data.random_problem(n, T, d, seed=seed)
    z = np.linalg.qr(p.z.T)[0].T
    return data.Problem(p.X, z, p.y, p.v)


@claim(
    "prop-local-product",
    title="Orthogonal queries: each sequence decides for itself",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="n = 3, T = 4, d = 4, orthonormal queries, all 64 selections",
    seeds="0 to trials − 1",
    trials=(30, 10),
)
def product(trials: int) -> list[Measured]:
    """Compare the locally optimal selections with the product of those of single sequences."""
    joint, nuclear, oblique, several = 0, 0, 0, 0
    for seed in range(trials):
        p = orthogonal(3, 4, 4, seed)
        parts = _product_set(p)
        joint += int((selections(p)[2] != parts).sum())
        nuclear += int((selections(p, "nuc")[2] != parts).any())
        several += int(parts.sum() > 1)
        q = data.random_problem(3, 4, 4, seed=seed)
        oblique += int((selections(q)[2] != _product_set(q)).any())
    return [
        Measured("selections where joint and single answers differ", joint, "==", 0, f"{64 * trials}"),
        Measured("instances with more than one locally optimal selection", several, ">=", 1),
        Measured(
            "queries not orthogonal: share of instances that differ", oblique / trials, ">=", 0.2, breaks=True
        ),
        Measured("nuclear norm: share of instances that differ", nuclear / trials, ">=", 0.05, breaks=True),
    ]


def _product_set(p: data.Problem) -> BoolArray:
    """Which selections are locally optimal in every sequence by itself, in the order of ``selections``."""
    singles = [
        selections(data.Problem(p.X[i : i + 1], p.z[i : i + 1], p.y[i : i + 1], p.v))[2] for i in range(p.n)
    ]
    return np.array([all(c) for c in itertools.product(*singles)])


@claim(
    "thm-limit-directions",
    title="A limit direction with independent nearest features is locally optimal, or no SVM direction",
    source=f"proof in the chapter; idea: {PAPER} and Max-Margin Token Selection (2023), converse",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10, runs from zero; all selections of n = T = d = 3 as starts",
    seeds="0 to trials − 1",
    trials=(24, 12),
)
def limit_directions(trials: int) -> list[Measured]:
    """Signs and sizes of what each feature contributed; then start at every selection of small instances."""
    p, run, _ = long_run(trials)
    errors, slopes = [], []
    for b in range(trials):
        s = svm.attention_svm(p[b], run.selected[b])
        on = s.support
        c = coefficients(features(p[b], s.tokens)[on], run.W[b, -1] - run.W[b, -2])
        share = c / c.sum() - s.multipliers[on] / s.multipliers[on].sum()
        errors.append(np.abs(share).max())
        slopes.append(step_weights(p[b], s.tokens)[on].min())
    held, left, negative, pushed = _starts(trials // 2)
    tie = _tie()
    return [
        Measured("late steps: error of each feature's share against the multipliers", max(errors), "<=", 0.1),
        Measured("the same, median over runs", np.median(errors), "<=", 0.005),
        Measured("smallest weight of a support token at the end of a run", min(slopes), ">", 0.0),
        Measured(
            "starts at locally optimal selections, better tokens 5 logits behind, that stay", held, "==", 1.0
        ),
        Measured("starts at all other selections that leave", left, ">=", 0.98, "within 5,000 steps"),
        Measured(
            "starts where all better support tokens pushed backwards", negative, "==", 1.0, f"of {pushed}"
        ),
        Measured(
            "a tie of scores, weight 0: correlation of the run with the SVM of its tokens",
            tie,
            "<=",
            0.9,
            breaks=True,
        ),
    ]


@cache
def _starts(trials: int) -> tuple[float, float, float, int]:
    """Start on every selection's own direction: who keeps it, who leaves, and the push of better tokens."""
    p, s, local = stacked(small(trials))
    R = 60.0 * s.margin  # the smallest margin at the start
    far = R * (reduced_svm(p, s.tokens)[1].min((-2, -1)) - 1.0) > 5.0
    start = Direct(60.0 * s.W / s.value[:, None, None])
    run = dynamics.train(p, start, dynamics.normalized(0.1), 5000, record=[20, 5000])
    same = (run.selected == s.tokens).all(-1)
    worse = better_tokens(p, s.tokens) & s.support
    margins = compare.margins(s.W, p.keys, p.z, s.tokens)
    clear = R * (np.where(s.support, np.inf, margins).min((-2, -1)) - 1.0) > 5.0
    push = []
    for b in np.flatnonzero(~local & clear & worse.any((-2, -1))):
        A = features(p[b], s.tokens[b])[s.support[b]]
        if np.linalg.cond(A.reshape(len(A), -1)) < 1e3:
            c = coefficients(A, run.W[b, 0] - start.W[b])
            push.append((c[worse[b][s.support[b]]] < 0).all())
    return float(same[local & far].mean()), float((~same[~local]).mean()), float(np.mean(push)), len(push)


def stacked(
    instances: list[tuple[data.Problem, svm.AttentionSVM, BoolArray]],
) -> tuple[data.Problem, svm.AttentionSVM, BoolArray]:
    """Put the feasible selections of several instances into one batch."""
    use = [s.solved for _, s, _ in instances]
    arrays = (
        np.concatenate([getattr(p, name)[u] for (p, _, _), u in zip(instances, use, strict=True)])
        for name in ("X", "z", "y", "v")
    )
    p = data.Problem(*arrays)
    tokens = np.concatenate([s.tokens[u] for (_, s, _), u in zip(instances, use, strict=True)])
    local = np.concatenate([keep[u] for (_, _, keep), u in zip(instances, use, strict=True)])
    return p, svm.attention_svm(p, tokens), local


def _tie() -> float:
    """A token with the score of the selected one does not push, so the run passes the SVM direction."""
    p = data.prompt_problem([[[0.0, 0.0], [-1.0, 0.0], [-0.5, -1.0]]], [[1.0, 0.0, 1.0]])
    run = dynamics.train(p, Direct(np.array([[1.0], [1.0]])), dynamics.normalized(0.1), 8000, record=1)
    return float(compare.correlation(run.W[-1], svm.attention_svm(p, [0]).W))
