"""Claims of the chapter on synthetic data: what momentum and Adam do to the steps of the theory."""

from __future__ import annotations

import numpy as np

from svmlib import scansnap
from svmlib.arrays import FloatArray
from svmlib.scansnap import TokenProcess

from .registry import Measured, claim
from .synthetic import PAGE, experiments

BETA = 0.9


def descended(process: TokenProcess, rates: tuple[float, float], steps: int) -> list[tuple[FloatArray, ...]]:
    """Momentum written out, with the closed-form gradients of the population.

    Parameters
    ----------
    process : TokenProcess
        Classes.
    rates : pair of float
        Learning rates of decoder and attention.
    steps : int
        Number of steps.

    Returns
    -------
    list of tuple
        D, z and the two directions of descent before each step, and after the last.
    """
    theta = [np.zeros((process.M, process.M)), np.zeros((len(process.queries), process.M))]
    memory, out = [np.zeros_like(a) for a in theta], []
    for _ in range(steps + 1):
        g = scansnap.gradients(process, *theta)
        out.append((*theta, -g.D, -g.z))
        memory = [BETA * m - a for m, a in zip(memory, (g.D, g.z), strict=True)]
        theta = [a + rate * m for a, rate, m in zip(theta, rates, memory, strict=True)]
    return out


@claim(
    "prop-syn-momentum",
    title="Momentum is a larger rate that arrives late",
    kind="proposition",
    source="folklore; on Scan and Snap (2023), figures 4 and 6",
    chapter=PAGE,
    scope="Syn-Small, population, 60 steps with momentum 0.9; random directions",
    seeds="0 to trials − 1",
    trials=(100, 20),
)
def momentum(trials: int) -> list[Measured]:
    """Displacement against the weighted sum of directions, and the bound on the difference to plain steps."""
    p, rates, K = scansnap.syn_small(), (1.0, 0.5), 60
    path = descended(p, rates, K)
    run = scansnap.simulate(p, *rates, K, momentum=BETA, record=[K])
    weight = (1 - BETA ** (K - np.arange(K))) / (1 - BETA)
    sums = [
        rate * np.tensordot(weight, np.stack([state[2 + j] for state in path[:-1]]), 1)
        for j, rate in enumerate(rates)
    ]
    error = max(np.abs(run.D[0] - sums[0]).max(), np.abs(run.z[0, 0] - sums[1]).max())
    plain = np.stack([state[2] for state in path[:-1]]).sum(0) / (1 - BETA)
    missing = np.linalg.norm(run.D[0] - rates[0] * plain)
    largest = max(np.linalg.norm(state[2]) for state in path[:-1])
    limit = rates[0] * BETA / (1 - BETA) ** 2 * largest
    worst = 0.0
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        v = rng.normal(size=(K, 5))
        m, x = np.zeros(5), np.zeros(5)
        for a in v:
            m = BETA * m + a
            x = x + m
        gap = np.linalg.norm(x - v.sum(0) / (1 - BETA))
        worst = max(worst, gap / (BETA / (1 - BETA) ** 2 * np.linalg.norm(v, axis=1).max()))
    # equal directions of length 1: plain steps less the weighted sum
    equal = (K / (1 - BETA) - weight.sum()) / (BETA / (1 - BETA) ** 2)
    early = np.abs(path[3][0] - path[0][0] - 10 * sum(state[2] for state in path[:3])).max()
    return [
        Measured("error of the weighted sum, largest entry", error, "<=", 1e-12),
        Measured(
            "distance of D from plain steps, over its bound",
            missing / limit,
            "<=",
            1.0,
        ),
        Measured("the same for random directions, worst", worst, "<=", 1.0),
        Measured("the same for equal directions, which nearly attain it", equal, "==", 0.999, tol=1e-3),
        Measured(
            "after 3 steps: distance from tenfold rates over the displacement",
            early / np.abs(path[3][0]).max(),
            ">=",
            1.0,
            breaks=True,
        ),
    ]


@claim(
    "prop-syn-adam",
    title="Adam's first step of attention has one size for all tokens",
    kind="proposition",
    source="this book; on Scan and Snap (2023), figure 5",
    chapter=PAGE,
    scope="the five data sets, population, from D = Z = 0; rates 0.1, 0.5 and 1",
)
def adam(trials: int) -> list[Measured]:
    """Logits after two steps against the closed form, its signs, and against the steps of SGD."""
    kappa = 0.1 / (1 - 0.9**2) / np.sqrt(0.001 / (1 - 0.999**2))
    error, signs, first, spread = 0.0, [], 0.0, 0.0
    for p in experiments().values():
        for rate in (0.1, 0.5, 1.0):
            run = scansnap.simulate(p, rate, rate, 2, optimizer="adam", record=[1, 2])
            context = np.array([p.P[p.row == q].any(0) for q in range(len(p.queries))])
            first = max(first, np.abs(run.z[0, 0]).max())
            error = max(error, np.abs(np.abs(run.z[0, 1][context]) / (kappa * rate) - 1).max())
            signs.append(_signs(p, rate, run.z[0, 1]))
        plain = scansnap.simulate(p, 1.0, 1.0, 2, record=[2]).z[0, 0]
        own = np.abs(plain[p.row[0], p.distinct[0]])
        spread = max(spread, own.max() / own.min())
    p = scansnap.syn_small()
    slow, fast = (scansnap.simulate(p, a, a, 2, optimizer="adam", record=[2]).z[0, 0, 0] for a in (0.1, 1.0))
    return [
        Measured("largest logit after the first step", first, "==", 0.0, tol=1e-15),
        Measured("relative error of the size after the second", error, "<=", 1e-3),
        Measured("share of signs as stated", float(np.mean(signs)), "==", 1.0),
        Measured(
            "Syn-Small, rate 1: distinct tokens that rise",
            int((fast[10:20] > 0).sum()),
            "==",
            10,
        ),
        Measured("the same, rate 0.1", int((slow[10:20] > 0).sum()), "==", 9),
        Measured("largest over smallest step among distinct tokens, SGD", spread, ">=", 10.0, breaks=True),
    ]


def _signs(p: TokenProcess, rate: float, z: FloatArray) -> float:
    """Share of contextual logits whose sign is that of the closed form, for D at the rate times signs."""
    D = np.zeros((p.M, p.M))
    f = scansnap.features(p.P)
    weight = p.prior @ f
    for c in range(p.C):
        D[:, p.label[c]] = rate * np.sign(p.prior[c] * f[c] - weight / p.M)
    others = np.setdiff1d(np.arange(p.M), p.label)
    D[np.ix_(p.P.any(0), others)] = -rate
    g = -scansnap.gradients(p, D, np.zeros_like(z)).z
    context = np.array([p.P[p.row == q].any(0) for q in range(len(p.queries))])
    return float((np.sign(z) == np.sign(g))[context].mean())
