"""Claims of the chapter on long sequences: how far a finite sequence is from the limit."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln
from scipy.stats import binom

from svmlib import scansnap
from svmlib.arrays import FloatArray, as_float
from svmlib.errors import DataError, ShapeError
from svmlib.scansnap import TokenProcess

from .long_sequences import PAGE, PAPER, by_counts, lemma_formula
from .registry import Measured, claim

LENGTHS = 2 ** np.arange(6, 15)


class Limit(NamedTuple):
    """Attention of a class in the limit, and how fast sequences come near it."""

    s: FloatArray  # (M,) attention by token type
    f: FloatArray  # (M,) the same, of length one
    types: float  # effective number of token types, the sum of f^2 / P
    spread_f: float  # limit of T E|f_T - f|^2
    spread_s: float  # limit of T E|s_T - s|^2
    bias: FloatArray  # (M,) limit of T (E f_T - f)
    reach: float  # largest f / P


def limit(P: ArrayLike, z: ArrayLike) -> Limit:
    """Compute the limit of long sequences and the constants of its error.

    Parameters
    ----------
    P : array_like, shape (M,)
        Frequencies of contextual tokens, with sum 1.
    z : array_like, shape (M,)
        Attention logits of the query token.

    Returns
    -------
    Limit
        Attention and constants.

    Raises
    ------
    DataError
        If P is negative somewhere or does not sum to 1.
    ShapeError
        If z has another shape.
    """
    P = as_float(P, "P")
    z = as_float(z, "z", last=P.shape, meaning="one logit for each token of P")
    if (P < 0).any() or abs(P.sum() - 1.0) > 1e-6:
        raise DataError(f"P must hold frequencies with sum 1, got the sum {P.sum():.6g}: divide by it.")
    s = by_counts(P, z)
    f = s / np.linalg.norm(s)
    known = P > 0
    q, tilt = np.zeros_like(P), np.zeros_like(P)
    q[known], tilt[known] = f[known] ** 2 / P[known], s[known] ** 2 / P[known]
    spread = float(q @ (1 - f**2))
    across = q * f - f * (f @ (q * f))
    return Limit(
        s,
        f,
        float(q.sum()),
        spread,
        float(tilt @ (1 - 2 * s + s @ s)),
        -across - 0.5 * spread * f,
        float((f[known] / P[known]).max()),
    )


class Errors(NamedTuple):
    """Distances from the limit at lengths 2^6 to 2^14."""

    frequencies: FloatArray  # (lengths, sequences)
    worst: FloatArray  # largest error of one frequency
    s: FloatArray
    f: FloatArray
    lifted: FloatArray  # of the frequencies times e^z, relative to the norm in the limit
    D: FloatArray  # Frobenius norm of the difference of the gradients
    z: FloatArray
    limit: Limit
    norm_D: float  # operator norm of the decoder


@cache
def errors(size: int, seed: int = 0, repeat: int = 1, scale: float = 1.0) -> Errors:
    """Measure how far sequences of class 0 of Syn-Small are from the limit, at Gaussian weights.

    Parameters
    ----------
    size : int
        Sequences of each length.
    seed : int
        Seed of weights and sequences.
    repeat : int
        How often each drawn token stands in a row; more than once, tokens are not independent.
    scale : float
        Size of the decoder's entries.

    Returns
    -------
    Errors
        Lengths 2^6 to 2^14.
    """
    one = scansnap.syn_small()
    process = TokenProcess(one.P[:1], one.query[:1], one.label[:1])
    P, label, M = process.P[0], int(process.label[0]), process.M
    rng = np.random.default_rng([seed, repeat])
    z, D = 0.5 * rng.normal(size=M), scale * rng.normal(size=(M, M))
    goal = limit(P, z)
    down, row = lemma_formula(goal.s, D, label)
    lift = np.exp(z)
    columns: list[list[FloatArray]] = []
    for T in LENGTHS:
        counts = process.sample(rng, size, int(T) // repeat)[1].astype(np.float64)
        p = counts / counts.sum(1, keepdims=True)
        s = by_counts(p, z)
        slopes = lemma_formula(s, D, label)
        differences = (
            p - P,
            s - goal.s,
            scansnap.features(s) - goal.f,
            lift * (p - P) / np.linalg.norm(lift * P),
            (slopes[0] - down).reshape(size, -1),
            slopes[1] - row,
        )
        columns.append([np.abs(p - P).max(1), *(np.sqrt((a**2).sum(1)) for a in differences)])
    worst, frequencies, at_s, at_f, lifted, at_D, at_z = (np.array(c) for c in zip(*columns, strict=True))
    norm = float(np.linalg.norm(D, 2))
    return Errors(frequencies, worst, at_s, at_f, lifted, at_D, at_z, goal, norm)


def slope(T: ArrayLike, y: ArrayLike) -> float:
    """Slope of a straight line through two logarithms.

    Parameters
    ----------
    T, y : array_like, shape (k,)
        Positive numbers.

    Returns
    -------
    float
        The exponent of y in T.
    """
    return float(np.polyfit(np.log(T), np.log(y), 1)[0])


def rms(a: FloatArray) -> FloatArray:
    """Root mean square over the sequences.

    Parameters
    ----------
    a : ndarray, shape (..., sequences)
        Numbers.

    Returns
    -------
    ndarray, shape (...)
        Their root mean squares.
    """
    return np.asarray(np.sqrt((a**2).mean(-1)))


def one_type_risk() -> float:
    """Compute how likely the frequency of one type with P = 1/2 leaves its radius, without sampling.

    Returns
    -------
    float
        The probability over its bound δ, largest over T from 1 to 2^14 and δ of 0.05 and 0.9.
    """
    T, delta = np.array([1, 2, *LENGTHS])[:, None], np.array([0.05, 0.9])
    radius = np.sqrt(np.log(2 / delta) / (2 * T))
    return float((2 * binom.cdf(np.ceil(T * (0.5 - radius)) - 1, T, 0.5) / delta).max())


@claim(
    "thm-long-limit",
    title="Sequences approach the limit like $T^{-1/2}$, with constants",
    kind="theorem",
    source=f"{PAPER}, Lemmas 2 and 18, for the frequencies; attention and gradients: proof in the chapter",
    chapter=PAGE,
    scope="class 0 of Syn-Small, Gaussian weights (logits with deviation 1/2); T from 2^6 to 2^14; as many "
    "sequences of each length as trials, at least 60",
    seeds="0",
    trials=(300, 60),
)
def long_limit(trials: int) -> list[Measured]:
    """Draw sequences of growing length and compare attention and gradients with the limit."""
    # mean squares of fewer than 60 sequences scatter by more than the tenth that is tested
    e, dependent = errors(max(trials, 60)), errors(max(trials // 4, 20), repeat=8)
    weak = errors(60, scale=0.01)
    goal, T = e.limit, LENGTHS[:, None]
    long = T[:, 0] >= 1024
    mean_f, mean_s = (e.f**2 * T)[long].mean(), (e.s**2 * T)[long].mean()
    # the factor 2 is needed: one drawn token of a type that has no attention
    rare = limit([1 - 1e-4, 1e-4], [0.0, -12.0])
    one = np.array([1 - 1e-4, 1e-4]) @ (2 - 2 * rare.f) / (2 * (rare.types - 1))
    delta, tokens = 0.05, int((goal.s > 0).sum())
    all_at_once = np.sqrt(np.log(2 * tokens / delta) / (2 * T))
    high = np.sqrt(2 / T) * (np.sqrt(goal.types - 1) + goal.reach * np.sqrt(np.log(1 / delta)))
    ratio_D = [x.D / ((np.sqrt(2) + x.norm_D / 2) * x.f) for x in (e, weak)]
    ratio_z = [x.z / ((3 * np.sqrt(2) * x.norm_D + x.norm_D**2 / 2) * x.f) for x in (e, weak)]
    fit = {n: slope(LENGTHS, rms(getattr(e, n))) for n in ("frequencies", "s", "f", "D", "z")}
    names = {"frequencies": "$\\hat P$", "s": "$s$", "f": "$f$", "D": "$\\nabla_D$", "z": "$\\nabla_z$"}
    return [
        *(Measured(f"error of {names[n]}: slope in T", fit[n], "==", -0.5, tol=0.05) for n in fit),
        Measured("$T\\,E\\|f_T-f\\|^2$ over its limit, T ≥ 1,024", mean_f / goal.spread_f, "in", (0.9, 1.1)),
        Measured("$T\\,E\\|s_T-s\\|^2$ over its limit, T ≥ 1,024", mean_s / goal.spread_s, "in", (0.9, 1.1)),
        Measured(
            "$T\\,E\\|f_T-f\\|^2$ over $2(L_{\\mathrm{eff}}-1)$, largest over T",
            float((e.f**2 * T).mean(1).max()) / (2 * (goal.types - 1)),
            "<=",
            1.0,
        ),
        Measured(
            "error of $f$ over its bound for each sequence: largest",
            (e.f / (np.sqrt(2) * e.lifted)).max(),
            "<=",
            1.0,
        ),
        Measured(
            "one token, types of $P=10^{-4}$ and the rest: mean square over its bound", one, "in", (0.99, 1.0)
        ),
        # a small decoder shows the first terms of the bounds, a large one the second
        Measured("$\\nabla_D$ over its bound, largest", ratio_D[0].max(), "in", (0.1, 1.0)),
        Measured("the same, decoder 100 times smaller", ratio_D[1].max(), "in", (0.5, 1.0)),
        Measured("$\\nabla_z$ over its bound, largest", ratio_z[0].max(), "in", (0.01, 1.0)),
        Measured("the same, decoder 100 times smaller", ratio_z[1].max(), "in", (0.02, 1.0)),
        *(
            Measured(
                f"three types, exact, T = 256: constant of {k}, error relative to its limit", v, "<=", 0.03
            )
            for k, v in _constants(range(4)).items()
        ),
        Measured("one type, $P=1/2$: exact risk over δ, largest", one_type_risk(), "in", (0.1, 1.0)),
        Measured(
            "share of sequences beyond the radius of all tokens, δ = 0.05",
            (e.worst > all_at_once).mean(),
            "<=",
            delta,
        ),
        Measured("share of sequences beyond the bound on $f$, δ = 0.05", (e.f > high).mean(), "<=", delta),
        Measured("error of $f$ over that bound, largest", (e.f / high).max(), "in", (0.2, 1.0)),
        Measured(
            "each token stands eight times in a row: $T\\,E\\|f_T-f\\|^2$ over the limit",
            (dependent.f**2 * T)[long].mean() / dependent.limit.spread_f,
            ">",
            5.0,
            breaks=True,
        ),
    ]


def enumerate_counts(P: FloatArray, T: int) -> tuple[FloatArray, FloatArray]:
    """All counts of three token types in T draws, and their probabilities.

    Parameters
    ----------
    P : ndarray, shape (3,)
        Frequencies.
    T : int
        Draws.

    Returns
    -------
    counts, probability : ndarray, shapes (m, 3) and (m,)
        Multinomial distribution.
    """
    i, j = (a.ravel() for a in np.meshgrid(*[np.arange(T + 1)] * 2, indexing="ij"))
    counts = np.stack([i, j, T - i - j], 1)[i + j <= T].astype(float)
    log_p = gammaln(T + 1) - gammaln(counts + 1).sum(1) + counts @ np.log(P)
    return counts, np.exp(log_p)


class Exact(NamedTuple):
    """Errors at several lengths, added up over all counts."""

    limit: Limit
    total: FloatArray  # (lengths,) sum of the probabilities
    mean: FloatArray  # (lengths, 3) of f minus its limit
    square: FloatArray  # (lengths,) mean squared distance of f from its limit
    square_s: FloatArray  # (lengths,) the same of s
    slope_D: FloatArray  # (lengths,) norm of the mean difference of the gradients
    slope_z: FloatArray


def exact_errors(seed: int, lengths: ArrayLike) -> Exact:
    """Compute errors of a random class with three token types and Gaussian weights without sampling.

    Parameters
    ----------
    seed : int
        Seed of frequencies and weights.
    lengths : array_like of int, shape (k,)
        Numbers of contextual tokens.

    Returns
    -------
    Exact
        One row for each length.
    """
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(3, 8.0))
    z, D = 0.5 * rng.normal(size=3), rng.normal(size=(3, 3))
    goal = limit(P, z)
    slopes, rows = lemma_formula(goal.s, D, 0), []
    for T in np.atleast_1d(lengths):
        if T < 1:
            raise ShapeError(f"lengths must be at least one token, got {T}.")
        counts, probability = enumerate_counts(P, int(T))
        s = by_counts(counts, z)
        off = scansnap.features(s) - goal.f
        down, row = lemma_formula(s, D, 0)
        rows.append(
            (
                probability.sum(),
                probability @ off,
                probability @ (off**2).sum(1),
                probability @ ((s - goal.s) ** 2).sum(1),
                np.linalg.norm(np.tensordot(probability, down, 1) - slopes[0]),
                np.linalg.norm(probability @ row - slopes[1]),
            )
        )
    return Exact(goal, *(np.array(c) for c in zip(*rows, strict=True)))


def _constants(seeds: Iterable[int]) -> dict[str, float]:
    """Largest relative distances of T times the mean squares from their limits, at T = 256."""
    found = [exact_errors(seed, [256]) for seed in seeds]
    return {
        "$f$": max(abs(256 * e.square[0] / e.limit.spread_f - 1.0) for e in found),
        "$s$": max(abs(256 * e.square_s[0] / e.limit.spread_s - 1.0) for e in found),
    }


@claim(
    "prop-long-mean",
    title="Means over many sequences are off by order $1/T$",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="three token types, random frequencies and weights; sums over all counts, T from 64 to 256",
    seeds="0 to trials − 1",
    trials=(12, 4),
)
def mean_over_sequences(trials: int) -> list[Measured]:
    """Add up all possible counts with their probabilities: no sampling error."""
    T = np.array([64, 128, 256])
    found = [exact_errors(seed, T) for seed in range(trials)]
    off = np.array(
        [
            np.linalg.norm(T[:, None] * e.mean - e.limit.bias, axis=1) / np.linalg.norm(e.limit.bias)
            for e in found
        ]
    )
    powers = [slope(T, y) for e in found for y in (e.slope_D, e.slope_z)]
    total = np.array([e.total for e in found])
    return [
        Measured(
            "probabilities of all counts: distance of the sum from 1", np.abs(total - 1).max(), "<=", 1e-10
        ),
        Measured(
            "$T(E f_T-f)$ at T = 256: largest relative distance from its limit", off[:, -1].max(), "<=", 0.03
        ),
        Measured(
            "that distance at T = 128 over that at 256, median",
            np.median(off[:, 1] / off[:, 2]),
            "==",
            2.0,
            tol=0.25,
        ),
        Measured("mean gradients: median slope in T", np.median(powers), "==", -1.0, tol=0.06),
    ]
