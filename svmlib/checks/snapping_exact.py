"""Claims of the chapter on snapping: the reduced flow solved, and how the joint flow begins."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmlib import scansnap
from svmlib.arrays import FloatArray

from .registry import Measured, claim
from .snapping import OWN, PAGE, PAPER, alike, overlap

TIMES = [3.0, 30.0, 300.0, 1e5]


@claim(
    "thm-snap-exact",
    title="The reduced flow of classes that are alike, solved",
    source=OWN,
    chapter=PAGE,
    scope="2 to 10 classes, one common token, 1 to 4 distinct ones; times up to 10⁵",
    seeds="0 to trials − 1",
    trials=(4, 2),
)
def exact(trials: int) -> list[Measured]:
    """Compare with the reduced flow: equal distinct tokens, then unequal ones between two solutions."""
    off, rest, inside, unequal, grown = [], [], [], [], []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        C, J = int(rng.integers(2, 11)), int(rng.integers(2, 5))
        given: dict[str, Any] = {
            "M": 100,
            "C": C,
            "rate": 1.0,
            "attention_rate": float(rng.uniform(0.1, 2.0)),
        }
        for equal in (True, False):
            own = [0.2] * J if equal else (rng.uniform(0.05, 1.0, J)).tolist()
            p = alike(C, own)
            k = float(overlap(p, np.zeros((1, p.M))))
            run = scansnap.reduced_flow(p, TIMES, 1.0, given["attention_rate"])
            z, kappa = run.z[:, 0, 0], overlap(p, run.z)
            few, many = (scansnap.symmetric_growth(TIMES, k, distinct=d, **given) for d in (1, J))
            if equal:
                off.append(np.abs(z / many.common - 1).max())
                own_z = run.z[:, 0, p.distinct[0]].T
                for found, wanted in (
                    (own_z, many.distinct),
                    (kappa, many.overlap),
                    (run.growth[:, 0], _growth(many, k, C, J)),
                ):
                    rest.append(np.abs(found / wanted - 1).max())
            else:
                inside += [(few.common - z).min(), (z - many.common).min()]
                inside += [(kappa - few.overlap).min(), (many.overlap - kappa).min()]
                unequal.append(np.abs(z / many.common - 1).max())
        far = scansnap.symmetric_growth([1e10, 1e100, 1e300], k, distinct=J, **given)
        grown.append(np.diff(far.distinct).min())
    return [
        Measured("equal distinct tokens: largest relative difference of $z_l$", max(off), "<=", 1e-6),
        Measured(r"the same of $z_{l'}$, $\kappa$ and $B$", max(rest), "<=", 1e-6),
        Measured(
            r"unequal ones: smallest distance of $z_l$ and $\kappa$ from the two solutions",
            min(inside),
            ">=",
            -1e-8,
        ),
        Measured(
            "growth of a distinct token's logit from $10^{10}$ to $10^{100}$ to $10^{300}$ steps",
            min(grown),
            ">",
            0.0,
        ),
        Measured(
            "unequal distinct tokens and the solution for equal ones: largest relative difference",
            max(unequal),
            ">",
            0.01,
            breaks=True,
        ),
    ]


@claim(
    "prop-snap-above",
    title="The closed approximation errs to one side",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="C = 2 to 40, 1 and 20 distinct tokens, overlaps up to 1 − √(1 − 1/C); times up to 10⁸",
)
def above(trials: int) -> list[Measured]:
    """Compare the suppression with the solution at many overlaps, and at an overlap that is too large."""
    t = np.geomspace(0.1, 1e8, 40)
    low, growth, large = [], [], []
    for C in (2, 5, 10, 40):
        given: dict[str, Any] = {"M": 1000, "C": C, "rate": 1.0, "attention_rate": 2.0}
        edge = 1 - np.sqrt(1 - 1 / C)
        for J in (1, 20):
            for k in edge * np.array([0.01, 0.3, 1.0]):
                closed = scansnap.suppression(t, C0=1 / (C * k**2), **given)
                r = scansnap.symmetric_growth(t, k, distinct=J, **given)
                low.append((closed + r.common).min())
                growth.append(((closed / C) / (1 - k) - _growth(r, k, C, J)).min())
            r = scansnap.symmetric_growth(t, 0.95, distinct=J, **given)
            large.append((scansnap.suppression(t, C0=1 / (C * 0.95**2), **given) + r.common).min())
    return [
        Measured("smallest excess of the suppression over $-z_l$", min(low), ">=", 0.0),
        Measured(r"smallest excess of the bound on $B$", min(growth), ">=", 0.0),
        Measured(
            "the same for $-z_l$ at overlap 0.95, many distinct tokens or few",
            max(large),
            "<",
            0.0,
            breaks=True,
        ),
    ]


def _growth(r: scansnap.Snapping, k: float, C: int, J: int) -> FloatArray:
    v0, v = 1 / k - 1, 1 / r.overlap - 1
    return np.asarray((np.log(v / v0) + 1 / v0 - 1 / v) * J / (2 * (C * J + 1)))


@claim(
    "prop-snap-joint",
    title="How the joint flow begins",
    kind="proposition",
    source=f"{OWN}; differs from {PAPER}, Theorem 1",
    chapter=PAGE,
    scope="2 to 10 classes, M = 60 to 2,000, 1 to 4 distinct tokens; small times, and times up to 10⁵",
    seeds="0 to trials − 1",
    trials=(4, 2),
)
def joint(trials: int) -> list[Measured]:
    """Divide the flow at a small time by two expansions; compare the five equations with the flow."""
    true, paper, five = [], [], []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        C, J, M = int(rng.integers(2, 11)), int(rng.integers(1, 5)), int(rng.integers(60, 2000))
        eta = rng.uniform(0.2, 2.0, 2)
        p = alike(C, rng.uniform(0.05, 1.0, J).tolist(), M)
        k = float(overlap(p, np.zeros((1, M))))
        t = 1e-3 * C / eta[0]
        z = scansnap.flow(p, [t], *eta, rtol=1e-11).z[0, 0, 0]
        unit = -eta.prod() * (C - 1) * t**2 / (2 * C)
        true.append(z / (unit * k * (1 - k) / M))
        paper.append(z / (unit * (k * (1 - 1 / M)) ** 2 / (1 + (C - 1) * k)))
        own = alike(C, [0.3] * J, M)
        when = np.array([10.0, 1e3, 1e5])
        r = scansnap.symmetric_flow(
            np.log(when),
            float(overlap(own, np.zeros((1, M)))),
            M=M,
            C=C,
            distinct=J,
            rate=eta[0],
            attention_rate=eta[1],
        )
        five.append(np.abs(r.common / scansnap.flow(own, when, *eta).z[:, 0, 0] - 1).max())
    return [
        Measured(
            "$z_l$ at a small time over its expansion: largest deviation from 1",
            np.abs(np.array(true) - 1).max(),
            "<=",
            0.005,
        ),
        Measured("the five equations against the whole flow, up to $t=10^5$", max(five), "<=", 1e-5),
        Measured(
            "$z_l$ at a small time over the reduced flow's: largest", max(paper), "<", 0.25, breaks=True
        ),
    ]
