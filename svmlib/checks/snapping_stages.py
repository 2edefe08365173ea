"""Claims of the chapter on snapping: two stages with explicit constants, and what the learning rates do."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmlib import scansnap
from svmlib.arrays import FloatArray

from .registry import Measured, claim
from .snapping import PAGE, PAPER

CASES = [(M, C, C0) for M in (2, 10, 1000, 10**6) for C in (2, 10) for C0 in (0.5, 1.0, 800.0)]


@claim(
    "prop-snap-stages",
    title="Scanning and snapping, with constants",
    kind="proposition",
    source=f"{PAPER}, Theorem 4; constants and proof in the chapter",
    chapter=PAGE,
    scope="M = 2 to 10⁶, C = 2 and 10, C₀ = 0.5 to 800; times up to 10³⁰⁰",
)
def stages(trials: int) -> list[Measured]:
    """Compare B with both bounds in either stage, and with its limit law."""
    early, late, limit = [], [], []
    for M, C, C0 in CASES:
        given: dict[str, Any] = {"M": M, "C": C, "rate": 0.8, "attention_rate": 0.3, "C0": C0}
        turn = float(scansnap.transition(M, C, 0.8))
        A = 2 * (M - 1) ** 2 * 0.8 * 0.3 / (C0 * C * M**2)
        t = np.linspace(0.01, 1.0, 50) * turn
        B = 4 * C * scansnap.log_growth(t, **given)
        early += [np.log1p(A * t**2) - B, B - np.log1p(A * t**2 / (1 + 1 / np.log(M)) ** 2)]
        A = 2 * C * (M - 1) ** 2 * 0.3 / (C0 * M**2 * 0.8)
        t = np.append(np.geomspace(2.0, 1e6, 60) * turn, 1e300)
        x = 0.8 * M * t / C
        B = 4 * C * scansnap.log_growth(t, **given)
        late += [np.log1p(A * np.log1p(x) ** 2) - B, B - np.log1p(A * np.log1p(x / 5) ** 2)]
        limit.append(abs(B[-1] / 2 - np.log(np.log(x[-1])) - 0.5 * np.log(A)))
    sizes = np.arange(2.0, 100_000.0)
    given = {"M": 1000, "C": 10, "attention_rate": 0.5}
    turn = float(scansnap.transition(1000, 10))

    def law(low: float, high: float) -> float:
        t = np.linspace(low, high, 200) * turn
        q = np.expm1(40 * scansnap.log_growth(t, **given)) / t**2
        return float(q.max() / q.min() - 1)

    t = np.geomspace(3.0, 300.0, 200) * turn
    straight = np.corrcoef(np.log(t), np.exp(20 * scansnap.log_growth(t, **given)))[0, 1] ** 2
    return [
        Measured(
            "scanning: smallest distance of $4CB$ from its bounds", np.concatenate(early).min(), ">=", -1e-9
        ),
        Measured("snapping: the same", np.concatenate(late).min(), ">=", -1e-9),
        Measured(r"largest $a_M$ for $M<10^5$", float(_theta(sizes).max()), "<=", 0.8),
        Measured("distance from the limit law at $t=10^{300}$", max(limit), "<=", 0.02),
        Measured("spread of $(e^{4CB}-1)/t^2$ over 0.05 to 0.6 transitions", law(0.05, 0.6), "<=", 0.05),
        Measured(r"$R^2$ of $e^{2CB}$ against $\log t$, 3 to 300 transitions", straight, ">=", 0.99),
        Measured(
            "the law of the first stage over 1 to 3 transitions: spread", law(1.0, 3.0), ">", 1.0, breaks=True
        ),
    ]


def _theta(M: FloatArray) -> FloatArray:
    return np.asarray((M - 1) * np.log1p(2 * M * np.log(M)) / (2 * M * np.log(M)))


@claim(
    "cor-snap-rates",
    title="What the two learning rates do",
    kind="corollary",
    source=f"{PAPER}, section 6, (a) to (c), made exact",
    chapter=PAGE,
    scope="C = 10; M = 100, 1,000, 10⁴; rates over two orders of magnitude",
)
def rates(trials: int) -> list[Measured]:
    """Collapse onto one curve at a fixed ratio; search the rate that grows most by a given time."""
    peak, same, rising, at_best, after, before = [], [], [], [], [], []
    for M in (100, 1000, 10**4):
        for rate in (0.3, 1.0, 7.0):
            t = np.linspace(0.3, 2.0, 20001) * float(scansnap.transition(M, 10, rate))
            peak.append(t[scansnap.speed(t, M, 10, rate).argmax()] / scansnap.transition(M, 10, rate))
        same.append(np.ptp(peak[-3:]))
        eta = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
        for nu in (1.0, 10.0):
            given: dict[str, Any] = {"M": M, "C": 10, "rate": nu * eta, "attention_rate": eta}
            for far in (0.5, 2.0, 50.0):
                when = far * scansnap.transition(M, 10, nu * eta)
                same.append(np.ptp(scansnap.log_growth(when, **given)))
            rising.append(np.diff(scansnap.log_growth(40.0, **given)).min())
        best = float(scansnap.best_rate(60.0, M, 10))
        eta = best * np.geomspace(0.01, 100.0, 2001)
        G = scansnap.accumulated_speed(60.0, M, 10, eta, 0.5)
        at_best.append(abs(np.log(eta[G.argmax()] / best)))
        after.append(np.diff(G[eta > best]).max())
        before.append(np.diff(G[eta < best]).min())
    published = [
        scansnap.suppression(2 * scansnap.transition(M, 10, nu), M=M, C=10, rate=nu) - value
        for nu, M, value in ((10, 100, 1.0544), (1, 10**4, 1.9564))
    ]
    return [
        Measured(
            "fixed ratio, times in units of the transition: largest spread of B or of the peak",
            max(same),
            "<=",
            2e-4,
        ),
        Measured(
            r"$CB$ at $2t_0'$, $\nu=10,M=100$ and $\nu=1,M=10^4$: distance from the recorded values",
            np.abs(published).max(),
            "<=",
            1e-4,
        ),
        Measured("fixed ratio, fixed time: smallest increase of B with both rates", min(rising), ">", 0.0),
        Measured("the best rate against a search, difference of logarithms", max(at_best), "<=", 0.01),
        Measured("faster than the best: largest change of G with the rate", max(after), "<", 0.0),
        Measured(
            "slower than the best: smallest change of G with the rate", min(before), ">", 0.0, breaks=True
        ),
    ]
