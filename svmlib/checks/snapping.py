"""Claims of the chapter on snapping: one common token, and the closed approximation with its constants."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.integrate import quad, solve_ivp

from svmlib import scansnap
from svmlib.arrays import FloatArray

from .registry import Measured, claim

PAGE = "scan_snap/snapping"
PAPER = "Tian et al. (2023)"
OWN = "own statement"


def alike(C: int, distinct: list[float], M: int = 100) -> scansnap.TokenProcess:
    """Classes that are alike, with one common token of frequency 1/2 and these distinct tokens."""
    return scansnap.symmetric(C, [0.5], distinct, vocabulary=M)


def overlap(process: scansnap.TokenProcess, z: FloatArray) -> FloatArray:
    """(...) squared entry of token 0, the common one, in the feature of class 0."""
    return np.asarray(scansnap.features(scansnap.attention(process, z))[..., 0, 0] ** 2)


@claim(
    "lem-snap-symmetric",
    title="What one common token feels, exactly",
    kind="lemma",
    source=f"own statement, after {PAPER}, Theorem 2",
    chapter=PAGE,
    scope="2 to 12 classes that are alike, one common token, 1 to 4 distinct ones, frequencies drawn",
    seeds="0 to trials − 1",
    trials=(20, 8),
)
def one_common_token(trials: int) -> list[Measured]:
    """Compare force and velocity with the formulas, and B with the common token's logit along a flow."""
    off, ratio, unlike = [], [], []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        C, J = int(rng.integers(2, 13)), int(rng.integers(1, 5))
        p = alike(C, rng.uniform(0.1, 1.0, J).tolist())
        z = np.zeros((1, p.M))
        k = float(overlap(p, z))
        xi = (C - 1) * k**2 / ((1 - k) * (1 + (C - 1) * k))
        f, v = scansnap.features(scansnap.attention(p, z)), scansnap.velocity(p, z)
        off.append(np.abs(scansnap.force(p, z) / xi - 1).max())
        off.append(abs(v[0, 0] / (-(1 - k) * xi) - 1))
        own = p.distinct[0]
        off.append(np.abs(v[0, own] / (f[0, own] ** 2 * xi / C) - 1).max())
        if seed < 2:
            r = scansnap.reduced_flow(p, [100.0], 1.0, 0.5, rtol=1e-7)
            ratio.append(C * r.growth[0, 0] / -r.z[0, 0, 0] * np.array([1.0, 1.0 - k]))
        P = p.P.copy()
        P[0, 0] *= 3.0  # the common token is more frequent in one class
        other = scansnap.TokenProcess(P, p.query, p.label)
        if C > 2:  # two classes always feel the same
            unlike.append(np.ptp(scansnap.force(other, z)) / scansnap.force(other, z).mean())
    low, high = np.transpose(ratio)
    return [
        Measured("largest relative difference of force and velocities", max(off), "<=", 1e-9),
        Measured(r"smallest $CB/(-z_l)$ at t = 100", low.min(), ">=", 1.0),
        Measured(r"largest $(1-\kappa_0)CB/(-z_l)$", high.max(), "<=", 1.0),
        Measured(
            "common token three times as frequent in one class: smallest relative spread of the forces",
            min(unlike),
            ">",
            0.05,
            breaks=True,
        ),
    ]


@claim(
    "lem-snap-accumulated",
    title="The accumulated speed in closed form",
    kind="lemma",
    source=f"{PAPER}, proof of Theorem 4",
    chapter=PAGE,
    scope="M = 10, 1,000, 10⁶; C = 2, 10, 40; times from a hundredth to a hundred times the transition",
)
def accumulated(trials: int) -> list[Measured]:
    """Integrate the speed numerically, piece by piece."""
    off = []
    for M in (10, 1000, 10**6):
        for C in (2, 10, 40):
            edges = np.append(0.0, np.geomspace(0.01, 100.0, 40) * float(scansnap.transition(M, C, 2.0)))

            def rho(t: float, M: int = M, C: int = C) -> float:
                return 0.5 * float(scansnap.speed(t, M, C, 2.0))

            parts = [quad(rho, a, b, epsrel=1e-12)[0] for a, b in pairwise(edges)]
            closed = scansnap.accumulated_speed(edges[1:], M, C, 2.0, 0.5)
            off.append(np.abs(np.cumsum(parts) / closed - 1).max())
    value = float(scansnap.accumulated_speed(300.0, 1000, 10, 1.0, 0.5))
    return [
        Measured("largest relative difference from quadrature", max(off), "<=", 1e-9),
        Measured(
            r"G at $M=1000$, $C=10$, $\eta_D=1$, $\eta_Z=\frac12$, $t=300$, minus 244.95976",
            value - 244.95976,
            "==",
            0.0,
            tol=1e-5,
        ),
    ]


@claim(
    "thm-snap-closed",
    title="Growth in the closed approximation, with its constants",
    source=f"{PAPER}, Theorem 4, corrected",
    chapter=PAGE,
    scope="C = 2, 5, 20; C₀ = 0.2, 1, 300; M = 50, 5,000; times up to 20 transitions",
)
def closed(trials: int) -> list[Measured]:
    """Integrate the two equations of the approximation; see where the printed formula starts."""
    off: list[float] = []
    start: list[float] = []
    printed: list[float] = []
    for C in (2, 5, 20):
        for C0 in (0.2, 1.0, 300.0):
            for M in (50, 5000):
                given: dict[str, Any] = {"M": M, "C": C, "rate": 1.5, "attention_rate": 0.7, "C0": C0}
                t = np.linspace(0.0, 20.0, 41) * float(scansnap.transition(M, C, 1.5))
                z, B = _integrate(t, M, C, C0)
                off.append(float(np.abs(z + scansnap.suppression(t, **given)).max()))
                off.append(float(np.abs(B - scansnap.log_growth(t, **given)).max()))
                start.append(abs(float(scansnap.log_growth(0.0, **given))))
                if C0 != 1.0:
                    printed.append(abs(0.25 * np.log(C0)))
    p = alike(5, [0.2, 0.1])
    r = scansnap.reduced_flow(p, [5.0, 500.0], 1.0, 0.5)
    share = r.growth[:, 0] / -r.z[:, 0, 0]
    gain = r.z[:, 0, p.distinct.any(0)].sum(-1) / -r.z[:, 0, 0]
    return [
        Measured("largest difference of z and B from the integrated equations", max(off), "<=", 1e-7),
        Measured("largest |B(0)|", max(start), "==", 0.0),
        Measured(
            "all distinct tokens together gain, per unit that the common one loses",
            gain.max(),
            "==",
            1.0,
            tol=1e-8,
        ),
        Measured(
            r"as printed, $\frac14\log(C_0+\cdot)$: smallest |B(0)| for $C_0\ne1$",
            min(printed),
            ">",
            0.4,
            breaks=True,
        ),
        Measured(
            r"as printed, $B=-z_l$: largest $B/(-z_l)$ of the reduced flow with 5 classes",
            share.max(),
            "<",
            0.8,
            r"it lies between $\frac1C$ and $\frac1{C(1-\kappa_0)}$",
            breaks=True,
        ),
    ]


def _integrate(t: FloatArray, M: int, C: int, C0: float) -> tuple[FloatArray, FloatArray]:
    # z and B of the approximation, at rates 1.5 and 0.7
    def slope(s: float, y: FloatArray) -> FloatArray:
        xi = float(scansnap.speed(s, M, C, 1.5)) * np.exp(4 * y[0]) / C0
        return np.array([-0.7 * xi, 0.7 / C * xi])

    solved = solve_ivp(slope, (0.0, t[-1]), np.zeros(2), "LSODA", t, rtol=1e-10, atol=1e-12)
    return solved.y[0], solved.y[1]
