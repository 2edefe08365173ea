"""Claims of the chapter on synthetic data: overlaps of the classes, and three entropies."""

from __future__ import annotations

import numpy as np

from svmlib import compare, scansnap
from svmlib.arrays import FloatArray
from svmlib.scansnap import TokenProcess

from .registry import Measured, claim

PAGE = "scan_snap/experiments"
PAPER = "Scan and Snap (2023), "


def experiments() -> dict[str, TokenProcess]:
    """Return the five data sets of the paper.

    Returns
    -------
    dict of str to TokenProcess
        By the number of their classes and of their tokens.
    """
    medium = [scansnap.syn_medium(q) for q in (1, 3, 5, 10)]
    return {f"C = {p.C}, M = {p.M}": p for p in (scansnap.syn_small(), *medium)}


def lowered(process: TokenProcess, delta: float) -> FloatArray:
    """(C, M) features where all common logits have fallen by delta.

    Parameters
    ----------
    process : TokenProcess
        Classes.
    delta : float
        By how much.

    Returns
    -------
    ndarray
        Unit vectors.
    """
    z = np.where(process.common, -delta, 0.0) + np.zeros((len(process.queries), 1))
    return scansnap.features(scansnap.attention(process, z))


def assumption(F: FloatArray, M: int) -> bool:
    """Whether the eigenvalues of F F' - I lie where Assumption 2 wants them.

    Parameters
    ----------
    F : ndarray, shape (C, M)
        Features as rows.
    M : int
        Size of the vocabulary.

    Returns
    -------
    bool
        All of size at least 6 / sqrt(M), and below 1 / C.
    """
    size = np.abs(np.linalg.eigvalsh(F @ F.T - np.eye(len(F))))
    return bool((size < 1 / len(F)).all() and (size >= 6 / np.sqrt(M)).all())


@claim(
    "prop-syn-overlap",
    title="How far common logits must fall before overlaps are weak",
    kind="proposition",
    source=PAPER + "Assumption 2 and section 7",
    chapter=PAGE,
    scope="the five data sets; then 3 classes and a vocabulary around the smallest that it allows",
    seeds="common logits lowered by 0, 0.3, 1 and 3",
)
def overlap(trials: int) -> list[Measured]:
    """Gram matrices and their spectra against the closed form."""
    gram, spectrum, crossing, holds = 0.0, 0.0, [], []
    start = {}
    for name, p in experiments().items():
        C = p.C
        A, B = 10.0, float((np.linspace(0.1, 1, 10) ** 2).sum())
        for delta in (0.0, 0.3, 1.0, 3.0):
            omega = A * np.exp(-2 * delta) / (A * np.exp(-2 * delta) + B)
            G = lowered(p, delta) @ lowered(p, delta).T
            gram = max(gram, np.abs(G - (1 - omega) * np.eye(C) - omega).max())
            values = np.sort(np.linalg.eigvalsh(G - np.eye(C)))
            expected = np.append(np.full(C - 1, -omega), omega * (C - 1))
            spectrum = max(spectrum, np.abs(values - expected).max())
        start[name] = float((lowered(p, 0.0) @ lowered(p, 0.0).T)[0, 1])
        holds.append(assumption(lowered(p, 0.0), p.M))
        threshold = 0.5 * np.log((C * (C - 1) - 1) * A / B)
        for side in (-1e-6, 1e-6):
            G = lowered(p, threshold + side) @ lowered(p, threshold + side).T
            crossing.append(np.linalg.eigvalsh(G - np.eye(C)).max() < 1 / C)
    C = 3
    smallest = 36 * C**2 * (C - 1) ** 2
    share = 1 / (C * (C - 1))  # the overlap at the limit: common mass A of A + B
    inside, below = (
        scansnap.symmetric(C, [np.sqrt(0.9995 * share)], [np.sqrt(1 - 0.9995 * share)], vocabulary=M)
        for M in (smallest + 4, smallest - 4)
    )
    names = list(start)
    return [
        Measured("overlap, largest error", gram, "<=", 1e-13),
        Measured("largest error of an eigenvalue", spectrum, "<=", 1e-12),
        Measured(
            "overlap at the start, all five data sets", max(start.values()), "==", 10 / 13.85, tol=1e-12
        ),
        Measured(
            "upper bound fails below the threshold, holds above", crossing == [False, True] * 5, "==", True
        ),
        Measured(
            f"assumption holds, C = 3, M = {inside.M}", assumption(lowered(inside, 0.0), inside.M), "==", True
        ),
        Measured(
            f"the same overlap with M = {below.M}",
            assumption(lowered(below, 0.0), below.M),
            "==",
            False,
            breaks=True,
        ),
        Measured("data sets of the paper for which it holds at the start", sum(holds), "==", 0, breaks=True),
        Measured(
            f"overlap times C (C - 1) at the start, {names[0]}", 2 * start[names[0]], ">", 1.0, breaks=True
        ),
        Measured(
            f"overlap times C (C - 1) at the start, {names[-1]}",
            380 * start[names[-1]],
            ">",
            1.0,
            breaks=True,
        ),
    ]


@claim(
    "prop-syn-entropy",
    title="Three entropies of one attention",
    kind="proposition",
    source="this book; on Scan and Snap (2023), figure 6",
    chapter=PAGE,
    scope="random attention on the five data sets, and the start of the experiments",
    seeds="0 to trials − 1",
    trials=(200, 50),
)
def entropies(trials: int) -> list[Measured]:
    """Entropies computed token by token against the split."""
    whole, part, sign = 0.0, 0.0, 0
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        p = list(experiments().values())[seed % 5]
        s = scansnap.attention(p, 2 * rng.normal(size=(len(p.queries), p.M)))
        m = scansnap.common_mass(p, s)
        own, shared = (np.where(flags, s, 0.0) for flags in (p.distinct, p.common))
        H = scansnap.distinct_entropy(p, s)
        other = compare.entropy(shared / shared.sum(-1, keepdims=True))
        raw = -(own * np.log(np.where(own > 0, own, 1.0))).sum(-1)
        split = -m * np.log(m) - (1 - m) * np.log1p(-m) + m * other + (1 - m) * H
        whole = max(whole, np.abs(compare.entropy(s) - split).max())
        part = max(part, np.abs(raw - (1 - m) * (H - np.log1p(-m))).max())
        # move 1e-6 of the mass from common to distinct tokens in proportion, and look at the signs
        moved = s + 1e-6 * (own / (1 - m)[:, None] - shared / m[:, None])
        change = compare.entropy(moved) - compare.entropy(s)
        clear = np.abs(change) > 1e-10
        sign += int((np.sign(change) != np.sign(m - 1 / (1 + np.exp(H - other))))[clear].sum())
    p = scansnap.syn_small()
    start = scansnap.attention(p, np.zeros((2, p.M)))
    k = np.arange(1, 11)
    value = np.log(55) - (k * np.log(k)).sum() / 55
    return [
        Measured("error of the split, largest", whole, "<=", 1e-12),
        Measured("error of the unscaled part, largest", part, "<=", 1e-12),
        Measured("signs of the change of the whole entropy that are wrong", sign, "==", 0),
        Measured(
            "entropy on distinct tokens at the start",
            scansnap.distinct_entropy(p, start)[0],
            "==",
            value,
            tol=1e-12,
        ),
        Measured("its published value, 2.151", float(value), "==", 2.151, tol=5e-4),
    ]
