"""Claims of the chapter on the attention SVM: rank, agreement of the norms, symmetries, other tokens."""

from __future__ import annotations

import itertools

import numpy as np

from svmlib import compare, data, norms, selection, svm
from svmlib.arrays import FloatArray, IntArray

from .attention_svm import PAGE, PAPER, combine, relative, solved
from .registry import Measured, claim


def _outside(W: FloatArray, vectors: FloatArray) -> float:
    """Part of W's rows that lies outside the span of the given vectors, relative to W."""
    basis = np.linalg.qr(vectors.T)[0]
    return float(np.linalg.norm(W - W @ basis @ basis.T) / np.linalg.norm(W))


@claim(
    "lem-rank",
    title=r"Rank at most $n$; rows in the span of the queries, columns in that of token differences",
    kind="lemma",
    source=f"{PAPER}, Lemma 1; proof in the chapter",
    chapter=PAGE,
    scope="n = 3, T = 4, d = 12 with a solver that knows nothing of the spans; ranks at T = 5, n = 5 to 15",
    seeds="0 to trials − 1",
    trials=(12, 6),
)
def rank(trials: int) -> list[Measured]:
    """Solve without the reduction, then count singular values of certified solutions."""
    rows = []
    for name in ("fro", "nuc"):
        right = left = 0.0
        for seed in range(3):
            p = data.random_problem(3, 4, 12, seed=seed)
            W = svm.attention_svm_conic(p, norm=name).W
            delta = p.differences()[np.arange(p.T) != p.optimal[:, None]]
            right, left = max(right, _outside(W, p.z)), max(left, _outside(W.T, delta))
        rows += [
            Measured(f"part of rows outside the queries' span, relative ({name})", right, "<=", 1e-4),
            Measured(f"part of columns outside the differences' span, relative ({name})", left, "<=", 1e-4),
        ]
    for n, d, low, high in ((5, 10, 2.0, 3.0), (10, 10, 3.1, 4.3), (15, 15, 4.0, 5.6)):
        _, s = solved(n, 5, d, trials, "fro")
        _, t = solved(n, 5, d, trials, "nuc")
        rows += [
            Measured(f"largest rank, n = {n}, d = {d} (fro)", s.rank.max(), "<=", n),
            Measured(f"mean rank, n = {n}, d = {d} (nuc)", t.rank.mean(), "in", (low, high)),
        ]
    p, s = solved(5, 5, 10, trials, "fro")
    basis = np.linalg.qr(np.swapaxes(p.z, -1, -2))[0]
    unseen = np.eye(10) - basis @ np.swapaxes(basis, -1, -2)  # sends every query to 0: no margin changes
    more = s.W + norms.SPEC(s.W)[:, None, None] * unseen
    rows.append(
        Measured(
            "feasible, not of smallest norm: smallest rank at n = 5",
            compare.rank(more).min(),
            ">",
            5,
            breaks=True,
        )
    )
    return rows


@claim(
    "prop-nuclear-rank",
    title=r"Some nuclear solution has $r(r+1)/2$ at most its number of support tokens",
    kind="proposition",
    source="argument of Barvinok and of Pataki for semidefinite programs; proof in the chapter",
    chapter=PAGE,
    scope="random instances, T = 2 and 5, n = 5 to 15; then an instance with many solutions",
    seeds="0 to trials − 1",
    trials=(12, 6),
)
def nuclear_rank(trials: int) -> list[Measured]:
    """Compare ranks and support tokens; then take a solution of needlessly high rank."""
    used = []
    for n, T, d in ((8, 2, 10), (5, 5, 10), (10, 5, 10), (15, 5, 15)):
        _, s = solved(n, T, d, trials, "nuc")
        used.append(s.rank * (s.rank + 1) / 2 / s.support.sum((-2, -1)))
    square = orthogonal(4)
    s = svm.attention_svm(square, norm="nuc")
    spread = norms.NUC(np.eye(4)) / s.value - 1
    return [
        Measured("r(r+1)/2 over the number of support tokens, largest", max(map(np.max, used)), "<=", 1.0),
        Measured(
            "instance without a unique solution: error of the norm of the identity", abs(spread), "<=", 1e-8
        ),
        Measured(
            "its 4·5/2 over its 4 support tokens", compare.rank(np.eye(4)) * 2.5 / 4, ">", 1.0, breaks=True
        ),
    ]


def orthogonal(n: int) -> data.Problem:
    """n sequences of two tokens: sequence i has query e_i, good token e_i and bad token 0."""
    X = np.zeros((n, 2, n))
    X[:, 0] = np.eye(n)
    return data.Problem(X, np.eye(n), np.ones(n), np.ones(n))


@claim(
    "prop-norms-agree",
    title="One query: both norms agree; orthogonal queries: only Frobenius decouples",
    kind="proposition",
    source=f"{PAPER}, section 3; proof in the chapter",
    chapter=PAGE,
    scope="n = 1, parallel queries, orthogonal queries, and random data at n = 6, T = 8, d = 10",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def agreement(trials: int) -> list[Measured]:
    """Compare the two solutions on one query, on parallel, orthogonal and random queries."""
    few = min(trials, 20)
    one = data.random_problem(1, 8, 10, batch=few)
    p = data.random_problem(4, 5, 10, batch=few)
    stretch = np.array([1.0, -0.5, 2.0, 0.7])[:, None]
    parallel = data.Problem(p.X, stretch * p.z[:, :1], p.y, p.v)
    square = np.linalg.qr(np.random.default_rng(0).normal(size=(few, 10, 10)))[0][:, :4]
    apart = data.Problem(p.X, square, p.y, p.v)
    fro, nuc = svm.attention_svm(apart, norm="fro"), svm.attention_svm(apart, norm="nuc")
    summed = np.zeros_like(fro.W)
    for i in range(4):
        alone = data.Problem(p.X[:, i : i + 1], square[:, i : i + 1], p.y[:, i : i + 1], p.v)
        summed += svm.attention_svm(alone, norm="fro").W
    _, F = solved(6, 8, 10, trials, "fro")
    _, N = solved(6, 8, 10, trials, "nuc")
    corr = compare.correlation(F.W, N.W)
    return [
        Measured("n = 1: angle between the solutions, largest", _angle(one), "<=", 1e-5),
        Measured("parallel queries: the same", _angle(parallel), "<=", 1e-5),
        Measured(
            r"orthogonal queries: error of $\sum_iq_iz_i^\top/\|z_i\|^2$, relative (fro)",
            (norms.FRO(fro.W - summed) / fro.value).max(),
            "<=",
            1e-8,
        ),
        Measured(
            "orthogonal queries: nuclear norm of that sum above the optimum, smallest",
            (norms.NUC(summed) / nuc.value - 1).min(),
            ">",
            1e-3,
            breaks=True,
        ),
        Measured(
            r"random data: smallest $\mathrm{corr}\cdot\sqrt{\mathrm{rank}}$",
            (corr * np.sqrt(F.rank)).min(),
            ">=",
            1.0,
        ),
        Measured("random data: mean correlation", corr.mean(), "in", (0.82, 0.89)),
        Measured(
            "random data: mean ratio of nuclear norms", (norms.NUC(F.W) / N.value).mean(), "in", (1.13, 1.23)
        ),
    ]


def _angle(p: data.Problem) -> float:
    return float(compare.angle(svm.attention_svm(p, norm="fro").W, svm.attention_svm(p, norm="nuc").W).max())


@claim(
    "prop-nuc-nonunique",
    title="Nuclear solutions need not be unique: every correlation matrix solves one instance",
    kind="proposition",
    source="derived in the chapter",
    chapter=PAGE,
    scope="sequences with orthonormal queries and differences, n = 2 and 4",
    seeds="0 to trials − 1",
    trials=(200, 50),
)
def not_unique(trials: int) -> list[Measured]:
    """Draw correlation matrices of all ranks and put them into the conditions."""
    p = orthogonal(4)
    spread, lowest, ranks = 0.0, np.inf, set()
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(4, 1 + seed % 4))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        W = rows @ rows.T
        spread = max(spread, abs(float(norms.NUC(W)) - 4.0))
        lowest = min(lowest, float(compare.margins(W, p.X, p.z, [0] * 4).min()))
        ranks.add(int(compare.rank(W)))
    dual = combine(p, np.array([[0.0, 1.0]] * 4))
    skew = np.eye(4)
    skew[0, 1], skew[1, 0] = 0.5, -0.5  # unit diagonal too, but not symmetric
    return [
        Measured("nuclear norm of correlation matrices, distance from 4", spread, "<=", 1e-12),
        Measured("their smallest margin", lowest, ">=", 1 - 1e-12),
        Measured("spectral norm of the dual point of value 4", norms.SPEC(dual), "<=", 1 + 1e-12),
        Measured("number of different ranks among them", len(ranks), "==", 4),
        Measured(
            "a matrix of unit diagonal that is no correlation matrix: excess of the norm",
            norms.NUC(skew) - 4.0,
            ">",
            0.1,
            breaks=True,
        ),
    ]


@claim(
    "prop-invariance",
    title="Shifts, rotations and one common scale of the queries",
    kind="proposition",
    source="derived in the chapter",
    chapter=PAGE,
    scope="n = 5, T = 5, d = 8, both norms; then self-attention, whose queries move with a shift",
    seeds="0 to trials − 1",
    trials=(20, 6),
)
def invariance(trials: int) -> list[Measured]:
    """Transform the data and transform the solution."""
    p = data.random_problem(5, 5, 8, batch=trials)
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(trials, 8, 8)))[0] for _ in range(2))
    shift = rng.normal(size=(trials, 5, 1, 8))
    turned = data.Problem(np.einsum("bde,bnte->bntd", left, p.X), np.einsum("bde,bne->bnd", right, p.z), p.y)
    moved, scaled = data.Problem(p.X + shift, p.z, p.y), data.Problem(p.X, 3.0 * p.z, p.y)
    stretched = data.Problem(p.X, p.z * np.array([[3.0], [1], [1], [1], [1]]), p.y)
    a = p.optimal
    rows = []
    for name in ("fro", "nuc"):
        s = svm.attention_svm(p, norm=name)
        size = svm.attention_svm(turned, a, norm=name).value
        rows.append(
            Measured(f"norm after rotations, relative error ({name})", relative(size, s.value), "<=", 1e-8)
        )
        size = svm.attention_svm(moved, a, norm=name).value
        rows.append(Measured(f"norm after shifts of sequences ({name})", relative(size, s.value), "<=", 1e-8))
        size = svm.attention_svm(scaled, a, norm=name).value
        rows.append(
            Measured(
                f"three times the norm after queries times 3 ({name})",
                relative(3 * size, s.value),
                "<=",
                1e-8,
            )
        )
    own = data.random_problem(5, 5, 8, batch=trials, self_attention=True)
    pushed = data.self_attention(own.X + 0.2 * shift, own.y, own.v)
    drift = compare.angle(
        svm.attention_svm(pushed, own.optimal, norm="fro").W, svm.attention_svm(own, norm="fro").W
    )
    F = svm.attention_svm(p, norm="fro").W
    rotated = left @ F @ np.swapaxes(right, -1, -2)
    other = svm.attention_svm(stretched, a, norm="fro").W
    return [
        *rows,
        Measured(
            "angle to the rotated solution (fro)",
            compare.angle(svm.attention_svm(turned, a, norm="fro").W, rotated).max(),
            "<=",
            1e-6,
        ),
        Measured(
            "self-attention: median change of direction after shifts, radians (fro)",
            np.median(drift),
            ">",
            0.1,
            breaks=True,
        ),
        Measured(
            "one query times 3: median change of direction, radians (fro)",
            np.median(compare.angle(other, F)),
            ">",
            0.05,
            breaks=True,
        ),
    ]


def all_selections(p: data.Problem) -> tuple[data.Problem, IntArray]:
    """Every choice of one token per sequence, and the problem repeated for each."""
    tokens = np.array(list(itertools.product(range(p.T), repeat=p.n)), dtype=np.int64)
    X = np.broadcast_to(p.X, (len(tokens), *p.X.shape))
    return data.Problem(X, p.z, p.y, p.v), tokens


@claim(
    "prop-opt-local",
    title="The optimal tokens are locally optimal; no others are, if all tokens are support tokens",
    kind="proposition",
    source=f"{PAPER}, Definition 2 and section 5.2",
    chapter=PAGE,
    scope="n = T = 3, all 27 selections, d = 5 and 60",
    seeds="0 to trials − 1",
    trials=(20, 6),
)
def optimal_local(trials: int) -> list[Measured]:
    """Solve for all 27 selections of small instances and count the locally optimal ones."""
    only, best, full = {}, [], []
    tight: dict[int, list[float]] = {5: [], 60: []}
    for d in (5, 60):
        counts = []
        for seed in range(trials):
            p, tokens = all_selections(data.random_problem(3, 3, d, seed=seed))
            s = svm.attention_svm(p, tokens, norm="fro", errors="nan")
            local = selection.locally_optimal(p, s)
            counts.append(int(local.sum()))
            tight[d].append(s.support[s.solved].sum() / s.constrained[s.solved].sum())
            is_best = (tokens == p.optimal[0]).all(-1)
            best.append(bool(local[is_best].all()))
            full.append(local[(s.support | ~s.constrained).all((-2, -1)) & s.solved & ~is_best])
        only[d] = np.array(counts)
    return [
        Measured("share of instances whose optimal tokens are locally optimal", np.mean(best), "==", 1.0),
        Measured("other selections, all tokens support tokens: how many", sum(map(len, full)), ">=", 10),
        Measured("how many of them are locally optimal", sum(map(np.sum, full)), "==", 0),
        Measured("d = 60: share where no other selection is", (only[60] == 1).mean(), ">=", 0.9),
        Measured("d = 60: share of support tokens, all selections", np.mean(tight[60]), ">=", 0.9),
        Measured(
            "d = 5, slack tokens: share where no other selection is",
            (only[5] == 1).mean(),
            "<=",
            0.95,
            breaks=True,
        ),
        Measured("d = 5: share of support tokens, all selections", np.mean(tight[5]), "<=", 0.95),
    ]
