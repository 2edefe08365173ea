"""Claims of the chapter on scanning: the law of growth, its limits, and who is dropped first."""

from __future__ import annotations

from functools import cache

import numpy as np

from svmlib.arrays import FloatArray
from svmlib.scansnap import (
    ReducedFlow,
    TokenProcess,
    attention,
    features,
    flow,
    growth_constant,
    growth_curve,
    log_steps,
    reduced_flow,
    symmetric,
    symmetric_path,
)

from .registry import Measured, claim
from .scanning import PAGE, PAPER, random_logits, random_process

TIMES = np.concatenate([[0.0], np.geomspace(1.0, 1e4, 16)])


def ratios(
    p: TokenProcess, z: FloatArray, start: FloatArray
) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
    """For each class: r of its leader over other distinct tokens (k, r), growth factor (r,), r(0) (k,)."""
    out = []
    for c in range(p.C):
        own, row = np.flatnonzero(p.distinct[c]), p.row[c]
        weight = p.P[c, own] * np.exp(start[row, own])
        own = own[np.argsort(-weight)]
        f2 = (p.P[c, own] * np.exp(z[:, row, own])) ** 2
        first = (p.P[c, own] * np.exp(start[row, own])) ** 2
        grown = np.exp(2 * (z[:, row, own[0]] - start[row, own[0]]))
        out.append(((f2[:, :1] / f2[:, 1:] - 1).T, grown, first[0] / first[1:] - 1))
    return out


@cache
def _runs(trials: int) -> list[tuple[TokenProcess, FloatArray, ReducedFlow]]:
    # one common token: it falls, as the lower bound asks
    out = []
    for seed in range(trials):
        p = random_process(seed, classes=3 + seed % 2, common=1, distinct=4, queries=1 + seed % 2)
        z = random_logits(p, seed, 0.3 * (seed % 3))
        out.append((p, z, reduced_flow(p, TIMES, 1.0, [0.1, 1.0, 10.0][seed % 3], z=z)))
    return out


@claim(
    "thm-scan-growth",
    title="The law of growth, and its bounds",
    source=f"{PAPER}, Theorem 3, with the factor 1/C",
    chapter=PAGE,
    scope=(
        "reduced flow to t = 10⁴, 3 or 4 classes, 4 distinct tokens each, one common token, 1 or 2 "
        "queries, Z(0) zero or random, rates 1 and .1, 1, 10; 2 classes of which one has a common token "
        "that rises"
    ),
    seeds="0 to trials − 1",
    trials=(12, 4),
)
def growth(trials: int) -> list[Measured]:
    """Compare the two forms of the law and the bounds with solutions of the reduced flow."""
    law, constant, above, below, rising, plain, joint = [], [], [], [], [], [], []
    for p, z, run in _runs(trials):
        Q = growth_constant(p, run.z[1:], z)
        f2 = features(run.s) ** 2
        for c, (r, grown, first) in enumerate(ratios(p, run.z, z)):
            law.append(np.abs(r / (first[:, None] * grown) - 1).max())
            own = Q[:, c, p.distinct[c]]
            constant.append(np.abs(own / own[:, :1] - 1).max())
            lead = np.where(p.distinct[c], f2[0, c], -1.0).argmax()
            B = run.growth[:, c]
            change = run.z[:, p.row[c], p.distinct[c]] - z[p.row[c], p.distinct[c]]
            above.append((change - B[:, None]).max())
            below.append((f2[0, c, lead] * B - 0.5 * np.log(grown)).max())
            rising.append(np.diff(f2[:, c, lead]).min())
            plain.append((f2[0, c, lead] * p.C * B - 0.5 * np.log(grown)).max())
    for p, z, _ in _runs(trials)[:2]:
        end = flow(p, [1000.0], 1.0, 1.0, z=z).z
        joint += [np.abs(r / (first[:, None] * g) - 1).max() for r, g, first in ratios(p, end, z)]
    P = np.zeros((2, 30))
    P[0, :4], P[1, [0, 1, 4, 5]] = (0.33, 0.43, 0.03, 0.21), (0.79, 0.01, 0.12, 0.09)
    p = TokenProcess(P, [10, 10], [11, 12])  # common token 1 is nearly distinct in class 0
    rises = reduced_flow(p, [0.0, 1000.0])
    lost = (features(rises.s)[0, 0, 3] ** 2) * rises.growth[-1, 0] - rises.z[-1, 0, 3]
    return [
        Measured(r"$r(t)/(r(0)\chi(t))$: largest deviation from 1", max(law), "<=", 1e-5, "solver 10⁻⁹"),
        Measured(
            "constant of the distinct tokens of a class: largest relative difference",
            max(constant),
            "<=",
            1e-5,
        ),
        Measured(r"largest $\Delta z_l-B_c$", max(above), "<=", 1e-8),
        Measured(r"largest $f_{l_0}^2(0)B_c-\Delta z_{l_0}$", max(below), "<=", 1e-8),
        Measured("smallest step of the leader's share of the squared feature", min(rising), ">=", -1e-9),
        Measured(
            "lower bound with B without the factor 1/C: largest violation", max(plain), ">", 0.01, breaks=True
        ),
        Measured("lower bound if a common token rises: violation", lost, ">", 0.01, breaks=True),
        Measured(
            "joint flow at equal rates: largest deviation from the law", max(joint), ">", 0.02, breaks=True
        ),
    ]


@claim(
    "prop-scan-limits",
    title="Only the leader's logit has no limit; nobody wins in finite time",
    kind="proposition",
    source="own statement, from Theorem 3 of Tian et al. (2023)",
    chapter=PAGE,
    scope=(
        "the runs of the growth law; the path of 3 symmetric classes with two tokens tied for the "
        "lead, to a leader's logit of 12"
    ),
    seeds="0 to trials − 1",
    trials=(12, 4),
)
def limits(trials: int) -> list[Measured]:
    """Logits against their limits, a tie, and how far the limit is."""
    over, share, curve = [], [], []
    for p, z, run in _runs(trials):
        for c in range(p.C):
            own, row = np.flatnonzero(p.distinct[c]), p.row[c]
            own = own[np.argsort(-p.P[c, own] * np.exp(z[row, own]))]
            weight = p.P[c, own] * np.exp(z[row, own])
            end = growth_curve(weight, np.inf)[1:]
            change = run.z[:, row, own] - z[row, own]
            curve.append(np.abs(growth_curve(weight, np.maximum(change[:, 0], 0.0)) - change).max())
            over.append((change[:, 1:] - end).max())
            share.append(run.s[-1, c, own].min())
    p = symmetric(3, [0.4], [0.2, 0.2, 0.15, 0.05], vocabulary=50)
    path = symmetric_path(p, [3.0, 12.0])
    z_own = path.z[:, 0, p.distinct[0]]
    end = growth_curve([0.2, 0.15, 0.05], np.inf)[1:]
    gap = end - z_own[0, 2:]
    exact = -0.5 * np.log1p(np.expm1(2 * end) * np.exp(-6.0))
    s = attention(p, path.z)[-1, 0]
    flowing = reduced_flow(p, [1e4], 1.0, 5.0).z[0, 0, p.distinct[0]]
    tie = abs(flowing[0] - flowing[1])
    off = symmetric(3, [0.4], [0.2, 0.199, 0.15, 0.05], vocabulary=50)
    near = symmetric_path(off, [12.0]).z[0, 0, off.distinct[0]][1]
    return [
        Measured("reduced flow: largest logit of another distinct token − its limit", max(over), "<", 0.0),
        Measured("largest error of the formula along the flow", max(curve), "<=", 1e-7),
        Measured("smallest attention of a distinct token at the end", min(share), ">", 0.0),
        Measured(
            "path: largest distance from the limits at a leader's logit of 12",
            np.abs(z_own[1, 2:] - end).max(),
            "<=",
            1e-9,
        ),
        Measured("at 3: distance against its formula, largest error", np.abs(gap + exact).max(), "<=", 1e-12),
        Measured("reduced flow, two tied leaders: difference of their logits", tie, "<=", 1e-9),
        Measured("attention on the two together at 12", s[p.distinct[0]][:2].sum(), ">=", 1 - 1e-4),
        Measured(
            "decimal digits of the number of steps until then",
            log_steps(path.G[1], p.M, p.C) / np.log(10),
            ">=",
            1e6,
            "equal rates",
        ),
        Measured(
            "frequencies .2 and .199: logit of the leader over the second at 12",
            12.0 - near,
            ">",
            5.0,
            "only an exact tie lasts",
            breaks=True,
        ),
    ]


@claim(
    "prop-scan-order",
    title="Rare distinct tokens are dropped first",
    kind="proposition",
    source=f"{PAPER}, Theorem 3, read as an order",
    chapter=PAGE,
    scope=(
        "4 classes, one common token (.4), distinct tokens (.06, .12, .18, .24), M = 50; "
        "thresholds .5, 1 and 2 %"
    ),
)
def order(trials: int) -> list[Measured]:
    """Times at which the share relative to the leader has lost some percent, in both flows."""
    p = symmetric(4, [0.4], [0.06, 0.12, 0.18, 0.24], vocabulary=50)
    times = np.geomspace(1.0, 1e4, 400)
    gaps, waits, spread = [], [], []
    for run in (reduced_flow(p, times, 1.0, 0.2), flow(p, times, 1.0, 0.2)):
        z = run.z[:, 0, p.distinct[0]]
        lost = 1 - np.exp(z[:, :3] - z[:, 3:])
        spread.append((lost[:, :-1] - lost[:, 1:])[-1].min())
        for threshold in (0.005, 0.01, 0.02):
            at = np.array([times[np.argmax(lost[:, k] >= threshold)] for k in range(3)])
            reached = lost[-1] >= threshold
            gaps.append(np.diff(np.log(at[reached])).min())
            waits.append(reached.sum())
    z = reduced_flow(p, times, 1.0, 0.2).z[:, 0]
    R = (0.24 / np.array([0.06, 0.12, 0.18])) ** 2
    chi = np.exp(2 * z[:, p.distinct[0]][:, 3])
    predicted = np.sqrt(R / (1 + (R - 1) * chi[:, None]))
    own = z[:, p.distinct[0]]
    error = np.abs(np.exp(own[:, :3] - own[:, 3:]) - predicted).max()
    absolute = own[-1, 0] - own[0, 0]
    return [
        Measured(
            "smallest step of the logarithm of the time from a token to the next frequent",
            min(gaps),
            ">",
            0.0,
            "both flows, tokens that get there",
        ),
        Measured("at a threshold: tokens that get there, at least", min(waits), ">=", 2),
        Measured("share lost at the end, difference of neighbours, smallest", min(spread), ">", 0.0),
        Measured("formula for the share kept against the reduced flow", error, "<=", 1e-7),
        Measured(
            "the logit of the rarest token itself: its change",
            absolute,
            ">",
            0.0,
            "dropped relative to the leader",
            breaks=True,
        ),
    ]
