"""Claims of the chapter on scanning: the path of symmetric classes, the end of the flow, and the start."""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp

from svmlib.arrays import FloatArray
from svmlib.scansnap import (
    TokenProcess,
    accumulated_speed,
    attention,
    features,
    force,
    reduced_flow,
    symmetric,
    symmetric_path,
    velocity,
)

from .registry import Measured, claim
from .scanning import PAGE, PAPER, random_logits, random_process
from .scanning_growth import TIMES


@claim(
    "prop-scan-path",
    title="Symmetric classes: the whole path, and its clock",
    kind="proposition",
    source="own statement",
    chapter=PAGE,
    scope=(
        "2 to 6 classes, 1 to 3 common and 2 to 4 distinct tokens, 1 or 2 of them tied for the lead, rates "
        "from .1 to 10, reduced flow to t = 10⁴; late stage on the path"
    ),
)
def path(trials: int) -> list[Measured]:
    """Compare path and clock with the reduced flow, and its late stage with the exponents."""
    logits, clock, exponents = [], [], []
    cases = [
        (2, [0.5], [0.3, 0.2]),
        (3, [0.3, 0.2], [0.1, 0.15, 0.25]),
        (6, [0.2, 0.1, 0.1], [0.1, 0.1, 0.15, 0.25]),
        (3, [0.3, 0.1], [0.1, 0.25, 0.25]),
    ]
    for k, (C, common, distinct) in enumerate(cases):
        p = symmetric(C, common, distinct, vocabulary=60)
        eta = [0.1, 1.0, 10.0][k % 3]
        run = reduced_flow(p, TIMES[1:], 1.0, eta)
        lead = np.argmax(p.P[0] * p.distinct[0])
        found = symmetric_path(p, run.z[:, 0, lead])
        logits.append(np.abs(found.z - run.z).max())
        clock.append(np.abs(found.G / accumulated_speed(TIMES[1:], 60, C, 1.0, eta) - 1).max())
        late = symmetric_path(p, [7.0, 8.0])
        slope = 1 / np.log(late.G[1] / late.G[0])
        exponents.append(slope * 4 * (1 + C * distinct.count(max(distinct)) / len(common)))
    p = random_process(0, classes=3, common=2)
    bent = reduced_flow(p, [10.0, 1000.0], 1.0, 1.0).z[:, 0]
    kappa = np.expm1(-2 * bent[:, :2]) / p.P[0, :2] ** 2
    return [
        Measured("logits on the path against the flow, largest difference", max(logits), "<=", 1e-7),
        Measured("accumulated speed against its closed form, relative", max(clock), "<=", 1e-6),
        Measured("late exponent times 4(1 + Cm/k), smallest", min(exponents), ">=", 0.98),
        Measured("the same, largest", max(exponents), "<=", 1.02),
        Measured(
            "without symmetry: relative difference of the constants of two common tokens",
            np.ptp(kappa[-1]) / np.abs(kappa[-1]).max(),
            ">",
            0.05,
            breaks=True,
        ),
    ]


@claim(
    "thm-scan-end",
    title="One common token: the end of the reduced flow",
    source="own statement",
    chapter=PAGE,
    scope=(
        "one query, one common token, 2 to 4 classes with 3 distinct tokens, random frequencies "
        "and Z(0); accumulated speed to 10⁹"
    ),
    seeds="0 to trials − 1",
    trials=(8, 3),
)
def end(trials: int) -> list[Measured]:
    """Check the force in closed form, and follow attention until the accumulated speed is 10⁹."""
    error, common, left, leaders, law, gained = [], [], [], [], [], []
    for seed in range(trials):
        p = random_process(seed, classes=2 + (seed + 1) % 3, common=1, distinct=3)
        start = random_logits(p, seed, 0.5)
        f = features(attention(p, start))
        u = f[:, 0] ** 2 / (1 - f[:, 0] ** 2)
        error.append(np.abs(u * (u.sum() - u) / (1 + u.sum()) - force(p, start)).max())
        z = _by_accumulated_speed(p, start, np.array([1e1, 1e3, 1e6, 1e9]))
        s = attention(p, z[:, None])
        left.append(s[-1, :, 0].max())
        common.append(np.diff(s[..., 0], axis=0).max())
        first = (p.P * np.exp(start) * p.distinct).argmax(1)
        lead = s[:, np.arange(p.C), first]
        leaders.append(np.diff(lead, axis=0).min())
        gained.append(np.diff(z[:, first], axis=0).min())
        if p.C > 2:  # of two, both forces are equal
            order = np.argsort(u)
            law.append(bool((np.diff(force(p, start)[order]) >= 0).all()))
    return [
        Measured(r"$\xi_c=\rho u_c(U-u_c)/(1+U)$: largest error", max(error), "<=", 1e-10),
        Measured("attention on the common token: largest change from G to the next", max(common), "<", 0.0),
        Measured("the same at the end, in the class that has most of it", max(left), "<=", 0.02),
        Measured("attention on the leader of a class: smallest change", min(leaders), ">", 0.0),
        Measured("logit of a leader: smallest change", min(gained), ">", 0.0, "all classes go on"),
        Measured(
            "classes with more common mass have the larger force: share of processes", np.mean(law), "==", 1.0
        ),
    ]


def _by_accumulated_speed(p: TokenProcess, start: FloatArray, G: FloatArray) -> FloatArray:
    # z at accumulated speeds G, the logarithm of 1 + G being the time; other tokens stay at their start
    live = np.flatnonzero(p.P.any(0))

    def slope(x: float, own: FloatArray) -> FloatArray:
        z = start.copy()
        z[0, live] = own
        return np.asarray(np.exp(x) * velocity(p, z)[0, live])

    x = np.log1p(G)
    solved = solve_ivp(slope, (0.0, float(x[-1])), start[0, live], "BDF", x, rtol=1e-6, atol=1e-9)
    z = np.repeat(start, x.size, 0)
    z[:, live] = solved.y.T
    return z


@claim(
    "prop-scan-prior",
    title="The start decides who leads",
    kind="proposition",
    source=f"{PAPER}, section 5, made precise",
    chapter=PAGE,
    scope=(
        "3 classes, one common token, 4 distinct tokens, random starts of size .6; reduced flow to t = 1000"
    ),
    seeds="0 to trials − 1",
    trials=(20, 6),
)
def prior(trials: int) -> list[Measured]:
    """Who leads in each class at the start, and later; two heads that start apart."""
    kept, widening, frequent = [], [], []
    p = symmetric(3, [0.4], [0.1, 0.14, 0.17, 0.19], vocabulary=50)
    own = p.distinct[0]
    for seed in range(trials):
        z = random_logits(p, seed, 0.6)
        run = reduced_flow(p, [0.0, 30.0, 1000.0], 1.0, 1.0, z=z)
        for c in range(p.C):
            s = run.s[:, c, p.distinct[c]]
            kept.append(bool((s.argmax(1) == (p.P[c] * np.exp(z[0]))[p.distinct[c]].argmax()).all()))
            top = np.sort(s, axis=1)
            widening.append(np.diff(np.log(top[:, -1] / top[:, -2])).min())
            frequent.append(s[-1].argmax() == 3)
    threshold = np.log(0.19 / 0.17)
    fates = []
    for extra in (threshold - 0.01, threshold + 0.01):
        z = np.zeros((1, p.M))
        z[0, np.flatnonzero(own)[2]] = extra
        s = reduced_flow(p, [1e4], 1.0, 5.0, z=z).s[0, 0, own]
        fates.append(float(s[2] - s[3]))
    return [
        Measured(
            "share of classes in which the token that leads at the start leads later",
            np.mean(kept),
            "==",
            1.0,
        ),
        Measured("smallest change of the logarithm of its lead", min(widening), ">", 0.0),
        Measured(
            "token .17 against .19, its logit .01 below the threshold: final difference", fates[0], "<", 0.0
        ),
        Measured("the same, .01 above", fates[1], ">", 0.0),
        Measured(
            "share of classes in which the most frequent token leads",
            np.mean(frequent),
            "<",
            0.9,
            "from random starts",
            breaks=True,
        ),
    ]
