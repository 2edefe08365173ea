"""Claims of the chapter on two theories: hidden layer and attention together (JoMA)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.special import erfinv

from svmlib import joma
from svmlib.arrays import FloatArray

from .registry import Measured, claim
from .two_theories import PAGE

SOURCE = "Tian et al. (2024), JoMA"
FORCE = np.array([1.0, 0.8, -0.5, 0.2])


def published_targets() -> FloatArray:
    """Targets of the published toy: ten uniform numbers between 1 and 4 under torch's seed 0, sorted.

    Returns
    -------
    ndarray, shape (10,)
        The targets.
    """
    drawn = torch.rand(10, generator=torch.Generator("cpu").manual_seed(0), dtype=torch.float32, device="cpu")
    return np.sort((3.0 * drawn + 1.0).numpy().astype(np.float64))


def centred(a: FloatArray, b: FloatArray) -> FloatArray:
    """Correlation of the entries along the last axis, means removed, as in the published figure.

    Parameters
    ----------
    a, b : ndarray, shape (..., L)
        What to compare.

    Returns
    -------
    ndarray, shape (...)
        Between −1 and 1.
    """
    a, b = a - a.mean(-1, keepdims=True), b - b.mean(-1, keepdims=True)
    return np.asarray((a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)))


@claim(
    "prop-joma-invariant",
    title="The hidden layer knows the attention logits",
    source=f"{SOURCE}, Theorem 1; proof in the chapter",
    chapter=PAGE,
    kind="proposition",
    scope="20 classes, 20 tokens; flow: linear, tanh; published: softmax, temperature 1/2, 2000 steps",
    seeds="0 to trials − 1",
    trials=(3, 2),
)
def invariant(trials: int) -> list[Measured]:
    """Compare logits with squares of weights: flow, small steps, softmax, and classes nearly alike."""
    P = joma.frequencies()
    options: dict[str, Any] = {"scale": 0.3, "seed": 1, "temperature": 0.5}
    exact, soft, halves = [], [], []
    for name, hidden in (("linear", None), ("tanh", 40)):
        run = joma.train(
            P, 300, softmax=False, activation=name, hidden=hidden, record=10, flow=True, **options
        )
        move = np.ptp(run.z[-1] - run.z[0])
        exact.append(np.abs(joma.invariant(run).exponential - run.z).max() / move)
        run = joma.train(P, 300, activation=name, hidden=hidden, record=10, flow=True, **options)
        soft.append(np.abs(joma.invariant(run).exponential - run.z).max() / np.ptp(run.z[-1] - run.z[0]))
    for rate in (0.1, 0.05):
        run = joma.train(
            P, round(30 / rate), rate, softmax=False, activation="relu", hidden=40, record=10, **options
        )
        halves.append(np.abs(joma.invariant(run).exponential - run.z).max())
    miss = []
    for mix in (0.2, 0.1):
        near = (1 - mix) * P.mean(0) + mix * P
        run = joma.train(near, 300, record=300, flow=True, **options)
        miss.append(np.abs(joma.invariant(run).integral - run.z).max())
    close = np.empty((2, trials, 4))
    for bumps in (True, False):
        for seed in range(trials):
            drawn = joma.frequencies(bumps=bumps, seed=seed)
            run = joma.train(drawn, 2000, temperature=0.5, seed=seed, record=[0, 100, 500, 1000, 2000])
            close[int(bumps), seed] = centred(joma.invariant(run).softmax, run.z)[1:]
    return [
        Measured("exponential attention, flow: largest deviation over the motion", max(exact), "<=", 1e-8),
        Measured(
            "steps, relu: deviation at half the rate over that at the full",
            halves[1] / halves[0],
            "in",
            (0.45, 0.55),
        ),
        Measured(
            "softmax, classes half as different: ratio of deviations", miss[1] / miss[0], "in", (0.45, 0.6)
        ),
        Measured("softmax, bumps: smallest correlation up to step 1000", close[1, :, :3].min(), ">=", 0.985),
        Measured("softmax, bumps: smallest at step 2000", close[1, :, 3].min(), ">=", 0.95),
        Measured("softmax, random: mean up to step 1000", close[0, :, :3].mean(), ">=", 0.98),
        Measured("softmax, random: mean at step 2000", close[0, :, 3].mean(), ">=", 0.95),
        Measured(
            "softmax with the formula of the exponential: deviation over the motion",
            min(soft),
            ">=",
            0.2,
            breaks=True,
        ),
    ]


@claim(
    "prop-joma-erf",
    title="A constant force: all components on one curve, and one winner",
    source=f"{SOURCE}; proof in the chapter",
    chapter=PAGE,
    kind="proposition",
    scope="forces 1, 0.8, −0.5, 0.2; exponential attention to 0.999 of the critical time, softmax to t = 20",
)
def erf_law(trials: int) -> list[Measured]:
    """Solve both equations and compare with the closed form."""
    critical = np.sqrt(np.pi / 2)

    def plain(_: float, v: FloatArray) -> FloatArray:
        return np.asarray(FORCE * np.exp(v**2 / 2))

    def shared(_: float, v: FloatArray) -> FloatArray:
        weight = np.exp((v**2 - (v**2).max()) / 2)
        return np.asarray(FORCE * weight / weight.sum())

    times = np.array([0.25, 0.5, 0.75, 0.9, 0.999]) * critical
    v = solve_ivp(plain, (0, times[-1]), np.zeros(4), "LSODA", times, rtol=1e-11, atol=1e-13).y.T
    law = np.abs(joma.erf_ratio(v, FORCE) / (np.sqrt(2 / np.pi) * times[:, None]) - 1).max()
    soft = solve_ivp(
        shared, (0, 20), np.zeros(4), "LSODA", [1.0, 3.0, 19.0, 20.0], rtol=1e-11, atol=1e-13
    ).y.T
    ratio = joma.erf_ratio(soft, FORCE)
    limit = np.sqrt(2) * erfinv(FORCE[1:])
    uneven = joma.erf_ratio(v + 0.3, FORCE)[0]
    return [
        Measured("exponential: deviation of erf(v/√2)/Δ from √(2/π) t", law, "<=", 1e-8),
        Measured("exponential: share of the winner at 0.999 of the critical time", _share(v[-1]), ">=", 0.97),
        Measured(
            "softmax: spread of erf(v/√2)/Δ, relative",
            (np.ptp(ratio, axis=1) / ratio[:, 0]).max(),
            "<=",
            1e-8,
        ),
        Measured(
            "softmax: distance of the losers from their limits at t = 20",
            np.abs(soft[-1, 1:] - limit).max(),
            "<=",
            1e-8,
        ),
        Measured(
            "softmax: speed of the winner at the end over its force",
            soft[-1, 0] - soft[-2, 0],
            "==",
            1.0,
            tol=1e-6,
        ),
        Measured(
            "start away from 0: spread of the ratios, relative",
            np.ptp(uneven) / uneven.mean(),
            ">=",
            0.2,
            breaks=True,
        ),
    ]


def _share(v: FloatArray) -> float:
    return float(np.exp(v[0] ** 2 / 2) / np.exp(v**2 / 2).sum())


@claim(
    "prop-joma-toy",
    title="Targets behind their own attention: sparse, then dense",
    source=f"{SOURCE}, Figure 4; proof in the chapter",
    chapter=PAGE,
    kind="proposition",
    scope="10 targets between 1 and 4 (torch's seed 0), temperature 3, 5000 steps of 0.02",
)
def sparse_then_dense(trials: int) -> list[Measured]:
    """Iterate the toy at two step sizes, and compare entropies with the published ones."""
    mu = published_targets()
    v = joma.toy(mu)
    entropy = joma.entropy_path(v)
    left = (mu - v) / (mu - v[0])
    drift = []
    for rate, steps in ((0.02, 500), (0.01, 1000)):
        w = joma.toy(mu, steps, rate)
        drift.append(abs(np.log((mu - w[-1]) / (mu - w[0])).sum() + rate * steps))
    order = (np.diff(v[1:], axis=1) > 0).all() and (np.diff(left[1:], axis=1) <= 1e-12).all()
    equal = joma.entropy_path(joma.toy(np.full(10, 2.0), 1000))
    return [
        Measured("order of components and of what is left, at all steps", bool(order), "==", True),
        Measured(
            "product law: error at half the step over that at the full one",
            drift[1] / drift[0],
            "in",
            (0.45, 0.55),
        ),
        Measured("smallest entropy", entropy.min(), "==", 0.942, tol=0.002),
        Measured("its step", int(entropy.argmin()), "in", (640, 700)),
        Measured("entropy at step 5000", entropy[-1], "==", 1.549, tol=0.002),
        Measured(
            "entropy at step 5000 below that of the targets by",
            joma.entropy_path(mu) - entropy[-1],
            "in",
            (0.0, 0.1),
        ),
        Measured(
            "equal targets: smallest entropy over log 10",
            equal.min() / np.log(10),
            ">=",
            0.999999,
            breaks=True,
        ),
    ]
