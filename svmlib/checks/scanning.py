"""Claims of the chapter on scanning: the velocity of attention, and which tokens gain."""

from __future__ import annotations

from functools import cache

import numpy as np

from svmlib.arrays import FloatArray
from svmlib.scansnap import (
    TokenProcess,
    attention,
    features,
    flow,
    force,
    gradients,
    reduced_flow,
    speed,
    symmetric,
    velocity,
)
from svmlib.scansnap.predictions import progress

from .registry import Measured, claim

PAGE = "scan_snap/scanning"
PAPER = "Tian et al. (2023)"


def random_process(
    seed: int, *, classes: int = 3, common: int = 3, distinct: int = 2, queries: int = 1, vocabulary: int = 30
) -> TokenProcess:
    """Classes that all have the same common tokens, with frequencies of their own for all tokens."""
    rng = np.random.default_rng([seed, 18])
    P = np.zeros((classes, vocabulary))
    P[:, :common] = rng.random((classes, common))
    for c in range(classes):
        first = common + distinct * c
        P[c, first : first + distinct] = rng.random(distinct)
    end = common + classes * distinct
    return TokenProcess(P, end + np.arange(classes) % queries, end + queries + np.arange(classes))


def random_logits(process: TokenProcess, seed: int, size: float = 1.0) -> FloatArray:
    """Attention logits to start from, zero where no token occurs."""
    rng = np.random.default_rng([seed, 19])
    z = size * rng.normal(size=(len(process.queries), process.M))
    return np.asarray(np.where(process.P.any(0), z, 0.0))


def decoder(process: TokenProcess, z: FloatArray, h: float) -> FloatArray:
    """Return the shortest decoder whose logits are those of the closed form at progress h."""
    f = features(attention(process, z)).T
    W = -h * np.ones((process.C, process.M))
    W[np.arange(process.C), process.label] += process.M * h
    return np.asarray(f @ np.linalg.solve(f.T @ f, W))


@claim(
    "lem-scan-velocity",
    title="Velocity of attention behind a fast decoder",
    kind="lemma",
    source=f"{PAPER}, Lemma 4",
    chapter=PAGE,
    scope="3 to 5 classes, 1 to 3 queries, random frequencies and attention logits; M = 30 and 300",
    seeds="0 to trials − 1",
    trials=(12, 4),
)
def velocities(trials: int) -> list[Measured]:
    """Compare the formula with the gradient of the loss at the decoder that the chapter assumes."""
    exact, limit, wrong, sums, ratios = [], [], [], [], []
    for seed in range(trials):
        errors = []
        for M in (30, 300):
            p = random_process(seed, classes=3 + seed % 3, queries=1 + seed % 3, vocabulary=M)
            z = random_logits(p, seed)
            rho = float(speed(2.0 * p.C, M, p.C))
            h = float(progress(2.0, M))
            fall = -gradients(p, decoder(p, z, h), z).z
            with_beta = _formula(p, z, rho)
            exact.append(np.abs(fall - with_beta).max() / np.abs(fall).max())
            errors.append(np.abs(fall - rho * velocity(p, z)).max() / np.abs(fall).max())
            limit.append(errors[-1] * M)
            wrong.append(np.abs(fall - p.C * with_beta).max() / np.abs(fall).max())
            sums.append(np.abs(fall.sum(-1)).max())
        ratios.append(errors[0] / errors[1])
    return [
        Measured(
            "gradient of the loss against the formula, coefficients for M tokens", max(exact), "<=", 1e-9
        ),
        Measured("against the limit of many tokens: relative error times M", max(limit), "<=", 30.0),
        Measured("error at M = 30 over that at M = 300, smallest", min(ratios), ">=", 4.0, "10 in the limit"),
        Measured("largest sum of a row of velocities", max(sums), "<=", 1e-12),
        Measured("without the factor 1/C: smallest relative error", min(wrong), ">=", 1.0, breaks=True),
    ]


def _formula(p: TokenProcess, z: FloatArray, rho: float) -> FloatArray:
    # the sum over c and c' as the lemma writes it, with the coefficients for M tokens
    f = features(attention(p, z))
    inverse = np.linalg.inv(f @ f.T)
    beta = (p.M / (p.M - 1)) ** 2 * (inverse.sum(0)[None] / p.M - inverse)
    out = np.zeros_like(z)
    for c in range(p.C):
        for other in set(range(p.C)) - {c}:
            out[p.row[c]] += rho / p.C * f[c] * beta[c, other] * (f[c] @ f[other] * f[c] - f[other])
    return out


@claim(
    "thm-scan-fates",
    title="Distinct tokens gain, common tokens lose",
    source=f"{PAPER}, Theorem 2, with the sum over common tokens added",
    chapter=PAGE,
    scope=(
        "3 classes with 2 distinct tokens each, 1 or 3 common tokens, random frequencies and logits; "
        "joint flow to t = 10⁵, rates 1 and .05, 1, 20, and to 10⁴ with .001; 2 classes with 3 common tokens"
    ),
    seeds="0 to trials − 1; 200 processes for the share that gains, at least 6 for the joint flow",
    trials=(200, 60),
)
def fates(trials: int) -> list[Measured]:
    """Signs and values of velocities at random states of the reduced flow; signs in joint training."""
    value, alone, together = [], [], []
    for seed in range(trials):
        for common in (1, 3):
            p = random_process(seed, common=common, queries=1 + seed % 2)
            z = random_logits(p, seed)
            f, xi, v = features(attention(p, z)), force(p, z), velocity(p, z)
            own = np.where(p.distinct, f**2 * xi[:, None], 0.0) / p.C
            row = np.eye(len(p.queries))[p.row]
            value.append(np.abs((row.T @ own - v)[:, p.distinct.any(0)]).max())
            lost = row.T @ own.sum(1) + v[:, p.common].sum(1)
            value.append(np.abs(lost).max())
            if common == 1:
                shared = np.flatnonzero(p.common)[0]
                predicted = row.T @ ((1 - f[:, shared] ** 2) * xi) / p.C
                value.append(np.abs(predicted + v[:, shared]).max())
                alone.append(v[:, shared].max())
            else:
                together.append(v[:, p.common].sum(1).max())
    grows = []  # a share needs its number of processes, whatever the trials
    for seed in range(200):
        p = random_process(seed)
        grows.append((velocity(p, np.zeros((1, p.M)))[0, p.common] > 0).any())
    stays, loses, slow = [], [], []
    times = np.concatenate([[0.0], np.geomspace(0.1, 1e5, 61)])
    for seed in range(max(6, trials // 20)):
        p = random_process(seed, common=1)
        z = flow(p, times, 1.0, [0.05, 1.0, 20.0][seed % 3], rtol=1e-8).z[:, 0]
        stays.append((np.diff(z[:, 0]) >= 0).sum())
        loses.append((np.diff(z[:, p.distinct.any(0)], axis=0) < -1e-6).any())
        slow.append(flow(p, [100.0, 1e4], 1.0, 1e-3).z[:, 0, p.distinct.any(0)].min())
    P = np.zeros((2, 30))
    P[0, :4], P[1, [0, 1, 2, 4]] = (0.127, 0.296, 0.238, 0.339), (0.492, 0.037, 0.003, 0.468)
    group = flow(TokenProcess(P, [10, 10], [11, 12]), times, 1.0, 20.0).z[:, 0, :3].sum(1)
    return [
        Measured("formulas against velocities, largest difference", max(value), "<=", 1e-10),
        Measured("largest velocity of the one common token", max(alone), "<", 0.0),
        Measured("three common tokens: largest sum of their velocities", max(together), "<", 0.0),
        Measured(
            "joint flow, one common token: recorded times at which it does not fall", sum(stays), "==", 0
        ),
        Measured("joint flow, attention rate .001: smallest logit of a distinct token", min(slow), ">", 0.0),
        Measured(
            "three common tokens: share of processes in which one of them gains at the start",
            np.mean(grows),
            "in",
            (0.1, 0.5),
            "one query, all frequencies random",
            breaks=True,
        ),
        Measured(
            "joint flow, one common token: share of processes in which a distinct token loses at some time",
            np.mean(loses),
            ">=",
            0.3,
            "the form of the velocity is lost",
            breaks=True,
        ),
        Measured(
            "joint flow, three common tokens: largest rise of their sum",
            np.diff(group).max(),
            ">",
            1e-4,
            "2 classes, attention rate 20",
            breaks=True,
        ),
    ]


@claim(
    "prop-scan-two-classes",
    title="Two classes: the exact criterion",
    kind="proposition",
    source="own statement",
    chapter=PAGE,
    scope="2 classes, one query, 4 common and 2 distinct tokens, random frequencies and logits",
    seeds="0 to trials − 1; at least 30 for three classes",
    trials=(100, 30),
)
def two_classes(trials: int) -> list[Measured]:
    """Compare the criterion with velocities."""
    error, agree, both, three = [], [], [], []
    for seed in range(trials):
        p = random_process(seed, classes=2, common=4)
        z = random_logits(p, seed, 0.5)
        f, v = features(attention(p, z)), velocity(p, z)[0]
        r = f[0] @ f[1]
        excess = r * (f**2).sum(0) - 2 * f[0] * f[1]
        error.append(np.abs(v - 0.5 * r / (1 - r**2) * excess).max())
        agree.append(bool(np.array_equal(v[p.common] > 0, excess[p.common] > 0)))
        both.append((v[p.common] > 0).mean())
    for seed in range(max(30, trials)):
        p = random_process(seed, classes=3, common=4)
        z = random_logits(p, seed, 0.5)
        f, v = features(attention(p, z)), velocity(p, z)[0]
        # for three classes one might guess the sum over pairs
        pairs = [(0, 1), (0, 2), (1, 2)]
        guess = sum(f[a] @ f[b] * (f[a] ** 2 + f[b] ** 2) - 2 * f[a] * f[b] for a, b in pairs)
        three.append(bool(np.array_equal(v[p.common] > 0, np.asarray(guess)[p.common] > 0)))
    return [
        Measured("velocity against the formula, largest difference", max(error), "<=", 1e-11),
        Measured("share of processes in which all signs are as predicted", np.mean(agree), "==", 1.0),
        Measured("share of common tokens that gain", np.mean(both), "in", (0.05, 0.6), "so both fates occur"),
        Measured(
            "three classes, with the sum over pairs: share of processes with all signs right",
            np.mean(three),
            "<",
            0.95,
            breaks=True,
        ),
    ]


@cache
def symmetric_run() -> tuple[TokenProcess, FloatArray, FloatArray]:
    """Return a symmetric process with three common tokens, times, and logits of its reduced flow."""
    p = symmetric(3, [0.3, 0.2, 0.1], [0.05, 0.1, 0.1, 0.15], vocabulary=50)
    times = np.concatenate([[0.0], np.geomspace(1.0, 1e5, 40)])
    return p, times, reduced_flow(p, times, 1.0, 0.5).z[:, 0]


def _wrong_directions(seed: int) -> int:
    # in the joint flow of a random symmetric process
    rng = np.random.default_rng([seed, 20])
    common = 0.02 + rng.random(int(rng.integers(1, 4))) ** 2
    distinct = 0.02 + rng.random(int(rng.integers(1, 5))) ** 2
    total = common.sum() + distinct.sum()
    p = symmetric(int(rng.integers(2, 6)), common / total, distinct / total, vocabulary=40)
    times = np.concatenate([[0.0], np.geomspace(0.1, 1e6, 61)])
    change = np.diff(flow(p, times, 1.0, [0.05, 1.0, 20.0][seed % 3]).z[:, 0], axis=0)
    tiny = 1e-9  # of the accuracy of the solver
    return int((change[:, p.common] > tiny).sum() + (change[:, p.distinct.any(0)] < -tiny).sum())


@claim(
    "cor-scan-symmetric",
    title="Symmetric classes: all common tokens lose, the frequent ones most",
    kind="corollary",
    source=f"{PAPER}, Corollary 2, with the law of the common tokens added",
    chapter=PAGE,
    scope=(
        "3 classes, common tokens (.3, .2, .1), four distinct tokens each, reduced flow to 10⁵; random "
        "symmetric processes, 1 to 3 common tokens, joint flow to 10⁶, attention rates .05, 1, 20"
    ),
    seeds="0 to trials − 1 for the joint flow",
    trials=(12, 4),
)
def symmetric_classes(trials: int) -> list[Measured]:
    """Signs, order and law of the common tokens along both flows; then one class loses the symmetry."""
    p, _, z = symmetric_run()
    common = p.P[0, p.common]
    zc = z[:, p.common]
    kappa = np.expm1(-2 * zc[1:]) / common**2
    spread = np.abs(kappa / kappa[:, :1] - 1).max()
    share = attention(p, z[:, None])[:, 0, p.common]
    ratio = share[:, 0] / share[:, 2]
    wrong = sum(_wrong_directions(seed) for seed in range(trials))
    P = np.array(p.P)
    P[:, :3] = [[0.2, 0.4, 0.1], [0.01, 0.4, 0.1], [0.01, 0.4, 0.1]]
    broken = velocity(TokenProcess(P, p.query, p.label), np.zeros((1, p.M)))[0, :3]
    return [
        Measured(
            "reduced flow: steps at which a common token does not fall",
            (np.diff(zc, axis=0) >= 0).sum(),
            "==",
            0.0,
        ),
        Measured(
            "joint flow: recorded times at which a common token does not fall, or a distinct one not rise",
            wrong,
            "==",
            0,
        ),
        Measured(
            "logits at the end, less frequent minus more frequent: smallest", np.diff(zc[-1]).min(), ">", 0.0
        ),
        Measured("constant of the common tokens: largest relative difference", spread, "<=", 1e-6),
        Measured(
            "attention on the first over that on the third common token, at the end",
            ratio[-1],
            "in",
            (1.0, 1.6),
            "3 at the start",
        ),
        Measured("steps at which this ratio does not fall", (np.diff(ratio) >= 0).sum(), "==", 0.0),
        Measured("a common token that is frequent in one class: velocity", broken[0], ">", 0.0, breaks=True),
    ]
