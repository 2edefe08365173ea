"""Claims of the chapter on two theories: what normalisation changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp

from svmlib import scansnap
from svmlib.arrays import FloatArray
from svmlib.experiments.two_theories import scores, two_processes

from .registry import Measured, claim
from .two_theories import OWN, PAGE, WEIGHTS, one_query


@claim(
    "prop-two-normalised",
    title="With normalisation a fixed linear head keeps every token of positive score",
    source=OWN,
    chapter=PAGE,
    kind="proposition",
    scope="5 tokens, random frequencies; scores positive (limit), or of both signs (maximum)",
    seeds="0 to trials − 1",
    trials=(20, 5),
)
def normalised(trials: int) -> list[Measured]:
    """Maximise over random attention, and follow the flow to its limit."""
    beaten, reached, low, alone = [], [], [], []
    for seed in range(trials):
        rng = np.random.default_rng([7, seed])
        v, P = rng.normal(size=5), rng.dirichlet(np.full(5, 5.0))
        v[0] = abs(v[0])
        best = np.linalg.norm(np.maximum(v, 0))
        tried = rng.dirichlet(np.full(5, 0.5), size=2000)
        beaten.append((tried @ v / np.linalg.norm(tried, axis=1)).max() / best)
        v = rng.uniform(0.2, 1.0, 5)

        def slope(_: float, z: FloatArray, v: FloatArray = v, P: FloatArray = P) -> FloatArray:
            f = P * np.exp(z - z.max())
            f = f / np.linalg.norm(f)
            return np.asarray(WEIGHTS * f * (v - f * (f @ v)))

        z = solve_ivp(slope, (0, 1e4), np.zeros(5), "LSODA", [1e3, 1e4], rtol=1e-10, atol=1e-12).y
        s = P * np.exp(z[:, 1] - z[:, 1].max())
        reached.append(np.abs(s / s.sum() - v / v.sum()).max())
        low.append(np.abs(z[:, 1] - z[:, 0]).max())
        order = np.argsort(-v)
        plain = one_query(P[order], v[order], lambda t: 1.0, np.array([0.0, 1e10]))[0][-1]
        share = P[order] * np.exp(plain)
        alone.append((share / share.sum())[0])
    return [
        Measured("best of 2000 random attentions over the bound ‖v⁺‖", max(beaten), "<=", 1.0),
        Measured("largest distance of the limit of the flow from v/Σv", max(reached), "<=", 1e-6),
        Measured("largest change of a logit from t = 1000 to 10 000", max(low), "<=", 1e-6),
        Measured("without normalisation: smallest share of one token", min(alone), ">=", 0.999, breaks=True),
    ]


@claim(
    "prop-two-bias",
    title="What a token has to be to score: frequent without normalisation, distinct with it",
    source=OWN,
    chapter=PAGE,
    kind="proposition",
    scope="two processes of 3 classes alike, M = 60; decoders trained at fixed attention to 2 and 1000 t0'",
)
def bias(trials: int) -> list[Measured]:
    """Train decoders at fixed attention, fit the two coefficients, and compare the scores of all tokens."""
    misfit, law, signs, sign_plain = 0.0, 0.0, [], []
    best = []
    for k, process in enumerate(two_processes()):
        P = process.P[:, process.P.any(0)]
        shared = np.asarray((P > 0).all(0))
        for normalized in (False, True):
            length = np.linalg.norm(P, axis=1, keepdims=True)
            read = P / length if normalized else P
            for multiple in (2.0, 1000.0):
                stop = multiple * float(scansnap.transition(process.M, process.C))
                run = scansnap.flow(process, [stop], 1.0, 0.0, normalize=normalized)
                score = scores(run, normalized)[0, 0, process.P.any(0)]
                o = (read[0, shared] ** 2).sum()
                held = P[0] > 0
                basis = np.stack([read[0], -(read[1] + read[2])])
                if normalized:
                    basis = (basis - np.outer(basis @ read[0], read[0])) / length[0]
                    basis = basis[1:]
                fit = np.linalg.lstsq(basis[:, held].T, score[held], rcond=None)[0]
                misfit = max(
                    misfit, float(np.abs(basis[:, held].T @ fit - score[held]).max() / np.abs(score).max())
                )
                beta, kappa = fit[-1], fit[0]
                if normalized:
                    written = 2 * beta * np.where(shared, -(1 - o), o) * read[0] / length[0]
                    signs.append(
                        bool((np.sign(score[held]) == np.where(shared, -1, 1)[held]).all() and beta > 0)
                    )
                else:
                    written = np.where(shared, kappa - 2 * beta, kappa) * read[0]
                    sign_plain.append(bool((score[held] > 0).all() and beta > 0))
                    best.append((k, multiple, bool(shared[int(score.argmax())])))
                law = max(law, float(np.abs(written - score)[held].max() / np.abs(score).max()))
    return [
        Measured("sent gradient outside the span, relative", misfit, "<=", 1e-6),
        Measured("largest relative deviation of scores from the formulas", law, "<=", 1e-6),
        Measured("with norm: common tokens negative, distinct positive", np.mean(signs), "==", 1.0),
        Measured("without norm: all tokens positive", np.mean(sign_plain), "==", 1.0),
        Measured(
            "without norm: a common token scores best where it is frequent and the decoder young",
            (1, 2.0, True) in best and (0, 2.0, False) in best and (1, 1000.0, False) in best,
            "==",
            True,
            breaks=True,
        ),
    ]


@claim(
    "prop-two-force",
    title="Among distinct tokens: one-hot if and only if the force has an infinite integral",
    source="Tian et al. (2023), from Theorem 3; proof in the chapter",
    chapter=PAGE,
    kind="proposition",
    scope="4 distinct tokens; constant force, and one like 1/t²; the joint flow of 3 classes to t = 1e10",
)
def force(trials: int) -> list[Measured]:
    """Follow the growth of distinct tokens under a given force, then in the flow of the layer."""
    P = np.array([0.3, 0.2, 0.15, 0.05])

    def follow(xi: Callable[[float], float]) -> FloatArray:
        def slope(t: float, z: FloatArray) -> FloatArray:
            f = P * np.exp(z)
            return np.asarray(xi(t) * f**2 / (f @ f))

        found = solve_ivp(slope, (0, 30), np.zeros(4), "LSODA", [0.0, 10.0, 30.0], rtol=1e-11, atol=1e-13)
        return np.asarray(found.y.T)

    free = follow(lambda t: 1.0)
    q = np.exp(-2 * free) / P**2
    law = np.abs((q[:, 1:] - q[:, :1]) / (q[0, 1:] - q[0, 0]) - 1)[:2].max()
    rest = (P * np.exp(free[-1]))[1:] / (P * np.exp(free[-1])).sum()
    faded = P * np.exp(follow(lambda t: (1 + t) ** -2.0)[-1])
    rare = two_processes()[0]
    grown = []
    for ratio in (1000.0, 1.0):
        z = scansnap.flow(rare, [1e10], ratio).z[-1, 0, 2:6]
        law_z = -0.5 * np.log1p((P / P[0]) ** 2 * np.expm1(-2 * z[0]))  # from the first token's logit
        grown.append((z / law_z)[1:])
    return [
        Measured("deviation from the conserved differences", law, "<=", 1e-8),
        Measured("constant force: share of the other tokens at t = 30", rest.sum(), "<=", 1e-10),
        Measured("force like 1/t²: smallest share of a token", (faded / faded.sum()).min(), ">=", 0.02),
        Measured(
            "joint flow, ratio 1000: largest deviation of a logit from the law, relative",
            np.abs(grown[0] - 1).max(),
            "<=",
            0.15,
        ),
        Measured(
            "joint flow, ratio 1: logit of the rarest token over that of the law",
            grown[1][-1],
            ">=",
            10.0,
            breaks=True,
        ),
    ]
