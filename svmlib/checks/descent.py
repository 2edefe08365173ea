"""Claims of the chapter on gradient descent: saturation, residual and rates of W."""

from __future__ import annotations

from functools import cache

import numpy as np

from svmlib import compare, data, dynamics, svm
from svmlib.arrays import BoolArray, FloatArray, IntArray
from svmlib.attention import Direct, gradient

from .registry import Measured, claim

PAGE = "implicit_bias/descent"
PAPER = "Transformers as Support Vector Machines (2023)"
LONG = (500, 1000, 2000, 4000, 8000, 16000)


def instances(trials: int) -> data.Problem:
    """Random instances 0 to trials - 1 of the size of the papers' local-convergence experiment."""
    return data.random_problem(n=6, T=8, d=10, batch=trials)


def step_weights(problem: data.Problem, tokens: IntArray, loss: str = "logistic") -> FloatArray:
    r"""Weights :math:`w_{it}=|\ell'(\gamma_{i\alpha_i})|(\gamma_{i\alpha_i}-\gamma_{it})` of the features.

    Parameters
    ----------
    problem : Problem
        With linear head.
    tokens : ndarray of int, shape (..., n)
        Selected tokens :math:`\alpha`.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    ndarray, shape (..., n, T)
        0 at the selected tokens, negative where a token has the higher score.
    """
    gamma = problem.scores
    best = np.take_along_axis(gamma, tokens[..., None], -1)
    slopes = {
        "logistic": 1.0 / (1.0 + np.exp(best)),
        "exponential": np.exp(-best),
        "linear": np.ones_like(best),
    }
    return np.asarray(slopes[loss] * (best - gamma))


def saturated_gradient(problem: data.Problem, W: FloatArray, tokens: IntArray) -> FloatArray:
    r"""Leading term :math:`\frac1n\sum w_{it}e^{-m_{it}}A_{it}` of the negative gradient, (..., d, d)."""
    weight = step_weights(problem, tokens) * np.exp(-compare.margins(W, problem.X, problem.z, tokens))
    A = np.einsum("...nt,...ntd,...ne->...de", weight, problem.differences(tokens), problem.z)
    return np.asarray(A / problem.n)


def offsets(
    problem: data.Problem, solution: svm.AttentionSVM, W: FloatArray, loss: str = "logistic"
) -> tuple[FloatArray, FloatArray, BoolArray]:
    r"""Predicted and measured residual of one run, in logits.

    Parameters
    ----------
    problem : Problem
        One problem, no batch.
    solution : AttentionSVM
        Frobenius SVM of the run's tokens.
    W : ndarray, shape (d, d)
        Iterate.
    loss : str
        Loss of the run.

    Returns
    -------
    predicted, measured : ndarray, shape (supports,)
        :math:`\log(w_{it}/\lambda_{it})` and :math:`\langle A_{it},W\rangle`, means subtracted: a common
        shift is a multiple of the solution.
    active : ndarray of bool, shape (n, T)
        Features with a positive multiplier.
    """
    active = solution.multipliers > 1e-7 * solution.multipliers.max()
    weight = step_weights(problem, solution.tokens, loss)[active]
    predicted = np.log(weight / solution.multipliers[active])
    measured = compare.margins(W, problem.X, problem.z, solution.tokens)[active]
    return predicted - predicted.mean(), measured - measured.mean(), active


def longest_step(problem: data.Problem, solution: svm.AttentionSVM) -> float:
    r"""Length that normalised steps must stay below for the residual to settle.

    It is :math:`2\|W\|_F/\Lambda`, with the largest eigenvalue :math:`\Lambda` of the map
    :math:`V\mapsto\sum_j\lambda_j\langle A_j,V\rangle A_j` orthogonally to the solution W.

    Parameters
    ----------
    problem : Problem
        One problem, no batch.
    solution : AttentionSVM
        Its Frobenius SVM.

    Returns
    -------
    float
        Infinite where a single direction of features is active.
    """
    active = solution.multipliers > 1e-7 * solution.multipliers.max()
    A = np.einsum("ntd,ne->ntde", problem.differences(solution.tokens), problem.z)[active]
    B = solution.W * solution.margin
    A = A - (A * B).sum((-2, -1))[:, None, None] * B
    rows = np.sqrt(solution.multipliers[active])[:, None] * A.reshape(len(A), -1)
    largest = float(np.linalg.norm(rows, 2)) ** 2
    return float(2.0 / solution.margin) / largest if largest > 1e-12 else np.inf


@cache
def long_run(trials: int) -> tuple[data.Problem, dynamics.Run, svm.AttentionSVM]:
    """Normalised gradient descent on W from 0, 16,000 steps, and the SVM of the tokens it selects."""
    p = instances(trials)
    run = dynamics.train(p, Direct.zeros(p), dynamics.normalized(0.1), LONG[-1], record=LONG)
    return p, run, svm.attention_svm(p, run.selected)


@claim(
    "prop-saturation",
    title="The gradient is that of a weighted exponential loss, up to squares of the odds",
    kind="proposition",
    source=f"proof in the chapter; idea: {PAPER}, section 5",
    chapter=PAGE,
    scope="n, T, d = 6, 8, 10 and 1, 2, 4; random W of five sizes, any tokens; then along the SVM solution",
    seeds="0 to trials − 1",
    trials=(100, 25),
)
def saturation(trials: int) -> list[Measured]:
    """Compare the remainder with its bound at random weights, then its decay along the solution."""
    p, pairs = instances(trials), data.random_problem(n=1, T=2, d=4, batch=trials)
    worst = max(_remainder(q, size) for q in (p, pairs) for size in (0.3, 1.0, 3.0, 10.0, 30.0))
    solution = svm.attention_svm(p)
    radii = np.array([4.0, 6.0, 8.0, 10.0])
    relative = []
    for R in radii:
        lead = saturated_gradient(p, R * solution.W, p.optimal)
        rest = -gradient(p, Direct(R * solution.W)).matrix() - lead
        relative.append(np.linalg.norm(rest, axis=(-2, -1)) / np.linalg.norm(lead, axis=(-2, -1)))
    slope = np.polyfit(radii, np.log(np.median(relative, axis=1)), 1)[0]
    return [
        Measured("largest remainder / bound", worst, "<=", 1.0),
        Measured(
            "slope of the log relative remainder in R along $R\\,W^{\\mathrm{mm}}$",
            slope,
            "==",
            -1.0,
            tol=0.05,
        ),
        Measured("median relative remainder at $R=10$", np.median(relative[-1]), "<=", 1e-3),
    ]


def _remainder(p: data.Problem, size: float) -> float:
    """Largest remainder over its bound, at random weights of a size and random tokens."""
    rng = np.random.default_rng(0)
    W = size * rng.normal(size=(*p.batch_shape, p.d, p.d)) / np.sqrt(p.d)
    alpha = rng.integers(p.T, size=(*p.batch_shape, p.n))
    lead = saturated_gradient(p, W, alpha)
    rest = -gradient(p, Direct(W)).matrix() - lead
    lengths = np.linalg.norm(p.differences(alpha), axis=-1) * np.linalg.norm(p.z, axis=-1)[..., None]
    spread = np.ptp(p.scores, axis=-1)
    odds = np.exp(-compare.margins(W, p.X, p.z, alpha))
    bound = spread * (2.0 + spread / 4.0) * odds.sum(-1) * (odds * lengths).sum(-1)
    rounding = 1e-12 * np.linalg.norm(
        lead, axis=(-2, -1)
    )  # rest is a difference of two matrices of this size
    return float(((np.linalg.norm(rest, axis=(-2, -1)) - rounding) / bound.mean(-1)).max())


@claim(
    "prop-residual",
    title=r"Exact residual: $\langle A_j,W(t)\rangle=\log t+\log(w_j/\lambda_j)+o(1)$",
    kind="proposition",
    source="proof in the chapter; for classifiers: Soudry et al. (2018)",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10; attention itself instead of the exponential model, normalised steps of 0.1",
    seeds="0 to trials − 1",
    trials=(24, 12),
)
def residual(trials: int) -> list[Measured]:
    """Compare offsets of support tokens, in logits, with their prediction after 4,000 and 16,000 steps."""
    p, run, _ = long_run(trials)
    early, late, spread, turned, limits, generic = [], [], [], [], [], []
    for b in range(trials):
        one = svm.attention_svm(p[b], run.selected[b])
        predicted, reached, active = offsets(p[b], one, run.W[b, -1])
        before = offsets(p[b], one, run.W[b, LONG.index(4000)])[1]
        early.append(np.abs(before - predicted).max())
        late.append(np.abs(reached - predicted).max())
        spread.append(np.ptp(predicted))
        turned.append(_turn(p[b], one, active))
        limits.append(longest_step(p[b], one))
        generic.append(_generic(p[b], one))
    dependence, multiplier = np.array(generic).T
    return [
        Measured("support features minus their rank, largest", dependence.max(), "==", 0.0, tol=0.0),
        Measured("smallest multiplier of a support feature over the largest", multiplier.min(), ">=", 1e-5),
        Measured("largest error, 16,000 steps, median over runs", np.median(late), "<=", 0.1, "logits"),
        Measured("the same over that after 4,000 steps", np.median(late) / np.median(early), "<=", 0.5),
        Measured("median spread of the predictions", np.median(spread), ">=", 3.0, "logits"),
        Measured("step length over the largest that lets the residual settle", 0.1 / min(limits), "<=", 1.0),
        Measured(
            "angle between gradient and solution on the predicted line", max(turned), "<=", 1e-6, "radians"
        ),
    ]


def _generic(p: data.Problem, solution: svm.AttentionSVM) -> tuple[float, float]:
    """Support features minus their rank, and their smallest multiplier over the largest."""
    A = np.einsum("ntd,ne->ntde", p.differences(solution.tokens), p.z)[solution.support]
    rank = np.linalg.matrix_rank(A.reshape(len(A), -1), tol=1e-6 * np.linalg.norm(A))
    multipliers = solution.multipliers[solution.support]
    return float(len(A) - rank), float(multipliers.min() / multipliers.max())


def _turn(p: data.Problem, solution: svm.AttentionSVM, active: BoolArray) -> float:
    """Angle from the solution to the exponential model's gradient, on the predicted line."""
    A = np.einsum("ntd,ne->ntde", p.differences(solution.tokens), p.z)[active].reshape(active.sum(), -1)
    weight = step_weights(p, solution.tokens)[active]
    target = np.log(weight / solution.multipliers[active])
    W = A.T @ np.linalg.solve(A @ A.T, target) + 3.0 * solution.W.ravel()
    step = (weight * np.exp(-A @ W)) @ A
    return float(compare.angle(step.reshape(p.d, p.d), solution.W))


@claim(
    "prop-rate",
    title=r"$1-\mathrm{corr}$ falls as $k^{-2}$ for normalised and as $\log^{-2}k$ for plain steps",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10, 16,000 normalised steps of 0.1; on planted instances 8,192 plain ones",
    seeds="0 to trials − 1",
    trials=(24, 12),
)
def rate(trials: int) -> list[Measured]:
    """Fit the exponent of the median over runs; for plain steps the slope of the norm in log k."""
    _, run, solution = long_run(trials)
    medians = np.median(1.0 - compare.correlation(run.W, solution.W), axis=0)
    slope = np.polyfit(np.log(LONG[1:]), np.log(medians[1:]), 1)[0]
    speed = np.linalg.norm(run.W[:, -1], axis=(-2, -1)) / (0.1 * LONG[-1])
    planted, W = data.planted_problem(n=3, T=4, d=4, batch=8)
    plain = dynamics.train(
        planted, Direct.zeros(planted), dynamics.gradient_descent(5.0), 8192, record=[2048, 4096, 8192]
    )
    sizes = np.linalg.norm(plain.W, axis=(-2, -1))
    growth = (sizes[:, -1] - sizes[:, 0]) / np.log(4.0) / np.linalg.norm(W, axis=(-2, -1))
    angles = compare.angle(plain.W, W)
    drop = (angles[:, -1] / angles[:, 0]) / (sizes[:, 0] / sizes[:, -1])
    return [
        Measured("exponent of the median in k, 1,000 to 16,000 steps", slope, "==", -2.0, tol=0.2),
        Measured("median of $\\|W(k)\\|_F/(\\eta k)$ at 16,000 steps", np.median(speed), ">=", 0.95),
        Measured(
            r"plain steps: growth of $\|W\|_F$ per unit of $\log k$, in $\|W^{\mathrm{mm}}\|_F$",
            growth.mean(),
            "==",
            1.0,
            tol=0.05,
        ),
        Measured("plain steps: fall of the angle over fall of 1/|W|", drop.mean(), "==", 1.0, tol=0.1),
    ]
