"""Claims of the chapter on low rank: what (K, Q) cannot do, what it pays, and one number as a product."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp
from scipy.special import shichi

from svmlib import compare, data, dynamics, norms
from svmlib.arrays import FloatArray, as_float
from svmlib.attention import Direct, Factored

from .descent_factored import joint
from .registry import Measured, claim

PAGE = "implicit_bias/low_rank"
OWN = "derived in the chapter"


def effective_rank(W: ArrayLike) -> FloatArray:
    r"""Exponential of the entropy of the singular values, made to sum to 1.

    It is r for r equal singular values and the others 0, and changes continuously with the matrix.

    Parameters
    ----------
    W : array_like, shape (..., a, b)
        Matrices; the answer is NaN for a zero matrix and where an entry is not finite.

    Returns
    -------
    ndarray, shape (...)
    """
    matrices = as_float(W, "W", min_ndim=2, finite=False)
    known = np.asarray((np.isfinite(matrices) & (matrices != 0).any((-2, -1), keepdims=True)).all((-2, -1)))
    filled: FloatArray = np.where(known[..., None, None], matrices, 1.0)
    sigma = np.linalg.svd(filled, compute_uv=False)
    out = np.exp(compare.entropy(sigma / sigma.sum(-1, keepdims=True)))
    return np.asarray(np.where(known, out, np.nan))


def both_random(problem: data.Problem, scale: float, m: int | None = None, seed: int = 0) -> Factored:
    """Start K and Q at independent Gaussian entries of one size.

    Parameters
    ----------
    problem : Problem
        Gives the batch and the widths of keys and queries.
    scale : float
        Standard deviation of the entries.
    m : int, optional
        Width of the factors, by default the smaller of the two widths.
    seed : int
        Seed.

    Returns
    -------
    Factored
        One draw for every instance.
    """
    rng, wide = np.random.default_rng(seed), min(problem.key_dim, problem.query_dim) if m is None else m
    K, Q = (
        scale * rng.normal(size=(*problem.batch_shape, rows, wide))
        for rows in (problem.key_dim, problem.query_dim)
    )
    return Factored(K, Q)


@claim(
    "lem-row-space",
    title=r"Absent directions stay absent: $\mathrm{rank}\,KQ^\top$ never exceeds the rank of the start",
    kind="lemma",
    source=OWN,
    chapter=PAGE,
    scope="n = 10, T = 5, d = 10; K of rank 2 and width 10, Q = 0; 300 steps of three rules",
    seeds="0 to trials − 1",
    trials=(20, 6),
)
def row_space(trials: int) -> list[Measured]:
    """Train from a K of rank 2, then train W from the same kind of start."""
    p = data.random_problem(10, 5, 10, batch=trials)
    rng = np.random.default_rng(0)
    K = 0.1 * rng.normal(size=(trials, 10, 2)) @ rng.normal(size=(trials, 2, 10))
    start = Factored(K, np.zeros_like(K))
    rules = {
        "separately normalised": dynamics.normalized(0.1),
        "jointly normalised": joint(0.1),
        "plain": dynamics.gradient_descent(1.0),
    }
    rows = []
    for name, rule in rules.items():
        W = dynamics.train(p, start, rule, 300, record=[300]).W[:, 0]
        s = np.linalg.svd(W, compute_uv=False)
        rows.append(
            Measured(
                rf"$\sigma_3/\sigma_1$ after 300 steps, largest ({name})",
                (s[:, 2] / s[:, 0]).max(),
                "<=",
                1e-12,
            )
        )
    spread = s[:, 1] / s[:, 0]
    direct = dynamics.train(p, Direct(K @ np.swapaxes(K, -1, -2)), rules["plain"], 300, record=[300])
    return [
        *rows,
        Measured(r"plain: $\sigma_2/\sigma_1$, smallest", spread.min(), ">=", 1e-6, "rank 2 is used"),
        Measured(
            "W trained from a start of rank 2: smallest rank",
            compare.rank(direct.W).min(),
            ">",
            2,
            breaks=True,
        ),
    ]


def _excess(K: FloatArray, Q: FloatArray) -> FloatArray:
    """Cost of the factors above the nuclear norm of their product."""
    return np.asarray(0.5 * (norms.FRO(K) ** 2 + norms.FRO(Q) ** 2) - norms.NUC(K @ np.swapaxes(Q, -1, -2)))


def _imbalance(K: FloatArray, Q: FloatArray) -> FloatArray:
    return np.asarray(norms.NUC(np.swapaxes(K, -1, -2) @ K - np.swapaxes(Q, -1, -2) @ Q))


@claim(
    "prop-nuclear-price",
    title=r"$0\le\frac12(\|K\|_F^2+\|Q\|_F^2)-\|KQ^\top\|_\star\le\frac12\|K^\top K-Q^\top Q\|_\star$",
    kind="proposition",
    source="inequality of Powers and Størmer; proof in the chapter",
    chapter=PAGE,
    scope="random factors, d = 6, m = 2, 6, 12; plain descent of step 0.2 on n = 10, T = 5, d = 10",
    seeds="0 to trials − 1",
    trials=(100, 30),
)
def nuclear_price(trials: int) -> list[Measured]:
    """Compare excess and imbalance on random factors, then along plain and normalised descent."""
    ratios = []
    for m in (2, 6, 12):
        rng = np.random.default_rng(m)
        K, Q = rng.normal(size=(2, trials, 6, m))
        K *= rng.uniform(0.2, 5.0, size=(trials, 1, 1))
        ratios.append(_excess(K, Q) / (0.5 * _imbalance(K, Q)))
    few = max(3, trials // 20)
    p = data.random_problem(10, 5, 10, batch=few)
    start = Factored.random(p)
    end = dynamics.train(p, start, dynamics.gradient_descent(0.2), 4000, record=[4000])
    allowed = 0.5 * _imbalance(np.asarray(start.K), np.asarray(start.Q))
    K, Q = (np.asarray(b) for b in end.weights)
    far = dynamics.train(p, start, dynamics.normalized(0.1), 2000, record=[2000])
    K2, Q2 = (np.asarray(b) for b in far.weights)
    one = np.random.default_rng(0).normal(size=(6, 6))
    sharp = _excess(one, 0 * one) / (0.5 * _imbalance(one, 0 * one))
    return [
        Measured("one factor 0: excess / bound", sharp, "==", 1.0, "the bound is attained", tol=1e-12),
        Measured("random factors: excess / bound, smallest", min(r.min() for r in ratios), ">=", 0.0),
        Measured("random factors: excess / bound, largest", max(r.max() for r in ratios), "<=", 1.0),
        Measured(
            "plain descent: excess / bound of the start, largest",
            (_excess(K, Q) / allowed).max(),
            "<=",
            1.05,
            r"equal up to order $\eta$",
        ),
        Measured(
            "plain descent: excess / nuclear norm at the end, largest",
            (_excess(K, Q) / norms.NUC(end.W[:, 0])).max(),
            "<=",
            0.02,
        ),
        Measured(
            "separately normalised: excess / bound of the start, smallest",
            (_excess(K2, Q2) / allowed).min(),
            ">",
            4.0,
            "no flow of the loss",
            breaks=True,
        ),
    ]


@claim(
    "prop-scalar-factors",
    title="One number as a product: late start, then faster for ever",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="d = m = 1, tokens ±1/2, query 1, linear loss; k(0), q(0) uniform in (0.1, 0.5)",
    seeds="0",
    trials=(10, 4),
)
def scalar_factors(trials: int) -> list[Measured]:
    """Train k and q; compare with the differential equation, the closed form, and w trained itself."""
    k, q = np.random.default_rng(0).uniform(0.1, 0.5, (2, trials))
    p = data.Problem(np.tile([[[0.5], [-0.5]]], (trials, 1, 1, 1)), np.ones((1, 1)), np.ones(1), np.ones(1))
    times = np.linspace(0, 20, 41)
    flows = np.stack([_scalar_flow(a, w0, times) for a, w0 in zip(k**2 - q**2, k * q, strict=True)])
    start, errors = Factored(k[:, None, None], q[:, None, None]), []
    for rate in (0.1, 0.01):
        at = np.round(times / rate).astype(int)
        run = dynamics.train(p, start, dynamics.gradient_descent(rate), at[-1], record=at, loss="linear")
        errors.append(float(np.abs(run.W[..., 0, 0] - flows).max()))
    root = np.sqrt(k * q)
    even = np.stack([_scalar_flow(0.0, w0, times) for w0 in root**2])
    exact = scalar_time(even) - scalar_time(even[:, :1])
    at = np.round(times / 0.01).astype(int)
    alone = dynamics.train(
        p, Direct(start.matrix()), dynamics.gradient_descent(0.01), at[-1], record=at, loss="linear"
    )
    lead = even - alone.W[..., 0, 0]
    grid = np.linspace(0.02, 5, 2000)
    delay = (scalar_time(grid) - scalar_time(grid[:1])) - 2 * (
        grid + np.sinh(grid) - grid[0] - np.sinh(grid[0])
    )
    return [
        Measured(r"error of the equation for $w$, $\eta=0.1$", errors[0], "<=", 0.1, "largest over 41 times"),
        Measured(
            r"error at $\eta=0.1$ over error at $\eta=0.01$",
            errors[0] / errors[1],
            "in",
            (8.0, 12.0),
            r"order $\eta$",
        ),
        Measured("error of the closed form of the time, balanced", np.abs(exact - times).max(), "<=", 1e-6),
        Measured(
            "lead of balanced factors over $w$ trained itself, $t=0.5$", lead[:, 1].max(), "<", 0.0, "behind"
        ),
        Measured("the same, $t=20$", lead[:, -1].min(), ">", 0.0, "ahead"),
        Measured("where the delay is largest", grid[delay.argmax()], "==", 0.5, tol=0.005),
        Measured(
            r"start at $w(0)=\frac12$ or above: largest delay",
            (delay - delay[np.searchsorted(grid, 0.5)])[grid > 0.505].max(),
            "<",
            0.0,
            "ahead at once",
            breaks=True,
        ),
    ]


def _scalar_flow(kappa: float, w0: float, times: FloatArray) -> FloatArray:
    solved = solve_ivp(
        lambda t, w: np.sqrt(kappa**2 + 4 * w**2) / (2 + 2 * np.cosh(w)),
        (times[0], times[-1]),
        [w0],
        t_eval=times,
        rtol=1e-10,
        atol=1e-12,
    )
    return np.asarray(solved.y[0])


def scalar_time(w: ArrayLike) -> FloatArray:
    r"""Training time of balanced scalar factors up to a constant, :math:`\log w+\mathrm{Chi}(w)`.

    For one pair of tokens with scores ±1/2, linear loss: the flow reaches w from w(0) after the difference of
    two values. Training w itself takes :math:`2(w+\sinh w)`.

    Parameters
    ----------
    w : array_like
        Positive weights.

    Returns
    -------
    ndarray
        Times.
    """
    values = as_float(w, "w")
    return np.asarray(np.log(values) + shichi(values)[1])
