"""Claims of the chapter on the decoder: fixed attention, and what the decoder is made of."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from svmlib import scansnap
from svmlib.arrays import FloatArray, IntArray
from svmlib.scansnap import TokenProcess

from .long_sequences import random_process
from .registry import Measured, claim

PAGE = "scan_snap/decoder"
PAPER = "Scan and Snap (2023)"


def features_of(process: TokenProcess) -> FloatArray:
    """(M, C) features of a process at Z = 0, as columns.

    Parameters
    ----------
    process : TokenProcess
        Classes.

    Returns
    -------
    ndarray
        Unit vectors.
    """
    z = np.zeros((len(process.queries), process.M))
    return scansnap.features(scansnap.attention(process, z)).T


def residuals(logits: FloatArray, label: IntArray) -> FloatArray:
    """One-hot next tokens minus softmax, class by class, by the definition.

    Parameters
    ----------
    logits : ndarray, shape (C, M)
        Decoder logits.
    label : ndarray of int, shape (C,)
        Next tokens.

    Returns
    -------
    ndarray, shape (C, M)
        Residuals.
    """
    return np.asarray(np.eye(logits.shape[1])[label] - softmax(logits, 1))


def train_decoder(
    process: TokenProcess, rate: float, classes: IntArray, *, modified: bool
) -> tuple[FloatArray, FloatArray]:
    """Train D from 0 by single steps on one class after the other.

    Parameters
    ----------
    process : TokenProcess
        Classes; their features at Z = 0 are kept.
    rate : float
        Step size.
    classes : ndarray of int, shape (N,)
        The class of each step.
    modified : bool
        Whether a feature is replaced by its column of F (F'F)^-1, so that classes decouple.

    Returns
    -------
    D : ndarray, shape (M, M)
        Decoder.
    F : ndarray, shape (M, C)
        Features.
    """
    F = features_of(process)
    into = F @ np.linalg.inv(F.T @ F) if modified else F
    D = np.zeros((process.M, process.M))
    for c in classes:
        r = np.eye(process.M)[process.label[c]] - softmax(D.T @ F[:, c])
        D += rate * np.outer(into[:, c], r)
    return D, F


def equal_overlaps(M: int, kappa: float) -> TokenProcess:
    """Every token is a next token, and all features have the same overlap.

    Parameters
    ----------
    M : int
        Tokens and classes.
    kappa : float
        Overlap.

    Returns
    -------
    TokenProcess
        Frequencies 1 everywhere, and more on the diagonal.
    """
    # rows b 1 + e_c with (2 b + M b^2) / (1 + 2 b + M b^2) = kappa
    odds = kappa / (1 - kappa)
    b = (np.sqrt(1 + M * odds) - 1) / M
    return TokenProcess(b + np.eye(M), np.zeros(M, dtype=int), np.arange(M))


@claim(
    "prop-decoder-span",
    title="The decoder is $F(F^\\top F)^{-1}W$, and what it sends down lies in the span of the features",
    kind="proposition",
    source=f"{PAPER}, Theorem 1 and its proof",
    chapter=PAGE,
    scope="random processes with C = 3 and 8 contextual tokens; 100 steps on random classes, attention fixed",
    seeds="0 to trials − 1",
    trials=(10, 4),
)
def span(trials: int) -> list[Measured]:
    """Train on single classes, then compare with projections and the shortest decoder by least squares."""
    outside, shortest, coefficients, foreign, moving = [], [], [], [], []
    for seed in range(trials):
        process = random_process(3, 8, seed)
        F = features_of(process)
        basis = np.linalg.qr(F)[0]

        def across(D: FloatArray, basis: FloatArray = basis) -> float:
            return float(np.linalg.norm(D - basis @ (basis.T @ D)) / np.linalg.norm(D))

        runs = [
            scansnap.simulate(
                process, 0.5, rate, 100, T=np.inf, batch=1, start=start, seeds=[seed], record=[100]
            )
            for rate, start in ((0.0, "zero"), (0.0, "uniform"), (0.3, "zero"))
        ]
        D, W = runs[0].D[0], runs[0].logits[0, 0]
        outside.append(across(D))
        least = np.linalg.lstsq(F.T, W, rcond=None)[0]
        shortest.append(np.linalg.norm(D - least) / np.linalg.norm(D))
        A = np.linalg.solve(F.T @ F, W)
        by_hand = residuals(W, process.label) @ A.T
        found = scansnap.decompose(process, runs[0].sent[0, 0], runs[0].z[0, 0])
        coefficients.append(np.abs(found - by_hand).max() / np.abs(by_hand).max())
        foreign.append(across(runs[1].D[0]))
        moving.append(across(runs[2].D[0]))
    return [
        Measured("largest part of D outside the span, relative", max(outside), "<=", 1e-12),
        Measured("largest relative distance from the shortest decoder", max(shortest), "<=", 1e-10),
        Measured("largest relative error of the coefficients", max(coefficients), "<=", 1e-10),
        Measured("the part outside, from a random start", min(foreign), ">", 0.1, breaks=True),
        Measured("the same if attention is trained too", min(moving), ">", 1e-4, breaks=True),
    ]


@claim(
    "lem-decoder-decoupling",
    title="Classes decouple under the modified gradient, and if all tokens are next tokens, alike",
    kind="lemma",
    source=f"{PAPER}, Lemma 3 and Remark 1",
    chapter=PAGE,
    scope="random processes, C = 3; equal overlaps 0.3 with C = M = 6, and with C = 4, M = 40",
    seeds="0 to trials − 1",
    trials=(6, 3),
)
def decoupling(trials: int) -> list[Measured]:
    """Train D itself, and compare its logits with one row for each class."""
    apart, coupled, slope = [], [], []
    for seed in range(trials):
        process = random_process(3, 8, seed)
        M, order = process.M, np.random.default_rng(seed).integers(0, 3, 150)
        h = scansnap.progress_steps(150, M, 0.5)[np.bincount(order, minlength=3)]
        expected = h[:, None] * (M * np.eye(M)[process.label] - 1)
        D, F = train_decoder(process, 0.5, order, modified=True)
        apart.append(np.abs(F.T @ D - expected).max())
        D, F = train_decoder(process, 0.5, order, modified=False)
        coupled.append(np.abs(F.T @ D - expected).max())
        z = np.zeros((1, M))
        step = 0.1 * scansnap.gradients(process, D, z).D
        change = F.T @ (D - step) - F.T @ D
        slope.append(np.abs(change - 0.1 / 3 * F.T @ F @ residuals(F.T @ D, process.label)).max())
    times = np.array([1.0, 10.0, 100.0, 1000.0])
    full = equal_overlaps(6, 0.3)
    h = scansnap.progress(times / 6, 6, 0.7)
    exact = np.abs(scansnap.flow(full, times, 1.0, 0.0).logits[:, 0, 0] - 5 * h).max()
    part = scansnap.symmetric(4, [np.sqrt(0.3)], [np.sqrt(0.7)], vocabulary=40)
    logits = scansnap.flow(part, times, 1.0, 0.0).logits[:, 0]
    own = logits[:, part.label[0]]
    h = scansnap.progress(times / 4, 40, 0.7)
    # on differences between next tokens the rate is (1 - kappa) for any C: integrate probabilities
    fine = np.linspace(0.0, 100.0, 4001)
    w = scansnap.flow(part, fine, 1.0, 0.0).logits[:, 0]
    prob = softmax(w, 1)
    pull = 1 - prob[:, part.label[0]] + prob[:, part.label[1]]
    grown = 0.7 / 4 * float(((pull[1:] + pull[:-1]) / 2 * np.diff(fine)).sum())
    difference = abs(float(w[-1, part.label[0]] - w[-1, part.label[1]]) - grown) / grown
    return [
        Measured("modified gradient: largest error of the logits", max(apart), "<=", 1e-10),
        Measured("gradient: largest error of the change of logits", max(slope), "<=", 1e-12),
        Measured("C = M, equal overlaps: largest error at the effective rate", exact, "<=", 1e-7),
        Measured("C < M: relative error of the effective rate between next tokens", difference, "<=", 1e-4),
        Measured(
            "C < M: error of the effective rate on own logits",
            np.abs(own - 39 * h).max(),
            ">",
            0.3,
            breaks=True,
        ),
        Measured("gradient: error of the decoupled logits", min(coupled), ">", 0.3, breaks=True),
    ]


@claim(
    "prop-decoder-assumption",
    title="With equal overlaps, Assumption 2 asks for $6/\\sqrt M\\le\\kappa<1/(C(C-1))$",
    kind="proposition",
    source=f"{PAPER}, Assumption 2",
    chapter=PAGE,
    scope="equal overlaps on a grid of C, M and overlap; the paper's Syn-Small and Syn-Medium at Z = 0",
)
def assumption(trials: int) -> list[Measured]:
    """Compute the eigenvalues of E from features, and compare with the two inequalities."""
    wrong = cases = kept = 0
    for C in (2, 3, 4):
        for M in (100, 200, 2000, 12000):
            for kappa in (0.02, 0.07, 0.15, 0.3, 0.45, 0.6):
                F = features_of(scansnap.symmetric(C, [np.sqrt(kappa)], [np.sqrt(1 - kappa)]))
                values = np.linalg.eigvalsh(F.T @ F - np.eye(C))
                asked = bool(np.abs(values).max() < 1 / C and np.abs(values).min() >= 6 / np.sqrt(M))
                said = bool(6 / np.sqrt(M) <= kappa < 1 / (C * (C - 1)))
                wrong += asked != said
                cases += 1
                kept += asked
    needed = np.array([36 * C**2 * (C - 1) ** 2 for C in (2, 3, 4)])
    just = [kappa_range(C, M) for C, M in zip((2, 3, 4), needed, strict=True)]
    small = scansnap.syn_small()
    G = features_of(small).T @ features_of(small)
    medium = features_of(scansnap.syn_medium(queries=10))
    largest = np.linalg.eigvalsh(medium.T @ medium - np.eye(20)).max()
    return [
        Measured("cases in which the two disagree", wrong, "==", 0, note=f"{cases} cases, {kept} satisfy it"),
        Measured("cases that satisfy the assumption", kept, ">=", 5),
        Measured("widest room at M = 36 C²(C−1)²", max(just), "<=", 1e-12),
        Measured("Syn-Small: overlap of its two classes", G[0, 1], "==", 0.722, tol=5e-4),
        Measured("Syn-Small: overlap times C", 2 * G[0, 1], ">", 1.0, breaks=True),
        Measured(
            "Syn-Small: 6/√M, larger than any eigenvalue may be", 6 / np.sqrt(34), ">", 1.0, breaks=True
        ),
        Measured("Syn-Medium, 20 classes: largest eigenvalue times C", 20 * largest, ">", 200.0, breaks=True),
    ]


def kappa_range(C: int, M: float) -> float:
    """Length of the interval of overlaps that Assumption 2 allows.

    Parameters
    ----------
    C : int
        Classes.
    M : float
        Tokens.

    Returns
    -------
    float
        Upper end minus lower end.
    """
    return float(1 / (C * (C - 1)) - 6 / np.sqrt(M))
