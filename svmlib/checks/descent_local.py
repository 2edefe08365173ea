"""Claim of the chapter on gradient descent: local convergence of W to the direction of the SVM."""

from __future__ import annotations

from functools import cache

import numpy as np

from svmlib import compare, data, dynamics, selection, svm
from svmlib.arrays import BoolArray, FloatArray, IntArray
from svmlib.attention import Direct, gradient, smoothness

from .descent import PAGE, PAPER, instances, step_weights
from .registry import Measured, claim


@claim(
    "thm-local-convergence",
    title="Local convergence of W to a locally optimal direction",
    source=f"{PAPER}, local convergence theorem; proof in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10, 2000 normalised steps of 0.1; starts of norm 60 at correlation 0.98, far "
    "outside the cone of the proof; plain steps of 1/L on planted instances with n = 3, T = d = 4",
    seeds="0 to trials − 1",
    trials=(40, 20),
)
def local_convergence(trials: int) -> list[Measured]:
    """Test the proof's inequality, then start near directions that are locally optimal, and near others."""
    p, end = _ends(trials)
    solution = svm.attention_svm(p, end.selected)
    good = selection.locally_optimal(p, solution)
    six = [(p[b], svm.attention_svm(p[b], end.selected[b])) for b in np.flatnonzero(good)[:6]]
    excess = [_excess(q, one) for q, one in six]
    kept, close, size = _stay(p[good], solution.W[good], end.selected[good])
    plain, lengths = _plain_steps()
    # the second-best token of the first sequence instead of the best one
    worse = p.optimal.copy()
    worse[:, 0] = np.argsort(p.scores[:, 0], axis=-1)[:, -2]
    wrong = svm.attention_svm(p, worse, errors="nan")
    bad = wrong.solved & ~selection.locally_optimal(p, wrong)
    stayed, _, _ = _stay(p[bad], wrong.W[bad], worse[bad])
    own = compare.correlation(end.W, solution.W)
    nuclear = svm.attention_svm(p, end.selected, norm="nuc")
    return [
        Measured(
            r"largest aperture $\mu=(\beta\Gamma/16A_{\max})^2$ of the proof",
            max(_aperture(q, one) for q, one in six),
            "<=",
            1e-5,
            "the runs below start at 0.02",
        ),
        Measured(
            r"largest $\nu(g_W/g_B-1)$ over $\log(Nw_+/w_-)/\Gamma$, random $W$ at correlation 0.99 or more",
            max(excess),
            "<=",
            1.0,
            f"{len(excess)} instances, norms 30 to 300",
        ),
        Measured("share of runs that keep the tokens of a locally optimal start", kept.mean(), "==", 1.0),
        Measured(
            "largest rise of 1 − correlation between two records",
            -np.diff(close, axis=1).min(),
            "<=",
            0.0,
            f"{close.shape[1]} records",
        ),
        Measured("smallest growth of the norm between two records", np.diff(size, axis=1).min(), ">", 0.0),
        Measured("smallest correlation with the SVM at the end", close[:, -1].min(), ">=", 0.99),
        Measured("plain steps: smallest gain of correlation", np.diff(plain, axis=1).min(), ">", 0.0),
        Measured("plain steps: smallest growth of the norm", np.diff(lengths, axis=1).min(), ">", 0.0),
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


def _beside(direction: FloatArray, size: FloatArray | float, corr: float, seed: int = 0) -> FloatArray:
    """Matrices of given norm at a given correlation with a direction (..., d, d), otherwise random."""
    B = direction / np.linalg.norm(direction, axis=(-2, -1), keepdims=True)
    noise = np.random.default_rng(seed).normal(size=B.shape)
    noise -= (noise * B).sum((-2, -1), keepdims=True) * B
    noise /= np.linalg.norm(noise, axis=(-2, -1), keepdims=True)
    return np.asarray(size * (corr * B + np.sqrt(1.0 - corr**2) * noise))


def _aperture(p: data.Problem, solution: svm.AttentionSVM) -> float:
    """Aperture that the proof of local convergence asks for."""
    A = np.linalg.norm(p.differences(solution.tokens), axis=-1) * np.linalg.norm(p.z, axis=-1)[:, None]
    margins = compare.margins(solution.W, p.X, p.z, solution.tokens)
    slack = min(1.0, float(margins[~solution.support & np.isfinite(margins)].min()) - 1.0)
    return float((slack * solution.margin / (16.0 * A.max())) ** 2)


def _excess(p: data.Problem, solution: svm.AttentionSVM) -> float:
    """Largest excess of the gradient along W over that along the solution, in units of the proof's bound."""
    weight = step_weights(p, solution.tokens)[solution.support]
    bound = np.log(weight.size * weight.max() / weight.min()) / solution.margin
    worst = -np.inf
    for size in (30.0, 100.0, 300.0):
        for corr in (0.99, 0.9999):
            many = np.broadcast_to(solution.W, (10, p.d, p.d))
            W = _beside(many, size, corr)
            G = np.stack([gradient(p, Direct(w)).matrix() for w in W])
            along_W, along_B = ((G * D).sum((-2, -1)) for D in (W / size, solution.W * solution.margin))
            worst = max(worst, float((size * (along_W / along_B - 1.0)).max()))
    return worst / float(bound)


def _stay(p: data.Problem, W: FloatArray, tokens: IntArray) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Train from norm 60 at correlation 0.98 with W: who keeps the tokens, correlations and norms."""
    start = Direct(_beside(W, 60.0, 0.98))
    run = dynamics.train(p, start, dynamics.normalized(0.1), 2000, record=range(0, 2001, 100))
    sizes = np.linalg.norm(run.W, axis=(-2, -1))
    return (run.selected == tokens).all(-1), compare.correlation(run.W, W), sizes


def _plain_steps() -> tuple[FloatArray, FloatArray]:
    """Plain steps of 1/L beside the solutions of planted instances: correlations and norms."""
    p, W = data.planted_problem(n=3, T=4, d=4, batch=8)
    start = Direct(_beside(W, 2.0 * np.linalg.norm(W, axis=(-2, -1), keepdims=True), 0.9))
    rule = dynamics.gradient_descent(float(1.0 / smoothness(p).max()))
    run = dynamics.train(p, start, rule, 1024, record=[0, 256, 512, 1024])
    return compare.correlation(run.W, W), np.linalg.norm(run.W, axis=(-2, -1))
