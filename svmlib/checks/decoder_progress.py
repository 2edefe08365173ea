"""Claims of the chapter on the decoder: the progress of one class, and the speed of what it sends down."""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from svmlib import scansnap
from svmlib.arrays import FloatArray
from svmlib.scansnap import TokenProcess

from .decoder import PAGE, PAPER
from .registry import Measured, claim

SETTINGS = tuple((50, eta) for eta in (0.1, 0.2, 0.5, 1.0, 2.0)) + tuple(
    (1000, eta) for eta in (0.2, 0.5, 1.0, 2.0, 4.0)
)


def plain_steps(M: int, rate: float, steps: int) -> FloatArray:
    """Descend the cross-entropy of one class over all M logits, by softmax and nothing else.

    Parameters
    ----------
    M, steps : int
        Tokens, and number of steps.
    rate : float
        Step size.

    Returns
    -------
    ndarray, shape (steps + 1, M)
        Logits; the next token is token 0.
    """
    w, target = np.zeros((steps + 1, M)), np.arange(M) == 0
    for s in range(steps):
        w[s + 1] = w[s] - rate * (softmax(w[s]) - target)
    return w


@claim(
    "lem-decoder-steps",
    title="After s steps on a class its logits are $Mh^\\ast(s)(e_c-\\frac1M\\mathbf 1)$",
    kind="lemma",
    source=f"{PAPER}, Lemma 5",
    chapter=PAGE,
    scope="the rates of the paper's figure 8, 200 steps; and a process with a single class",
)
def steps(trials: int) -> list[Measured]:
    """Compare with softmax on all logits, and with training D on one class."""
    logits, errors = [], []
    for M, eta in SETTINGS:
        w, h = plain_steps(M, eta, 200), scansnap.progress_steps(200, M, eta)
        target = np.arange(M) == 0
        zeta = M / (M - 1) * (target - 1 / M)
        logits.append(np.abs(w - (M - 1) * h[:, None] * zeta).max() / np.abs(w).max())
        factor = (M - 1) / (M - 1 + np.exp(M * h))
        errors.append(np.abs(target - softmax(w, 1) - factor[:, None] * zeta).max())
    process = TokenProcess([[2.0, 1.0, 1.0] + [0.0] * 47], [3], [4])
    run = scansnap.simulate(process, 0.5, 0.0, 200, record=[200])
    h = scansnap.progress_steps(200, 50, 0.5)[-1]
    single = np.abs(run.logits[0, 0, 0] - h * (50 * np.eye(50)[4] - 1)).max()
    return [
        Measured("largest relative error of the logits", max(logits), "<=", 1e-12),
        Measured("largest error of the residuals", max(errors), "<=", 1e-12),
        Measured("training D on a single class: largest error of the logits", single, "<=", 1e-12),
    ]


@claim(
    "lem-decoder-flow",
    title="$e^{Mh}+(M-1)Mh=M\\eta t+1$ solves the flow of the progress",
    kind="lemma",
    source=f"{PAPER}, Lemma 6",
    chapter=PAGE,
    scope="M from 2 to 1000, rates 0.1 to 4, times to 10⁶; scipy's DOP853",
)
def flow(trials: int) -> list[Measured]:
    """Solve the differential equation, and a 50-token flow of plain logits."""
    worst = []
    for M, eta in (*SETTINGS, (2, 1.0), (3, 0.3)):
        times = np.geomspace(0.01, 1e6, 30)
        solved = solve_ivp(
            lambda _, h, M=M, eta=eta: eta / (M - 1 + np.exp(M * h)),
            (0, 1e6),
            [0.0],
            "DOP853",
            times,
            rtol=1e-11,
            atol=1e-14,
        )
        h = scansnap.progress(times, M, eta)
        worst.append(np.abs(solved.y[0] / h - 1).max())
    times = np.array([1.0, 10.0, 100.0])
    solved = solve_ivp(
        lambda _, w: 0.5 * (np.eye(50)[0] - softmax(w)), (0, 100), np.zeros(50), "DOP853", times, rtol=1e-11
    )
    w = solved.y.T - scansnap.progress(times, 50, 0.5)[:, None] * (50 * np.eye(50)[0] - 1)
    return [
        Measured("largest relative error of h", max(worst), "<=", 1e-8),
        Measured("largest error of the 50 logits", np.abs(w).max(), "<=", 1e-7),
    ]


def gaps(M: int, eta: float, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """How far steps are ahead of the flow, and both bounds on it.

    Parameters
    ----------
    M, count : int
        Tokens, and number of steps.
    eta : float
        Step size.

    Returns
    -------
    gap, first, second : ndarray, shape (count + 1,)
        The gap and its two upper bounds at steps 0, 1, ...
    """
    star, h = scansnap.progress_steps(count, M, eta), scansnap.progress(np.arange(count + 1), M, eta)
    phi = M - 1 + np.exp(M * h)
    constant = (np.expm1(eta) - eta) / eta**2
    return star - h, eta / M * (1 - M / phi), constant * M * eta * star / phi


@claim(
    "lem-decoder-gap",
    title="$0\\le h^\\ast-h\\le\\eta/M$, half of the paper's bound, and the gap goes to 0",
    kind="lemma",
    source=f"{PAPER}, Lemma 7, with half the constant",
    chapter=PAGE,
    scope="the ten curves of the paper's figure 8 and rates up to 10⁴, at least 3,000 steps",
)
def gap(trials: int) -> list[Measured]:
    """Compare steps and flow at every step."""
    low, first, second, last, share = [], [], [], [], []
    for M, eta in (*SETTINGS, (50, 20.0), (10, 100.0), (3, 1.0)):
        found, one, two = gaps(M, eta, int(3000 / min(eta, 1.0)))
        low.append(found.min() * M / eta)
        first.append((found - one).max() * M / eta)
        share.append(found.max() * M / eta)
        if eta <= 20.0:
            second.append((found - two).max() * M / eta)
        if eta <= 4.0:
            last.append(found[-1] / found.max())
    sharp = float((scansnap.progress_steps(1, 3, 1e4)[1] - scansnap.progress(1.0, 3, 1e4)) * 3 / 1e4)
    return [
        Measured("smallest gap over η/M", min(low), ">=", -1e-12),
        Measured("largest gap minus the first bound, over η/M", max(first), "<=", 1e-12),
        Measured("largest gap minus the second bound, over η/M", max(second), "<=", 1e-12),
        Measured("largest gap over η/M, rates of figure 8", max(share[:10]), "<=", 0.31),
        Measured("last gap over the largest, worst case", max(last), "<=", 0.2),
        Measured("gap over η/M at step 1 for η = 10⁴: the constant is sharp", sharp, ">", 0.998),
    ]


@claim(
    "lem-decoder-stages",
    title="Two stages of the speed: it rises like $\\eta t/C$, and falls like $\\log(1+M\\theta)/\\theta$",
    kind="lemma",
    source=f"{PAPER}, Lemma 9, with explicit constants",
    chapter=PAGE,
    scope="M from 2 to 10⁶, θ = ηt/C from 10⁻³ to 10⁸",
)
def stages(trials: int) -> list[Measured]:
    """Evaluate the speed on a grid, and compare with each bound."""
    worst: dict[str, list[float]] = {
        name: [] for name in ("rise", "floor", "late", "below", "behind", "half", "start")
    }
    for M in (2, 10, 50, 1000, 10**6):
        theta = np.geomspace(1e-3, 1e8, 400)
        rho, u = scansnap.speed(theta * 7 / 0.3, M, 7, 0.3), M * scansnap.progress(theta, M)
        shrink, L = (1 - 1 / M) ** 2, np.log1p(M * theta)
        worst["rise"].append((rho / (shrink * theta)).max())
        floor = theta * ((M - 1) / (M - 1 + np.exp(np.minimum(theta, 100.0)))) ** 2
        worst["floor"].append((floor / rho)[theta < 100].max())
        early = theta <= np.log(M)
        worst["half"].append((theta * ((M - 1) / (2 * M - 1)) ** 2 / rho)[early].max())
        second = theta >= 2 * L
        worst["late"].append((rho * (1 + theta - L) / (shrink * L))[second].max())
        worst["below"].append((shrink * (L - np.log(2)) / (1 + theta) / rho)[second].max())
        worst["behind"].append((L - u)[second].max())
        if M >= 10:
            begin = 2 * np.log(M) + 2 * np.log(4 * np.log(M))
            worst["start"].append(2 * np.log1p(M * begin) / begin)
        worst["rise"].append((u / theta).max())
        worst["late"].append((u / L).max())
    t0 = scansnap.transition(1000, 10)
    early = scansnap.speed(0.1 * t0, 1000, 10) * 10 / (0.1 * t0)
    late = scansnap.speed(50 * t0, 1000, 10) * 5 * t0 / np.log(1000 * 5 * t0)
    return [
        Measured("largest speed over its upper bound, any time", max(worst["rise"]), "<=", 1 + 1e-9),
        Measured("its lower bound for small times over the speed", max(worst["floor"]), "<=", 1 + 1e-9),
        Measured("its lower bound up to t₀′ over the speed", max(worst["half"]), "<=", 1 + 1e-9),
        Measured("largest speed over its late upper bound", max(worst["late"]), "<=", 1 + 1e-9),
        Measured("its late lower bound over the speed", max(worst["below"]), "<=", 1 + 1e-9),
        Measured(
            "largest log(1 + Mθ) − Mh in the second stage", max(worst["behind"]), "in", (0.6, np.log(2))
        ),
        Measured("2 log(1 + Mθ)/θ where the second stage is said to begin", max(worst["start"]), "<=", 1.0),
        Measured("M = 1000, C = 10: ρC/(ηt) at 0.1 t₀′", early, "in", (0.98, 1.0)),
        Measured("M = 1000, C = 10: ρθ/log(Mθ) at 50 t₀′", late, "in", (1.0, 1.05)),
    ]


@claim(
    "prop-decoder-peak",
    title="The speed peaks at $(1-\\frac1M)W_0(\\frac{M-1}e)$, whatever rate and number of classes",
    kind="proposition",
    source=f"{PAPER}, Lemma 9, made exact",
    chapter=PAGE,
    scope="M from 2 to 10⁶; bounded scalar maximisation",
)
def speed_peak(trials: int) -> list[Measured]:
    """Maximise the speed numerically."""
    height, place = [], []
    for M, C, eta in ((2, 1, 1.0), (50, 4, 0.5), (1000, 10, 1.0), (1000, 3, 4.0), (10**6, 20, 0.01)):
        time, value = scansnap.peak(M, C, eta)
        found = minimize_scalar(
            lambda t, M=M, C=C, eta=eta: -float(scansnap.speed(t, M, C, eta)),
            bounds=(0, 10 * time),
            method="bounded",
            options={"xatol": 1e-9 * time},
        )
        height.append(abs(-found.fun / value - 1))
        place.append(abs(found.x / time - 1))
    time, value = scansnap.peak(1000, 10)
    far = scansnap.peak(10**15, 1)[0] / (15 * np.log(10))
    return [
        Measured("largest relative error of the height", max(height), "<=", 1e-12),
        Measured("largest relative error of the time", max(place), "<=", 1e-6),
        Measured("M = 1000, C = 10: time over t₀′", time / scansnap.transition(1000, 10), "in", (0.7, 1.0)),
        Measured("M = 1000: height", value, "==", 4.42, tol=0.005),
        Measured("M = 10¹⁵: time over t₀′", far, "in", (0.88, 1.0)),
    ]


@claim(
    "cor-decoder-residual",
    title="The residual is ε by time $\\frac C\\eta(\\frac1\\varepsilon+\\log\\frac M\\varepsilon)$",
    kind="corollary",
    source=f"{PAPER}, Corollary 1, sharpened",
    chapter=PAGE,
    scope="M = 50 and 1000, ε from 0.5 to 10⁻³, rates 0.1 to 2; plain steps",
)
def residual(trials: int) -> list[Measured]:
    """Count the steps that plain descent takes, and compare with both formulas."""
    over, exact, bound, classical = [], [], [], []
    for M in (50, 1000):
        for eta in (0.1, 0.5, 2.0):
            for epsilon in (0.5, 0.1, 0.01, 1e-3):
                time = float(scansnap.residual_time(epsilon, M, 1, eta))
                h = scansnap.progress(time, M, eta)
                length = np.sqrt(M * (M - 1)) / (M - 1 + np.exp(M * h))
                exact.append(abs(length / epsilon - 1))
                star = scansnap.progress_steps(int(np.ceil(time)), M, eta)
                lengths = np.sqrt(M * (M - 1)) / (M - 1 + np.exp(M * star))
                needed = int(np.argmax(lengths <= epsilon)) if (lengths <= epsilon).any() else np.inf
                over.append(needed - np.ceil(time))
                bound.append(time * eta / (1 / epsilon + np.log(M / epsilon)))
                classical.append(time * eta * epsilon / np.log(M / epsilon))
    return [
        Measured("largest relative error of the residual at the time", max(exact), "<=", 1e-9),
        Measured("plain steps minus the time, rounded up: largest", max(over), "<=", 0),
        Measured("time over the bound: largest", max(bound), "<=", 1.0),
        Measured("time over the bound: smallest", min(bound), ">=", 0.5),
        Measured("time over the paper's C log(M/ε)/(εη): largest", max(classical), "<=", 0.65),
        Measured("the same: smallest", min(classical), ">=", 0.05),
    ]
