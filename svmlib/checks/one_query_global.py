"""Claims of the chapter on one query: one sequence with two score levels, solved from every start."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from svmlib import attention, compare, data, dynamics, linear, svm
from svmlib.arrays import FloatArray
from svmlib.experiments import one_query as pictures

from .one_query import OWN, PAGE, TOKEN_SELECTION, autograd, flow, unit
from .registry import Measured, claim


def excess_odds(problem: data.Problem, p: FloatArray) -> FloatArray:
    r"""(...) log of :math:`\sum_{t\ne o}e^{-\langle\Delta_t,p\rangle}` of one sequence at points (..., e)."""
    delta = problem.differences()[0]
    others = np.arange(problem.T) != problem.optimal[0]
    return np.asarray(np.logaddexp.reduce(-(p @ delta[others].T), axis=-1))


class OneSequence(NamedTuple):
    """Single sequences with two score levels, scaled so that a step of 0.05 is the longest allowed."""

    problem: data.Problem
    """n = 1, T = 6, three-dimensional keys."""
    solved: svm.AttentionSVM
    reach: FloatArray
    """(B,) length of the longest difference of keys."""


@cache
def one_sequence(trials: int, T: int = 6, e: int = 3) -> OneSequence:
    """Random keys; the best token is the one farthest in a random direction, so it can be separated."""
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(trials, 1, T, e))
    best = (keys @ rng.normal(size=(trials, 1, e, 1)))[..., 0].argmax(-1)
    low = rng.uniform(-1, 1, (trials, 1, 1))
    scores = low + rng.uniform(0.5, 2, (trials, 1, 1)) * (np.arange(T) == best[..., None])
    for _ in range(2):  # the second time the keys are such that margin / reach^2 = 0.05
        problem = data.prompt_problem(keys, scores)
        solved = svm.token_svm(keys, best)
        reach = np.linalg.norm(problem.differences(), axis=-1).max((-1, -2))
        keys = keys * (20 * solved.margin / reach**2)[:, None, None, None]
    return OneSequence(problem, solved, reach)


@claim(
    "lem-two-levels",
    title="One sequence with two score levels is an exponential loss",
    kind="lemma",
    source=OWN,
    chapter=PAGE,
    scope="n = 1, T = 6, three-dimensional keys, logistic loss; 300 normalised steps",
    seeds="batch elements 0 to trials − 1 of seed 0",
    trials=(40, 10),
)
def two_levels(trials: int) -> list[Measured]:
    """The direction of the gradient; attention beside the linear classifier; convexity along segments."""
    problem, _, reach = one_sequence(trials)
    rng, turned, factor, bent = np.random.default_rng(1), [], [], []
    for b in range(trials):
        one = problem[b]
        others = np.arange(6) != one.optimal[0]
        delta, levels = one.differences()[0][others], np.sort(one.scores[0])
        for size in (0.3, 3.0):
            p = size / reach[b] * rng.normal(size=3)
            omega = np.exp(-delta @ p - excess_odds(one, p))
            g = omega @ delta
            s = attention.probabilities(one, p[:, None])[0]
            best, f = s[one.optimal[0]], s @ one.scores[0]
            c = (levels[-1] - levels[0]) * best * (1 - best) / (1 + np.exp(f))
            descent = -autograd(one, attention.Direct(p[:, None]))[:, 0]
            turned.append(np.linalg.norm(descent / np.linalg.norm(descent) - g / np.linalg.norm(g)))
            factor.append(abs(c * np.linalg.norm(g) / np.linalg.norm(descent) - 1))
            ends = 5 / reach[b] * rng.normal(size=(2, 3))
            value = attention.loss(one, np.array([*ends, ends.mean(0)])[..., None])
            bent.append(value[2] - value[:2].max())
    run = dynamics.train(problem, attention.Direct.zeros(problem), dynamics.normalized(0.05), 300, record=10)
    points = np.stack(
        [problem[b].differences()[0][np.arange(6) != problem[b].optimal[0]] for b in range(trials)]
    )
    twin = linear.descend(
        points, np.ones((trials, 5)), linear.normalized(0.05), 300, record=run.steps, loss="exponential"
    )
    mixed = data.prompt_problem(
        problem.keys,
        problem.scores + 0.3 * np.arange(6) * (problem.scores < problem.scores.max(-1, keepdims=True)),
    )
    other = dynamics.train(mixed, attention.Direct.zeros(mixed), dynamics.normalized(0.05), 300, record=10)
    return [
        Measured("direction of descent minus that of $g$", max(turned), "<=", 1e-10, "autograd"),
        Measured("$c\\,\\|g\\|$ over the length of the gradient, minus 1", max(factor), "<=", 1e-10),
        Measured("loss in the middle of a segment minus the larger end", max(bent), "<=", 1e-14),
        Measured(
            "attention minus linear classifier, 300 normalised steps",
            np.abs(run.W[..., 0] - twin.w).max(),
            "<=",
            1e-9,
        ),
        Measured(
            "the same with unequal scores, in the median",
            np.median(np.abs(other.W[..., 0] - twin.w).max((-1, -2))),
            ">=",
            0.1,
            breaks=True,
        ),
    ]


@claim(
    "thm-one-sequence",
    title="One sequence, two score levels: the max-margin direction from every start",
    source=f"{TOKEN_SELECTION}, global convergence for one input; proof and constants in the chapter",
    chapter=PAGE,
    scope="n = 1, T = 6, three-dimensional keys, logistic loss; starts with $r\\,\\|p(0)\\|$ up to 4 (flow, "
    "plain steps) and up to 20 (normalised); 3,000 plain and 4,000 normalised steps",
    seeds="batch elements 0 to trials − 1 of seed 0",
    trials=(50, 12),
)
def one_sequence_global(trials: int) -> list[Measured]:
    """Margins against their bound along flow and descent; long normalised runs; three broken instances."""
    problem, solved, reach = one_sequence(trials)
    rng = np.random.default_rng(2)
    near, far = (
        r * unit(rng.normal(size=(trials, 3))) * rng.uniform(0.2, 1, (trials, 1)) / reach[:, None]
        for r in (4, 20)
    )
    odds = np.array([excess_odds(problem[b], near[b]) for b in range(trials)])
    gap, slope = (
        problem.scores.max((-1, -2)) - problem.scores.min((-1, -2)),
        1 / (1 + np.exp(problem.scores.min((-1, -2)))),
    )
    rate = 4 / (slope * gap * reach**2)
    rows = [flow_row(problem, solved.margin, near, odds)]
    # one step size for the batch: keys are scaled so that the longest allowed step is 1 for each instance
    scale = np.sqrt(rate)
    scaled = data.prompt_problem(problem.keys * scale[:, None, None, None], problem.scores)
    run = dynamics.train(
        scaled,
        attention.Direct((near / scale[:, None])[..., None]),
        dynamics.gradient_descent(1.0),
        3000,
        record=range(0, 3001, 100),
    )
    p = run.W[..., 0] * scale[:, None, None]
    extra = np.sqrt(np.e) * 4
    bound = promised(solved.margin, p, near, odds) - extra
    rows.append(
        Measured(
            "plain steps: smallest margin minus its bound", (smallest(problem, p) - bound).min(), ">=", -1e-9
        )
    )
    late = np.searchsorted(run.steps, [300, 3000])
    grown = np.diff(solved.margin[:, None] * np.linalg.norm(p[:, late], axis=-1))[:, 0] / np.log(
        run.steps[late[1]] / run.steps[late[0]]
    )
    rows.append(
        Measured(
            "plain steps: median growth of $\\Gamma\\|p\\|$ per unit of $\\log k$",
            np.median(grown),
            "==",
            1.0,
            tol=0.1,
        )
    )
    long = dynamics.train(
        problem, attention.Direct(far[..., None]), dynamics.normalized(0.05), 4000, record=[1000, 2000, 4000]
    )
    corr = compare.correlation(long.W, solved.W)
    start = np.linalg.norm(far, axis=-1)
    cost = (np.log(5) + 2 * reach * start + 0.5) / solved.margin
    allowed = (2 * start + cost)[:, None] / (0.05 * long.steps + start[:, None])
    way = np.einsum("bre,be->br", long.W[..., 0] - far[:, None], solved.p * solved.margin[:, None])
    rows += [
        Measured(
            "normalised steps: way lost along $p^{\\mathrm{mm}}$ over its bound",
            ((0.05 * long.steps - way) / cost[:, None]).max(),
            "<=",
            1.0,
        ),
        Measured(
            "normalised steps: largest $1-\\mathrm{corr}$ over its bound",
            ((1 - corr) / allowed).max(),
            "<=",
            1.0,
        ),
        Measured("normalised steps: smallest correlation after 4,000", corr[:, -1].min(), ">=", 0.995),
        Measured(
            "normalised steps: largest of $1-\\mathrm{corr}$, 4,000 over 1,000",
            ((1 - corr[:, -1]) / (1 - corr[:, 0])).max(),
            "<=",
            0.5,
        ),
    ]
    return [*rows, *broken()]


def smallest(problem: data.Problem, p: FloatArray) -> FloatArray:
    """(B, r) smallest logit margin of the optimal token at points (B, r, e) of single sequences."""
    margins = np.einsum("bte,bre->brt", problem.differences()[:, 0], p)
    margins[np.arange(len(p)), :, problem.optimal[:, 0]] = np.inf
    return np.asarray(margins.min(-1))


def promised(margin: FloatArray, p: FloatArray, start: FloatArray, odds: FloatArray) -> FloatArray:
    """(B, r) margin that the theorem promises to gradient flow at points (B, r, e)."""
    return np.asarray(margin[:, None] * np.linalg.norm(p - start[:, None], axis=-1) - odds[:, None])


def flow_row(problem: data.Problem, margin: FloatArray, start: FloatArray, odds: FloatArray) -> Measured:
    """Gradient flow of three instances to time 10^4, by a Runge-Kutta method with small errors."""
    short, times = [], np.geomspace(1, 1e4, 20)
    for b in range(3):
        path = flow(problem[b], start[b], times)[None]
        here = smallest(problem[b : b + 1], path) - promised(
            margin[b : b + 1], path, start[b : b + 1], odds[b : b + 1]
        )
        short.append(here.min())
    return Measured(
        "flow: smallest margin minus its bound", min(short), ">=", -1e-5, "3 instances, to $t=10^4$"
    )


def broken() -> list[Measured]:
    """Unequal scores; two sequences; a key that cannot be separated."""
    uneven = pictures.single_input(0.0)
    rule = dynamics.normalized(0.1)
    run = dynamics.train(uneven, attention.Direct([[0.0], [-1.5]]), rule, 1000, record=1)
    best = svm.token_svm(uneven.keys, [0])
    pair = data.prompt_problem(
        [[[0.0, 0.0], [-2.0, 1.0]], [[0.0, 0.0], [1.0, 0.0]]], [[0.0, 1.0], [0.0, 1.0]]
    )
    wrong = dynamics.train(pair, attention.Direct([[4.0], [0.0]]), rule, 1000, record=1)
    joint = svm.token_svm(pair.keys, [1, 1])
    between = data.prompt_problem([[[-1.0], [0.0], [1.0]]], [[0.0, 1.0, 0.0]])
    stuck = dynamics.train(between, attention.Direct([[3.0]]), dynamics.gradient_descent(1.0), 1000, record=1)
    return [
        Measured(
            "unequal scores, a bad start: correlation in the end",
            compare.correlation(run.W[-1], best.W),
            "<=",
            0.2,
            breaks=True,
        ),
        Measured(
            "two sequences, a bad start: correlation in the end",
            compare.correlation(wrong.W[-1], joint.W),
            "<=",
            0.5,
            breaks=True,
        ),
        Measured(
            "a key between two others: length of $p$ in the end",
            np.abs(stuck.W[-1, 0, 0]),
            "<=",
            1e-3,
            breaks=True,
        ),
    ]
