"""Claims of the chapter on global convergence: the loss of the cheapest mistake, and long first steps."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from svmlib import compare, data, dynamics, svm
from svmlib.arrays import FloatArray
from svmlib.attention import Direct, gradient, probabilities, smoothness
from svmlib.experiments import wrong_limits
from svmlib.experiments.wrong_limits import cheapest_mistake

from .global_convergence import OWN, PAGE, PAPER
from .registry import Measured, claim


def below_level(p: data.Problem, V: FloatArray, loss: str = "logistic") -> FloatArray:
    """Smallest power of 2 times V, V normalised, at which the loss is below that of every wrong selection."""
    unit = V / np.linalg.norm(V, axis=(-2, -1), keepdims=True)
    sizes = 2.0 ** np.arange(0, 16)
    low = dynamics.gap(p, sizes[:, None, None] * unit[..., None, :, :], loss)
    first = (low < cheapest_mistake(p, loss)[..., None]).argmax(-1)
    return np.asarray(sizes[first][..., None, None] * unit)


def separating(p: data.Problem, W: FloatArray, seed: int = 0) -> FloatArray:
    """Directions far from the solution W that still separate the optimal tokens."""
    noise = np.random.default_rng(seed).normal(size=W.shape)
    lowest = compare.margins(noise, p.keys, p.z, p.optimal).min((-2, -1))
    return np.asarray(W + (0.9 / np.maximum(-lowest, 1e-9))[:, None, None] * noise)


def _key_ratio(p: data.Problem, solution: svm.AttentionSVM) -> float:
    """Excess of the gradient along W over that along the solution, in units of the proof's bound."""
    worst = -np.inf
    for seed, away in enumerate((1.0, 0.3, 0.1, 0.03, 0.01)):
        toward = solution.W + away * (separating(p, solution.W, seed) - solution.W)
        W = below_level(p, toward) * (1.0 + seed)
        s = probabilities(p, W)
        f = (s * p.scores).sum(-1, keepdims=True)
        top = np.take_along_axis(s, p.optimal[..., None], -1)
        others = np.arange(p.T) != p.optimal[..., None]
        kappa = np.where(others, top * (f - p.scores) / (1.0 + np.exp(f)), np.nan).reshape(len(p), -1)
        assert np.nanmin(kappa) > 0  # below the level every mean score exceeds the second best score
        ratio = np.nanmax(kappa, axis=1) / np.nanmin(kappa, axis=1)
        bound = np.log(p.n * (p.T - 1) * ratio) * solution.value
        G, size = gradient(p, Direct(W)).matrix(), np.linalg.norm(W, axis=(-2, -1))
        along_W = (G * W).sum((-2, -1)) / size
        along_B = (G * solution.W).sum((-2, -1)) / solution.value
        worst = max(worst, float((size * (along_W / along_B - 1.0) / bound).max()))
    return worst


@claim(
    "thm-below-mistakes",
    title="Below the loss of every wrong selection, gradient descent is global",
    source=OWN,
    chapter=PAGE,
    scope="n = T = 5, d = 5, separating directions far from the solution, scaled until the loss is below the "
    "level; 4000 normalised steps of 0.1; plain steps of 1/L on planted instances with n = 3, T = d = 4",
    seeds="0 to trials − 1",
    trials=(60, 20),
)
def below_mistakes(trials: int) -> list[Measured]:
    """Test the proof's inequality, run from below the level, and from above it beside a wrong selection."""
    p = data.random_problem(5, 5, 5, batch=trials)
    solution = svm.attention_svm(p)
    start = below_level(p, separating(p, solution.W))
    run = dynamics.train(p, Direct(start), dynamics.normalized(0.1), 4000, record=range(0, 4001, 50))
    corr = compare.correlation(run.W, solution.W)
    planted, V = data.planted_problem(n=3, T=4, d=4, batch=8)
    rule = dynamics.gradient_descent(float(1.0 / smoothness(planted).max()))
    begin = Direct(below_level(planted, separating(planted, V)))
    plain = dynamics.train(planted, begin, rule, 2000, record=[0, 500, 1000, 2000])
    turned = compare.correlation(plain.W, V)
    wrong = wrong_limits.two_sequences()
    W = np.array([[12.0], [0.0]])
    above = dynamics.train(wrong, Direct(W), dynamics.normalized(0.1), 4000, record=range(0, 4001, 20))
    level = float(cheapest_mistake(wrong))
    below = Direct(np.array([[-5.0], [-3.5]]))
    leap = {
        rate: dynamics.train(wrong, below, dynamics.normalized(rate), 2000).gap / level for rate in (0.1, 5.0)
    }
    return [
        Measured(
            "largest starting loss above the infimum, over the level",
            (run.gap[:, 0] / cheapest_mistake(p)).max(),
            "<",
            1.0,
        ),
        Measured("median correlation of a start with the solution", np.median(corr[:, 0]), "<=", 0.94),
        Measured(
            r"largest $\nu(g_W/g_B-1)$ over $\log(N\kappa_+/\kappa_-)/\Gamma$",
            _key_ratio(p, solution),
            "<=",
            1.0,
        ),
        Measured(
            "largest rise of the loss between records, over the level",
            (np.diff(run.gap) / cheapest_mistake(p)[:, None]).max(),
            "<=",
            0.0,
        ),
        Measured(
            "share of runs with optimal tokens at the end",
            (run.selected == p.optimal).all(-1).mean(),
            "==",
            1.0,
        ),
        Measured("smallest gain of correlation, start to end", (corr[:, -1] - corr[:, 0]).min(), ">", 0.0),
        Measured("median correlation with the solution at the end", np.median(corr[:, -1]), ">=", 0.98),
        Measured(
            "plain steps: smallest gain of correlation between records",
            np.diff(turned, axis=1).min(),
            ">",
            0.0,
        ),
        Measured(
            "start at (12, 0): its excess loss over the level, less 1",
            above.gap[0] / level - 1.0,
            "in",
            (0.0, 1e-3),
        ),
        Measured(
            "from there: correlation with the solution of the optimal tokens",
            compare.correlation(above.W[-1], np.array([[1.0], [3.0]])),
            "<=",
            0.4,
            "it goes along (1, 0)",
            breaks=True,
        ),
        Measured(
            "start at (−5, −3.5), steps of 0.1: largest excess loss over the level",
            leap[0.1].max(),
            "<",
            1.0,
        ),
        Measured(
            "the same start, steps of 5: excess loss at the end over the level",
            leap[5.0][-1],
            ">=",
            1.0 - 1e-9,
            "long normalised steps jump out",
            breaks=True,
        ),
    ]


@cache
def _from_zero(trials: int) -> dynamics.Run:
    p = data.random_problem(5, 5, 5, batch=trials)
    return dynamics.train(p, Direct.zeros(p), dynamics.normalized(0.1), 2000, record=range(0, 2001, 20))


@claim(
    "cor-level",
    title="A run is global if and only if its loss falls below the level",
    kind="corollary",
    source=OWN,
    chapter=PAGE,
    scope="n = T = 5, d = 5, 2000 normalised steps of 0.1 from zero; equal scores with n = 3, T = 5, "
    "width 6: 4000 steps of 0.05 from starts of norm 0 and 5",
    seeds="0 to trials − 1",
    trials=(60, 30),
)
def level(trials: int) -> list[Measured]:
    """Compare, run by run, the crossing of the level with the tokens at the end."""
    p, run = data.random_problem(5, 5, 5, batch=trials), _from_zero(trials)
    good = (run.selected == p.optimal).all(-1)
    crossed = (run.gap < cheapest_mistake(p)[:, None]).any(-1)
    r = wrong_limits.p2_equal_scores(trials=trials, norms=(0.0, 5.0))
    some = r["feasible"]
    end, below = r["optimal"][:, some], r["below"][:, some]
    return [
        Measured("random scores: share of global runs", good.mean(), "in", (0.5, 0.9)),
        Measured(
            "random scores: share of runs where crossing and optimal tokens agree",
            (good == crossed).mean(),
            "==",
            1.0,
        ),
        Measured("equal scores: the same", (end == below).mean(), "==", 1.0, f"{end.size} runs"),
        Measured(
            "equal scores, from zero: share of runs with a worse token", (~end[0]).mean(), "in", (0.05, 0.4)
        ),
        Measured("equal scores, from norm 5: the same", (~end[1]).mean(), "in", (0.25, 0.7)),
        Measured(
            "equal scores, from zero, all tokens optimal: smallest correlation with the solution",
            r["correlation"][0, some][end[0]].min(),
            ">=",
            0.999,
        ),
        Measured(
            "runs with a worse token: smallest excess loss over the level, less 1",
            r["smallest_excess"][:, some][~end].min() - 1.0,
            "in",
            (-1e-9, 1e-3),
            "they come down to the level, and not through",
        ),
        Measured(
            "random scores: the same",
            (run.gap / cheapest_mistake(p)[:, None])[~good].min() - 1.0,
            "in",
            (-1e-9, 1e-3),
        ),
    ]


def radius(p: data.Problem, V: FloatArray) -> FloatArray:
    """Length of the first step from which the corollary needs no further assumption, logistic loss."""
    mu = compare.margins(V, p.keys, p.z, p.optimal).min((-2, -1))
    spread = p.scores.max(-1) - p.scores.min(-1)
    steep = 1.0 / (1.0 + np.exp(p.scores.min((-2, -1))))
    bound = steep * (p.T - 1) * spread.sum(-1) / (p.n * cheapest_mistake(p))
    return np.asarray(np.log(bound) / mu)


def first_steps(p: data.Problem) -> FloatArray:
    """Directions of the negative gradient at zero, normalised."""
    G = -gradient(p, Direct.zeros(p)).matrix()
    return np.asarray(G / np.linalg.norm(G, axis=(-2, -1), keepdims=True))


@claim(
    "cor-first-step",
    title="A long first step that separates makes gradient descent global",
    kind="corollary",
    source=f"{PAPER}, theorem on a good initial gradient; without its condition on the iterates",
    chapter=PAGE,
    scope="n = T = 5, d = 10; a first step to a norm at which the loss is below the level, then 3000 "
    "normalised steps of 0.1; where it does not separate, a first step of length 100",
    seeds="0 to trials − 1",
    trials=(200, 60),
)
def first_step(trials: int) -> list[Measured]:
    """Take the first step where it separates and where it does not, and count both."""
    p = data.random_problem(5, 5, 10, batch=trials)
    V = first_steps(p)
    holds = compare.margins(V, p.keys, p.z, p.optimal).min((-2, -1)) > 0
    good, bad = p[holds], p[~holds]
    R = radius(good, V[holds])
    gap = dynamics.gap(good, R[:, None, None] * V[holds] * 1.001)
    rule = dynamics.normalized(0.1)
    run = dynamics.train(good, Direct(below_level(good, V[holds])), rule, 3000, record=range(0, 3001, 100))
    corr = compare.correlation(run.W, svm.attention_svm(good).W)
    lost = dynamics.train(bad, Direct(100.0 * V[~holds]), rule, 3000, record=[0, 3000])
    zero = dynamics.train(bad, Direct.zeros(bad), rule, 2000, record=[2000])
    shares = {n: _share(n, 50, trials) for n in (5, 1)}
    error = 3.5 * np.sqrt(0.2 / trials)
    return [
        Measured(
            "largest loss above the infimum at the proved length, over the level",
            (gap / cheapest_mistake(good)).max(),
            "<",
            1.0,
            f"lengths {R.min():.0f} to {R.max():.0f}",
        ),
        Measured(
            "share of runs with optimal tokens at the end",
            (run.selected == good.optimal).all(-1).mean(),
            "==",
            1.0,
            f"{len(good)} runs",
        ),
        Measured(
            "smallest gain of correlation with the solution", (corr[:, -1] - corr[:, 0]).min(), ">", 0.0
        ),
        Measured(
            "share of instances where the first step separates",
            holds.mean(),
            "in",
            (0.19 - error, 0.19 + error),
        ),
        Measured("the same, n = 5, d = 50", shares[5], "in", (0.53 - error, 0.53 + error)),
        Measured("the same, n = 1, d = 50", shares[1], "in", (0.87 - error, 0.87 + error)),
        Measured(
            "where it does not: share of global runs from zero",
            (zero.selected == bad.optimal).all(-1).mean(),
            ">=",
            0.8,
            "the condition is not needed",
        ),
        Measured(
            "where it does not: share of first steps of length 100 that end below the level",
            (lost.gap[:, 0] < cheapest_mistake(bad)).mean(),
            "<=",
            0.15,
            f"later global: {(lost.selected == bad.optimal).all(-1).mean():.0%}",
            breaks=True,
        ),
    ]


def _share(n: int, d: int, trials: int) -> Any:
    p = data.random_problem(n, 5, d, batch=trials)
    return (compare.margins(first_steps(p), p.keys, p.z, p.optimal).min((-2, -1)) > 0).mean()


@claim(
    "prop-cone-kept",
    title="Iterates stay in the cone of a separating start",
    kind="proposition",
    source=f"{OWN}; in {PAPER} this is a condition of the theorem on a good initial gradient",
    chapter=PAGE,
    scope="n = T = 5, d = 20, first steps that separate, to four times the norm at which the loss is below "
    "the level; 1000 normalised steps of 0.05, which follow the path of the flow; 1000 plain steps of 1/L on "
    "planted instances with n = 3, T = d = 4; the differences (1, 0) and (−2, 1) from 20 (1, 3)",
    seeds="0 to trials − 1",
    trials=(100, 40),
)
def cone_kept(trials: int) -> list[Measured]:
    """Follow the smallest margin per norm, from separating first steps and from the solution itself."""
    p = wrong_limits.small_problem(data.random_problem(5, 5, 20, batch=trials))
    V = first_steps(p)
    holds = compare.margins(V, p.keys, p.z, p.optimal).min((-2, -1)) > 0
    p, V = p[holds], V[holds]
    best = svm.attention_svm(p).margin
    short = dynamics.normalized(0.05)
    per_norm, size, fall = _cone(p, 4.0 * below_level(p, V), short)
    planted, Wmm = data.planted_problem(n=3, T=4, d=4, batch=8)
    plain = dynamics.gradient_descent(float(1.0 / smoothness(planted).max()))
    kept, longer, _ = _cone(planted, 2.0 * below_level(planted, separating(planted, Wmm)), plain)
    pair = wrong_limits.two_sequences([[1.0, 0.0]], [[-2.0, 1.0]])
    exact, _, _ = _cone(pair, np.array([[[20.0], [60.0]]]), dynamics.normalized(0.01))
    return [
        Measured(
            "smallest margin per norm along a run, over that of its start",
            (per_norm / per_norm[:, :1]).min(),
            ">=",
            0.99,
            f"{len(p)} runs",
        ),
        Measured("smallest growth of the norm between records", np.diff(size, axis=1).min(), ">", 0.0),
        Measured(
            r"smallest fall of the log excess per length travelled, over $\Gamma$",
            (fall / (1000 * 0.05 * best)).min(),
            ">=",
            0.95,
        ),
        Measured(
            "plain steps: smallest margin per norm along a run, over that of its start",
            (kept / kept[:, :1]).min(),
            ">=",
            0.99,
        ),
        Measured(
            "plain steps: smallest growth of the norm between records",
            np.diff(longer, axis=1).min(),
            ">",
            0.0,
        ),
        Measured(
            r"from the solution itself, $\mu=\Gamma$: smallest margin per norm over that of the start",
            (exact / exact[:, :1]).min(),
            "<",
            0.9995,
            breaks=True,
        ),
    ]


def _cone(p: data.Problem, W: FloatArray, rule: dynamics.Rule) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Smallest margin per norm (b, r), norms (b, r), and fall of the log excess (b,), over 1000 steps."""
    when = range(0, 1001, 50)
    run = dynamics.train(p, Direct(W), rule, 1000, record=when)
    margins = compare.margins(run.W, p.keys[:, None], p.z[:, None], p.optimal[:, None]).min((-2, -1))
    size = np.linalg.norm(run.W, axis=(-2, -1))
    return margins / size, size, np.log(run.gap[:, 0]) - np.log(run.gap[:, -1])
