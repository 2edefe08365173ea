"""Claims of the chapter on gradient descent: saturation, residual, rates and local convergence of W."""

from __future__ import annotations

from functools import cache

import numpy as np

from svmlib import compare, data, dynamics, selection, svm
from svmlib.arrays import BoolArray, FloatArray, IntArray
from svmlib.attention import Direct, gradient

from .registry import Measured, claim

PAGE = "implicit_bias/descent"
PAPER = "Tarzanagh et al. (2023a)"
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
    spread = np.abs(step_weights(p, alpha, "linear")).max(-1)
    odds = np.exp(-compare.margins(W, p.X, p.z, alpha))
    bound = spread * (2.0 + spread / 4.0) * odds.sum(-1) * (odds * lengths).sum(-1)
    rounding = 1e-12 * np.linalg.norm(
        lead, axis=(-2, -1)
    )  # rest is a difference of two matrices of this size
    return float(((np.linalg.norm(rest, axis=(-2, -1)) - rounding) / bound.mean(-1)).max())


@claim(
    "thm-local-convergence",
    title="Local convergence of W to a locally optimal direction",
    source=f"{PAPER}, local convergence theorem; proof in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10, 2000 normalised steps of 0.1; starts of norm 60 at correlation 0.98",
    seeds="0 to trials − 1",
    trials=(40, 20),
)
def local_convergence(trials: int) -> list[Measured]:
    """Start near locally optimal directions and near directions that are not, and see who stays."""
    p, end = _ends(trials)
    solution = svm.attention_svm(p, end.selected)
    good = selection.locally_optimal(p, solution)
    kept, final = _stay(p[good], solution.W[good], end.selected[good])
    # the second-best token of the first sequence instead of the best one
    worse = p.optimal.copy()
    worse[:, 0] = np.argsort(p.scores[:, 0], axis=-1)[:, -2]
    wrong = svm.attention_svm(p, worse, errors="nan")
    bad = wrong.feasible & ~selection.locally_optimal(p, wrong)
    stayed, _ = _stay(p[bad], wrong.W[bad], worse[bad])
    own = compare.correlation(end.W, solution.W)
    nuclear = svm.attention_svm(p, end.selected, norm="nuc")
    return [
        Measured("share of runs that keep the tokens of a locally optimal start", kept.mean(), "==", 1.0),
        Measured("smallest correlation with the SVM at the end", final.min(), ">=", 0.99),
        Measured("random starts: share with locally optimal tokens", good.mean(), ">=", 0.9),
        Measured("random starts: median correlation after 1000 steps", np.median(own[:, 0]), ">=", 0.985),
        Measured("the same after 2000 steps", np.median(own[:, 1]), ">=", 0.995),
        Measured(
            "mean gain of correlation from 1000 to 2000 steps", (own[:, 1] - own[:, 0]).mean(), ">", 0.0
        ),
        Measured(
            "mean correlation with the nuclear SVM of the same tokens",
            compare.correlation(end.W[:, 1], nuclear.W).mean(),
            "in",
            (0.82, 0.90),
            "the other norm is not approached",
        ),
        Measured(
            "share of runs that keep tokens with a better-scored support token",
            stayed.mean(),
            "<=",
            0.05,
            f"{int(bad.sum())} such starts",
            breaks=True,
        ),
    ]


@cache
def _ends(trials: int) -> tuple[data.Problem, dynamics.Run]:
    p = instances(trials)
    return p, dynamics.train(p, Direct.random(p), dynamics.normalized(0.1), 2000, record=[1000, 2000])


def _stay(p: data.Problem, W: FloatArray, tokens: IntArray) -> tuple[BoolArray, FloatArray]:
    """Train from norm 60 at correlation 0.98 with W: who keeps the tokens, and the final correlation."""
    direction = W / np.linalg.norm(W, axis=(-2, -1), keepdims=True)
    noise = np.random.default_rng(0).normal(size=W.shape)
    noise -= (noise * direction).sum((-2, -1), keepdims=True) * direction
    noise /= np.linalg.norm(noise, axis=(-2, -1), keepdims=True)
    start = 60.0 * (0.98 * direction + np.sqrt(1.0 - 0.98**2) * noise)
    run = dynamics.train(p, Direct(start), dynamics.normalized(0.1), 2000, record=[2000])
    return (run.selected == tokens).all(-1), compare.correlation(run.W[:, -1], W)


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
    early, late, spread, turned = [], [], [], []
    for b in range(trials):
        one = svm.attention_svm(p[b], run.selected[b])
        predicted, reached, active = offsets(p[b], one, run.W[b, -1])
        before = offsets(p[b], one, run.W[b, LONG.index(4000)])[1]
        early.append(np.abs(before - predicted).max())
        late.append(np.abs(reached - predicted).max())
        spread.append(np.ptp(predicted))
        turned.append(_turn(p[b], one, active))
    return [
        Measured("largest error, 16,000 steps, median over runs", np.median(late), "<=", 0.1, "logits"),
        Measured("the same over that after 4,000 steps", np.median(late) / np.median(early), "<=", 0.5),
        Measured("median spread of the predictions", np.median(spread), ">=", 3.0, "logits"),
        Measured(
            "angle between gradient and solution on the predicted line", max(turned), "<=", 1e-6, "radians"
        ),
    ]


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
