"""Claims of the chapter that compares two theories of one layer: scores, clocks, normalisation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor
from torch.nn.functional import softplus

from svmlib import compare, scansnap
from svmlib.arrays import FloatArray
from svmlib.experiments.two_theories import selection_svm

from .registry import Measured, claim

PAGE = "scan_snap/two_theories"
OWN = "proof in the chapter"
LATE = np.append(0.0, np.geomspace(1e-2, 1e12, 29))
RIGHT = 2
HEADS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "linear": lambda s, X, v, D: softplus(-(s @ X) @ v),
    "quadratic": lambda s, X, v, D: softplus(-(s @ X) @ v + 0.3 * ((s @ X) ** 2).sum()),
    "decoder": lambda s, X, v, D: -torch.log_softmax(s @ D, 0)[RIGHT],
    "normalised decoder": lambda s, X, v, D: -torch.log_softmax(s / s.norm() @ D, 0)[RIGHT],
}
WEIGHTS = np.array([1 / 3, 1.0, 1.0, 1 / 3, 1 / 3])  # the selected token, two common ones, two others


@claim(
    "prop-two-formula",
    title="One formula for the logits of both theories",
    source=OWN,
    chapter=PAGE,
    kind="proposition",
    scope="5 tokens of 4 dimensions; linear, quadratic and decoder heads, the last with and without norm",
    seeds="0 to trials − 1",
    trials=(20, 10),
)
def formula(trials: int) -> list[Measured]:
    """Compare scores minus their mean with automatic differentiation, for four heads."""
    worst = dict.fromkeys(HEADS, 0.0)
    linear, decoder, mean, free = 0.0, 0.0, 0.0, []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        X, v, D = (torch.tensor(rng.normal(size=n)) for n in ((5, 4), (4,), (5, 6)))
        P, a = torch.tensor(rng.dirichlet(np.ones(5))), torch.tensor(rng.normal(size=5), requires_grad=True)
        s = torch.softmax(a + P.log(), 0)
        plain = s.detach()
        length = plain.norm()
        f = plain / length
        written = {
            "linear": torch.sigmoid(-(plain @ X) @ v) * (X @ v),
            "decoder": _sent(D, plain),
            "normalised decoder": (_sent(D, f) - f * (f @ _sent(D, f))) / length,
        }
        for name, head in HEADS.items():
            (slope,) = torch.autograd.grad(head(s, X, v, D), a, retain_graph=True)
            at = plain.clone().requires_grad_()
            (down,) = torch.autograd.grad(head(at, X, v, D), at)  # in s: the tokens times the gradient in u
            score = -down
            worst[name] = max(worst[name], float((plain * (score - plain @ score) + slope).abs().max()))
            miss = float((score - written[name]).abs().max()) if name in written else 0.0
            if name == "linear":
                linear = max(linear, miss)
            else:
                decoder = max(decoder, miss)
            if name == "normalised decoder":
                mean = max(mean, float((plain @ score).abs()))
            if name == "decoder":
                free.append(float((plain @ score).abs()))
    return [
        *(Measured(f"largest deviation from autograd, {name}", e, "<=", 1e-14) for name, e in worst.items()),
        Measured("linear head: deviation of scores from |ℓ'| γ", linear, "<=", 1e-14),
        Measured("decoder: deviation of scores from g, and from (g − f f'g)/‖s‖", decoder, "<=", 1e-13),
        Measured("normalised decoder: largest mean score", mean, "<=", 1e-14),
        Measured("decoder without norm: smallest |mean score|", min(free), ">", 1e-4, breaks=True),
    ]


def _sent(D: Tensor, read: Tensor) -> Tensor:
    wrong = -torch.softmax(read @ D, 0)
    wrong[RIGHT] += 1.0
    return D @ wrong


def one_query(
    P: FloatArray,
    v: FloatArray,
    fade: Callable[[float], float],
    times: FloatArray,
    swing: float = 0.0,
    rtol: float = 1e-10,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Follow five tokens whose scores are c(t) v_l, their gaps swinging by a factor.

    Parameters
    ----------
    P, v : ndarray, shape (5,)
        Frequencies and scores, the first the best.
    fade : callable
        The function c.
    times : ndarray, shape (r,)
        Times, from 0 on.
    swing : float
        Share of a gap by which it swings.
    rtol : float
        Relative accuracy of the solver.

    Returns
    -------
    logits, budgets, clocks : ndarray, shapes (r, 5), (r,), (r,)
        Logits, integrals of c and of c over the normaliser.
    """
    phase = np.arange(v.size)

    def slope(t: float, y: FloatArray) -> FloatArray:
        mass = P * np.exp(y[:-2])
        total = mass.sum()
        c = fade(t)
        score = c * (v[0] - (v[0] - v) * (1.0 + swing * np.sin(np.log1p(t) + phase)))
        return np.append(WEIGHTS * mass / total * (score - mass @ score / total), [c, c / total])

    found = solve_ivp(
        slope,
        (0.0, times[-1]),
        np.zeros(v.size + 2),
        "LSODA",
        times,
        rtol=rtol,
        atol=1e-3 * rtol,
        first_step=1e-3,
    )
    return found.y[:-2].T, found.y[-2], found.y[-1]


@cache
def _drawn(seed: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    v = np.append(1.0, rng.uniform(-1.0, 0.7, 4))
    return rng.dirichlet(np.full(5, 5.0)), v


@cache
def _steady(seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    return one_query(*_drawn(seed), lambda t: 1.0, LATE)


@claim(
    "thm-two-one-hot",
    title="One-hot if and only if the score gap has an infinite integral",
    source=OWN,
    chapter=PAGE,
    scope="5 tokens, weights 1 and 1/3, times to 1e12; gaps like 1, 1/√t, 1/t and 1/t²; swinging by 30%",
    seeds="0 to trials − 1",
    trials=(2, 1),
)
def one_hot(trials: int) -> list[Measured]:
    """Follow the logits for three ways in which scores fade."""
    law, moved, swung, gaps, lost, miss, aside = [], [], [], [], [], [], []
    kept, least, still, tied = [], [], [], []
    total = np.sum(1 / WEIGHTS)
    goal = -np.ones(5) / WEIGHTS[0] / total
    goal[0] += 1.0
    for seed in range(trials):
        P, v = _drawn(seed)
        z, budget, clock = _steady(seed)
        q = np.exp(-z) / (WEIGHTS * P)
        grown = q[:, 1:] - q[:, :1] - (q[0, 1:] - q[0, 0])
        law.append(np.abs(grown[1:] / ((v[0] - v[1:]) * clock[1:, None]) - 1).max())
        off = z[:, :1] - z[:, 1:] - np.log(np.maximum(budget, 1e-300))[:, None]
        moved.append(np.abs(off[-1] - off[-9]).max())
        lost.append(1 - (P * np.exp(z[-1]))[0] / (P * np.exp(z[-1])).sum())
        cos = [
            compare.correlation((row / np.sqrt(WEIGHTS))[:, None], (goal / np.sqrt(WEIGHTS))[:, None])
            for row in z
        ]
        miss.append(1 - cos[-1])
        aside.append(float((1 - cos[-1]) / (1 - cos[-9])))
        slow, late, _ = one_query(P, v, lambda t: (1 + t) ** -0.5, LATE, swing=0.3, rtol=1e-7)
        off = slow[:, :1] - slow[:, 1:] - np.log(np.maximum(late, 1e-300))[:, None]
        swung.append(np.ptp(off[-12:], axis=0).max())
        same, own, _ = one_query(P, v, lambda t: 1 / (1 + t), LATE)
        clocked = one_query(P, v, lambda t: 1.0, np.append(0.0, own[1:]))[0]
        gaps.append(np.abs(same - clocked).max())
        stuck, short, _ = one_query(P, v, lambda t: (1 + t) ** -2.0, LATE)
        still.append(np.abs(stuck[-1] - stuck[-9]).max())
        share = P * np.exp(stuck[-1])
        kept.append((share / share.sum()).min())
        least.append(P.min() * np.exp(-2 * np.ptp(v) * short[-1]))
        equal, alike = np.where(np.arange(5) == 3, v[0], v), np.where(np.arange(5) == 3, P[0], P)
        both = alike * np.exp(one_query(alike, equal, lambda t: 1.0, LATE, rtol=1e-8)[0][-1])
        tied.append((both / both.sum()).max())
    copies = _copies()
    return [
        Measured("largest relative deviation from the growth law", max(law), "<=", 1e-6),
        Measured("deviation of a fading run from the constant one at the same budget", max(gaps), "<=", 1e-6),
        Measured(
            "constant gap: change of margin − log budget over the last 4 decades", max(moved), "<=", 5e-2
        ),
        Measured("constant gap: largest share of the other tokens at the end", max(lost), "<=", 1e-11),
        Measured(
            "gap like t^(−1/2), swinging: range of margin − log budget, last 5 decades", max(swung), "<=", 0.7
        ),
        Measured("1 − corr with the SVM at the end, largest", max(miss), "<=", 3e-3),
        Measured("its fall over the last 4 decades, at least to", max(aside), "<=", 0.5),
        Measured("closed form of the SVM against the solver, classes as copies", copies, "<=", 1e-8),
        Measured("gap like 1/t²: change of a logit over the last 4 decades", max(still), "<=", 1e-6),
        Measured("gap like 1/t²: smallest share over its bound", min(np.array(kept) / least), ">=", 1.0),
        Measured("two tokens alike at the top: largest share at the end", max(tied), "<=", 0.51, breaks=True),
    ]


def _copies() -> float:
    # three classes that share two tokens and own three: a token with weight 1/3 stands for three copies
    process = scansnap.symmetric(3, [0.2, 0.1], [0.3, 0.2, 0.1])
    p = selection_svm(process, [2, 5, 8])
    total = np.sum(1 / WEIGHTS)
    goal = np.full(11, -3.0 / total)
    goal[[2, 5, 8]] += 1.0
    return float(np.abs(p - goal).max())


def _speed(rate: float, t: float) -> float:
    return float(scansnap.speed(t, 60, 3, rate))


@claim(
    "cor-two-clocks",
    title="A learning decoder: the margin is a function of the accumulated speed",
    source=OWN,
    chapter=PAGE,
    kind="corollary",
    scope="scores proportional to the decoder's speed, M = 60, C = 3, ratios 1, 10, 100, times to 1e12",
    seeds="0 to trials − 1",
    trials=(3, 1),
)
def clocks(trials: int) -> list[Measured]:
    """Let scores fade like the decoder's speed, and plot margins against the accumulated speed."""
    same, drift, lead, apart = [], [], [], []
    for seed in range(trials):
        P, v = _drawn(seed)
        ends = []
        for rate in (1.0, 10.0, 100.0):
            z, _, _ = one_query(P, v, partial(_speed, rate), LATE, rtol=1e-7)
            G = scansnap.accumulated_speed(LATE, 60, 3, rate)
            direct = one_query(P, v, lambda t: 1.0, np.append(0.0, G[1:]))[0]
            same.append(np.abs(z - direct).max())
            margin = (z[:, :1] - z[:, 1:]).min(1)
            slow = 2 * np.log(np.log(60 * rate * LATE[1:] / 3 + 1)) + np.log(1.5 / rate)
            drift.append(np.ptp((margin[1:] - slow)[-12:]))
            ends.append(margin[-1] - slow[-1])
            lead.append(margin[-1])
        apart.append(np.ptp(ends))
    fixed = []
    for seed in range(trials):
        z = _steady(seed)[0]
        fixed.append((z[:, :1] - z[:, 1:]).min(1)[-1])
    return [
        Measured("largest deviation from the constant run at time G(t)", max(same), "<=", 1e-4),
        Measured("range of margin − 2 log log t − log(C/2η), last 5 decades", max(drift), "<=", 0.8),
        Measured("its range over the three ratios at t = 1e12", max(apart), "<=", 1.5),
        Measured("margin at t = 1e12, largest", max(lead), "<=", 8.0),
        Measured("the same behind a frozen decoder, smallest", min(fixed), ">=", 25.0, breaks=True),
    ]
