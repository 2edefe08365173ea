"""Claims of the chapter on the decoder: what it sends down, in the paper's form and in the exact one."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.integrate import cumulative_trapezoid, solve_ivp
from scipy.special import softmax

from svmlib import scansnap
from svmlib.arrays import FloatArray
from svmlib.scansnap import TokenProcess

from .decoder import PAGE, PAPER, equal_overlaps, features_of, residuals, train_decoder
from .long_sequences import random_process
from .registry import Measured, claim


def alike(C: int, kappa: float, M: int) -> TokenProcess:
    """Classes with one common and one distinct token each, and a given overlap.

    Parameters
    ----------
    C, M : int
        Classes and tokens.
    kappa : float
        Overlap.

    Returns
    -------
    TokenProcess
        The process.
    """
    return scansnap.symmetric(C, [np.sqrt(kappa)], [np.sqrt(1 - kappa)], vocabulary=M)


def nearly_dependent() -> TokenProcess:
    """One token shared with a class that lies almost in the span of two others; M = 10.

    Returns
    -------
    TokenProcess
        Four classes, whose next tokens are tokens 0 to 3.
    """
    P = [[0.0, 0.0, 1.0, 4.0], [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [5.0, 5.0, 1.0, 0.0]]
    return TokenProcess(np.pad(P, ((0, 0), (0, 6))), [0, 0, 0, 0], [0, 1, 2, 3])


@claim(
    "thm-decoder-random",
    title="Random class order: $D=F(F^\\top F)^{-1}(I+\\Theta)\\bar W$ with explicit $\\Theta$",
    kind="theorem",
    source=f"{PAPER}, Theorem 5, for the modified gradient, with constants",
    chapter=PAGE,
    scope="C = 5, M = 50, rate 0.5, δ = 0.05; N from 120 to 10⁵",
    seeds="0 to trials − 1",
    trials=(2000, 500),
)
def random_order(trials: int) -> list[Measured]:
    """Draw class counts, compare the factors with the bound; train D by both gradients."""
    C, M, eta, delta = 5, 50, 0.5, 0.05
    star = scansnap.progress_steps(25_000, M, eta)
    outside, tight = [], []
    for N in (120, 1000, 10_000, 100_000):
        counts = np.random.default_rng(N).multinomial(N, np.full(C, 1 / C), size=trials)
        width = np.sqrt(3 * C * np.log(2 * C / delta) / N)
        if width > 1:
            raise AssertionError("The theorem asks for N of at least 3 C log(2 C / δ).")
        expected = float(scansnap.progress(N / C, M, eta))
        theta = star[counts] / expected - 1
        bad = (theta < -width) | (theta > width + eta / (M * expected))
        outside.append(bad.any(1).mean())
        tight.append(np.abs(theta).max() / width)
    process = random_process(3, 8, 0)
    order = np.random.default_rng(0).integers(0, 3, 600)
    h = scansnap.progress_steps(600, process.M, eta)[np.bincount(order, minlength=3)]
    D, F = train_decoder(process, eta, order, modified=True)
    G = F.T @ F
    W = h[:, None] * (process.M * np.eye(process.M)[process.label] - 1)
    said = F @ np.linalg.solve(G, W)
    matrix = np.linalg.norm(D - said) / np.linalg.norm(said)
    plain = train_decoder(process, eta, order, modified=False)[0]
    off = np.linalg.norm(plain - said) / np.linalg.norm(said)
    return [
        Measured("share of draws in which some factor leaves the bound", max(outside), "<=", delta),
        Measured("largest factor over the width, worst N", max(tight), "in", (0.3, 1.5)),
        Measured("modified gradient on D: relative error, given the counts", matrix, "<=", 1e-10),
        Measured("plain gradient on D: relative distance from that", off, ">", 0.3, breaks=True),
    ]


@claim(
    "lem-decoder-force",
    title="$-E'_{cc}=R_c^2/(1-R_c^2)$: positive unless a feature is orthogonal to all others",
    kind="lemma",
    source=f"{PAPER}, proof of Theorem 1, without its eigenvalue bound",
    chapter=PAGE,
    scope="random processes with 2 to 6 classes and 10 contextual tokens",
    seeds="0 to trials − 1",
    trials=(100, 30),
)
def driving_force(trials: int) -> list[Measured]:
    """Project each feature on the others by least squares; sum eigenvalues; sum entries of E'."""
    projected, summed, spectral, smallest = [], [], [], []
    for seed in range(trials):
        C = 2 + seed % 5
        F = features_of(random_process(C, 10, seed))
        G = F.T @ F
        prime = np.eye(C) - np.linalg.inv(G)
        values, vectors = np.linalg.eigh(G - np.eye(C))
        for c in range(C):
            others = np.delete(F, c, 1)
            fit = others @ np.linalg.lstsq(others, F[:, c], rcond=None)[0]
            R2 = float(fit @ fit)
            scale = abs(prime[c, c])
            projected.append(abs(-prime[c, c] - R2 / (1 - R2)) / scale)
            summed.append(abs(sum(G[c, n] * prime[c, n] for n in range(C) if n != c) + prime[c, c]) / scale)
            spectral.append(abs((values**2 / (1 + values) * vectors[c] ** 2).sum() + prime[c, c]) / scale)
            smallest.append(-prime[c, c])
    split = TokenProcess(np.kron(np.eye(3), [[2.0, 1.0]]), [0, 0, 0], [1, 3, 5])
    apart = np.linalg.inv(features_of(split).T @ features_of(split))[0, 0] - 1
    return [
        Measured("largest relative error against the projection", max(projected), "<=", 1e-8),
        Measured("largest relative error of the sum over other classes", max(summed), "<=", 1e-8),
        Measured("largest relative error of the sum over eigenvalues", max(spectral), "<=", 1e-8),
        Measured("smallest value", min(smallest), ">", 0.0),
        Measured("value for orthogonal features", apart, "==", 0.0, tol=1e-12, breaks=True),
    ]


@claim(
    "thm-decoder-sent",
    title="Modified gradient: $g_c=\\rho\\frac M{(M-1)^2}F(F^\\top F)^{-1}(Me_c-\\mathbf 1)$",
    kind="theorem",
    source=f"{PAPER}, Theorem 1, exactly, for the gradient of its Lemma 3",
    chapter=PAGE,
    scope="random processes with C = 3, M = 13; the flow of D solved with DOP853 to t = 30; four classes "
    "that are nearly dependent",
    seeds="0 to trials − 1",
    trials=(5, 2),
)
def sent(trials: int) -> list[Measured]:
    """Solve the modified flow of the whole decoder, and decompose what it sends down."""
    coefficients, forces, signs = [], [], []
    for seed in range(trials):
        process = random_process(3, 8, seed)
        F, M, C = features_of(process), process.M, 3
        inverse = np.linalg.inv(F.T @ F)

        def slope(
            _: float,
            y: FloatArray,
            F: FloatArray = F,
            into: FloatArray = F @ inverse,
            p: TokenProcess = process,
        ) -> FloatArray:
            D = y.reshape(p.M, p.M)
            return np.asarray((into @ residuals(F.T @ D, p.label) / 3).ravel())

        times = np.array([0.1, 3.0, 30.0])
        solved = solve_ivp(slope, (0, 30), np.zeros(M * M), "DOP853", times, rtol=1e-10, atol=1e-13)
        prime = np.eye(C) - inverse
        for t, y in zip(times, solved.y.T, strict=True):
            D = y.reshape(M, M)
            g = residuals(F.T @ D, process.label) @ D.T
            found = scansnap.decompose(process, g, np.zeros((1, M)))
            rho = float(scansnap.speed(t, M, C))
            said = rho * M / (M - 1) ** 2 * (M * inverse - inverse.sum(0))
            coefficients.append(np.abs(found - said).max() / rho)
            xi = -((found * (F.T @ F)).sum(1) - np.diag(found))
            v = -np.diag(prime)
            exact = rho * M / (M - 1) ** 2 * ((M - 1) * v + prime.sum(1) + v)
            forces.append(np.abs(xi - exact).max() / rho)
            signs.append(xi.min() / rho)
    G = features_of(nearly_dependent()).T @ features_of(nearly_dependent())
    prime = np.eye(4) - np.linalg.inv(G)
    beta = 100 / 81 * (prime + (np.eye(4) - prime).sum(1) / 10)
    turned = float((beta * (G - np.eye(4))).sum(1)[0])
    return [
        Measured("largest error of the coefficients, over ρ", max(coefficients), "<=", 1e-7),
        Measured("largest error of the force, over ρ", max(forces), "<=", 1e-7),
        Measured("smallest force over ρ", min(signs), ">", 0.0),
        Measured(
            "C = 4, M = 10, small overlaps of class 1: its force over ρ", turned, "<", -0.01, breaks=True
        ),
    ]


@cache
def _early(trials: int) -> tuple[list[float], list[float]]:
    ratio, bound = [], []
    for seed in range(trials):
        process = random_process(3, 8, seed)
        wide = TokenProcess(np.pad(process.P, ((0, 0), (0, 100))), process.query, process.label)
        times = np.array([1e-4, 1e-3, 1e-2, 3e-2])
        z = np.zeros((1, wide.M))
        found = scansnap.decompose(wide, scansnap.flow(wide, times, 1.0, 0.0, rtol=1e-11).sent, z)
        for t, matrix in zip(times, found, strict=True):
            omega = np.expm1(2 * t)
            first = t / 3 * (np.eye(3) - 1 / wide.M)
            off = ~np.eye(3, dtype=bool)
            ratio.append(float(np.abs(matrix[off] / first[off] - 1).max()))
            bound.append(4 * omega + omega**2)
    return ratio, bound


@claim(
    "prop-decoder-early",
    title="At first $g_c=\\frac{\\eta t}C(f_c-\\frac1M\\sum_{c'}f_{c'})$: no $E'$ yet",
    kind="proposition",
    source=f"against {PAPER}, Theorem 1, for the gradient itself",
    chapter=PAGE,
    scope="random processes with C = 3 and M = 113, rate 1, t to 0.03; two classes that satisfy Assumption 2",
    seeds="0 to trials − 1",
    trials=(10, 4),
)
def early(trials: int) -> list[Measured]:
    """Follow the exact flow, and run batches of size one where the paper's assumptions hold."""
    ratio, bound = _early(trials)
    over = max(a / b for a, b in zip(ratio, bound, strict=True))
    process, eta = alike(2, 0.4, 1000), 0.02
    when = int(scansnap.transition(1000, 2, eta) / 10)
    seeds = range(min(trials, 5))
    run = scansnap.simulate(process, eta, 0.0, when, T=np.inf, batch=1, seeds=seeds, record=[when])
    found = scansnap.decompose(process, run.sent[:, 0], run.z[:, 0])
    share = float(-(found[:, 0, 1] + found[:, 1, 0]).mean() / (found[:, 0, 0] + found[:, 1, 1]).mean())
    inverse = np.linalg.inv(features_of(process).T @ features_of(process))
    said = -inverse[0, 1] / inverse[0, 0]
    return [
        Measured("largest relative deviation from −ηt/(CM), over its bound", over, "<=", 1.0),
        Measured("the same deviation at t = 10⁻⁴", max(ratio[::4]), "<=", 1e-3),
        Measured("Assumption 2 holds, batch size 1, t₀′/10: other coefficient over own", share, "<=", 0.02),
        Measured("what Theorem 1 says for it, E′₁₂/(1 − E′₁₁)", said, ">", 20 * share, breaks=True),
    ]


@claim(
    "thm-decoder-symmetric",
    title="Equal overlaps: the exact flow of the decoder is one integral",
    kind="theorem",
    source="not in the paper",
    chapter=PAGE,
    scope="overlaps 0 to 0.9, C = 2 to 8, M to 2000, times to 10⁶; and to 10²⁵⁰ for the limits",
)
def symmetric(trials: int) -> list[Measured]:
    """Compare with the flow of all logits by an adaptive solver; follow the closed form to its limit."""
    logits, sent, times = [], [], np.array([0.01, 1.0, 10.0, 100.0, 1e4, 1e6])
    for C, kappa, M in ((2, 0.4, 300), (4, 0.62, 2000), (8, 0.1, 40), (3, 0.9, 20), (5, 0.02, 100)):
        process = alike(C, kappa, M)
        exact = scansnap.symmetric_decoder(times, kappa, M=M, C=C)
        flow = scansnap.flow(process, times, 1.0, 0.0, rtol=1e-10)
        columns = [process.label[0], process.label[1], 0]
        logits.append(np.abs(flow.logits[:, 0, columns] - exact.logits).max())
        found = scansnap.decompose(process, flow.sent, np.zeros((len(times), 1, M)))[:, 0, :2]
        sent.append(np.abs(found / exact.sent - 1).max())
    free = scansnap.symmetric_decoder(times, 0.0, M=50, C=4).clock / scansnap.progress(times / 4, 50) - 1
    far = scansnap.symmetric_decoder([1e100, 1e250], 0.6, M=2000, C=4)
    share = np.exp(far.log_probabilities[:, 1] - far.log_probabilities[:, 2])
    ratio = -far.sent[:, 1] / far.sent[:, 0]
    return [
        Measured("largest error of the logits", max(logits), "<=", 1e-6),
        Measured("largest relative error of the coefficients", max(sent), "<=", 1e-5),
        Measured("overlap 0: largest relative distance of the clock from h", np.abs(free).max(), "<=", 1e-9),
        Measured(
            "ratio of wrong to other probabilities at t = 10²⁵⁰, over its limit",
            share[1] / (1 + 0.6 * 2000 / 0.4),
            "==",
            1.0,
            tol=1e-9,
        ),
        Measured(
            "other over own coefficient, there, over its limit",
            ratio[1] / late_ratio(0.6, 2000, 4),
            "==",
            1.0,
            tol=0.01,
        ),
    ]


def late_ratio(kappa: float, M: float, C: int) -> float:
    """Limit of the other coefficients of what is sent down, over minus the own one.

    Parameters
    ----------
    kappa, M : float
        Overlap and number of tokens.
    C : int
        Classes.

    Returns
    -------
    float
        The limit for t to infinity.
    """
    m = 1 + kappa * M / (1 - kappa)
    other = C * m**2 + (M - C) * (2 * m - 1)
    return float(other / (((C - 1) * m + M - C) ** 2 + (C - 1) * m**2 + M - C))


@claim(
    "thm-decoder-sign",
    title="Equal overlaps: what is sent down has negative coefficients on all other classes, at all times",
    kind="theorem",
    source=f"{PAPER}, Theorem 1(a), for the gradient itself, with equal overlaps",
    chapter=PAGE,
    scope="equal overlaps: a grid of C, M, overlap, and times to 10³⁰; random processes with C = 2 to 4",
    seeds="0 to trials − 1",
    trials=(24, 10),
)
def sign(trials: int) -> list[Measured]:
    """Evaluate the closed form; follow random processes, where coefficients may have the other sign."""
    worst, own, faster = [], [], []
    times = np.geomspace(1e-3, 1e30, 60)
    for C in (2, 5, 20):
        for M in (C + 1, 50, 2000):
            for kappa in (0.001, 0.1, 0.5, 0.95):
                found = scansnap.symmetric_decoder(times, kappa, M=M, C=C)
                worst.append((found.sent[:, 1] / found.sent[:, 0]).max())
                own.append(found.sent[:, 0].min())
                faster.append((found.log_probabilities[:, 1] - found.log_probabilities[:, 2]).min())
    force, single = [], 0
    for seed in range(trials):
        process = random_process(2 + seed % 3, 8, seed)
        z = np.zeros((1, process.M))
        F = features_of(process)
        matrix = scansnap.decompose(
            process, scansnap.flow(process, np.geomspace(0.01, 1e4, 20), 1.0, 0.0).sent, z
        )
        off = matrix * (1 - np.eye(process.C))
        force.append(-(off * (F.T @ F)).sum(-1).max() / np.abs(matrix).max())
        single += bool(off.max() > 1e-9)
    return [
        Measured("largest coefficient on another class, over the own one", max(worst), "<", 0.0),
        Measured("smallest own coefficient", min(own), ">", 0.0),
        Measured("smallest log of a wrong next token over another token", min(faster), ">", 0.0),
        Measured("random processes: smallest force, relative", min(force), ">", 0.0, "not proved"),
        Measured(
            "random processes with a positive coefficient elsewhere", single / trials, ">", 0.2, breaks=True
        ),
    ]


def force_terms(process: TokenProcess, times: FloatArray) -> dict[str, FloatArray]:
    """Force of the exact flow at rate 1, and the terms of its lower bound, class by class.

    Parameters
    ----------
    process : TokenProcess
        Equally frequent classes with different next tokens; attention is fixed at Z = 0.
    times : ndarray, shape (r,)
        Times.

    Returns
    -------
    dict of ndarray, shape (r, C)
        ``force``; ``shared``, the sum over other classes times the error; ``squares``, the spread of the
        accumulated errors; ``slope``, C/2 times its derivative.
    """
    F, M, C = features_of(process), process.M, process.C
    run = scansnap.flow(process, times, 1.0, 0.0, rtol=1e-10)
    own = np.eye(M, dtype=bool)[process.label]
    off = F.T @ F - np.eye(C)
    a = np.linalg.solve(F.T @ F, run.logits.reshape(len(times), C, M))
    sent = scansnap.decompose(process, run.sent, np.zeros((len(times), 1, M)))
    r = own - softmax(run.logits.reshape(len(times), C, M), -1)
    past = np.where(own, 0.0, -a)
    apart = np.where(own, 0.0, past - past.sum(-1, keepdims=True) / (M - 1))
    return {
        "force": -(off * sent).sum(-1),
        "shared": r[:, own] * np.einsum("cd,tdc->tc", off, past[:, :, process.label]),
        "squares": (apart**2).sum(-1),
        "slope": -(apart * r).sum(-1),
    }


@claim(
    "thm-decoder-adds",
    title="The force of gradient flow on the decoder adds up to something positive, for any features",
    kind="theorem",
    source="not in the paper",
    chapter=PAGE,
    scope="random processes with C = 2 to 4 and four classes that are nearly dependent, t to 10⁴; and equal "
    "overlaps with C = M = 6",
    seeds="0 to trials − 1",
    trials=(6, 3),
)
def adds(trials: int) -> list[Measured]:
    """Compare the force with its lower bound at each time, and the integrals of both."""
    times = np.geomspace(1e-3, 1e4, 701)
    low, added, total, slack = [], [], [], []
    for process in (*(random_process(2 + seed % 3, 8, seed) for seed in range(trials)), nearly_dependent()):
        found, M, C = force_terms(process, times), process.M, process.C
        low.append(((found["shared"] * M / (M - 1) + found["slope"]) / found["force"]).max())
        force, shared = (
            cumulative_trapezoid(found[name], times, axis=0, initial=0)[1:] for name in ("force", "shared")
        )
        bound = M / (M - 1) * shared + C / 2 * found["squares"][1:]
        added.append((bound / force).max())
        slack.append((bound / force).min())
        total.append(force.min())
    full = force_terms(equal_overlaps(6, 0.3), times)
    exact = np.abs((full["shared"] * 6 / 5 + full["slope"]) / full["force"] - 1).max()
    return [
        Measured("largest lower bound over the force, all times", max(low), "<=", 1.0),
        Measured("largest bound on the integral over the integral", max(added), "<=", 1.001),
        Measured("smallest bound on the integral over the integral", min(slack), ">", 0.3),
        Measured("smallest integral of the force", min(total), ">", 0.0),
        Measured("every token a next token, equal overlaps: |bound/force − 1|", exact, "<=", 1e-8),
    ]
