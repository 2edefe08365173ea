"""Claims of the chapter on low rank: the program in the factors, narrow factors, ranks of solutions."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from svmlib import compare, data, dynamics, norms, svm
from svmlib.arrays import BoolArray, FloatArray, IntArray
from svmlib.errors import DataError
from svmlib.experiments import p1_rank
from svmlib.experiments.rank import published_ranks

from .low_rank import OWN, PAGE, both_random
from .registry import Measured, claim


@dataclass(frozen=True, slots=True, eq=False)
class NarrowMinimum:
    """A local minimum of the SVM over matrices k q' of rank one."""

    signs: IntArray
    """(n,) signs of the numbers z_i'q, the first one +1."""
    k: FloatArray
    """(e,) key factor."""
    q: FloatArray
    """(q,) query factor, of the same norm."""
    dual: FloatArray
    """(e, q) matrix G of its multipliers, Gq = k and G'k = q up to ``residual``."""
    residual: float
    """Largest violation of these equations."""

    @property
    def W(self) -> FloatArray:
        """(e, q) the matrix k q'."""
        return np.outer(self.k, self.q)

    @property
    def cost(self) -> float:
        """Half the squared norm of the factors, which is the nuclear norm of k q'."""
        return float(0.5 * (self.k @ self.k + self.q @ self.q))


def narrow_minima(problem: data.Problem) -> list[NarrowMinimum]:
    r"""All local minima of the SVM of the optimal tokens over factors of width one, up to sign.

    For each choice of signs :math:`s_i=\mathrm{sign}\,z_i^\top q` the program is convex after taking
    logarithms, so it has one minimum or no feasible point.

    Parameters
    ----------
    problem : Problem
        One small problem: there are 2^(n-1) choices. Every sequence has two tokens or more.

    Returns
    -------
    list of NarrowMinimum
        Sorted by cost.

    Raises
    ------
    DataError
        If the problem has batch axes or a sequence of one token.
    """
    if problem.batch_shape:
        raise DataError(f"narrow_minima takes one problem, got batch {problem.batch_shape}: use p[i].")
    if not _others(problem).any(-1).all():
        raise DataError("A sequence of one token sets no constraint and no sign: leave it out.")
    found = []
    for rest in itertools.product((1.0, -1.0), repeat=problem.n - 1):
        signs = np.array([1.0, *rest])
        delta, z = _pairs(problem, signs)
        k, q = _inside(delta), _inside(z)
        if k is not None and q is not None:
            x, lam = _barrier(delta, z, k, q)
            k, q = x[: problem.key_dim], x[problem.key_dim :]
            G = np.einsum("j,jd,je->de", lam, delta, z)  # the signs of both factors cancel
            residual = np.linalg.norm(np.r_[G @ q - k, G.T @ k - q]) / np.linalg.norm(x)
            found.append(NarrowMinimum(signs.astype(np.int64), k, q, G, float(residual)))
    return sorted(found, key=lambda m: m.cost)


def _pairs(problem: data.Problem, signs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Differences and queries of all constraints, each times the sign of its sequence."""
    others = _others(problem)
    delta = (signs[:, None, None] * problem.differences())[others]
    return delta, np.repeat(signs[:, None] * problem.z, others.sum(-1), axis=0)


def _others(problem: data.Problem) -> BoolArray:
    """Tokens that are present and not the optimal one."""
    others: BoolArray = np.arange(problem.T) != problem.optimal[:, None]
    return others if problem.mask is None else others & problem.mask


def _inside(rows: FloatArray) -> FloatArray | None:
    """A vector whose inner products with all rows are at least 1, or None."""
    width = rows.shape[1]
    answer = linprog(np.zeros(width), A_ub=-rows, b_ub=-np.ones(len(rows)), bounds=(None, None))
    return np.asarray(answer.x) if answer.status == 0 else None


def _barrier(delta: FloatArray, z: FloatArray, k: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Minimise half the squared norm of (k, q) under log(delta k) + log(z q) >= 0; factors and multipliers.

    Newton's method on a logarithmic barrier, from a strictly feasible point of this convex program.
    """
    d = len(k)
    scale = np.sqrt(np.linalg.norm(k) / np.linalg.norm(q))
    x = 1.5 * np.r_[k / scale, q * scale]

    def value(x: FloatArray, mu: float) -> float:
        left, right = delta @ x[:d], z @ x[d:]
        if min(left.min(), right.min()) <= 0 or (left * right).min() <= 1:
            return np.inf
        return float(0.5 * x @ x - mu * np.log(np.log(left * right)).sum())

    for mu in np.geomspace(1.0, 1e-8, 33):
        for _ in range(50):
            left, right = delta @ x[:d], z @ x[d:]
            g = np.log(left * right)
            slope = np.c_[delta / left[:, None], z / right[:, None]]
            pull = x - mu * (slope / g[:, None]).sum(0)
            curve = np.eye(len(x)) + mu * (slope / g[:, None] ** 2).T @ slope
            curve[:d, :d] += mu * (slope[:, :d] / g[:, None]).T @ slope[:, :d]
            curve[d:, d:] += mu * (slope[:, d:] / g[:, None]).T @ slope[:, d:]
            step = -np.linalg.solve(curve, pull)
            length, now = 1.0, value(x, mu)
            while (
                value(x + length * step, mu) > now + 1e-4 * length * (pull @ step) + 1e-14 * abs(now)
                and length > 1e-12
            ):
                length /= 2
            x = x + length * step
            if -(pull @ step) < 1e-16 * (1 + now**2):
                break
    return x, mu / np.log((delta @ x[:d]) * (z @ x[d:]))


def _small_starts(m: int, runs: int) -> tuple[data.Problem, dynamics.Run]:
    """The second planar instance, and runs of width m from many small starts."""
    q = data.planar(2)
    many = q.expand(runs)
    start = both_random(many, 0.1, m)
    return q, dynamics.train(many, start, dynamics.normalized(0.1), 2000, record=[2000])


@claim(
    "prop-wide-factors",
    title=r"The factored program: $\|G\|_{\mathrm{op}}\le1$ tells solutions, wide factors have no traps",
    kind="proposition",
    source="argument of Burer and Monteiro; proof in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 5, d = 8; the second planar instance with widths 1 and 3, small random starts",
    seeds="0 to trials − 1",
    trials=(60, 24),
)
def wide_factors(trials: int) -> list[Measured]:
    """Put solutions and rank-one minima into the conditions, follow the proof's path, train both widths."""
    p = data.random_problem(6, 5, 8, batch=max(5, trials // 6))
    s = svm.attention_svm(p, norm="nuc")
    u, sigma, vt = np.linalg.svd(s.W)
    root = np.sqrt(sigma)[:, None, :]
    K, Q = u * root, np.swapaxes(vt, -1, -2) * root
    G = np.einsum("bnt,bntd,bne->bde", s.multipliers, p.differences(), p.z)
    q, run = _small_starts(1, trials)
    narrow, best = narrow_minima(q), svm.attention_svm(q, norm="nuc")
    u, sigma, vt = np.linalg.svd(best.W)
    drop, margin = [], []
    for point in narrow:
        for theta in (1e-4, 1e-2, 0.3):
            K1 = np.c_[np.sqrt(1 - theta) * point.k, np.sqrt(theta) * u * np.sqrt(sigma)]
            Q1 = np.c_[np.sqrt(1 - theta) * point.q, np.sqrt(theta) * vt.T * np.sqrt(sigma)]
            cost = 0.5 * (norms.FRO(K1) ** 2 + norms.FRO(Q1) ** 2)
            drop.append((point.cost - cost) / (theta * (point.cost - best.value)))
            margin.append(compare.margins(K1 @ Q1.T, q.X, q.z, q.optimal).min())
    reached = _relative_margins(q, run.W[:, 0], float(best.margin))
    wide = _relative_margins(q, _small_starts(3, trials)[1].W[:, 0], float(best.margin))
    return [
        Measured(
            "balanced factors of a solution: residual of $GQ=K$, $G^\\top K=Q$, relative",
            (norms.FRO(G @ Q - K) + norms.FRO(np.swapaxes(G, -1, -2) @ K - Q)).max() / norms.FRO(K).min(),
            "<=",
            1e-6,
        ),
        Measured("its $\\|G\\|_{\\mathrm{op}}$, largest", norms.SPEC(G).max(), "<=", 1 + 1e-9),
        Measured("rank-one minima: the same residual", max(map(_residual, narrow)), "<=", 1e-5),
        Measured(
            "their $\\|G\\|_{\\mathrm{op}}$, smallest", min(norms.SPEC(m.dual) for m in narrow), ">", 1.05
        ),
        Measured("path from them, width 3: smallest margin", min(margin), ">=", 1 - 1e-6),
        Measured("its fall of the cost over the proof's, smallest", min(drop), "==", 1.0, tol=1e-5),
        Measured("trained with width 3: smallest margin over the best", wide.min(), ">=", 0.9),
        Measured(
            "trained with width 1: largest margin over the best", reached.max(), "<=", 0.95, breaks=True
        ),
    ]


def _residual(m: NarrowMinimum) -> float:
    """Violation of Gq = k and G'k = q, relative."""
    return float(np.linalg.norm(np.r_[m.dual @ m.q - m.k, m.dual.T @ m.k - m.q]) / np.sqrt(m.cost))


def _relative_margins(p: data.Problem, W: FloatArray, best: float) -> FloatArray:
    """Smallest margin of the optimal tokens per unit of nuclear norm, relative to the largest possible."""
    margins = compare.margins(W, p.X, p.z, p.optimal).min((-2, -1))
    return np.asarray(margins / norms.NUC(W) / best)


@claim(
    "prop-width-one",
    title="Width one: one local minimum for each sign pattern that can be had, and no other",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="n = T = d = 3, 12 small starts each; the second planar instance, small random starts",
    seeds="0 to trials − 1",
    trials=(40, 20),
)
def width_one(trials: int) -> list[Measured]:
    """Search for minima that are not in the list; then see where training ends."""
    p = data.random_problem(3, 3, 3, batch=max(4, trials // 5))
    p = p[svm.feasible(p)]
    runs = data.Problem(*(np.repeat(a, 12, axis=0) for a in (p.X, p.z, p.y, np.asarray(p.v))))
    run = dynamics.train(runs, both_random(runs, 0.1, 1), dynamics.normalized(0.1), 2000, record=[2000])
    best = (run.selected == runs.optimal).all(-1)
    lists = [narrow_minima(p[b]) for b in range(len(p.X))]
    ends = np.array(
        [max(compare.correlation(run.W[b, 0], m.W) for m in lists[b // 12]) for b in np.flatnonzero(best)]
    )
    planar, run = _small_starts(1, trials)
    corr = np.stack([compare.correlation(run.W[:, 0], m.W) for m in narrow_minima(planar)])
    share = (corr[1] > corr[0]).mean()
    _, two = _small_starts(2, trials)
    best = svm.attention_svm(planar, norm="nuc").margin
    reached = _relative_margins(planar, two.W[:, 0], float(best))
    return [
        Measured("minima in the lists of random instances", sum(map(len, lists)), ">=", 5),
        Measured("runs that select their optimal tokens", len(ends), ">=", 20),
        Measured(
            "their correlation with the nearest minimum, smallest decile", np.quantile(ends, 0.1), ">=", 0.97
        ),
        Measured(
            "planar: correlation of runs with the nearest of the two, smallest", corr.max(0).min(), ">=", 0.99
        ),
        Measured("planar: share of runs at the worse one", share, "in", (0.1, 0.6)),
        Measured("width 2: smallest margin over the largest possible", reached.min(), ">=", 0.9, breaks=True),
    ]


@claim(
    "prop-fro-rank",
    title=r"$\mathrm{rank}\,W^{\mathrm{mm}}\le\min(|I|,d)$, $I$ the sequences with a positive multiplier",
    kind="proposition",
    source="proof in the chapter; Tarzanagh et al. (2023a), figure on ranks",
    chapter=PAGE,
    scope="T = 5; n = 5, 10, 15; d = 2 to 15; the paper's random data",
    seeds="0 to trials − 1",
    trials=(50, 25),
)
def frobenius_rank(trials: int) -> list[Measured]:
    """Ranks of certified solutions, shares without one, and what the published counting makes of both."""
    r = p1_rank(trials=trials, sizes=((5, 5), (10, 5), (15, 5)), widths=(2, 3, 4, 5, 10, 15))
    ok, rank, width = r["solved"], r["rank_fro"], np.asarray(r["d"])[None, :, None]
    most = np.minimum(r["involved"], width)
    counted = np.where(ok, rank, np.linalg.matrix_rank(None)).mean(-1)  # type: ignore[arg-type]
    plot = published_ranks()["fro"][:, [1, 2, 3, 4, 5, 6]]
    nuclear = [float(r["rank_nuc"][i, j].mean()) for i, j in ((0, 4), (1, 4), (2, 5))]
    used = r["rank_nuc"] * (r["rank_nuc"] + 1) / 2 / np.maximum(r["support"], 1)
    share = 1 - r["feasible"].mean(-1)
    read = np.array([[0.75, 0.15, 0.0, 0.0], [0.9, 0.95, 0.2, 0.0], [1.0, 1.0, 0.95, 0.0]])
    return [
        Measured("largest rank above the bound", (rank - most)[ok].max(), "<=", 0),
        Measured("share of feasible instances that attain it", (rank == most)[ok].mean(), ">=", 0.99),
        Measured("nuclear: mean rank, $n=5$, $d=10$", nuclear[0], "==", 2.5, tol=0.5),
        Measured("nuclear: mean rank, $n=d=10$", nuclear[1], "==", 3.7, tol=0.6),
        Measured("nuclear: mean rank, $n=d=15$", nuclear[2], "==", 4.8, tol=0.8),
        Measured("nuclear: $r(r+1)/2$ over support tokens, largest", used[ok].max(), "<=", 1.0),
        Measured("nuclear: smallest gap of the spectrum", smallest_gap(r["kept"], r["dropped"]), ">=", 1e6),
        Measured(
            "share of infeasible instances, $d=2$ to 5: largest distance from 20 seeds",
            np.abs(share[:, :4] - read).max(),
            "<=",
            0.15 + 1.0 / np.sqrt(trials),
        ),
        Measured(
            "infeasible counted as rank 1: largest distance from the published mean",
            np.abs(counted - plot).max(),
            "<=",
            2.0 / np.sqrt(trials) + 0.15,
            "reading error and sampling",
        ),
        Measured(
            "not counted so: the same distance",
            np.nanmax(np.abs(mean_over(rank, ok) - plot)),
            ">",
            1.0,
            breaks=True,
        ),
    ]


def smallest_gap(kept: FloatArray, dropped: FloatArray) -> float:
    """Smallest ratio of what counts to what does not, over instances that have both; zeros read as 1e-17.

    Parameters
    ----------
    kept, dropped : ndarray
        Smallest singular value that counts and largest that does not, relative; NaN where there is none.

    Returns
    -------
    float
        Width of the gap as a factor.
    """
    known = np.isfinite(kept) & np.isfinite(dropped)
    return float((kept[known] / np.maximum(dropped[known], 1e-17)).min())


def mean_over(values: FloatArray, where: FloatArray) -> FloatArray:
    """Mean over the last axis of the entries that count; NaN where none does.

    Parameters
    ----------
    values : ndarray, shape (..., trials)
        Numbers.
    where : ndarray of bool, shape (..., trials)
        Which of them count.

    Returns
    -------
    ndarray, shape (...)
    """
    count = np.asarray(where).sum(-1)
    total = np.where(where, values, 0).sum(-1)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))
