"""Claims of the chapter on composing tokens: what is optimal for convex and for concave heads."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare, dynamics, svm
from svmlib.arrays import FloatArray, as_float
from svmlib.attention import (
    Direct,
    best_attention,
    loss,
    mlp,
    predictions,
    quadratic,
)
from svmlib.data import Problem, random_problem

from .registry import Measured, claim

PAGE = "nonlinear/composition"
PAPER = "Transformers as Support Vector Machines (2023), section on nonlinear heads"


def random_quadratic(
    n: int, T: int, d: int, trials: int, lam: float, label: int = 1, seed: int = 0
) -> Problem:
    """Random tokens and queries on the sphere under the head v'u - lam |u|^2, all labels the same.

    Parameters
    ----------
    n, T, d : int
        Sequences, tokens, dimension.
    trials : int
        Number of instances.
    lam : float
        Curvature.
    label : int
        The label.
    seed : int
        Seed of the first instance.

    Returns
    -------
    Problem
        With batch shape (trials,).
    """
    p = random_problem(n, T, d, batch=trials, seed=seed)
    return Problem(p.X, p.z, np.full(n, float(label)), head=quadratic(np.asarray(p.v), lam))


def margins(problem: Problem, s: FloatArray) -> FloatArray:
    """(..., n) prediction margins for probabilities (..., n, T), at no particular W.

    Parameters
    ----------
    problem : Problem
        With a head.
    s : ndarray, shape (..., n, T)
        Probabilities.

    Returns
    -------
    ndarray, shape (..., n)
        Margins.
    """
    u = np.einsum("...nt,...ntd->...nd", s, problem.X)
    ones = np.ones((*u.shape[:-1], 1))
    alone = Problem(u[..., None, :], ones, problem.y, head=problem.head, keys=ones[..., None])
    return np.asarray(problem.y * predictions(alone, [[0.0]]))


def local_scores(problem: Problem, s: FloatArray) -> FloatArray:
    """(B, n, T) local scores y x_t' (v - 2 lam u) of a quadratic head at probabilities s.

    Parameters
    ----------
    problem : Problem
        With one batch axis and a quadratic head.
    s : ndarray, shape (B, n, T)
        Probabilities.

    Returns
    -------
    ndarray, shape (B, n, T)
        Local scores.
    """
    head = problem.head
    u = np.einsum("bnt,bntd->bnd", s, problem.X)
    slope = head.v[:, None] - 2.0 * head.lam[:, None, None] * u  # type: ignore[union-attr]
    return np.asarray(problem.y[..., None] * np.einsum("bntd,bnd->bnt", problem.X, slope))


def draws(problem: Problem, seed: int, sharp: float = 3.0) -> FloatArray:
    """(B, n, T) random probabilities, from nearly even to nearly one token.

    Parameters
    ----------
    problem : Problem
        Gives the shape.
    seed : int
        Seed.
    sharp : float
        Standard deviation of the logits.

    Returns
    -------
    ndarray, shape (B, n, T)
        Probabilities.
    """
    e = np.exp(np.random.default_rng(seed).normal(scale=sharp, size=problem.X.shape[:-1]))
    return np.asarray(e / e.sum(-1, keepdims=True))


def vertex_margins(problem: Problem) -> FloatArray:
    """(B, n, T) margins of single tokens.

    Parameters
    ----------
    problem : Problem
        With one batch axis and a head.

    Returns
    -------
    ndarray, shape (B, n, T)
        Margins.
    """
    eye = np.broadcast_to(np.eye(problem.T), (*problem.X.shape[:-1], problem.T))
    return np.stack([margins(problem, eye[..., t, :]) for t in range(problem.T)], axis=-1)


@claim(
    "lem-kept-tokens",
    title="Where the margin is concave, kept tokens are worth the same and others no more",
    kind="lemma",
    source="first-order conditions; proof in the chapter",
    chapter=PAGE,
    scope="n = 4, T = 5, d = 3, λ = 1; 40 random attentions each",
    seeds="0 to trials − 1",
    trials=(30, 10),
)
def kept(trials: int) -> list[Measured]:
    """Local scores at the optimum, the bound at random attentions, and the same test for a convex head."""
    p = random_quadratic(4, 5, 3, trials, 1.0)
    best = best_attention(p)
    gamma = local_scores(p, best.probabilities)
    mean = (best.probabilities * gamma).sum(-1, keepdims=True)
    spread = np.where(best.selected, np.abs(gamma - mean), 0.0).max()
    above = (gamma - mean).max()
    short = []
    for seed in range(40):
        s = draws(p, seed)
        g = local_scores(p, s)
        bound = g.max(-1) - (s * g).sum(-1)
        short.append(bound - (best.value - margins(p, s)))
    convex = random_quadratic(4, 5, 3, trials, -1.0)
    # a token that passes the first-order test although another one is better
    values = vertex_margins(convex)
    passing = []
    for t in range(5):
        s = np.broadcast_to(np.eye(5)[t], convex.X.shape[:-1])
        g = local_scores(convex, s)
        passing.append((g.max(-1) <= g[..., t] + 1e-12) & (values[..., t] < values.max(-1) - 1e-3))
    return [
        Measured("mean number of kept tokens", best.selected.sum(-1).mean(), "in", (1.3, 3.5)),
        Measured("local scores of kept tokens: largest difference from their mean", spread, "<=", 1e-9),
        Measured("local scores of all tokens: largest excess over it", above, "<=", 1e-9),
        Measured("smallest slack of the bound on what is missing", np.min(short), ">=", -1e-9),
        Measured(
            "convex head: share of sequences where a worse token passes the test",
            np.any(passing, axis=0).mean(),
            ">",
            0.3,
            breaks=True,
        ),
    ]


@claim(
    "thm-convex-selects",
    title="Convex margins select one token",
    kind="theorem",
    source="linear heads: " + PAPER + "; statement and proof in the chapter",
    chapter=PAGE,
    scope="ReLU, y = +1; quadratic, y λ < 0; n = 4, T = 5, d = 4; 40 random attentions each",
    seeds="0 to trials − 1",
    trials=(30, 10),
)
def convex(trials: int) -> list[Measured]:
    """The price of attention taken away from the best token; a concave head does not charge it."""
    base = random_problem(4, 5, 4, batch=trials)
    V = np.stack([np.random.default_rng(b).normal(size=(4, 6)) for b in range(trials)])
    relu = Problem(base.X, base.z, np.ones(4), head=mlp(V))
    seen, tight = {}, {}
    cases = {
        "ReLU": relu,
        "quadratic, y = +1, λ = −1": random_quadratic(4, 5, 4, trials, -1.0),
        "quadratic, y = −1, λ = +1": random_quadratic(4, 5, 4, trials, 1.0, label=-1),
        "concave": random_quadratic(4, 5, 4, trials, 1.0),
    }
    for name, p in cases.items():
        single = np.sort(vertex_margins(p), axis=-1)
        gap, top = single[..., -1] - single[..., -2], vertex_margins(p).argmax(-1)
        slack, quotient = [], []
        for seed in range(40):
            s = draws(p, seed)
            missing = 1.0 - np.take_along_axis(s, top[..., None], -1)[..., 0]
            short = single[..., -1] - margins(p, s)
            slack.append(short - gap * missing)
            quotient.append(short / (gap * missing))
        seen[name], tight[name] = float(np.min(slack)), float(np.min(quotient))
    rows = [
        Measured(f"{name}: smallest slack of the price", seen[name], ">=", -1e-12) for name in list(cases)[:3]
    ]
    lead = best_attention(cases["concave"]).value - vertex_margins(cases["concave"]).max(-1)
    return [
        *rows,
        Measured(
            "ReLU: smallest quotient of what is missing and its price", tight["ReLU"], "in", (1.0, 1.05)
        ),
        Measured("concave head: smallest slack", seen["concave"], "<", -0.1, breaks=True),
        Measured("concave head: mean gain of composing", lead.mean(), ">", 0.02, breaks=True),
    ]


@claim(
    "cor-convex-paths",
    title="Convex margins: regularisation paths turn to the SVM of the best tokens",
    kind="corollary",
    source="derived in the chapter",
    chapter=PAGE,
    scope="head v'u + ½|u|², all labels +1, n, T, d = 3, 4, 4, R = 80 and 640; (K,Q) once",
    seeds="0 to trials − 1",
    trials=(3, 2),
)
def convex_paths(trials: int) -> list[Measured]:
    """Minimise the loss over balls with a convex head, and with the concave one of the same size."""
    fall = {}
    for lam, norm in ((-0.5, "fro"), (-0.5, "nuc"), (3.0, "fro")):
        p = random_quadratic(3, 4, 4, 1 if norm == "nuc" else trials, lam)
        best = vertex_margins(p).argmax(-1)
        path = dynamics.regularization_path(p, [80.0, 640.0], norm, tokens=best, starts=0)
        fall[lam, norm] = 1.0 - compare.correlation(path.W, svm.attention_svm(p, best, norm=norm).W)
    rows = []
    for name, norm in (("W", "fro"), ("(K,Q)", "nuc")):
        turned = fall[-0.5, norm]
        ratio = (turned[:, 1] / turned[:, 0]).max()
        rows += [
            Measured(f"{name}: largest 1 − corr at R = 640", turned[:, 1].max(), "<=", 1e-3),
            Measured(f"{name}: its ratio to that at R = 80, largest", ratio, "<=", 0.3),
        ]
    lost = np.median(fall[3.0, "fro"][:, 1])
    return [*rows, Measured("W, λ = 3, concave: median of 1 − corr", lost, ">=", 0.1, breaks=True)]


def opposite(center: ArrayLike) -> Problem:
    """Two tokens, 1 and -1, under the heads -(u - center)^2, up to constants; the query is 1.

    Parameters
    ----------
    center : array_like, shape (...)
        The outputs that the heads like best.

    Returns
    -------
    Problem
        W is one number w for each head, the output tanh(w).
    """
    head = quadratic(2.0 * as_float(center, "center")[..., None], 1.0)
    return Problem(np.array([[[1.0], [-1.0]]]), np.ones((1, 1)), np.ones(1), head=head)


@claim(
    "prop-two-opposite",
    title="Two opposite tokens: a finite minimiser, and where it goes to infinity",
    kind="proposition",
    source="derived in the chapter",
    chapter=PAGE,
    scope="c = 0, 0.5, −0.9 and 1, 1.2, −1.2; starts ±2; logistic loss, plain steps of 0.3",
)
def two_opposite(trials: int) -> list[Measured]:
    """Train one number from both sides, with the best output inside, at the boundary and beyond."""
    centers = np.array([0.0, 0.5, -0.9, 1.0, 1.2, -1.2])
    starts = np.broadcast_to(np.array([2.0, -2.0])[:, None, None, None], (2, 6, 1, 1))
    many, record = opposite(centers).expand(2), [*range(200), 700, 7000]
    run = dynamics.train(many, Direct(starts), dynamics.gradient_descent(0.3), 7000, record=record)
    w = run.W[..., 0, 0]
    inside = np.arctanh(centers[:3])
    away = w[:, :3] - inside[:, None]
    away = away * np.sign(away[..., :1])  # negative on the other side of the minimiser
    ends = np.stack([inside, np.full(3, 50.0), np.full(3, -50.0)])
    value = loss(opposite(centers[:3]), ends.T[..., None, None])
    growth = np.sign(centers[3:]) * (w[:, 3:, -1] - w[:, 3:, -2])
    return [
        Measured("largest distance of w from artanh c", np.abs(w[:, :3, -1] - inside).max(), "<=", 1e-6),
        Measured("farthest that a run gets beyond it", -away.min(), "<=", 1e-9),
        Measured("largest growth of the distance in a step", np.diff(away).max(), "<=", 1e-12),
        Measured(
            "smallest excess of the two selections over the minimum",
            (value[:, 1:] - value[:, :1]).min(),
            ">",
            1e-3,
        ),
        Measured(
            "c = ±1.2: least growth of |w|, step 700 to 7,000",
            growth[:, 1:].min(),
            ">",
            0.5,
            breaks=True,
        ),
        Measured("c = 1: the same", growth[:, 0].min(), ">", 0.3, breaks=True),
    ]
