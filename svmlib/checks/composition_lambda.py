"""Claims of the chapter on composing tokens about the quadratic head."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.optimize import nnls

from svmlib import dynamics
from svmlib.arrays import FloatArray
from svmlib.attention import Direct, best_attention, probabilities, quadratic, sparsemax, sparsemax_thresholds
from svmlib.data import Problem
from svmlib.experiments.selection_count import lambda_problem

from .composition import PAGE, PAPER, margins, random_quadratic
from .registry import Measured, claim


def scores(problem: Problem) -> FloatArray:
    """(..., n, T) products v'x of the tokens with the head's linear part, whatever the label.

    Parameters
    ----------
    problem : Problem
        With a quadratic head.

    Returns
    -------
    ndarray, shape (..., n, T)
        Scores.
    """
    v = problem.head.v  # type: ignore[union-attr]
    return np.asarray(np.einsum("...ntd,...d->...nt", problem.X, v))


def nearest_by_squares(X: FloatArray, target: FloatArray) -> FloatArray:
    """Point of a hull nearest to a target, by non-negative least squares: a second method.

    For columns P of differences to the target the minimiser of |P s|^2 + (1's - 1)^2 over s >= 0 is a
    multiple of the probabilities of the nearest point.

    Parameters
    ----------
    X : ndarray, shape (T, d)
        Points.
    target : ndarray, shape (d,)
        Target.

    Returns
    -------
    ndarray, shape (d,)
        The nearest point.
    """
    scale = np.abs(X - target).max()
    rows = np.vstack([(X - target).T / scale, np.ones(len(X))])
    s = nnls(rows, np.append(np.zeros(X.shape[1]), 1.0))[0]
    return np.asarray(s @ X / s.sum())


@claim(
    "thm-lambda-head",
    title=r"Head $v^\top u-\lambda\lVert u\rVert^2$: nearest point of the hull, and sparsemax",
    kind="theorem",
    source=PAPER + " (head); proof in the chapter",
    chapter=PAGE,
    scope="orthonormal tokens, T = 8, λ from 0.01 to 10; random tokens, T = 6, d = 3; n = 1",
    seeds="0 to trials − 1",
    trials=(60, 20),
)
def lambda_head(trials: int) -> list[Measured]:
    """The active-set solution against sorting and against non-negative least squares."""
    lam = np.geomspace(0.01, 10.0, 13)
    p = lambda_problem(lam, trials)
    best = best_attention(p)
    error = np.abs(best.probabilities - sparsemax(scores(p) / (2.0 * lam[:, None, None, None]))).max()
    counts = best.selected.sum(-1).mean((-2, -1))
    far = []
    q = random_quadratic(1, 6, 3, trials, 0.4)
    hull = best_attention(q)
    for b in range(trials):
        near = nearest_by_squares(q.X[b, 0], q.head.v[b] / 0.8)  # type: ignore[union-attr]
        far.append(np.abs(near - hull.outputs[b, 0]).max())
    sorted_only = sparsemax(scores(q) / 0.8)
    lost = hull.value - margins(q, sorted_only)
    negative = lambda_problem(lam, trials, label=-1)
    worst = best_attention(negative)
    chosen = np.take_along_axis(scores(negative), worst.probabilities.argmax(-1)[..., None], -1)[..., 0]
    return [
        Measured("orthonormal: largest difference from sparsemax", error, "<=", 1e-10),
        Measured("mean number of tokens at λ = 0.01", counts[0], "in", (1.0, 2.0)),
        Measured("the same at λ = 10", counts[-1], "==", 8.0),
        Measured("random tokens: largest distance from the nearest point", max(far), "<=", 1e-9),
        Measured("largest certificate", max(best.gap.max(), hull.gap.max()), "<=", 1e-10),
        Measured("y = −1: largest number of tokens", worst.selected.sum(-1).max(), "==", 1.0),
        Measured(
            "y = −1: largest difference of the chosen score from the smallest",
            np.abs(chosen - scores(negative).min(-1)).max(),
            "<=",
            1e-12,
        ),
        Measured("random tokens: mean margin lost by sparsemax", lost.mean(), ">", 0.01, breaks=True),
    ]


@claim(
    "prop-lambda-thresholds",
    title="Tokens enter one by one, at known curvatures",
    kind="proposition",
    source="derived in the chapter",
    chapter=PAGE,
    scope="Gaussian scores, T = 8; 120 values of λ from 1e-3 to 1e2; 0.1 % below and above each threshold",
    seeds="0 to trials − 1",
    trials=(100, 30),
)
def thresholds(trials: int) -> list[Measured]:
    """Count around the thresholds, and follow the shares in lambda; unequal lengths as a counter-example."""
    gamma = np.stack([np.random.default_rng(seed).normal(size=8) for seed in range(trials)])
    at = sparsemax_thresholds(gamma)
    wrong = 0
    for k in range(1, 8):
        level = at[:, k, None]
        below = (sparsemax(gamma / (2.0 * level * 0.999)) > 0).sum(-1)
        above = (sparsemax(gamma / (2.0 * level * 1.001)) > 0).sum(-1)
        other = np.abs(np.delete(at, k, 1) / level - 1.0).min(-1) > 2e-3
        wrong += int(((below != k) | (above != k + 1))[other].sum())
    lam = np.geomspace(1e-3, 1e2, 120)
    s = sparsemax(gamma / (2.0 * lam[:, None, None]))
    order = np.take_along_axis(s, np.broadcast_to(np.argsort(-gamma, -1), s.shape), -1)
    two = sparsemax_thresholds(gamma[:, :2])[:, 1] - 0.5 * np.abs(gamma[:, 0] - gamma[:, 1])
    kept = s > 0
    mean = (gamma * kept).sum(-1, keepdims=True) / kept.sum(-1, keepdims=True)
    line = 1.0 / kept.sum(-1, keepdims=True) + (gamma - mean) / (2.0 * lam[:, None, None])
    lost = (kept[:-1] & ~kept[1:]).sum()
    corner = np.array([[[1.0, 2.0], [0.0, 1.0], [1.0, -1.0]]])  # the best token is passed by
    sizes = [
        best_attention(Problem(corner, np.ones((1, 2)), np.ones(1), head=quadratic([0.0, 1.0], x))).selected
        for x in (0.05, 0.25, 0.5)
    ]
    return [
        Measured("wrong counts at 0.1 % below or above a threshold", wrong, "==", 0),
        Measured("two tokens: threshold minus half the difference", np.abs(two).max(), "<=", 1e-14),
        Measured("tokens lost as λ grows", lost, "==", 0),
        Measured(
            "largest rise of the best token's share as λ grows",
            np.diff(order[..., 0], axis=0).max(),
            "<=",
            1e-12,
        ),
        Measured(
            "largest rise of the sum of squares", np.diff(np.square(s).sum(-1), axis=0).max(), "<=", 1e-12
        ),
        Measured(
            "shares against the affine formula", np.abs(np.where(kept, s - line, 0.0)).max(), "<=", 1e-12
        ),
        Measured(
            "tokens that are not orthogonal: number of tokens lost as λ grows",
            sum((a & ~b).sum() for a, b in pairwise(sizes)),
            ">=",
            1,
            breaks=True,
        ),
    ]


@claim(
    "prop-lambda-traps",
    title="Label −1: every token less than 2λ above the smallest score is a local maximum",
    kind="proposition",
    source="derived in the chapter",
    chapter=PAGE,
    scope="orthonormal tokens, T = 6, λ = 0.05, 0.2 and 1; starts at each token and at zero, short steps",
    seeds="0 to trials − 1",
    trials=(20, 8),
)
def traps(trials: int) -> list[Measured]:
    """Start at every token with margin 8, and see which starts stay; then start from zero."""
    lam = np.array([0.05, 0.2, 1.0])
    p = lambda_problem(lam, trials, T=6, label=-1)
    gamma = scores(p)[..., 0, :]
    trap = gamma - gamma.min(-1, keepdims=True) < 2.0 * lam[:, None, None]
    clear = np.abs(gamma - gamma.min(-1, keepdims=True) - 2.0 * lam[:, None, None]) > 0.02
    starts = 8.0 * p.X[..., 0, :, :, None] * p.z[..., 0, None, None, :]
    many = p.expand(6)
    run = dynamics.train(
        many, Direct(np.moveaxis(starts, 2, 0)), dynamics.normalized(0.05), 1200, record=[1200]
    )
    stayed = np.moveaxis(run.selected[..., 0] == np.arange(6)[:, None, None], 0, -1)
    zero = dynamics.train(p, Direct.zeros(p), dynamics.normalized(0.05), 1200, record=[1200])
    best = np.take_along_axis(gamma, zero.selected, -1)[..., 0] == gamma.min(-1)
    sure = run.top_probability[..., -1, 0].min()
    concave = lambda_problem(lam, trials, T=6)
    same = dynamics.train(
        concave.expand(6), Direct(np.moveaxis(starts, 2, 0)), dynamics.normalized(0.05), 1200, record=[1200]
    )
    last = probabilities(concave.expand(6), same.W[..., -1, :, :])
    return [
        Measured(
            "share of starts that stay or leave as predicted", (stayed == trap)[clear].mean(), "==", 1.0
        ),
        Measured("share of starts that stay, λ = 1", stayed[2].mean(), ">", 0.9),
        Measured("the same, λ = 0.05", stayed[0].mean(), "in", (0.1, 0.7)),
        Measured("smallest final probability of the winner", sure, ">", 0.999),
        Measured("from zero: share of runs at the best token", best.mean(), "==", 1.0),
        Measured(
            "label +1, concave: largest spread of a final probability over the six starts",
            np.ptp(last, axis=0).max(),
            "<=",
            0.1,
        ),
    ]
